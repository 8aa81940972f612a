//! Read-write locks and semaphores, where a fault costs something else than it costs a fair lock: many hold at
//! once, each with a lease of its own, and many are let in by one call.

use super::fixture::{
    D, Fixture, HB, LEASE, SLACK, client, config, eventually, key, measured, ms, steady, within,
};
use super::load::{Storm, TURNS_MIN};
use fairlock::{Client, ErrorKind, Guard, GuardState, Release, Turn};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// As many readers as wait for one writer here.
const READERS: usize = 100;

/// Long enough that all clients are back before the gathering after a loss of state ends.
const BEAT: Duration = Duration::from_secs(1);

/// Those who wait to read, in the order in which they came.
async fn readers(client: &Client, count: usize) -> Vec<Turn> {
    let lock = client.rw_lock("c");
    let mut turns = Vec::new();
    for _ in 0..count {
        turns.push(lock.enqueue_read().await.unwrap());
    }
    turns
}

/// All their guards, of which the last must come in time.
async fn all(turns: Vec<Turn>, limit: Duration) -> Vec<Guard> {
    let waits = turns.into_iter().map(|mut turn| async move { turn.wait().await.unwrap() });
    let mut tasks = Vec::new();
    for wait in waits {
        tasks.push(tokio::spawn(wait));
    }
    let mut guards = Vec::new();
    let until = Instant::now() + limit;
    for task in tasks {
        let left = until.saturating_duration_since(Instant::now());
        guards.push(within("every reader's turn", left, task).await.unwrap());
    }
    guards
}

/// They read at the same time: one token, and all are valid.
#[track_caller]
fn read_together(guards: &[Guard]) {
    for guard in guards {
        guard.ensure_valid().unwrap();
        assert_eq!(guard.token(), guards[0].token());
    }
}

async fn release_all(guards: Vec<Guard>) {
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// How many stand in the line.
#[track_caller]
fn waiting(fixture: &Fixture) -> i64 {
    fixture.call(&["ZCARD", &key("fairlock_rw_order", "c")]).int()
}

async fn state_of(guard: &Guard, wanted: GuardState, limit: Duration) -> Duration {
    let began = Instant::now();
    let reached = async {
        let mut state = guard.state();
        while state != wanted {
            state = guard.state_changed(state).await;
        }
    };
    within(&format!("the guard is {wanted:?}"), limit, reached).await;
    began.elapsed()
}

/// F59: a writer lets a hundred readers of one client in with one message, and that is lost. The client's next
/// heartbeats find them all: the oldest of them first, and with it those behind.
#[test]
fn f59_the_message_that_lets_a_hundred_readers_in_is_lost() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let proxy = Proxy::start(fixture.server.addr());
            let (writes, reads) = (fixture.client().await, client(&proxy.url()).await);
            let written = writes.rw_lock("c").write().await.unwrap();
            let turns = readers(&reads, READERS).await;
            proxy.swallow_pushes(true);
            let released = Instant::now();
            assert_eq!(written.release().await.unwrap(), Release::Released);
            let guards = all(turns, 2 * HB + SLACK).await;
            measured(&format!("f59 {}: all by heartbeat", generation.name()), released.elapsed());
            assert_eq!(proxy.counts().pushes_swallowed, 1, "one message was to tell all");
            read_together(&guards);
            // More than a lease: each of them is renewed.
            tokio::time::sleep(LEASE + LEASE / 2).await;
            read_together(&guards);
            release_all(guards).await;
        }
    });
}

/// F59: the message comes eleven times. Each reader has one guard, and the copies are counted as one each.
#[test]
fn f59_the_message_that_lets_readers_in_comes_again() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (writes, reads) = (fixture.client().await, client(&proxy.url()).await);
        let written = writes.rw_lock("c").write().await.unwrap();
        let turns = readers(&reads, 3).await;
        proxy.duplicate_pushes(10);
        let calls = fixture.script_calls();
        let _ = written.release().await.unwrap();
        let guards = all(turns, SLACK).await;
        read_together(&guards);
        proxy.wait_until(|counts| counts.pushes_duplicated == 10);
        release_all(guards).await;
        // Four releases, and what was due anyhow; a call for each copy would make ten more.
        let calls = fixture.script_calls() - calls;
        assert!(calls <= 4 + 8, "{calls} scripts");
    });
}

/// F31, F58: the connection of the inbox dies while a hundred readers wait behind a writer, at the moment at which it
/// lets them in: they count as dead then, as nobody hears for them, and return to their places.
#[test]
fn f31_f58_the_inbox_dies_while_a_hundred_readers_wait() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (writes, reads) = (fixture.client().await, fixture.client().await);
        for _ in 0..3 {
            let written = writes.rw_lock("c").write().await.unwrap();
            let turns = readers(&reads, READERS).await;
            assert_eq!(waiting(&fixture), READERS as i64);
            let released = Instant::now();
            fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            assert_eq!(written.release().await.unwrap(), Release::Released);
            let guards = all(turns, 2 * HB + 2 * SLACK).await;
            measured("f58 a hundred readers without an inbox", released.elapsed());
            guards.iter().for_each(|guard| guard.ensure_valid().unwrap());
            release_all(guards).await;
        }
        assert_eq!(fixture.call(&["EXISTS", "c"]).int(), 0);
    });
}

/// F21, F23: the server is killed and comes back empty, while three clients read, and a writer and two more readers
/// wait. The readers learn of their loss, and the writer is let in only then: nobody is let in beside a live one.
#[test]
fn f21_nobody_is_let_in_beside_readers_whom_the_server_forgot() {
    steady(|| async {
        for generation in [Generation::Redis70, Generation::Valkey91] {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let connect = || async {
                let config =
                    config(&fixture.server.url()).heartbeat(BEAT).watchdog_lease(4 * LEASE);
                Client::with_config(config).await.unwrap()
            };
            let (mut clients, mut reads) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                let client = connect().await;
                reads.push(client.rw_lock("c").read().await.unwrap());
                clients.push(client);
            }
            let last = reads[0].token();
            let mut writer = clients[0].rw_lock("c").enqueue_write().await.unwrap();
            let behind = vec![
                clients[1].rw_lock("c").enqueue_read().await.unwrap(),
                clients[2].rw_lock("c").enqueue_read().await.unwrap(),
            ];
            fixture.server.kill9();
            fixture.server.restart();
            let writes = within("the writer", 2 * BEAT + 2 * SLACK, writer.wait()).await.unwrap();
            for read in &reads {
                assert_eq!(read.state(), GuardState::Lost, "{}", generation.name());
            }
            assert!(writes.token() > last, "tokens rise");
            let token = writes.token();
            assert_eq!(writes.release().await.unwrap(), Release::Released);
            let guards = all(behind, BEAT + SLACK).await;
            read_together(&guards);
            assert!(guards[0].token() > token);
            release_all(guards).await;
            for read in reads {
                assert_eq!(read.release().await.unwrap(), Release::Lost);
            }
        }
    });
}

/// F22: the server is killed and comes back with everything that it had answered. Each reader is Suspect for a moment
/// and then Held again; the line stands as it stood, and permits in use are counted as before.
#[test]
fn f22_readers_and_permits_outlast_a_restart_with_a_log() {
    steady(|| async {
        let Some(fixture) = Fixture::with(Server::builder(Generation::Redis70).persist(true))
        else {
            return;
        };
        let connect = || async {
            let config = config(&fixture.server.url()).heartbeat(BEAT).watchdog_lease(4 * LEASE);
            Client::with_config(config).await.unwrap()
        };
        let clients = [connect().await, connect().await];
        let mut held = Vec::new();
        for n in [0, 1, 1] {
            held.push(clients[n].rw_lock("c").read().await.unwrap().into_guard());
        }
        held.push(clients[0].semaphore("s", 3).acquire_many(2).await.unwrap().into_guard());
        let mut writer = clients[1].rw_lock("c").enqueue_write().await.unwrap();
        fixture.server.kill9();
        for guard in &held {
            state_of(guard, GuardState::Suspect, SLACK).await;
        }
        fixture.server.restart();
        for guard in &held {
            state_of(guard, GuardState::Held, 2 * SLACK).await;
        }
        assert_eq!(waiting(&fixture), 1);
        assert!(clients[1].semaphore("s", 3).try_acquire_many(2).await.unwrap().is_none());
        assert!(clients[1].semaphore("s", 3).try_acquire().await.unwrap().is_some());
        fixture.inboxes_are_back(&clients);
        release_all(held).await;
        let writes = within("the writer", BEAT + SLACK, writer.wait()).await.unwrap();
        assert_eq!(writes.release().await.unwrap(), Release::Released);
    });
}

/// F54: the connections of one of three reading clients are cut, again and again. Its reader is Suspect and then Held
/// again; nobody else notices, and the writer behind them is not let in.
#[test]
fn f54_the_connection_of_one_of_many_readers_is_cut() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (cut, others) = (client(&proxy.url()).await, fixture.client().await);
        let one = cut.rw_lock("c").read().await.unwrap();
        let rest =
            [others.rw_lock("c").read().await.unwrap(), others.rw_lock("c").read().await.unwrap()];
        let mut writer = others.rw_lock("c").enqueue_write().await.unwrap();
        for _ in 0..3 {
            // Otherwise it may be connected again before this test looks.
            proxy.refuse(true);
            proxy.cut_all();
            state_of(&one, GuardState::Suspect, SLACK).await;
            proxy.refuse(false);
            let took = state_of(&one, GuardState::Held, 2 * SLACK).await;
            measured("f54 Suspect to Held", took);
            assert!(rest.iter().all(|guard| guard.state() == GuardState::Held));
        }
        assert!(writer.wait_for(ms(50)).await.unwrap().is_none(), "it waits for three readers");
        for guard in rest {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        assert_eq!(one.state(), GuardState::Held);
        assert_eq!(one.release().await.unwrap(), Release::Released);
        drop(within("the writer", SLACK, writer.wait()).await.unwrap());
    });
}

/// F51: one of three readers is cut off for good. It alone is Lost, at the end of its own lease and before the server
/// ends it; the writer comes in after that, although the others have released long before, and not earlier.
#[test]
fn f51_one_of_many_readers_is_cut_off() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (cut, others) = (client(&proxy.url()).await, fixture.client().await);
        let one = cut.rw_lock("c").read().await.unwrap();
        let rest = others.rw_lock("c").read().await.unwrap();
        let mut writer = others.rw_lock("c").enqueue_write().await.unwrap();
        proxy.black_hole_to_server(true);
        proxy.black_hole_to_client(true);
        let began = Instant::now();
        assert_eq!(rest.state(), GuardState::Held);
        assert_eq!(rest.release().await.unwrap(), Release::Released);
        let writes = within("the writer", LEASE + SLACK, writer.wait()).await.unwrap();
        measured("f51 cut off to the writer", began.elapsed());
        assert_eq!(one.state(), GuardState::Lost, "before anybody is let in");
        writes.ensure_valid().unwrap();
    });
}

/// F24: the server stands still. For less than a lease: all readers are Suspect and then Held again. For longer: each
/// is Lost before the server goes on, and then the writer is let in.
#[test]
fn f24_the_server_stalls_under_readers() {
    const LONG: Duration = Duration::from_secs(4);
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for (lease, is_lost) in [(LONG, false), (LEASE, true)] {
            let connect = || async {
                let config = config(&fixture.server.url()).watchdog_lease(lease);
                Client::with_config(config).await.unwrap()
            };
            let clients = [connect().await, connect().await];
            let mut held = Vec::new();
            for n in [0, 1, 1, 0] {
                held.push(clients[n].rw_lock("c").read().await.unwrap().into_guard());
            }
            let mut writer = clients[1].rw_lock("c").enqueue_write().await.unwrap();
            fixture.server.stop();
            for guard in &held {
                state_of(guard, GuardState::Suspect, ms(300) + SLACK).await;
            }
            if is_lost {
                for guard in &held {
                    state_of(guard, GuardState::Lost, LEASE + ms(100)).await;
                }
            }
            fixture.server.cont();
            if !is_lost {
                for guard in &held {
                    state_of(guard, GuardState::Held, 2 * SLACK + ms(2_000)).await;
                }
                fixture.inboxes_are_back(&clients);
            }
            for guard in held {
                let released = guard.release().await.unwrap();
                assert!(is_lost || released == Release::Released, "{released:?}");
            }
            let writes = within("the writer", LEASE + D + 2 * SLACK, writer.wait()).await.unwrap();
            assert_eq!(writes.release().await.unwrap(), Release::Released);
        }
    });
}

/// F26: the server forgets all scripts every two milliseconds, while readers, writers and holders of permits take
/// turns. Nobody notices: a writer is alone, and permits are at most the limit.
#[test]
fn f26_scripts_are_flushed_under_readers_and_writers() {
    const STORM: Duration = Duration::from_millis(1_500);
    const LIMIT: u32 = 3;
    /// What one writer counts for.
    const WHOLE: i64 = 1_000;
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation).map(Arc::new) else { continue };
            let clients = [fixture.client().await, fixture.client().await];
            let storm = Storm::start(&fixture, ms(2), &["SCRIPT", "FLUSH"]);
            let until = Instant::now() + STORM;
            let (inside, used) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
            let turns = Arc::new(AtomicU64::new(0));
            let mut tasks = JoinSet::new();
            for n in 0..9_u32 {
                let client = clients[n as usize % 2].clone();
                let (inside, used) = (Arc::clone(&inside), Arc::clone(&used));
                let turns = Arc::clone(&turns);
                tasks.spawn(async move {
                    while Instant::now() < until || turns.load(Ordering::SeqCst) < TURNS_MIN {
                        let (guard, counter, weight, most) = match n % 3 {
                            0 => {
                                let guard = client.rw_lock("c").write().await.unwrap();
                                (guard.into_guard(), &inside, WHOLE, WHOLE)
                            }
                            1 => {
                                let guard = client.rw_lock("c").read().await.unwrap();
                                (guard.into_guard(), &inside, 1, WHOLE - 1)
                            }
                            _ => {
                                let wants = 1 + n % 2;
                                let pool = client.semaphore("s", LIMIT);
                                let guard = pool.acquire_many(wants).await.unwrap();
                                (guard.into_guard(), &used, i64::from(wants), i64::from(LIMIT))
                            }
                        };
                        let now = counter.fetch_add(weight, Ordering::SeqCst) + weight;
                        assert!(now <= most, "{now} of {most}");
                        tokio::task::yield_now().await;
                        guard.ensure_valid().unwrap();
                        counter.fetch_sub(weight, Ordering::SeqCst);
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                        turns.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            within("the last turns", STORM + 30 * SLACK, tasks.join_all()).await;
            let (flushes, turns) = (storm.end(), turns.load(Ordering::SeqCst));
            println!("measured: f26 {}: {turns} turns, {flushes} times", generation.name());
            assert!(flushes > 20 && turns >= TURNS_MIN, "{flushes} {turns}");
        }
    });
}

/// F28: the server is out of memory while a writer holds and readers wait, and while permits are in use. Renewals,
/// the hand-over to all readers, giving up and releasing go on; only new requests are refused, and leave nothing.
#[test]
fn f28_out_of_memory_with_readers_in_line() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (one, two) = (fixture.client().await, fixture.client().await);
            let written = one.rw_lock("c").write().await.unwrap();
            let turns = readers(&two, 10).await;
            let gone = two.rw_lock("c").enqueue_write().await.unwrap();
            let pool = one.semaphore("s", 2);
            let permits = pool.acquire_many(2).await.unwrap();
            let line = key("fairlock_sem_order", "s");
            let other = two.semaphore("s", 2);
            let next = tokio::spawn(async move { other.acquire().await.unwrap() });
            eventually("it waits for a permit", SLACK, || {
                fixture.call(&["ZCARD", &line]).int() == 1
            });
            fixture.call(&["CONFIG", "SET", "maxmemory", "1"]);

            within("giving up", SLACK, gone.leave()).await.unwrap();
            assert_eq!(waiting(&fixture), 10);
            // More than a lease, and longer than a heartbeat is good for.
            tokio::time::sleep(LEASE + LEASE / 2).await;
            assert_eq!((written.state(), permits.state()), (GuardState::Held, GuardState::Held));
            let released = Instant::now();
            assert_eq!(written.release().await.unwrap(), Release::Released);
            let guards = all(turns, ms(300) + SLACK).await;
            read_together(&guards);
            assert_eq!(permits.release().await.unwrap(), Release::Released);
            let permit = within("the next permit", SLACK, next).await.unwrap();
            measured(&format!("f28 {} all served", generation.name()), released.elapsed());
            assert_eq!(permit.release().await.unwrap(), Release::Released);
            release_all(guards).await;

            let config = config(&fixture.server.url()).store_timeout(ms(300));
            let short = Client::with_config(config).await.unwrap();
            for error in [
                short.rw_lock("c").read().await.unwrap_err(),
                short.rw_lock("c").write().await.unwrap_err(),
                short.semaphore("s", 2).acquire().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
            assert_eq!(fixture.call(&["EXISTS", "c", "s"]).int(), 0);
            fixture.call(&["CONFIG", "SET", "maxmemory", "0"]);
            drop(short.rw_lock("c").read().await.unwrap());
        }
    });
}

/// The keys of a read-write lock beside its name, and the type of each.
const KEYS: [(&str, &str); 7] = [
    ("", "hash"),
    ("fairlock_rw_leases", "zset"),
    ("fairlock_rw_holds", "hash"),
    ("redisson_lock_token", "string"),
    ("fairlock_rw_order", "zset"),
    ("fairlock_rw_state", "hash"),
    ("fairlock_rw_beats", "zset"),
];

fn of(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { key(prefix, name) }
}

/// F35: each key is deleted while two read and a writer waits. Without the lock nobody holds: both are Lost. Any other
/// key costs the readers nothing; the writer is let in when they have released, and no earlier.
#[test]
fn f35_each_key_of_a_lock_that_is_read_is_deleted() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.client().await, fixture.client().await);
        let mut locks = Vec::new();
        for (n, (prefix, _)) in KEYS.iter().enumerate() {
            let name = format!("c{n}");
            let reads = [
                one.rw_lock(&name).read().await.unwrap(),
                two.rw_lock(&name).read().await.unwrap(),
            ];
            let writer = two.rw_lock(&name).enqueue_write().await.unwrap();
            locks.push((name, *prefix, reads, writer));
        }
        for (name, prefix, ..) in &locks {
            assert_eq!(fixture.call(&["DEL", &of(prefix, name)]).int(), 1, "{prefix}");
        }
        let began = Instant::now();
        // A renewal of each, and a heartbeat.
        tokio::time::sleep(LEASE / 2).await;
        for (_, prefix, reads, mut writer) in locks {
            if prefix.is_empty() {
                for read in &reads {
                    within("the loss", LEASE + SLACK, read.lost()).await;
                }
            }
            let states = reads.each_ref().map(|read| read.state());
            println!("measured: f35 without `{prefix}`: {states:?}");
            let wanted = match prefix {
                "" => GuardState::Lost,
                _ => GuardState::Held,
            };
            // Without their leases they are Lost only if they are renewed before the writer's heartbeat.
            if prefix != "fairlock_rw_leases" {
                assert_eq!(states, [wanted; 2], "{prefix}");
            }
            if wanted == GuardState::Held && states == [wanted; 2] {
                assert!(writer.wait_for(ms(50)).await.unwrap().is_none(), "{prefix}: beside them");
            }
            let token = reads[0].token();
            for read in reads {
                let released = read.release().await.unwrap();
                let is_held = states[0] == GuardState::Held;
                let wanted = if is_held { Release::Released } else { Release::Lost };
                assert_eq!(released, wanted, "{prefix}");
            }
            let limit = LEASE + D + 2 * HB + SLACK;
            let writes = within("the writer", limit, writer.wait()).await.unwrap();
            measured(&format!("f35 DEL of `{prefix}`: the writer after"), began.elapsed());
            assert!(writes.token() > token, "{prefix}: tokens rise");
            assert_eq!(writes.release().await.unwrap(), Release::Released, "{prefix}");
        }
    });
}

/// F37: each key is replaced by one of another type. Whoever waits is told which, and nothing is changed; when it is
/// gone again, so is the trouble.
#[test]
fn f37_each_key_of_a_lock_that_is_read_has_a_wrong_type() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (one, two) = (fixture.client().await, fixture.client().await);
            for (n, (prefix, kind)) in KEYS.iter().enumerate() {
                let name = format!("c{n}");
                let read = one.rw_lock(&name).read().await.unwrap();
                let mut writer = two.rw_lock(&name).enqueue_write().await.unwrap();
                let wrong = of(prefix, &name);
                fixture.call(&["DEL", &wrong]);
                fixture.call(&[if *kind == "string" { "RPUSH" } else { "SET" }, &wrong, "odd"]);
                let error = within("the refusal", HB + SLACK, writer.wait()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WrongType, "{wrong}: {error}");
                assert!(error.to_string().contains(&wrong), "{error}");
                // Any outcome that the server reports: released, lost, or unknown.
                let _ = read.release().await;
                fixture.call(&["DEL", &wrong]);
                let lock = two.rw_lock(&name).lease(60 * LEASE);
                // A share whose release was refused, and of which the lease is lost, lasts 30 s otherwise.
                lock.force_unlock().await.unwrap();
                let writes = within("the next", LEASE + SLACK, lock.write()).await.unwrap();
                assert_eq!(writes.release().await.unwrap(), Release::Released, "{wrong}");
            }
        }
    });
}

/// F36: an operator takes the lock's TTL away. While somebody reads, the next renewal sets it again. If the readers are
/// dead, their leases end all the same, and with the last of them the lock.
#[test]
fn f36_a_lock_that_is_read_has_no_ttl() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (dies, waits) = (client(&proxy.url()).await, fixture.client().await);
        let read = dies.rw_lock("c").read().await.unwrap();
        fixture.call(&["PERSIST", "c"]);
        eventually("it has a TTL again", LEASE / 3 + SLACK, || {
            fixture.call(&["PTTL", "c"]).int() > 0
        });
        assert_eq!(read.state(), GuardState::Held);
        proxy.black_hole_to_server(true);
        fixture.call(&["PERSIST", "c"]);
        let began = Instant::now();
        let writer = waits.rw_lock("c");
        drop(within("the writer", LEASE + HB + SLACK, writer.write()).await.unwrap());
        measured("f36 PERSIST under a dead reader, to the writer", began.elapsed());
        assert_eq!(read.state(), GuardState::Lost);
    });
}

/// F53: the replies to requests for shares are lost, after they were carried out. Each has one effect: as many hold as
/// have a guard, and nothing is left in the end.
#[test]
fn f53_replies_to_readers_and_holders_of_permits_are_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in [true, false] {
            let proxy = Proxy::start(fixture.server.addr());
            proxy.cut_after_reply_lost(cut);
            // The pauses between connections that are lost at once grow; the lease outlasts them.
            let config = config(&proxy.url()).watchdog_lease(30 * LEASE);
            let client = Client::with_config(config).await.unwrap();
            let (lock, pool) = (client.rw_lock("c"), client.semaphore("s", 2));
            // From here on the server knows the scripts, so the next reply is that of the request.
            assert_eq!(lock.read().await.unwrap().release().await.unwrap(), Release::Released);
            assert_eq!(pool.acquire().await.unwrap().release().await.unwrap(), Release::Released);
            let fields = |name| fixture.call(&["HLEN", name]).int();
            proxy.drop_replies(1);
            let read = within("a reader", 5 * SLACK, lock.read()).await.unwrap();
            assert_eq!(fields("c"), 2, "the mode and one holder");
            proxy.drop_replies(1);
            let permit = within("a permit", 5 * SLACK, pool.acquire()).await.unwrap();
            assert_eq!(fields("s"), 2, "the mode and one holder");
            assert_eq!(pool.usage().await.unwrap().used, 1);
            proxy.drop_replies(1);
            assert_eq!(read.release().await.unwrap(), Release::Released, "cut: {cut}");
            proxy.drop_replies(1);
            assert_eq!(permit.release().await.unwrap(), Release::Released, "cut: {cut}");
            assert_eq!(proxy.counts().replies_dropped, 4);
            assert_eq!(fixture.call(&["EXISTS", "c", "s"]).int(), 0);
        }
    });
}

/// F15, F20: a hundred give up while others are let in, at any moment. Nothing is left of them.
#[test]
fn f15_f20_readers_and_writers_give_up_at_any_moment() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let clients = [fixture.client().await, fixture.client().await];
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for n in 0..8_u64 {
            let (client, over) = (clients[n as usize % 2].clone(), Arc::clone(&over));
            tasks.spawn(async move {
                let mut round = n;
                while !over.load(Ordering::SeqCst) {
                    round += 1;
                    let patience = Duration::from_micros(100 + 397 * (round % 23));
                    let lock = client.rw_lock("c");
                    // The future is dropped: what it asked for is taken back.
                    if round % 3 == 0 {
                        drop(tokio::time::timeout(patience, lock.write()).await);
                    } else {
                        drop(tokio::time::timeout(patience, lock.read()).await);
                    }
                }
            });
        }
        // This test is about time: some hundred rounds.
        tokio::time::sleep(ms(1_500)).await;
        over.store(true, Ordering::SeqCst);
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        eventually("nothing is left", D + 2 * SLACK, || {
            fixture.call(&["EXISTS", "c"]).int() == 0 && waiting(&fixture) == 0
        });
    });
}
