//! How a release ended.

/// How a release ended.
///
/// Check it where the work must not count if somebody else may have worked at the same time
/// ([`Lost`](Self::Lost)), or where the next step needs the lock to be free already
/// ([`Unknown`](Self::Unknown): it may not be). Otherwise ignore it explicitly, with `let _ = ...` or `drop(...)`:
/// the lock is free, or will be when its lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
#[must_use = "the lock may have been lost (`Release::Lost`); `let _ = ...` where that does not matter"]
pub enum Release {
    /// The lock is free, or was handed to the next waiter.
    Released,
    /// This many other guards of the hold remain.
    StillHeld(u32),
    /// The lock had been lost before the release, and somebody else may have held it since.
    Lost,
    /// The release was not confirmed: the store did not answer or refused it, or too few replicas have it. The lock is
    /// free at the latest when its lease ends.
    Unknown,
}

impl Release {
    /// As a label of metrics and events.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::StillHeld(_) => "still_held",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the lock was given back, or other guards have it.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Released | Self::StillHeld(_))
    }
}
