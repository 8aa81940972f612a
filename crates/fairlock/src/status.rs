//! What a look at a lock shows.

use fairlock_core::{Inspection, OwnerId, Rules, Token};
use std::time::Duration;

/// The state of a lock at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// Who holds it.
    pub holder: Option<Holder>,
    /// How long the holder's lease lasts without a renewal; `None` when free.
    pub ttl: Option<Duration>,
    /// The last fencing token of the lock.
    pub token: Option<Token>,
    /// The first waiters, in order.
    pub queue: Vec<QueuedWaiter>,
    /// How many wait altogether.
    pub queue_len: usize,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its id.
    pub owner: OwnerId,
    /// How often it holds the lock.
    pub count: u32,
    /// Whether it is a client of fairlock.
    pub ours: bool,
}

/// A waiter in the queue of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedWaiter {
    /// Its id.
    pub owner: OwnerId,
    /// Whether it is a client of fairlock.
    pub ours: bool,
    /// Whether its heartbeats come in time; `None` for foreign clients, which have none.
    pub alive: Option<bool>,
}

impl LockStatus {
    pub(crate) fn new(seen: Inspection, rules: &Rules) -> Self {
        let holder = seen.holder.map(|held| Holder {
            ours: held.owner.is_ours(),
            count: u32::try_from(held.count).unwrap_or(u32::MAX),
            owner: held.owner,
        });
        let queue = seen.queue.into_iter().map(|waiter| {
            let ours = waiter.owner.is_ours();
            let alive = waiter.beat_age_ms.is_some_and(|age| age <= rules.dead_ms);
            QueuedWaiter { owner: waiter.owner, ours, alive: ours.then_some(alive) }
        });
        Self {
            holder,
            ttl: seen.ttl_ms.map(Duration::from_millis),
            token: seen.token,
            queue: queue.collect(),
            queue_len: usize::try_from(seen.queue_len).unwrap_or(usize::MAX),
        }
    }
}
