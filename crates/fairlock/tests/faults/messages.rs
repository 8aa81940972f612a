//! Hand-over messages are lost, repeated, delayed and forged. A message is only faster than the
//! next heartbeat; nothing depends on it.

use super::fixture::{
    D, Fixture, HB, Place, SLACK, all_in_turn, client, eventually, inbox, key, steady,
};
use super::fixture::{measured, ms};
use fairlock::{Client, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::redisson::{DEFAULT_WAIT_MS, JavaClient, channel, channel_of};
use fairlock_testkit::server::Generation;
use std::time::{Duration, Instant};

/// As many forged messages as a fast attacker sends in a moment.
const FLOOD: usize = 10_000;

async fn three_waiters(fixture: &Fixture, clients: &[Client; 2]) -> Vec<Place> {
    let mut places = Vec::new();
    for n in [0, 1, 0] {
        places.push(fixture.enter(&clients[n], "job").await);
    }
    places
}

/// Every message is lost: each hand-over takes at most a heartbeat.
#[test]
fn f58_f59_messages_are_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let clients = [client(&proxy.url()).await, client(&proxy.url()).await];
        let held = fixture.take(&clients[0], "job").await;
        let places = three_waiters(&fixture, &clients).await;
        proxy.swallow_pushes(true);
        let mut released = Instant::now();
        let _ = held.release().await;
        for place in places {
            let held = place.granted(HB + ms(300) + SLACK).await;
            measured("f59 hand-over without a message", held.at - released);
            released = Instant::now();
            let _ = held.release().await;
        }
        assert_eq!(proxy.counts().pushes_swallowed, 3);
        fixture.history.assert_sound();
    });
}

/// The inbox connection dies at the moment of the hand-over.
#[test]
fn f58_the_inbox_dies_at_the_hand_over() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.client().await, fixture.client().await);
        for round in 0..5 {
            let name = format!("job{round}");
            let held = fixture.take(&one, &name).await;
            let place = fixture.enter(&two, &name).await;
            let released = Instant::now();
            fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let _ = held.release().await;
            let held = place.granted(HB + ms(300) + SLACK).await;
            measured("f58 hand-over while the inbox dies", held.at - released);
            let _ = held.release().await;
        }
        fixture.history.assert_sound();
    });
}

/// Each message comes eleven times: one turn each, and the copies are counted.
#[test]
fn f59_messages_are_repeated() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let clients = [client(&proxy.url()).await, client(&proxy.url()).await];
        proxy.duplicate_pushes(10);
        let held = fixture.take(&clients[0], "job").await;
        let places = three_waiters(&fixture, &clients).await;
        let calls = fixture.script_calls();
        let _ = held.release().await;
        all_in_turn(places, SLACK).await;
        // Four releases; one heartbeat of a client for each copy would make thirty more.
        let calls = fixture.script_calls() - calls;
        assert!(calls <= 4 + 8, "{calls} scripts");
        assert_eq!(proxy.counts().pushes_duplicated, 30);
        eventually("the copies are counted", SLACK, || {
            clients.iter().map(Client::dropped_messages).sum::<u64>() == 30
        });
        fixture.history.assert_sound();
    });
}

/// Each message comes so late that a heartbeat was faster (a01: and nobody counts the lease from
/// the message's arrival), or so late that its hold is over (a02).
#[test]
fn f59_a01_a02_messages_are_late() {
    steady(|| async {
        for delay in [HB / 2, 2 * HB, D + HB] {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let clients = [client(&proxy.url()).await, client(&proxy.url()).await];
            proxy.delay_pushes(delay);
            let held = fixture.take(&clients[0], "job").await;
            let places = three_waiters(&fixture, &clients).await;
            let _ = held.release().await;
            for place in places {
                let held = place.granted(HB + ms(300) + SLACK).await;
                fixture.outlasts("job", || held.guard.remaining());
                let _ = held.release().await;
            }
            proxy.wait_until(|counts| counts.pushes == 3);
            // The last of them is still in flight, and must have no effect when it arrives.
            tokio::time::sleep(delay).await;
            assert_eq!(fixture.holder("job"), None);
            fixture.history.assert_sound();
        }
    });
}

/// Ten thousand forged messages to a waiter's inbox: none counts as a grant or causes a request.
#[test]
fn f59_forged_grants() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (one, two) = (fixture.client().await, fixture.client().await);
            let held = fixture.take(&one, "job").await;
            let place = fixture.enter(&two, "job").await;
            let channel = inbox(&two);
            let calls = fixture.script_calls();
            let began = Instant::now();
            for n in 0..FLOOD {
                let forged = match n % 4 {
                    0 => format!("g1 {n:032x} {} {} 6000", 1_u64 << 52, n),
                    1 => "0".to_owned(),
                    2 => "g1 ".repeat(n % 1_000),
                    _ => format!("g1 {n:032x} 1 1 1 1"),
                };
                fixture.call(&["PUBLISH", &channel, &forged]);
            }
            eventually("all are counted", 5 * SLACK, || two.dropped_messages() == FLOOD as u64);
            assert!(!place.is_over());
            // Renewals and heartbeats continue: at most four and six a second.
            let calls = fixture.script_calls() - calls;
            let allowed = began.elapsed().as_secs_f64() * 10.0 + 10.0;
            println!(
                "measured: f59 {}: {calls} scripts in {:?}",
                generation.name(),
                began.elapsed()
            );
            assert!((calls as f64) < allowed, "{calls} scripts, {allowed} allowed");
            let _ = held.release().await;
            let _ = place.granted(SLACK).await.release().await;
            fixture.history.assert_sound();
        }
    });
}

/// Forged wake-ups on the channels of fair and plain waiters: each waiter may ask again at times.
#[test]
fn f59_forged_wake_ups() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.client().await, fixture.client().await);
        // Behind a Java waiter, ours listens on its own channel.
        let mut java = JavaClient::new(&fixture.server, 0);
        let held = fixture.take(&one, "job").await;
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, 30_000).is_some());
        let place = fixture.enter(&two, "job").await;
        let wake = channel_of("job", &place.owner);
        eventually("ours listens", HB + SLACK, || fixture.listeners(&wake) == 1);
        let plain = one.plain_lock("plain").lock().await.unwrap();
        let lock = two.plain_lock("plain");
        let waits = tokio::spawn(async move { lock.lock().await });
        let base = channel("plain");
        eventually("the plain waiter listens", SLACK, || fixture.listeners(&base) == 1);

        let calls = fixture.script_calls();
        let began = Instant::now();
        for _ in 0..FLOOD / 2 {
            fixture.call(&["PUBLISH", &wake, "0"]);
            fixture.call(&["PUBLISH", &base, "0"]);
        }
        let (calls, took) = (fixture.script_calls() - calls, began.elapsed());
        println!("measured: f59 wake-ups: {calls} scripts in {took:?} for {FLOOD} messages");
        // Twenty a second for the fair waiter, fifty for the plain one, renewals and heartbeats.
        let allowed = took.as_secs_f64() * 90.0 + 20.0;
        assert!((calls as f64) < allowed, "{calls} scripts, {allowed} allowed");
        assert!(!place.is_over() && !waits.is_finished());

        let _ = plain.release().await.unwrap();
        drop(waits.await.unwrap().unwrap());
        java.leave("job", 1, DEFAULT_WAIT_MS);
        let _ = held.release().await;
        let _ = place.granted(SLACK).await.release().await;
    });
}

/// a23: messages flood the inbox of a client that cannot read them in time, and the server cuts
/// that connection. Renewals and heartbeats use another one and continue.
#[test]
fn a23_the_inbox_overflows() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        fixture.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 100000 50000 1"]);
        let held = fixture.take(&client, "job").await;
        let place = fixture.enter(&client, "job").await;
        let before = subscriber(&fixture).expect("an inbox");
        let payload = "x".repeat(1_000_000);
        let (mut raw, channel) = (fixture.server.client(), inbox(&client));
        eventually("the server has cut the inbox", 5 * SLACK, || {
            // Pipelined, so that the server has no time to deliver in between.
            for _ in 0..20 {
                raw.send(&["PUBLISH", &channel, &payload]);
            }
            for _ in 0..20 {
                raw.read().unwrap();
            }
            subscriber(&fixture) != Some(before.clone())
        });
        assert_eq!(held.guard.state(), GuardState::Held, "not even in doubt");
        fixture.inboxes_are_back(&[client]);
        assert_eq!(held.release().await, Release::Released);
        let limit = HB + Duration::from_secs(2);
        let _ = place.granted(limit).await.release().await;
        assert_eq!(fixture.call(&["EXISTS", &key("redisson_lock_queue", "job")]).int(), 0);
        fixture.history.assert_sound();
    });
}

/// The id of the only subscribed connection.
fn subscriber(fixture: &Fixture) -> Option<String> {
    let list = fixture.call(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    list.text().split(' ').next().map(ToOwned::to_owned).filter(|id| !id.is_empty())
}
