//! Redisson's plain lock: the same hash, no queue, one channel for all waiters.

use super::{JavaClient, LATCH_MS, Subscription, WATCHDOG_LEASE_MS};
use super::{channel, keys, optional, request_id, text};
use crate::raw::Raw;

const ACQUIRE: &str = include_str!("plain_acquire.lua");
const UNLOCK: &str = include_str!("plain_unlock.lua");

impl JavaClient {
    /// `RLock`: one attempt. `None` if the thread holds the lock now, otherwise the milliseconds
    /// until the lock ends by itself.
    #[track_caller]
    pub fn plain_acquire(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> Option<i64> {
        let reply = self.eval(&[ACQUIRE], &[lock], &[self.owner(thread_id), text(lease_ms)]);
        let reply = optional(&reply);
        if reply.is_none() {
            self.leases_ms.insert(lock.to_owned(), lease_ms);
        }
        reply
    }

    /// `RLock.unlock()`: 1 after a full release, 0 after a partial one, `None` if the thread does
    /// not hold the lock (an exception in Java).
    #[track_caller]
    pub fn plain_unlock(&mut self, lock: &str, thread_id: i64) -> Option<i64> {
        let latch = keys::latch_key(lock, &request_id());
        let lease_ms = self.leases_ms.get(lock).copied().unwrap_or(WATCHDOG_LEASE_MS);
        let args = [self.owner(thread_id), text(lease_ms), text(LATCH_MS)];
        let reply = self.eval(&[UNLOCK], &[lock, &channel(lock), &latch], &args);
        self.raw.call(&["DEL", &latch]);
        optional(&reply)
    }

    /// Subscribes to the channel that all waiters of a plain lock share.
    #[track_caller]
    pub fn plain_subscribe(&self, lock: &str) -> Subscription {
        let mut raw = Raw::connect(self.addr);
        raw.subscribe(&channel(lock));
        Subscription { raw, permits: 0 }
    }
}
