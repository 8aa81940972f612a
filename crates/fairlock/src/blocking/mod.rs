//! The same locks for code without `async`: threads own them, as in Java.
//!
//! This module is a thin layer over the same client: its background thread does the work, and a
//! call that waits parks the calling thread. No runtime is needed.
//!
//! ```
//! use fairlock::blocking::Client;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), fairlock::Error> {
//! let client = Client::connect("memory:")?; // or "redis://127.0.0.1/"
//! let lock = client.fair_lock("invoice:42");
//!
//! let outer = lock.lock()?; // waits its turn; renewed while it lives
//! let inner = lock.lock()?; // the same thread: enters once more
//! assert_eq!(inner.token(), outer.token());
//! drop(inner);
//! let _ = outer.release()?; // `Release::Lost`: another client may have worked at the same time
//!
//! let done = lock.with(|held| held.token())?; // releases it, also when the closure panics
//! println!("{:?} under {}", done.release, done.value);
//!
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(5))? {
//!     drop(guard); // releases it in the background
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Who owns a lock
//! The calling thread does, as with Java's `ReentrantLock`: for each client a thread has one
//! [`Owner`], which is created at its first `lock()` and ends with the thread. While it holds a
//! lock, further requests of the same thread enter it once more; the rules of [`Owner`] apply here
//! too. A [`Guard`] therefore stays on its thread (it is not `Send`): on another one it would hold
//! a lock that the first thread could still enter. [`Lock::owned_by`] replaces the thread by an
//! explicit owner, for instance for a job that many threads work on.
//!
//! # Interrupts
//! Another thread can end the wait of a thread: see [`Interrupt`].
//!
//! # Not on a runtime's thread
//! A call that waits parks its thread, and with it all other tasks of that thread. If one of these
//! tasks holds the lock, that is a deadlock. So every call that may wait fails with
//! [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) inside a task of tokio, or of `block_on`, before
//! anything is sent. Use the async API there, or `tokio::task::spawn_blocking` (or
//! `block_in_place`), where everything in this module works. Dropping a guard never waits, and is
//! allowed everywhere.
//!
//! A task is recognised by its cooperative budget. A task in `tokio::task::unconstrained` is
//! therefore not recognised, nor is a task of another crate's executor: there a call parks the
//! thread, and you must ensure that this does no harm. It deadlocks only if the holder of the lock
//! needs this thread.

mod election;
mod guard;
mod interrupt;
mod latch;
mod listing;
mod lock;
mod multi_lock;
mod rw_lock;
mod semaphore;
mod thread;
mod turn;
mod wait;

pub use election::{Election, Observer, Term};
pub use guard::Guard;
pub use interrupt::Interrupt;
pub use latch::Latch;
pub use listing::Locks;
pub use lock::Lock;
pub use multi_lock::{MultiGuard, MultiLock};
pub use rw_lock::{ReadGuard, RwLock, WriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use turn::Turn;

use crate::api::member::Member;
use crate::api::owner::Owner;
use crate::base::error::Error;
use crate::settings::config::Config;
use crate::settings::connection_state::ConnectionState;
use fairlock_core::ClientId;

/// A client of one store, for threads. Cheap to clone; all clones share its connections.
///
/// It wraps the [async client](crate::Client): convert between the two with [`From`] and
/// [`as_async`](Self::as_async). Both sides of a program then share connections, and the locks of a
/// `memory:` store.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl Client {
    /// Connects to the store at `url`: see [`Config::from_url`].
    ///
    /// # Errors
    /// Those of [`Client::connect`](crate::Client::connect) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::with_config(Config::from_url(url)?)
    }

    /// Connects with these settings.
    ///
    /// # Errors
    /// Those of [`Client::with_config`](crate::Client::with_config) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn with_config(config: Config) -> Result<Self, Error> {
        Ok(Self { inner: wait::until_ready(crate::Client::with_config(config))? })
    }

    /// Returns a handle to the first-in-first-out lock `name`: see
    /// [`fair_lock`](crate::Client::fair_lock) of the async API.
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.inner, self.inner.fair_lock(name))
    }

    /// Returns a handle to the lock `name` without an order among its waiters: see
    /// [`plain_lock`](crate::Client::plain_lock) of the async API.
    pub fn plain_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.inner, self.inner.plain_lock(name))
    }

    /// Returns a handle to the lock `name` as a single string: see
    /// [`simple_lock`](crate::Client::simple_lock) of the async API.
    pub fn simple_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.inner, self.inner.simple_lock(name))
    }

    /// Returns a handle to the read-write lock `name`: see [`rw_lock`](crate::Client::rw_lock) of
    /// the async API.
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> RwLock {
        RwLock::new(&self.inner, self.inner.rw_lock(name))
    }

    /// Returns a handle to the latch `name`: see [`latch`](crate::Client::latch) of the async API.
    pub fn latch(&self, name: impl AsRef<[u8]>) -> Latch {
        Latch::new(self.inner.latch(name))
    }

    /// Returns a handle to the semaphore `name`: see [`semaphore`](crate::Client::semaphore) of the
    /// async API.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, limit: u32) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name, limit))
    }

    /// Returns a handle to the election `name`: see [`election`](crate::Client::election) of the
    /// async API.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.inner.election(name))
    }

    /// Combines several locks that are taken together: see
    /// [`multi_lock`](crate::Client::multi_lock) of the async API.
    ///
    /// # Errors
    /// Those of [`multi_lock`](crate::Client::multi_lock) of the async API.
    pub fn multi_lock<M: Into<Member>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<MultiLock, Error> {
        self.inner.multi_lock(members).map(MultiLock::new)
    }

    /// Creates a new owner, for [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        self.inner.owner()
    }

    /// Creates a new owner for work that must be done once in a period: see
    /// [`once_owner`](crate::Client::once_owner) of the async API.
    pub fn once_owner(&self) -> Owner {
        self.inner.once_owner()
    }

    /// Lists the locks of the store, page by page: see [`locks`](crate::Client::locks) of the async
    /// API.
    pub fn locks(&self) -> Locks {
        Locks::new(self.inner.locks())
    }

    /// Makes a round trip to the store.
    ///
    /// # Errors
    /// Those of [`ping`](crate::Client::ping) of the async API, and
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn ping(&self) -> Result<(), Error> {
        wait::until_ready(self.inner.ping())
    }

    /// Returns the last known state of the connection. No I/O.
    pub fn connection(&self) -> ConnectionState {
        *self.inner.connection().borrow()
    }

    /// Returns the client's id, with which its owner ids begin.
    pub fn id(&self) -> ClientId {
        self.inner.id()
    }

    /// Shuts the client down, for all its clones and for the async client that shares it: see
    /// [`shutdown`](crate::Client::shutdown) of the async API.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread; nothing was done in that case.
    pub fn shutdown(self) -> Result<(), Error> {
        wait::until_ready(async {
            self.inner.shutdown().await;
            Ok(())
        })
    }

    /// Returns the async client with the same connections.
    pub fn as_async(&self) -> &crate::Client {
        &self.inner
    }
}

impl From<crate::Client> for Client {
    fn from(inner: crate::Client) -> Self {
        Self { inner }
    }
}
