//! Live waiters that are judged dead.

use super::fixture::{JavaFixture, MINUTE_MS, SECOND_MS, tuned, with_fair_wait};
use crate::faults::fixture::{
    D, Fixture, HB, LEASE, SLACK, all_in_turn, eventually, key, measured, ms, steady,
};
use crate::faults::worker::Worker;
use fairlock_testkit::clock::ClockHandle;
use fairlock_testkit::history::Event;
use fairlock_testkit::redisson::{
    Call, DEFAULT_WAIT_MS, JavaClient, State, Thread, Version, WATCHDOG_LEASE_MS,
};
use fairlock_testkit::tempdir::TempDir;
use std::time::{Duration, Instant};

/// Redisson #2883 (and #2278, #2960). Hundreds of threads waited, and each held the lock for 200
/// ms. Each waiter was given five seconds beyond the lease, however long the queue ahead of it:
/// after some fifty turns the unlock took a live head for dead, dropped it, and told the next one.
/// The dropped waiter was never told anything; a program that waited for all its threads hung.
mod issue_2883_a_long_queue_is_served {
    use super::*;

    #[test]
    fn redisson_fails() {
        const THREADS: usize = 60;
        let Some(fixture) = JavaFixture::open() else { return };
        let call = Call::LockFor { lease_ms: 5 * SECOND_MS };
        let mut threads: Vec<_> =
            (0..THREADS).map(|_| fixture.start(Version::V3_12, call)).collect();
        let mut served = 0;
        while let Some(holder) = threads.iter().position(Thread::holds) {
            fixture.pass(200);
            threads.remove(holder).unlock();
            served += 1;
            // The threads that were told ask, in whatever order the messages arrive.
            for thread in &mut threads {
                if thread.step() == State::Holds {
                    break;
                }
            }
        }
        assert!(served < THREADS && !threads.is_empty(), "{served} of {THREADS}");
        assert!(fixture.is_free() && fixture.queue().is_empty(), "nobody holds it, nobody waits");
        let before_ms = fixture.elapsed_ms();
        fixture.run(MINUTE_MS, &mut threads);
        assert!(threads.iter().all(|thread| !thread.holds()), "they live, and sleep on");
        assert_eq!(fixture.elapsed_ms(), before_ms + MINUTE_MS);
    }

    /// Five hundred waiters, as in the report. They wait for twice the fair wait.
    #[test]
    fn ours_does_not() {
        const WAITERS: usize = 500;
        const WAIT: Duration = Duration::from_secs(1);
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let clients =
                [with_fair_wait(&fixture, WAIT).await, with_fair_wait(&fixture, WAIT).await];
            let held = fixture.take(&clients[0], "job").await;
            let mut tasks = Vec::new();
            for number in 0..WAITERS {
                let lock = clients[number % 2].fair_lock("job");
                tasks.push(tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    guard.ensure_valid().unwrap();
                    guard.release().await.unwrap()
                }));
            }
            tokio::time::sleep(2 * WAIT).await;
            let began = Instant::now();
            let _ = held.release().await;
            for task in tasks {
                let released = tokio::time::timeout(20 * SLACK, task).await;
                assert_eq!(released.expect("a turn").unwrap(), fairlock::Release::Released);
            }
            measured("#2883 five hundred turns", began.elapsed());
            assert!(fixture.holder("job").is_none() && fixture.queue("job").is_empty());
        });
    }
}

/// Redisson #3004. A thread held the lock for longer than the five minutes that a waiter is given.
/// A later arrival dropped all the other waiters, although they were alive; the release told only
/// the late one, and the others hung. Since 3.32 they ask again within a TTL and do not hang, but
/// each then goes to the end of the queue.
mod issue_3004_a_long_hold_keeps_the_queue {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads: Vec<_> =
            (0..3).map(|_| fixture.start(Version::V3_31, Call::Lock)).collect();
        fixture.run(11 * MINUTE_MS, &mut threads);
        threads.push(fixture.start(Version::V3_31, Call::Lock));
        assert_eq!(fixture.queue(), [threads[3].owner()], "the late one has dropped the others");
        threads[0].unlock();
        fixture.run(SECOND_MS, &mut threads);
        assert!(threads[3].holds());
        threads[3].unlock();
        fixture.run(60 * MINUTE_MS, &mut threads);
        assert!(fixture.is_free());
        for hung in &threads[1..3] {
            assert_eq!(hung.state(), State::Sleeps { until_ms: None }, "for ever");
        }
    }

    #[test]
    fn redisson_loses_the_order_today() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads: Vec<_> = (0..3).map(|_| fixture.start(Version::V4, Call::Lock)).collect();
        let came = [threads[1].owner(), threads[2].owner()];
        assert_eq!(fixture.queue(), came);
        fixture.run(6 * MINUTE_MS, &mut threads);
        threads[0].unlock();
        fixture.run(SECOND_MS, &mut threads);
        assert!(threads[2].holds(), "the last is first");
    }

    /// Our waiters wait for three times the fair wait; then a Java client arrives, and drops every
    /// waiter that it takes for dead.
    #[test]
    fn ours_does_not() {
        const WAIT: Duration = Duration::from_secs(1);
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let one = with_fair_wait(&fixture, WAIT).await;
            let two = with_fair_wait(&fixture, WAIT).await;
            let held = fixture.take(&one, "job").await;
            let places = vec![fixture.enter(&two, "job").await, fixture.enter(&one, "job").await];
            let queue = fixture.queue("job");
            tokio::time::sleep(3 * WAIT).await;
            let mut java = JavaClient::new(&fixture.server, 0);
            assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
            let mut wakes_java = java.subscribe("job", 1);
            assert_eq!(fixture.queue("job")[..2], queue, "it has dropped nobody");
            let _ = held.release().await;
            all_in_turn(places, SLACK).await;
            assert!(wakes_java.woken_within(SLACK));
            assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            fixture.history.assert_sound();
        });
    }
}

/// Redisson #4743 (pull request #5520). `tryLock(60, SECONDS)` without a lease loses its unit on
/// the way: the waiter is given 60 ms beyond the holder's lease, not 60 s. The next arrival drops
/// it. And when it gives up, it takes a real 60 s from every waiter behind it, although it had
/// added only 60 ms to each.
mod issue_4743_a_timed_wait_keeps_its_place {
    use super::*;

    const TIMED: Call = Call::TryLockRenewed { wait: 60, unit_ms: SECOND_MS };

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads = vec![fixture.start(Version::V4, Call::Lock)];
        threads.push(fixture.start(Version::V4, TIMED));
        threads.push(fixture.start(Version::V4, Call::Lock));
        let [timed, behind] = [threads[1].owner(), threads[2].owner()];
        assert_eq!(fixture.ahead_ms(&timed), WATCHDOG_LEASE_MS + 60);
        fixture.run(WATCHDOG_LEASE_MS + SECOND_MS, &mut threads);
        threads.push(fixture.start(Version::V4, Call::Lock));
        let late = threads[3].owner();
        assert_eq!(fixture.queue(), [behind.clone(), late.clone()], "29 s before its time is over");
        fixture.run(WATCHDOG_LEASE_MS, &mut threads);
        assert_eq!(fixture.queue(), [behind, late], "it gave up; it had no place when it asked");
        assert_eq!(threads[1].state(), State::GaveUp);
    }

    #[test]
    fn redisson_takes_a_minute_from_those_behind() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads = vec![fixture.start(Version::V4, Call::Lock)];
        let timed = Call::TryLockRenewed { wait: 20, unit_ms: SECOND_MS };
        threads.push(fixture.start(Version::V4, timed));
        threads.push(fixture.start(Version::V4, Call::LockFor { lease_ms: SECOND_MS }));
        let behind = threads[2].owner();
        assert_eq!(fixture.ahead_ms(&behind), WATCHDOG_LEASE_MS + 20 + DEFAULT_WAIT_MS);
        fixture.run(20 * SECOND_MS, &mut threads);
        assert_eq!(threads[1].state(), State::GaveUp);
        let lost_ms = WATCHDOG_LEASE_MS + 20 + DEFAULT_WAIT_MS - fixture.ahead_ms(&behind);
        assert_eq!(lost_ms, 2 * 20 * SECOND_MS, "20 s have passed, and 20 s were taken");
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.seldom().await;
            let held = fixture.take(&client, "job").await;
            let before = fixture.queue("job");
            let lock = client.fair_lock("job");
            let timed = tokio::spawn(async move {
                lock.try_lock_for(Duration::from_secs(60)).await.unwrap().unwrap()
            });
            let timed_owner = fixture.joined("job", &before);
            let before = fixture.queue("job");
            let lock = client.fair_lock("job");
            let short = tokio::spawn(async move { lock.try_lock_for(ms(300)).await.unwrap() });
            fixture.joined("job", &before);
            let behind = fixture.enter(&client, "job").await;
            let score = |owner: &str| -> i64 {
                let score = fixture.call(&["ZSCORE", &key("redisson_lock_timeout", "job"), owner]);
                score.text().parse().unwrap()
            };
            let scores = [score(&timed_owner), score(&behind.owner)];
            assert!(short.await.unwrap().is_none());
            eventually("it has left", SLACK, || fixture.queue("job").len() == 2);
            assert_eq!([score(&timed_owner), score(&behind.owner)], scores, "nothing is taken");
            let mut java = JavaClient::new(&fixture.server, 0);
            assert!(!java.try_acquire("job", 1, WATCHDOG_LEASE_MS));
            assert_eq!(fixture.queue("job"), [timed_owner.clone(), behind.owner.clone()]);
            let _ = held.release().await;
            let guard = tokio::time::timeout(SLACK, timed).await.expect("its turn").unwrap();
            assert_eq!(guard.owner().to_string(), timed_owner);
            let _ = guard.release().await.unwrap();
            let _ = behind.granted(SLACK).await.release().await;
        });
    }
}

/// F13, found by reading (and as in #4167): a thread that tried asynchronously for ten seconds and
/// gave up takes five minutes from the waiters behind it, although it had added only ten seconds to
/// each. From then on they count as dead. The next unlock drops them all and tells nobody; any
/// later arrival overtakes them.
mod f13_giving_up_takes_nothing_from_others {
    use super::*;

    /// Our waiters behind such a Java thread also lose five minutes of score, and can afford it.
    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.seldom().await;
            let held = fixture.take(&client, "job").await;
            let mut java = JavaClient::new(&fixture.server, 0);
            assert!(java.acquire("job", 1, 10_000, WATCHDOG_LEASE_MS).is_some());
            let places =
                vec![fixture.enter(&client, "job").await, fixture.enter(&client, "job").await];
            let queue = fixture.queue("job");
            java.leave("job", 1, DEFAULT_WAIT_MS);
            assert!(!java.try_acquire("job", 2, WATCHDOG_LEASE_MS));
            assert_eq!(fixture.queue("job"), queue[1..], "nobody was dropped");
            let _ = held.release().await;
            all_in_turn(places, SLACK).await;

            // One of our waiters gives up: those behind it are not affected.
            let held = fixture.take(&client, "job").await;
            let lock = client.fair_lock("job");
            let gives_up = tokio::spawn(async move { lock.try_lock_for(ms(100)).await });
            let owner = fixture.joined("job", &[]);
            let places =
                vec![fixture.enter(&client, "job").await, fixture.enter(&client, "job").await];
            assert!(gives_up.await.unwrap().unwrap().is_none());
            fixture.history.record("job", &owner, Event::GaveUp);
            assert!(!java.try_acquire("job", 2, WATCHDOG_LEASE_MS));
            let _ = held.release().await;
            all_in_turn(places, SLACK).await;
            fixture.history.assert_sound();
        });
    }
}

/// F20, found by reading: waiters are judged dead by the clock of the client that looks. A JVM
/// whose clock is ten minutes ahead drops live waiters and takes the lock before them; one whose
/// clock is behind lets dead waiters block the queue for longer.
mod f20_clocks_of_clients_do_not_matter {
    use super::*;

    /// Three processes, whose clocks are a day ahead, right, and a day behind.
    #[test]
    fn ours_does_not() {
        const DAY_US: i64 = 24 * 3_600 * 1_000_000;
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.client().await;
            let dirs = [TempDir::new(), TempDir::new()];
            let [Some(fast), Some(slow)] = dirs.each_ref().map(|dir| ClockHandle::new(dir.path()))
            else {
                return;
            };
            fast.set_offset(DAY_US);
            slow.set_offset(-DAY_US);
            let mut workers = [&fast, &slow]
                .map(|clock| Worker::with(&fixture.server.url(), HB, LEASE, clock.environment()));
            let held = fixture.take(&client, "job").await;
            let first = workers[0].enter(&fixture, "job");
            let second = fixture.enter(&client, "job").await;
            let third = workers[1].enter(&fixture, "job");
            assert!(fast.reads() > 0 && slow.reads() > 0, "their clocks are not ours");
            // Long enough for every client to judge every other.
            tokio::time::sleep(D + HB).await;
            assert_eq!(fixture.queue("job"), [first.clone(), second.owner.clone(), third.clone()]);
            let _ = held.release().await;
            let mut turn = |worker: usize, owner: &str| {
                let line = workers[worker].granted(&fixture, "job", SLACK);
                assert_eq!(line.owner(), owner);
                fixture.history.record("job", owner, Event::Released);
                workers[worker].order("release 0");
            };
            turn(0, &first);
            let _ = second.granted(SLACK).await.release().await;
            turn(1, &third);
            fixture.history.assert_sound();
        });
    }
}

/// Redisson's `testWaitTimeoutDrift` and `testAcquireFailedTimeoutDrift_Descrete`: scores do not
/// move when waiters leave or are served. Ours are the same for all waiters, and stay within the
/// fair wait.
#[test]
fn scores_stay_where_they_are() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = tuned(&fixture, |config| config.heartbeat(Duration::from_secs(60))).await;
        let held = fixture.take(&client, "job").await;
        let mut places = Vec::new();
        for _ in 0..4 {
            places.push(fixture.enter(&client, "job").await);
        }
        let scores = || -> Vec<i64> {
            let queue = fixture.queue("job");
            // A waiter that is just leaving may have no score any more.
            let score = |owner: &String| {
                let score = fixture.call(&["ZSCORE", &key("redisson_lock_timeout", "job"), owner]);
                (!score.is_nil()).then(|| score.text().parse().unwrap())
            };
            queue.iter().filter_map(score).collect()
        };
        // The head has sent a heartbeat, and its score counts from there. A waiter that learns the
        // end of the hold before its next heartbeat sends one too: wait until none is in flight.
        let mut calls = (0, Instant::now());
        eventually("nobody asks any more", 2 * SLACK, || {
            let now = fixture.script_calls();
            if now != calls.0 {
                calls = (now, Instant::now());
            }
            calls.1.elapsed() > Duration::from_millis(200)
        });
        let before = scores();
        let spread_ms = before[3] - before[1];
        assert!((0..1_000).contains(&spread_ms), "{before:?}: one allowance, not one each");
        assert!(before[0] <= before[1], "{before:?}");
        places.remove(1).leaves(&fixture, "job");
        eventually("it has left", SLACK, || scores().len() == 3);
        assert_eq!(scores(), [before[0], before[2], before[3]]);
        let _ = held.release().await;
        let held = places.remove(0).granted(SLACK).await;
        assert_eq!(scores(), [before[2], before[3]]);
        let _ = held.release().await;
        all_in_turn(places, SLACK).await;
    });
}
