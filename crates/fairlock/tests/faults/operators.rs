//! Keys are removed, changed and replaced from outside.

use super::fixture::{
    D, Fixture, HB, LEASE, SLACK, all_in_turn, assert_ordered, config, eventually, key, measured,
    ms, steady,
};
use super::worker::Worker;
use fairlock::{Client, ErrorKind, GuardState, Release};
use fairlock_testkit::history::Event;
use fairlock_testkit::server::Generation;
use std::time::Instant;

/// The keys of a lock, and the type of each.
const KEYS: [(&str, &str); 7] = [
    ("", "hash"),
    ("redisson_lock_queue", "list"),
    ("redisson_lock_timeout", "zset"),
    ("redisson_lock_token", "string"),
    ("fairlock_order", "zset"),
    ("fairlock_state", "hash"),
    ("fairlock_beats", "zset"),
];

/// A key of a lock; the lock's own key is its name.
fn of(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { key(prefix, name) }
}

/// FLUSHALL: like a restart without persistence, but no closed connection reveals it.
#[test]
fn f34_flushall() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.client().await, fixture.client().await);
        let held = fixture.take(&one, "job").await;
        let mut places = Vec::new();
        for client in [&one, &two, &two, &one] {
            places.push(fixture.enter(client, "job").await);
        }
        fixture.call(&["FLUSHALL"]);
        let took = held.lost(LEASE / 3 + SLACK).await;
        measured("f34 FLUSHALL to Lost", took);
        assert_eq!(held.release().await, Release::Lost);
        all_in_turn(places, 3 * HB + SLACK).await;
        assert_ordered(&fixture);
    });
}

/// F29: an eviction policy removes keys of locks. A holder whose lock is evicted learns of the loss
/// at its next renewal; every waiter is served in the end, and tokens rise.
#[test]
fn f29_keys_are_evicted() {
    steady(|| async {
        for (generation, policy) in [
            (Generation::Redis62, "volatile-ttl"),
            (Generation::Redis70, "allkeys-lru"),
            (Generation::Redis70, "volatile-lru"),
            (Generation::Valkey91, "allkeys-random"),
        ] {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let clients = [fixture.client().await, fixture.client().await];
            let held = fixture.take(&clients[0], "job").await;
            let mut places = Vec::new();
            for n in [1, 0, 1] {
                places.push(fixture.enter(&clients[n], "job").await);
            }
            let evicted = || {
                let info = fixture.call(&["INFO", "stats"]);
                let line = info.text().lines().find_map(|line| line.strip_prefix("evicted_keys:"));
                line.unwrap().parse::<u64>().unwrap()
            };
            // With a limit of one byte, every command evicts keys.
            fixture.call(&["CONFIG", "SET", "maxmemory-policy", policy]);
            fixture.call(&["CONFIG", "SET", "maxmemory", "1"]);
            eventually("the lock is evicted", 5 * SLACK, || {
                fixture.call(&["GET", "a read, which evicts"]);
                fixture.holder("job").is_none()
            });
            let count = evicted();
            fixture.call(&["CONFIG", "SET", "maxmemory", "0"]);
            let first = held.token();
            let took = held.lost(LEASE / 3 + SLACK).await;
            measured(&format!("f29 {} {policy}: to Lost", generation.name()), took);
            assert_eq!(held.release().await, Release::Lost);
            let began = Instant::now();
            let mut tokens = Vec::new();
            for place in places {
                let held = place.granted(D + 3 * HB + SLACK).await;
                tokens.push(held.token());
                let _ = held.release().await;
            }
            measured(
                &format!("f29 {} {policy}: to all served", generation.name()),
                began.elapsed(),
            );
            assert!(count > 0 && tokens.iter().all(|token| *token > first), "{tokens:?}");
            assert_ordered(&fixture);
        }
    });
}

/// Each key is deleted while the lock is held and others wait. If it is the lock itself, its holder
/// learns of the loss; any other key costs only a moment, and nobody's place.
#[test]
fn f35_each_key_is_deleted() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.client().await, fixture.client().await);
        let mut locks = Vec::new();
        for (n, (prefix, _)) in KEYS.iter().enumerate() {
            let name = format!("job{n}");
            let held = fixture.take(&one, &name).await;
            let mut places = Vec::new();
            for client in [&two, &one, &two] {
                places.push(fixture.enter(client, &name).await);
            }
            locks.push((name, *prefix, held, places));
        }
        for (name, prefix, ..) in &locks {
            assert_eq!(fixture.call(&["DEL", &of(prefix, name)]).int(), 1, "{prefix}");
        }
        for (_, prefix, held, places) in locks {
            let began = Instant::now();
            if prefix.is_empty() {
                let took = held.lost(LEASE / 3 + SLACK).await;
                measured("f35 DEL of the lock to Lost", took);
                assert_eq!(held.release().await, Release::Lost);
            } else {
                assert_eq!(held.guard.state(), GuardState::Held, "{prefix}");
                assert_eq!(held.release().await, Release::Released, "{prefix}");
            }
            all_in_turn(places, D + 2 * HB + SLACK).await;
            measured(&format!("f35 DEL of `{prefix}`: all served after"), began.elapsed());
        }
        assert_ordered(&fixture);
    });
}

/// The TTL of a held lock is removed, or shortened. The next renewal corrects it, or the holder
/// learns of the loss.
#[test]
fn f36_the_ttl_is_changed() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let held = fixture.take(&client, "job").await;
        assert_eq!(fixture.call(&["PERSIST", "job"]).int(), 1);
        let took = eventually("the TTL is back", LEASE / 3 + SLACK, || fixture.ttl("job") > ms(0));
        measured("f36 PERSIST to a TTL again", took);
        assert_eq!(held.guard.state(), GuardState::Held);

        let next = fixture.enter(&client, "job").await;
        fixture.call(&["PEXPIRE", "job", "10"]);
        let took = held.lost(LEASE / 3 + SLACK).await;
        measured("f36 PEXPIRE 10 to Lost", took);
        assert_eq!(held.release().await, Release::Lost);
        all_in_turn(vec![next], D + SLACK).await;

        let held = fixture.take(&client, "renamed").await;
        fixture.call(&["RENAME", "renamed", "elsewhere"]);
        held.lost(LEASE / 3 + SLACK).await;
        assert_ordered(&fixture);
    });
}

/// A holder dies after an operator has removed the TTL of its lock, which would then be held
/// forever. The next waiter's heartbeat sets a TTL of 30 s, or of its own lease if that is longer.
#[test]
fn f36_a_dead_holder_without_a_ttl() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut worker = Worker::start(&fixture.server);
        let dead = worker.take(&fixture, "job");
        let next = fixture.enter(&client, "job").await;
        fixture.history.record("job", dead.owner(), Event::Died);
        worker.kill9();
        assert_eq!(fixture.call(&["PERSIST", "job"]).int(), 1);
        let mended = async {
            while fixture.call(&["PTTL", "job"]).int() == -1 {
                tokio::time::sleep(HB / 10).await;
            }
        };
        tokio::time::timeout(HB + SLACK, mended).await.expect("a TTL within a heartbeat");
        let left = fixture.call(&["PTTL", "job"]).int();
        assert!((28_000..=30_000).contains(&left), "{left} ms");
        // From here on, a lease ends as usual.
        assert_eq!(fixture.call(&["PEXPIRE", "job", "100"]).int(), 1);
        let _ = next.granted(HB + SLACK).await.release().await;
        fixture.history.assert_sound();
    });
}

/// Each key is replaced by one of another type. Any caller that needs it gets an error that names
/// the key; nothing is written; and once the operator has repaired it, the lock works again.
#[test]
fn f37_each_key_has_a_wrong_type() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (one, two) = (fixture.client().await, fixture.client().await);
            let mut locks = Vec::new();
            for (n, (prefix, kind)) in KEYS.iter().enumerate() {
                let name = format!("job{n}");
                let held = fixture.take(&one, &name).await;
                let place = fixture.enter(&two, &name).await;
                locks.push((of(prefix, &name), *kind, name, held, place));
            }
            for (wrong, kind, ..) in &locks {
                fixture.call(&["DEL", wrong]);
                let write = if *kind == "string" { "RPUSH" } else { "SET" };
                fixture.call(&[write, wrong, "odd"]);
                assert_ne!(fixture.call(&["TYPE", wrong]).text(), *kind);
            }
            let mut holds = Vec::new();
            for (wrong, _, name, held, place) in locks {
                let owner = place.owner.clone();
                let error = place.fails(HB + SLACK).await;
                fixture.history.record(&name, &owner, Event::GaveUp);
                assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
                assert!(error.to_string().contains(&wrong), "{error}");
                assert_eq!(error.lock().map(ToString::to_string), Some(name.clone()));
                holds.push((wrong, name, held));
            }
            for (wrong, name, held) in holds {
                // Any outcome that the server reports: released, lost, or unknown.
                let _ = held.release().await;
                fixture.call(&["DEL", &wrong]);
                let held = fixture.hold(two.fair_lock(&name).lease(60 * LEASE)).await;
                assert_eq!(held.release().await, Release::Released, "{wrong}");
            }
            assert_ordered(&fixture);
        }
    });
}

/// a19: of many held locks, one is replaced by something else. Its holder learns of the loss; the
/// others are still renewed.
#[test]
fn a19_one_bad_key_among_many() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut holds = Vec::new();
        for n in 0..150 {
            holds.push(fixture.take(&client, &format!("job{n}")).await);
        }
        let bad = holds.swap_remove(70);
        fixture.call(&["SET", "job70", "odd"]);
        let took = bad.lost(LEASE + SLACK).await;
        measured("a19 the bad key to Lost", took);
        // Two leases: every hold has been renewed several times since.
        tokio::time::sleep(2 * LEASE).await;
        for held in holds {
            assert_eq!(held.guard.state(), GuardState::Held);
            assert_eq!(held.release().await, Release::Released);
        }
    });
}

/// The server is out of memory while a lock is held and others wait. Renewals, heartbeats, the
/// hand-over, giving up and releasing continue; only new requests are refused, and leave nothing.
#[test]
fn f28_out_of_memory_while_held() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (one, two) = (fixture.client().await, fixture.client().await);
            let held = fixture.take(&one, "job").await;
            let places = vec![fixture.enter(&two, "job").await, fixture.enter(&one, "job").await];
            let lock = two.fair_lock("job");
            let before = fixture.queue("job");
            let impatient = tokio::spawn(async move { lock.try_lock_for(ms(500)).await });
            let gone = fixture.joined("job", &before);
            fixture.call(&["CONFIG", "SET", "maxmemory", "1"]);

            assert!(impatient.await.unwrap().unwrap().is_none());
            fixture.history.record("job", &gone, Event::GaveUp);
            eventually("who gave up is gone", SLACK, || !fixture.queue("job").contains(&gone));
            // More than a lease, and longer than a heartbeat is good for.
            tokio::time::sleep(LEASE + LEASE / 2).await;
            assert_eq!(held.guard.state(), GuardState::Held);
            assert_eq!(fixture.queue("job"), before);
            let released = Instant::now();
            assert_eq!(held.release().await, Release::Released);
            all_in_turn(places, ms(300) + SLACK).await;
            measured(&format!("f28 {} two turns", generation.name()), released.elapsed());

            let config = config(&fixture.server.url()).store_timeout(ms(300));
            let short = Client::with_config(config).await.unwrap();
            let error = short.fair_lock("job").lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            // Nor has it said that the lock is taken.
            let error = two.fair_lock("job").try_lock_for(ms(200)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("OOM"), "{error}");
            assert_eq!((fixture.holder("job"), fixture.queue("job")), (None, vec![]));
            fixture.call(&["CONFIG", "SET", "maxmemory", "0"]);
            let _ = fixture.take(&short, "job").await.release().await;
            fixture.history.assert_sound();
        }
    });
}

/// D33: hundreds of thousands of foreign entries without scores stand in a queue, whoever put them
/// there. The first heartbeat of ours gave each of them a score, and the server did nothing else
/// for seconds (11 s for a million).
#[test]
fn d33_a_queue_of_strangers_does_not_block_the_server() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let many = "for n = 1, 300000 do redis.call('RPUSH', KEYS[1], 'stranger:' .. n) end";
        fixture.call(&["EVAL", many, "1", &key("redisson_lock_queue", "job")]);
        fixture.call(&["HSET", "job", "stranger:0", "1"]);
        fixture.call(&["PEXPIRE", "job", "60000"]);
        // 1 s: a third of the time that it used to take.
        fixture.call(&["CONFIG", "SET", "slowlog-log-slower-than", "1000000"]);
        fixture.call(&["SLOWLOG", "RESET"]);
        let client = fixture.client().await;
        let before = fixture.script_calls();
        let waited = client.fair_lock("job").try_lock_for(4 * HB).await.unwrap();
        assert!(waited.is_none());
        assert!(fixture.script_calls() >= before + 3, "it asked, beat and left");
        assert_eq!(
            fixture.call(&["SLOWLOG", "LEN"]).int(),
            0,
            "{:?}",
            fixture.call(&["SLOWLOG", "GET"])
        );
    });
}
