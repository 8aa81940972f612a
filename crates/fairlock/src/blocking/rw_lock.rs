//! The read-write lock, for threads.

use super::{Guard, Interrupt, Turn, thread, wait};
use crate::api::client::Client;
use crate::api::member::Member;
use crate::api::owner::Owner;
use crate::api::rw_lock;
use crate::api::scoped::{Done, Held};
use crate::api::status::LockStatus;
use crate::base::error::Error;
use crate::state::outcome::Release;
use fairlock_core::LockName;
use std::ops::Deref;
use std::time::Duration;

/// A named lock that one writer, or any number of readers, may hold: see [`RwLock`](crate::RwLock)
/// of the async API.
///
/// The calling thread owns its holds: while it reads, it may read again, and while it writes, it
/// may write or read again. A request to write while it reads would wait for itself, so it fails at
/// once with [`Misuse`](crate::ErrorKind::Misuse).
///
/// ```
/// # fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::blocking::Client::connect("memory:")?;
/// let catalogue = client.rw_lock("catalogue");
/// let writing = catalogue.write()?;
/// let reading = writing.downgrade()?; // nobody writes in between
/// let _ = reading.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called"]
pub struct RwLock {
    client: Client,
    inner: crate::RwLock,
    /// An explicit owner was set, so the calling thread is not the owner.
    is_owned: bool,
    interrupt: Option<Interrupt>,
}

impl RwLock {
    pub(super) fn new(client: &Client, inner: crate::RwLock) -> Self {
        Self { client: client.clone(), inner, is_owned: false, interrupt: None }
    }

    /// Returns the lock's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.inner.name()
    }

    /// Sets an explicit lease: see [`Lock::lease`](crate::Lock::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self }
    }

    /// Sets a longest hold: see [`Lock::max_hold`](crate::Lock::max_hold).
    pub fn max_hold(self, most: Duration) -> Self {
        Self { inner: self.inner.max_hold(most), ..self }
    }

    /// Sets the owner that requests the lock instead of the calling thread.
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { inner: self.inner.owned_by(owner), is_owned: true, ..self }
    }

    /// Forbids re-entry by the calling thread, or by the explicit owner: see
    /// [`RwLock::non_reentrant`](crate::RwLock::non_reentrant) of the async API.
    pub fn non_reentrant(self) -> Self {
        Self { inner: self.inner.non_reentrant(), ..self }
    }

    /// Lets `interrupt` end the waits of this handle.
    pub fn interruptible(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    /// Returns a member that reads, for a multi-lock: see
    /// [`RwLock::to_read`](crate::RwLock::to_read).
    pub fn to_read(&self) -> Member {
        self.inner.to_read()
    }

    /// Returns a member that writes, for a multi-lock: see
    /// [`RwLock::to_write`](crate::RwLock::to_write).
    pub fn to_write(&self) -> Member {
        self.inner.to_write()
    }

    /// Waits for its turn to read.
    ///
    /// # Errors
    /// Those of [`RwLock::read`](crate::RwLock::read) of the async API,
    /// [`Interrupted`](crate::ErrorKind::Interrupted), and [`Misuse`](crate::ErrorKind::Misuse) on a
    /// runtime's thread.
    pub fn read(&self) -> Result<ReadGuard, Error> {
        self.ask(crate::RwLock::read).map(ReadGuard::new)
    }

    /// Waits for its turn to write.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn write(&self) -> Result<WriteGuard, Error> {
        self.ask(crate::RwLock::write).map(WriteGuard::new)
    }

    /// Reads if nobody writes and nobody waits, or enters the lock again.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        Ok(self.ask(crate::RwLock::try_read)?.map(ReadGuard::new))
    }

    /// Writes if nobody reads or writes and nobody waits, or enters the lock again.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        Ok(self.ask(crate::RwLock::try_write)?.map(WriteGuard::new))
    }

    /// Waits for its turn to read for at most `wait`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn try_read_for(&self, wait: Duration) -> Result<Option<ReadGuard>, Error> {
        Ok(self.ask(async |lock| lock.try_read_for(wait).await)?.map(ReadGuard::new))
    }

    /// Waits for its turn to write for at most `wait`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn try_write_for(&self, wait: Duration) -> Result<Option<WriteGuard>, Error> {
        Ok(self.ask(async |lock| lock.try_write_for(wait).await)?.map(WriteGuard::new))
    }

    /// Joins the line to read, and returns the place in it: see [`Lock::enqueue`](super::Lock::enqueue).
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn enqueue_read(&self) -> Result<Turn, Error> {
        let turn = self.ask(crate::RwLock::enqueue_read)?;
        Ok(Turn::new(turn, self.interrupt.clone()))
    }

    /// Joins the line to write, and returns the place in it: see [`Lock::enqueue`](super::Lock::enqueue).
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn enqueue_write(&self) -> Result<Turn, Error> {
        let turn = self.ask(crate::RwLock::enqueue_write)?;
        Ok(Turn::new(turn, self.interrupt.clone()))
    }

    /// Waits for its turn to read and runs `work` while reading: see
    /// [`Lock::with`](super::Lock::with).
    ///
    /// # Errors
    /// Those of [`read`](Self::read); `work` was not run in that case.
    pub fn with_read<T>(&self, work: impl FnOnce(Held) -> T) -> Result<Done<T>, Error> {
        self.read()?.into_guard().run(work)
    }

    /// Waits for its turn to write and runs `work` while writing: see [`Lock::with`](super::Lock::with).
    ///
    /// # Errors
    /// Those of [`read`](Self::read); `work` was not run in that case.
    pub fn with_write<T>(&self, work: impl FnOnce(Held) -> T) -> Result<Done<T>, Error> {
        self.write()?.into_guard().run(work)
    }

    /// Returns who reads or writes, and who waits for what.
    ///
    /// # Errors
    /// The store's, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn inspect(&self) -> Result<LockStatus, Error> {
        wait::until_ready(self.inner.inspect())
    }

    /// Like [`inspect`](Self::inspect) with a shorter list of waiters.
    ///
    /// # Errors
    /// Those of [`inspect`](Self::inspect).
    pub fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        wait::until_ready(self.inner.inspect_first(waiters))
    }

    /// Takes the lock away from all its holders, and returns their number: see
    /// [`RwLock::force_unlock`](crate::RwLock::force_unlock).
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn force_unlock(&self) -> Result<usize, Error> {
        wait::until_ready(self.inner.force_unlock())
    }

    /// Waits for a request of the calling thread, or of the owner that was set.
    fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&crate::RwLock) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut lock = self.inner.clone();
        if !self.is_owned {
            lock = lock.owned_by(&thread::current(&self.client)?);
        }
        let asked = request(&lock);
        wait::until_interrupted(self.interrupt.as_ref(), asked).map_err(|error| lock.about(error))
    }
}

/// The [`Guard`] of one of possibly many readers, until it is released, dropped or lost.
#[derive(Debug)]
#[must_use = "bind it to a named variable, `let _guard = ...`; `let _ = ...` releases at once"]
pub struct ReadGuard(Guard);

/// The [`Guard`] of the only writer, until it is released, dropped or lost.
#[derive(Debug)]
#[must_use = "bind it to a named variable, `let _guard = ...`; `let _ = ...` releases at once"]
pub struct WriteGuard(Guard);

impl ReadGuard {
    fn new(inner: rw_lock::ReadGuard) -> Self {
        Self(Guard::new(inner.into_guard()))
    }

    /// Releases this guard and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub fn release(self) -> Result<Release, Error> {
        self.0.release()
    }

    /// Returns the guard itself, for functions that consume one.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl WriteGuard {
    fn new(inner: rw_lock::WriteGuard) -> Self {
        Self(Guard::new(inner.into_guard()))
    }

    /// Turns the writer into a reader: see [`WriteGuard::downgrade`](crate::WriteGuard::downgrade)
    /// of the async API.
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    /// After any of them this guard is released, as if it had been dropped.
    pub fn downgrade(self) -> Result<ReadGuard, Error> {
        let writing = rw_lock::WriteGuard::new(self.0.into_async());
        wait::until_ready(writing.downgrade()).map(ReadGuard::new)
    }

    /// Releases this guard and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub fn release(self) -> Result<Release, Error> {
        self.0.release()
    }

    /// Returns the guard itself, for functions that consume one.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
