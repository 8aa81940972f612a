//! Whether a client can reach its store.

/// Whether the application can reach its store; all of it, if it is a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The store answers; on a Cluster, the master of every slot does.
    Connected,
    /// The connection is lost or not yet made, and is being made. On a Cluster, this may be one
    /// connection of several: the locks of the other nodes can be used, and their guards are not in
    /// doubt.
    Reconnecting,
    /// The client was shut down.
    Closed,
}
