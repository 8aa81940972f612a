//! Redisson's `RReadWriteLock`: one hash with a mode, a key for each hold of a reader that says how long it lives, one
//! channel for all waiters, and no queue: readers come in while others read, writers when they find the lock free.

use super::keys::{latch_key, prefixed};
use super::{
    JavaClient, LATCH_MS, RENEW, Subscription, WATCHDOG_LEASE_MS, optional, request_id, text,
};
use crate::raw::Raw;

const READ_ACQUIRE: &str = include_str!("read_acquire.lua");
const READ_RENEW: &str = include_str!("read_renew.lua");
const READ_RENEW_ALL: &str = include_str!("read_renew_all.lua");
const READ_UNLOCK: &str = include_str!("read_unlock.lua");
const WRITE_ACQUIRE: &str = include_str!("write_acquire.lua");
const WRITE_UNLOCK: &str = include_str!("write_unlock.lua");
const FORCE: &str = include_str!("read_write_force.lua");

/// The channel on which all waiters listen: `0` wakes one of a client's, `1` all.
pub fn read_write_channel(lock: &str) -> String {
    prefixed("redisson_rwlock", lock)
}

/// The key that says how long a reader's hold lives, the first of an owner being 1.
pub fn reader_timeout_key(lock: &str, owner: &str, hold: i64) -> String {
    format!("{}:{hold}", timeouts_of(lock, owner))
}

fn timeouts_of(lock: &str, owner: &str) -> String {
    format!("{}:{owner}:rwlock_timeout", base(lock))
}

fn base(lock: &str) -> String {
    if lock.contains('{') { lock.to_owned() } else { format!("{{{lock}}}") }
}

impl JavaClient {
    /// `readLock()`: one attempt. `None` if the thread reads now, otherwise the milliseconds until the lock expires.
    #[track_caller]
    pub fn read_acquire(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> Option<i64> {
        let owner = self.owner(thread_id);
        let args = [owner.clone(), text(lease_ms), timeouts_of(lock, &owner)];
        optional(&self.eval(&[READ_ACQUIRE], &[lock], &args))
    }

    /// `readLock().unlock()`: 1 if nobody reads any more, 0 if somebody does, `None` if the thread did not read, or the
    /// lock was free (before 3.44 that is 1).
    #[track_caller]
    pub fn read_unlock(&mut self, lock: &str, thread_id: i64) -> Option<i64> {
        let args = [self.owner(thread_id), base(lock), text(LATCH_MS)];
        self.unlock_with(READ_UNLOCK, lock, &args)
    }

    /// One round of the watchdog for a reader: whether it still reads.
    #[track_caller]
    pub fn read_renew(&mut self, lock: &str, thread_id: i64) -> bool {
        self.read_renew_for(lock, thread_id, WATCHDOG_LEASE_MS)
    }

    /// The same with a `lockWatchdogTimeout` other than the default.
    #[track_caller]
    pub fn read_renew_for(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> bool {
        let owner = self.owner(thread_id);
        if self.version.renews_all_readers() {
            let fails = i64::from(self.version.renews_first_holds_alone());
            let args = [owner, text(lease_ms), base(lock), text(fails)];
            return self.eval(&[READ_RENEW_ALL], &[lock], &args).int() == 1;
        }
        let args = [owner.clone(), text(lease_ms), timeouts_of(lock, &owner)];
        self.eval(&[READ_RENEW], &[lock], &args).int() == 1
    }

    /// `readLock().forceUnlock()`: whether anybody read.
    #[track_caller]
    pub fn read_force_unlock(&mut self, lock: &str) -> bool {
        self.force_mode(lock, "read", "0")
    }

    /// `writeLock()`: one attempt. `None` if the thread writes now, otherwise the milliseconds until the lock expires.
    #[track_caller]
    pub fn write_acquire(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> Option<i64> {
        let args = [self.writer(thread_id), text(lease_ms)];
        let reply = self.eval(&[WRITE_ACQUIRE], &[lock], &args);
        self.took(lock, lease_ms, optional(&reply))
    }

    /// `writeLock().unlock()`: 1 after a full release, 0 after a partial one, `None` if the thread did not write, or the
    /// lock was free (before 3.44 that is 1).
    #[track_caller]
    pub fn write_unlock(&mut self, lock: &str, thread_id: i64) -> Option<i64> {
        let lease_ms = self.leases_ms.get(lock).copied().unwrap_or(WATCHDOG_LEASE_MS);
        let args = [self.writer(thread_id), text(lease_ms), text(LATCH_MS)];
        self.unlock_with(WRITE_UNLOCK, lock, &args)
    }

    /// One round of the watchdog for a writer: whether it still writes.
    #[track_caller]
    pub fn write_renew(&mut self, lock: &str, thread_id: i64) -> bool {
        self.write_renew_for(lock, thread_id, WATCHDOG_LEASE_MS)
    }

    /// The same with a `lockWatchdogTimeout` other than the default.
    #[track_caller]
    pub fn write_renew_for(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> bool {
        let args = [self.writer(thread_id), text(lease_ms)];
        self.eval(&[RENEW], &[lock], &args).int() == 1
    }

    /// `writeLock().forceUnlock()`: whether anybody wrote.
    #[track_caller]
    pub fn write_force_unlock(&mut self, lock: &str) -> bool {
        self.force_mode(lock, "write", "1")
    }

    /// `readLock().isLocked()`: whether anybody reads, a writer included that reads as well.
    #[track_caller]
    pub fn is_read(&mut self, lock: &str) -> bool {
        let mode = self.raw.call(&["HGET", lock, "mode"]);
        let fields = self.raw.call(&["HLEN", lock]).int();
        let inside_write = self.version.is_exact_about_readers() && fields > 2;
        !mode.is_nil() && (mode.text() == "read" || inside_write)
    }

    /// Subscribes to the channel that all waiters of a read-write lock share.
    #[track_caller]
    pub fn read_write_subscribe(&self, lock: &str) -> Subscription {
        let mut raw = Raw::connect(self.addr);
        raw.subscribe(&read_write_channel(lock));
        Subscription { raw, permits: 0 }
    }

    fn writer(&self, thread_id: i64) -> String {
        format!("{}:write", self.owner(thread_id))
    }

    #[track_caller]
    fn unlock_with(&mut self, script: &str, lock: &str, args: &[String]) -> Option<i64> {
        let latch = latch_key(lock, &request_id());
        let free = self.raw.call(&["HEXISTS", lock, "mode"]).int() == 0;
        let reply = self.eval(&[script], &[lock, &read_write_channel(lock), &latch], args);
        self.raw.call(&["DEL", &latch]);
        if free && !self.version.is_exact_about_readers() {
            return Some(1);
        }
        optional(&reply)
    }

    #[track_caller]
    fn force_mode(&mut self, lock: &str, mode: &str, message: &str) -> bool {
        let args = [mode.to_owned(), message.to_owned()];
        self.eval(&[FORCE], &[lock, &read_write_channel(lock)], &args).int() == 1
    }
}
