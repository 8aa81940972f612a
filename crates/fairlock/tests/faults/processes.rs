//! Clients are killed and frozen: what that costs the others, and what the frozen client believes.

use super::fixture::{D, Fixture, HB, LEASE, SLACK, all_in_turn, eventually, measured, ms, steady};
use super::worker::Worker;
use fairlock::GuardState;
use fairlock_testkit::history::{Event, now_ns};
use fairlock_testkit::server::Generation;
use std::time::Instant;

/// The watchdog forgot a client's only hold after its first renewal: the task that renewed it
/// planned the next renewal without waking the watchdog, which slept forever.
#[test]
fn a_hold_is_renewed_again_and_again() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let held = fixture.take(&client, "job").await;
        // More than three leases, so that the first renewals are not enough.
        let lost = tokio::time::timeout(3 * LEASE + LEASE / 2, held.guard.lost()).await;
        assert!(lost.is_err(), "the hold was lost");
        assert!(fixture.ttl("job") > LEASE / 2);
        let _ = held.release().await;
    });
}

/// The holder is killed at any moment between its renewals. The others wait for the rest of its
/// lease, not longer.
#[test]
fn f01_a_holder_is_killed() {
    steady(|| async {
        let phases = [(Generation::Redis62, 0), (Generation::Valkey91, 150)];
        let all = (0..3).map(|n| (Generation::Redis70, 140 * n)).chain(phases);
        for (generation, phase_ms) in all {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let client = fixture.client().await;
            let mut worker = Worker::start(&fixture.server);
            let dead = worker.take(&fixture, "job");
            let next = fixture.enter(&client, "job").await;
            // The moment of the kill matters here: between two renewals, which come every third of
            // the lease.
            tokio::time::sleep(ms(phase_ms)).await;
            fixture.history.record("job", dead.owner(), Event::Died);
            worker.kill9();
            let killed = Instant::now();
            let left = fixture.ttl("job");
            assert!(left <= LEASE);
            let held = next.granted(left + ms(300) + SLACK).await;
            let over = (held.at - killed).saturating_sub(left);
            measured(&format!("f01 {} after the rest of the lease", generation.name()), over);
            assert!(held.at - killed + ms(20) >= left, "granted {left:?} before the lease ended");
            assert!(held.token() > dead.token());
            let _ = held.release().await;
            fixture.history.assert_sound();
        }
    });
}

/// a17: heartbeats are far apart, and the holder dies. The end of its lease is known: the waiter
/// asks then, not at its next heartbeat.
#[test]
fn a17_an_expired_hold_is_taken_at_once() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.seldom().await;
        let mut worker = Worker::start(&fixture.server);
        let dead = worker.take(&fixture, "job");
        let next = fixture.enter(&client, "job").await;
        fixture.history.record("job", dead.owner(), Event::Died);
        worker.kill9();
        let (killed, left) = (Instant::now(), fixture.ttl("job"));
        let held = next.granted(left + ms(200) + SLACK).await;
        measured("a17 after the rest of the lease", (held.at - killed).saturating_sub(left));
        let _ = held.release().await;
        fixture.history.assert_sound();
    });
}

/// A waiter in the middle of the queue is killed. The others keep their order, and nobody waits for
/// the dead one: the server knows that its connections are closed.
#[test]
fn f02_a_waiter_in_the_middle_is_killed() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let client = fixture.seldom().await;
            let mut worker = Worker::seldom(&fixture.server);
            let held = fixture.take(&client, "job").await;
            let first = fixture.enter(&client, "job").await;
            let dead = worker.enter(&fixture, "job");
            let third = fixture.enter(&client, "job").await;
            fixture.history.record("job", &dead, Event::Died);
            worker.kill9();
            fixture.notices_the_death_of(&dead);
            let began = Instant::now();
            let _ = held.release().await;
            all_in_turn(vec![first, third], ms(300) + SLACK).await;
            measured(&format!("f02 {} two turns", generation.name()), began.elapsed());
            assert_eq!(fixture.queue("job"), [""; 0]);
            fixture.history.assert_sound();
        }
    });
}

/// The head of the queue is killed. The second waiter is served as soon as the holder releases.
#[test]
fn f03_the_head_is_killed() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.seldom().await;
        for round in 0..5 {
            let name = format!("job{round}");
            let mut worker = Worker::seldom(&fixture.server);
            let held = fixture.take(&client, &name).await;
            let dead = worker.enter(&fixture, &name);
            let second = fixture.enter(&client, &name).await;
            fixture.history.record(&name, &dead, Event::Died);
            worker.kill9();
            fixture.notices_the_death_of(&dead);
            let released = Instant::now();
            let _ = held.release().await;
            let held = second.granted(ms(200) + SLACK).await;
            measured("f03 release to grant", held.at - released);
            let _ = held.release().await;
        }
        fixture.history.assert_sound();
    });
}

/// The head is granted the lock while it cannot hear, and is killed before it could use it. The
/// grant lasts for as long as its last heartbeat was good for; then the lock is handed on.
#[test]
fn f05_killed_right_after_the_grant() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut worker = Worker::start(&fixture.server);
        let held = fixture.take(&client, "job").await;
        let dead = worker.enter(&fixture, "job");
        let next = fixture.enter(&client, "job").await;
        fixture.history.record("job", &dead, Event::Died);
        worker.stop();
        let released = Instant::now();
        let _ = held.release().await;
        assert_eq!(
            fixture.holder("job").as_deref(),
            Some(dead.as_str()),
            "the hand-over went to the head"
        );
        worker.kill9();
        let held = next.granted(D + HB + SLACK).await;
        measured("f05 release to grant, past one unclaimed", held.at - released);
        let _ = held.release().await;
        fixture.history.assert_sound();

        // As above, but killed a moment after it has reported that it holds the lock.
        let mut worker = Worker::start(&fixture.server);
        let held = fixture.take(&client, "used").await;
        worker.enter(&fixture, "used");
        let next = fixture.enter(&client, "used").await;
        let _ = held.release().await;
        let dead = worker.granted(&fixture, "used", SLACK);
        fixture.history.record("used", dead.owner(), Event::Died);
        worker.kill9();
        let killed = Instant::now();
        let held = next.granted(LEASE + HB + SLACK).await;
        measured("f05 kill to grant, past one in use", held.at - killed);
        let _ = held.release().await;
        fixture.history.assert_sound();
    });
}

/// Fifty waiters of one process die at once: no delay at all for those behind them.
#[test]
fn f07_fifty_waiters_of_one_process_die() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.seldom().await;
        let mut worker = Worker::seldom(&fixture.server);
        let held = fixture.take(&client, "job").await;
        let mut dead = String::new();
        for n in 0..50 {
            dead = worker.enter_as(&fixture, &n.to_string(), "job");
            fixture.history.record("job", &dead, Event::Died);
        }
        let live = fixture.enter(&client, "job").await;
        worker.kill9();
        fixture.notices_the_death_of(&dead);
        let released = Instant::now();
        let _ = held.release().await;
        let held = live.granted(ms(200) + SLACK).await;
        measured("f07 release to grant, past 50 dead of one process", held.at - released);
        let _ = held.release().await;
        fixture.history.assert_sound();
    });
}

/// Ten processes die at once: no delay either.
#[test]
fn f07_ten_processes_die() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.seldom().await;
        let held = fixture.take(&client, "job").await;
        let mut workers: Vec<_> = (0..10).map(|_| Worker::seldom(&fixture.server)).collect();
        let mut dead = Vec::new();
        for worker in &mut workers {
            dead.push(worker.enter(&fixture, "job"));
        }
        let live = fixture.enter(&client, "job").await;
        workers.iter_mut().for_each(Worker::kill9);
        for owner in &dead {
            fixture.history.record("job", owner, Event::Died);
            fixture.notices_the_death_of(owner);
        }
        let released = Instant::now();
        let _ = held.release().await;
        let held = live.granted(ms(200) + SLACK).await;
        measured("f07 release to grant, past 10 dead processes", held.at - released);
        let _ = held.release().await;
        fixture.history.assert_sound();
    });
}

/// A holder is frozen for longer than its lease. The next holder proceeds, with a larger token, and
/// the first thing that the old one reports when it resumes is that it has lost the lock.
#[test]
fn f08_a_holder_is_frozen_beyond_its_lease() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut worker = Worker::start(&fixture.server);
        let old = worker.take(&fixture, "job");
        worker.order("watch 0");
        worker.expect("says 0 Held", SLACK);
        let next = fixture.enter(&client, "job").await;
        worker.stop();
        let stopped = Instant::now();
        // A frozen holder cannot claim anything; it must know of the loss before it claims again.
        fixture.history.record("job", old.owner(), Event::Lost);
        let held = next.granted(LEASE + ms(300) + SLACK).await;
        measured("f08 freeze to the next grant", held.at - stopped);
        assert!(held.token() > old.token());
        let resumed_ns = now_ns();
        worker.cont();
        let first = loop {
            let line = worker.expect("s", SLACK);
            if line.at_ns > resumed_ns {
                break line;
            }
        };
        assert_eq!(first.words[2], "Lost", "{first:?}");
        worker.order("release 0");
        assert_eq!(worker.expect("released", SLACK).words[2], "Lost");
        assert_eq!(held.guard.state(), GuardState::Held);
        assert_eq!(fixture.holder("job"), Some(held.owner()));
        let _ = held.release().await;
        fixture.history.assert_sound();
    });
}

/// A waiter is frozen for longer than a heartbeat is good for, and its turn does not come
/// meanwhile: it keeps its place.
#[test]
fn f09_a_waiter_is_frozen_and_keeps_its_place() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut worker = Worker::start(&fixture.server);
        let held = fixture.take(&client, "job").await;
        let frozen = worker.enter(&fixture, "job");
        let younger = fixture.enter(&client, "job").await;
        worker.stop();
        // This test is about time: more than D without a heartbeat.
        tokio::time::sleep(D + HB).await;
        worker.cont();
        let (id, _) = frozen.split_once(':').unwrap();
        fixture.beat_again("job", [id]);
        let _ = held.release().await;
        let line = worker.granted(&fixture, "job", SLACK);
        assert_eq!(line.owner(), frozen);
        assert!(!younger.is_over());
        fixture.history.record("job", &frozen, Event::Released);
        worker.order("release 0");
        all_in_turn(vec![younger], SLACK).await;
        fixture.history.assert_sound();
    });
}

/// A waiter is frozen, and its turn comes and goes meanwhile. It never takes itself for the holder,
/// returns to its place, and is served before later arrivals.
#[test]
fn f09_a_waiter_is_frozen_and_its_turn_goes_by() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut worker = Worker::start(&fixture.server);
        let held = fixture.take(&client, "job").await;
        let frozen = worker.enter(&fixture, "job");
        let second = fixture.enter(&client, "job").await;
        let third = fixture.enter(&client, "job").await;
        worker.stop();
        // This test is about time: more than D without a heartbeat.
        tokio::time::sleep(D + HB).await;
        let _ = held.release().await;
        let held = second.granted(SLACK).await;
        let resumed = Instant::now();
        worker.cont();
        eventually("the frozen waiter is back at the head", HB + SLACK, || {
            fixture.queue("job").first() == Some(&frozen)
        });
        measured("f09 going on to being back in place", resumed.elapsed());
        assert_eq!(worker.hear("granted", ms(0)).map(|line| line.words), None);
        let _ = held.release().await;
        let line = worker.granted(&fixture, "job", SLACK);
        assert!(!third.is_over());
        fixture.history.record("job", line.owner(), Event::Released);
        worker.order("release 0");
        all_in_turn(vec![third], SLACK).await;
        // The frozen waiter was overtaken, as it must be; that is the only violation.
        let violations = fairlock_testkit::history::check_fifo(&fixture.history.records());
        assert_eq!(violations.len(), 1, "{violations:?}");
    });
}

/// A holder is frozen for half of its lease, at several moments between renewals: nothing happens.
#[test]
fn f10_a_holder_is_frozen_briefly() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut worker = Worker::with(&fixture.server.url(), HB, 2 * LEASE, []);
        let line = worker.take(&fixture, "job");
        let next = fixture.enter(&client, "job").await;
        worker.order("watch 0");
        for phase_ms in [0, 200, 400] {
            // The moment of the freeze matters here: between two renewals, a third of the lease
            // apart, so that at most a third of it is gone.
            tokio::time::sleep(ms(phase_ms)).await;
            worker.stop();
            // Half of the lease.
            tokio::time::sleep(LEASE).await;
            let resumed_ns = now_ns();
            worker.cont();
            loop {
                let line = worker.expect("says", SLACK);
                assert_ne!(line.words[2], "Lost", "{line:?}");
                if line.at_ns > resumed_ns && line.remaining() > LEASE + LEASE / 2 {
                    break;
                }
            }
        }
        assert!(!next.is_over());
        fixture.history.record("job", line.owner(), Event::Released);
        worker.order("release 0");
        assert_eq!(worker.expect("released", SLACK).words[2], "Released");
        all_in_turn(vec![next], SLACK).await;
        fixture.history.assert_sound();
    });
}
