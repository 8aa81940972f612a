//! The semaphore, for threads.

use super::{Guard, Interrupt, wait};
use crate::api::member::Member;
use crate::api::owner::Owner;
use crate::api::scoped::{Done, Held};
use crate::api::semaphore::{self, Usage};
use crate::api::status::LockStatus;
use crate::base::error::Error;
use crate::state::outcome::Release;
use fairlock_core::LockName;
use std::ops::Deref;
use std::time::Duration;

/// A named semaphore: see [`Semaphore`](crate::Semaphore) of the async API.
///
/// Unlike locks, permits do not belong to the thread: each request takes permits of its own, even
/// in a thread that already has some.
///
/// ```
/// # fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::blocking::Client::connect("memory:")?;
/// let downloads = client.semaphore("downloads", 2);
/// let (one, two) = (downloads.acquire()?, downloads.acquire()?);
/// assert!(downloads.try_acquire()?.is_none());
/// # drop((one, two));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called"]
pub struct Semaphore {
    inner: crate::Semaphore,
    interrupt: Option<Interrupt>,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore) -> Self {
        Self { inner, interrupt: None }
    }

    /// Returns the semaphore's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.inner.name()
    }

    /// Returns the limit that this handle names.
    pub fn limit(&self) -> u32 {
        self.inner.limit()
    }

    /// Sets an explicit lease: see [`Lock::lease`](crate::Lock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self }
    }

    /// Sets a longest hold: see [`Lock::max_hold`](crate::Lock::max_hold).
    pub fn max_hold(self, most: Duration) -> Self {
        Self { inner: self.inner.max_hold(most), ..self }
    }

    /// Sets the owner that requests permits: see
    /// [`Semaphore::owned_by`](crate::Semaphore::owned_by).
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { inner: self.inner.owned_by(owner), ..self }
    }

    /// Lets `interrupt` end the waits of this handle.
    pub fn interruptible(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    /// Returns a member that takes `n` permits, for a multi-lock: see
    /// [`Semaphore::many`](crate::Semaphore::many).
    pub fn many(&self, n: u32) -> Member {
        self.inner.many(n)
    }

    /// Waits for its turn and takes a permit.
    ///
    /// # Errors
    /// Those of [`Semaphore::acquire`](crate::Semaphore::acquire) of the async API,
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on a
    /// runtime's thread.
    pub fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1)
    }

    /// Waits for its turn and takes `n` permits, which are one hold.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire), and `Misuse` for 0 or for more than the limit.
    pub fn acquire_many(&self, n: u32) -> Result<Permit, Error> {
        self.wait(self.inner.acquire_many(n)).map(Permit::new)
    }

    /// Takes a permit if one is free and nobody waits.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits if that many are free and nobody waits.
    ///
    /// # Errors
    /// Those of [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many(&self, n: u32) -> Result<Option<Permit>, Error> {
        Ok(self.wait(self.inner.try_acquire_many(n))?.map(Permit::new))
    }

    /// Waits for its turn for at most `wait`.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<Permit>, Error> {
        self.try_acquire_many_for(1, wait)
    }

    /// Like [`try_acquire_for`](Self::try_acquire_for), but takes `n` permits.
    ///
    /// # Errors
    /// Those of [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many_for(&self, n: u32, wait: Duration) -> Result<Option<Permit>, Error> {
        Ok(self.wait(self.inner.try_acquire_many_for(n, wait))?.map(Permit::new))
    }

    /// Waits for its turn and runs `work` while holding a permit: see
    /// [`Lock::with`](super::Lock::with).
    ///
    /// ```
    /// # fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::blocking::Client::connect("memory:")?;
    /// let done = client.semaphore("downloads", 3).with(|_| 42)?;
    /// assert_eq!(done.value, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire); `work` was not run in that case.
    pub fn with<T>(&self, work: impl FnOnce(Held) -> T) -> Result<Done<T>, Error> {
        self.acquire()?.into_guard().run(work)
    }

    /// Returns how many permits are in use, and which limits holders and waiters name.
    ///
    /// # Errors
    /// The store's, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn usage(&self) -> Result<Usage, Error> {
        wait::until_ready(self.inner.usage())
    }

    /// Returns who holds permits, and who waits for how many.
    ///
    /// # Errors
    /// Those of [`usage`](Self::usage).
    pub fn inspect(&self) -> Result<LockStatus, Error> {
        wait::until_ready(self.inner.inspect())
    }

    /// Like [`inspect`](Self::inspect) with a shorter list of waiters.
    ///
    /// # Errors
    /// Those of [`usage`](Self::usage).
    pub fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        wait::until_ready(self.inner.inspect_first(waiters))
    }

    /// Takes all permits away from their holders, and returns the number of these holders: see
    /// [`Semaphore::force_unlock`](crate::Semaphore::force_unlock).
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn force_unlock(&self) -> Result<usize, Error> {
        wait::until_ready(self.inner.force_unlock())
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), future)
            .map_err(|error| self.inner.wanting(1).about(error))
    }
}

/// The [`Guard`] of one holder's permits of a [`Semaphore`], until they are released, dropped or
/// lost.
#[derive(Debug)]
#[must_use = "bind it to a named variable, `let _permit = ...`; `let _ = ...` releases at once"]
pub struct Permit {
    guard: Guard,
    n: u32,
}

impl Permit {
    fn new(inner: semaphore::Permit) -> Self {
        let n = inner.permits();
        Self { guard: Guard::new(inner.into_guard()), n }
    }

    /// Returns the number of permits.
    pub fn permits(&self) -> u32 {
        self.n
    }

    /// Releases the permits and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub fn release(self) -> Result<Release, Error> {
        self.guard.release()
    }

    /// Returns the guard itself, for functions that consume one.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for Permit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
