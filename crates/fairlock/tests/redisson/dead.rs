//! Waiters that died, and how long the others wait for them.

use super::fixture::{
    JavaFixture, LOCK, MINUTE_MS, Mortal, SECOND_MS, furthest_score, tuned, with_fair_wait,
};
use crate::faults::fixture::{Fixture, HB, LEASE, SLACK, eventually, key, measured, ms, steady};
use fairlock_testkit::redisson::{
    Call, DEFAULT_WAIT_MS, JavaClient, State, Thread, Version, WATCHDOG_LEASE_MS,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The fair wait of our waiters, see docs/protocol.md.
const FAIR_WAIT: Duration = Duration::from_secs(300);

/// Redisson #1104. Threads repeatedly tried for half a second to take a lock that was held. Each
/// counted its time from the waiter ahead of it, nobody gave any time back, and the times ran away:
/// with two waiters in the queue, the last one was good for hours. Then that one died, and nobody
/// got the free lock any more.
mod issue_1104_dead_waiters_do_not_block {
    use super::*;

    #[test]
    fn redisson_fails() {
        const TRIES: usize = 220;
        let Some(fixture) = JavaFixture::open() else { return };
        let hurried = Call::TryLock { wait_ms: 500, lease_ms: 30 * SECOND_MS };
        // The holder works and is renewed; when a waiter gives up, the next one already waits.
        let mut threads = vec![fixture.start(Version::V3_5, Call::Lock)];
        for _ in 0..TRIES {
            threads.push(fixture.start(Version::V3_5, hurried));
            fixture.run(400, &mut threads);
            threads.retain(|thread| thread.state() != State::GaveUp);
            assert_eq!(threads.len(), 2, "the holder and one that tries");
        }
        let dies = threads.pop().unwrap();
        let ahead_ms = fixture.ahead_ms(&dies.owner());
        assert!(ahead_ms > 15 * MINUTE_MS, "one waiter, {ahead_ms} ms");
        drop(dies);

        assert_eq!(threads[0].unlock(), Some(1));
        threads.push(fixture.start(Version::V3_5, Call::Lock));
        fixture.run(15 * MINUTE_MS, &mut threads);
        assert!(fixture.is_free() && !threads[1].holds(), "nobody may take it");
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let (client, mortal) = (fixture.client().await, Mortal::new(&fixture).await);
            let held = fixture.take(&client, "job").await;
            // Four at a time, so that somebody always waits until the mortal one is in the queue.
            let tried = Arc::new(AtomicU64::new(0));
            let enough = Arc::new(AtomicBool::new(false));
            let tries: Vec<_> = (0..4)
                .map(|number| {
                    let lock = client.fair_lock("job");
                    let (tried, enough) = (Arc::clone(&tried), Arc::clone(&enough));
                    tokio::spawn(async move {
                        while !enough.load(Ordering::SeqCst) {
                            let guard = lock.try_lock_for(ms(20 + number)).await.unwrap();
                            assert!(guard.is_none());
                            tried.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            eventually("a hundred tries", 10 * SLACK, || tried.load(Ordering::SeqCst) >= 100);
            let lock = mortal.client.fair_lock("job");
            let _dead = tokio::spawn(async move { lock.lock().await });
            let (id, mut dead) = (mortal.client.id().to_string(), None);
            eventually("the mortal one stands in line", SLACK, || {
                dead = fixture.queue("job").into_iter().find(|owner| owner.starts_with(&id));
                dead.is_some()
            });
            let ahead = furthest_score(&fixture, "job");
            assert!(ahead <= FAIR_WAIT + SLACK, "{ahead:?} after a hundred tries");
            enough.store(true, Ordering::SeqCst);
            for tries in tries {
                tries.await.unwrap();
            }
            assert_eq!(fixture.queue("job").len(), 1, "who was not in time is gone");
            mortal.dies(&fixture, &dead.unwrap());
            let next = fixture.enter(&client, "job").await;
            let released = Instant::now();
            let _ = held.release().await;
            let held = next.granted(SLACK).await;
            measured("#1104 release to grant, past a dead waiter", held.at - released);
            let _ = held.release().await;
        });
    }
}

/// Redisson #2099. The same drift again, after #1104 had been fixed for waiters that leave: in a
/// queue that is never empty, every waiter counted from a head that had itself counted from the one
/// before. Three threads that took turns of 100 ms each were good for a quarter of an hour, and the
/// death of one stopped the others for that long.
mod issue_2099_turns_do_not_drift {
    use super::*;

    #[test]
    fn redisson_fails() {
        const TURNS: usize = 200;
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads: Vec<_> =
            (0..3).map(|_| fixture.start(Version::V3_10, Call::Lock)).collect();
        for turn in 0..TURNS {
            assert!(threads[0].holds(), "turn {turn}");
            fixture.pass(100);
            threads[0].unlock();
            threads[1].step();
            let again = threads.remove(0).into_client();
            threads.push(Thread::start(again, LOCK, Call::Lock));
        }
        let [_, head, last] = &threads[..] else { panic!("three threads") };
        for waiter in [head, last] {
            let ahead_ms = fixture.ahead_ms(&waiter.owner());
            assert!(ahead_ms > 15 * MINUTE_MS, "one of two waiters, {ahead_ms} ms");
        }

        drop(threads.remove(1));
        threads[0].unlock();
        fixture.run(15 * MINUTE_MS, &mut threads);
        assert!(fixture.is_free() && !threads[1].holds(), "it waits for the dead head");
    }

    #[test]
    fn ours_does_not() {
        const TURNS: usize = 40;
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let (one, two) = (fixture.client().await, fixture.client().await);
            let mortal = Mortal::new(&fixture).await;
            let clients = [&one, &two, &mortal.client];
            let mut held = fixture.take(clients[0], "job").await;
            let mut places = vec![fixture.enter(clients[1], "job").await];
            for turn in 0..TURNS {
                places.push(fixture.enter(clients[(turn + 2) % 3], "job").await);
                let ahead = furthest_score(&fixture, "job");
                assert!(ahead <= FAIR_WAIT + SLACK, "{ahead:?} after {turn} turns");
                let _ = held.release().await;
                held = places.remove(0).granted(SLACK).await;
            }
            // `TURNS` turns have brought the mortal waiter to the head.
            let dead = places.remove(0);
            assert!(dead.owner.starts_with(&mortal.client.id().to_string()));
            let next = fixture.enter(&one, "job").await;
            mortal.dies(&fixture, &dead.owner);
            let _ = held.release().await;
            let _ = next.granted(SLACK).await.release().await;
        });
    }
}

/// Redisson #6150 (and #3254, #4595, #4661, and the pull requests #3166 to #3202). A service was
/// killed while one of its threads held the lock and others waited. When it was started again it
/// hung: the lease of the holder had ended, but five dead waiters stood in the queue, and each had
/// five minutes after the one before.
mod issue_6150_a_restarted_service_is_not_blocked {
    use super::*;

    const DEAD: usize = 5;

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let mortal = Mortal::new(&fixture).await;
            let dead = fixture.take(&mortal.client, "job").await;
            let mut places = Vec::new();
            for _ in 0..DEAD {
                places.push(fixture.enter(&mortal.client, "job").await);
            }
            let (killed, lease) = (Instant::now(), fixture.ttl("job"));
            mortal.dies(&fixture, &dead.owner());
            let restarted = fixture.client().await;
            let next = fixture.enter(&restarted, "job").await;
            let held = next.granted(lease + ms(300) + SLACK).await;
            measured("#6150 kill to grant", held.at - killed);
            // Nothing of the dead waiters remains.
            eventually("the queue is empty", SLACK, || fixture.queue("job").is_empty());
            let _ = held.release().await;
            drop(dead);
        });
    }
}

/// F07, found by reading: since 3.32 every waiter behind a dead head of a free lock is told to
/// sleep for 0 ms. So each of them asks again at once, for minutes, and keeps the server and the
/// JVM fully busy (#5387 shows the effect).
mod f07_nobody_asks_in_a_circle {
    use super::*;

    #[test]
    fn ours_does_not() {
        const CLIENTS: u64 = 3;
        const WINDOW: Duration = Duration::from_secs(1);
        // Much longer than the time between two calls of a client that asks at its full pace.
        const PERIOD: Duration = Duration::from_secs(1);
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.client().await;
            let held = fixture.take(&client, "job").await;
            let mut java = JavaClient::new(&fixture.server, 0);
            assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
            java.kill();
            let mut clients = Vec::new();
            let mut places = Vec::new();
            for _ in 0..CLIENTS {
                let client = tuned(&fixture, |config| config.heartbeat(PERIOD)).await;
                places.push(fixture.enter(&client, "job").await);
                places.push(fixture.enter(&client, "job").await);
                clients.push(client);
            }
            let _ = held.release().await;
            let before = fixture.script_calls();
            tokio::time::sleep(WINDOW).await;
            let calls = fixture.script_calls() - before;
            println!("measured: {calls} scripts in {WINDOW:?} behind a dead head");
            assert!(fixture.holder("job").is_none() && places.iter().all(|place| !place.is_over()));
            // Beside Java, four heartbeats for each client and period, and half as many again for
            // early ones. Java asks thousands of times.
            let periods = (WINDOW.as_millis() / PERIOD.as_millis()) as u64 + 1;
            assert!(calls <= 6 * CLIENTS * periods, "{calls} scripts");
        });
    }
}

/// F10, found by reading: no version since 3.31 ever drops a head that stands in the list but has
/// no score, and nobody else may take the lock. One `DEL` or eviction of the wrong key is enough.
/// Only deleting the queue helps.
mod f10_a_head_without_a_score_goes {
    use super::*;

    #[test]
    fn ours_does_not() {
        const WAIT: Duration = Duration::from_secs(1);
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let mut java = JavaClient::new(&fixture.server, 0);
            // One Java waiter and one of ours whose records are lost.
            for (name, ghost) in [
                ("foreign", java.owner(9)),
                ("ours", "5a0f6f0e-0000-8000-8000-000000000000:7".to_owned()),
            ] {
                let client = with_fair_wait(&fixture, WAIT).await;
                fixture.call(&["RPUSH", &key("redisson_lock_queue", name), &ghost]);
                let began = Instant::now();
                let lock = client.fair_lock(name);
                let guard = tokio::time::timeout(WAIT + 6 * HB + SLACK, lock.lock())
                    .await
                    .unwrap()
                    .unwrap();
                measured(&format!("F10 past a head without a score, {name}"), began.elapsed());
                let _ = guard.release().await.unwrap();
                // Java is served again, too.
                assert!(java.acquire(name, 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            }
        });
    }
}

/// Redisson's `testAbandonedTimeoutDrift`: the waits for waiters that were abandoned one after the
/// other do not add up. Ours cost one deadline together, and here not even that: their connection
/// is closed.
#[test]
fn abandoned_waiters_do_not_add_up() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = tuned(&fixture, |config| config.watchdog_lease(60 * LEASE)).await;
        let held = fixture.take(&client, "job").await;
        let mut abandoned = Vec::new();
        for _ in 0..2 {
            let mortal = Mortal::new(&fixture).await;
            let place = fixture.enter(&mortal.client, "job").await;
            mortal.dies(&fixture, &place.owner);
            abandoned.push((mortal, place));
        }
        let third = fixture.enter(&client, "job").await;
        let _ = held.release().await;
        let _ = third.granted(SLACK).await.release().await;
        assert_eq!(fixture.queue("job"), [""; 0]);
    });
}
