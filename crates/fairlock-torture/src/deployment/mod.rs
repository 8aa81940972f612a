//! Where the locks are stored: a topology, and the faults it can play.

mod cluster;
mod host;
mod sentinel;
mod single;

use crate::checker::rest::{self, Left};
use crate::log::Input;
use crate::nemesis::{Kind, operator, process};
use crate::worker::{self, Load};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A topology.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Topology {
    /// One server with its log: the baseline.
    Single,
    /// A master, two replicas and three Sentinels.
    Sentinel,
    /// Three masters with one replica each.
    Cluster,
    /// A file on this host, without a server.
    Host,
    /// One server, and many processes that take several locks at once.
    Several,
}

impl Topology {
    pub(crate) const ALL: [Self; 5] =
        [Self::Single, Self::Sentinel, Self::Cluster, Self::Host, Self::Several];

    /// The topologies with servers.
    pub(crate) const WITH_SERVERS: [Self; 3] = [Self::Single, Self::Sentinel, Self::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Host => "host",
            Self::Several => "several",
        }
    }

    /// The lease to which holds are renewed: longer than a failover on topologies that have one,
    /// else short, so that many holds expire.
    pub(crate) fn lease(self) -> Duration {
        match self {
            Self::Single | Self::Host => Duration::from_secs(3),
            Self::Sentinel | Self::Cluster => Duration::from_secs(8),
            Self::Several => process::FROZEN_LEASE,
        }
    }

    pub(crate) fn load(self) -> Load {
        match self {
            Self::Several => Load::Several,
            _ => Load::OneByOne,
        }
    }

    /// Starts the topology. Returns `None`, with a message, when a server is not installed.
    pub(crate) fn start(self) -> Option<Box<dyn Deployment>> {
        Some(match self {
            Self::Single | Self::Several => Box::new(single::Single::start()?),
            Self::Sentinel => Box::new(sentinel::Sentinel::start()?),
            Self::Cluster => Box::new(cluster::Cluster::start()?),
            Self::Host => Box::new(host::Host::start()?),
        })
    }
}

/// When the last hold of a killed client has expired, including one whose TTL an operator removed:
/// a waiter gave it 30 s.
const HOLDS_OVER: Duration = Duration::from_secs(40);

/// All keys of a server.
fn keys(raw: &mut Raw) -> Vec<Left> {
    let found = raw.call(&["KEYS", "*"]);
    let mut left = Vec::new();
    for key in found.array() {
        let key = key.text().to_owned();
        let ttl = raw.call(&["PTTL", &key]).int();
        // Expired meanwhile.
        if ttl != -2 {
            let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
            left.push(Left { key, ttl });
        }
    }
    left
}

/// The servers, or the file, that store the locks.
pub(crate) trait Deployment: Send {
    /// The URL for clients.
    fn url(&self) -> String;

    /// The kinds of fault that this deployment plays itself.
    fn kinds(&self) -> Vec<Kind>;

    /// Those that are specific to the topology.
    fn own_kinds(&self) -> Vec<Kind> {
        self.kinds()
    }

    /// Plays a fault, waits until it has happened, and returns whether it took effect.
    fn inject(&mut self, kind: Kind, rng: &mut Rng) -> bool;

    /// Repairs what the fault broke, and waits until everything is as before.
    fn heal(&mut self);

    /// From now on sends the checker what the server carries out. Returns false if no single log
    /// has all of it.
    fn attach(&mut self, _checker: Sender<Input>) -> bool {
        false
    }

    /// Stops following the log, once the checker has received all of it.
    fn detach(&mut self) {}

    /// A connection to a server that currently accepts writes, if there are servers.
    fn raw(&self) -> Option<Raw>;

    /// Connections to all servers that currently accept writes.
    fn raws(&self) -> Vec<Raw> {
        self.raw().into_iter().collect()
    }

    /// The keys that remain when all clients have left and all holds of killed clients have
    /// expired. `lost_registry`: see [`rest::check`].
    fn left(&self, lost_registry: bool) -> Vec<Left> {
        let began = Instant::now();
        let mut raws = self.raws();
        loop {
            let left: Vec<_> = raws.iter_mut().flat_map(keys).collect();
            if began.elapsed() > HOLDS_OVER || rest::check(&left, lost_registry).is_empty() {
                return left;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The folders with the servers' logs and data.
    fn folders(&self) -> Vec<PathBuf>;

    /// Deletes locks without telling the checker, which must find it.
    fn sabotage(&self) {
        let Some(mut raw) = self.raw() else { return };
        for name in operator::ANY.iter().chain(&worker::SEVERAL) {
            raw.call(&["DEL", name]);
        }
    }
}
