//! A place in the queue of a fair lock, for threads.

use super::{Guard, Interrupt, wait};
use crate::base::error::Error;
use fairlock_core::{LockName, OwnerId};
use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

/// A place in the queue of a fair lock: see [`Turn`](crate::Turn) of the async API. It is kept
/// while the turn lives, and the lock is held when its time comes, whether anybody waits or not.
///
/// It stays on its thread, as [`Guard`] does. Dropping it never waits.
#[must_use = "the place in the queue is given up as soon as the turn is dropped"]
pub struct Turn {
    inner: crate::Turn,
    interrupt: Option<Interrupt>,
    _on_thread: PhantomData<MutexGuard<'static, ()>>,
}

impl Turn {
    pub(super) fn new(inner: crate::Turn, interrupt: Option<Interrupt>) -> Self {
        Self { inner, interrupt, _on_thread: PhantomData }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The owner id under which it waits.
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// Waits until the lock is held. The guard can be taken once.
    ///
    /// # Errors
    /// As [`Turn::wait`](crate::Turn::wait) of the async API; in addition
    /// [`Interrupted`](crate::ErrorKind::Interrupted) and [`Misuse`](crate::ErrorKind::Misuse) on a
    /// runtime's thread, after which the place is kept.
    pub fn wait(&mut self) -> Result<Guard, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), self.inner.wait()).map(Guard::new)
    }

    /// Waits for at most `time`; `None` when the lock was not granted by then. The place is kept.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, time: Duration) -> Result<Option<Guard>, Error> {
        let guard = wait::until_interrupted(self.interrupt.as_ref(), self.inner.wait_for(time))?;
        Ok(guard.map(Guard::new))
    }

    /// How many wait in front of it: see [`Turn::position`](crate::Turn::position) of the async
    /// API.
    ///
    /// # Errors
    /// As there, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn position(&mut self) -> Result<usize, Error> {
        wait::until_ready(self.inner.position())
    }

    /// Gives the place up, or the lock if it was granted, and waits until the store has confirmed
    /// it.
    ///
    /// # Errors
    /// As [`Turn::leave`](crate::Turn::leave) of the async API. [`Misuse`](crate::ErrorKind::Misuse)
    /// on a runtime's thread: the place is given up in the background then.
    pub fn leave(self) -> Result<(), Error> {
        wait::until_ready(self.inner.leave())
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
