//! A Java client in the same queue: dead, alive, or with a wrong clock.

use super::fixture::{Fixture, HB, SELDOM, SLACK, all_in_turn, eventually, measured, ms, steady};
use fairlock::Release;
use fairlock_testkit::redisson::{DEFAULT_WAIT_MS, JavaClient, WATCHDOG_LEASE_MS, channel_of};
use fairlock_testkit::server::Generation;
use std::time::{Duration, Instant};

/// How long a free lock is kept for a Java head that has no subscription.
const PATIENCE: Duration = Duration::from_secs(8);

/// A Java client dies at the head of the queue. Redisson waits for its timeout, which is minutes
/// away; ours behind it waits eight seconds.
#[test]
fn a_dead_java_head_costs_eight_seconds() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let held = fixture.take(&client, "job").await;
        let mut java = JavaClient::new(&fixture.server, 0);
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
        java.kill();
        let places = vec![fixture.enter(&client, "job").await, fixture.enter(&client, "job").await];
        let released = Instant::now();
        let _ = held.release().await;
        let mut places = places.into_iter();
        let held = places.next().unwrap().granted(PATIENCE + HB + 2 * SLACK).await;
        let took = held.at - released;
        measured("release to grant, past a dead Java head", took);
        assert!(took > PATIENCE - SLACK, "it may have been between entering and subscribing");
        let _ = held.release().await;
        // The client is known to be dead by now: the next waiter does not wait again.
        all_in_turn(places.collect(), SLACK).await;
        fixture.history.assert_sound();
    });
}

/// A live Java client waits at the head: our release wakes it, it takes the lock itself, and holds
/// it once. Ours behind it gets the lock when Java unlocks.
#[test]
fn a_live_java_head_is_woken_and_served() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let client = fixture.seldom().await;
            let held = fixture.take(&client, "job").await;
            let mut java = JavaClient::new(&fixture.server, 0);
            assert!(java.acquire("job", 7, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
            let mut subscription = java.subscribe("job", 7);
            let place = fixture.enter(&client, "job").await;
            let released = Instant::now();
            assert_eq!(held.release().await, Release::Released);
            assert!(subscription.woken_within(SLACK), "nobody told the Java head");
            measured(&format!("{} release to waking Java", generation.name()), released.elapsed());
            assert!(java.acquire("job", 7, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            assert_eq!(fixture.holder("job"), Some(java.owner(7)));
            assert_eq!(fixture.call(&["HGET", "job", &java.owner(7)]).text(), "1");
            assert!(!place.is_over());

            let unlocked = Instant::now();
            assert_eq!(java.unlock("job", 7), Some(1));
            let held = place.granted(ms(300) + SLACK).await;
            measured(
                &format!("{} Java's unlock to our grant", generation.name()),
                held.at - unlocked,
            );
            assert_eq!(held.release().await, Release::Released);
            assert_eq!((fixture.holder("job"), fixture.queue("job")), (None, vec![]));
            fixture.history.assert_sound();
        }
    });
}

/// Java and ours take turns in one queue, strictly in the order of their arrival.
#[test]
fn java_and_ours_alternate() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.seldom().await, fixture.seldom().await);
        let mut java = JavaClient::new(&fixture.server, 0);
        let held = fixture.take(&one, "job").await;
        let mut places = Vec::new();
        let mut subscriptions = Vec::new();
        for n in 0..4 {
            places.push(fixture.enter(if n % 2 == 0 { &one } else { &two }, "job").await);
            assert!(java.acquire("job", n, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
            subscriptions.push(java.subscribe("job", n));
        }
        // The first waiter listens on its Java channel, and its client's next heartbeat is far
        // away: the client's next oldest waiter must then start to listen by itself.
        let first = channel_of("job", &places[0].owner);
        eventually("the first listens", SLACK, || fixture.listeners(&first) == 1);
        let mut calls = (0, Instant::now());
        eventually("nobody asks any more", 2 * SLACK, || {
            let now = fixture.script_calls();
            if now != calls.0 {
                calls = (now, Instant::now());
            }
            calls.1.elapsed() > ms(200)
        });
        let _ = held.release().await;
        for (n, place) in (0..).zip(places) {
            let began = Instant::now();
            let held = place.granted(ms(300) + SLACK).await;
            measured(&format!("hand-over {n} to ours"), held.at.saturating_duration_since(began));
            let _ = held.release().await;
            assert!(subscriptions[n as usize].woken_within(SLACK), "nobody told Java's thread {n}");
            assert!(java.acquire("job", n, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            assert_eq!(fixture.call(&["HGET", "job", &java.owner(n)]).text(), "1");
            assert_eq!(java.unlock("job", n), Some(1));
        }
        assert_eq!((fixture.holder("job"), fixture.queue("job")), (None, vec![]));
        fixture.history.assert_sound();
    });
}

/// A Java client whose clock is ten minutes ahead arrives. By its clock every waiter in the queue
/// is long dead, and it drops all of ours; each returns to its place, ahead of later arrivals.
#[test]
fn a_java_client_with_a_fast_clock_drops_ours() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.client().await, fixture.client().await);
        let held = fixture.take(&one, "job").await;
        let mut places = Vec::new();
        for client in [&one, &two, &one] {
            places.push(fixture.enter(client, "job").await);
        }
        let queue = fixture.queue("job");
        let mut java = JavaClient::new(&fixture.server, 600_000);
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
        assert_eq!(fixture.queue("job"), [java.owner(1)], "ours were dropped");
        let took = eventually("ours are back in their places", HB + SLACK, || {
            let now = fixture.queue("job");
            now.len() == queue.len() + 1 && now[..queue.len()] == queue[..]
        });
        measured("dropped by a fast Java clock to being back", took);
        let _ = held.release().await;
        all_in_turn(places, HB + SLACK).await;
        java.leave("job", 1, DEFAULT_WAIT_MS);
        fixture.history.assert_sound();
    });
}

/// Java's unlock told a timed Java head that was just giving up; that one left and told nobody.
/// Ours, now the head of a free lock, noticed only at its next heartbeat, 1.9 s later (in a random
/// round beside the real jars).
#[test]
fn ours_behind_java_that_leaves_in_silence_looks_four_times_a_heartbeat() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.seldom().await;
        let mut java = JavaClient::new(&fixture.server, 0);
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
        assert!(java.acquire("job", 2, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
        let place = fixture.enter(&client, "job").await;
        let channel = channel_of("job", &place.owner);
        eventually("ours listens", SLACK, || fixture.listeners(&channel) == 1);
        assert_eq!(java.unlock("job", 1), Some(1));
        java.leave("job", 2, DEFAULT_WAIT_MS);
        let left = Instant::now();
        let held = place.granted(SELDOM / 4 + SLACK).await;
        measured("a Java head leaves a free lock in silence", held.at - left);
        let _ = held.release().await;

        // The cost: two calls a second with heartbeats of 2 s, and no more.
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
        let place = fixture.enter(&client, "job").await;
        let channel = channel_of("job", &place.owner);
        eventually("ours listens", SLACK, || fixture.listeners(&channel) == 1);
        // Past the look that follows the subscription; from here on only time causes calls.
        tokio::time::sleep(ms(500)).await;
        let before = fixture.script_calls();
        tokio::time::sleep(SELDOM).await;
        let calls = fixture.script_calls() - before;
        assert!((4..=5).contains(&calls), "{calls} calls in a heartbeat's time");
        assert_eq!(java.unlock("job", 1), Some(1));
        let _ = place.granted(SLACK).await.release().await;
    });
}

/// Java holds the lock and dies. Ours takes it when the lease ends, without a message.
#[test]
fn a_dead_java_holder_costs_its_lease() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let mut java = JavaClient::new(&fixture.server, 0);
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, 1_500).is_none());
        let place = fixture.enter(&client, "job").await;
        let (killed, left) = (Instant::now(), fixture.ttl("job"));
        java.kill();
        let held = place.granted(left + ms(300) + SLACK).await;
        measured("after the lease of a dead Java holder", (held.at - killed).saturating_sub(left));
        let _ = held.release().await;
    });
}
