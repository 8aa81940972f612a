//! The read-write lock: one writer, or any number of readers.

use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::api::member::Member;
use crate::api::owner::Owner;
use crate::api::scoped::{self, Done, Held};
use crate::api::status::LockStatus;
use crate::api::turn::Turn;
use crate::base::error::Error;
use crate::state::outcome::Release;
use fairlock_core::{LockName, Share};
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

/// A named lock that one writer, or any number of readers, may hold.
///
/// There is one line, in order of arrival, and nobody enters before a live waiter that came
/// earlier: a stream of new readers does not keep a writer out, because the writer waits only for
/// the readers before it. Adjacent readers in the line enter together.
///
/// All concurrent readers have the same fencing token, because they do not exclude each other. It
/// is larger than that of every earlier writer, so a resource that refuses smaller tokens refuses
/// late writers, and readers from before the last writer. A writer that [continues as a
/// reader](WriteGuard::downgrade) keeps its token, and readers that join it get the same token.
///
/// Guards, leases, renewals, owners and cancellation work as for a [`Lock`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let catalogue = client.rw_lock("catalogue");
/// let (one, two) = (catalogue.read().await?, catalogue.read().await?);
/// assert_eq!(one.token(), two.token());
/// assert!(catalogue.try_write().await?.is_none());
/// drop((one, two));
///
/// let writing = catalogue.write().await?;
/// let reading = writing.downgrade().await?; // nobody writes in between
/// let _ = reading.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called and awaited"]
pub struct RwLock {
    pub(crate) reads: Lock,
    pub(crate) writes: Lock,
}

impl RwLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { reads: lock.clone().sharing(Share::Read), writes: lock }
    }

    fn each(self, change: impl Fn(Lock) -> Lock) -> Self {
        Self { reads: change(self.reads), writes: change(self.writes) }
    }

    /// Returns the lock's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.writes.name()
    }

    /// Sets an explicit lease: see [`Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        self.each(|lock| lock.lease(lease))
    }

    /// Sets a longest hold: see [`Lock::max_hold`].
    pub fn max_hold(self, most: Duration) -> Self {
        self.each(|lock| lock.max_hold(most))
    }

    /// Sets the owner that requests the lock: while it reads, it may read once more, and while it
    /// writes, it may write or read once more; both enter its hold again. When its last write guard
    /// ends and read guards remain, it becomes a reader, as by a
    /// [downgrade](WriteGuard::downgrade). A request to write while
    /// it reads would wait for itself, so it fails at once with
    /// [`Misuse`](crate::ErrorKind::Misuse).
    pub fn owned_by(self, owner: &Owner) -> Self {
        self.each(|lock| lock.owned_by(owner))
    }

    /// Forbids re-entry: while the owner reads or writes, another request of it fails at once with
    /// [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld). See [`Lock::non_reentrant`].
    pub fn non_reentrant(self) -> Self {
        self.each(Lock::non_reentrant)
    }

    /// Returns a member that reads, for a multi-lock: see
    /// [`Client::multi_lock`](crate::Client::multi_lock).
    pub fn to_read(&self) -> Member {
        Member::from(&self.reads)
    }

    /// Returns a member that writes, for a multi-lock: see
    /// [`Client::multi_lock`](crate::Client::multi_lock).
    pub fn to_write(&self) -> Member {
        Member::from(&self.writes)
    }

    /// Waits for its turn to read.
    ///
    /// # Errors
    /// Those of [`Lock::lock`].
    ///
    /// # Cancel safety
    /// As for [`Lock::lock`]: dropping the future gives up the place in the line, or releases the
    /// lock.
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.reads.lock().await.map(ReadGuard)
    }

    /// Waits for its turn to write.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.writes.lock().await.map(WriteGuard)
    }

    /// Reads if nobody writes and nobody waits. It never overtakes a waiter, so it may fail for as
    /// long as writers follow each other without a gap.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        Ok(self.reads.try_lock().await?.map(ReadGuard))
    }

    /// Writes if nobody reads or writes and nobody waits.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        Ok(self.writes.try_lock().await?.map(WriteGuard))
    }

    /// Waits for its turn to read for at most `wait`: see [`Lock::try_lock_for`].
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn try_read_for(&self, wait: Duration) -> Result<Option<ReadGuard>, Error> {
        Ok(self.reads.try_lock_for(wait).await?.map(ReadGuard))
    }

    /// Waits for its turn to write for at most `wait`: see [`Lock::try_lock_for`].
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn try_write_for(&self, wait: Duration) -> Result<Option<WriteGuard>, Error> {
        Ok(self.writes.try_lock_for(wait).await?.map(WriteGuard))
    }

    /// Joins the line to read, and returns the place in it: see [`Lock::enqueue`]. The turn's guard is
    /// a plain [`Guard`].
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn enqueue_read(&self) -> Result<Turn, Error> {
        self.reads.enqueue().await
    }

    /// Joins the line to write, and returns the place in it: see [`Lock::enqueue`]. The turn's guard
    /// is a plain [`Guard`].
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    pub async fn enqueue_write(&self) -> Result<Turn, Error> {
        self.writes.enqueue().await
    }

    /// Waits for its turn to read and runs `work` while reading: see [`Lock::with`].
    ///
    /// # Errors
    /// Those of [`Lock::with`].
    ///
    /// # Panics
    /// If the closure does; the lock is released in the background.
    ///
    /// # Cancel safety
    /// Same as [`Lock::with`].
    pub async fn with_read<T, F, Fut>(&self, work: F) -> Result<Done<T>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        scoped::run(self.reads.lock().await?, work).await
    }

    /// Waits for its turn to write and runs `work` while writing: see [`Lock::with`].
    ///
    /// # Errors
    /// Those of [`Lock::with`].
    ///
    /// # Panics
    /// If the closure does; the lock is released in the background.
    ///
    /// # Cancel safety
    /// Same as [`Lock::with`].
    pub async fn with_write<T, F, Fut>(&self, work: F) -> Result<Done<T>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        scoped::run(self.writes.lock().await?, work).await
    }

    /// Returns who reads or writes, and who waits for what: see [`Lock::inspect`].
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect(&self) -> Result<LockStatus, Error> {
        self.writes.inspect().await
    }

    /// Like [`inspect`](Self::inspect) with a shorter list of waiters: see [`Lock::inspect_first`].
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        self.writes.inspect_first(waiters).await
    }

    /// Takes the lock away from all its holders: see [`Lock::force_unlock`]. Returns their number.
    ///
    /// # Errors
    /// Those of [`Lock::force_unlock`].
    ///
    /// # Cancel safety
    /// Same as [`Lock::force_unlock`].
    pub async fn force_unlock(&self) -> Result<usize, Error> {
        self.writes.force_all().await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn about(&self, error: Error) -> Error {
        self.writes.about(error)
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
    /// Releases this guard and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::release`].
    pub async fn release(self) -> Result<Release, Error> {
        self.0.release().await
    }

    /// Returns the guard itself, for functions that consume one.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl WriteGuard {
    #[cfg(feature = "blocking")]
    pub(crate) fn new(guard: Guard) -> Self {
        Self(guard)
    }

    /// Turns the writer into a reader: nobody writes in between, and readers that are next in the
    /// line enter with it. The token and the lease stay the same.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) while other guards of the hold write;
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is no longer held, and the store's errors. After any of them this
    /// guard is released, as if it had been dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the guard is released.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        self.0.downgrade().await.map(ReadGuard)
    }

    /// Releases this guard and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::release`].
    pub async fn release(self) -> Result<Release, Error> {
        self.0.release().await
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
