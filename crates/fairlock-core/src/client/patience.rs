//! How long to wait for an answer that a hold depends on. Each limit is a fraction of the remaining
//! lease, so that a short lease becomes suspect, and its connection is replaced, while there is time
//! to act. The floors are pauses of a loaded machine that must change nothing. Times are nanoseconds.

use super::lease::ns;

/// Least time until a renewal is overdue.
const OVERDUE_MIN_MS: u64 = 300;

/// Least time until a connection is given up, and for an attempt to make one: over TLS, through a
/// Sentinel, to a server far away.
const SILENT_MIN_MS: u64 = 500;

/// When a renewal that is due at `due_ns` is overdue: half way through the lease, as a third of it
/// has passed when the renewal is due. A holder needs at most the last third to end its work, so a
/// shorter lease is overdue when that begins.
pub(super) fn overdue_ns(due_ns: u64, valid_until_ns: u64) -> u64 {
    let left_ns = valid_until_ns.saturating_sub(due_ns);
    due_ns.saturating_add((left_ns / 4).max(ns(OVERDUE_MIN_MS)).min(left_ns / 2))
}

/// How long the connection that carries this renewal may be silent, or take to connect: half of the
/// remaining lease, so that the other half is left for the next connection.
pub(super) fn silence_ns(due_ns: u64, valid_until_ns: u64) -> u64 {
    let left_ns = valid_until_ns.saturating_sub(due_ns);
    (left_ns / 2).max(ns(SILENT_MIN_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::valid_until_ns;

    /// D50: with fixed times (a ping after 2 s, a call of 3 s) a short lease never became suspect.
    #[test]
    fn a_lease_is_suspect_before_its_last_third_and_has_time_for_another_connection() {
        for lease_ms in [600, 1_000, 2_000, 3_000, 4_000, 5_000, 9_000, 30_000, 600_000] {
            let (due, end) = (ns(lease_ms / 3), valid_until_ns(0, lease_ms));
            let silent = due + silence_ns(due, end);
            let lease = ns(lease_ms);
            assert!(overdue_ns(due, end) <= end - lease / 3 + lease / 30, "{lease_ms}");
            assert!(overdue_ns(due, end) <= silent, "{lease_ms}");
            assert!(lease_ms < 1_000 || silent < end - lease / 10, "{lease_ms}");
        }
    }

    /// A machine that pauses for 300 ms neither makes a lease of a second suspect nor costs a connection.
    #[test]
    fn a_pause_of_a_loaded_machine_changes_nothing() {
        for lease_ms in [1_000, 2_000, 30_000] {
            let (due, end) = (ns(lease_ms / 3), valid_until_ns(0, lease_ms));
            assert!(overdue_ns(due, end) >= due + ns(300), "{lease_ms}");
            assert!(
                silence_ns(due, end) >= ns(500) && silence_ns(end, end) >= ns(500),
                "{lease_ms}"
            );
        }
    }
}
