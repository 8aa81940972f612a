//! Heartbeats that need not be written.

use crate::id::{ClientId, OwnerId};
use crate::op::{Answer, Body};
use crate::rules::{Rules, World};
use crate::state::LockState;

impl LockState {
    /// Returns the reply to a heartbeat that finds nothing to do: the lock has a holder that is not
    /// known to be dead, and every waiter asked about is in the queue.
    ///
    /// [`apply`](Self::apply) would then change only the time of the beat and TTLs. A store may
    /// omit that if the age of beats does not count ([`Rules::ages`]), as long as everything that
    /// waiting depends on lasts for `kept_ms` more. `None`: the heartbeat must be applied.
    pub fn quiet_beat(
        &self,
        now_us: u64,
        client: ClientId,
        waiters: &[OwnerId],
        rules: &Rules,
        world: &dyn World,
        kept_ms: u64,
    ) -> Option<Answer> {
        if self.shares.is_some() {
            return self.quiet_beat_for_shares(now_us, client, waiters, rules, world, kept_ms);
        }
        let now_ms = now_us / 1_000;
        let k = &self.keys;
        let lasts = |at: Option<u64>| at.is_some_and(|at| at >= now_ms + kept_ms);
        let registry =
            [k.queue_expires, k.scores_expires, k.order_expires, k.state_expires, k.beats_expires];
        let held = self.holder().is_some_and(OwnerId::is_ours)
            && !self.is_hold_over(world)
            && k.hold_expires.is_some_and(|at| now_ms <= at)
            && k.value.is_none()
            && self.not_a_hold().is_none();
        let quiet = !rules.ages
            && held
            && self.can_mint(now_us)
            && k.token_expires.is_none_or(|at| now_ms <= at)
            && registry.into_iter().all(lasts)
            // Nothing to repair, nobody foreign.
            && k.queue.len() == k.scores.len()
            && k.queue.len() == k.order.len()
            && self.by_order.first().is_some_and(|(_, first)| k.scores.contains_key(first))
            && waiters.iter().all(|waiter| self.is_queued(waiter));
        quiet.then(|| {
            let body = Body::Beaten {
                held: self.held_by_client(client, now_ms),
                queued: vec![true; waiters.len()],
                retry_ms: self.retry_ms(now_ms, rules),
                foreign: false,
            };
            Answer { now_ms, more: false, removed: 0, other_limit: false, body }
        })
    }
}
