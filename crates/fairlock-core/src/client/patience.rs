//! How long to wait for an answer on which a hold depends. Every such time is a part of what the hold
//! has left, so that a short lease is doubted, and its connection made anew, while there is time to
//! act on it. Times are nanoseconds.

use super::lease::ns;

/// Least time until a renewal is overdue: a machine that is busy answers later than an idle one.
const OVERDUE_MIN_MS: u64 = 100;

/// Least time until a connection is given up: one lost packet costs 200 ms.
const SILENT_MIN_MS: u64 = 250;

/// When a renewal that is due at `due_ns`, and not answered yet, is overdue: half way through the
/// lease, as a third of it is over when the renewal is due. A third is what a holder who must end its
/// work needs at most.
pub(super) fn overdue_ns(due_ns: u64, valid_until_ns: u64) -> u64 {
    let left_ns = valid_until_ns.saturating_sub(due_ns);
    due_ns.saturating_add((left_ns / 4).max(ns(OVERDUE_MIN_MS)))
}

/// How long a connection on which that renewal depends may be silent, or take to be made. Half of
/// what is left: the other half is for the next one.
pub(super) fn silence_ns(due_ns: u64, valid_until_ns: u64) -> u64 {
    let left_ns = valid_until_ns.saturating_sub(due_ns);
    (left_ns / 2).max(ns(SILENT_MIN_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::valid_until_ns;

    /// What was fixed (a ping after 2 s, a call of 3 s) left a short lease without a doubt.
    #[test]
    fn d50_every_lease_is_doubted_before_its_last_third_and_has_time_for_another_connection() {
        for lease_ms in [600, 1_000, 2_000, 3_000, 4_000, 5_000, 9_000, 30_000, 600_000] {
            let (due, end) = (ns(lease_ms / 3), valid_until_ns(0, lease_ms));
            let silent = due + silence_ns(due, end);
            let lease = ns(lease_ms);
            assert!(overdue_ns(due, end) <= end - lease / 3 + lease / 30, "{lease_ms}");
            assert!(overdue_ns(due, end) <= silent && silent < end - lease / 10, "{lease_ms}");
        }
    }
}
