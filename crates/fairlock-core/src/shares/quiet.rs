//! Heartbeats of waiters for shares that need not be written.

use crate::id::{ClientId, OwnerId};
use crate::liveness::is_over;
use crate::op::{Answer, Body, Fate};
use crate::rules::{Rules, World};
use crate::state::LockState;

impl LockState {
    /// [`quiet_beat`](Self::quiet_beat) of a lock with shares: the head's share does not fit, no
    /// holder is known to be gone, and no lease is over.
    pub(crate) fn quiet_beat_for_shares(
        &self,
        now_us: u64,
        client: ClientId,
        waiters: &[OwnerId],
        rules: &Rules,
        world: &dyn World,
        kept_ms: u64,
    ) -> Option<Answer> {
        let (now_ms, k, shares) = (now_us / 1_000, &self.keys, self.shares.as_ref()?);
        let (_, head) = self.by_order.first()?;
        let want = *shares.wants().get(head)?;
        let lasts = |at: Option<u64>| at.is_some_and(|at| at >= now_ms + kept_ms);
        let registry = [k.order_expires, k.state_expires, k.beats_expires];
        let head_lives = head.client().is_some_and(|it| it == client || !world.gone(it));
        let quiet = !rules.ages
            && self.can_mint(now_us)
            && k.token_expires.is_none_or(|at| now_ms <= at)
            && registry.into_iter().all(lasts)
            && k.beats.contains_key(&client)
            // Nothing to repair, nothing of another kind.
            && k.order.len() == k.waiters.len()
            && k.order.len() == shares.wants().len()
            && (k.hold.is_empty() && k.value.is_none() && k.queue.is_empty())
            && waiters.iter().all(|waiter| self.is_on_record(waiter))
            && !shares.fits(want)
            && head_lives
            && shares.first_end_ms().is_some_and(|at| now_ms <= at)
            && !shares.holds().iter().any(|(owner, hold)| is_over(owner, Some(hold.token), Some(hold.request), world));
        quiet.then(|| {
            let fates = vec![Fate::Queued; waiters.len()];
            let retry_ms = self.shares_retry_ms(now_ms, rules);
            let body = Body::Fates { fates, retry_ms, foreign: false };
            Answer { now_ms, more: false, removed: 0, other_limit: false, body }
        })
    }
}
