//! A lock in a listing.

use fairlock_core::{Inspection, Kind, LockName};

/// A lock that a store knows of, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEntry {
    /// Its name.
    pub name: LockName,
    /// Its kind, where that can be told: simple ones while they are held, fair ones while somebody
    /// waits. A plain lock looks like a fair one without waiters.
    pub kind: Option<Kind>,
    /// Whether somebody holds it.
    pub held: bool,
    /// How many wait in its queue. Waiters of plain and simple locks are not known to the store.
    pub waiting: usize,
}

impl LockEntry {
    /// What a look at the lock says.
    pub(crate) fn seen(name: LockName, is_simple: bool, seen: &Inspection) -> Self {
        let held = seen.holder.is_some();
        let waiting = usize::try_from(seen.queue_len).unwrap_or(usize::MAX);
        let kind = match (is_simple, waiting) {
            (true, _) => held.then_some(Kind::Simple),
            (false, 0) => None,
            (false, _) => Some(Kind::Fair),
        };
        Self { name, kind, held, waiting }
    }
}
