//! A Redis Cluster.

use super::Deployment;
use crate::nemesis::{Kind, kill_connections};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::server::Generation;
use fairlock_testkit::topology::{Cluster as Nodes, slot};
use std::path::PathBuf;

/// The contended lock whose slot and master the faults target.
const TARGET: &str = "fair-0";

/// The number of nodes. A slot moves between those that are masters.
const NODES: usize = 6;

#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Nodes,
    /// Killed nodes, to be restarted.
    dead: Vec<usize>,
}

impl Cluster {
    pub(crate) fn start() -> Option<Self> {
        Some(Self { nodes: Nodes::start(Generation::Redis70)?, dead: Vec::new() })
    }

    fn master(&self) -> usize {
        self.nodes.await_master_of(slot(TARGET.as_bytes()))
    }

    fn master_raw(&self) -> Raw {
        self.nodes.raw(self.master())
    }

    /// Moves the lock's slot, with its keys, to another master and back.
    fn move_there_and_back(&self) -> bool {
        let slot = slot(TARGET.as_bytes());
        let home = self.master();
        let is_master = |node: &usize| {
            *node != home && self.nodes.raw(*node).call(&["ROLE"]).array()[0].text() == "master"
        };
        let Some(other) = (0..NODES).find(is_master) else { return false };
        self.nodes.move_slot(slot, other);
        let moved = self.master() == other;
        self.nodes.move_slot(slot, home);
        moved && self.master() == home
    }
}

impl Deployment for Cluster {
    fn url(&self) -> String {
        self.nodes.url()
    }

    fn kinds(&self) -> Vec<Kind> {
        use Kind::{AgreedFailover, ConnectionsKilled, InboxesKilled, MasterKilled, SlotMoved};
        vec![SlotMoved, AgreedFailover, MasterKilled, ConnectionsKilled, InboxesKilled]
    }

    fn inject(&mut self, kind: Kind, _rng: &mut Rng) -> bool {
        let target = slot(TARGET.as_bytes());
        let old = self.master();
        match kind {
            Kind::SlotMoved => self.move_there_and_back(),
            Kind::AgreedFailover => self.nodes.fail_over(target) != old,
            Kind::MasterKilled => {
                self.dead.push(old);
                self.nodes.kill_master(target) != old
            }
            Kind::ConnectionsKilled => kill_connections(&mut self.master_raw(), "normal"),
            Kind::InboxesKilled => {
                // The clients choose which nodes carry their inboxes.
                let killed =
                    (0..NODES).map(|node| kill_connections(&mut self.nodes.raw(node), "pubsub"));
                killed.fold(false, |any, one| any | one)
            }
            other => panic!("a Cluster does not play {other:?}"),
        }
    }

    fn heal(&mut self) {
        for node in std::mem::take(&mut self.dead) {
            self.nodes.nodes()[node].restart();
        }
        self.nodes.await_whole();
    }

    fn raws(&self) -> Vec<Raw> {
        let mut raws: Vec<_> = (0..NODES).map(|node| self.nodes.raw(node)).collect();
        raws.retain_mut(|raw| raw.call(&["ROLE"]).array()[0].text() == "master");
        raws
    }

    fn raw(&self) -> Option<Raw> {
        Some(self.master_raw())
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.nodes.nodes().iter().map(|node| node.dir().to_owned()).collect()
    }
}
