//! Sentinel: the master is found, and found again after a failover.
//!
//! Failovers take the Sentinels seconds; nothing here sleeps for them. Waits end on conditions,
//! within bounds far above the measured times.

use super::{AGREED, LEASE, connect, patient};
use crate::faults::fixture::{config, eventually, inbox, measured, ms, within};
use crate::support::in_real_time;
use fairlock::{Client, Config, ConnectionState, ErrorKind, Guard, GuardState, Release, Turn};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::topology::{Login, MASTER_NAME, SentinelSet, await_acknowledged};
use fairlock_testkit::wait;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A holder and four waiters behind it, alternately of two clients.
pub(super) struct Scene {
    pub(super) guard: Guard,
    pub(super) turns: Vec<Turn>,
}

impl Scene {
    pub(super) async fn begin(clients: &[Client; 3], name: &str) -> Self {
        let guard = within("the hold", AGREED, clients[0].fair_lock(name).lock()).await;
        let mut turns = Vec::new();
        for n in [1, 2, 1, 2] {
            turns.push(clients[n].fair_lock(name).enqueue().await.unwrap());
        }
        Self { guard: guard.unwrap(), turns }
    }

    /// All waiters get the lock in order, with rising tokens.
    pub(super) async fn all_in_turn(turns: Vec<Turn>, mut token: u64) {
        for mut turn in turns {
            let guard = within("the turn", AGREED, turn.wait()).await.unwrap();
            assert!(guard.token().get() > token, "tokens rise");
            token = guard.token().get();
            let _ = guard.release().await.unwrap();
        }
    }
}

pub(super) async fn three(url: &str) -> [Client; 3] {
    [connect(patient(url)).await, connect(patient(url)).await, connect(patient(url)).await]
}

/// Waits until the clients have both connections to the master, whichever that is by then: on a
/// busy machine two Sentinels may each carry out a failover, one right after the other.
pub(super) fn followed(set: &SentinelSet, clients: &[Client]) {
    eventually("the clients have followed", AGREED, || {
        let Some(master) = set.agreed_master() else { return false };
        // A new connection for each look: the Sentinels close existing ones.
        let hears = |client: &Client| {
            let reply = set.raw(master).try_call(&["PUBSUB", "NUMSUB", &inbox(client)]);
            reply.is_ok_and(|reply| reply.array()[1].int() == 1)
        };
        clients.iter().all(hears)
            && clients
                .iter()
                .all(|client| *client.connection().borrow() == ConnectionState::Connected)
    });
}

#[track_caller]
pub(super) fn until_state(guard: &Guard, state: GuardState) -> impl Future<Output = Duration> {
    let what = format!("the guard is {state:?}");
    wait::until_async(what, AGREED, async move || guard.state() == state)
}

/// F45: failovers in which the replicas have everything, ordered and after the master's death: the
/// guard stays valid, waiters keep their places, tokens continue to rise. F40: a failover after the
/// replication link was cut: what the new master never received is lost, the holder is told, and
/// its waiters return in their order.
#[test]
fn f40_f45_failovers() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let clients = three(&set.url()).await;

        for how in ["ordered", "master killed"] {
            let scene = Scene::begin(&clients, "job").await;
            let token = scene.guard.token().get();
            let master = set.master();
            await_acknowledged(&mut set.raw(master), 2);
            let began = Instant::now();
            match how {
                "ordered" => set.fail_over(),
                _ => set.kill_master(),
            };
            measured(&format!("{how}: until Sentinels name another"), began.elapsed());
            // Sentinels do not stop the old master first: what it carries out from now on is lost.
            followed(&set, &clients);
            measured(&format!("{how}: until all have followed"), began.elapsed());
            let release = within("the release", AGREED, scene.guard.release()).await.unwrap();
            assert_eq!(release, Release::Released, "{how}");
            Scene::all_in_turn(scene.turns, token).await;
            measured(&format!("{how}: until all were served"), began.elapsed());
            if how == "master killed" {
                set.data()[master].restart();
            }
            set.await_whole();
        }

        set.cut_replication();
        let scene = Scene::begin(&clients, "job").await;
        let token = scene.guard.token().get();
        let began = Instant::now();
        set.kill_master();
        let took = until_state(&scene.guard, GuardState::Lost).await;
        measured("tail lost: until the holder was told", took);
        assert!(began.elapsed() < LEASE, "long before the lease ends");
        Scene::all_in_turn(scene.turns, token).await;
        measured("tail lost: until all were served", began.elapsed());
    });
}

/// Of three Sentinels one is dead and one accepts connections but never replies: the third is
/// enough.
#[test]
fn f46_a_sentinel_that_answers_is_enough() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis62) else { return };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let places = [closed, silent.local_addr().unwrap(), set.addresses()[2]];
        let places = places.map(|addr| (addr.ip().to_string(), addr.port()));
        let client = connect(Config::sentinel(places, MASTER_NAME)).await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        drop(silent);
    });
}

/// A Sentinel that missed the last failovers names an old master, which also reports itself as
/// master. The reply with the latest epoch counts, whichever comes first.
#[test]
fn f46_the_latest_failover_counts() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Valkey91) else { return };
        set.kill_master();
        let Some(stale) = Server::start(Generation::Valkey91) else { return };
        let watch = format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {} 2\n", stale.port());
        let sleepy =
            Server::builder_of_sentinel(Generation::Valkey91).config(&watch).start().unwrap();
        for sentinels in [
            [sleepy.addr(), set.addresses()[0], set.addresses()[1]],
            [set.addresses()[1], set.addresses()[2], sleepy.addr()],
        ] {
            let places = sentinels.map(|addr| (addr.ip().to_string(), addr.port()));
            let client = connect(Config::sentinel(places, MASTER_NAME)).await;
            let guard = client.fair_lock("job").lock().await.unwrap();
            eventually("the master has it", AGREED, || {
                let raw = set.agreed_master().map(|master| set.raw(master));
                raw.is_some_and(|mut raw| raw.call(&["EXISTS", "job"]).int() == 1)
            });
            assert_eq!(stale.client().call(&["EXISTS", "job"]).int(), 0);
            let _ = guard.release().await.unwrap();
        }
    });
}

/// Both logins are needed; a wrong one is refused at once, with an error that says by whom and
/// shows no password.
#[test]
fn f46_both_logins_are_needed() {
    in_real_time(|| async {
        let login = Login { data: Some("CANARY-d".into()), sentinels: Some("CANARY-s".into()) };
        let Some(set) = SentinelSet::start_with(Generation::Redis70, login, &[]) else { return };
        let with = |data: &str, sentinels: &str| {
            let config = config(&set.url()).connect_timeout(Duration::from_secs(5));
            config.password(data).sentinel_password(sentinels)
        };
        let client = connect(with("CANARY-d", "CANARY-s")).await;
        let _ = client.fair_lock("job").lock().await.unwrap().release().await.unwrap();
        for (data, sentinels) in [("CANARY-x", "CANARY-s"), ("CANARY-d", "CANARY-x")] {
            let error = Client::with_config(with(data, sentinels)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(!format!("{error} {error:?}").contains("CANARY"), "{error}");
        }
        // The same by URL.
        let url = set.url().replace("://", "://:CANARY-d@");
        let by_url = config(&format!("{url}?sentinel-password=CANARY-s"));
        let client = connect(by_url.connect_timeout(ms(5_000))).await;
        client.ping().await.unwrap();
    });
}

/// A name that no Sentinel knows, and servers that are not Sentinels, are refused at once, with the
/// reason.
#[test]
fn f46_wrong_names_and_wrong_servers_are_told() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let url = set.url().replace(&format!("/{MASTER_NAME}"), "/lokcs");
        let patient = config(&url).connect_timeout(ms(5_000));
        let error = Client::with_config(patient).await.unwrap_err();
        assert!(error.to_string().contains("no master named `lokcs`"), "{error}");

        let Some(server) = Server::start(Generation::Redis70) else { return };
        let addr = server.addr();
        let place = [(addr.ip().to_string(), addr.port())];
        let error = Client::with_config(Config::sentinel(place, MASTER_NAME)).await.unwrap_err();
        assert!(error.to_string().contains("it is no Sentinel"), "{error}");
    });
}

/// A connected client follows an announced failover without waiting for the old master: the old one
/// is frozen here, and pings would find it dead only after a minute.
#[test]
fn f46_an_announced_failover_is_followed_at_once() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let seldom = Duration::from_secs(60);
        let client = connect(patient(&set.url()).ping_interval(seldom).ping_timeout(seldom)).await;
        let old = set.master();
        set.data()[old].stop();
        set.await_master_after(old);
        let began = Instant::now();
        within("an answer of the new master", AGREED, async {
            while client.ping().await.is_err() {
                tokio::time::sleep(ms(10)).await;
            }
        })
        .await;
        measured("failover announced to followed", began.elapsed());
        set.data()[old].cont();
        eventually("the old master is a replica", AGREED, || {
            // It closes its connections as it becomes a replica.
            let role = set.raw(old).try_call(&["ROLE"]);
            role.is_ok_and(|role| role.array()[0].text() == "slave")
        });
    });
}

/// D18: the Sentinel that carries out a failover names the new master at once, and announces it a
/// second or two later, when the replicas follow. A client that had connected in between closed
/// both connections to that very server. A waiter whose turn came before its inbox was back counted
/// as dead: live waiters were overtaken for no reason.
#[test]
fn d18_an_announcement_of_the_master_that_is_connected_moves_nobody() {
    in_real_time(|| async {
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        // The failover is ordered there, so this is the Sentinel that announces late.
        let sentinel = set.addresses()[0];
        let places = [(sentinel.ip().to_string(), sentinel.port())];
        let seldom = Duration::from_secs(60);
        let subscribers =
            |raw: &mut Raw| raw.call(&["CLIENT", "LIST"]).text().matches(" sub=1").count();
        let connections = |raw: &mut Raw| {
            let list = raw.call(&["CLIENT", "LIST"]).text().to_owned();
            let ours = list.lines().filter(|line| line.contains(" name=fairlock "));
            let ids = ours.filter_map(|line| line.split(' ').next().map(str::to_owned));
            // Redis lists them in no promised order.
            ids.collect::<std::collections::BTreeSet<_>>()
        };
        for _ in 0..5 {
            let mut announced = set.raw_sentinel(0);
            announced.subscribe("+switch-master");
            let before = subscribers(&mut set.raw_sentinel(0));
            let master = set.fail_over();
            let config = Config::sentinel(places.clone(), MASTER_NAME);
            let client = connect(config.ping_interval(seldom).ping_timeout(seldom)).await;
            eventually("it listens", AGREED, || subscribers(&mut set.raw_sentinel(0)) > before);
            let mut raw = set.raw(master);
            let connected = connections(&mut raw);
            assert_eq!(connected.len(), 2, "commands and inbox");
            let early = announced.message_within(Duration::ZERO).is_some();
            if !early {
                announced.message_within(AGREED).expect("it is announced");
                // A client that reacted to the announcement has closed its connections by now.
                tokio::time::sleep(ms(300)).await;
                assert_eq!(connections(&mut raw), connected, "they are as good as before");
                assert_eq!(*client.connection().borrow(), ConnectionState::Connected);
            }
            drop(client);
            set.await_whole();
            if !early {
                return;
            }
        }
        panic!("five failovers were announced before anybody could connect: this shows nothing");
    });
}

/// D18 as it was observed: waiters of live clients were overtaken while a completed failover was
/// announced. With many locks, so that some are handed over at that very moment; each is released
/// and queued for again and again until it is over.
#[test]
fn d18_nobody_is_overtaken_while_a_failover_is_announced() {
    in_real_time(|| async {
        const LOCKS: usize = 24;
        let Some(set) = SentinelSet::start(Generation::Redis70) else { return };
        let mut announced = set.raw_sentinel(0);
        announced.subscribe("+switch-master");
        set.fail_over();
        let clients = three(&set.url()).await;
        let (over, is_over) = tokio::sync::watch::channel(false);
        let rounds = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for number in 0..LOCKS {
            let (clients, is_over) = (clients.clone(), is_over.clone());
            let rounds = Arc::clone(&rounds);
            tasks.push(tokio::spawn(async move {
                while !*is_over.borrow() {
                    let name = format!("job-{number}");
                    let held = within("the hold", AGREED, clients[0].fair_lock(&name).lock()).await;
                    let served = Arc::new(Mutex::new(Vec::new()));
                    let mut waiting = Vec::new();
                    for n in [1, 2, 0] {
                        let mut turn = clients[n].fair_lock(&name).enqueue().await.unwrap();
                        let served = Arc::clone(&served);
                        waiting.push(tokio::spawn(async move {
                            let guard = within("the turn", AGREED, turn.wait()).await.unwrap();
                            served.lock().unwrap().push(n);
                            let _ = guard.release().await.unwrap();
                        }));
                    }
                    let _ = held.unwrap().release().await.unwrap();
                    for waiting in waiting {
                        waiting.await.unwrap();
                    }
                    assert_eq!(*served.lock().unwrap(), [1, 2, 0], "in the order of the queue");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let heard = tokio::task::spawn_blocking(move || announced.message_within(AGREED)).await;
        heard.unwrap().expect("it is announced");
        // The test is about time: a client that reacts has reconnected by now.
        tokio::time::sleep(ms(500)).await;
        let seen = || rounds.load(Ordering::Relaxed);
        eventually("more than a round of each", AGREED, || seen() > LOCKS);
        over.send_replace(true);
        for task in tasks {
            task.await.unwrap();
        }
        println!("measured: {} rounds of {LOCKS} locks while the failover was announced", seen());
    });
}
