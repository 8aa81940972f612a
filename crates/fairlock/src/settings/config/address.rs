//! Where a store is.

use super::SentinelPlace;
use crate::base::host_port::HostPort;
use std::fmt;
use std::path::PathBuf;

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Memory,
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

/// As in a URL, without the scheme.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |places: &[(String, u16)]| {
            let place = |(host, port): &(String, u16)| HostPort(host, *port).to_string();
            places.iter().map(place).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Sqlite { path, .. } | Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } => HostPort(host, *port).fmt(f),
            Self::Sentinel(place) => write!(f, "{}/{}", all(&place.sentinels), place.master),
            Self::Cluster(nodes) => f.write_str(&all(nodes)),
        }
    }
}
