//! The semaphore: a limited number of permits in use.

use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::api::member::Member;
use crate::api::owner::Owner;
use crate::api::scoped::{Done, Held};
use crate::api::status::LockStatus;
use crate::base::error::Error;
use crate::state::outcome::Release;
use fairlock_core::{LockName, Share};
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

/// A named semaphore: at most a given number of permits are in use at a time.
///
/// Requests are granted in the order of arrival, however many permits they want: a request for five
/// waits at the head of the line until five are free, and the requests behind it wait too. So no
/// request starves. Use `try_acquire` to avoid waiting.
///
/// A permit is a hold like any other: it is renewed while its [`Permit`] lives, and becomes free
/// again when its holder dies.
///
/// # The limit
/// Each request names the limit: "at most 10 in use, mine included". There is no setting to make
/// or to lose. A new limit can be rolled out process by process: while two limits are in use,
/// the larger one bounds the permits in use, and a request with the smaller one waits until its own
/// limit allows it. [`usage`](Self::usage) and [`inspect`](Self::inspect) show whether limits
/// differ.
///
/// # Tokens
/// Each permit has a [token](Guard::token) of its own, larger than those before it. It identifies
/// the hold. A resource cannot fence with it by refusing smaller tokens, because an older permit
/// may still be valid.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let downloads = client.semaphore("downloads", 3);
/// let one = downloads.acquire().await?;
/// let two = downloads.acquire_many(2).await?;
/// assert!(downloads.try_acquire().await?.is_none());
/// let _ = two.release().await?;
/// assert_eq!(downloads.usage().await?.used, 1);
/// # drop(one);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called and awaited"]
pub struct Semaphore {
    lock: Lock,
    limit: u32,
}

/// The permits in use and the limits of a semaphore: see [`Semaphore::usage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Usage {
    /// The permits in use.
    pub used: u64,
    /// The limit that this handle names.
    pub limit: u32,
    /// The smallest and the largest limit that holders and waiters name, among the first 64 waiters
    /// and up to 64 holders, those whose leases end first.
    pub limits: Option<(u32, u32)>,
    /// The number of waiters.
    pub waiting: usize,
}

/// The number of waiters whose limits [`Semaphore::usage`] looks at; the same as for holders.
const WAITERS_LOOKED_AT: usize = 64;

impl Semaphore {
    pub(crate) fn new(lock: Lock, limit: u32) -> Self {
        Self { lock, limit }
    }

    pub(crate) fn wanting(&self, n: u32) -> Lock {
        self.lock.clone().sharing(Share::Permits { n, limit: self.limit })
    }

    /// Returns the semaphore's name.
    ///
    /// # Errors
    /// The error of every other call of this handle, if the name cannot be used.
    pub fn name(&self) -> Result<&LockName, Error> {
        self.lock.name()
    }

    /// Returns the limit that this handle names.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets an explicit lease: see [`Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease), ..self }
    }

    /// Sets a longest hold: see [`Lock::max_hold`].
    pub fn max_hold(self, most: Duration) -> Self {
        Self { lock: self.lock.max_hold(most), ..self }
    }

    /// Sets the owner that requests permits: while it holds permits, a request for the same number
    /// enters that hold once more, and takes no further permits. A request for another number fails
    /// with [`Misuse`](crate::ErrorKind::Misuse).
    pub fn owned_by(self, owner: &Owner) -> Self {
        Self { lock: self.lock.owned_by(owner), ..self }
    }

    /// Returns a member that takes `n` permits, for a multi-lock: see
    /// [`Client::multi_lock`](crate::Client::multi_lock).
    pub fn many(&self, n: u32) -> Member {
        Member::from(self.wanting(n))
    }

    /// Waits for its turn and takes a permit.
    ///
    /// # Errors
    /// Those of [`Lock::lock`].
    ///
    /// # Cancel safety
    /// As for [`Lock::lock`]: dropping the future gives up the place in the line, or releases the
    /// permits.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1).await
    }

    /// Waits for its turn and takes `n` permits, which are one hold.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire), and [`Misuse`](crate::ErrorKind::Misuse) for 0 or for more
    /// than the limit.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, n: u32) -> Result<Permit, Error> {
        Ok(Permit { guard: self.wanting(n).lock().await?, n })
    }

    /// Takes a permit if one is free and nobody waits.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Takes `n` permits if that many are free and nobody waits.
    ///
    /// # Errors
    /// Those of [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    pub async fn try_acquire_many(&self, n: u32) -> Result<Option<Permit>, Error> {
        Ok(self.wanting(n).try_lock().await?.map(|guard| Permit { guard, n }))
    }

    /// Waits for its turn for at most `wait`: see [`Lock::try_lock_for`].
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Permit>, Error> {
        self.try_acquire_many_for(1, wait).await
    }

    /// Like [`try_acquire_for`](Self::try_acquire_for), but takes `n` permits.
    ///
    /// # Errors
    /// Those of [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    pub async fn try_acquire_many_for(
        &self,
        n: u32,
        wait: Duration,
    ) -> Result<Option<Permit>, Error> {
        Ok(self.wanting(n).try_lock_for(wait).await?.map(|guard| Permit { guard, n }))
    }

    /// Waits for its turn and runs `work` while holding a permit: see [`Lock::with`]. For several
    /// permits, call [`acquire_many`](Self::acquire_many), and run the work and the permit's
    /// [`lost`](Guard::lost) in a `select!`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// # async fn fetch() -> u32 { 42 }
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let done = client.semaphore("downloads", 3).with(async |_| fetch().await).await?;
    /// assert_eq!(done.value, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Lock::with`].
    ///
    /// # Panics
    /// If the closure does; the permit is released in the background.
    ///
    /// # Cancel safety
    /// Same as [`Lock::with`].
    pub async fn with<T, F, Fut>(&self, work: F) -> Result<Done<T>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        self.wanting(1).with(work).await
    }

    /// Like [`with`](Self::with), but waits for its turn for at most `wait`: see
    /// [`Lock::try_with_for`].
    ///
    /// # Errors
    /// Those of [`with`](Self::with).
    ///
    /// # Panics
    /// Same as [`with`](Self::with).
    ///
    /// # Cancel safety
    /// Same as [`with`](Self::with).
    pub async fn try_with_for<T, F, Fut>(
        &self,
        wait: Duration,
        work: F,
    ) -> Result<Option<Done<T>>, Error>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = T>,
    {
        self.wanting(1).try_with_for(wait, work).await
    }

    /// Returns how many permits are in use, and which limits holders and waiters name.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let seen = self.lock.inspect_first(WAITERS_LOOKED_AT).await?;
        let (used, limits, waiting) = (seen.used, seen.limits, seen.queue_len);
        Ok(Usage { used, limit: self.limit, limits, waiting })
    }

    /// Returns who holds permits, and who waits for how many: see [`Lock::inspect`].
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect(&self) -> Result<LockStatus, Error> {
        self.lock.inspect().await
    }

    /// Like [`inspect`](Self::inspect) with a shorter list of waiters: see [`Lock::inspect_first`].
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        self.lock.inspect_first(waiters).await
    }

    /// Takes all permits away from their holders: see [`Lock::force_unlock`]. Returns the number of
    /// these holders.
    ///
    /// # Errors
    /// Those of [`Lock::force_unlock`].
    ///
    /// # Cancel safety
    /// Same as [`Lock::force_unlock`].
    pub async fn force_unlock(&self) -> Result<usize, Error> {
        self.lock.force_all().await
    }
}

/// The [`Guard`] of one holder's permits of a [`Semaphore`], until they are released, dropped or
/// lost.
#[must_use = "bind it to a named variable, `let _permit = ...`; `let _ = ...` releases at once"]
pub struct Permit {
    guard: Guard,
    n: u32,
}

impl Permit {
    /// Returns the number of permits.
    pub fn permits(&self) -> u32 {
        self.n
    }

    /// Releases the permits and returns the outcome: see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// Same as [`Guard::release`].
    pub async fn release(self) -> Result<Release, Error> {
        self.guard.release().await
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

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("guard", &self.guard).field("n", &self.n).finish()
    }
}
