//! What the locks are on: a topology, the faults that it knows, and which of them took effect.
//!
//! A new kind of fault is a variant of [`Kind`], a line in its table, and a branch in each bed that plays
//! it. What the documents promise under it is its [`Effect`].

mod cluster;
mod sentinel;
mod single;

use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;

/// A topology.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// One server, with its log: the baseline.
    Single,
    /// A master, two replicas, three Sentinels.
    Sentinel,
    /// Three masters with a replica each.
    Cluster,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Single, Self::Sentinel, Self::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }

    /// Starts it; `None`, loudly, when a server is not installed.
    pub(crate) fn start(self) -> Option<Box<dyn Bed>> {
        Some(match self {
            Self::Single => Box::new(single::Single::start()?),
            Self::Sentinel => Box::new(sentinel::Sentinel::start()?),
            Self::Cluster => Box::new(cluster::Cluster::start()?),
        })
    }
}

/// What docs/guarantees.md says of exclusion and of holds under a fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// Nothing but delay. A hold is lost only if the delay outlasts what it was granted for.
    Delay,
    /// Writes may be lost: "exclusion broken until the old holder's next answer". Order among those that
    /// wait, and rising tokens, are kept.
    StateLoss,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    ConnectionsKilled,
    InboxesKilled,
    ScriptsFlushed,
    ServerStopped,
    Restarted,
    Flushed,
    WorkerKilled,
    WorkerStopped,
    /// The old master goes on until it hears of the new one.
    OrderedFailover,
    /// The old master stops, and the new one begins where it ended.
    AgreedFailover,
    MasterKilled,
    TailLost,
    SentinelKilled,
    SlotMoved,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ConnectionsKilled => "connections killed",
            Self::InboxesKilled => "inboxes killed",
            Self::ScriptsFlushed => "scripts flushed",
            Self::ServerStopped => "server stopped for a moment",
            Self::Restarted => "server killed and restarted with its log",
            Self::Flushed => "all data flushed",
            Self::WorkerKilled => "worker process killed",
            Self::WorkerStopped => "worker process stopped for a moment",
            Self::OrderedFailover => "failover ordered",
            Self::AgreedFailover => "failover agreed on",
            Self::MasterKilled => "master killed",
            Self::TailLost => "master killed, replication cut before",
            Self::SentinelKilled => "Sentinel killed",
            Self::SlotMoved => "slot moved and moved back",
        }
    }

    pub(crate) fn effect(self) -> Effect {
        match self {
            Self::Flushed | Self::OrderedFailover | Self::MasterKilled | Self::TailLost => {
                Effect::StateLoss
            }
            _ => Effect::Delay,
        }
    }

    pub(crate) fn is_failover(self) -> bool {
        use Kind::{AgreedFailover, MasterKilled, OrderedFailover, TailLost};
        matches!(self, OrderedFailover | AgreedFailover | MasterKilled | TailLost)
    }
}

/// Servers with locks on them.
pub(crate) trait Bed {
    /// For clients.
    fn url(&self) -> String;

    /// The kinds that it plays itself.
    fn kinds(&self) -> Vec<Kind>;

    /// Plays a fault, and waits until it has happened: whether it took effect.
    fn inject(&mut self, kind: Kind) -> bool;

    /// Puts right what the fault broke, and waits until all is as it was.
    fn heal(&mut self);

    /// A connection to a server that takes writes at present.
    fn raw(&self) -> Raw;
}

/// Kills connections of a type; whether there were any.
fn kill_connections(raw: &mut Raw, kind: &str) -> bool {
    raw.call(&["CLIENT", "KILL", "TYPE", kind]).int() > 0
}

#[track_caller]
fn ok(reply: &Value) -> bool {
    assert_eq!(*reply, Value::Simple("OK".into()));
    true
}
