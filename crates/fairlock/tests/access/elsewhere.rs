//! The profiles for more than one server (replicas, Sentinels, Clusters): complete, and without
//! each rule in turn.

use super::profiles::{Rule, allow, denied, names, nothing_is_left, profile, scenario};
use crate::support::{SOON, in_real_time, soon, until};
use fairlock::{Client, Config, Error, ErrorKind, Release, Replicas};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{Replicated, slot};
use std::time::Duration;

fn profiles(files: &[&str]) -> Vec<Rule> {
    files.iter().flat_map(|file| profile(file)).collect()
}

/// Timeouts so long that a lock is only refused because the user lacks a right.
fn patient(config: Config) -> Config {
    config
        .username("ann")
        .password("pw")
        .announce(false)
        .connect_timeout(SOON)
        .response_timeout(SOON)
}

/// Nothing was denied, except for the records of clients: their rights are in records.acl.
fn nothing_denied(raw: &mut Raw, context: &str) {
    let mut denied = denied(raw);
    denied.retain(|name| !name.starts_with("fairlock_client:"));
    assert_eq!(denied, [""; 0], "{context}");
}

/// The rules without each one in turn: the remaining ones, the missing one, and a description.
fn each_missing(files: &[&str], generation: Generation) -> Vec<(Vec<Rule>, Rule, String)> {
    let rules = profiles(files);
    let without = |at: usize| {
        let rest = rules[..at].iter().chain(&rules[at + 1..]).cloned().collect();
        let context = format!("{} without {}", generation.name(), rules[at].text);
        (rest, rules[at].clone(), context)
    };
    (0..rules.len()).map(without).collect()
}

#[track_caller]
fn is_denied(result: Result<(), Error>, rule: &Rule, context: &str) {
    let error = result.expect_err(context);
    assert_eq!(error.kind(), ErrorKind::Denied, "{context}: {error}");
    assert!(names(&error, &rule.text), "{context}: {error}");
    println!("{context}: {error}");
}

#[test]
fn waiting_for_replicas() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(set) = Replicated::start(generation, 1) else { continue };
            let mut raw = set.raw();
            let base = profile("locks.acl");
            let server = Config::tcp("127.0.0.1", set.primary().port());
            let config = patient(server).replicas(Replicas::AtLeast(1)).replicas_timeout(SOON);
            allow(&mut raw, base.iter().chain(&profile("replicas.acl")));
            scenario(&config).await.unwrap();
            nothing_is_left(&mut raw, generation.name());
            nothing_denied(&mut raw, generation.name());
            for (rest, rule, context) in each_missing(&["replicas.acl"], generation) {
                allow(&mut raw, base.iter().chain(&rest));
                is_denied(scenario(&config).await, &rule, &context);
                // A hold that could not be confirmed was taken back or reported; this test is about
                // rights, so clear by hand.
                raw.call(&["FLUSHALL"]);
            }
        }
    });
}

#[test]
fn sentinels_and_their_servers() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(server) = Server::start(generation) else { continue };
            let monitor = format!("sentinel monitor locks 127.0.0.1 {} 1\n", server.port());
            let sentinel =
                Server::builder_of_sentinel(generation).config(&monitor).start().unwrap();
            let (mut raw, mut of_sentinel) = (server.client(), sentinel.client());
            let place = [("127.0.0.1".to_owned(), sentinel.port())];
            let config = patient(Config::sentinel(place, "locks"));
            let config = config.sentinel_username("ann").sentinel_password("pw");
            let whole = profiles(&["locks.acl", "behind-sentinels.acl"]);
            allow(&mut raw, &whole);
            allow(&mut of_sentinel, &profile("sentinels.acl"));
            scenario(&config).await.unwrap();
            nothing_denied(&mut raw, generation.name());
            nothing_denied(&mut of_sentinel, generation.name());

            for (rest, rule, context) in each_missing(&["behind-sentinels.acl"], generation) {
                allow(&mut raw, profile("locks.acl").iter().chain(&rest));
                is_denied(scenario(&config).await, &rule, &context);
            }
            allow(&mut raw, &whole);
            for (rest, rule, context) in each_missing(&["sentinels.acl"], generation) {
                allow(&mut of_sentinel, &rest);
                of_sentinel.call(&["ACL", "LOG", "RESET"]);
                if rule.optional {
                    let client = Client::with_config(config.clone()).await.expect(&context);
                    let guard = client.fair_lock("billing:job").lock().await.expect(&context);
                    until(&context, async || !denied(&mut of_sentinel).is_empty()).await;
                    assert_eq!(guard.release().await.unwrap(), Release::Released, "{context}");
                } else {
                    is_denied(scenario(&config).await, &rule, &context);
                }
            }
        }
    });
}

/// Two nodes that share the slots.
struct Pair([Server; 2]);

impl Pair {
    async fn start(generation: Generation) -> Option<Self> {
        let node = || {
            let node = Server::builder(generation).bus_port().arg("--cluster-enabled", "yes");
            node.start()
        };
        let pair = Self([node()?, node()?]);
        let [one, two] = &pair.0;
        let port = two.port().to_string();
        assert_eq!(one.client().call(&["CLUSTER", "MEET", "127.0.0.1", &port]).text(), "OK");
        for (node, slots) in [(one, 0..8_192), (two, 8_192..16_384)] {
            let slots = slots.map(|slot| slot.to_string());
            let command = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots);
            assert_eq!(node.client().call(&command.collect::<Vec<_>>()).text(), "OK");
        }
        for node in &pair.0 {
            until("the Cluster is whole", async || {
                let info = node.client().call(&["CLUSTER", "INFO"]);
                info.text().contains("cluster_state:ok") && info.text().contains("slots_ok:16384")
            })
            .await;
        }
        Some(pair)
    }

    fn config(&self) -> Config {
        let places = self.0.each_ref().map(|node| ("127.0.0.1".to_owned(), node.port()));
        patient(Config::cluster(places))
    }

    fn each(&self, mut with: impl FnMut(&mut Raw)) {
        self.0.iter().for_each(|node| with(&mut node.client()));
    }

    /// Gives `ann` these rules on both nodes.
    fn allow(&self, rules: &[Rule]) {
        self.each(|raw| {
            allow(raw, rules);
            raw.call(&["ACL", "LOG", "RESET"]);
            raw.call(&["CONFIG", "RESETSTAT"]);
            raw.call(&["FLUSHALL"]);
        });
    }

    /// Locks on both nodes, and one whose slot is being migrated.
    async fn scenario(&self) -> Result<(), Error> {
        scenario(&self.config()).await?;
        let client = Client::with_config(self.config()).await?;
        for name in ["billing:a", "billing:b", "billing:c", "billing:d"] {
            // A waiter that gives up unsubscribes its channel.
            let guard = client.plain_lock(name).lock().await?;
            let lock = client.plain_lock(name);
            assert!(lock.try_lock_for(Duration::from_millis(20)).await?.is_none());
            let _ = guard.release().await?;
        }
        let name = "billing:moving";
        let number = slot(name.as_bytes());
        let (from, to) = if number < 8_192 { (0, 1) } else { (1, 0) };
        let id = |node: usize| self.0[node].client().call(&["CLUSTER", "MYID"]).text().to_owned();
        let (number, (old, new)) = (number.to_string(), (id(from), id(to)));
        let set = |node: usize, words: &[&str]| {
            let command = [&["CLUSTER", "SETSLOT", &number], words].concat();
            let reply = self.0[node].client().call(&command);
            assert_eq!(reply, Value::Simple("OK".into()), "{command:?}");
        };
        set(to, &["IMPORTING", &old]);
        set(from, &["MIGRATING", &new]);
        let lock = client.fair_lock(name);
        let taken = tokio::spawn(async move { lock.lock().await });
        until("it is asked for there", async || {
            let stats = self.0[to].client().call(&["INFO", "commandstats"]);
            taken.is_finished() || stats.text().contains("cmdstat_asking:")
        })
        .await;
        set(from, &["STABLE"]);
        set(to, &["STABLE"]);
        drop(soon("the lock", taken).await.unwrap()?);
        Ok(())
    }
}

/// On Redis 6.2 messages go to all nodes; on later servers both ways are tried.
#[test]
fn clusters() {
    in_real_time(|| async {
        for generation in Generation::tested() {
            let Some(pair) = Pair::start(generation).await else { continue };
            let mut own = vec!["cluster.acl"];
            if generation != Generation::Redis62 {
                own.push("cluster-sharded.acl");
            }
            let base = profile("locks.acl");
            pair.allow(&[base.clone(), profiles(&own)].concat());
            pair.scenario().await.unwrap();
            pair.each(|raw| nothing_denied(raw, generation.name()));
            for (rest, rule, context) in each_missing(&own, generation) {
                pair.allow(&[base.clone(), rest].concat());
                let result = soon(&context, pair.scenario()).await;
                is_denied(result, &rule, &context);
            }
        }
    });
}
