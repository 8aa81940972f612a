//! Whether a client can reach its store.

/// Whether the application can reach its store: all of it, where it is a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The store answers; of a Cluster, the master of every slot.
    Connected,
    /// The connection is lost, or was not made yet; it is being made. Of a Cluster, one of them: the
    /// locks of the other nodes can be used, and their guards are not in doubt.
    Reconnecting,
    /// The client was shut down.
    Closed,
}
