//! The values that may exist under the name of a lock without being one.

use std::fmt;

/// The value that exists in place of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotALock {
    /// A hash with a field `mode`, like Redisson's read-write lock.
    Mode,
    /// A hash with this many fields; a lock has one, its holder.
    Fields(usize),
    /// A hash with one field, whose value is not a count from 1 to
    /// [`MAX_HOLD_COUNT`](crate::rules::MAX_HOLD_COUNT).
    Count,
    /// A string with a number and without a TTL: it counts something, and excludes nobody.
    Counter,
}

impl fmt::Display for NotALock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode => {
                write!(f, "a hash with a field `mode` (a read-write lock of Redisson has one)")?;
            }
            Self::Fields(fields) => write!(f, "a hash with {fields} fields")?,
            Self::Count => write!(f, "a hash whose one value is no hold count")?,
            Self::Counter => write!(f, "a number without a TTL (a counter or a semaphore)")?,
        }
        write!(f, ", not a lock")
    }
}
