//! Explicit owners: several requests and guards that count as one, like those of a thread in Java.

use fairlock_core::OwnerId;
use std::fmt;

/// An identity that several requests share. While it holds a lock, its further requests for that
/// lock re-enter the hold, as within one thread in Java, instead of waiting for it to end.
///
/// Without an explicit owner, each `lock()` is an owner of its own, and a second `lock()` in the
/// same task waits until the first guard is released: in Rust a task has no identity, and moves
/// between threads. Create an owner with [`Client::owner`](crate::Client::owner), and use it with
/// [`Lock::owned_by`](crate::Lock::owned_by).
///
/// - All guards of one hold have the same token. The lock is free once all are released.
/// - A hold keeps the lease with which it began. The lease of a re-entry is ignored (in Java it
///   replaces the first one).
/// - An owner has one request for a lock under way at a time. Its other requests wait for the
///   outcome, each within its own time limit, and then re-enter, or request the lock themselves.
///   `try_lock` does not wait: it returns `None` in the meantime.
/// - A lost hold cannot be re-entered. The next request asks for a new hold, with a new
///   token.
///
/// An owner is displayed as it is written in the lock's key: `<uuid of the client>:<number>`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fairlock::Error> {
/// let client = fairlock::Client::connect("memory:").await?;
/// let owner = client.owner();
/// let lock = client.fair_lock("invoice:42").owned_by(&owner);
///
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // somewhere below, where `outer` is not at hand
/// assert_eq!(inner.token(), outer.token());
/// assert!(client.fair_lock("invoice:42").try_lock().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    id: OwnerId,
}

impl Owner {
    pub(crate) fn new(id: OwnerId) -> Self {
        Self { id }
    }

    /// Returns the id, as it is written in the key of a lock that the owner holds.
    pub fn id(&self) -> &OwnerId {
        &self.id
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}
