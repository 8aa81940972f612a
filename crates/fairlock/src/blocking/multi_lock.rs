//! Several locks at once, for threads.

use super::{Interrupt, wait};
use crate::api::multi_guard::{self, MultiHeld};
use crate::api::scoped::Done;
use crate::base::error::Error;
use crate::base::lost_reason::LostReason;
use crate::state::outcome::Release;
use crate::state::standing::GuardState;
use fairlock_core::{LockName, Token as FencingToken};
use std::fmt;
use std::time::Duration;

/// Several locks that are taken together: see [`MultiLock`](crate::MultiLock) of the async API.
///
/// Unlike single locks, a multi-lock is not owned by the thread: a thread that already holds one of its locks waits for
/// itself.
///
/// ```
/// # fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::blocking::Client::connect("memory:")?;
/// let both = client.multi_lock(["account:1", "account:2"])?;
/// let guard = both.lock()?;
/// assert!(both.try_lock()?.is_none());
/// let _ = guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called"]
pub struct MultiLock {
    inner: crate::MultiLock,
    interrupt: Option<Interrupt>,
}

impl MultiLock {
    pub(super) fn new(inner: crate::MultiLock) -> Self {
        Self { inner, interrupt: None }
    }

    /// Sets an explicit lease: see [`MultiLock::lease`](crate::MultiLock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self }
    }

    /// Lets `interrupt` end the waits of this handle.
    pub fn interruptible(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    /// Returns the names of the locks, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.inner.names()
    }

    /// Waits until it holds all the locks.
    ///
    /// # Errors
    /// Those of [`MultiLock::lock`](crate::MultiLock::lock) of the async API,
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on a
    /// runtime's thread.
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        self.wait(self.inner.lock()).map(MultiGuard)
    }

    /// Takes all the locks if all are free and nobody waits for any; otherwise takes none.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        Ok(self.wait(self.inner.try_lock())?.map(MultiGuard))
    }

    /// Waits until it holds all the locks, for at most `wait` in total: see
    /// [`MultiLock::try_lock_for`](crate::MultiLock::try_lock_for).
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        Ok(self.wait(self.inner.try_lock_for(wait))?.map(MultiGuard))
    }

    /// Waits for all the locks and runs `work` while holding them: see
    /// [`Lock::with`](super::Lock::with).
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost).
    ///
    /// # Panics
    /// If the closure does; the locks are released in the background.
    pub fn with<T>(&self, work: impl FnOnce(MultiHeld) -> T) -> Result<Done<T>, Error> {
        let guard = self.lock()?.0;
        // Not interruptible: the value of `work` matters more.
        wait::until_ready(multi_guard::run(guard, |held| async move { work(held) }))
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), future)
    }
}

/// Holds several locks until they are released or dropped, or one of them is lost: see
/// [`MultiGuard`](crate::MultiGuard) of the async API.
#[must_use = "bind it to a named variable, `let _guard = ...`; `let _ = ...` releases at once"]
pub struct MultiGuard(crate::MultiGuard);

impl MultiGuard {
    /// Returns the fencing token of the lock of this name: see [`MultiGuard::token`](crate::MultiGuard::token).
    pub fn token(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        self.0.token(name)
    }

    /// Returns the worst state among the locks.
    pub fn state(&self) -> GuardState {
        self.0.state()
    }

    /// Returns how long all of the locks are valid without another renewal.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns why one of the locks was lost, if one was.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost_reason()
    }

    /// Waits until the worst state differs from `from`, and returns it.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn state_changed(&self, from: GuardState) -> Result<GuardState, Error> {
        wait::until_ready(async { Ok(self.0.state_changed(from).await) })
    }

    /// Checks that none of the locks is lost.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost), about the first lock that is lost.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.0.ensure_valid()
    }

    /// Releases all of the locks at once, and returns the worst outcome.
    ///
    /// # Errors
    /// Those of [`MultiGuard::release`](crate::MultiGuard::release) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn release(self) -> Result<Release, Error> {
        wait::until_ready(self.0.release())
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
