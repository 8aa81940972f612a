//! The guard of a thread.

use super::wait;
use crate::api::detached::Detached;
use crate::api::scoped::{self, Done, Held};
use crate::base::error::Error;
use crate::base::lost_reason::LostReason;
use crate::state::outcome::Release;
use crate::state::standing::GuardState;
use fairlock_core::{LockName, OwnerId, Token as FencingToken};
use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

/// Holds a lock until it is released or dropped, or the lock is lost.
///
/// It stays on the thread that took the lock (it is not `Send`), because that thread is the owner:
/// on another thread it would hold a lock that the first thread could still enter. Other threads
/// may read it (it is `Sync`), for instance in `std::thread::scope`.
///
/// Dropping it releases the lock in the background and never waits: in a task, in the destructor of
/// a thread-local, at the end of `main`. So bind it to a named variable, `let _guard = ...`:
/// `let _ = ...` releases at once.
///
/// ```compile_fail,E0277
/// # let client = fairlock::blocking::Client::connect("memory:").unwrap();
/// let guard = client.fair_lock("job").lock().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "bind it to a named variable, `let _guard = ...`; `let _ = ...` releases at once"]
pub struct Guard {
    inner: crate::Guard,
    _on_thread: StaysOnItsThread,
}

/// Keeps the type that contains it on its thread, like the guard of a mutex: `Sync`, but not `Send`. The compiler names
/// this type if a guard is moved to another thread.
#[derive(Default)]
pub(super) struct StaysOnItsThread(PhantomData<MutexGuard<'static, ()>>);

impl Guard {
    pub(super) fn new(inner: crate::Guard) -> Self {
        Self { inner, _on_thread: StaysOnItsThread::default() }
    }

    /// Returns the guard of the async API, which may leave the thread.
    pub(super) fn into_async(self) -> crate::Guard {
        self.inner
    }

    /// Runs `work` and releases the lock.
    pub(super) fn run<T>(self, work: impl FnOnce(Held) -> T) -> Result<Done<T>, Error> {
        // Not interruptible: the value of `work` matters more.
        wait::until_ready(scoped::run(self.into_async(), |held| async move { work(held) }))
    }

    /// Returns the fencing token: larger than every token granted before on this lock, and the same
    /// for all guards of one hold.
    pub fn token(&self) -> FencingToken {
        self.inner.token()
    }

    /// Returns the owner id, as it is written in the lock's key.
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// Returns the hold count: how many guards this hold has, one for each time its owner entered
    /// the lock.
    pub fn hold_count(&self) -> u32 {
        self.inner.hold_count()
    }

    /// Returns how long this guard is valid without another renewal: see
    /// [`Guard::remaining`](crate::Guard::remaining) of the async API.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Returns the whole lease: the explicit one, or what each renewal grants.
    pub fn lease(&self) -> Duration {
        self.inner.lease()
    }

    /// Returns whether the guard still protects the resource. No I/O.
    pub fn state(&self) -> GuardState {
        self.inner.state()
    }

    /// Returns why the lock was lost; `None` if it is not lost. No I/O.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.inner.lost_reason()
    }

    /// Checks that the guard protects the resource at this moment. No I/O.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if it does not.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.inner.ensure_valid()
    }

    /// Waits for a state other than `from`.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn state_changed(&self, from: GuardState) -> Result<GuardState, Error> {
        wait::until_ready(async { Ok(self.inner.state_changed(from).await) })
    }

    /// Enters the lock once more and returns a second guard of the same hold, with the same token.
    ///
    /// # Errors
    /// Those of [`Guard::reenter`](crate::Guard::reenter) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn reenter(&self) -> Result<Self, Error> {
        wait::until_ready(self.inner.reenter()).map(Self::new)
    }

    /// Leaves the lock to the store until its lease ends: see
    /// [`Guard::detach`](crate::Guard::detach) of the async API.
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    /// After any of them this guard is released, as if it had been dropped.
    pub fn detach(self) -> Result<Detached, Error> {
        wait::until_ready(self.inner.detach())
    }

    /// Leaves the lock to the store for this time: see
    /// [`Guard::detach_for`](crate::Guard::detach_for) of the async API.
    ///
    /// # Errors
    /// Those of the async function, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    /// After any of them this guard is released, as if it had been dropped.
    pub fn detach_for(self, time: Duration) -> Result<Detached, Error> {
        wait::until_ready(self.inner.detach_for(time))
    }

    /// Releases this guard and returns the outcome: see [`Guard::release`](crate::Guard::release)
    /// of the async API.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread; the lock is then released in the
    /// background.
    pub fn release(self) -> Result<Release, Error> {
        wait::until_ready(self.inner.release())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
