//! Serves the line from its head, for as long as the head's share fits beside the present holds.
//! Nobody is served before a living waiter that came earlier, so no request starves, however much
//! it wants.

use crate::holds::SharedHold;
use crate::id::OwnerId;
use crate::liveness::{Verdict, is_over};
use crate::next::{Door, granted_ms};
use crate::op::{Channel, Effect, Grant, Payload};
use crate::rules::Token;
use crate::share::Share;
use crate::state::{Cx, LockState};

/// How many grants one call makes before it replies MORE, so that a call is short, however many readers wait.
const GRANTS_MAX: u32 = 128;

impl LockState {
    pub(super) fn serve_line(&mut self, cx: &mut Cx<'_>) -> Door {
        self.end_leases(cx);
        if !self.by_order.is_empty() && self.left_to_guests(cx.now_ms).is_some() {
            return Door::Closed;
        }
        let (mut looks, mut grants) = (0, 0);
        while let Some((_, head)) = self.by_order.first() {
            if looks == crate::rules::LOOKED_AT_MAX || grants == GRANTS_MAX {
                cx.more = true;
                return Door::Closed;
            }
            let head = head.clone();
            let want = self.shared().wants.get(&head).copied();
            let Some(share) = want.filter(|_| self.is_on_record(&head)) else {
                // Its record was lost. It returns to its place when it notices.
                if self.gathers_for_lost(cx) {
                    return Door::Closed;
                }
                self.leave_line(&head);
                self.note_removed(cx);
                looks += 1;
                continue;
            };
            if !self.makes_room(share, cx) {
                // It is looked at only where that may help those behind it, or a caller that tries.
                let others = self.by_order.len() > 1 || cx.is_trying();
                let blocks = others && !self.shared().is_whole();
                if !blocks || !self.is_surely_dead(&head, cx) {
                    return Door::Closed;
                }
                self.remove_dead(&head, cx);
                looks += 1;
                continue;
            }
            match self.judge(&head, cx) {
                Verdict::Grant if !self.can_mint(cx.now_us) => return Door::Closed,
                Verdict::Grant if self.lets_guests_in(&head, cx) => return Door::Closed,
                Verdict::Grant => {
                    self.grant_share(&head, share, cx);
                    grants += 1;
                }
                Verdict::Remove => {
                    self.remove_dead(&head, cx);
                    looks += 1;
                }
                Verdict::Wait => return Door::Closed,
            }
        }
        Door::Open
    }

    /// Whether nobody is served for now, because the records of waiters were lost: they notice with their next
    /// heartbeats, and none of them must lose its place to a waiter that came later.
    fn gathers_for_lost(&mut self, cx: &Cx<'_>) -> bool {
        let (now_ms, beat_ms) = (cx.now_ms, cx.rules.beat_ms);
        match self.keys.record.gather {
            Some(until) if now_ms < until && until <= now_ms + beat_ms => true,
            // They had their time.
            Some(until) if until <= now_ms && now_ms - until < beat_ms => false,
            _ => {
                self.keys.record.gather = Some(now_ms + beat_ms);
                self.keep_state(cx);
                true
            }
        }
    }

    /// Returns whether `share` fits. If need be, first ends the holds of clients that are known to be gone, except
    /// holds that were left to the store.
    pub(super) fn makes_room(&mut self, share: Share, cx: &mut Cx<'_>) -> bool {
        if self.shared().fits(share) {
            return true;
        }
        self.end_gone_shares(Some(share), cx);
        self.shared().fits(share)
    }

    /// Ends the holds of clients that are known to be gone; on behalf of a waiter for `share`, only
    /// those that may help it. A waiter that wants the whole lock is helped only if all holders are
    /// gone, so the operations need not ask about each of a crowd of live readers.
    pub(super) fn end_gone_shares(&mut self, share: Option<Share>, cx: &Cx<'_>) {
        if !cx.world.proves_death() {
            return;
        }
        let mut gone = Vec::new();
        for (at, (owner, hold)) in self.shared().holds().iter().enumerate() {
            let in_vain = share == Some(Share::Whole) && gone.len() < at;
            if in_vain && at >= crate::rules::LOOKED_AT_MAX as usize {
                break;
            }
            if is_over(owner, Some(hold.token), Some(hold.request), cx.world) {
                gone.push(owner.clone());
            }
        }
        gone.iter().for_each(|owner| self.end_share(owner, cx));
    }

    fn remove_dead(&mut self, owner: &OwnerId, cx: &mut Cx<'_>) {
        self.leave_line(owner);
        self.note_removed(cx);
        cx.removed += 1;
    }

    /// Gives a waiter its share.
    fn grant_share(&mut self, owner: &OwnerId, share: Share, cx: &mut Cx<'_>) {
        let Some(client) = owner.client() else { return };
        let Some(waiter) = self.keys.waiters.get(owner).cloned() else { return };
        let own_call = cx.caller.as_ref() == Some(owner);
        let beat = self.beat_of(client).unwrap_or(0).min(cx.now_ms);
        let ttl_ms = if own_call { waiter.lease_ms } else { granted_ms(beat, waiter.lease_ms, cx) };
        let token = self.take_share(owner, waiter.request, share, ttl_ms, cx);
        self.leave_line(owner);
        if !own_call {
            let grant = Grant { request: waiter.request, token, ttl_ms };
            let payload = Payload::Grant { grant, at_ms: cx.now_ms };
            cx.effects.push(Effect { channel: Channel::Inbox(client), payload });
        }
    }

    /// Writes a hold. Concurrent readers have the same token: they do not exclude each other, so a resource must not
    /// refuse one because of another.
    pub(super) fn take_share(
        &mut self,
        owner: &OwnerId,
        request: crate::id::RequestId,
        share: Share,
        ttl_ms: u64,
        cx: &Cx<'_>,
    ) -> Token {
        let phase = self.shared().phase().filter(|_| share == Share::Read);
        let token = phase.unwrap_or_else(|| self.mint(false, cx));
        let ends_ms = cx.now_ms + ttl_ms;
        let hold = SharedHold { request, token, share, count: 1, change: 0, ends_ms };
        self.shared().add(owner, hold);
        token
    }

    /// Ends a hold. The next token is larger than its own, even if the token's key was lost.
    pub(super) fn end_share(&mut self, owner: &OwnerId, cx: &Cx<'_>) {
        if let Some(hold) = self.shared().remove(owner) {
            self.raise_token(hold.token, false, cx);
        }
    }

    /// Ends the holds whose leases are over, some of them in each call. The caller must serve the
    /// line, if there is one, because nothing else acts on a lease that has ended.
    pub(super) fn end_leases(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..crate::rules::LOOKED_AT_MAX {
            let Some(owner) = self.shared().first_over(cx.now_ms) else { return };
            self.end_share(&owner, cx);
        }
        cx.more |= self.shared().first_over(cx.now_ms).is_some();
    }
}
