//! Several private servers that form a whole: a primary with replicas, a Sentinel set, a Cluster.

mod cluster;
mod replicated;
mod sentinels;
#[cfg(test)]
mod tests;

pub use self::cluster::{Cluster, SLOTS, slot};
pub use self::replicated::Replicated;
pub use self::sentinels::{Login, MASTER_NAME, SentinelSet};

use crate::raw::Raw;
use crate::wait;
use std::fmt::Display;
use std::time::Duration;

/// How long servers may take to agree, even on a loaded machine: a Sentinel that did not run for two seconds takes part
/// in nothing for the next thirty.
const AGREED_WITHIN: Duration = Duration::from_secs(90);
/// The pause between two looks.
const POLL: Duration = Duration::from_millis(20);

/// Waits until `look` finds something.
///
/// # Panics
///
/// If it does not within 90 s; the message names `what`.
#[track_caller]
fn until<T>(what: impl Display, look: impl FnMut() -> Option<T>) -> T {
    wait::look(AGREED_WITHIN, POLL, look)
        .unwrap_or_else(|| panic!("not within {AGREED_WITHIN:?}: {what}"))
}

/// Waits until `replicas` replicas have everything that the server behind `raw` has done so far.
///
/// `WAIT` alone does not show that: it counts the replicas that have what its own connection has
/// written, and a new connection has written nothing. (In a Cluster there is nothing to write that
/// every master accepts.) So this compares offsets. Also, a replica that is online is not in step
/// yet: it receives new writes only with its first acknowledgement, which it may send a second
/// later. Until then a shorter lease is over before a replica has the lock.
///
/// # Panics
///
/// If they do not within 90 s.
#[track_caller]
pub fn await_acknowledged(raw: &mut Raw, replicas: usize) {
    // Outside of a Cluster, a write that always succeeds and leaves no key.
    raw.call(&["PUBLISH", "fairlock-testkit", "in step"]);
    let mut offsets = || {
        let info = raw.call(&["INFO", "replication"]);
        let info = info.text();
        let done = field(info, "master_repl_offset").and_then(|offset| offset.parse().ok());
        let online = info.lines().filter(|line| line.contains("state=online"));
        let acknowledged = online.filter_map(|line| line.split_once("offset=")?.1.split_once(','));
        let acknowledged = acknowledged.filter_map(|(offset, _)| offset.parse().ok());
        let acknowledged: Vec<u64> = acknowledged.collect();
        // Where it applies, this asks the replicas at once; otherwise they report within a second.
        raw.call(&["WAIT", &replicas.to_string(), "100"]);
        (done.unwrap_or(0_u64), acknowledged)
    };
    // 0 is the offset of a replica that has not reported yet.
    let done = offsets().0.max(1);
    until(format!("{replicas} replicas are in step"), || {
        (offsets().1.iter().filter(|offset| **offset >= done).count() >= replicas).then_some(())
    });
}

/// The value of `field` in the reply to `INFO` or `CLUSTER INFO`.
fn field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
