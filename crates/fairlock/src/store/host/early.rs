//! Which waiters learn that a hold ends early.
//!
//! A heartbeat shows a waiter when the hold ends, and it looks again at that moment. Invariant: the
//! first waiter's next heartbeat is never later than the end of the lease, unless the holder may
//! still confirm a grant. Heartbeats are at most [`BEAT_MAX`] apart, so this needs a message only if
//! a hold is shorter than that, or is cut short (`Guard::detach_for`).

use super::around::BEAT_MAX;
use fairlock_core::{Op, OwnerId, Snapshot};

/// What the end of a hold is compared with.
#[derive(Debug, Default)]
pub(super) struct Before {
    hold: Option<(u64, u64)>,
    /// The waiters whose leases are shorter than a heartbeat.
    short: Vec<OwnerId>,
}

impl Before {
    /// The lock before `op`.
    pub(super) fn of(lock: &Snapshot, op: &Op) -> Self {
        let is_short = |lease_ms: u64| u128::from(lease_ms) <= BEAT_MAX.as_millis();
        let waiters = lock.waiters.iter().filter(|(_, waiter)| is_short(waiter.lease_ms));
        let mut short: Vec<OwnerId> = waiters.map(|(owner, _)| owner.clone()).collect();
        if let Op::Acquire(own) = op
            && is_short(own.lease_ms)
        {
            short.push(own.owner.clone());
        }
        Self { hold: hold(lock), short }
    }

    /// Whether the hold may end before the next heartbeat of those who wait for it.
    pub(super) fn ends_early(&self, after: &Snapshot) -> bool {
        let Some((token, end_ms)) = hold(after) else { return false };
        match self.hold {
            Some((same, before_ms)) if same == token => end_ms < before_ms,
            _ => after.hold.keys().any(|owner| self.short.contains(owner)),
        }
    }
}

/// Token and end of the hold.
fn hold(lock: &Snapshot) -> Option<(u64, u64)> {
    match (lock.hold_expires, lock.value_expires) {
        (Some(end_ms), _) | (None, Some(end_ms)) => Some((lock.token?, end_ms)),
        (None, None) => None,
    }
}
