//! Cluster: each lock is on the node of its slot, and is found again wherever the slot moves.
//!
//! Failovers take the nodes seconds; nothing here sleeps for them. Waits end on conditions, within
//! bounds far above the measured times.

use super::{AGREED, connect, patient};
use crate::faults::fixture::{eventually, measured, ms, within};
use crate::support::in_real_time;
use fairlock::{
    Check, Client, Config, ConnectionState, ErrorKind, GuardState, Reaction, Release, ShardedPubSub,
};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{Cluster, await_acknowledged, slot};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first name of a series whose slot the master serves.
pub(super) fn name_at(cluster: &Cluster, master: usize) -> String {
    // A third of all names is there, unless the node was replaced: then none of any number is.
    let mut names = (0..100).map(|number| format!("job-{number}"));
    let found = names.find(|name| cluster.master_of(slot(name.as_bytes())) == Some(master));
    found.unwrap_or_else(|| {
        panic!("node {master} serves no slot: it was replaced before the test began")
    })
}

/// Locks on all nodes, with waiters of other clients: each waiter is told of its turn, also where
/// messages go to all nodes.
#[test]
fn locks_of_all_nodes_are_handed_over() {
    in_real_time(|| async {
        for generation in Generation::few() {
            let Some(cluster) = Cluster::start(generation) else { continue };
            for how in [ShardedPubSub::Auto, ShardedPubSub::Off] {
                let with = patient(&cluster.url()).sharded_pubsub(how);
                let clients = [connect(with.clone()).await, connect(with).await];
                let began = Instant::now();
                for number in 0..9 {
                    let name = format!("job-{number}");
                    let held = within("the hold", AGREED, clients[0].fair_lock(&name).lock()).await;
                    let held = held.unwrap();
                    let mut turn = clients[1].fair_lock(&name).enqueue().await.unwrap();
                    let token = held.token();
                    assert_eq!(held.release().await.unwrap(), Release::Released);
                    let next = within("the turn", AGREED, turn.wait()).await.unwrap();
                    assert!(next.token() > token);
                    assert_eq!(next.release().await.unwrap(), Release::Released);
                }
                measured(&format!("{generation:?}, {how:?}: nine hand-overs"), began.elapsed());
                assert_eq!(*clients[0].connection().borrow(), ConnectionState::Connected);
                clients[0].ping().await.unwrap();
            }
        }
    });
}

/// Names whose keys are in several slots, and servers without Cluster mode, are refused with the
/// reason, and nothing is written.
#[test]
fn what_cannot_work_is_refused() {
    in_real_time(|| async {
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        let client = connect(patient(&cluster.url()).announce(false)).await;
        for name in ["a{b", "{}x", "a}b", "}", "{"] {
            let locks = [client.fair_lock(name), client.plain_lock(name), client.simple_lock(name)];
            for lock in locks {
                let errors = [
                    lock.lock().await.unwrap_err(),
                    lock.try_lock().await.unwrap_err(),
                    lock.inspect().await.unwrap_err(),
                    lock.force_unlock().await.unwrap_err(),
                ];
                for error in errors {
                    assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
                    assert!(error.to_string().contains("Cluster: it has"), "{error}");
                    assert_eq!(error.lock().unwrap().as_bytes(), name.as_bytes());
                }
            }
            let error = client.fair_lock(name).enqueue().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        }
        for node in 0..3 {
            assert_eq!(cluster.raw(node).call(&["DBSIZE"]).int(), 0);
        }
        let _ = client.fair_lock("a{b}c").lock().await.unwrap().release().await.unwrap();

        let Some(server) = Server::start(Generation::Redis70) else { return };
        // The same names work on a single server, which has no slots.
        let single = connect(patient(&server.url())).await;
        let _ = single.fair_lock("a{b").lock().await.unwrap().release().await.unwrap();
        let url = server.url().replace("redis://", "redis+cluster://");
        let error = Client::with_config(patient(&url)).await.unwrap_err();
        assert!(error.to_string().contains("no node of a Cluster"), "{error}");
    });
}

/// A client without the right to sharded messages is told so when it connects, rather than by turns
/// that come late.
#[test]
fn what_is_denied_is_told_at_once() {
    in_real_time(|| async {
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        let with = |rules: &[&str]| {
            let set = ["ACL", "SETUSER", "ann", "reset", "on", ">pw", "~*", "+@all"];
            for node in 0..cluster.nodes().len() {
                let reply = cluster.raw(node).call(&[&set[..], rules].concat());
                assert_eq!(reply.text(), "OK");
            }
            patient(&cluster.url()).username("ann").password("pw")
        };
        for rules in [&["&*", "-ssubscribe"][..], &["&fairlock_other:*"], &["&*", "-cluster"]] {
            let error = Client::with_config(with(rules)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{rules:?}: {error}");
        }
        // Clients that publish to all nodes need no right to sharded messages.
        let whole = with(&["&*", "-ssubscribe"]).sharded_pubsub(ShardedPubSub::Off);
        for config in [with(&["&fairlock_inbox:*"]), whole] {
            let client = connect(config).await;
            let guard = client.fair_lock("job").lock().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    });
}

/// Only one of three seeds exists, and it is a replica.
#[test]
fn one_seed_is_enough() {
    in_real_time(|| async {
        let Some(cluster) = Cluster::start(Generation::Redis62) else { return };
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let seeds = [closed, silent.local_addr().unwrap(), cluster.nodes()[4].addr()];
        let client =
            connect(Config::cluster(seeds.map(|addr| (addr.ip().to_string(), addr.port())))).await;
        for master in 0..3 {
            let guard = client.fair_lock(name_at(&cluster, master)).lock().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    });
}

/// How often nodes have replied that a slot is elsewhere.
fn moved(cluster: &Cluster) -> usize {
    let of_node = |node: usize| {
        let stats = cluster.raw(node).call(&["INFO", "errorstats"]);
        let line =
            stats.text().lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    (0..cluster.nodes().len()).map(of_node).sum()
}

/// A slot has moved while no call was made: the first call is sent twice, and later ones go to the
/// right node at once.
#[test]
fn a_stale_map_costs_one_call() {
    in_real_time(|| async {
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        let client = connect(patient(&cluster.url())).await;
        let name = name_at(&cluster, 0);
        let slot = slot(name.as_bytes());
        let _ = client.fair_lock(&name).lock().await.unwrap().release().await.unwrap();
        for to in [1, 2, 0] {
            tokio::task::block_in_place(|| cluster.move_slot(slot, to));
            let before = moved(&cluster);
            for _ in 0..5 {
                let guard =
                    within("the hold", AGREED, client.fair_lock(&name).lock()).await.unwrap();
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
            let since = moved(&cluster) - before;
            // None, if the regular refresh of the map came first.
            assert!(since <= 1, "{since} calls went to the wrong node");
            assert_eq!(cluster.master_of(slot), Some(to));
        }
    });
}

/// What nodes have sent to each other: messages to the whole Cluster, and messages within a shard.
fn sent(cluster: &Cluster) -> (u64, u64) {
    let count = |info: &str, kind: &str| {
        let prefix = format!("cluster_stats_messages_{kind}_sent:");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    let mut sum = (0, 0);
    for node in 0..cluster.nodes().len() {
        let info = cluster.raw(node).call(&["CLUSTER", "INFO"]);
        sum.0 += count(info.text(), "publish");
        sum.1 += count(info.text(), "publishshard");
    }
    sum
}

/// Grants go only to the nodes of their slot, if the servers support that.
#[test]
fn grants_are_not_broadcast() {
    in_real_time(|| async {
        const TURNS: u64 = 20;
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        for (how, everywhere) in [(ShardedPubSub::Auto, false), (ShardedPubSub::Off, true)] {
            let with = patient(&cluster.url()).sharded_pubsub(how);
            let clients = [connect(with.clone()).await, connect(with).await];
            let before = sent(&cluster);
            let mut guard = clients[0].fair_lock("job").lock().await.unwrap();
            for turn in 1..=TURNS {
                let mut next =
                    clients[(turn % 2) as usize].fair_lock("job").enqueue().await.unwrap();
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                guard = within("the turn", AGREED, next.wait()).await.unwrap();
            }
            let _ = guard.release().await.unwrap();
            let (all, shard) = (sent(&cluster).0 - before.0, sent(&cluster).1 - before.1);
            println!("measured: {how:?}: {all} messages to all nodes, {shard} within the shard");
            match everywhere {
                // A node may be left out for a moment whose link was late.
                true => assert!(all >= TURNS && shard == 0, "{all} {shard}"),
                false => assert!(all == 0 && shard > 0, "{all} {shard}"),
            }
        }
    });
}

/// From now on a node counts as down after being silent for this long.
fn judge_slowly(cluster: &Cluster, timeout: Duration) {
    let timeout = timeout.as_millis().to_string();
    for node in cluster.nodes() {
        let reply = node.client().call(&["CONFIG", "SET", "cluster-node-timeout", &timeout]);
        assert_eq!(reply.text(), "OK");
    }
}

/// F45: the master of a held lock dies, and its replica takes over with the same data: the guard
/// stays valid, waiters keep their places, tokens continue to rise. A lock on another node is not
/// affected.
#[test]
fn f45_a_node_dies_and_its_replica_serves() {
    in_real_time(|| async {
        /// Three times that of other tests; a killed node is detected that much later.
        const NODE_TIMEOUT: Duration = Duration::from_secs(3);
        for how in ["killed", "ordered"] {
            let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
            // On a busy machine a live node may reply late. Here neither a client (an unanswered ping
            // makes the other lock Suspect, as it should) nor a node may take it for dead. A dead node
            // is recognised by its closed connections.
            judge_slowly(&cluster, NODE_TIMEOUT);
            let config = || patient(&cluster.url()).ping_timeout(AGREED).response_timeout(AGREED);
            let clients =
                [connect(config()).await, connect(config()).await, connect(config()).await];
            let (name, elsewhere) = (name_at(&cluster, 0), name_at(&cluster, 1));
            let other = Arc::new(clients[0].fair_lock(&elsewhere).lock().await.unwrap());
            let watched = Arc::clone(&other);
            let watched =
                tokio::spawn(async move { watched.state_changed(GuardState::Held).await });
            let guard = clients[0].fair_lock(&name).lock().await.unwrap();
            let mut turns = Vec::new();
            for n in [1, 2, 1, 2] {
                turns.push(clients[n].fair_lock(&name).enqueue().await.unwrap());
            }
            await_acknowledged(&mut cluster.raw(0), 1);
            let began = Instant::now();
            let slot = slot(name.as_bytes());
            let new = tokio::task::block_in_place(|| match how {
                "killed" => cluster.kill_master(slot),
                _ => cluster.fail_over(slot),
            });
            measured(&format!("{how}: until the replica serves"), began.elapsed());
            let token = guard.token().get();
            let release = within("the release", AGREED, guard.release()).await.unwrap();
            measured(&format!("{how}: until the release is answered"), began.elapsed());
            assert_eq!(release, Release::Released);
            let mut last = token;
            for mut turn in turns {
                let guard = within("the turn", AGREED, turn.wait()).await.unwrap();
                assert!(guard.token().get() > last, "tokens rise");
                last = guard.token().get();
                let _ = guard.release().await.unwrap();
            }
            measured(&format!("{how}: until all were served"), began.elapsed());
            assert_eq!(cluster.master_of(slot), Some(new));
            assert!(!watched.is_finished(), "the lock of another node was in doubt");
            watched.abort();
            let _ = watched.await;
            let other = Arc::into_inner(other).unwrap();
            assert_eq!(other.release().await.unwrap(), Release::Released);
            eventually("all nodes are connected", AGREED, || {
                *clients[0].connection().borrow() == ConnectionState::Connected
            });
        }
    });
}

/// A master and its replica are gone: calls for its locks wait, and its holds are lost in time;
/// locks on other nodes are not affected. With the Cluster's default setting the whole Cluster is
/// down; then all calls wait.
#[test]
fn a_slot_without_a_master_waits_alone() {
    in_real_time(|| async {
        for full_coverage in ["no", "yes"] {
            let settings = [("--cluster-require-full-coverage", full_coverage)];
            let Some(cluster) = Cluster::start_with(Generation::Redis70, &settings) else { return };
            let (name, elsewhere) = (name_at(&cluster, 0), name_at(&cluster, 1));
            let hasty = patient(&cluster.url()).store_timeout(ms(3_000)).watchdog_lease(ms(6_000));
            let client = connect(hasty).await;
            let guard = client.fair_lock(&name).lock().await.unwrap();
            let other = client.fair_lock(&elsewhere).lock().await.unwrap();
            cluster.nodes()[3].kill9();
            cluster.nodes()[0].kill9();
            eventually("Suspect with the connection", AGREED, || guard.state() != GuardState::Held);
            within("Lost with the lease", AGREED, guard.lost()).await;
            let error = client.fair_lock(&name).lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            if full_coverage == "no" {
                // It may be in doubt for a moment on a busy machine, and is released below.
                eventually("no other node is concerned", AGREED, || {
                    other.state() == GuardState::Held
                });
                assert_eq!(*client.connection().borrow(), ConnectionState::Reconnecting);
                let guard = client.fair_lock(format!("{{{elsewhere}}}2")).lock().await.unwrap();
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                assert_eq!(other.release().await.unwrap(), Release::Released);
            } else {
                eventually("the others know", AGREED, || {
                    cluster.raw(1).call(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail")
                });
                let error = client.fair_lock(&elsewhere).inspect().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("The cluster is down"), "{error}");
            }
            cluster.nodes()[0].restart();
            let back = async {
                loop {
                    match client.fair_lock(&name).lock().await {
                        Ok(guard) => break guard,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                    }
                }
            };
            let guard = within("it is back", AGREED, back).await;
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    });
}

/// A node that hangs uses up the calls that may be in flight for its renewals, and delays no
/// renewal of another node.
#[test]
fn a_node_that_hangs_delays_no_other() {
    in_real_time(|| async {
        const HELD: usize = 150;
        let settings = [("--cluster-require-full-coverage", "no")];
        let Some(cluster) = Cluster::start_with(Generation::Redis70, &settings) else { return };
        // Calls hang for longer than a lease, and no ping notices it in that time.
        let seldom = Duration::from_secs(60);
        let config = patient(&cluster.url()).ping_interval(seldom).ping_timeout(seldom);
        // Nor does it note the locks' kinds, which it does some time after the grants.
        let config = config.on_check(Check::Kind, Reaction::Ignore);
        let client = connect(config.watchdog_lease(ms(2_000)).response_timeout(ms(6_000))).await;
        let (tag, elsewhere) = (name_at(&cluster, 0), name_at(&cluster, 1));
        let mut guards = Vec::new();
        for number in 0..HELD {
            guards.push(client.plain_lock(format!("{{{tag}}}{number}")).lock().await.unwrap());
        }
        let other = client.fair_lock(&elsewhere).lock().await.unwrap();
        // Its replica must not take over.
        cluster.nodes()[3].kill9();
        cluster.nodes()[0].stop();
        for guard in &guards {
            within("those of the hung node are lost", AGREED, guard.lost()).await;
        }
        // For two more leases: the test is about what does not happen in this time.
        let began = Instant::now();
        while began.elapsed() < ms(4_000) {
            // Of its own node it may be in doubt for a moment on a busy machine.
            assert_ne!(other.state(), GuardState::Lost, "after {:?}", began.elapsed());
            tokio::time::sleep(ms(10)).await;
        }
        assert_eq!(other.release().await.unwrap(), Release::Released);
        cluster.nodes()[0].cont();
    });
}

/// Renewals of many locks go to each master together, however their slots are spread: none waits
/// for the reply to another. All masters are stopped while renewals fall due, and all renewals
/// still arrive. (A former version counted how few reads the servers needed for them, which depends
/// more on the machine than on the lock.)
#[cfg(target_os = "linux")]
#[test]
fn renewals_go_to_each_master_together() {
    in_real_time(|| async {
        /// Fewer than the limit of calls in flight.
        const HELD: usize = 60;
        /// Renewals fall due after a third; the rest is for a busy machine.
        const LEASE: Duration = Duration::from_secs(12);
        /// Less than any renewal takes: a script's hash, an owner, seven keys with the lock's name.
        const RENEWAL_MIN_BYTES: u64 = 250;
        /// More than a renewal takes.
        const RENEWAL_MAX_BYTES: u64 = 500;
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        // No replica takes over from a stopped master, and no client pings it.
        judge_slowly(&cluster, Duration::from_secs(120));
        let seldom = Duration::from_secs(60);
        let config = patient(&cluster.url()).ping_interval(seldom).ping_timeout(seldom);
        // Nor does it note the locks' kinds, which it does some time after the grants.
        let config = config.on_check(Check::Kind, Reaction::Ignore);
        let client = connect(config.watchdog_lease(LEASE).response_timeout(AGREED)).await;
        let masters: Vec<_> = (0..3).map(|master| &cluster.nodes()[master]).collect();
        let mut tasks = Vec::new();
        for master in 0..masters.len() {
            let served = |name: &String| cluster.master_of(slot(name.as_bytes())) == Some(master);
            for name in (0..).map(|number| format!("job-{number}")).filter(served).take(HELD) {
                let lock = client.plain_lock(name);
                tasks.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
            }
        }
        let mut guards = Vec::new();
        for task in tasks {
            guards.push(task.await.unwrap());
        }
        let scripts = || masters.iter().map(|master| master.script_calls()).collect::<Vec<_>>();
        let before = scripts();
        masters.iter().for_each(|master| master.stop());
        let least = HELD as u64 * RENEWAL_MIN_BYTES;
        tokio::task::block_in_place(|| {
            eventually("all renewals have arrived", LEASE, || {
                masters.iter().all(|master| unread(master) >= least)
            });
        });
        for master in &masters {
            let unread = unread(master);
            println!("measured: {unread} bytes of {HELD} renewals, none of them read");
            assert!(
                unread < HELD as u64 * RENEWAL_MAX_BYTES,
                "{unread} bytes: more than the renewals"
            );
            master.cont();
        }
        // What arrived were renewals.
        eventually("all are carried out", AGREED, || {
            scripts().iter().zip(&before).all(|(now, before)| now - before >= HELD as u64)
        });
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    });
}

/// Bytes that have arrived on a server's connections and were not read.
#[cfg(target_os = "linux")]
fn unread(server: &Server) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{:04X}", server.port());
    let of_socket = |line: &str| {
        // Number, local address, remote address, state (01: connected), bytes to send and to read.
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let (_, unread) = fields[4].split_once(':')?;
        (fields[1].ends_with(&local) && fields[3] == "01")
            .then(|| u64::from_str_radix(unread, 16).unwrap())
    };
    table.lines().skip(1).filter_map(of_socket).sum()
}
