//! Three masters with one replica each.

use super::{field, until};
use crate::raw::Raw;
use crate::resp::Value;
use crate::server::{Generation, Server};
use crate::tls::Identity;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of slots of a Cluster.
pub const SLOTS: u16 = 16_384;

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
/// A node that does not answer for this many milliseconds counts as down.
const NODE_TIMEOUT_MS: &str = "1000";
/// A node that has won an election counts its votes again if it stands within this time, twice the
/// which is four times [`NODE_TIMEOUT_MS`]: it then wins under its old epoch, which the others do
/// not accept, and the slots have no master
/// (<https://github.com/redis/redis/issues/8752>).
const VOTES_COUNT_FOR: Duration = Duration::from_millis(4_200);
/// A replica abandons an ordered failover after five seconds.
const ORDERED_WITHIN: Duration = Duration::from_secs(6);
/// Keys moved by one command while a slot moves.
const MOVED_AT_ONCE: &str = "100";
/// Longest time in milliseconds for moving them.
const MOVE_TIMEOUT_MS: &str = "5000";

/// A running Cluster on 127.0.0.1, killed and removed on drop. Nodes 0 to 2 start as masters, each
/// with a third of the slots; node `i + 3` starts as the replica of node `i`.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
    tls: bool,
    /// When a node was last seen to have taken over.
    won: Mutex<HashMap<usize, Instant>>,
}

impl Cluster {
    /// Starts a Cluster and waits until every node serves all slots; `None`, with a notice, if the
    /// server is not installed.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn start(generation: Generation) -> Option<Self> {
        Self::start_with(generation, &[])
    }

    /// The same with settings as on the command line.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn start_with(generation: Generation, settings: &[(&str, &str)]) -> Option<Self> {
        Self::launch(generation, settings, None)
    }

    /// A Cluster whose nodes speak only TLS, to clients and to each other; `None`, with a notice,
    /// if there is no server with TLS.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn start_tls(generation: Generation, identity: &Identity) -> Option<Self> {
        Self::launch(generation, &[("--tls-cluster", "yes")], Some(identity))
    }

    fn launch(
        generation: Generation,
        settings: &[(&str, &str)],
        identity: Option<&Identity>,
    ) -> Option<Self> {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let mut node = Server::builder(generation)
                .bus_port()
                .arg("--cluster-enabled", "yes")
                .arg("--cluster-node-timeout", NODE_TIMEOUT_MS)
                // A replica may take over however long it had no link to its master.
                .arg("--cluster-replica-validity-factor", "0")
                .arg("--repl-diskless-sync", "yes")
                .arg("--repl-diskless-sync-delay", "0");
            for (name, value) in settings {
                node = node.arg(name, value);
            }
            if let Some(identity) = identity {
                node = node.tls(identity);
            }
            nodes.push(node.start()?);
        }
        let ids = nodes.iter().map(|n| n.client().call(&["CLUSTER", "MYID"]).text().to_owned());
        let cluster =
            Self { ids: ids.collect(), nodes, tls: identity.is_some(), won: Mutex::default() };
        cluster.assemble();
        Some(cluster)
    }

    fn assemble(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for master in 0..MASTERS {
            let share = |n: usize| n * usize::from(SLOTS) / MASTERS;
            let slots = (share(master)..share(master + 1)).map(|slot| slot.to_string());
            let command = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots);
            ok(&self.nodes[master], &command.collect::<Vec<_>>());
        }
        self.meet();
        let mut met = Instant::now();
        for node in 0..NODES {
            until(format!("node {node} knows all"), || {
                let nodes = self.nodes[node].client().call(&["CLUSTER", "NODES"]);
                let known = nodes.text().lines().filter(|l| !l.contains("handshake")).count();
                // A node forgets a handshake that takes longer than the node timeout.
                if known < NODES && met.elapsed() > Duration::from_secs(3) {
                    self.meet();
                    met = Instant::now();
                }
                (known == NODES).then_some(())
            });
        }
        for master in 0..MASTERS {
            until(format!("node {master} gets its replica"), || {
                let command = ["CLUSTER", "REPLICATE", &self.ids[master]];
                let reply = self.nodes[master + MASTERS].client().call(&command);
                (reply == Value::Simple("OK".into())).then_some(())
            });
        }
        self.await_whole();
    }

    /// Introduces all nodes to the first.
    fn meet(&self) {
        let first = self.nodes[0].port().to_string();
        for node in &self.nodes[1..] {
            ok(node, &["CLUSTER", "MEET", "127.0.0.1", &first]);
        }
    }

    /// The nodes, masters and replicas.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// A connection to a node.
    ///
    /// # Panics
    ///
    /// If the node does not accept one.
    #[track_caller]
    pub fn raw(&self, node: usize) -> Raw {
        self.nodes[node].client()
    }

    /// `redis+cluster://HOST:PORT,HOST:PORT,...`, all nodes; or `rediss+cluster://...`.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}+cluster://{}", places.join(","))
    }

    /// The master that serves the slot, as seen by a live node; `None` if no node does.
    pub fn master_of(&self, slot: u16) -> Option<usize> {
        let living = self.nodes.iter().find(|node| node.try_client().is_ok())?;
        self.master_seen_by(living, slot)
    }

    /// The same, but waits for a master.
    ///
    /// # Panics
    ///
    /// If no node knows one within 90 s.
    #[track_caller]
    pub fn await_master_of(&self, slot: u16) -> usize {
        until("a master of the slot", || self.master_of(slot))
    }

    fn master_seen_by(&self, node: &Server, slot: u16) -> Option<usize> {
        let reply = node.try_client().ok()?.try_call(&["CLUSTER", "SLOTS"]).ok()?;
        let range = reply.array().iter().find(|range| {
            let [first, last, ..] = range.array() else { return false };
            (first.int()..=last.int()).contains(&i64::from(slot))
        })?;
        let port = range.array()[2].array()[1].int();
        self.nodes.iter().position(|node| i64::from(node.port()) == port)
    }

    /// Moves a slot to another master, its keys with it.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.begin_move(slot, to);
        self.end_move(slot, to);
    }

    /// Opens both sides of a move: from now on the old master answers ASK for keys that it lacks.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) {
        let from = self.await_master_of(slot);
        assert_ne!(from, to, "the slot is there already");
        let slot = slot.to_string();
        ok(&self.nodes[to], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        ok(&self.nodes[from], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves the keys, and closes both sides.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    #[track_caller]
    pub fn end_move(&self, slot: u16, to: usize) {
        let from = self.await_master_of(slot);
        self.move_keys(slot, from, to);
        let text = slot.to_string();
        let command = ["CLUSTER", "SETSLOT", &text, "NODE", &self.ids[to]];
        ok(&self.nodes[to], &command);
        // Until now a key may have been created on the old master; it must follow.
        until("the old master gives the slot up", || {
            self.move_keys(slot, from, to);
            let reply = self.nodes[from].client().call(&command);
            (reply == Value::Simple("OK".into())).then_some(())
        });
        // That includes the old master, which was told who has the slot, but not under which epoch.
        // If it took the slot back before it knew, it would do so with an older epoch: the others
        // would take the slot from it, with its keys, and two nodes would name each other for good.
        // From Redis 7.0 on the new master announces its epoch at once.
        until("the others know where the slot is, and the new master's epoch", || {
            let epoch = self.epoch_seen_by(&self.nodes[to], to)?;
            let all = self.nodes.iter().all(|node| {
                self.master_seen_by(node, slot) == Some(to)
                    && self.epoch_seen_by(node, to) == Some(epoch)
            });
            all.then_some(())
        });
    }

    /// The configuration epoch under which `master` claims its slots, as far as `node` knows.
    fn epoch_seen_by(&self, node: &Server, master: usize) -> Option<u64> {
        let seen = node.try_client().ok()?.try_call(&["CLUSTER", "NODES"]).ok()?;
        let line = seen.text().lines().find(|line| line.starts_with(&self.ids[master]))?;
        line.split(' ').nth(6)?.parse().ok()
    }

    /// Moves keys of a slot between [`Cluster::begin_move`] and [`Cluster::end_move`]: those of
    /// `names` that exist, and nothing else.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    #[track_caller]
    pub fn move_some(&self, slot: u16, to: usize, names: &[&str]) {
        let from = self.await_master_of(slot);
        let keys: Vec<_> = names.iter().map(|name| name.as_bytes()).collect();
        self.migrate(from, to, &keys);
    }

    /// Moves all keys of a slot, and leaves both sides open.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    #[track_caller]
    pub fn move_all(&self, slot: u16, to: usize) {
        let from = self.await_master_of(slot);
        self.move_keys(slot, from, to);
    }

    #[track_caller]
    fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let mut raw = self.nodes[from].client();
        loop {
            let keys = raw.call(&["CLUSTER", "GETKEYSINSLOT", &slot, MOVED_AT_ONCE]);
            let bytes = keys.array().iter().map(|key| match key {
                Value::Bulk(key) => &key[..],
                other => panic!("a key, not {other:?}"),
            });
            let keys: Vec<_> = bytes.collect();
            if keys.is_empty() {
                return;
            }
            self.migrate(from, to, &keys);
        }
    }

    #[track_caller]
    fn migrate(&self, from: usize, to: usize, keys: &[&[u8]]) {
        let port = self.nodes[to].port().to_string();
        let fixed = ["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_TIMEOUT_MS, "REPLACE", "KEYS"];
        let command = fixed.iter().map(|word| word.as_bytes()).chain(keys.iter().copied());
        let reply = self.nodes[from].client().call(&command.collect::<Vec<_>>());
        assert!(matches!(&reply, Value::Simple(s) if s == "OK" || s == "NOKEY"), "{reply:?}");
    }

    /// Orders the replica of a master to take over with the master's consent, and waits until it
    /// has.
    ///
    /// # Panics
    ///
    /// If it has not within 90 s.
    #[track_caller]
    pub fn fail_over(&self, slot: u16) -> usize {
        let old = self.await_master_of(slot);
        self.await_fair_election(old);
        let mut ordered: Option<Instant> = None;
        until("a new master of the slot, as ordered", || {
            // On a loaded machine a replica may briefly count as failing, and an order may be
            // abandoned.
            if ordered.is_none_or(|at| at.elapsed() > ORDERED_WITHIN) {
                let mut replica = self.nodes[self.replica_of(old)?].try_client().ok()?;
                let reply = replica.try_call(&["CLUSTER", "FAILOVER"]).ok()?;
                ordered = (reply == Value::Simple("OK".into())).then(Instant::now);
            }
            self.new_master(slot, old)
        })
    }

    /// Kills the slot's master and waits until another one serves it.
    ///
    /// # Panics
    ///
    /// If none does within 90 s.
    #[track_caller]
    pub fn kill_master(&self, slot: u16) -> usize {
        let old = self.await_master_of(slot);
        self.await_fair_election(old);
        self.nodes[old].kill9();
        self.await_master_after(slot, old)
    }

    /// Waits until a node other than `old` serves the slot, and reports so itself.
    ///
    /// # Panics
    ///
    /// If none does within 90 s.
    #[track_caller]
    pub fn await_master_after(&self, slot: u16, old: usize) -> usize {
        until("a new master of the slot", || self.new_master(slot, old))
    }

    /// Waits until the votes of the last elections count no more, for nodes that may stand next. Whose replica a node is
    /// takes a moment to be known everywhere, so this is for all but the `master` that will be followed.
    fn await_fair_election(&self, master: usize) {
        let won = self.won().iter().filter(|(node, _)| **node != master).map(|(_, at)| *at).max();
        if let Some(won) = won {
            thread::sleep(VOTES_COUNT_FOR.saturating_sub(won.elapsed()));
        }
    }

    fn won(&self) -> MutexGuard<'_, HashMap<usize, Instant>> {
        self.won.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node other than `old` that serves the slot, and reports so itself.
    fn new_master(&self, slot: u16, old: usize) -> Option<usize> {
        let node = self.master_of(slot).filter(|node| *node != old)?;
        let mut raw = self.nodes[node].try_client().ok()?;
        let is_master = raw.try_call(&["ROLE"]).ok()?.array()[0].text() == "master";
        is_master.then(|| {
            self.won().insert(node, Instant::now());
            node
        })
    }

    /// A live node that currently replicates `master`.
    pub fn replica_of(&self, master: usize) -> Option<usize> {
        let seen = self
            .nodes
            .iter()
            .find_map(|node| node.try_client().ok()?.try_call(&["CLUSTER", "NODES"]).ok())?;
        let id = seen.text().lines().find_map(|line| {
            let mut words = line.split(' ');
            let (id, flags) = (words.next()?, words.nth(1)?);
            let of = words.next()?;
            (of == self.ids[master] && !flags.contains("fail")).then(|| id.to_owned())
        })?;
        self.ids.iter().position(|known| *known == id)
    }

    /// Waits until every live node serves all slots, and every replica follows its master.
    ///
    /// # Panics
    ///
    /// If they do not within 90 s.
    #[track_caller]
    pub fn await_whole(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            until(format!("node {number} is whole"), || {
                let Ok(mut raw) = node.try_client() else { return Some(()) };
                let cluster = raw.call(&["CLUSTER", "INFO"]);
                let cluster = cluster.text();
                let replication = raw.call(&["INFO", "replication"]);
                let replication = replication.text();
                let linked = field(replication, "role") == Some("master")
                    || field(replication, "master_link_status") == Some("up");
                let whole = field(cluster, "cluster_state") == Some("ok")
                    && field(cluster, "cluster_slots_ok") == Some("16384");
                (whole && linked).then_some(())
            });
        }
    }
}

/// The slot of a key: CRC16 (XMODEM) of the first non-empty part in braces, else of the whole key.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[track_caller]
fn ok<A: AsRef<[u8]>>(node: &Server, command: &[A]) {
    let reply = node.client().call(command);
    let first = String::from_utf8_lossy(command[1].as_ref()).into_owned();
    assert_eq!(reply, Value::Simple("OK".into()), "CLUSTER {first}");
}
