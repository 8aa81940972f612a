//! Waiting for replicas: a lock is held only if the required number of replicas has it.

use super::AGREED;
use crate::faults::fixture::{config, eventually, measured, ms, steady, within};
use crate::support::in_real_time;
use fairlock::{
    Client, Config, Error, ErrorKind, Guard, GuardState, Kind, Lock, Release, Replicas,
};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::{Raw, outlives_users};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{
    Cluster, MASTER_NAME, Replicated, SentinelSet, await_acknowledged, slot,
};
use std::time::{Duration, Instant};

/// For what takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(15);

/// How long to wait for replicas that are frozen for good.
const SHORT: Duration = Duration::from_secs(1);

const LEASE: Duration = Duration::from_secs(3);

fn strict(url: &str, replicas: Replicas) -> Config {
    config(url)
        .replicas(replicas)
        .replicas_timeout(SOON)
        .watchdog_lease(10 * LEASE)
        .ping_timeout(SOON)
        .response_timeout(SOON)
        .connect_timeout(SOON)
}

async fn connect(config: Config) -> Client {
    within("connecting", SOON, Client::with_config(config)).await.unwrap()
}

fn lock_of(client: &Client, kind: Kind, name: &str) -> Lock {
    match kind {
        Kind::Plain => client.plain_lock(name),
        Kind::Simple => client.simple_lock(name),
        _ => client.fair_lock(name),
    }
}

fn is_held(server: &Server, name: &str) -> bool {
    server.client().call(&["EXISTS", name]).int() == 1
}

/// What remains of a lock, except for its token, its last kind and the records of clients.
fn leftovers(raw: &mut Raw) -> Vec<String> {
    let keys = raw.call(&["KEYS", "*"]);
    let keys = keys.array().iter().map(|key| key.text().to_owned());
    let stays = |key: &str| outlives_users(key) || key.starts_with("fairlock_client:");
    keys.filter(|key| !stays(key)).collect()
}

async fn refused(lock: &Lock) -> Error {
    let error = within("the refusal", SOON, lock.lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    error
}

/// Locks of every kind: nobody gets a lock that the replica does not have, and no release is
/// complete while the replica still has the lock. Nor does the next waiter get it without the
/// replica, although a message hands it over. The replica is frozen to make the order visible.
#[test]
fn locks_come_and_go_with_the_replica() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(set) = Replicated::start(generation, 1) else { continue };
            let first = connect(strict(&set.primary().url(), Replicas::AtLeast(1))).await;
            let second = connect(strict(&set.primary().url(), Replicas::All)).await;
            for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
                let name = format!("{kind:?}");
                let replica = set.replica(0);
                let lock = lock_of(&first, kind, &name);
                replica.stop();
                let asked = tokio::spawn(async move { lock.lock().await });
                eventually("the primary has it", SOON, || is_held(set.primary(), &name));
                assert!(!asked.is_finished(), "{generation:?}: not without the replica");
                replica.cont();
                let guard = within("the lock", SOON, asked).await.unwrap().unwrap();
                assert!(is_held(replica, &name), "{generation:?}: the replica has it");

                let lock = lock_of(&second, kind, &name);
                let next = tokio::spawn(async move { lock.lock().await });
                if kind == Kind::Fair {
                    let queue = format!("redisson_lock_queue:{{{name}}}");
                    let stands = || set.raw().call(&["LLEN", &queue]).int() == 1;
                    eventually("the next stands in line", SOON, stands);
                }
                replica.stop();
                let token = guard.token();
                let released = tokio::spawn(guard.release());
                let key = format!("redisson_lock_token:{{{name}}}");
                eventually("the primary has handed it on", SOON, || {
                    let last = set.raw().call(&["GET", &key]);
                    last.text().parse::<u64>().unwrap() > token.get()
                });
                assert!(!next.is_finished() && !released.is_finished(), "{generation:?}");
                replica.cont();
                let released = within("the release", SOON, released).await.unwrap().unwrap();
                assert_eq!(released, Release::Released);
                let guard = within("the hand-over", SOON, next).await.unwrap().unwrap();
                let last = replica.client().call(&["GET", &key]);
                assert_eq!(last.text(), guard.token().to_string(), "the replica has this hold");
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                assert!(!is_held(replica, &name), "{generation:?}: the replica has the release");
            }
        }
    });
}

/// F42: without replicas, or with too few that reply, nobody acquires anything, no queued waiter
/// either, and nothing is left behind.
#[test]
fn f42_too_few_replicas_give_no_lock() {
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 2) else { return };
        let url = set.primary().url();
        let wanting = |replicas| strict(&url, replicas).replicas_timeout(SHORT);
        let clients = [
            connect(wanting(Replicas::AtLeast(2))).await,
            connect(wanting(Replicas::All)).await,
            connect(wanting(Replicas::AtLeast(1))).await,
            connect(wanting(Replicas::AnyConnected)).await,
        ];
        for client in &clients {
            let guard = client.fair_lock("job").lock().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        set.replica(1).stop();
        for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
            for client in &clients[..2] {
                let error = refused(&lock_of(client, kind, "job")).await.to_string();
                assert!(error.contains("1 of 2 replicas"), "{error}");
                eventually("nothing is left", SOON, || leftovers(&mut set.raw()).is_empty());
                let tried = lock_of(client, kind, "job").try_lock().await.unwrap_err();
                assert_eq!(tried.kind(), ErrorKind::NotReplicated, "{tried}");
            }
            for client in &clients[2..] {
                let guard = lock_of(client, kind, "job").lock().await.unwrap();
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
        }
        // Waiters in the queue: each is handed the lock, and gives it back to the next.
        let guard = clients[2].fair_lock("job").lock().await.unwrap();
        let mut turns = Vec::new();
        for n in [0, 1, 0, 2] {
            turns.push(clients[n].fair_lock("job").enqueue().await.unwrap());
        }
        let _ = guard.release().await.unwrap();
        let mut last = turns.pop().unwrap();
        for mut turn in turns {
            let error = within("the refusal", SOON, turn.wait()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
        }
        let _ = within("the last turn", SOON, last.wait()).await.unwrap().release().await.unwrap();
        set.replica(1).cont();

        // None at all. Only Redisson's rule accepts that.
        set.promote(0);
        set.promote(1);
        set.await_online(0);
        for client in &clients[..3] {
            refused(&client.fair_lock("job")).await;
        }
        let guard = clients[3].fair_lock("job").lock().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        eventually("nothing is left", SOON, || leftovers(&mut set.raw()).is_empty());

        // One is back: it is noticed without a message.
        set.follow(0);
        set.await_online(1);
        // Online does not mean in step yet: its first acknowledgement may come a second later.
        let mut raw = set.raw();
        raw.call(&["SET", "probe", "1", "PX", "1"]);
        assert_eq!(raw.call(&["WAIT", "1", "15000"]).int(), 1);
        for client in &clients[1..] {
            let guard = client.fair_lock("job").lock().await.unwrap();
            assert!(is_held(set.replica(0), "job"));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        refused(&clients[0].fair_lock("job")).await;
    });
}

/// A release that too few replicas received may be undone by one of them: it does not return
/// Released.
#[test]
fn f42_a_release_that_may_come_back_is_unknown() {
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let config = strict(&set.primary().url(), Replicas::AtLeast(1)).replicas_timeout(SHORT);
        let client = connect(config).await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        set.replica(0).stop();
        let release = within("the release", SOON, guard.release()).await.unwrap();
        assert_eq!(release, Release::Unknown);
        assert!(!is_held(set.primary(), "job"), "the primary is rid of it all the same");
        set.replica(0).cont();
    });
}

/// F44: the holder continues with the old primary, which is not told that a replica has become the
/// primary elsewhere. The holder's renewals are answered but not acknowledged by replicas, so its
/// guard ends before the new primary gives the lock to somebody else.
#[test]
fn f44_an_isolated_holder_ends_before_the_next_begins() {
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let short = |url: &str, replicas| {
            strict(url, replicas).replicas_timeout(SHORT).watchdog_lease(LEASE)
        };
        let client = connect(short(&set.primary().url(), Replicas::AtLeast(1))).await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        // Wait until it has renewed.
        let key = "redisson_lock_token:{job}";
        let ttl = |server: &Server| server.client().call(&["PTTL", "job"]).int();
        eventually("it was renewed once", SOON, || ttl(set.replica(0)) < 2_500);
        eventually("it was renewed once", SOON, || ttl(set.replica(0)) > 2_500);
        set.promote(0);
        let cut = Instant::now();
        let other = connect(short(&set.replica(0).url(), Replicas::None)).await;
        let next = tokio::spawn(async move { other.fair_lock("job").lock().await });
        let next = within("the next holder", 2 * LEASE + SOON, next).await.unwrap().unwrap();
        assert_eq!(guard.state(), GuardState::Lost, "two guards at once");
        measured("f44 cut off to the next holder", cut.elapsed());
        // The old primary would have continued: it carried out renewals that no other server
        // received.
        assert!(ttl(set.primary()) > 0, "the holder's renewals were answered");
        let told = set.replica(0).client().call(&["GET", key]);
        assert_eq!(told.text(), next.token().to_string());
        assert!(next.token() > guard.token());
    });
}

/// F43: the primary itself requires a replica for every write. No acquisition, renewal or release
/// succeeds; the guard ends at its own deadline, and nothing is left when the replica is back.
#[test]
fn f43_the_primary_refuses_writes_without_replicas() {
    steady(|| async {
        let settings = [("--min-replicas-to-write", "1"), ("--min-replicas-max-lag", "1")];
        let Some(set) = Replicated::start_with(Generation::Redis70, 1, &settings) else { return };
        for replicas in [Replicas::None, Replicas::AtLeast(1)] {
            let config = strict(&set.primary().url(), replicas).replicas_timeout(SHORT);
            let client = connect(config.watchdog_lease(LEASE).store_timeout(ms(1_500))).await;
            let held = client.fair_lock("held").lock().await.unwrap();
            let freed = client.fair_lock("freed").lease(5 * LEASE).lock().await.unwrap();
            set.replica(0).stop();
            let refuses = || {
                let reply = set.raw().call(&["SET", "probe", "1", "PX", "1"]);
                matches!(reply, fairlock_testkit::resp::Value::Error(error) if error.starts_with("NOREPLICAS"))
            };
            eventually("the primary refuses writes", SOON, refuses);
            let began = Instant::now();
            let release = within("the release", SOON, freed.release()).await.unwrap();
            assert_eq!(release, Release::Unknown, "{replicas}");
            let error = within("the refusal", SOON, client.fair_lock("other").lock()).await;
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("NOREPLICAS"), "{error}");
            within("the loss", 2 * LEASE + SOON, held.lost()).await;
            measured("f43 refused to lost", began.elapsed());
            set.replica(0).cont();
            drop(held);
            eventually("nothing is left", 10 * LEASE + SOON, || {
                leftovers(&mut set.raw()).is_empty()
            });
        }
    });
}

/// F40: a lock that was returned as acquired still exists after a failover, and one that the
/// replicas never had was never returned.
#[test]
fn f40_what_replicas_have_survives_a_failover() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let config =
            strict(&set.url(), Replicas::All).replicas_timeout(SHORT).store_timeout(2 * SOON);
        let client = connect(config.watchdog_lease(20 * LEASE)).await;
        let held: Guard = client.fair_lock("held").lock().await.unwrap();
        set.cut_replication();
        let error = refused(&client.fair_lock("refused")).await;
        assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
        let new = set.kill_master();
        let began = Instant::now();
        within("the hold is known there", AGREED, async {
            while held.state() != GuardState::Held {
                tokio::time::sleep(ms(5)).await;
            }
        })
        .await;
        measured("f40 named to held again", began.elapsed());
        let mut raw = set.raw(new);
        assert_eq!(raw.call(&["EXISTS", "held", "refused"]).int(), 1, "{MASTER_NAME}");
        // From now on the other replica is required.
        eventually("one replica is online", AGREED, || {
            raw.call(&["ROLE"]).array()[2].array().len() == 1
        });
        let guard = within("the next", SOON, client.fair_lock("refused").lock()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(held.release().await.unwrap(), Release::Released);
    });
}

/// While replicas were asked, nobody who gave up was heard: the primary kept the lock for them for as
/// long as that took, or for its whole lease.
#[test]
fn who_gives_up_before_the_replicas_answer_leaves_nothing() {
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let give_up = |how: &'static str| {
            let set = &set;
            async move {
                let client = connect(strict(&set.primary().url(), Replicas::AtLeast(1))).await;
                let lock = client.fair_lock(how);
                let asked = tokio::spawn(async move { lock.lock().await });
                eventually("the primary has it", SOON, || is_held(set.primary(), how));
                assert!(!asked.is_finished(), "{how}");
                (client, asked)
            }
        };
        set.replica(0).stop();
        let (_client, dropped) = give_up("dropped").await;
        let (client, closed) = give_up("closed").await;
        let began = Instant::now();
        dropped.abort();
        let (ended, _) = tokio::join!(closed, client.shutdown());
        assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Closed);
        for how in ["dropped", "closed"] {
            eventually("the primary has given it up", SOON, || !is_held(set.primary(), how));
        }
        // The replicas would have had this long to answer.
        let took = began.elapsed();
        measured("nobody's lock", took);
        assert!(took < SOON, "{took:?}");
        set.replica(0).cont();
    });
}

/// Many simultaneous locks share the waits for replicas.
#[test]
fn many_locks_wait_together() {
    const TASKS: usize = 200;
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let client = connect(strict(&set.primary().url(), Replicas::AtLeast(1))).await;
        let waits = || {
            let info = set.raw().call(&["INFO", "commandstats"]);
            let line = info.text().lines().find(|line| line.starts_with("cmdstat_wait:"));
            let calls = line.and_then(|line| line.split(['=', ',']).nth(1).unwrap().parse().ok());
            calls.unwrap_or(0_usize)
        };
        // The test kit waits for replicas as well.
        let before = waits();
        set.replica(0).stop();
        let mut tasks = Vec::new();
        for n in 0..TASKS {
            let lock = client.plain_lock(format!("job-{n}"));
            tasks.push(tokio::spawn(async move { lock.lock().await }));
        }
        let held = || (0..TASKS).all(|n| is_held(set.primary(), &format!("job-{n}")));
        eventually("the primary has all", SOON, held);
        set.replica(0).cont();
        let mut guards = Vec::new();
        for task in tasks {
            guards.push(within("each", SOON, task).await.unwrap().unwrap());
        }
        let waits = waits() - before;
        assert!((1..=5).contains(&waits), "{waits} waits for {TASKS} locks");
        for guard in &guards {
            assert_eq!(guard.state(), GuardState::Held);
        }
    });
}

/// Settings that cannot work are refused before anything is sent.
#[tokio::test]
async fn only_servers_have_replicas() {
    for url in ["memory:", "sqlite:/tmp/never-made/locks"] {
        let config = Config::from_url(url).unwrap().replicas(Replicas::AtLeast(1));
        let error = Client::with_config(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
    }
    for url in [
        "redis://h/?replicas=0x1",
        "redis://h/?replicas=all&replicas=",
        "unix:/s?replicas-timeout-ms=1s",
        "redis+sentinel://h/m?replicas=101",
    ] {
        assert_eq!(Config::from_url(url).unwrap_err().kind(), ErrorKind::Misuse, "{url}");
    }
    for timeout in [ms(9), Duration::from_secs(3_601)] {
        let config = Config::tcp("127.0.0.1", 1).replicas_timeout(timeout);
        let error = Client::with_config(config).await.unwrap_err();
        assert!(error.to_string().contains("replicas_timeout"), "{error}");
    }
}

/// Sentinels name a new primary before the old one stops, and what the old one carries out in
/// between is lost: here the replica is cut off, locks are released and a place is given up, and
/// then the address leads to the replica. The client repeats both there: nobody waits for a lease
/// to end, or for a waiter that has gone.
#[test]
fn what_was_given_back_lately_is_given_back_once_more() {
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let proxy = Proxy::start(set.primary().addr());
        let config = || strict(&proxy.url(), Replicas::None).watchdog_lease(20 * LEASE);
        let (first, second) = (connect(config()).await, connect(config()).await);
        let mut guards = Vec::new();
        for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
            let name = format!("{kind:?}");
            guards.push(lock_of(&first, kind, &name).lock().await.unwrap());
        }
        let held = second.fair_lock("queue").lock().await.unwrap();
        let left = first.fair_lock("queue").enqueue().await.unwrap();
        let mut stays = second.fair_lock("queue").enqueue().await.unwrap();
        await_acknowledged(&mut set.raw(), 1);
        let mut replica = set.replica(0).client();
        let queue = ["LLEN", "redisson_lock_queue:{queue}"];
        assert_eq!(replica.call(&queue).int(), 2);

        set.promote(0);
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        left.leave().await.unwrap();
        assert_eq!(set.raw().call(&queue).int(), 1);
        assert_eq!(replica.call(&queue).int(), 2);
        assert_eq!(replica.call(&["EXISTS", "Fair", "Plain", "Simple"]).int(), 3);

        proxy.move_to(set.replica(0).addr());
        proxy.cut_all();
        let began = Instant::now();
        eventually("the locks are free there", SOON, || {
            replica.call(&["EXISTS", "Fair", "Plain", "Simple"]).int() == 0
        });
        eventually("the place is left there", SOON, || replica.call(&queue).int() == 1);
        measured("moved to given back", began.elapsed());
        assert_eq!(held.release().await.unwrap(), Release::Released);
        let _ =
            within("the other's turn", SOON, stays.wait()).await.unwrap().release().await.unwrap();
    });
}

/// On a Cluster the replicas of the lock's own node must have it: a frozen one holds up the locks
/// of its master and no others. After its master has died, it has what was acquired.
#[test]
fn each_node_of_a_cluster_has_replicas_of_its_own() {
    in_real_time(|| async {
        let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
        // The first acknowledgement may come a second after the start.
        for master in 0..2 {
            await_acknowledged(&mut cluster.raw(master), 1);
        }
        let config = strict(&cluster.url(), Replicas::AtLeast(1)).replicas_timeout(SHORT);
        let config = config.watchdog_lease(20 * LEASE).store_timeout(2 * SOON);
        let client = connect(config.response_timeout(Duration::from_secs(3))).await;
        let named = |master: usize| {
            let mut names = (0..).map(|number| format!("job-{number}"));
            names.find(|name| cluster.master_of(slot(name.as_bytes())) == Some(master)).unwrap()
        };
        let (here, there) = (named(0), named(1));
        for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
            let guard =
                within("the lock", SOON, lock_of(&client, kind, &here).lock()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        let held = client.fair_lock(&here).lock().await.unwrap();
        let replica = cluster.replica_of(0).expect("it has one");
        cluster.nodes()[replica].stop();
        let other = format!("{{{here}}}-other");
        refused(&client.fair_lock(&other)).await;
        let guard = within("elsewhere", SOON, client.fair_lock(&there).lock()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        cluster.nodes()[replica].cont();

        assert_eq!(cluster.kill_master(slot(here.as_bytes())), replica);
        // The new master has no replica: the guard stays valid until a renewal is due.
        assert_ne!(held.state(), GuardState::Lost);
        assert!(is_held(&cluster.nodes()[replica], &here));
        assert!(!is_held(&cluster.nodes()[replica], &other), "it was never returned");
        refused(&client.fair_lock(&other)).await;
    });
}

/// D14: a detached lock was renewed on the primary alone: after a failover it ended with the last
/// acknowledged renewal, although `detach` had promised more.
#[test]
fn d14_a_lock_that_is_left_behind_is_acknowledged() {
    steady(|| async {
        let Some(set) = Replicated::start(Generation::Redis70, 1) else { return };
        let config = strict(&set.primary().url(), Replicas::AtLeast(1)).replicas_timeout(SHORT);
        let client = connect(config).await;
        for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
            let lock = lock_of(&client, kind, &format!("{kind:?}"));
            let guard = within("the lock", SOON, lock.lock()).await.unwrap();
            set.replica(0).stop();
            let error = within("the refusal", SOON, guard.detach()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
            set.replica(0).cont();
            // The refused `detach` has released the guard like a drop.
            let again = within("the next", SOON, lock.lock()).await.unwrap();
            within("detached", SOON, again.detach()).await.unwrap();
            lock.force_unlock().await.unwrap();
        }
    });
}
