//! Requests are cut, or carried out and the reply is lost: each takes effect once, and the caller
//! learns the result.

use super::fixture::{
    Fixture, HB, LEASE, SLACK, all_in_turn, client, config, eventually, measured, ms, steady,
};
use fairlock::{Client, ErrorKind, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use std::time::{Duration, Instant};

/// Whether the lost reply closes the connection, or leaves it open and silent.
const CUT: [bool; 2] = [true, false];

async fn through_a_proxy(fixture: &Fixture, cut: bool) -> (Proxy, Client) {
    with_lease(fixture, cut, LEASE).await
}

async fn with_lease(fixture: &Fixture, cut: bool, lease: Duration) -> (Proxy, Client) {
    let proxy = Proxy::start(fixture.server.addr());
    proxy.cut_after_reply_lost(cut);
    let config = config(&proxy.url()).watchdog_lease(lease);
    let client = Client::with_config(config).await.unwrap();
    // From here on the server knows the scripts, so the next reply is that of the request.
    let held = fixture.take(&client, "warm").await;
    let next = fixture.enter(&client, "warm").await;
    let second = held.guard.reenter().await.unwrap();
    assert_eq!(second.release().await.unwrap(), Release::StillHeld(1));
    let _ = held.release().await;
    let _ = next.granted(SLACK).await.release().await;
    (proxy, client)
}

/// The hold count in the lock's hash.
fn hold_count(fixture: &Fixture, name: &str) -> Option<String> {
    let count = fixture.call(&["HVALS", name]);
    count.array().first().map(|count| count.text().to_owned())
}

/// The lock is taken, and the reply is lost: the same request is sent again and finds itself the
/// holder. There is one hold, and nothing is left when it is released.
#[test]
fn f53_the_reply_to_an_acquire_is_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&fixture, cut).await;
            proxy.drop_replies(1);
            let began = Instant::now();
            let held = fixture.take(&client, "job").await;
            measured(&format!("f53 acquire, cut {cut}"), began.elapsed());
            assert_eq!(proxy.counts().replies_dropped, 1);
            assert_eq!(hold_count(&fixture, "job").as_deref(), Some("1"));
            // Counted from the copy's own sending.
            fixture.outlasts("job", || held.guard.remaining());
            assert_eq!(held.release().await, Release::Released);
            assert_eq!((fixture.holder("job"), fixture.queue("job")), (None, vec![]));
        }
        fixture.history.assert_sound();
    });
}

/// The lock is taken for an owner that does not enter it again, and the reply is lost: the copy finds the lock held by its
/// own request, which is no second entry. Redisson's answer to the repeated command is the error of one (#7367 is the same
/// repetition).
#[test]
fn f53_a_lost_reply_is_no_second_entry() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&fixture, cut).await;
            let owner = client.owner();
            for lock in
                [client.fair_lock("job"), client.plain_lock("job"), client.simple_lock("text")]
            {
                let own = lock.owned_by(&owner).non_reentrant();
                // The server knows the script from here on.
                let _ = own.lock().await.unwrap().release().await.unwrap();
                let before = proxy.counts().replies_dropped;
                proxy.drop_replies(1);
                let guard = own.lock().await.unwrap();
                assert_eq!(proxy.counts().replies_dropped, before + 1);
                assert_eq!(guard.hold_count(), 1);
                assert_eq!(own.lock().await.unwrap_err().kind(), ErrorKind::AlreadyHeld);
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
        }
    });
}

/// The waiter enters the queue, and the reply is lost: it is in the queue once.
#[test]
fn f53_the_reply_to_entering_is_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&fixture, cut).await;
            let other = fixture.client().await;
            let held = fixture.take(&other, "job").await;
            proxy.drop_replies(1);
            let first = fixture.enter(&client, "job").await;
            let second = fixture.enter(&other, "job").await;
            proxy.wait_until(|counts| counts.replies_dropped == 1);
            assert_eq!(fixture.queue("job"), [&first, &second].map(|place| place.owner.clone()));
            let _ = held.release().await;
            all_in_turn(vec![first, second], LEASE + SLACK).await;
            assert_eq!(fixture.queue("job"), [""; 0]);
        }
        fixture.history.assert_sound();
    });
}

/// a13: the release was carried out, its reply lost, and the lock handed on. The copy finds another
/// holder; the caller still learns that it released the lock.
#[test]
fn a13_the_reply_to_a_release_is_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&fixture, cut).await;
            let other = fixture.client().await;
            let held = fixture.take(&client, "job").await;
            let next = fixture.enter(&other, "job").await;
            proxy.drop_replies(1);
            let began = Instant::now();
            assert_eq!(held.release().await, Release::Released);
            measured(&format!("a13 release, cut {cut}"), began.elapsed());
            assert_eq!(proxy.counts().replies_dropped, 1);
            let held = next.granted(SLACK).await;
            assert_eq!(fixture.holder("job"), Some(held.owner()), "the copy released nobody else");
            let _ = held.release().await;
        }
        fixture.history.assert_sound();
    });
}

/// Replies to renewals are lost: the guard is Suspect for a moment, and not lost.
#[test]
fn f53_the_reply_to_a_renewal_is_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in CUT {
            // The lost replies may be those of a new connection's handshake, which waits for them
            // as long as for any other: the lease outlasts three such waits.
            let (proxy, client) = with_lease(&fixture, cut, 4 * LEASE).await;
            let held = fixture.take(&client, "job").await;
            for round in 1..=3 {
                proxy.drop_replies(1);
                proxy.wait_until(|counts| counts.replies_dropped == round);
            }
            held.becomes(GuardState::Held, 3 * SLACK).await;
            eventually("it is renewed", 3 * SLACK, || fixture.ttl("job") > 4 * LEASE - ms(300));
            assert_eq!(held.release().await, Release::Released);
        }
        fixture.history.assert_sound();
    });
}

/// The hold was entered again, or released once, and the reply lost: the copy sets the same count.
#[test]
fn f53_the_replies_to_a_reentry_and_a_partial_release_are_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&fixture, cut).await;
            let held = fixture.take(&client, "job").await;
            proxy.drop_replies(1);
            let second = held.guard.reenter().await.unwrap();
            assert_eq!(proxy.counts().replies_dropped, 1);
            assert_eq!(hold_count(&fixture, "job").as_deref(), Some("2"));
            proxy.drop_replies(1);
            assert_eq!(second.release().await.unwrap(), Release::StillHeld(1));
            assert_eq!(proxy.counts().replies_dropped, 2);
            assert_eq!(hold_count(&fixture, "job").as_deref(), Some("1"));
            assert_eq!(held.release().await, Release::Released);
            assert_eq!(fixture.holder("job"), None);
        }
        fixture.history.assert_sound();
    });
}

/// Replies to heartbeats are lost, one after the other: the waiter keeps its place.
#[test]
fn f53_the_replies_to_heartbeats_are_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (proxy, client) = through_a_proxy(&fixture, true).await;
        let other = fixture.client().await;
        let held = fixture.take(&other, "job").await;
        let places = vec![fixture.enter(&client, "job").await, fixture.enter(&other, "job").await];
        for round in 1..=3 {
            proxy.drop_replies(1);
            proxy.wait_until(|counts| counts.replies_dropped == round);
        }
        fixture.inboxes_are_back(&[client]);
        let _ = held.release().await;
        all_in_turn(places, 2 * HB + SLACK).await;
        fixture.history.assert_sound();
    });
}

/// A request to take or to release a lock is cut after any number of its bytes; beyond its end it
/// was carried out and its reply is cut. Each position has a client of its own, because
/// reconnecting gets slower with every cut.
#[test]
fn f54_requests_are_cut_at_every_byte() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (proxy, _client) = through_a_proxy(&fixture, true).await;
        // The longer of the two requests has about 700 bytes: keys, arguments, and their lengths.
        let positions = [0, 1, 2, 3, 7, 20].into_iter().chain((40..=1_000).step_by(60));
        let mut cuts = 0;
        for bytes in positions {
            let client = client(&proxy.url()).await;
            proxy.cut_request_at(bytes);
            let held = fixture.take(&client, "job").await;
            assert_eq!(hold_count(&fixture, "job").as_deref(), Some("1"), "cut at {bytes}");
            proxy.cut_request_at(bytes);
            assert_eq!(held.release().await, Release::Released, "cut at {bytes}");
            assert_eq!(
                (fixture.holder("job"), fixture.queue("job")),
                (None, vec![]),
                "cut at {bytes}"
            );
            cuts += 2;
            assert_eq!(proxy.counts().requests_cut, cuts);
        }
        fixture.history.assert_sound();
    });
}
