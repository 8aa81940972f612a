//! The wall clock of a Java client.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that stands still until the test moves it; clones show the same time.
#[derive(Clone, Debug)]
pub struct StoppedClock {
    ms: Arc<AtomicI64>,
}

impl StoppedClock {
    /// A clock that shows this time, in milliseconds since the epoch.
    pub fn at_ms(ms: i64) -> Self {
        Self { ms: Arc::new(AtomicI64::new(ms)) }
    }

    /// The time that it shows, in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.ms.load(Ordering::SeqCst)
    }

    /// Moves it, for all that read it.
    pub fn set_ms(&self, ms: i64) {
        self.ms.store(ms, Ordering::SeqCst);
    }
}

/// The time source of a client.
#[derive(Debug)]
pub(super) enum Clock {
    /// The machine's time, and how far the client is ahead of it.
    Machine { offset_ms: i64 },
    /// A clock of the test, and how far the client is ahead of it.
    Stopped { at: StoppedClock, offset_ms: i64 },
}

impl Clock {
    pub(super) fn now_ms(&self) -> i64 {
        match self {
            Self::Machine { offset_ms } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                let now_ms = i64::try_from(now.as_millis()).expect("a clock before 292 million");
                now_ms + offset_ms
            }
            Self::Stopped { at, offset_ms } => at.now_ms() + offset_ms,
        }
    }
}
