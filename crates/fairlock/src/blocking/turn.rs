//! A place in the queue of a fair lock, for threads.

use super::guard::StaysOnItsThread;
use super::{Guard, Interrupt, wait};
use crate::base::error::Error;
use fairlock_core::{LockName, OwnerId};
use std::fmt;
use std::time::Duration;

/// A place in the queue of a fair lock: see [`Turn`](crate::Turn) of the async API. The place is
/// kept while the turn lives. Once granted, the lock is held even if nobody is waiting on the turn.
///
/// It stays on its thread, like a [`Guard`]. Dropping it never waits.
#[must_use = "the place in the queue is given up as soon as the turn is dropped"]
pub struct Turn {
    inner: crate::Turn,
    interrupt: Option<Interrupt>,
    _on_thread: StaysOnItsThread,
}

impl Turn {
    pub(super) fn new(inner: crate::Turn, interrupt: Option<Interrupt>) -> Self {
        Self { inner, interrupt, _on_thread: StaysOnItsThread::default() }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// Returns the owner id under which this turn waits.
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// Waits until the lock is held. The guard can be taken once.
    ///
    /// # Errors
    /// Those of [`Turn::wait`](crate::Turn::wait) of the async API; in addition
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on
    /// a runtime's thread, after which the place is kept.
    pub fn wait(&mut self) -> Result<Guard, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), self.inner.wait()).map(Guard::new)
    }

    /// Waits for at most `time`; returns `None` if the lock was not granted by then. The place is
    /// kept.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn wait_for(&mut self, time: Duration) -> Result<Option<Guard>, Error> {
        let guard = wait::until_interrupted(self.interrupt.as_ref(), self.inner.wait_for(time))?;
        Ok(guard.map(Guard::new))
    }

    /// Returns how many waiters are in front: see [`Turn::position`](crate::Turn::position) of the
    /// async API.
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn position(&mut self) -> Result<usize, Error> {
        wait::until_ready(self.inner.position())
    }

    /// Gives up the place, or the lock if it was granted, and waits until the store has confirmed
    /// that.
    ///
    /// # Errors
    /// Those of [`Turn::leave`](crate::Turn::leave) of the async API. On a runtime's thread,
    /// [`Misuse`](crate::ErrorKind::Misuse); the place is then given up in the background.
    pub fn leave(self) -> Result<(), Error> {
        wait::until_ready(self.inner.leave())
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
