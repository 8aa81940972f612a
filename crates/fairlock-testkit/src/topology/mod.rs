//! Several private servers that belong together: a primary with replicas, a Sentinel set, a Cluster.

mod cluster;
mod replicated;
mod sentinels;
#[cfg(test)]
mod tests;

pub use self::cluster::{Cluster, SLOTS, slot};
pub use self::replicated::Replicated;
pub use self::sentinels::{Login, MASTER_NAME, SentinelSet};

use crate::raw::Raw;
use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// How long servers may take to agree on something, also on a loaded machine.
const AGREED_WITHIN: Duration = Duration::from_secs(40);
/// Between two looks.
const POLL: Duration = Duration::from_millis(20);

/// Waits until `look` finds something.
///
/// # Panics
///
/// If it does not within 40 s; the message names `what`.
#[track_caller]
fn until<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < AGREED_WITHIN, "not within {AGREED_WITHIN:?}: {what}");
        thread::sleep(POLL);
    }
}

/// Waits until so many replicas have what the server does now.
///
/// A replica that is online is not in step yet: it gets what is new with its first acknowledgement only,
/// which it may send a second later. Until then a lease of less is over before a replica has the lock.
#[track_caller]
fn await_acknowledged(raw: &mut Raw, replicas: usize) {
    // A write without a key: WAIT counts for what its own connection wrote.
    raw.call(&["PUBLISH", "fairlock-testkit", "in step"]);
    until(format!("{replicas} replicas are in step"), || {
        let acknowledged = raw.call(&["WAIT", &replicas.to_string(), "1000"]);
        (acknowledged.int() >= replicas as i64).then_some(())
    });
}

/// The value of `field` in the reply to `INFO` or `CLUSTER INFO`.
fn field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
