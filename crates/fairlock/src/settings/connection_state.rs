//! Whether a client can reach its store.

/// Whether the application can reach its store, or, on a Cluster, all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The store answers; on a Cluster, the master of every slot does.
    Connected,
    /// The connection is lost or not yet made, and the client is connecting. On a Cluster, this may
    /// concern only one of several connections: the locks of the other nodes can be used, and their
    /// guards are not in doubt.
    Reconnecting,
    /// The client was shut down.
    Closed,
}
