//! What a server does without this library in between, on the caller's own runtime (feature
//! `yardstick`).
//!
//! For benches, which report times as multiples of it. Not for applications, and not covered by
//! semantic versioning: it may change in any version of this crate.

use crate::api::client::Client;
use crate::base::error::Error;
use crate::store::{Raw, StoreError};
use fairlock_core::{LockName, OwnerId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Its own connections to the servers of some locks: one to a single server, one to each node of a
/// Cluster.
pub struct Yardstick {
    raw: Raw,
    owner: OwnerId,
}

impl Yardstick {
    /// Connects to the servers of these locks, with the settings of the client. Returns `None` if
    /// the client's store is not a server.
    ///
    /// # Errors
    /// Those of [`Client::ping`], and [`Misuse`](crate::ErrorKind::Misuse) without a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(client: &Client, names: &[LockName]) -> Result<Option<Self>, Error> {
        let context = client.context();
        context.usable()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::misuse("a yardstick needs a tokio runtime around it"));
        }
        let raw = context.store.raw(names).await.map_err(|failure| failure.error)?;
        let Some(raw) = raw else { return Ok(None) };
        Ok(Some(Self { raw, owner: context.new_owner()? }))
    }

    /// Sends `PING` to the server of the first lock.
    ///
    /// # Errors
    /// Those of [`Client::ping`].
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn ping(&self) -> Result<(), Error> {
        self.raw.ping().await.map_err(|failure| failure.error)
    }

    /// Acquires and releases the locks for this long, in pipelines, as fast as the servers run the
    /// scripts of the locks; returns how often. Nobody else may use the locks.
    /// # Errors
    /// Those of [`Client::ping`], and [`Misuse`](crate::ErrorKind::Misuse) if a lock is in use.
    ///
    /// # Cancel safety
    /// Dropping the future may leave locks behind, held for up to 30 s: see [`erase`](Self::erase).
    pub async fn pairs(&self, time: Duration) -> Result<u64, Error> {
        self.raw.pairs(&self.owner, time).await.map_err(|failure| failure.error)
    }

    /// Removes everything that the store keeps about these locks, including the last token, which
    /// otherwise stays for days. Nobody else may use the locks: on a server, holders and waiters
    /// lose them; in the file of the host store, a lock in use stays.
    ///
    /// # Errors
    /// Those of [`Client::ping`].
    ///
    /// # Cancel safety
    /// The removal continues if the future is dropped.
    pub async fn erase(client: &Client, names: Vec<LockName>) -> Result<(), Error> {
        client.context().usable()?;
        let context = Arc::clone(client.context());
        let erased =
            client.session().on_background(async move { context.store.erase(&names).await });
        erased.await?.map_err(|StoreError { error, .. }| error)
    }
}

impl fmt::Debug for Yardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yardstick").field("owner", &self.owner).finish_non_exhaustive()
    }
}
