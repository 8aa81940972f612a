//! What the locks are on: a topology, and the faults that it can play.

mod cluster;
mod host;
mod sentinel;
mod single;

use crate::checker::rest::{self, Left};
use crate::log::Input;
use crate::nemesis::Kind;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A topology.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Topology {
    /// One server, with its log: the baseline.
    Single,
    /// A master, two replicas, three Sentinels.
    Sentinel,
    /// Three masters with a replica each.
    Cluster,
    /// A file of this host, and no server.
    Host,
}

impl Topology {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Sentinel, Self::Cluster, Self::Host];

    /// Those with servers.
    pub(crate) const WITH_SERVERS: [Self; 3] = [Self::Single, Self::Sentinel, Self::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Host => "host",
        }
    }

    /// What holds are renewed to: longer than a failover where there are some, else short, so that many
    /// run out.
    pub(crate) fn lease(self) -> Duration {
        match self {
            Self::Single | Self::Host => Duration::from_secs(3),
            Self::Sentinel | Self::Cluster => Duration::from_secs(8),
        }
    }

    /// Starts it; `None`, loudly, when a server is not installed.
    pub(crate) fn start(self) -> Option<Box<dyn Deployment>> {
        Some(match self {
            Self::Single => Box::new(single::Single::start()?),
            Self::Sentinel => Box::new(sentinel::Sentinel::start()?),
            Self::Cluster => Box::new(cluster::Cluster::start()?),
            Self::Host => Box::new(host::Host::start()?),
        })
    }
}

/// When the last hold of somebody who was killed is over, also one whose TTL an operator took away: a waiter gave
/// it 30 s.
const HOLDS_OVER: Duration = Duration::from_secs(40);

/// All keys of a server.
fn keys(raw: &mut Raw) -> Vec<Left> {
    let found = raw.call(&["KEYS", "*"]);
    let mut left = Vec::new();
    for key in found.array() {
        let key = key.text().to_owned();
        let ttl = raw.call(&["PTTL", &key]).int();
        // Over since.
        if ttl != -2 {
            let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
            left.push(Left { key, ttl });
        }
    }
    left
}

/// Servers, or a file, with locks on it.
pub(crate) trait Deployment: Send {
    /// For clients.
    fn url(&self) -> String;

    /// The kinds that it plays itself.
    fn kinds(&self) -> Vec<Kind>;

    /// Those of them that are about the topology.
    fn own_kinds(&self) -> Vec<Kind> {
        self.kinds()
    }

    /// Plays a fault, and waits until it has happened: whether it took effect.
    fn inject(&mut self, kind: Kind, rng: &mut Rng) -> bool;

    /// Puts right what the fault broke, and waits until all is as it was.
    fn heal(&mut self);

    /// From now on the checker hears what the server carried out; false where no one log has all of it.
    fn attach(&mut self, _checker: Sender<Input>) -> bool {
        false
    }

    /// The checker has heard all of it.
    fn detach(&mut self) {}

    /// A connection to a server that takes writes at present, where there are servers.
    fn raw(&self) -> Option<Raw>;

    /// Connections to all servers that take writes at present.
    fn raws(&self) -> Vec<Raw> {
        self.raw().into_iter().collect()
    }

    /// The keys that are left when everybody has gone, and all holds of those who were killed are over.
    /// `lost_registry`: see [`rest::check`].
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

    /// Where its servers have their logs and their data.
    fn folders(&self) -> Vec<PathBuf>;

    /// Takes locks away and says nothing: the checker has to find it.
    fn sabotage(&self) {
        let Some(mut raw) = self.raw() else { return };
        for name in ["fair-0", "fair-1", "fair-2", "kept-0", "kept-1"] {
            raw.call(&["DEL", name]);
        }
    }
}
