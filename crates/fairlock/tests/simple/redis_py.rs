//! The real `Lock` of redis-py on the same key, in both directions.

use crate::faults::fixture::{Fixture, SLACK, client, measured, ms, steady, within};
use fairlock::{GuardState, Release};
use fairlock_testkit::python::Python;
use fairlock_testkit::server::Generation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("redis_py.py");

fn python(fixture: &Fixture) -> Option<Python> {
    Python::start(PROGRAM, &[&fixture.server.url(), "job"])
}

#[test]
fn each_keeps_the_other_out_and_lets_it_in() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let Some(mut python) = python(&fixture) else { return };
        let lock = client(&fixture.server.url()).await.simple_lock("job");
        // With a TTL, and without one, which is redis-py's default.
        for ttl in ["60", "0"] {
            assert_eq!(python.ask(&format!("acquire {ttl} 0")), "acquired");
            assert!(lock.try_lock().await.unwrap().is_none());
            let holder = lock.inspect().await.unwrap().holder.expect("a holder");
            assert!(!holder.ours, "{holder:?}");
            assert!(lock.try_lock_for(ms(300)).await.unwrap().is_none());
            assert_eq!(python.ask("owned"), "True", "nobody touched it");
            assert_eq!(python.ask("release"), "released");
            let guard = within("a free lock", SLACK, lock.lock()).await.unwrap();
            assert_eq!(python.ask("acquire 60 0.3"), "not acquired");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert_eq!(python.ask("acquire 60 0"), "acquired");
            assert_eq!(python.ask("release"), "released");
        }
    });
}

/// Neither deletes what the other holds now: a late redis-py release, after its TTL has ended, and
/// a late one of ours.
#[test]
fn a_release_that_comes_too_late_frees_nobody_elses() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let Some(mut python) = python(&fixture) else { return };
        let lock = client(&fixture.server.url()).await.simple_lock("job");
        assert_eq!(python.ask("acquire 0.3 0"), "acquired");
        let began = Instant::now();
        let guard = within("the end of its TTL", SLACK, lock.lock()).await.unwrap();
        measured("simple: redis-py's TTL of 300 ms to grant", began.elapsed());
        assert_eq!(python.ask("release"), "not owned");
        assert_eq!(python.ask("owned"), "False");
        tokio::time::sleep(ms(500)).await;
        assert_eq!(guard.state(), GuardState::Held, "renewed meanwhile");
        assert_eq!(guard.release().await.unwrap(), Release::Released);

        let guard = lock.clone().lease(ms(200)).lock().await.unwrap();
        assert_eq!(python.ask("acquire 60 5"), "acquired", "our lease has ended");
        assert_eq!(guard.state(), GuardState::Lost);
        assert_eq!(guard.release().await.unwrap(), Release::Lost);
        assert_eq!(python.ask("owned"), "True");
        assert_eq!(python.ask("extend 60"), "True");
        assert_eq!(python.ask("release"), "released");
    });
}

/// Threads of redis-py and tasks of ours increment a counter that only the lock protects.
fn contention(generation: Generation) {
    const THREADS: u64 = 2;
    const ROUNDS: u64 = 60;
    const LIMIT: Duration = Duration::from_secs(90);
    steady(|| async {
        let Some(fixture) = Fixture::start(generation) else { return };
        let Some(mut python) = python(&fixture) else { return };
        assert_eq!(python.ask(&format!("contend {THREADS} {ROUNDS}")), "begun");
        let began = Instant::now();
        let strangers = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for _ in 0..THREADS {
            let lock = client(&fixture.server.url()).await.simple_lock("job");
            let (mut raw, strangers) = (fixture.server.client(), Arc::clone(&strangers));
            tasks.push(tokio::spawn(async move {
                let mut last = None;
                for round in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    assert!(Some(guard.token()) > last, "tokens rise");
                    last = Some(guard.token());
                    if raw.call(&["INCR", "inside"]).int() != 1 {
                        strangers.fetch_add(1, Ordering::Relaxed);
                    }
                    raw.call(&["RPUSH", "log", "rust"]);
                    let seen = raw.call(&["GET", "count"]);
                    let seen = if seen.is_nil() { 0 } else { seen.text().parse::<u64>().unwrap() };
                    tokio::time::sleep(ms(round % 3)).await;
                    raw.call(&["SET", "count", &(seen + 1).to_string()]);
                    raw.call(&["DECR", "inside"]);
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                    tokio::time::sleep(ms(round % 11)).await;
                }
            }));
        }
        for task in tasks {
            within("its rounds", LIMIT, task).await.unwrap();
        }
        assert_eq!(python.hear(), format!("{THREADS} threads met 0 strangers"));
        assert_eq!(strangers.load(Ordering::Relaxed), 0);
        let count = fixture.call(&["GET", "count"]);
        assert_eq!(count.text(), (2 * THREADS * ROUNDS).to_string(), "no count was lost");
        // They really did alternate.
        let log = fixture.call(&["LRANGE", "log", "0", "-1"]);
        let turns = log.array().windows(2).filter(|two| two[0] != two[1]).count();
        println!("measured: simple: the lock went {turns} times from one side to the other");
        assert!(turns >= 10, "{turns}");
        measured("simple: 240 rounds beside redis-py", began.elapsed());
    });
}

#[test]
fn both_count_in_turns_on_redis_6_2() {
    contention(Generation::Redis62);
}

#[test]
fn both_count_in_turns_on_redis_7_0() {
    contention(Generation::Redis70);
}

#[test]
fn both_count_in_turns_on_valkey_9_1() {
    contention(Generation::Valkey91);
}
