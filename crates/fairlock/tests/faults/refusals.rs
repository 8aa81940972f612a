//! The server refuses: it is loading its data, has no connection left, or cannot write to its disk.

use super::fixture::{
    Fixture, HB, LEASE, SLACK, all_in_turn, config, eventually, measured, ms, steady,
};
use fairlock::{Client, ErrorKind, GuardState, Release};
use fairlock_testkit::disk::Disk;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Keys that the server has to load at its start, and how long each one takes.
const KEYS: &str = "20000";
const LOAD_US: &str = "60";

/// Outlasts the loading and three attempts to reconnect.
const LONG: Duration = Duration::from_secs(20);

async fn with_lease(fixture: &Fixture, lease: Duration) -> Client {
    let config = config(&fixture.server.url()).watchdog_lease(lease);
    Client::with_config(config).await.unwrap()
}

/// How often the server has replied with this error since its start.
pub(super) fn errors(fixture: &Fixture, code: &str) -> u64 {
    let info = fixture.call(&["INFO", "errorstats"]);
    let prefix = format!("errorstat_{code}:count=");
    let count = info.text().lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok());
    count.unwrap_or(0)
}

/// F27: the server was killed, is back, and still loads its log: it accepts connections and answers
/// LOADING. All calls are repeated until it has loaded everything; holder and places are unchanged.
#[test]
fn f27_the_server_still_loads() {
    steady(|| async {
        for generation in Generation::few() {
            let builder = Server::builder(generation).persist(true);
            let Some(fixture) = Fixture::with(builder.arg("--key-load-delay", LOAD_US)) else {
                continue;
            };
            // How long it loads depends on the machine.
            let lease = 6 * LONG;
            let clients = [with_lease(&fixture, lease).await, with_lease(&fixture, lease).await];
            let held = fixture.take(&clients[0], "job").await;
            let mut places = Vec::new();
            for n in [1, 0, 1] {
                places.push(fixture.enter(&clients[n], "job").await);
            }
            let queue = fixture.queue("job");
            // Scripts of a thousand writes each: the loading server answers clients between two of
            // them.
            let fill = "for i = 1, 1000 do redis.call('SET', 'filler:' .. ARGV[1] .. i, 1) end";
            for n in 0..KEYS.parse::<u32>().unwrap() / 1_000 {
                fixture.call(&["EVAL", fill, "0", &n.to_string()]);
            }
            fixture.server.kill9();
            held.becomes(GuardState::Suspect, SLACK).await;
            let began = Instant::now();
            // Returns when everything is loaded.
            thread::scope(|scope| {
                scope.spawn(|| fixture.server.restart());
            });
            measured(&format!("f27 {} loading", generation.name()), began.elapsed());
            // On a busy machine the first connections may be given up for their server's silence.
            held.becomes(GuardState::Held, 3 * ms(2_000) + SLACK).await;
            measured(&format!("f27 {} restart to Held", generation.name()), began.elapsed());
            let refused = errors(&fixture, "LOADING");
            assert!(refused > 2, "{refused} refusals: the server was not seen loading");
            assert_eq!(fixture.queue("job"), queue);
            fixture.inboxes_are_back(&clients);
            fixture.beat_again("job", clients.iter().map(Client::id));
            assert_eq!(held.release().await, Release::Released);
            all_in_turn(places, HB + SLACK).await;
            fixture.history.assert_sound();
        }
    });
}

/// F30: the server has no connection left. A new client gets an error that says so; connected
/// clients renew, wait and hand over as usual. If one loses its connection, its guard is Suspect,
/// and it is back as soon as a connection is free.
#[test]
fn f30_no_connection_is_left() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let clients = [fixture.client().await, with_lease(&fixture, LONG).await];
            let held = fixture.take(&clients[0], "job").await;
            let places = vec![
                fixture.enter(&clients[1], "job").await,
                fixture.enter(&clients[0], "job").await,
            ];
            let other = fixture.take(&clients[1], "other").await;
            fixture.call(&["CONFIG", "SET", "maxclients", "1"]);

            for _ in 0..3 {
                let began = Instant::now();
                let error = Client::with_config(config(&fixture.server.url())).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                let text = error.to_string();
                // The server's own words, or our guess if it closed the connection before we could
                // read them.
                let told = text.contains("max number of clients") || text.contains("`maxclients`");
                assert!(told, "{text}");
                assert!(began.elapsed() < SLACK, "it was told at once");
            }
            // This test is about time: the hold is renewed more than once.
            tokio::time::sleep(2 * LEASE).await;
            assert_eq!(held.guard.state(), GuardState::Held);
            assert_eq!(held.release().await, Release::Released);
            all_in_turn(places, HB + SLACK).await;

            fixture.call(&["CLIENT", "KILL", "TYPE", "normal"]);
            other.becomes(GuardState::Suspect, SLACK).await;
            tokio::time::sleep(ms(300)).await;
            assert_eq!(other.guard.state(), GuardState::Suspect, "there was room");
            fixture.call(&["CONFIG", "SET", "maxclients", "100"]);
            other.becomes(GuardState::Held, ms(2_000) + SLACK).await;
            assert_eq!(other.release().await, Release::Released);
            fixture.history.assert_sound();
        }
    });
}

/// What happens while a server may not write: new requests are refused with its reason, guards are
/// Suspect and then lost at their deadline, a release is repeated. When it may write again, waiters
/// are served.
async fn writes_stop(fixture: &Fixture, stop: impl FnOnce(), mend: impl FnOnce()) {
    let client = fixture.client().await;
    let held = fixture.take(&client, "job").await;
    let brief = fixture.hold(client.fair_lock("brief").lease(60 * LEASE)).await;
    let place = fixture.enter(&client, "job").await;
    let began = Instant::now();
    stop();
    eventually("the server writes no more", 5 * SLACK, || {
        let reply = fixture.call(&["SET", "probe", "1"]);
        matches!(reply, Value::Error(error) if error.starts_with("MISCONF"))
    });
    let short = config(&fixture.server.url()).store_timeout(ms(300)).lazy_connect(true);
    let short = Client::with_config(short).await.unwrap();
    let error = short.fair_lock("new").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let said = error.to_string();
    let why = "in time (the server refuses writes: it cannot save to its disk (MISCONF): ";
    assert!(said.contains(why) && !said.contains("the network"), "{said}");

    held.becomes(GuardState::Suspect, LEASE + SLACK).await;
    let first = held.token();
    held.lost(LEASE + SLACK).await;
    measured("f32 to Lost", began.elapsed());
    let (released, ()) = tokio::join!(brief.release(), async {
        // This test is about time: the release is repeated several times.
        tokio::time::sleep(ms(500)).await;
        mend();
    });
    assert_eq!(released, Release::Released);
    let next = place.granted(LEASE + ms(2_000) + SLACK).await;
    assert!(next.token() > first);
    measured("f32 to the next holder", began.elapsed());
    let _ = next.release().await;
    assert_eq!((fixture.holder("new"), fixture.queue("new")), (None, vec![]));
    let _ = fixture.hold(short.fair_lock("new")).await.release().await;
    fixture.history.assert_sound();
}

/// F32: the server cannot save its data, and therefore refuses writes.
#[test]
fn f32_saving_fails() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            fixture.call(&["CONFIG", "SET", "save", "3600 100000"]);
            // Saving fails because a file cannot replace a folder.
            let blocked = fixture.server.dir().join("dump.rdb");
            let saved = |how: &str| {
                fixture.call(&["BGSAVE"]);
                let wanted = format!("rdb_last_bgsave_status:{how}");
                eventually("the saving has ended", 5 * SLACK, || {
                    fixture.call(&["INFO", "persistence"]).text().contains(&wanted)
                });
            };
            let stop = || {
                fs::create_dir(&blocked).unwrap();
                saved("err");
            };
            let mend = || {
                fs::remove_dir(&blocked).unwrap();
                saved("ok");
            };
            writes_stop(&fixture, stop, mend).await;
        }
    });
}

/// F32: the disk of the server's log is full.
#[test]
fn f32_the_disk_is_full() {
    steady(|| async {
        for generation in Generation::few() {
            let builder = Server::builder(generation);
            let builder = builder.arg("--appendonly", "yes").arg("--appendfsync", "everysec");
            let Some(fixture) = Fixture::with(builder) else { continue };
            // The server writes to that disk from its second start on.
            fixture.server.kill9();
            let Some(disk) = Disk::mount(fixture.server.dir(), "1m") else { return };
            fixture.server.restart();
            let filler = fixture.server.dir().join("filler");
            let mend = || fs::remove_file(&filler).unwrap();
            writes_stop(&fixture, || drop(disk.fill()), mend).await;
        }
    });
}

/// Whether a reply contains `word`.
fn names(reply: &Value, word: &str) -> bool {
    match reply {
        Value::Array(all) => all.iter().any(|one| names(one, word)),
        Value::Bulk(text) => text == word.as_bytes(),
        _ => false,
    }
}

/// D38: a promoted server has not received a release, and at first refuses all writes, until it has
/// replicas of its own. The client repeated the release there once, was refused, and the lock
/// stayed held for the rest of its lease.
#[test]
fn d38_who_refuses_to_be_told_of_a_release_is_told_again() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = with_lease(&fixture, 20 * LEASE).await;
        let held = fixture.take(&client, "job").await;
        // What the promoted server has: everything from before the release.
        let copy = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 1) end";
        fixture.call(&["EVAL", copy, "0"]);
        let owner = held.owner();
        assert_eq!(held.release().await, Release::Released);
        assert_eq!(fixture.holder("job"), None);
        fixture.call(&["SWAPDB", "0", "1"]);
        assert!(fixture.holder("job").is_some());
        fixture.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        // Logs all calls, including the test's own.
        fixture.call(&["CONFIG", "SET", "slowlog-max-len", "10000"]);
        fixture.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        fixture.call(&["SLOWLOG", "RESET"]);
        fixture.call(&["CLIENT", "KILL", "TYPE", "normal"]);
        // The client may connect twice, and sends one copy at each connect: more than that are
        // repetitions.
        eventually("it is told again and again", ms(2_000) + SLACK, || {
            let calls = fixture.call(&["SLOWLOG", "GET", "10000"]);
            calls.array().iter().filter(|call| names(call, &owner)).count() >= 4
        });
        assert!(errors(&fixture, "NOREPLICAS") > 0);
        assert!(fixture.holder("job").is_some());
        let began = Instant::now();
        fixture.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        // The pause between two copies has grown to at most two seconds.
        eventually("it is told again", ms(2_000) + SLACK, || fixture.holder("job").is_none());
        measured("d38 until a server that takes writes again was told", began.elapsed());
    });
}
