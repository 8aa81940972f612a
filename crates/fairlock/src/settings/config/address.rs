//! Where a store is.

use super::{Config, SentinelPlace};
use crate::base::error::Error;
use crate::base::host_port::HostPort;
use fairlock_core::LockName;
use std::fmt;
use std::path::PathBuf;

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Memory,
    /// The store of this name in this process.
    SharedMemory(LockName),
    /// The host store's file. With `shared`, members of the folder's group share it.
    Sqlite {
        path: PathBuf,
        shared: bool,
    },
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    Sentinel(SentinelPlace),
    /// Nodes of a Cluster, from which the others are discovered.
    Cluster(Vec<(String, u16)>),
}

impl Config {
    /// Uses the store of this name inside this process, which its clients share until the last of them, with all its
    /// guards, is gone. The name follows the rules for names of locks. The heartbeat and the other times of the
    /// client that makes the store apply to it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// use fairlock::{Client, Config};
    /// let first = Client::with_config(Config::shared_memory("tests")?).await?;
    /// let second = Client::connect("memory:tests").await?; // the same
    /// let _guard = first.fair_lock("job").lock().await?;
    /// assert!(second.fair_lock("job").try_lock().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the name cannot be used.
    pub fn shared_memory(name: impl AsRef<[u8]>) -> Result<Self, Error> {
        Ok(Self::for_address(Address::SharedMemory(LockName::new(name.as_ref())?)))
    }
}

/// As in a URL, without the scheme.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |places: &[(String, u16)]| {
            let place = |(host, port): &(String, u16)| HostPort(host, *port).to_string();
            places.iter().map(place).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Memory => f.write_str("memory"),
            Self::SharedMemory(name) => write!(f, "memory:{name}"),
            Self::Sqlite { path, .. } | Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } => HostPort(host, *port).fmt(f),
            Self::Sentinel(place) => write!(f, "{}/{}", all(&place.sentinels), place.master),
            Self::Cluster(nodes) => f.write_str(&all(nodes)),
        }
    }
}
