//! One part of a topology is dead, frozen or cut off: new and old clients of the other parts
//! continue, and a wait includes the failover.

use super::cluster::name_at;
use super::{AGREED, connect, patient};
use crate::faults::fixture::{measured, ms, within};
use crate::support::{in_real_time, real_time};
use fairlock::{Client, Config, ErrorKind, LockEntry, Release, ShardedPubSub};
use fairlock_testkit::network::Network;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{Cluster, MASTER_NAME, SentinelSet, await_acknowledged};
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

/// Far below the connect timeout of 5 s, and far above what it takes.
const AT_ONCE: Duration = Duration::from_secs(3);

/// So many new clients that each part of the Cluster has the slot of some client's inbox: without
/// the fix, the chance that all of them miss the dead part is below 1 %.
const NEWCOMERS: usize = 12;

/// How a part fails.
#[derive(Clone, Copy, Debug)]
enum How<'a> {
    Dead,
    Frozen,
    /// It lives, but everything sent to or from its port is lost.
    CutOff(&'a Network),
}

impl How<'_> {
    fn befall(self, part: &Server) {
        match self {
            Self::Dead => part.kill9(),
            Self::Frozen => part.stop(),
            Self::CutOff(network) => network.cut(part.port()),
        }
    }

    fn undo(self, part: &Server) {
        match self {
            Self::Dead => part.restart(),
            Self::Frozen => part.cont(),
            Self::CutOff(network) => network.mend(part.port()),
        }
    }
}

/// Plays a story in a network of its own, where parts can be cut off.
fn in_a_network(story: impl AsyncFnOnce(How<'_>) + Send) {
    thread::scope(|scope| {
        let name = thread::current().name().unwrap_or("a part cut off").to_owned();
        let run = || {
            let Some(network) = Network::enter() else { return };
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(story(How::CutOff(&network)));
        };
        let ended = thread::Builder::new().name(name).spawn_scoped(scope, run).unwrap().join();
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// A hand-over between two clients.
async fn hand_over(name: &str, from: &Client, to: &Client) {
    let held = within("the hold", AT_ONCE, from.fair_lock(name).lock()).await.unwrap();
    let mut turn = to.fair_lock(name).enqueue().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Release::Released);
    let next = within("the turn", AT_ONCE, turn.wait()).await.unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

/// All locks found, and the error that ended the listing.
async fn listed(client: &Client) -> (Vec<LockEntry>, Option<fairlock::Error>) {
    let (mut locks, mut found) = (client.locks(), Vec::new());
    loop {
        match locks.next_page().await {
            Ok(Some(page)) => found.extend(page),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// D36: a new client's first contact went to the node that serves the slot of its own inbox,
/// whichever that was: with one of three masters dead, every third client was refused, and with one
/// frozen, each took 5 s. A listing did not show the locks of the live nodes.
#[test]
fn d36_a_dead_or_frozen_shard_concerns_its_own_locks_alone() {
    in_real_time(|| async {
        for how in [How::Dead, How::Frozen] {
            a_shard_goes(how).await;
        }
    });
}

/// The same where the clients get no sign of it and the other nodes do.
#[test]
fn d36_a_shard_that_is_cut_off_concerns_its_own_locks_alone() {
    real_time(|_| in_a_network(a_shard_goes));
}

async fn a_shard_goes(how: How<'_>) {
    let settings = [("--cluster-require-full-coverage", "no")];
    let Some(cluster) = Cluster::start_with(Generation::Redis70, &settings) else { return };
    let (dead, living) = (name_at(&cluster, 0), [name_at(&cluster, 1), name_at(&cluster, 2)]);
    let config = || patient(&cluster.url()).ping_interval(ms(500)).ping_timeout(ms(500));
    let old = connect(config()).await;
    let held = old.fair_lock(&living[0]).lock().await.unwrap();
    let elsewhere = old.fair_lock(&dead).lock().await.unwrap();
    // No replica takes over, so it stays like this.
    how.befall(&cluster.nodes()[3]);
    how.befall(&cluster.nodes()[0]);

    let mut slowest = Duration::ZERO;
    for n in 0..NEWCOMERS {
        let sharded = if n % 4 == 3 { ShardedPubSub::Off } else { ShardedPubSub::Auto };
        let began = Instant::now();
        let new = Client::with_config(config().sharded_pubsub(sharded));
        let new = within("a new client", AT_ONCE, new).await.unwrap();
        slowest = slowest.max(began.elapsed());
        if sharded == ShardedPubSub::Auto {
            hand_over(&living[1], &new, &old).await;
            hand_over(&living[1], &old, &new).await;
        }
        assert!(new.fair_lock(&living[0]).try_lock().await.unwrap().is_none(), "it is held");
    }
    measured(&format!("{how:?}: the slowest new client of {NEWCOMERS}"), slowest);

    // What cannot be reached is reported, after no longer than the requested wait.
    let error = old.fair_lock(&dead).try_lock_for(ms(500)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    let (found, error) = within("the listing", AGREED, listed(&old)).await;
    let shown = found.iter().any(|lock| lock.name.as_bytes() == living[0].as_bytes());
    assert!(shown && found.iter().all(|lock| lock.name.as_bytes() != dead.as_bytes()), "{found:?}");
    let error = error.expect("not all of it is known");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("0-5460"), "{error}");
    assert_eq!(held.release().await.unwrap(), Release::Released);

    how.undo(&cluster.nodes()[0]);
    how.undo(&cluster.nodes()[3]);
    let back = async {
        while old.fair_lock(&dead).inspect().await.is_err() {
            tokio::time::sleep(ms(20)).await;
        }
    };
    within("its locks are back", AGREED, back).await;
    drop(elsewhere);
    let (_, error) = within("the listing", AGREED, listed(&old)).await;
    assert!(error.is_none(), "all is known again: {error:?}");
}

/// D37: a client that connects right after a master has died is refused at once, unless it asked to
/// wait: then it retries the first connection until a replica has taken over.
#[test]
fn d37_a_first_connection_is_tried_for_as_long_as_was_said() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let old = set.master();
        set.data()[old].kill9();
        let began = Instant::now();
        let config = || Config::from_url(&set.url()).unwrap();
        let error = within("a refusal", AT_ONCE, Client::with_config(config())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let client = connect(config().connect_retry(AGREED)).await;
        measured("until a replica had taken over", began.elapsed());
        let guard = within("the hold", AGREED, client.fair_lock("job").lock()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);

        // A permanent error is reported at once, a passing one when the time is over.
        let wrong = set.url().replace("/locks", "/lokcs");
        let config = Config::from_url(&wrong).unwrap().connect_retry(AGREED);
        let error = Client::with_config(config).await.unwrap_err();
        assert!(error.to_string().contains("lokcs"), "{error}");
        // A password that is read anew for each connection may become right; for now it is wrong.
        let locked =
            Server::builder(Generation::Redis70).arg("--requirepass", "right").start().unwrap();
        let config = Config::from_url(&locked.url()).unwrap().connect_retry(AGREED);
        let error = Client::with_config(config.password_from(|| {
            Ok::<_, std::convert::Infallible>(fairlock::Credentials::new("wrong"))
        }));
        let error = within("a refusal", AT_ONCE, error).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let began = Instant::now();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = Config::tcp("127.0.0.1", closed.port()).connect_retry(ms(700));
        let error = Client::with_config(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() >= ms(700) && began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    });
}

/// D38: in an ordered failover the old master replies for a second after its replica was promoted,
/// and nobody tells the new one. A client that ended right after such a release left the lock idle
/// for the rest of its lease, 27 s. Now it asks the Sentinels before it ends, and stays until the
/// new master was told.
#[test]
fn d38_a_client_that_ends_in_a_failover_tells_the_new_master() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        // Sentinels close the connections of servers whose role changes.
        let is_master = |server: usize| {
            let raw = set.data()[server].try_client();
            let reply = raw.and_then(|mut raw| raw.try_call(&["ROLE"]));
            reply.is_ok_and(|role| role.array()[0].text() == "master")
        };
        let exists = |server: usize| set.raw(server).call(&["EXISTS", "job"]).int() == 1;
        for _ in 0..5 {
            let old = set.master();
            let client = connect(Config::from_url(&set.url()).unwrap()).await;
            let guard = client.fair_lock("job").lock().await.unwrap();
            await_acknowledged(&mut set.raw(old), 2);
            let ordered = set.raw_sentinel(0).call(&["SENTINEL", "FAILOVER", MASTER_NAME]);
            assert!(!ordered.text().contains("ERR"), "{ordered:?}");
            let new = tokio::task::block_in_place(|| {
                let began = Instant::now();
                loop {
                    let promoted = (0..set.data().len()).find(|n| *n != old && is_master(*n));
                    if let Some(new) = promoted {
                        break new;
                    }
                    assert!(began.elapsed() < AGREED, "nobody is promoted");
                }
            });
            let release = within("the release", AGREED, guard.release()).await.unwrap();
            assert_eq!(release, Release::Released);
            // Otherwise the client had already followed the failover.
            let by_the_old_one = !exists(old) && exists(new);
            let began = Instant::now();
            within("the end of the client", AGREED, client.shutdown()).await;
            if by_the_old_one {
                measured("the end of a client in a failover", began.elapsed());
            }
            assert!(!exists(new), "the new master was told");
            assert_eq!(set.await_master_after(old), new);
            set.await_whole();
            if by_the_old_one {
                // Without a failover there is no wait.
                let client = connect(Config::from_url(&set.url()).unwrap()).await;
                let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
                let began = Instant::now();
                client.shutdown().await;
                measured("the end of a client without one", began.elapsed());
                // With one it would be five seconds.
                assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
                return;
            }
        }
        panic!("in none of five failovers the old master answered: this shows nothing");
    });
}

/// Any one part: a Sentinel, a replica or the master is dead or frozen. New clients work, at once
/// if the master lives; an earlier holder and waiter keep what they have, and continue.
#[test]
fn any_one_part_of_a_sentinel_set_may_go() {
    in_real_time(|| async {
        for how in [How::Dead, How::Frozen] {
            each_part_goes(how).await;
        }
    });
}

/// The same with parts that are cut off: nobody is told that a connection has ended.
#[test]
fn any_one_part_of_a_sentinel_set_may_be_cut_off() {
    real_time(|_| in_a_network(each_part_goes));
}

async fn each_part_goes(how: How<'_>) {
    for part in ["a Sentinel", "a replica", "the master"] {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let config = || patient(&set.url()).connect_retry(AGREED);
        let (holder, waiter) = (connect(config()).await, connect(config()).await);
        let held = holder.fair_lock("job").lock().await.unwrap();
        let mut turn = waiter.fair_lock("job").enqueue().await.unwrap();
        let master = set.master();
        await_acknowledged(&mut set.raw(master), 2);
        let server = match part {
            "a Sentinel" => &set.sentinels()[0],
            "a replica" => &set.data()[(master + 1) % 3],
            _ => &set.data()[master],
        };
        how.befall(server);
        let began = Instant::now();
        let limit = if part == "the master" { AGREED } else { AT_ONCE };
        let new = within("a new client", limit, Client::with_config(config())).await.unwrap();
        let other = within("a lock", limit, new.fair_lock("other").lock()).await.unwrap();
        measured(&format!("{part}, {how:?}: until a new client had its lock"), began.elapsed());
        assert_eq!(other.release().await.unwrap(), Release::Released);
        assert_eq!(held.release().await.unwrap(), Release::Released, "{part}, {how:?}");
        let next = within("the turn", AGREED, turn.wait()).await.unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Released);
        measured(&format!("{part}, {how:?}: until the waiter was served"), began.elapsed());
        how.undo(server);
    }
}

/// The same on a Cluster: a new client for a lock of a master that has just died or stopped waits
/// through the failover; an old client's waiter gets the lock after it.
#[test]
fn a_shards_failover_is_a_part_of_the_wait() {
    in_real_time(|| async {
        for how in [How::Dead, How::Frozen] {
            let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
            let name = name_at(&cluster, 0);
            let config = || patient(&cluster.url()).connect_retry(AGREED);
            let (holder, waiter) = (connect(config()).await, connect(config()).await);
            let held = holder.fair_lock(&name).lock().await.unwrap();
            let mut turn = waiter.fair_lock(&name).enqueue().await.unwrap();
            await_acknowledged(&mut cluster.raw(0), 1);
            how.befall(&cluster.nodes()[0]);
            let began = Instant::now();
            let new = connect(config()).await;
            let other = new.fair_lock(format!("{{{name}}}2"));
            let other = within("a lock of the same shard", AGREED, other.lock()).await.unwrap();
            measured(&format!("{how:?}: until a new client had its lock"), began.elapsed());
            assert_eq!(other.release().await.unwrap(), Release::Released);
            let release = within("the release", AGREED, held.release()).await.unwrap();
            assert_eq!(release, Release::Released);
            let next = within("the turn", AGREED, turn.wait()).await.unwrap();
            assert_eq!(next.release().await.unwrap(), Release::Released);
            measured(&format!("{how:?}: until the waiter was served"), began.elapsed());
            how.undo(&cluster.nodes()[0]);
        }
    });
}
