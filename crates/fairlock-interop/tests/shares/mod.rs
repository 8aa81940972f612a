//! Read-write locks beside Redisson's `RReadWriteLock`: readers and writers of both sides.
//!
//! - `exclusion`: neither side gets what the other holds, and each counts its own
//! - `wake_ups`: who waits is woken by the other side
//! - `attacks`: what breaks such locks, by the names of the list in docs/testing.md
//! - `deaths`: readers and writers of either side die
//! - `ports`: Redisson's own tests, with one side in Rust

mod attacks;
mod deaths;
mod exclusion;
mod ports;
mod wake_ups;

use std::collections::BTreeMap;

use fairlock_interop::java::{JavaLock, JavaOwner, Kind};
use fairlock_testkit::redisson::{read_write_channel, reader_timeout_key};

use crate::fixture::{Fixture, until};

/// Both halves of Java's lock, for one thread.
struct Theirs {
    reads: JavaLock,
    writes: JavaLock,
}

impl Theirs {
    fn new(owner: &JavaOwner, lock: &str) -> Self {
        Self { reads: owner.lock(Kind::Read, lock), writes: owner.lock(Kind::Write, lock) }
    }
}

impl Fixture {
    /// The fields of the lock, without its mode.
    fn holds(&self, lock: &str) -> BTreeMap<String, i64> {
        let hash = self.call(&["HGETALL", lock]);
        let pairs = hash.array().chunks_exact(2).filter(|pair| pair[0].text() != "mode");
        pairs.map(|pair| (pair[0].text().to_owned(), pair[1].text().parse().unwrap())).collect()
    }

    /// How long Java believes that a reader holds.
    fn reads_for(&self, lock: &str, owner: &str) -> i64 {
        self.pttl(&reader_timeout_key(lock, owner, 1))
    }

    /// Waits until so many clients listen for the lock. Java's waiters of one client share a
    /// subscription.
    #[track_caller]
    fn waiting(&self, lock: &str, clients: i64) -> impl Future<Output = ()> {
        let channel = read_write_channel(lock);
        async move {
            until("clients listen", || self.listeners(&channel) == clients).await;
        }
    }
}
