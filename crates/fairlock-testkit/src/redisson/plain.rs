//! Redisson's plain lock: the same hash, no queue, one channel for all waiters. And its relatives:
//! the fenced lock, which counts grants, and the spin lock, which notifies nobody.

use super::{JavaClient, LATCH_MS, Subscription, WATCHDOG_LEASE_MS};
use super::{channel, keys, optional, request_id, text, token_key};
use crate::raw::Raw;

const ACQUIRE: &str = include_str!("plain_acquire.lua");
const FENCED_ACQUIRE: &str = include_str!("fenced_acquire.lua");
const FORCE_UNLOCK: &str = include_str!("plain_force_unlock.lua");
const UNLOCK: &str = include_str!("plain_unlock.lua");

impl JavaClient {
    /// `RLock`: one attempt. `None` if the thread now holds the lock, otherwise the milliseconds
    /// until the lock expires.
    #[track_caller]
    pub fn plain_acquire(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> Option<i64> {
        let reply = self.eval(&[ACQUIRE], &[lock], &[self.owner(thread_id), text(lease_ms)]);
        self.took(lock, lease_ms, optional(&reply))
    }

    /// `RFencedLock`: the same, and every success increments the token, even a re-entry.
    #[track_caller]
    pub fn fenced_acquire(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> Option<i64> {
        let keys = [lock, &token_key(lock)];
        let args = [self.owner(thread_id), text(lease_ms)];
        let reply = self.eval(&[FENCED_ACQUIRE], &keys, &args);
        self.took(lock, lease_ms, optional(&reply))
    }

    /// The last token, 0 before the first.
    #[track_caller]
    pub fn token(&mut self, lock: &str) -> i64 {
        let token = self.raw.call(&["GET", &token_key(lock)]);
        if token.is_nil() { 0 } else { token.text().parse().expect("a token is a number") }
    }

    /// `RLock.unlock()`: 1 after a full release, 0 after a partial one, `None` if the thread does
    /// not hold the lock (an exception in Java).
    #[track_caller]
    pub fn plain_unlock(&mut self, lock: &str, thread_id: i64) -> Option<i64> {
        self.unlock_and(lock, thread_id, true)
    }

    /// Like [`JavaClient::plain_unlock`], for a spin lock: nobody is notified.
    #[track_caller]
    pub fn spin_unlock(&mut self, lock: &str, thread_id: i64) -> Option<i64> {
        self.unlock_and(lock, thread_id, false)
    }

    /// `forceUnlock()`: whether anybody held the lock.
    #[track_caller]
    pub fn plain_force_unlock(&mut self, lock: &str) -> bool {
        self.force_unlock_and(lock, true)
    }

    /// Like [`JavaClient::plain_force_unlock`], for a spin lock: nobody is notified.
    #[track_caller]
    pub fn spin_force_unlock(&mut self, lock: &str) -> bool {
        self.force_unlock_and(lock, false)
    }

    #[track_caller]
    fn unlock_and(&mut self, lock: &str, thread_id: i64, tells: bool) -> Option<i64> {
        let latch = keys::latch_key(lock, &request_id());
        let lease_ms = self.leases_ms.get(lock).copied().unwrap_or(WATCHDOG_LEASE_MS);
        let owner = self.owner(thread_id);
        let args = [owner, text(lease_ms), text(LATCH_MS), text(i64::from(tells))];
        let reply = self.eval(&[UNLOCK], &[lock, &channel(lock), &latch], &args);
        self.raw.call(&["DEL", &latch]);
        optional(&reply)
    }

    #[track_caller]
    fn force_unlock_and(&mut self, lock: &str, tells: bool) -> bool {
        let args = [text(i64::from(tells))];
        self.eval(&[FORCE_UNLOCK], &[lock, &channel(lock)], &args).int() == 1
    }

    /// Records the lease if the reply says that the lock was taken.
    pub(super) fn took(&mut self, lock: &str, lease_ms: i64, reply: Option<i64>) -> Option<i64> {
        if reply.is_none() {
            self.leases_ms.insert(lock.to_owned(), lease_ms);
        }
        reply
    }

    /// Subscribes to the channel that all waiters of a plain lock share.
    #[track_caller]
    pub fn plain_subscribe(&self, lock: &str) -> Subscription {
        let mut raw = Raw::connect(self.addr);
        raw.subscribe(&channel(lock));
        Subscription { raw, permits: 0 }
    }
}
