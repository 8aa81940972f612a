//! Why a hold was lost.

use fairlock_core::client::Loss;
use std::fmt;

/// Why a lock was lost: see [`Guard::lost_reason`](crate::Guard::lost_reason).
///
/// It is the first reason that this client noticed, meant for people and logs: the right reaction
/// to a lost lock does not depend on the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum LostReason {
    /// Its lease ran out: an explicit lease, or one that was not renewed in time because the
    /// process or the machine stood still.
    Expired,
    /// Its lease ran out while the store did not answer the renewals.
    Unreachable,
    /// Its [longest hold](crate::Lock::max_hold) is over.
    MaxHold,
    /// [`force_unlock`](crate::Lock::force_unlock), or the command `fairlock unlock --force`, took
    /// the lock away. Reported only if the message about it has arrived; otherwise the reason is
    /// one of the next two.
    Forced,
    /// According to the store, somebody else holds the lock, or this owner does through another
    /// request. It was taken away by a client that notifies nobody (Java's `forceUnlock`, an
    /// operator with `DEL`), or the store has lost it and somebody else has acquired it since.
    Replaced,
    /// The store does not know the hold, and nobody else has the lock: its data was lost (a
    /// restart, a failover, eviction, a flush), or the lock was taken away by a client that
    /// notifies nobody.
    DataLost,
    /// This guard is a forked child's copy: the lock is the parent's.
    Forked,
    /// The program has not [touched](crate::Term::touch) its term [in time](crate::Election::while_touched).
    Untouched,
}

impl LostReason {
    const ALL: [Self; 8] = [
        Self::Expired,
        Self::Unreachable,
        Self::MaxHold,
        Self::Forced,
        Self::Replaced,
        Self::DataLost,
        Self::Forked,
        Self::Untouched,
    ];

    /// The reason for a loss that the client found out by itself.
    pub(crate) fn of(loss: Loss) -> Self {
        match loss {
            Loss::Expired => Self::Expired,
            Loss::Unreachable => Self::Unreachable,
            Loss::MaxHold => Self::MaxHold,
            Loss::Forced => Self::Forced,
            Loss::Replaced => Self::Replaced,
            Loss::DataLost => Self::DataLost,
            Loss::Untouched => Self::Untouched,
        }
    }

    /// Returns the reason as `serde` writes it, for fields of events.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::MaxHold => "max_hold",
            Self::Forced => "forced",
            Self::Replaced => "replaced",
            Self::DataLost => "data_lost",
            Self::Forked => "forked",
            Self::Untouched => "untouched",
        }
    }

    /// Returns whether the lock was lost because a time was over, not because of an answer of the
    /// store.
    pub(crate) fn is_by_time(self) -> bool {
        matches!(self, Self::Expired | Self::Unreachable | Self::MaxHold | Self::Untouched)
    }

    /// Returns the reason as a number, for an atomic.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out",
            Self::Unreachable => "its lease ran out while the store did not answer",
            Self::MaxHold => "its longest hold is over",
            Self::Forced => "it was taken away by force",
            Self::Replaced => "somebody else has the lock",
            Self::DataLost => {
                "the store knows nothing of it: its data were lost, or it was taken away unannounced"
            }
            Self::Untouched => "its program gave no sign of life in time",
            Self::Forked => "it is the parent's, and this process a copy made by fork()",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_back() {
        for reason in LostReason::ALL {
            assert_eq!(LostReason::of_code(reason.code()), Some(reason));
        }
        assert_eq!(LostReason::of_code(LostReason::ALL.len() as u8), None);
    }
}
