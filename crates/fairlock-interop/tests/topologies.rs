//! Both sides on more than one server: the same keys, the same order, wake-ups both ways.

use std::sync::Arc;
use std::time::Duration;

use fairlock::{Client, Config, Guard, Release, ShardedPubSub, Turn};
use fairlock_interop::java::{Call, Java, JavaClient, JavaLock, Kind, Settings};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::queue_key;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{Cluster, MASTER_NAME, SentinelSet, await_acknowledged, slot};

use crate::fixture::{block_on, generation, measured, ms, skipped, soon, texts, until};

/// Both sides on one set of servers, with access to the server that currently has a lock.
struct Deployment {
    rust: [Client; 2],
    java: [JavaClient; 2],
    raw: Box<dyn Fn(&str) -> Raw>,
    /// Connections to every server that may have subscribers.
    all: Box<dyn Fn() -> Vec<Raw>>,
}

/// A waiter in the queue.
enum Waiter {
    Rust(Turn),
    Java(JavaLock, Call),
}

impl Deployment {
    fn call(&self, name: &str, command: &[&str]) -> Value {
        (self.raw)(name).call(command)
    }

    fn queue(&self, name: &str) -> Vec<String> {
        texts(&self.call(name, &["LRANGE", &queue_key(name), "0", "-1"]))
    }

    fn holder(&self, name: &str) -> Option<String> {
        let hash = self.call(name, &["HGETALL", name]);
        match hash.array() {
            [] => None,
            [owner, count] => {
                assert_eq!(count.text(), "1", "{owner:?} holds once");
                Some(owner.text().to_owned())
            }
            other => panic!("a hold of one owner, not {other:?}"),
        }
    }

    /// `count` waiters of both sides in turn, each behind the previous one, with their ids.
    async fn waiters(&self, name: &str, count: usize) -> Vec<(String, Waiter)> {
        let mut waiters: Vec<(String, Waiter)> = Vec::new();
        for n in 0..count {
            let waiter = if n % 2 == 0 {
                let owner = self.java[n / 2 % 2].owner(&format!("t{n}")).await;
                let lock = owner.fair(name);
                let call = lock.lock();
                (owner.id, Waiter::Java(lock, call))
            } else {
                let turn = soon(self.rust[n / 2 % 2].fair_lock(name).enqueue()).await.unwrap();
                (turn.owner().to_string(), Waiter::Rust(turn))
            };
            waiters.push(waiter);
            let ids: Vec<_> = waiters.iter().map(|(id, _)| id.clone()).collect();
            until("each stands behind the one before", || self.queue(name) == ids).await;
        }
        waiters
    }

    /// Each gets the lock in the order of the queue, alone, and the tokens of ours rise.
    async fn all_in_turn(&self, name: &str, waiters: Vec<(String, Waiter)>, guard: Guard) {
        let mut last = guard.token();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        for (id, waiter) in waiters {
            match waiter {
                Waiter::Rust(mut turn) => {
                    let guard = soon(turn.wait()).await.unwrap();
                    assert_eq!(self.holder(name), Some(id));
                    assert!(guard.token() > last, "tokens rise");
                    last = guard.token();
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
                Waiter::Java(lock, call) => {
                    call.value().await;
                    assert_eq!(self.holder(name), Some(id));
                    lock.unlock().value().await;
                }
            }
        }
        until("nobody holds it", || self.holder(name).is_none()).await;
    }

    /// Waiters do not poll: with Java present, each client of ours sends two heartbeats a second.
    async fn nobody_polls(&self, name: &str) {
        /// Long enough to see a waiter in a tight loop ask hundreds of times.
        const WATCHED: Duration = Duration::from_secs(2);
        let scripts = || {
            let info = self.call(name, &["INFO", "commandstats"]);
            let calls = info.text().lines().filter_map(|line| {
                let rest = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
                rest.split(',').next()?.parse::<u64>().ok()
            });
            calls.sum::<u64>()
        };
        let before = scripts();
        // Polling shows only over time.
        tokio::time::sleep(WATCHED).await;
        let asked = scripts() - before;
        measured(&format!("{name}: {asked} scripts in {WATCHED:?} of waiting"));
        assert!(asked <= 40, "{asked} scripts in {WATCHED:?}");
    }

    /// Plain locks: each side waits for the other and is woken by a message, not by the end of the
    /// lease.
    async fn plain_to_and_fro(&self, name: &str) {
        const ROUNDS: usize = 10;
        let ours = self.rust[0].plain_lock(name);
        let theirs = self.java[0].owner("plain").await.lock(Kind::Plain, name);
        let channel = format!("redisson_lock__channel:{{{name}}}");
        for _ in 0..ROUNDS {
            let guard = soon(ours.lock()).await.unwrap();
            let call = theirs.lock();
            until("Java listens", || self.listens(&channel)).await;
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            call.value().await;
            let next = tokio::spawn({
                let ours = ours.clone();
                async move { ours.lock().await }
            });
            until("ours listens", || self.listens(&channel)).await;
            theirs.unlock().value().await;
            let guard = soon(next).await.unwrap().unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }

    /// Whether the channel has a subscriber on any server.
    fn listens(&self, channel: &str) -> bool {
        (self.all)().iter_mut().any(|raw| {
            ["NUMSUB", "SHARDNUMSUB"].iter().any(|how| {
                let reply = raw.call(&["PUBSUB", how, channel]);
                // Before 7 there are no shard channels.
                matches!(&reply, Value::Array(words) if words[1].int() > 0)
            })
        })
    }
}

/// One queue of both sides on a Sentinel set; then the same again, with an ordered failover while
/// all wait.
#[test]
fn a_mixed_queue_on_a_sentinel_set() {
    let Some(java) = Java::shared() else { return };
    let Some(set) = SentinelSet::start(generation()) else { return };
    block_on(async {
        let set = Arc::new(set);
        let sentinels = set.addresses();
        let of_sentinels =
            || java.client_of_sentinels(&sentinels, MASTER_NAME, Settings::default());
        let rust = || async {
            let config = Config::from_url(&set.url()).unwrap().java_fleet(true);
            Client::with_config(config.watchdog_lease(ms(60_000))).await.unwrap()
        };
        let (looked_at, heard_at) = (Arc::clone(&set), Arc::clone(&set));
        let deployment = Deployment {
            rust: [rust().await, rust().await],
            java: [of_sentinels().await, of_sentinels().await],
            raw: Box::new(move |_| looked_at.raw(looked_at.master())),
            all: Box::new(move || vec![heard_at.raw(heard_at.master())]),
        };
        let guard = soon(deployment.rust[0].fair_lock("job").lock()).await.unwrap();
        let waiters = deployment.waiters("job", 8).await;
        deployment.nobody_polls("job").await;
        deployment.all_in_turn("job", waiters, guard).await;
        deployment.plain_to_and_fro("plain").await;

        let guard = soon(deployment.rust[0].fair_lock("job").lock()).await.unwrap();
        let waiters = deployment.waiters("job", 6).await;
        let ids: Vec<_> = waiters.iter().map(|(id, _)| id.clone()).collect();
        await_acknowledged(&mut (deployment.raw)("job"), 2);
        set.fail_over();
        // Messages sent to the old master may be lost from now on, so wait until all listen to the
        // new one.
        let channel = format!("redisson_lock__channel:{{job}}:{}", ids[0]);
        until("Java's head listens there", || deployment.listens(&channel)).await;
        for client in &deployment.rust {
            let inbox = format!("fairlock_inbox:{}", client.id());
            until("ours listen there", || deployment.listens(&inbox)).await;
        }
        until("the queue is as it was", || deployment.queue("job") == ids).await;
        deployment.all_in_turn("job", waiters, guard).await;
    });
}

/// One queue of both sides on a Cluster, fair and plain, for locks on each of its masters. On 7 and
/// newer both sides publish to the shard, which Java detects by itself; on 6.2 to the whole
/// Cluster. Then the same again with an ordered failover of the lock's master while all wait.
fn on_a_cluster(generation: Generation) {
    let Some(java) = Java::shared() else { return };
    let Some(cluster) = Cluster::start(generation) else { return };
    let sharded = generation != Generation::Redis62 && java.version().has_sharded_messages();
    block_on(async {
        let cluster = Arc::new(cluster);
        let nodes: Vec<_> = cluster.nodes().iter().map(Server::addr).collect();
        let of_cluster = || java.client_of_cluster(&nodes, Settings::default());
        let rust = || async {
            let config = Config::from_url(&cluster.url()).unwrap().java_fleet(true);
            let messages = if sharded { ShardedPubSub::Auto } else { ShardedPubSub::Off };
            let config = config.sharded_pubsub(messages).watchdog_lease(ms(60_000));
            Client::with_config(config).await.unwrap()
        };
        let looked_at = Arc::clone(&cluster);
        let node_of = move |name: &str| {
            looked_at.master_of(slot(name.as_bytes())).expect("a slot with a master")
        };
        let node = node_of.clone();
        let (raw_of, heard_at) = (Arc::clone(&cluster), Arc::clone(&cluster));
        let deployment = Deployment {
            rust: [rust().await, rust().await],
            java: [of_cluster().await, of_cluster().await],
            raw: Box::new(move |name| raw_of.raw(node(name))),
            all: Box::new(move || heard_at.nodes().iter().map(Server::client).collect()),
        };
        let mut masters = std::collections::BTreeSet::new();
        for (n, name) in ["job", "task", "a{b}c"].into_iter().enumerate() {
            masters.insert(node_of(name));
            let guard = soon(deployment.rust[0].fair_lock(name).lock()).await.unwrap();
            let waiters = deployment.waiters(name, 4).await;
            deployment.nobody_polls(name).await;
            deployment.all_in_turn(name, waiters, guard).await;
            deployment.plain_to_and_fro(&format!("plain-{n}")).await;
        }
        assert!(masters.len() > 1, "locks on more than one master: {masters:?}");

        if !java.version().follows_slots() {
            skipped(java.version(), "its lock() returns without a hold after a failover");
            return;
        }
        // F45: the master's replica takes over while all wait.
        let guard = soon(deployment.rust[0].fair_lock("job").lock()).await.unwrap();
        let waiters = deployment.waiters("job", 4).await;
        let ids: Vec<_> = waiters.iter().map(|(id, _)| id.clone()).collect();
        let old = node_of("job");
        await_acknowledged(&mut (deployment.raw)("job"), 1);
        cluster.fail_over(slot(b"job"));
        // Messages sent to the old master may be lost from now on, so wait until all listen to the
        // new one.
        assert_ne!(node_of("job"), old);
        let listens = |channel: &str| {
            let how = if sharded { "SHARDNUMSUB" } else { "NUMSUB" };
            // Sharded messages stay within the shard, others go to all nodes.
            let mut where_it_counts =
                if sharded { vec![(deployment.raw)("job")] } else { (deployment.all)() };
            where_it_counts
                .iter_mut()
                .any(|raw| raw.call(&["PUBSUB", how, channel]).array()[1].int() > 0)
        };
        let channel = format!("redisson_lock__channel:{{job}}:{}", ids[0]);
        until("Java's head listens there", || listens(&channel)).await;
        for client in &deployment.rust {
            let inbox = match sharded {
                true => format!("fairlock_inbox:{{job}}:{}", client.id()),
                false => format!("fairlock_inbox:{}", client.id()),
            };
            until("ours listen there", || listens(&inbox)).await;
        }
        until("the queue is as it was", || deployment.queue("job") == ids).await;
        deployment.all_in_turn("job", waiters, guard).await;
    });
}

#[test]
fn a_mixed_queue_on_a_cluster_with_sharded_messages() {
    on_a_cluster(Generation::Redis70);
}

#[test]
fn a_mixed_queue_on_a_cluster_without_them() {
    on_a_cluster(Generation::Redis62);
}
