//! The number of replicas that must have a lock.

use crate::base::error::Error;
use std::fmt;
use std::str::FromStr;

/// Maximum number of replicas that can be required: more than any server has.
const COUNT_MAX: u32 = 100;

/// How many replicas of the server must have a lock before it counts as held.
///
/// Before the application gets a lock, from a reply or by a hand-over, this many replicas have
/// acknowledged it (`WAIT`). A guard is valid only as long as its last acknowledged renewal allows,
/// and a release returns `Released` only if it was acknowledged. A failover to one of those
/// replicas then does no harm. A failover to a replica that had not acknowledged still breaks the
/// lock: require all replicas that can become the primary, or rely on fencing tokens.
///
/// It is parsed from text as in a URL: a number, `all`, `any` or `none`.
///
/// ```
/// use fairlock::{Config, Replicas};
/// let config = Config::from_url("redis://127.0.0.1/?replicas=2")?;
/// let config = config.replicas(Replicas::All);
/// assert_eq!("any".parse::<Replicas>()?, Replicas::AnyConnected);
/// # Ok::<(), fairlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Replicas {
    /// No replica is required.
    #[default]
    None,
    /// At least this many replicas, any of them: 1 to 100.
    AtLeast(u32),
    /// All replicas that are connected to the primary, and at least one.
    All,
    /// One of the replicas that are connected to the primary, or none if none is connected.
    /// Redisson's `checkLockSyncedSlaves` does the same.
    AnyConnected,
}

impl Replicas {
    /// Returns how many must acknowledge if `connected` replicas are connected.
    #[cfg(feature = "redis")]
    pub(crate) fn needed(self, connected: u32) -> u32 {
        match self {
            Self::None => 0,
            Self::AtLeast(count) => count,
            Self::All => connected.max(1),
            Self::AnyConnected => connected.min(1),
        }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::AtLeast(count) if count == 0 || count > COUNT_MAX => Err(Error::misuse(format!(
                "replicas is {count}; it must be between 1 and {COUNT_MAX}"
            ))),
            _ => Ok(()),
        }
    }
}

impl FromStr for Replicas {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let count = text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let replicas = match (text, count) {
            ("none", _) | (_, Some(0)) => Self::None,
            ("all", _) => Self::All,
            ("any", _) => Self::AnyConnected,
            (_, Some(count)) => Self::AtLeast(count),
            _ => return Err(Error::misuse("replicas is a number, `all`, `any` or `none`")),
        };
        replicas.check().map(|()| replicas)
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::AtLeast(count) => count.fmt(f),
            Self::All => f.write_str("all"),
            Self::AnyConnected => f.write_str("any"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, replicas) in [
            ("none", Replicas::None),
            ("1", Replicas::AtLeast(1)),
            ("100", Replicas::AtLeast(100)),
            ("all", Replicas::All),
            ("any", Replicas::AnyConnected),
        ] {
            assert_eq!(text.parse::<Replicas>().unwrap(), replicas);
            assert_eq!(replicas.to_string(), text);
        }
        assert_eq!("0".parse::<Replicas>().unwrap(), Replicas::None);
        for text in ["", "-1", "+1", "101", "ALL", "1.5", "99999999999"] {
            assert!(text.parse::<Replicas>().is_err(), "{text}");
        }
        assert!(Replicas::AtLeast(0).check().is_err());
    }

    /// Redisson's rule accepts a server without replicas; ours do not.
    #[test]
    #[cfg(feature = "redis")]
    fn how_many_are_needed() {
        for (connected, all, any) in [(0, 1, 0), (1, 1, 1), (3, 3, 1)] {
            assert_eq!(Replicas::All.needed(connected), all);
            assert_eq!(Replicas::AnyConnected.needed(connected), any);
            assert_eq!(Replicas::AtLeast(2).needed(connected), 2);
            assert_eq!(Replicas::None.needed(connected), 0);
        }
    }
}
