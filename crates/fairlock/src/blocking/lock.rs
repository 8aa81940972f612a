//! The handle of a lock, for threads.

use super::{Guard, Interrupt, Turn, thread, wait};
use crate::api::client::Client;
use crate::api::member::Member;
use crate::api::owner::Owner;
use crate::api::scoped::{Done, Held};
use crate::api::status::{Holder, LockStatus};
use crate::base::error::Error;
use fairlock_core::{Kind, LockName};
use std::time::Duration;

/// A named lock. Cheap to create and to clone; nothing happens on the store until it is used.
///
/// The calling thread owns the locks that it takes, and may take them again: see the [module's
/// documentation](super).
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called"]
pub struct Lock {
    client: Client,
    inner: crate::Lock,
    /// An explicit owner was set, so the calling thread is not the owner.
    is_owned: bool,
    interrupt: Option<Interrupt>,
}

impl Lock {
    pub(super) fn new(client: &Client, inner: crate::Lock) -> Self {
        Self { client: client.clone(), inner, is_owned: false, interrupt: None }
    }

    /// Sets an explicit lease: see [`Lock::lease`](crate::Lock::lease) of the async API. A re-entry
    /// keeps the lease of the hold that it enters.
    pub fn lease(self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self }
    }

    /// Sets a longest hold: see [`Lock::max_hold`](crate::Lock::max_hold) of the async API.
    pub fn max_hold(self, most: Duration) -> Self {
        Self { inner: self.inner.max_hold(most), ..self }
    }

    /// Sets the owner that requests the lock instead of the calling thread.
    ///
    /// With an owner of another client, the next call fails.
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { inner: self.inner.owned_by(owner), is_owned: true, ..self }
    }

    /// Forbids re-entry: while the calling thread, or the explicit owner, holds the lock, another request fails at once
    /// with [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld). See [`Lock::non_reentrant`](crate::Lock::non_reentrant) of
    /// the async API.
    pub fn non_reentrant(self) -> Self {
        Self { inner: self.inner.non_reentrant(), ..self }
    }

    /// Makes waiters look at a plain lock at least this often: see
    /// [`Lock::poll`](crate::Lock::poll) of the async API.
    pub fn poll(self, most: Duration) -> Self {
        Self { inner: self.inner.poll(most), ..self }
    }

    /// Lets `interrupt` end the waits of this handle.
    pub fn interruptible(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    /// Returns the lock's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.inner.name()
    }

    /// Returns the lock's kind: fair, plain or simple.
    pub fn kind(&self) -> Kind {
        self.inner.kind()
    }

    /// Waits for its turn and takes the lock.
    ///
    /// # Errors
    /// Those of [`Lock::lock`](crate::Lock::lock) of the async API,
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on
    /// a runtime's thread.
    pub fn lock(&self) -> Result<Guard, Error> {
        self.ask(crate::Lock::lock).map(Guard::new)
    }

    /// Takes the lock if it is free and nobody waits for it, or enters it again.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn try_lock(&self) -> Result<Option<Guard>, Error> {
        Ok(self.ask(crate::Lock::try_lock)?.map(Guard::new))
    }

    /// Waits for its turn for at most `wait`. Zero means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        Ok(self.ask(async |lock| lock.try_lock_for(wait).await)?.map(Guard::new))
    }

    /// Joins the queue of a fair lock and returns the place as a [`Turn`]. Waits only until it has
    /// the place; if another request of the same owner is waiting, it waits for that request first.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock), and [`Misuse`](crate::ErrorKind::Misuse) for another kind of
    /// lock.
    pub fn enqueue(&self) -> Result<Turn, Error> {
        let turn = self.ask(crate::Lock::enqueue)?;
        Ok(Turn::new(turn, self.interrupt.clone()))
    }

    /// Waits for its turn, runs `work`, and releases the lock, even if `work` panics.
    ///
    /// A thread cannot be stopped from outside, so `work` continues when the lock is lost, unlike a
    /// future in [`Lock::with`](crate::Lock::with) of the async API. It should check
    /// [`ensure_valid`](Held::ensure_valid) before each effect, and pass the [`token`](Held::token)
    /// to the resource that it writes to. The value of `work` is returned whether or not the
    /// release succeeded.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock); `work` was not run in that case.
    pub fn with<T>(&self, work: impl FnOnce(Held) -> T) -> Result<Done<T>, Error> {
        self.lock()?.run(work)
    }

    /// Returns whether anybody holds the lock.
    ///
    /// # Errors
    /// The store's, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn is_locked(&self) -> Result<bool, Error> {
        wait::until_ready(self.inner.is_locked())
    }

    /// Returns who holds the lock, if anybody.
    ///
    /// # Errors
    /// Those of [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        wait::until_ready(self.inner.holder())
    }

    /// Returns how long the holder's lease lasts without a renewal; `None` if the lock is free.
    ///
    /// # Errors
    /// Those of [`is_locked`](Self::is_locked).
    pub fn remaining_ttl(&self) -> Result<Option<Duration>, Error> {
        wait::until_ready(self.inner.remaining_ttl())
    }

    /// Returns who holds the lock and who waits. Lists the first 1 000 waiters.
    ///
    /// # Errors
    /// Those of [`is_locked`](Self::is_locked).
    pub fn inspect(&self) -> Result<LockStatus, Error> {
        wait::until_ready(self.inner.inspect())
    }

    /// Like [`inspect`](Self::inspect) with a shorter list: the first `waiters` in the queue.
    ///
    /// # Errors
    /// Those of [`is_locked`](Self::is_locked).
    pub fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        wait::until_ready(self.inner.inspect_first(waiters))
    }

    /// Takes the lock away from its holder and hands it to the next waiter: see
    /// [`Lock::force_unlock`](crate::Lock::force_unlock) of the async API.
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn force_unlock(&self) -> Result<bool, Error> {
        wait::until_ready(self.inner.force_unlock())
    }

    /// Waits for a request of the calling thread, or of the owner that was set.
    fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&crate::Lock) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut lock = self.inner.clone();
        if !self.is_owned {
            lock = lock.owned_by(&thread::current(&self.client)?);
        }
        let asked = request(&lock);
        wait::until_interrupted(self.interrupt.as_ref(), asked).map_err(|error| lock.about(error))
    }
}

impl From<Lock> for Member {
    fn from(lock: Lock) -> Self {
        lock.inner.into()
    }
}
