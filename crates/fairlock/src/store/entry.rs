//! A lock in a listing.

use fairlock_core::{Inspection, Kind, LockName, is_shared, is_string};

/// A lock that a store knows, as it was when the listing examined it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockEntry {
    /// Its name.
    pub name: LockName,
    /// Its kind, if that can be determined: for a simple lock while it is held, for a fair lock
    /// while somebody waits, for a read-write lock or a semaphore while it is in use. A plain lock
    /// looks like a fair lock without waiters.
    pub kind: Option<Kind>,
    /// Whether somebody holds it.
    pub held: bool,
    /// The number of waiters in its queue. The store does not know the waiters of plain and simple
    /// locks.
    pub waiting: usize,
    /// On a server, other kinds of locks for which somebody waits under the same name. A name is
    /// for one kind: clients that use another kind are refused sooner or later.
    pub beside: Vec<Kind>,
}

impl LockEntry {
    /// The entry of an inspected lock.
    pub(crate) fn seen(name: LockName, looked_at_as: Kind, seen: &Inspection) -> Self {
        let held = seen.holder.is_some();
        let waiting = usize::try_from(seen.queue_len).unwrap_or(usize::MAX);
        let in_use = match looked_at_as {
            kind if is_string(kind) => held,
            kind if is_shared(kind) => held || waiting > 0,
            _ => waiting > 0,
        };
        let kind = in_use.then_some(looked_at_as);
        Self { name, kind, held, waiting, beside: Vec::new() }
    }
}
