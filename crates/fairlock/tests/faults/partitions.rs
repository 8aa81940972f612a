//! The network carries nothing, in one direction or in both, for a while or for good.

use super::fixture::{
    D, Fixture, HB, LEASE, SLACK, all_in_turn, client, config, eventually, measured, ms, steady,
};
use fairlock::{Client, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use std::time::Instant;

/// Which of the two directions is lost.
#[derive(Clone, Copy, Debug)]
struct Hole {
    to_server: bool,
    to_client: bool,
}

const HOLES: [Hole; 3] = [
    Hole { to_server: true, to_client: true },
    Hole { to_server: true, to_client: false },
    Hole { to_server: false, to_client: true },
];

impl Hole {
    fn open(self, proxy: &Proxy) {
        proxy.black_hole_to_server(self.to_server);
        proxy.black_hole_to_client(self.to_client);
    }

    fn heal(proxy: &Proxy) {
        proxy.black_hole_to_server(false);
        proxy.black_hole_to_client(false);
    }
}

/// The holder is cut off for good, and no connection is closed. Its guard is Suspect after an
/// unanswered ping, and Lost before the server gives the lock to another client.
#[test]
fn f51_f52_f53_the_holder_is_cut_off() {
    steady(|| async {
        for hole in HOLES {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let (cut_off, other) = (client(&proxy.url()).await, fixture.client().await);
            let held = fixture.take(&cut_off, "job").await;
            let next = fixture.enter(&other, "job").await;
            let began = Instant::now();
            hole.open(&proxy);
            held.becomes(GuardState::Suspect, ms(300) + SLACK).await;
            measured(&format!("{hole:?} to Suspect"), began.elapsed());
            held.lost(LEASE + ms(300)).await;
            measured(&format!("{hole:?} to Lost"), began.elapsed());
            let next = next.granted(2 * LEASE + SLACK).await;
            measured(&format!("{hole:?} to the next grant"), next.at - began);
            assert_eq!(held.release().await, Release::Lost);
            Hole::heal(&proxy);
            assert_eq!(fixture.holder("job"), Some(next.owner()));
            let _ = next.release().await;
            fixture.history.assert_sound();
        }
    });
}

/// The network heals before the lease ends: the guard is Suspect, then Held again; nothing is lost.
#[test]
fn f55_the_holder_is_cut_off_for_a_while() {
    steady(|| async {
        for hole in HOLES {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let config = config(&proxy.url()).watchdog_lease(4 * LEASE);
            let cut_off = Client::with_config(config).await.unwrap();
            let held = fixture.take(&cut_off, "job").await;
            hole.open(&proxy);
            held.becomes(GuardState::Suspect, ms(300) + SLACK).await;
            Hole::heal(&proxy);
            let took = held.becomes(GuardState::Held, 2 * LEASE).await;
            measured(&format!("{hole:?} healed to Held"), took);
            assert!(fixture.ttl("job") > 3 * LEASE, "{:?}", fixture.ttl("job"));
            assert_eq!(held.release().await, Release::Released);
            assert_eq!(fixture.holder("job"), None);
        }
    });
}

/// A waiter is cut off for longer than a heartbeat is good for, and its turn does not come
/// meanwhile: it reconnects and keeps its place.
#[test]
fn f51_a_waiter_is_cut_off_and_keeps_its_place() {
    steady(|| async {
        for hole in HOLES {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let (cut_off, other) = (client(&proxy.url()).await, fixture.client().await);
            let held = fixture.take(&other, "job").await;
            let first = fixture.enter(&cut_off, "job").await;
            let second = fixture.enter(&other, "job").await;
            let connections = proxy.counts().connections;
            hole.open(&proxy);
            // This test is about time: more than D without an answered heartbeat.
            tokio::time::sleep(D + 2 * HB).await;
            Hole::heal(&proxy);
            proxy.wait_until(|counts| counts.connections >= connections + 2);
            fixture.inboxes_are_back(std::slice::from_ref(&cut_off));
            fixture.beat_again("job", [cut_off.id()]);
            let _ = held.release().await;
            let began = Instant::now();
            all_in_turn(vec![first, second], SLACK).await;
            measured(&format!("{hole:?} while waiting: two turns"), began.elapsed());
            fixture.history.assert_sound();
        }
    });
}

/// Requests are lost, messages arrive: the waiter learns of its grant but cannot extend it. It has
/// the lock for as long as its last heartbeat was good for, and knows when that ends.
#[test]
fn f52_a_waiter_hears_its_grant_and_cannot_answer() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let (cut_off, other) = (client(&proxy.url()).await, fixture.client().await);
        let held = fixture.take(&other, "job").await;
        let first = fixture.enter(&cut_off, "job").await;
        let second = fixture.enter(&other, "job").await;
        proxy.black_hole_to_server(true);
        let _ = held.release().await;
        let held = first.granted(SLACK).await;
        let valid_until = Instant::now() + held.guard.remaining();
        held.lost(D + SLACK).await;
        let next = second.granted(HB + SLACK).await;
        assert!(next.at >= valid_until, "lost before anybody else can have it");
        let _ = next.release().await;
        fixture.history.assert_sound();
    });
}

/// A waiter's turn comes while it is cut off. The others wait for as long as its last heartbeat was
/// good for; it never takes itself for the holder, and is served when it is back.
#[test]
fn f51_the_turn_of_a_cut_off_waiter_goes_by() {
    steady(|| async {
        // If messages still arrived, the waiter would not be cut off.
        for hole in HOLES.into_iter().filter(|hole| hole.to_client) {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let (cut_off, other) = (client(&proxy.url()).await, fixture.client().await);
            let held = fixture.take(&other, "job").await;
            let first = fixture.enter(&cut_off, "job").await;
            let second = fixture.enter(&other, "job").await;
            hole.open(&proxy);
            let released = Instant::now();
            let _ = held.release().await;
            let held = second.granted(D + 2 * HB + SLACK).await;
            measured(
                &format!("{hole:?} release to grant, past the one cut off"),
                held.at - released,
            );
            assert!(!first.is_over());
            Hole::heal(&proxy);
            eventually("it is back in the queue", 4 * LEASE, || {
                fixture.queue("job").first() == Some(&first.owner)
            });
            let _ = held.release().await;
            let held = first.granted(D + SLACK).await;
            assert_eq!(held.guard.state(), GuardState::Held);
            let _ = held.release().await;
            let violations = fairlock_testkit::history::check_exclusion(&fixture.history.records());
            assert!(violations.is_empty(), "{violations:#?}");
        }
    });
}

/// All connections of holder and waiters are cut repeatedly: all are back at once, and nothing else
/// happens.
#[test]
fn f54_all_connections_are_cut_while_held_and_waiting() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        // Far from the next renewal: only the reconnect checks the hold.
        let config = || config(&proxy.url()).watchdog_lease(20 * LEASE);
        let clients = [
            Client::with_config(config()).await.unwrap(),
            Client::with_config(config()).await.unwrap(),
        ];
        let held = fixture.take(&clients[0], "job").await;
        let mut places = Vec::new();
        for n in 0..4 {
            places.push(fixture.enter(&clients[n % 2], "job").await);
        }
        for _ in 0..3 {
            // Otherwise they may be connected again before this test looks.
            proxy.refuse(true);
            proxy.cut_all();
            held.becomes(GuardState::Suspect, SLACK).await;
            proxy.refuse(false);
            let took = held.becomes(GuardState::Held, 2 * SLACK).await;
            measured("f54 cut to Held again", took);
            fixture.inboxes_are_back(&clients);
        }
        assert_eq!(held.release().await, Release::Released);
        all_in_turn(places, SLACK).await;
        fixture.history.assert_sound();
    });
}
