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
use crate::wait;
use std::fmt::Display;
use std::time::Duration;

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
fn until<T>(what: impl Display, look: impl FnMut() -> Option<T>) -> T {
    wait::look(AGREED_WITHIN, POLL, look)
        .unwrap_or_else(|| panic!("not within {AGREED_WITHIN:?}: {what}"))
}

/// Waits until so many replicas have what the server behind `raw` has done so far.
///
/// `WAIT` alone does not say that: it counts for what its own connection has written, and on a new one every
/// replica has all of that. (In a Cluster there is nothing to write that every master takes.) So this compares
/// offsets. And a replica that is online is not in step yet: it gets what is new with its first acknowledgement
/// only, which it may send a second later. Until then a lease of less is over before a replica has the lock.
///
/// # Panics
///
/// If they do not within 40 s.
#[track_caller]
pub fn await_acknowledged(raw: &mut Raw, replicas: usize) {
    // Outside of a Cluster something that is written for certain, and leaves no key.
    raw.call(&["PUBLISH", "fairlock-testkit", "in step"]);
    let mut offsets = || {
        let info = raw.call(&["INFO", "replication"]);
        let info = info.text();
        let done = field(info, "master_repl_offset").and_then(|offset| offset.parse().ok());
        let online = info.lines().filter(|line| line.contains("state=online"));
        let acknowledged = online.filter_map(|line| line.split_once("offset=")?.1.split_once(','));
        let acknowledged = acknowledged.filter_map(|(offset, _)| offset.parse().ok());
        let acknowledged: Vec<u64> = acknowledged.collect();
        // Has the replicas asked at once, where it does; they would say by themselves within a second.
        raw.call(&["WAIT", &replicas.to_string(), "100"]);
        (done.unwrap_or(0_u64), acknowledged)
    };
    // 0 is what a replica has said that has said nothing yet.
    let done = offsets().0.max(1);
    until(format!("{replicas} replicas are in step"), || {
        (offsets().1.iter().filter(|offset| **offset >= done).count() >= replicas).then_some(())
    });
}

/// The value of `field` in the reply to `INFO` or `CLUSTER INFO`.
fn field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
