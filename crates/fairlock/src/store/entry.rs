//! A lock in a listing.

use fairlock_core::{Inspection, Kind, LockName};

/// A lock that a store knows, as it was when the listing examined it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEntry {
    /// Its name.
    pub name: LockName,
    /// Its kind, if that can be determined: of a simple lock while it is held, of a fair lock while
    /// somebody waits. A plain lock looks like a fair lock without waiters.
    pub kind: Option<Kind>,
    /// Whether somebody holds it.
    pub held: bool,
    /// The number of waiters in its queue. The store does not know the waiters of plain and simple
    /// locks.
    pub waiting: usize,
}

impl LockEntry {
    /// The entry of an inspected lock.
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
