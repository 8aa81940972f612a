//! Which waiters learn that a hold ends early.
//!
//! The reply to a heartbeat tells the waiter when the hold will end, and the waiter asks again at
//! that moment. Invariant: the first waiter's next heartbeat is never later than the end of the
//! lease, unless the holder may still confirm a grant. Heartbeats are at most [`BEAT_MAX`] apart,
//! so a message is needed only if a hold is shorter than that, or is cut short
//! (`Guard::detach_for`).

use super::around::{BEAT_MAX, acquire_of};
use fairlock_core::{LockState, Op, OwnerId};

/// What the end of a hold is compared with.
#[derive(Debug, Default)]
pub(super) struct Before {
    hold: Option<(u64, u64)>,
    /// The owner whose lease the operation sets.
    renews: Option<OwnerId>,
    /// The waiters whose leases are shorter than a heartbeat.
    short: Vec<OwnerId>,
}

impl Before {
    /// The lock before `op`.
    pub(super) fn of(lock: &LockState, op: &Op) -> Self {
        let renews = match op.bare() {
            Op::Renew { owner, .. } if lock.shares().is_some() => Some(owner.clone()),
            _ => None,
        };
        let is_short = |lease_ms: u64| u128::from(lease_ms) <= BEAT_MAX.as_millis();
        let waiters =
            lock.snapshot().waiters.iter().filter(|(_, waiter)| is_short(waiter.lease_ms));
        let mut short: Vec<OwnerId> = waiters.map(|(owner, _)| owner.clone()).collect();
        if let Some(own) = acquire_of(op).filter(|own| is_short(own.lease_ms)) {
            short.push(own.owner.clone());
        }
        Self { hold: hold(lock, renews.as_ref()), renews, short }
    }

    /// Whether the hold may end before the next heartbeat of those who wait for it.
    pub(super) fn ends_early(&self, after: &LockState) -> bool {
        let is_short = |owner: &OwnerId| self.short.contains(owner);
        match (self.hold, hold(after, self.renews.as_ref()), after.shares()) {
            (Some((before, before_ms)), Some((token, end_ms)), _) if before == token => {
                end_ms < before_ms
            }
            (_, _, Some(shares)) => self.short.iter().any(|it| shares.holds().contains_key(it)),
            (_, None, None) => false,
            (_, Some(_), None) => after.snapshot().hold.keys().any(is_short),
        }
    }
}

/// Token and end of the hold; of several holds, those of `owner`'s.
fn hold(lock: &LockState, owner: Option<&OwnerId>) -> Option<(u64, u64)> {
    if let Some(shares) = lock.shares() {
        let hold = shares.holds().get(owner?)?;
        return Some((hold.token.get(), hold.ends_ms));
    }
    let lock = lock.snapshot();
    match (lock.hold_expires, lock.value_expires) {
        (Some(end_ms), _) | (None, Some(end_ms)) => Some((lock.token?, end_ms)),
        (None, None) => None,
    }
}
