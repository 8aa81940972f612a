//! The operations on a lock with shares.

use crate::holds::{SharedHold, Shares};
use crate::id::{ClientId, OwnerId, RequestId};
use crate::next::Door;
use crate::op::{
    Acquire, Answer, Body, CoreError, Effect, Fate, Grant, Kind, Mode, Op, ShareAcquire,
    is_share_of, is_shared,
};
use crate::rules::{Rules, TOKEN_LIMIT, Token, World, left_ms};
use crate::share::Share;
use crate::state::{Cx, LockState};

impl LockState {
    /// [`apply`](Self::apply) for an operation on shares, or on a lock that has some. Returns `None` if nobody uses the
    /// name as a lock with shares any more and the operation is for another kind.
    #[inline(never)]
    pub(crate) fn apply_to_shares(
        &mut self,
        now_us: u64,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Option<Result<(Answer, Vec<Effect>), CoreError>> {
        let now_ms = now_us / 1_000;
        self.expire(now_ms);
        let (kind, request, op) = (op.kind(), op.hold().map(|hold| hold.request), op.bare());
        let mut cx = Cx::new(now_us, op, rules, world);
        let present = self.shares.as_ref().map(|shares| shares.kind());
        let meets_another = kind.is_some() && kind != present;
        if meets_another {
            self.forget_gone(&cx);
        }
        if let Some(shares) = &mut self.shares {
            if self.by_order.is_empty() {
                // The places are gone, in this call or before, and nobody wants anything any more.
                shares.wants.clear();
                // A look changes nothing, unless the name may be free for another kind now.
                if meets_another || !matches!(op, Op::Inspect { .. } | Op::Place { .. }) {
                    self.end_leases(&mut cx);
                }
            }
            let another = kind.is_some_and(|kind| !is_shared(kind));
            if another && self.has_no_shares() && !matches!(op, Op::AcquireShare(_)) {
                self.shares = None;
                return None;
            }
        }
        if let Some(refusal) = self.refusal_of_share(kind, op, now_us) {
            return Some(Err(refusal));
        }
        match kind {
            Some(kind) if self.shares.as_ref().is_none_or(|shares| shares.kind() != kind) => {
                self.shares = Some(Box::new(Shares::new(kind)));
            }
            _ => {}
        }
        #[cfg(debug_assertions)]
        let before = self.keys.token;
        let body = self.dispatch_to_shares(op, request, &mut cx);
        self.settle();
        #[cfg(debug_assertions)]
        self.check_shares(before, &cx, &body);
        let other_limit = self.finds_another_limit(op, &body);
        let (more, removed) = (cx.more, cx.removed);
        Some(Ok((Answer { now_ms, more, removed, other_limit, body }, cx.effects)))
    }

    /// Ends the holds and waits of clients that are gone, before the name is used for another kind:
    /// the operation would be refused as long as they seem to use it. Nobody is served, because if
    /// any client is alive, the call is refused and changes nothing.
    fn forget_gone(&mut self, cx: &Cx<'_>) {
        if !cx.world.proves_death() {
            return;
        }
        self.end_gone(cx.world);
        if self.shares.is_some() {
            self.end_gone_shares(None, cx);
        }
        let gone = |owner: &&OwnerId| owner.client().is_some_and(|client| cx.world.gone(client));
        let gone: Vec<_> = self.keys.order.keys().filter(gone).cloned().collect();
        for owner in &gone {
            self.unlist(owner);
            self.drop_order(owner);
            if let Some(shares) = &mut self.shares {
                shares.wants.remove(owner);
            }
        }
    }

    /// Ends the holds whose leases are over, without serving anybody. For callers that forget
    /// unused locks.
    pub(crate) fn end_leases_unseen(&mut self, now_ms: u64) {
        let Some(shares) = self.shares.as_mut().filter(|_| self.by_order.is_empty()) else {
            // Somebody waits for the end of a lease, and is to be served then.
            return;
        };
        while let Some(hold) = shares.first_over(now_ms).and_then(|owner| shares.remove(&owner)) {
            // The next token is larger than that of a hold that ends, however it ends.
            let token = self.keys.token.max(Some(hold.token.get()));
            if token != self.keys.token {
                self.keys.token = token;
                self.keys.token_expires = Some(now_ms + crate::rules::TOKEN_TTL_MS);
            }
        }
    }

    /// Whether permits are held under another limit than the one that the operation was admitted with. A failed try
    /// does not count, because a caller may repeat it.
    fn finds_another_limit(&self, op: &Op, body: &Body) -> bool {
        let Op::AcquireShare(ask) = op else { return false };
        if !matches!(body, Body::Granted { .. } | Body::GrantedBefore(_) | Body::Queued { .. }) {
            return false;
        }
        let Share::Permits { limit, .. } = ask.share else { return false };
        let known = self.shares.as_ref().and_then(|shares| shares.limits());
        known.is_some_and(|known| known != (limit, limit))
    }

    /// Whether nobody holds a share or waits for one.
    fn has_no_shares(&self) -> bool {
        self.by_order.is_empty()
            && self.shares.as_ref().is_none_or(|shares| shares.holds().is_empty())
    }

    /// Returns why the operation is refused, if it is. A refused operation changes nothing.
    fn refusal_of_share(&self, kind: Option<Kind>, op: &Op, now_us: u64) -> Option<CoreError> {
        let k = &self.keys;
        if k.token.is_some_and(|last| last >= TOKEN_LIMIT) {
            return Some(CoreError::TokenExhausted);
        }
        let present = self.shares.as_ref().map(|shares| shares.kind());
        let others = kind.is_some_and(|kind| !is_shared(kind))
            || (present.zip(kind).is_some_and(|(is, wants)| is != wants) && !self.has_no_shares());
        let of_a_lock = !k.hold.is_empty() || k.value.is_some() || !k.queue.is_empty();
        if others || of_a_lock || (present.is_none() && !k.order.is_empty()) {
            return Some(match (self.not_a_hold(), present.filter(|_| !self.has_no_shares())) {
                (Some(found), _) => CoreError::NotALock(found),
                (None, Some(present)) => CoreError::InUse(present),
                (None, None) if self.is_counter() => CoreError::WrongType,
                (None, None) if k.value.is_some() => CoreError::InUse(Kind::Simple),
                (None, None) if of_a_lock || !k.order.is_empty() => CoreError::InUse(Kind::Fair),
                (None, None) => CoreError::WrongType,
            });
        }
        match op {
            Op::AcquireShare(ask) if !is_share_of(ask.acquire.kind, ask.share) => {
                Some(CoreError::NoSuchShare)
            }
            // The holders of the last tokens still renew and release; nobody else gets one, or waits for one.
            Op::AcquireShare(_) | Op::Beat { .. } if !self.can_mint(now_us) => {
                Some(CoreError::TokenExhausted)
            }
            _ => None,
        }
    }

    fn dispatch_to_shares(&mut self, op: &Op, request: Option<RequestId>, cx: &mut Cx<'_>) -> Body {
        match op {
            Op::AcquireShare(ask) => self.acquire_share(ask, cx),
            Op::Reenter { owner, token, count, change } => {
                self.count_share(owner, *token, request, (*count, *change), cx)
            }
            Op::Release { owner, token, keep, change, .. } => {
                let body = match keep {
                    0 => self.release_share(owner, *token, request, cx),
                    keep => self.count_share(owner, *token, request, (*keep, *change), cx),
                };
                self.pass_shares_on(cx);
                body
            }
            Op::Downgrade { owner, token } => {
                let body = self.downgrade_share(owner, *token, request, cx);
                self.pass_shares_on(cx);
                body
            }
            Op::Renew { owner, token, ttl_ms, .. } => {
                self.renew_share(owner, *token, request, *ttl_ms, cx)
            }
            Op::Leave { owner, request, bury, .. } => self.leave_share(owner, *request, *bury, cx),
            Op::Beat { client, waiters } => self.beat_shares(*client, waiters, cx),
            Op::Force { .. } => self.force_shares(cx),
            Op::Place { owner } => Body::Place { ahead: self.place_in_line(owner) },
            Op::Inspect { limit, .. } => Body::Inspected(Box::new(self.inspect_shares(*limit, cx))),
            // An acquisition of another kind was refused, and what is for a kind is bare here.
            Op::Nudge
            | Op::Acquire(_)
            | Op::Announce(_)
            | Op::Leader
            | Op::OfShares(_)
            | Op::OfHold(_) => {
                self.end_gone_shares(None, cx);
                self.pass_shares_on(cx);
                Body::Nudged
            }
            // Carried out by `apply_latch`.
            Op::Latch(_) => Body::Nothing,
        }
    }

    fn acquire_share(&mut self, ask: &ShareAcquire, cx: &mut Cx<'_>) -> Body {
        let ShareAcquire { acquire: a, share } = ask;
        if cx.now_ms > a.not_after_ms {
            return Body::TooLate;
        }
        if self.keys.buried.contains_key(&a.request) {
            return Body::Buried;
        }
        if let Some(hold) = self.held_share(&a.owner, cx.now_ms) {
            return held_before(a, hold, cx);
        }
        // Of which the lease is over.
        self.end_share(&a.owner, cx);
        if self.by_order.is_empty() && a.order.is_none() {
            if self.makes_room(*share, cx) {
                return self.take_share_now(a, *share, cx);
            }
        } else if a.mode == Mode::Try {
            let door = self.serve_line(cx);
            // Another request of the same owner may have been waiting.
            if let Some(hold) = self.held_share(&a.owner, cx.now_ms) {
                return held_before(a, hold, cx);
            }
            let may = door == Door::Open && self.can_mint(cx.now_us);
            if may && self.makes_room(*share, cx) {
                return self.take_share_now(a, *share, cx);
            }
        }
        if a.mode == Mode::Try {
            return Body::Busy { ttl_ms: self.first_end_in_ms(cx) };
        }
        self.wait_for_share(a, *share, cx)
    }

    fn take_share_now(&mut self, a: &Acquire, share: Share, cx: &Cx<'_>) -> Body {
        let token = self.take_share(&a.owner, a.request, share, a.lease_ms, cx);
        Body::Granted { token, ttl_ms: a.lease_ms }
    }

    fn wait_for_share(&mut self, a: &Acquire, share: Share, cx: &mut Cx<'_>) -> Body {
        self.stand_in_line(a, share, cx);
        let length = self.by_order.len() as u64;
        let fresh = a.owner.client().is_none_or(|client| self.note_entry(client, cx));
        if fresh && length > 1 {
            // The beats of this client renew the rest.
            self.keep_state(cx);
        } else {
            self.keep_registry(cx);
        }
        cx.caller = Some(a.owner.clone());
        cx.calling = a.owner.client();
        self.serve_line(cx);
        if let Some(hold) = self.shared().holds().get(&a.owner) {
            return Body::Granted { token: hold.token, ttl_ms: a.lease_ms };
        }
        Body::Queued {
            order: self.keys.order.get(&a.owner).copied().unwrap_or(0),
            retry_ms: self.retry_shares_ms(cx),
            foreign: false,
            length,
        }
    }

    /// Sets the count of a hold: the owner enters it once more, or leaves it.
    fn count_share(
        &mut self,
        owner: &OwnerId,
        token: Token,
        request: Option<RequestId>,
        (count, change): (u32, u64),
        cx: &Cx<'_>,
    ) -> Body {
        let Some(hold) = self.shared().hold_mut(owner, token, request, cx.now_ms) else {
            return self.no_share(cx);
        };
        if change < hold.change {
            return Body::Stale;
        }
        (hold.count, hold.change) = (count, change);
        Body::StillHeld { count }
    }

    fn release_share(
        &mut self,
        owner: &OwnerId,
        token: Token,
        request: Option<RequestId>,
        cx: &Cx<'_>,
    ) -> Body {
        if self.shared().hold_mut(owner, token, request, cx.now_ms).is_none() {
            return self.no_share(cx);
        }
        self.end_share(owner, cx);
        Body::Released
    }

    /// Makes a writer's hold a reader's, in whatever order changes of its count arrive: a reader does not become a
    /// writer again.
    fn downgrade_share(
        &mut self,
        owner: &OwnerId,
        token: Token,
        request: Option<RequestId>,
        cx: &Cx<'_>,
    ) -> Body {
        let Some(hold) = self.shared().hold_mut(owner, token, request, cx.now_ms) else {
            return self.no_share(cx);
        };
        let (count, share) = (hold.count, hold.share);
        if share == Share::Whole {
            self.shared().downgrade(owner);
        }
        Body::StillHeld { count }
    }

    fn renew_share(
        &mut self,
        owner: &OwnerId,
        token: Token,
        request: Option<RequestId>,
        ttl_ms: u64,
        cx: &mut Cx<'_>,
    ) -> Body {
        if self.shared().hold_mut(owner, token, request, cx.now_ms).is_none() {
            self.pass_shares_on(cx);
            return self.no_share(cx);
        }
        self.shared().renew(owner, cx.now_ms + ttl_ms);
        self.raise_token(token, false, cx);
        self.keep_token(cx);
        Body::Renewed
    }

    fn leave_share(
        &mut self,
        owner: &OwnerId,
        request: RequestId,
        bury: bool,
        cx: &mut Cx<'_>,
    ) -> Body {
        let waiting = self.keys.waiters.get(owner).map(|waiter| waiter.request);
        let left =
            waiting == Some(request) || (waiting.is_none() && self.keys.order.contains_key(owner));
        if left {
            self.leave_line(owner);
            self.end_guests(cx.now_ms);
        }
        let got = self.held_share(owner, cx.now_ms).is_some_and(|hold| hold.request == request);
        if got {
            self.end_share(owner, cx);
        }
        if bury {
            self.keys.buried.insert(request, cx.now_ms + cx.rules.bury_ms);
        }
        // Also if nothing was freed: those behind may want less than whoever left.
        self.pass_shares_on(cx);
        match (got, left) {
            (true, _) => Body::Freed,
            (false, true) => Body::Left,
            (false, false) => Body::Nothing,
        }
    }

    fn beat_shares(&mut self, client: ClientId, waiters: &[OwnerId], cx: &mut Cx<'_>) -> Body {
        cx.calling = Some(client);
        self.note_beat(client, cx);
        self.keep_registry(cx);
        self.pass_shares_on(cx);
        let fates = waiters.iter().map(|waiter| self.fate(waiter, cx.now_ms)).collect();
        Body::Fates { fates, retry_ms: self.retry_shares_ms(cx), foreign: false }
    }

    fn fate(&self, waiter: &OwnerId, now_ms: u64) -> Fate {
        if self.is_on_record(waiter) {
            return Fate::Queued;
        }
        self.held_share(waiter, now_ms).map_or(Fate::Unknown, |hold| {
            let ttl_ms = left_ms(hold.ends_ms, now_ms);
            Fate::Granted(Grant { request: hold.request, token: hold.token, ttl_ms })
        })
    }

    fn force_shares(&mut self, cx: &mut Cx<'_>) -> Body {
        // What is over ends by itself, and its holder is not counted.
        self.end_gone_shares(None, cx);
        let live = |hold: &SharedHold| hold.ends_ms >= cx.now_ms;
        let holds = self.shared().holds().iter().filter(|(_, hold)| live(hold));
        let all: Vec<_> = holds.map(|(owner, hold)| (owner.clone(), hold.token)).collect();
        for (owner, token) in &all {
            cx.tell_forced(Some(owner), Some(*token));
            self.end_share(owner, cx);
        }
        self.pass_shares_on(cx);
        let others = u32::try_from(all.len().saturating_sub(1)).unwrap_or(u32::MAX);
        Body::Forced { holder: all.into_iter().next().map(|(owner, _)| owner), others }
    }

    /// Serves the line, and removes our own keys once nobody holds or waits.
    fn pass_shares_on(&mut self, cx: &mut Cx<'_>) {
        self.serve_line(cx);
        if self.has_no_shares() {
            self.tidy(cx.now_us);
        }
    }

    /// Replies that the caller has no such hold. Names a holder of the whole lock as the one that
    /// has it instead; other holders would not have excluded the caller.
    fn no_share(&mut self, cx: &Cx<'_>) -> Body {
        let shares = self.shared();
        let first = shares.holds().iter().next().filter(|_| shares.is_whole());
        let lasting = first.filter(|(_, hold)| hold.ends_ms >= cx.now_ms);
        Body::NotHeld { holder: lasting.map(|(owner, _)| owner.clone()) }
    }

    /// The hold of `owner`, unless its lease is over.
    fn held_share(&self, owner: &OwnerId, now_ms: u64) -> Option<SharedHold> {
        let hold = self.shares.as_ref()?.holds().get(owner)?;
        (hold.ends_ms >= now_ms).then_some(*hold)
    }

    fn first_end_in_ms(&mut self, cx: &Cx<'_>) -> Option<u64> {
        self.shared().first_end_ms().map(|end| left_ms(end, cx.now_ms))
    }

    fn retry_shares_ms(&self, cx: &Cx<'_>) -> Option<u64> {
        self.shares_retry_ms(cx.now_ms, cx.rules)
    }

    /// After how many milliseconds those who wait for shares should look again without being notified.
    pub(super) fn shares_retry_ms(&self, now_ms: u64, rules: &Rules) -> Option<u64> {
        let at = self.shares_deadline_ms(now_ms, rules.beat_ms)?;
        Some(left_ms(at, now_ms))
    }
}

/// The caller has a hold already: this is another copy of the request that got it, or another request of an owner that
/// several share.
fn held_before(a: &Acquire, hold: SharedHold, cx: &Cx<'_>) -> Body {
    let (request, token) = (hold.request, hold.token);
    let ttl_ms = left_ms(hold.ends_ms, cx.now_ms);
    match (request == a.request, a.shared_owner) {
        (true, _) => Body::Granted { token, ttl_ms },
        (false, true) => Body::HeldBySelf { count: hold.count },
        // The owner's acquisition had returned to its place; its hold is named by the request that got it.
        (false, false) => Body::GrantedBefore(Grant { request, token, ttl_ms }),
    }
}
