//! A free lock that no waiter is told of.

use super::fixture::{JavaFixture, LOCK, MINUTE_MS, SECOND_MS};
use crate::faults::fixture::{
    Fixture, HB, LEASE, SELDOM, SLACK, all_in_turn, measured, ms, steady,
};
use fairlock::Release;
use fairlock_testkit::redisson::{
    Call, DEFAULT_WAIT_MS, JavaClient, State, Version, WATCHDOG_LEASE_MS,
};
use std::time::Instant;

/// Redisson #3730 ("deadlock again"). Two threads called `tryLock(20, 5, SECONDS)`, and the program
/// ended without unlocking. No message is sent when a lease ends; the second thread has to look by
/// itself, at the end of the time it was given. It counted that time from its own clock, read
/// before its request was carried out. So it looked a moment too early, and the next time it was
/// given was below zero, which meant: sleep until a message comes. None came.
mod issue_3730_a_lease_that_ends_is_noticed {
    use super::*;

    const CALL: Call = Call::TryLock { wait_ms: 20 * SECOND_MS, lease_ms: 5 * SECOND_MS };

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let first = fixture.start(Version::V3_31, CALL);
        assert!(first.holds());
        // It reads its clock, and its request is carried out three milliseconds later.
        let mut threads = [fixture.on_its_way(3, || fixture.start(Version::V3_31, CALL))];
        fixture.run(5 * SECOND_MS - 3 - 1, &mut threads);
        assert!(!fixture.is_free(), "it has asked, a moment too early");
        fixture.run(MINUTE_MS, &mut threads);
        assert!(fixture.is_free());
        assert_eq!(threads[0].state(), State::GaveUp, "the lock was free for 15 of its 20 s");
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            // Their regular heartbeats come too late to help.
            let client = fixture.seldom().await;
            for round in 0..3 {
                let name = format!("job{round}");
                let held = fixture.hold(client.fair_lock(&name).lease(ms(400))).await;
                let lock = client.fair_lock(&name).lease(ms(400));
                let guard = tokio::time::timeout(ms(400) + SLACK, lock.try_lock_for(4 * LEASE));
                let guard = guard.await.expect("in time").unwrap().expect("the lease has ended");
                measured("#3730 after the end of a lease of 400 ms", held.at.elapsed());
                assert_eq!(guard.release().await.unwrap(), Release::Released);
                assert_eq!(held.release().await, Release::Lost);
            }
        });
    }
}

/// Redisson #5503 (and #4705). One thread worked for forty seconds, renewed by its watchdog;
/// another waited. The time that the second was given is counted down from its entry and ignores
/// renewals: after half a minute it was below zero, and the thread slept until a message would
/// come. The unlock took it for dead, dropped it, and sent no message.
mod issue_5503_a_renewed_hold_is_waited_for {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads = vec![fixture.start(Version::V3_12, Call::Lock)];
        threads.push(fixture.start(Version::V3_12, Call::Lock));
        fixture.run(40 * SECOND_MS, &mut threads);
        assert_eq!(threads[1].state(), State::Sleeps { until_ms: None });
        assert_eq!(threads[0].unlock(), Some(1));
        assert_eq!(fixture.queue(), [""; 0], "dropped, although it waits");
        fixture.run(60 * MINUTE_MS, &mut threads);
        assert!(fixture.is_free() && !threads[1].holds(), "an hour later");
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.client().await;
            let held = fixture.take(&client, "job").await;
            let next = fixture.enter(&client, "job").await;
            tokio::time::sleep(2 * LEASE).await;
            assert!(!next.is_over());
            assert_eq!(held.release().await, Release::Released);
            let _ = next.granted(SLACK).await.release().await;
        });
    }
}

/// F17, found by reading: the release tells the head at the moment when the head's wait ends. The
/// head leaves without passing the message on, and the next waiter, whose turn it is now, sleeps
/// until the end of a TTL that belongs to nobody any more.
mod f17_the_head_gives_up_as_it_is_told {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let head = Call::TryLock { wait_ms: 10 * SECOND_MS, lease_ms: 30 * SECOND_MS };
        let mut threads = vec![fixture.start(Version::V4, Call::Lock)];
        threads.push(fixture.start(Version::V4, head));
        threads.push(fixture.start(Version::V4, Call::Lock));
        fixture.pass(10 * SECOND_MS);
        threads[0].unlock();
        assert_eq!(threads[1].step(), State::GaveUp, "although it was told");
        assert_eq!(fixture.queue(), [threads[2].owner()]);
        assert!(fixture.is_free() && !threads[2].is_told(), "its turn, and it does not know");
        fixture.run(19 * SECOND_MS, &mut threads);
        assert!(fixture.is_free() && !threads[2].holds());
        fixture.run(SECOND_MS, &mut threads);
        assert!(threads[2].holds(), "after 20 s, when it looked by itself");
    }

    /// The head gives up at about the time of the release, a little earlier or later each round.
    /// One of our waiters is next, then one of Java's. No heartbeat comes.
    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let (one, two) = (fixture.seldom().await, fixture.seldom().await);
            for round in 0..20_u64 {
                let name = format!("job{round}");
                let held = fixture.take(&one, &name).await;
                let lock = two.fair_lock(&name);
                let head = tokio::spawn(async move { lock.try_lock_for(ms(60)).await.unwrap() });
                fixture.joined(&name, &[]);
                let next = fixture.enter(&one, &name).await;
                let mut java = JavaClient::new(&fixture.server, 0);
                assert!(java.acquire(&name, 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
                let mut wakes_java = java.subscribe(&name, 1);
                let until = held.at + ms(50 + round);
                tokio::time::sleep_until(until.into()).await;
                let _ = held.release().await;
                // A grant at the last moment is still a grant, and is passed on.
                if let Some(guard) = head.await.unwrap() {
                    let _ = guard.release().await.unwrap();
                }
                let _ = next.granted(SLACK.min(SELDOM / 2)).await.release().await;
                assert!(wakes_java.woken_within(SLACK), "nobody told Java in round {round}");
                assert!(java.acquire(&name, 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            }
        });
    }
}

/// F18, found by reading: an unlock that drops stale heads tells the new head, if there is one. The
/// dropped waiters are told nothing, dead or alive, and sleep on beside a free lock. A thread that
/// arrives later takes it.
mod f18_the_dropped_are_served {
    use super::*;

    /// A Java holder whose clock is ten minutes ahead drops our waiters with its unlock.
    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.client().await;
            let mut java = JavaClient::new(&fixture.server, 600_000);
            assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            let places =
                vec![fixture.enter(&client, "job").await, fixture.enter(&client, "job").await];
            assert_eq!(java.unlock("job", 1), Some(1));
            let unlocked = Instant::now();
            let mut places = places.into_iter();
            let held = places.next().unwrap().granted(HB + ms(300) + SLACK).await;
            measured("F18 dropped by an unlock, to the grant", held.at - unlocked);
            let _ = held.release().await;
            all_in_turn(places.collect(), HB + SLACK).await;
            fixture.history.assert_sound();
        });
    }
}

/// F19, Redisson #3829: the lock's key is deleted, evicted, or lost in a failover. Without an
/// unlock there is no message: the lock is free, and the waiters sleep until the end of a TTL that
/// no longer exists.
mod f19_a_lost_key_is_noticed {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut threads: Vec<_> = (0..2).map(|_| fixture.start(Version::V4, Call::Lock)).collect();
        assert_eq!(fixture.call(&["DEL", LOCK]).int(), 1);
        // The holder's watchdog finds nothing to renew, and sends no message either.
        fixture.run(29 * SECOND_MS, &mut threads);
        assert!(fixture.is_free() && !threads[1].holds(), "free for 29 s");
        assert_eq!(fixture.queue(), [threads[1].owner()]);
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.client().await;
            let held = fixture.take(&client, "job").await;
            let next = fixture.enter(&client, "job").await;
            assert_eq!(fixture.call(&["DEL", "job"]).int(), 1);
            let lost = Instant::now();
            let next = next.granted(HB + ms(300) + SLACK).await;
            measured("F19 after DEL", next.at - lost);
            held.lost(LEASE / 3 + SLACK).await;
            assert_eq!(next.release().await, Release::Released);
        });
    }
}
