//! Locks are detached, and places in the queue given up, while replies and connections are lost.

use super::fixture::{Fixture, LEASE, SLACK, client, config, eventually, ms, steady, within};
use fairlock::{Client, ErrorKind};
use fairlock_testkit::proxy::Proxy;
use std::time::Instant;

/// How many requests for the lock are on record, so that their late copies will be refused.
fn buried(fixture: &Fixture) -> usize {
    fixture.call(&["KEYS", "fairlock_buried:{job}:*"]).array().len()
}

/// A client behind a proxy; the server knows all scripts that it will call.
async fn behind(proxy: &Proxy, client: Client) -> Client {
    client.fair_lock("warm").lock().await.unwrap().detach().await.unwrap();
    assert!(client.fair_lock("warm").force_unlock().await.unwrap());
    let _ = client.fair_lock("warm").lock().await.unwrap().release().await.unwrap();
    assert_eq!(proxy.counts().replies_dropped, 0);
    client
}

/// The renewal was carried out and its reply lost: the copy extends the hold no further than
/// allowed.
#[test]
fn a_detach_whose_reply_is_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in [true, false] {
            let proxy = Proxy::start(fixture.server.addr());
            proxy.cut_after_reply_lost(cut);
            let client = behind(&proxy, client(&proxy.url()).await).await;
            let lock = client.fair_lock("job").max_hold(2 * LEASE);
            let guard = lock.lock().await.unwrap();
            let (since, owner) = (Instant::now(), guard.owner().to_string());
            proxy.drop_replies(1);
            let detached = within("the copy", LEASE + SLACK, guard.detach()).await.unwrap();
            assert_eq!(proxy.counts().replies_dropped, 1);
            fixture.outlasts("job", || detached.remaining());
            assert_eq!(fixture.holder("job"), Some(owner));
            drop(client);
            eventually("it ends", LEASE + SLACK, || fixture.holder("job").is_none());
            assert!(detached.remaining().is_zero());
            assert!(since.elapsed() <= 2 * LEASE + SLACK, "{:?}", since.elapsed());
        }
    });
}

/// A copy of the acquire request was never answered and may arrive at any time. Refusing it frees
/// the hold of that request, so this must wait until the detached hold is over.
#[test]
fn late_copies_are_refused_when_a_detached_hold_is_over() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = behind(&proxy, client(&proxy.url()).await).await;
        proxy.drop_replies(1);
        let lock = client.fair_lock("job").lease(2 * LEASE);
        let guard = within("the copy", LEASE + SLACK, lock.lock()).await.unwrap();
        assert_eq!(proxy.counts().replies_dropped, 1);
        let detached = guard.detach().await.unwrap();
        while !detached.remaining().is_zero() {
            let (holder, refused) = (fixture.holder("job"), buried(&fixture));
            if !detached.remaining().is_zero() {
                assert_eq!(holder, Some(detached.owner().to_string()), "freed too early");
                assert_eq!(refused, 0);
            }
            tokio::time::sleep(ms(10)).await;
        }
        eventually("it ends", SLACK, || fixture.holder("job").is_none());
        eventually("late copies are refused", 2 * LEASE + SLACK, || buried(&fixture) == 1);
    });
}

/// Nobody can confirm that the place was given up: an error reports that in time, and the leaving
/// continues.
#[test]
fn leaving_without_a_store_is_unknown_and_goes_on() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let timeout = ms(700);
        let quick = config(&proxy.url()).store_timeout(timeout);
        let client = behind(&proxy, Client::with_config(quick).await.unwrap()).await;
        let holder = fixture.client().await;
        let guard = holder.fair_lock("job").lock().await.unwrap();
        let turn = client.fair_lock("job").enqueue().await.unwrap();
        let (name, owner) = (turn.name().clone(), turn.owner().clone());
        assert_eq!(fixture.queue("job"), [owner.to_string()]);
        proxy.refuse(true);
        proxy.cut_clients();
        let began = Instant::now();
        let error = within("the error", timeout + SLACK, turn.leave()).await.unwrap_err();
        assert!(began.elapsed() >= timeout, "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert_eq!((error.lock(), error.owner()), (Some(&name), Some(&owner)));
        assert_eq!(fixture.queue("job"), [owner.to_string()]);
        proxy.refuse(false);
        eventually("it leaves", 4 * SLACK, || fixture.queue("job").is_empty());
        let _ = guard.release().await.unwrap();
    });
}

/// The watchdog renews a hold while it is being detached for longer than its lease, and the link is
/// slow: a renewal that arrived after the call that sets the time would restore the lease, and free
/// the lock while `Detached` claims that it is held.
#[test]
fn d24_no_renewal_comes_after_the_time_that_was_named() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = behind(&proxy, client(&proxy.url()).await).await;
        let lock = client.fair_lock("job");
        for offset in [0, 1, 2, 3, 4, 60] {
            let guard = lock.lock().await.unwrap();
            if offset == 60 {
                proxy.delay_to_client(ms(120));
            }
            // The first renewal is due after a third of the lease; the call coincides with it, or
            // comes while its reply is in flight.
            tokio::time::sleep(LEASE / 3 - ms(2) + ms(offset)).await;
            let detached = guard.detach_for(20 * LEASE).await.unwrap();
            proxy.delay_to_client(ms(0));
            let left = detached.remaining();
            assert!(left > 15 * LEASE, "{left:?}");
            // The reconnect must not renew the lease either.
            proxy.cut_clients();
            let holder = within("it is back", 4 * SLACK, lock.holder()).await.unwrap();
            assert_eq!(holder.unwrap().owner, *detached.owner());
            let ttl = fixture.ttl("job");
            assert!(ttl + ms(1) >= detached.remaining(), "{ttl:?}, not {left:?}");
            assert!(lock.force_unlock().await.unwrap());
        }
    });
}

/// A lost copy of the acquire request is refused when the time is over, not after a lease: that
/// would free the lock.
#[test]
fn d24_late_copies_are_refused_when_the_time_is_over() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = behind(&proxy, client(&proxy.url()).await).await;
        proxy.drop_replies(1);
        let guard =
            within("the copy", LEASE + SLACK, client.fair_lock("job").lock()).await.unwrap();
        assert_eq!(proxy.counts().replies_dropped, 1);
        let detached = guard.detach_for(3 * LEASE).await.unwrap();
        while !detached.remaining().is_zero() {
            let holder = fixture.holder("job");
            if !detached.remaining().is_zero() {
                assert_eq!(holder, Some(detached.owner().to_string()), "freed too early");
            }
            tokio::time::sleep(ms(10)).await;
        }
        eventually("it ends", SLACK, || fixture.holder("job").is_none());
    });
}

/// The server set the time, but the reply is lost: the caller gets an error, so nobody may keep the
/// lock for that long.
#[test]
fn d24_a_failed_leave_is_taken_back() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for kind in ["fair", "plain", "simple"] {
            let proxy = Proxy::start(fixture.server.addr());
            let client = behind(&proxy, client(&proxy.url()).await).await;
            let lock = match kind {
                "fair" => client.fair_lock(kind),
                "plain" => client.plain_lock(kind),
                _ => client.simple_lock(kind),
            };
            let guard = lock.lock().await.unwrap();
            proxy.cut_after_reply_lost(true);
            proxy.refuse(true);
            proxy.drop_replies(1);
            let error = within("the error", LEASE + 2 * SLACK, guard.detach_for(60 * LEASE)).await;
            let error = error.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Lost), "{error}");
            assert!(fixture.ttl(kind) > 30 * LEASE, "the server carried it out");
            // Longer than the client tries to release.
            tokio::time::sleep(LEASE).await;
            proxy.refuse(false);
            eventually("it is free", 6 * SLACK, || fixture.ttl(kind) == ms(0));
        }
    });
}
