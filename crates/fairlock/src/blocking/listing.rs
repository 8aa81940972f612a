//! The locks of a store, for threads.

use super::wait;
use crate::base::error::Error;
use crate::store::entry::LockEntry;

/// Iterates over the locks of a store: see [`Locks`](crate::Locks) of the async API.
#[derive(Debug)]
#[must_use = "nothing is asked before `next_page`"]
pub struct Locks {
    inner: crate::Locks,
}

impl Locks {
    pub(super) fn new(inner: crate::Locks) -> Self {
        Self { inner }
    }

    /// Sets the maximum pace in keys a second: see
    /// [`keys_per_second`](crate::Locks::keys_per_second) of the async API.
    pub fn keys_per_second(self, keys: u32) -> Self {
        Self { inner: self.inner.keys_per_second(keys) }
    }

    /// Returns the pace in keys a second; `None` if the store need not be searched for locks.
    pub fn pace(&self) -> Option<u32> {
        self.inner.pace()
    }

    /// Returns the next locks: an empty page if this step found none, `None` at the end. Waits as
    /// the pace requires.
    ///
    /// # Errors
    /// Those of [`next_page`](crate::Locks::next_page) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn next_page(&mut self) -> Result<Option<Vec<LockEntry>>, Error> {
        wait::until_ready(self.inner.next_page())
    }
}
