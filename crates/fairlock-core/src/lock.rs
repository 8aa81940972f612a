//! The operations on one lock.

use crate::id::{ClientId, OwnerId, RequestId};
use crate::next::Door;
use crate::op::{
    Acquire, Answer, Body, Channel, CoreError, Effect, Grant, HeldBy, Inspection, Kind, Mode, Op,
    WaiterView,
};
use crate::rules::{Rules, TOKEN_LIMIT, Token, World};
use crate::state::{Cx, LockState};

#[cfg(test)]
mod tests;

impl LockState {
    /// Executes `op` at server time `now_us` (microseconds since 1970).
    ///
    /// # Errors
    /// [`CoreError`]; the state is then unchanged, except that expired keys are removed.
    ///
    /// # Panics
    /// In debug builds, if this breaks an invariant of a state that was consistent before.
    pub fn apply(
        &mut self,
        now_us: u64,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Result<(Answer, Vec<Effect>), CoreError> {
        if let Op::Latch(latch) = op {
            return self.apply_latch(now_us, latch, rules);
        }
        if (self.shares.is_some() || op.is_shared())
            && let Some(done) = self.apply_to_shares(now_us, op, rules, world)
        {
            return done;
        }
        let now_ms = now_us / 1_000;
        self.expire(now_ms);
        self.end_gone(world);
        if self.keys.token.is_some_and(|last| last >= TOKEN_LIMIT) {
            return Err(CoreError::TokenExhausted);
        }
        if let Some(refusal) = self.refusal(op) {
            return Err(refusal);
        }
        // The holder of the very last token still renews and releases; nobody else gets one, or
        // waits for one.
        if matches!(op, Op::Acquire(_) | Op::Beat { .. }) && !self.can_mint(now_us) {
            return Err(CoreError::TokenExhausted);
        }
        let mut cx = Cx::new(now_us, op, rules, world);
        #[cfg(debug_assertions)]
        let before = self.is_consistent(now_ms).then_some(self.keys.token);
        let body = self.dispatch(op, &mut cx);
        self.settle();
        #[cfg(debug_assertions)]
        if let Some(token) = before {
            self.check(now_ms, token, rules, cx.more, op);
        }
        let (more, removed) = (cx.more, cx.removed);
        Ok((Answer { now_ms, more, removed, other_limit: false, body }, cx.effects))
    }

    /// Returns whether [`apply`](Self::apply) would grant this acquisition at once. For a store that takes several
    /// locks in one step, all or none.
    pub fn would_grant(&self, now_us: u64, op: &Op, rules: &Rules, world: &dyn World) -> bool {
        let done = self.clone().apply(now_us, op, rules, world);
        matches!(done, Ok((Answer { body: Body::Granted { .. }, .. }, _)))
    }

    #[inline]
    fn dispatch(&mut self, op: &Op, cx: &mut Cx<'_>) -> Body {
        match op {
            Op::Acquire(acquire) => self.acquire(acquire, cx),
            Op::Reenter { owner, token, count, change } => {
                self.reenter(owner, *token, *count, *change, cx)
            }
            Op::Release { kind: Kind::Simple, owner, token, keep, .. } => {
                self.simple_release(owner, *token, *keep, cx)
            }
            Op::Release { kind, owner, token, keep, change } => {
                self.release(*kind, owner, *token, *keep, *change, cx)
            }
            Op::Renew { kind: Kind::Simple, owner, token, ttl_ms } => {
                self.simple_renew(owner, *token, *ttl_ms, cx)
            }
            Op::Renew { owner, token, ttl_ms, .. } => self.renew(owner, *token, *ttl_ms, cx),
            Op::Leave { kind: Kind::Simple, owner, request, bury, .. } => {
                self.simple_leave(owner, *request, *bury, cx)
            }
            Op::Leave { kind, owner, request, bury, shared_owner } => {
                self.leave(*kind, owner, *request, *bury, *shared_owner, cx)
            }
            Op::Beat { client, waiters } => self.beat(*client, waiters, cx),
            Op::Nudge => {
                self.next(cx);
                Body::Nudged
            }
            Op::Force { kind: Kind::Simple } => self.simple_force(cx),
            Op::Force { .. } => self.force(cx),
            Op::Place { owner } => Body::Place { ahead: self.place(owner) },
            Op::Inspect { kind: Kind::Simple, .. } => {
                Body::Inspected(Box::new(self.simple_inspect(cx)))
            }
            Op::Inspect { limit, .. } => Body::Inspected(Box::new(self.inspect(*limit, cx))),
            Op::Announce(announce) => self.announce(announce, cx),
            Op::Leader => Body::Leader(Box::new(self.leadership(cx))),
            // Carried out by `apply_to_shares`.
            Op::AcquireShare(_) | Op::Downgrade { .. } | Op::OfShares(_) | Op::OfHold(_) => {
                Body::Nothing
            }
            // Carried out by `apply_latch`.
            Op::Latch(_) => Body::Nothing,
        }
    }

    fn acquire(&mut self, a: &Acquire, cx: &mut Cx<'_>) -> Body {
        if cx.now_ms > a.not_after_ms {
            return Body::TooLate;
        }
        if self.keys.buried.contains_key(&a.request) {
            return Body::Buried;
        }
        let held = self.keys.hold.get(&a.owner).copied();
        match (a.kind, held) {
            (Kind::Simple, _) => self.simple_acquire(a, cx),
            (_, Some(count)) => self.acquire_held(a, count, cx),
            (Kind::Plain, None) => {
                if self.is_free() {
                    return self.take_now(a, cx);
                }
                if a.mode == Mode::Wait {
                    self.mend_hold(a.lease_ms, cx);
                }
                Body::Busy { ttl_ms: self.hold_ttl(cx.now_ms) }
            }
            // Shares are asked for otherwise; without one, all of the lock is asked for.
            (Kind::Fair | Kind::ReadWrite | Kind::Semaphore, None) => self.acquire_fair(a, cx),
        }
    }

    fn acquire_fair(&mut self, a: &Acquire, cx: &mut Cx<'_>) -> Body {
        if self.is_free() && self.keys.queue.is_empty() && a.order.is_none() {
            return self.take_now(a, cx);
        }
        if a.mode == Mode::Try {
            let door = self.next(cx);
            if door == Door::Open {
                return self.take_now(a, cx);
            }
            return Body::Busy { ttl_ms: self.hold_ttl(cx.now_ms) };
        }
        self.enter(a, cx);
        let length = self.keys.queue.len() as u64;
        let fresh = a.owner.client().is_none_or(|client| self.note_entry(client, cx));
        let k = &self.keys;
        let new_keys = k.order.len() == 1 || k.queue.len() == 1 || k.scores.len() == 1;
        if fresh && !new_keys {
            // The beats of this client renew the rest.
            self.keep_state(cx);
        } else {
            self.keep_registry(cx);
            self.keep_queue(cx);
        }
        cx.caller = Some(a.owner.clone());
        cx.calling = a.owner.client();
        self.next(cx);
        if self.keys.hold.contains_key(&a.owner) {
            return self.granted(a.lease_ms);
        }
        self.mend_hold(a.lease_ms, cx);
        Body::Queued {
            order: self.keys.order.get(&a.owner).copied().unwrap_or(0),
            retry_ms: self.retry_ms(cx.now_ms, cx.rules),
            foreign: self.foreign_near(),
            length,
        }
    }

    /// The caller already holds the lock: this is another copy of the same request, or another
    /// request of an owner that several requests share.
    fn acquire_held(&mut self, a: &Acquire, count: i64, cx: &Cx<'_>) -> Body {
        if a.shared_owner && self.granted_request() != Some(a.request) {
            return Body::HeldBySelf { count: shown(count) };
        }
        if self.keys.hold_expires.is_none() {
            // An operator removed the TTL.
            self.keys.hold_expires = Some(cx.now_ms + a.lease_ms);
        }
        let Some(token) = self.keys.token.and_then(Token::new) else {
            // The token key was lost, and so was the first reply.
            let token = self.mint(false, cx);
            return Body::Granted { token, ttl_ms: self.hold_ttl(cx.now_ms).unwrap_or(0) };
        };
        Body::Granted { token, ttl_ms: self.hold_ttl(cx.now_ms).unwrap_or(0) }
    }

    fn take_now(&mut self, a: &Acquire, cx: &Cx<'_>) -> Body {
        let foreign = a.kind == Kind::Fair && self.has_foreign();
        let token = self.mint(foreign, cx);
        self.take(&a.owner, a.lease_ms, cx);
        if a.shared_owner {
            self.keys.record.grant = Some((token.get(), a.request));
            let kept = cx.rules.registry_ms().max(a.lease_ms + cx.rules.dead_ms);
            self.keys.state_expires = Some(cx.now_ms + kept);
        }
        Body::Granted { token, ttl_ms: a.lease_ms }
    }

    fn granted(&self, ttl_ms: u64) -> Body {
        let token = self.keys.token.and_then(Token::new);
        Body::Granted { token: token.expect("a grant has just minted it"), ttl_ms }
    }

    /// The request that got the present hold, if it was recorded.
    fn granted_request(&self) -> Option<RequestId> {
        let (token, request) = self.keys.record.grant?;
        (self.keys.token == Some(token)).then_some(request)
    }

    fn reenter(
        &mut self,
        owner: &OwnerId,
        token: Token,
        count: u32,
        change: u64,
        cx: &Cx<'_>,
    ) -> Body {
        if !self.holds(owner, token) {
            return Body::NotHeld { holder: self.named_holder() };
        }
        if self.is_stale(token, change) {
            return Body::Stale;
        }
        self.set_count(owner, token, count, change, cx);
        Body::StillHeld { count }
    }

    fn release(
        &mut self,
        kind: Kind,
        owner: &OwnerId,
        token: Token,
        keep: u32,
        change: u64,
        cx: &mut Cx<'_>,
    ) -> Body {
        if !self.holds(owner, token) {
            let body = Body::NotHeld { holder: self.named_holder() };
            self.pass_on(kind, cx);
            return body;
        }
        if keep > 0 {
            if self.is_stale(token, change) {
                return Body::Stale;
            }
            self.set_count(owner, token, keep, change, cx);
            return Body::StillHeld { count: keep };
        }
        self.free(kind, cx);
        let foreign = kind == Kind::Fair && self.has_foreign();
        self.raise_token(token, foreign, cx);
        self.pass_on(kind, cx);
        Body::Released
    }

    fn is_stale(&self, token: Token, change: u64) -> bool {
        self.keys.record.change.is_some_and(|(of, last)| of == token.get() && change < last)
    }

    fn set_count(&mut self, owner: &OwnerId, token: Token, count: u32, change: u64, cx: &Cx<'_>) {
        // The number must live as long as the hold that it protects, and a renewal in the hold's
        // last millisecond must still find it.
        let registry = cx.now_ms + cx.rules.registry_ms();
        let known = self.keys.state_expires.max(self.keys.hold_expires).unwrap_or(registry);
        self.keys.state_expires =
            Some(known.max(registry).min(cx.now_ms + crate::rules::LONGEST_MS));
        self.keys.hold.insert(owner.clone(), i64::from(count));
        self.keys.record.change = Some((token.get(), change));
    }

    fn free(&mut self, kind: Kind, cx: &mut Cx<'_>) {
        self.keys.hold.clear();
        self.keys.hold_expires = None;
        cx.freed = true;
        if kind == Kind::Plain {
            cx.tell(Channel::Base);
        }
    }

    fn pass_on(&mut self, kind: Kind, cx: &mut Cx<'_>) {
        if kind == Kind::Fair {
            self.next(cx);
        }
        self.tidy(cx.now_us);
    }

    fn renew(&mut self, owner: &OwnerId, token: Token, ttl_ms: u64, cx: &mut Cx<'_>) -> Body {
        if !self.holds(owner, token) {
            let body = Body::NotHeld { holder: self.named_holder() };
            self.next(cx);
            return body;
        }
        self.keys.hold_expires = Some(cx.now_ms + ttl_ms);
        if self.is_behind(token) {
            // A server that took over without the last writes may know an older hold of this owner.
            // From now on it is this hold, and delayed operations that end the older one find
            // nothing.
            let foreign = self.has_foreign();
            self.raise_token(token, foreign, cx);
        }
        self.keep_token(cx);
        if self.keys.has_state() {
            let kept = cx.rules.registry_ms().max(ttl_ms + cx.rules.dead_ms);
            self.keys.state_expires = Some(cx.now_ms + kept);
        }
        Body::Renewed
    }

    fn leave(
        &mut self,
        kind: Kind,
        owner: &OwnerId,
        request: RequestId,
        bury: bool,
        shared_owner: bool,
        cx: &mut Cx<'_>,
    ) -> Body {
        if self.keys.has_state() && self.keys.state_expires.is_none() {
            self.keys.state_expires = Some(cx.now_ms + cx.rules.registry_ms());
        }
        let waiting = self.keys.waiters.get(owner).map(|waiter| waiter.request);
        let stands =
            waiting == Some(request) || (waiting.is_none() && self.keys.scores.contains_key(owner));
        // A plain lock has no queue: an entry there belongs to a client that mixes kinds.
        let left = kind == Kind::Fair && stands;
        if left {
            self.unlist(owner);
            self.drop_order(owner);
        }
        // Checked even if the entry left: a record outlives its entry when Java removes that, and
        // the request may then have got the lock past the empty queue.
        let body = if self.keys.hold.contains_key(owner)
            && self.granted_request().map_or(!shared_owner, |granted| granted == request)
        {
            self.free(kind, cx);
            Body::Freed
        } else if left {
            Body::Left
        } else {
            Body::Nothing
        };
        if bury {
            self.keys.buried.insert(request, cx.now_ms + cx.rules.bury_ms);
        }
        self.pass_on(kind, cx);
        body
    }

    fn beat(&mut self, client: ClientId, waiters: &[OwnerId], cx: &mut Cx<'_>) -> Body {
        cx.calling = Some(client);
        self.note_beat(client, cx);
        self.mend(cx);
        let mut queued = Vec::with_capacity(waiters.len());
        for waiter in waiters {
            let stands = self.is_queued(waiter);
            if stands {
                self.keep_score(waiter, cx);
            }
            queued.push(stands);
        }
        self.keep_tail(cx);
        self.keep_registry(cx);
        self.keep_queue(cx);
        self.pass_on(Kind::Fair, cx);
        // A waiter that `next` has just granted is no longer queued; `held` tells its client.
        let held = self.held_by_client(client, cx.now_ms);
        let oldest = waiters.first().and_then(|waiter| self.keys.waiters.get(waiter));
        if let Some(lease_ms) = oldest.map(|waiter| waiter.lease_ms) {
            self.mend_hold(lease_ms, cx);
        }
        let retry_ms = self.retry_ms(cx.now_ms, cx.rules);
        Body::Beaten { held, queued, retry_ms, foreign: self.foreign_near() }
    }

    pub(crate) fn held_by_client(&self, client: ClientId, now_ms: u64) -> Option<Grant> {
        let holder = self.holder()?;
        if holder.client() != Some(client) {
            return None;
        }
        let request = self.granted_request()?;
        let token = self.keys.token.and_then(Token::new)?;
        Some(Grant { request, token, ttl_ms: self.hold_ttl(now_ms)? })
    }

    fn force(&mut self, cx: &mut Cx<'_>) -> Body {
        let holder = self.named_holder();
        let token = self.keys.token.and_then(Token::new);
        cx.tell_forced(holder.as_ref(), token);
        // The kind is not known here, so waiters of both kinds are notified.
        self.free(Kind::Plain, cx);
        self.pass_on(Kind::Fair, cx);
        Body::Forced { holder, others: 0 }
    }

    /// After how many milliseconds the waiters should look again without being notified.
    pub(crate) fn retry_ms(&self, now_ms: u64, rules: &Rules) -> Option<u64> {
        let at = self.next_deadline_ms(now_ms, rules)?;
        Some(crate::rules::left_ms(at, now_ms))
    }

    /// Gives a hold of ours a TTL if it has none, because it would outlive a dead holder for ever.
    /// `lease_ms` is the caller's own: the clients of a lock use similar leases. If the holder is
    /// alive, its next renewal sets its own TTL again. A foreign hold may be meant to last, or be
    /// another program's data, so its TTL stays as it is.
    fn mend_hold(&mut self, lease_ms: u64, cx: &Cx<'_>) {
        let ours = self.holder().is_some_and(OwnerId::is_ours);
        if ours && self.keys.hold_expires.is_none() {
            self.keys.hold_expires = Some(cx.now_ms + lease_ms.max(crate::rules::MENDED_HOLD_MS));
        }
    }

    /// How many members are before `owner` in the queue.
    fn place(&self, owner: &OwnerId) -> Option<u64> {
        let at = self.keys.queue.iter().position(|member| member == owner)?;
        Some(at as u64)
    }

    fn inspect(&self, limit: u32, cx: &Cx<'_>) -> Inspection {
        let k = &self.keys;
        let beat_age_ms = |client: ClientId| match cx.rules.ages {
            true => self.beat_of(client).map(|beat| cx.now_ms.saturating_sub(beat)),
            // Beats do not tell who is alive here.
            false => (!cx.world.gone(client)).then_some(0),
        };
        let view = |owner: &OwnerId| WaiterView {
            owner: owner.cut(),
            beat_age_ms: owner.client().and_then(beat_age_ms),
            order: owner
                .client()
                .and_then(|_| k.order.get(owner).copied())
                .filter(|order| *order < TOKEN_LIMIT),
        };
        let holder = k
            .hold
            .iter()
            .next()
            .map(|(owner, count)| HeldBy { owner: owner.cut(), count: u64::from(shown(*count)) });
        Inspection {
            holder,
            ttl_ms: self.hold_ttl(cx.now_ms),
            token: k.token.and_then(Token::new),
            queue_len: k.queue.len() as u64,
            queue: k.queue.iter().take(limit as usize).map(view).collect(),
            shares: None,
        }
    }
}

/// Returns a hold count as replies show it. Counts that do not fit were refused before.
fn shown(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(crate::rules::MAX_HOLD_COUNT)
}
