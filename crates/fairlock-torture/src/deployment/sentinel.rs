//! A master with replicas and Sentinels.

use super::Deployment;
use crate::nemesis::{Kind, kill_connections};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::SentinelSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the master may take to receive writes that no replica gets.
const TAIL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Sentinel {
    set: SentinelSet,
    /// Killed nodes, to be restarted.
    dead: Vec<Dead>,
    killed: usize,
}

#[derive(Clone, Copy, Debug)]
enum Dead {
    Data(usize),
    Sentinel(usize),
}

impl Sentinel {
    pub(crate) fn start() -> Option<Self> {
        let set = SentinelSet::start(Generation::Redis70)?;
        Some(Self { set, dead: Vec::new(), killed: 0 })
    }

    fn master_raw(&self) -> Raw {
        Server::client(&self.set.data()[self.set.master()])
    }

    /// Kills the master. Returns whether another one took over.
    fn kill_master(&mut self) -> bool {
        let old = self.set.master();
        self.dead.push(Dead::Data(old));
        self.set.kill_master() != old
    }

    /// Waits until the master, cut off from its replicas, has written something. Returns whether it
    /// has.
    fn has_a_tail(&self) -> bool {
        let mut raw = self.master_raw();
        let offset = |raw: &mut Raw| {
            let info = raw.call(&["INFO", "replication"]);
            let line =
                info.text().lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
            line.unwrap().parse::<u64>().unwrap()
        };
        let (cut, began) = (offset(&mut raw), Instant::now());
        // Far more than the operations of one lock.
        while offset(&mut raw) < cut + 20_000 {
            if began.elapsed() > TAIL {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Deployment for Sentinel {
    fn url(&self) -> String {
        self.set.url()
    }

    fn kinds(&self) -> Vec<Kind> {
        use Kind::{
            ConnectionsKilled, InboxesKilled, MasterKilled, OrderedFailover, SentinelKilled,
            TailLost,
        };
        vec![
            OrderedFailover,
            MasterKilled,
            TailLost,
            SentinelKilled,
            ConnectionsKilled,
            InboxesKilled,
        ]
    }

    fn inject(&mut self, kind: Kind, _rng: &mut Rng) -> bool {
        match kind {
            Kind::ConnectionsKilled => kill_connections(&mut self.master_raw(), "normal"),
            Kind::InboxesKilled => kill_connections(&mut self.master_raw(), "pubsub"),
            Kind::OrderedFailover => {
                let old = self.set.master();
                self.set.fail_over() != old
            }
            Kind::MasterKilled => self.kill_master(),
            Kind::TailLost => {
                self.set.cut_replication();
                let tail = self.has_a_tail();
                self.kill_master() && tail
            }
            Kind::SentinelKilled => {
                let which = self.killed % self.set.sentinels().len();
                self.killed += 1;
                self.set.sentinels()[which].kill9();
                self.dead.push(Dead::Sentinel(which));
                Raw::try_connect(self.set.sentinels()[which].addr()).is_err()
            }
            other => panic!("a Sentinel set does not play {other:?}"),
        }
    }

    fn heal(&mut self) {
        for dead in std::mem::take(&mut self.dead) {
            match dead {
                Dead::Data(which) => self.set.data()[which].restart(),
                Dead::Sentinel(which) => self.set.sentinels()[which].restart(),
            }
        }
        self.set.await_whole();
    }

    fn raw(&self) -> Option<Raw> {
        Some(self.master_raw())
    }

    fn folders(&self) -> Vec<PathBuf> {
        let servers = self.set.data().iter().chain(self.set.sentinels());
        servers.map(|server| server.dir().to_owned()).collect()
    }
}
