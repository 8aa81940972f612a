//! The rules of the fair lock changed over the years; reported failures belong to some of them.

/// Whose rules a client follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// 2.7.4 and 3.2.4 to 2.10.4 and 3.5.4: every failed attempt gives the waiter a new score,
    /// counted from the head's, and nothing is ever subtracted.
    V3_5,
    /// 2.10.5 and 3.5.5 to 3.10: as before, but a head that leaves moves the others up.
    V3_10,
    /// 3.11.1 to 3.13.2: a score is given once, and who acquires or leaves moves the others up. The
    /// reply to a waiter is how far its turn is away, which can be below zero.
    V3_12,
    /// 3.13.3 to 3.31: the same with five minutes for a waiter, where five seconds were before, or
    /// with the waiter's own time.
    V3_31,
    /// 3.32 to 4.7: the reply to a waiter is the lock's TTL.
    V4,
}

impl Version {
    /// How long a waiter is waited for, in milliseconds, when its call says nothing else.
    pub fn default_wait_ms(self) -> i64 {
        match self {
            Self::V3_5 | Self::V3_10 | Self::V3_12 => 5_000,
            Self::V3_31 | Self::V4 => super::DEFAULT_WAIT_MS,
        }
    }

    /// Whether a timed call brings its own time as allowance.
    pub(super) fn timed_calls_have_their_own_wait(self) -> bool {
        matches!(self, Self::V3_31 | Self::V4)
    }

    pub(super) fn rewrites_scores(self) -> bool {
        matches!(self, Self::V3_5 | Self::V3_10)
    }

    pub(super) fn replies_distances(self) -> bool {
        matches!(self, Self::V3_12 | Self::V3_31)
    }

    /// Where only the head's leaving moves the others up, if anything: by how many milliseconds.
    pub(super) fn subtracted_by_a_leaving_head_ms(self) -> Option<i64> {
        match self {
            Self::V3_5 => Some(0),
            Self::V3_10 => Some(self.default_wait_ms()),
            Self::V3_12 | Self::V3_31 | Self::V4 => None,
        }
    }
}
