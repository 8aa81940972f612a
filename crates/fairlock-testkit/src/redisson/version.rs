//! The fair lock's rules changed over the years; reported failures belong to particular versions.

/// The version whose rules a client follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// 2.7.4 and 3.2.4 to 2.10.4 and 3.5.4: every failed attempt gives the waiter a new score,
    /// counted from the head's, and nothing is ever subtracted.
    V3_5,
    /// 2.10.5 and 3.5.5 to 3.10: as before, but a head that leaves moves the others up.
    V3_10,
    /// 3.11.1 to 3.13.2: a score is given once, and a waiter that acquires or leaves moves the
    /// others up. The reply to a waiter is the time until its turn, which can be below zero.
    V3_12,
    /// 3.13.3 to 3.31: the same with an allowance of five minutes for each waiter instead of five
    /// seconds, or with the waiter's own time.
    V3_31,
    /// 3.32 to 4.3: the reply to a waiter is the lock's TTL. (Of read-write locks it is what 3.52 does.)
    V3_52,
    /// 4.4 to 4.7: the same for fair locks. Whoever renews a reader renews no other.
    V4,
}

impl Version {
    /// The allowance of a waiter, in milliseconds, if its call does not set one.
    pub fn default_wait_ms(self) -> i64 {
        match self {
            Self::V3_5 | Self::V3_10 | Self::V3_12 => 5_000,
            Self::V3_31 | Self::V3_52 | Self::V4 => super::DEFAULT_WAIT_MS,
        }
    }

    /// Whether a timed call uses its own time as allowance.
    pub(super) fn timed_calls_have_their_own_wait(self) -> bool {
        matches!(self, Self::V3_31 | Self::V3_52 | Self::V4)
    }

    pub(super) fn rewrites_scores(self) -> bool {
        matches!(self, Self::V3_5 | Self::V3_10)
    }

    pub(super) fn replies_distances(self) -> bool {
        matches!(self, Self::V3_12 | Self::V3_31)
    }

    /// If only the head's leaving moves the others up, if anything: by how many milliseconds.
    pub(super) fn subtracted_by_a_leaving_head_ms(self) -> Option<i64> {
        match self {
            Self::V3_5 => Some(0),
            Self::V3_10 => Some(self.default_wait_ms()),
            Self::V3_12 | Self::V3_31 | Self::V3_52 | Self::V4 => None,
        }
    }

    /// Whether a renewal of a reader is one of all that read the lock.
    pub(super) fn renews_all_readers(self) -> bool {
        self != Self::V4
    }

    /// Whether a renewal of readers fails, half done, where one has more than one hold.
    pub(super) fn renews_first_holds_alone(self) -> bool {
        self == Self::V3_52
    }

    /// Whether the unlock of a read-write lock that is free throws (since 3.44), and whether a writer counts as one
    /// who reads if it does (since 3.24).
    pub(super) fn is_exact_about_readers(self) -> bool {
        matches!(self, Self::V3_52 | Self::V4)
    }
}
