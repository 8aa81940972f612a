//! Several private servers that belong together: a primary with replicas, a Sentinel set, a Cluster.

mod cluster;
mod replicated;
mod sentinels;
#[cfg(test)]
mod tests;

pub use self::cluster::{Cluster, SLOTS, slot};
pub use self::replicated::Replicated;
pub use self::sentinels::{Login, MASTER_NAME, SentinelSet};

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

/// The value of `field` in the reply to `INFO` or `CLUSTER INFO`.
fn field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
