//! Foreign waiters of a lock with shares. They do not stand in line, and find the lock only when it
//! is free, which it never is while ours hand it on. So the free lock is left to them for a moment,
//! about once a second.

use crate::id::OwnerId;
use crate::op::{Channel, Effect, Kind, Payload};
use crate::rules::GUEST_MS;
use crate::state::{Cx, LockState};

/// Microseconds in a second, in which there is at most one such moment.
const SECOND_US: u64 = 1_000_000;

impl LockState {
    /// Returns until when the lock is left to guests, if it is at present.
    pub(super) fn left_to_guests(&self, now_ms: u64) -> Option<u64> {
        let is_free = self.shares.as_ref().is_none_or(|shares| shares.holds().is_empty());
        let last_ms = self.keys.token.map(|last| last / 1_000);
        // An end further ahead than it is ever set means that the clock was set back; and a grant since it was set means
        // that the line was lost meanwhile, and that somebody came who found nobody before him.
        let runs = |until: &u64| {
            now_ms < *until
                && *until <= now_ms + GUEST_MS
                && last_ms.is_none_or(|last| last + GUEST_MS < *until)
        };
        self.keys.record.guest.filter(|until| is_free && runs(until))
    }

    /// Leaves the free lock to guests instead of granting it to the head, if there are any and their turn has come: the
    /// last token was minted in an earlier second. So a lock with frequent hand-overs checks for guests once a second,
    /// and needs no record of that. While tokens are ahead of the clock, guests have no turn.
    pub(super) fn lets_guests_in(&mut self, head: &OwnerId, cx: &mut Cx<'_>) -> bool {
        let shares = self.shared();
        if shares.kind() != Kind::ReadWrite || !shares.holds().is_empty() {
            return false;
        }
        let last = self.keys.token;
        if last.is_some_and(|last| last / SECOND_US >= cx.now_us / SECOND_US) {
            return false;
        }
        // After one pause ours get the lock before the next, however late somebody looks.
        let granted_since = |until| last.is_some_and(|last| last / 1_000 >= until);
        if !self.keys.record.guest.is_none_or(granted_since) || !cx.world.guests() {
            return false;
        }
        self.keys.record.guest = Some(cx.now_ms + GUEST_MS);
        self.keep_state(cx);
        if let (Some(client), Some(waiter)) = (head.client(), self.keys.waiters.get(head)) {
            let payload = Payload::Guests { request: waiter.request };
            cx.effects.push(Effect { channel: Channel::Inbox(client), payload });
        }
        true
    }

    /// The waiter that was to look at the end of the pause may have left.
    pub(super) fn end_guests(&mut self, now_ms: u64) {
        self.keys.record.guest = self.keys.record.guest.map(|until| until.min(now_ms));
    }
}
