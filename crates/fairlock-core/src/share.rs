//! The part of a lock that a request wants and a hold has, for locks that several may hold at once.

/// A part of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Share {
    /// All of it: every hold of a fair, plain or simple lock, and a writer's.
    #[default]
    Whole,
    /// A reader's, beside any number of others.
    Read,
    /// Some of the permits of a semaphore.
    Permits {
        /// The number of permits.
        n: u32,
        /// How many may be in use, these included. Each request names its own limit.
        limit: u32,
    },
}

impl Share {
    /// How many permits it has.
    pub(crate) fn permits(self) -> u32 {
        match self {
            Self::Permits { n, .. } => n,
            Self::Whole | Self::Read => 0,
        }
    }
}
