//! The history of locks during a test, and its checkers.
//!
//! Each participant records what it saw when it saw it; afterwards the checkers (`check_...`) read
//! the records in order of time and report everything that must not have happened.
//!
//! When to record, so that the history is true to the system:
//! - [`Event::Enqueued`] when the server's reply with the order number arrives;
//! - [`Event::Granted`] when the guard reaches the user;
//! - [`Event::Released`] just before the release is requested, and [`Event::Lost`] when the guard
//!   reports it: the hold is over from then on;
//! - [`Event::GaveUp`] and [`Event::Died`] just before the wait is cancelled or the client killed.
//!
//! The records of one owner at one lock are in order: its place in the queue precedes the grant
//! that ends it, even if the message of the grant was faster than the reply with the place.

mod check;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};

pub use self::check::{
    Violation, check_all, check_exclusion, check_fifo, check_no_lost_waiter, check_tokens_rise,
};

/// Something that happened to an owner at a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// It is queued, with this order number of the server.
    Enqueued {
        /// Smaller is earlier, unique per lock.
        seq: u64,
    },
    /// It holds the lock. A repetition with the same token is a re-entry.
    Granted {
        /// The fencing token.
        token: u64,
    },
    /// It released one hold.
    Released,
    /// It learned that it no longer holds the lock, however often it had entered.
    Lost,
    /// It stopped waiting.
    GaveUp,
    /// Its client was killed, waiting or holding.
    Died,
}

/// An [`Event`] with where, who and when.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The lock's name.
    pub lock: String,
    /// The owner's id.
    pub owner: String,
    /// Nanoseconds of the system's monotonic clock, which all processes of a machine share.
    pub at_ns: u64,
    /// What happened.
    pub event: Event,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, at_ns, event, .. } = self;
        let (seconds, nanos) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        write!(f, "{seconds}.{nanos:09} {owner}: {event:?}")
    }
}

/// A growing list of records; clones share it.
#[derive(Clone, Debug, Default)]
pub struct History {
    records: Arc<Mutex<Vec<Record>>>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event that happens now.
    pub fn record(&self, lock: &str, owner: &str, event: Event) {
        let (lock, owner) = (lock.to_owned(), owner.to_owned());
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the mutex, so that the list is in order of time.
        records.push(Record { lock, owner, at_ns: now_ns(), event });
    }

    /// Adds records from another process on this machine.
    pub fn extend(&self, others: impl IntoIterator<Item = Record>) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.extend(others);
    }

    /// All records so far, in order of time.
    pub fn records(&self) -> Vec<Record> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records = records.clone();
        records.sort_by_key(|record| record.at_ns);
        records
    }

    /// Panics with all violations that [`check_all`] finds, if there are any.
    ///
    /// # Panics
    ///
    /// If there is a violation.
    #[track_caller]
    pub fn assert_sound(&self) {
        let violations = check_all(&self.records());
        let stories: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(stories.is_empty(), "{} violations:\n{}", stories.len(), stories.join("\n"));
    }
}

/// The time for [`Record::at_ns`].
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

#[cfg(test)]
mod tests;
