//! Requests are cut, or carried out and the reply is lost: each has one effect, and the caller
//! hears what it was.

use super::bed::{
    Bed, HB, LEASE, SLACK, all_in_turn, client, config, eventually, measured, ms, steady,
};
use fairlock::{Client, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use std::time::{Duration, Instant};

/// Whether the connection ends with the lost reply, or stays open and silent.
const CUT: [bool; 2] = [true, false];

async fn through_a_proxy(bed: &Bed, cut: bool) -> (Proxy, Client) {
    with_lease(bed, cut, LEASE).await
}

async fn with_lease(bed: &Bed, cut: bool, lease: Duration) -> (Proxy, Client) {
    let proxy = Proxy::start(bed.server.addr());
    proxy.cut_after_reply_lost(cut);
    let config = config(&proxy.url()).watchdog_lease(lease);
    let client = Client::with_config(config).await.unwrap();
    // The server knows the scripts from here on, so that the next reply is that of the request.
    let held = bed.take(&client, "warm").await;
    let next = bed.enter(&client, "warm").await;
    let second = held.guard.reenter().await.unwrap();
    assert_eq!(second.release().await.unwrap(), Release::StillHeld(1));
    held.release().await;
    next.granted(SLACK).await.release().await;
    (proxy, client)
}

/// How often the lock is held.
fn hold_count(bed: &Bed, name: &str) -> Option<String> {
    let count = bed.call(&["HVALS", name]);
    count.array().first().map(|count| count.text().to_owned())
}

/// The lock is taken, and the reply is lost: the same request is sent again and finds itself the
/// holder. One hold, and nothing is left when it is released.
#[test]
fn f53_the_reply_to_an_acquire_is_lost() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&bed, cut).await;
            proxy.drop_replies(1);
            let began = Instant::now();
            let held = bed.take(&client, "job").await;
            measured(&format!("f53 acquire, cut {cut}"), began.elapsed());
            assert_eq!(proxy.counts().replies_dropped, 1);
            assert_eq!(hold_count(&bed, "job").as_deref(), Some("1"));
            assert!(
                held.guard.remaining() <= bed.ttl("job"),
                "counted from the copy's own sending"
            );
            assert_eq!(held.release().await, Release::Released);
            assert_eq!((bed.holder("job"), bed.queue("job")), (None, vec![]));
        }
        bed.history.assert_sound();
    });
}

/// The waiter stands in the queue, and the reply is lost: it stands there once.
#[test]
fn f53_the_reply_to_entering_is_lost() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&bed, cut).await;
            let other = bed.client().await;
            let held = bed.take(&other, "job").await;
            proxy.drop_replies(1);
            let first = bed.enter(&client, "job").await;
            let second = bed.enter(&other, "job").await;
            proxy.wait_until(|counts| counts.replies_dropped == 1);
            assert_eq!(bed.queue("job"), [&first, &second].map(|place| place.owner.clone()));
            held.release().await;
            all_in_turn(vec![first, second], LEASE + SLACK).await;
            assert_eq!(bed.queue("job"), [""; 0]);
        }
        bed.history.assert_sound();
    });
}

/// a13: the release was carried out, the reply lost, and the lock handed on. The copy finds
/// somebody else; the caller hears that its release was one.
#[test]
fn a13_the_reply_to_a_release_is_lost() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&bed, cut).await;
            let other = bed.client().await;
            let held = bed.take(&client, "job").await;
            let next = bed.enter(&other, "job").await;
            proxy.drop_replies(1);
            let began = Instant::now();
            assert_eq!(held.release().await, Release::Released);
            measured(&format!("a13 release, cut {cut}"), began.elapsed());
            assert_eq!(proxy.counts().replies_dropped, 1);
            let held = next.granted(SLACK).await;
            assert_eq!(bed.holder("job"), Some(held.owner()), "the copy released nobody else");
            held.release().await;
        }
        bed.history.assert_sound();
    });
}

/// Replies to renewals are lost: doubt for a moment, no loss.
#[test]
fn f53_the_reply_to_a_renewal_is_lost() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        for cut in CUT {
            // The replies that are lost may be those of a new connection's greeting, which is waited for as long as
            // for any other: a lease that outlasts that three times.
            let (proxy, client) = with_lease(&bed, cut, 4 * LEASE).await;
            let held = bed.take(&client, "job").await;
            for round in 1..=3 {
                proxy.drop_replies(1);
                proxy.wait_until(|counts| counts.replies_dropped == round);
            }
            held.becomes(GuardState::Held, 3 * SLACK).await;
            eventually("it is renewed", 3 * SLACK, || bed.ttl("job") > 4 * LEASE - ms(300));
            assert_eq!(held.release().await, Release::Released);
        }
        bed.history.assert_sound();
    });
}

/// The hold was entered once more, or given back once, and the reply lost: the copy sets the same
/// count.
#[test]
fn f53_the_replies_to_a_reentry_and_a_partial_release_are_lost() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        for cut in CUT {
            let (proxy, client) = through_a_proxy(&bed, cut).await;
            let held = bed.take(&client, "job").await;
            proxy.drop_replies(1);
            let second = held.guard.reenter().await.unwrap();
            assert_eq!(proxy.counts().replies_dropped, 1);
            assert_eq!(hold_count(&bed, "job").as_deref(), Some("2"));
            proxy.drop_replies(1);
            assert_eq!(second.release().await.unwrap(), Release::StillHeld(1));
            assert_eq!(proxy.counts().replies_dropped, 2);
            assert_eq!(hold_count(&bed, "job").as_deref(), Some("1"));
            assert_eq!(held.release().await, Release::Released);
            assert_eq!(bed.holder("job"), None);
        }
        bed.history.assert_sound();
    });
}

/// Replies to heartbeats are lost, one after the other: the waiter keeps its place.
#[test]
fn f53_the_replies_to_heartbeats_are_lost() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        let (proxy, client) = through_a_proxy(&bed, true).await;
        let other = bed.client().await;
        let held = bed.take(&other, "job").await;
        let places = vec![bed.enter(&client, "job").await, bed.enter(&other, "job").await];
        for round in 1..=3 {
            proxy.drop_replies(1);
            proxy.wait_until(|counts| counts.replies_dropped == round);
        }
        bed.inboxes_are_back(&[client]);
        held.release().await;
        all_in_turn(places, 2 * HB + SLACK).await;
        bed.history.assert_sound();
    });
}

/// A request is cut after any number of its bytes, to take a lock or to release it; beyond its end
/// it was carried out and its reply is cut off. Each position has a client of its own, because
/// reconnecting gets slower with every cut.
#[test]
fn f54_requests_are_cut_at_every_byte() {
    steady(|| async {
        let Some(bed) = Bed::redis70() else { return };
        let (proxy, _client) = through_a_proxy(&bed, true).await;
        // The longest of the two requests has about 700 bytes: keys, arguments, and their lengths.
        let positions = [0, 1, 2, 3, 7, 20].into_iter().chain((40..=1_000).step_by(60));
        let mut cuts = 0;
        for bytes in positions {
            let client = client(&proxy.url()).await;
            proxy.cut_request_at(bytes);
            let held = bed.take(&client, "job").await;
            assert_eq!(hold_count(&bed, "job").as_deref(), Some("1"), "cut at {bytes}");
            proxy.cut_request_at(bytes);
            assert_eq!(held.release().await, Release::Released, "cut at {bytes}");
            assert_eq!((bed.holder("job"), bed.queue("job")), (None, vec![]), "cut at {bytes}");
            cuts += 2;
            assert_eq!(proxy.counts().requests_cut, cuts);
        }
        bed.history.assert_sound();
    });
}
