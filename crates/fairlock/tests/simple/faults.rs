//! Faults of the simple lock: it shares behaviour with the other kinds, but uses scripts of its
//! own.

use crate::faults::fixture::{Fixture, LEASE, SLACK, client, eventually, ms, steady, within};
use crate::support::tag;
use fairlock::{Client, ErrorKind, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use std::time::Duration;

/// A client behind a proxy; the server already knows the scripts.
async fn through_a_proxy(fixture: &Fixture) -> (Proxy, Client) {
    let proxy = Proxy::start(fixture.server.addr());
    let client = client(&proxy.url()).await;
    let lock = client.simple_lock("warm");
    let guard = lock.lock().await.unwrap();
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    (proxy, client)
}

fn exists(fixture: &Fixture, name: &str) -> bool {
    fixture.call(&["EXISTS", name]).int() == 1
}

/// f53: the lock is acquired and the reply is lost: the repeated request finds its own value. Then
/// the same with the release, which took effect once.
#[test]
fn f53_a_lost_reply_has_one_effect() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for cut in [true, false] {
            let (proxy, client) = through_a_proxy(&fixture).await;
            proxy.cut_after_reply_lost(cut);
            proxy.drop_replies(1);
            let lock = client.simple_lock("job").lease(30 * LEASE);
            let guard = within("the grant", LEASE + SLACK, lock.lock()).await.unwrap();
            assert_eq!(proxy.counts().replies_dropped, 1);
            let value = fixture.call(&["GET", "job"]).text().to_owned();
            let (owner, token) = (guard.owner().to_string(), guard.token().to_string());
            assert!(value.starts_with(&owner) && value.ends_with(&token), "{value}");
            assert_eq!(
                fixture.call(&["GET", "redisson_lock_token:{job}"]).text(),
                token,
                "one grant"
            );
            // Counted from the copy's own sending.
            fixture.outlasts("job", || guard.remaining());
            proxy.drop_replies(1);
            let released = within("the release", LEASE + SLACK, guard.release()).await.unwrap();
            assert_eq!(proxy.counts().replies_dropped, 2);
            assert_eq!(released, Release::Released);
            assert!(!exists(&fixture, "job"));
        }
    });
}

/// f53: replies to renewals are lost: the guard is Suspect for a moment, but not lost.
#[test]
fn f53_the_reply_to_a_renewal_is_lost() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (proxy, client) = through_a_proxy(&fixture).await;
        let guard = client.simple_lock("job").lock().await.unwrap();
        proxy.drop_replies(1);
        proxy.wait_until(|counts| counts.replies_dropped == 1);
        eventually("it is renewed", LEASE + SLACK, || fixture.ttl("job") > LEASE - ms(200));
        eventually("it is sure again", LEASE + SLACK, || guard.state() == GuardState::Held);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    });
}

/// a05: a request is stuck on a connection that is given up, and arrives after it was buried. It
/// does not take the free lock.
#[test]
fn a05_a_late_acquire_takes_nothing() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (proxy, client) = through_a_proxy(&fixture).await;
        proxy.hold_requests(true);
        let lock = client.simple_lock("job");
        let attempt = tokio::spawn(async move { lock.lock().await });
        proxy.wait_until(|counts| counts.requests_held == 1);
        attempt.abort();
        assert!(attempt.await.unwrap_err().is_cancelled());
        proxy.cut_clients();
        let buried = || fixture.call(&["KEYS", "fairlock_buried*"]).array().len();
        eventually("the request is buried", 2 * SLACK, || buried() == 1);
        let before = fixture.script_calls();
        proxy.hold_requests(false);
        eventually("the late request arrives", SLACK, || fixture.script_calls() > before);
        assert!(!exists(&fixture, "job"));
        assert!(fixture.client().await.simple_lock("job").try_lock().await.unwrap().is_some());
    });
}

/// a05: the late request is carried out before it can be taken back: the lock is freed as soon as
/// that is possible.
#[test]
fn a05_a_late_acquire_is_freed() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (proxy, client) = through_a_proxy(&fixture).await;
        proxy.black_hole_to_client(true);
        let attempt = client.simple_lock("job").lease(60 * LEASE).try_lock_for(ms(150)).await;
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Unknown);
        assert!(exists(&fixture, "job"), "it was carried out");
        proxy.black_hole_to_client(false);
        eventually("the lock is free", 2 * SLACK, || !exists(&fixture, "job"));
    });
}

/// f57: renewal, release and acquisition of earlier holds, and the acquisition of the present one,
/// arrive again: the present hold is not affected.
#[test]
fn f57_old_requests_arrive_once_more() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (proxy, client) = through_a_proxy(&fixture).await;
        let odd = client.simple_lock("job").lease(10 * LEASE).lock().await.unwrap();
        let _ = odd.release().await.unwrap();
        fixture.record_without_lease(&client);
        let scripts = proxy.counts().scripts;
        let first = client.simple_lock("job").lock().await.unwrap();
        proxy.wait_until(|counts| counts.scripts == scripts + 2);
        let _ = first.release().await.unwrap();
        let second = client.simple_lock("job").lease(10 * LEASE).lock().await.unwrap();
        let (value, ttl) = (fixture.call(&["GET", "job"]), fixture.ttl("job"));
        let replies = proxy.replay(3);
        assert_eq!(proxy.counts().scripts, scripts + 4, "renewal, release, acquisition");
        let tags: Vec<_> = replies.iter().map(tag).collect();
        assert_eq!(tags, ["nothold", "nothold", "granted"]);
        assert_eq!(fixture.call(&["GET", "job"]), value);
        assert!(fixture.ttl("job") <= ttl && fixture.ttl("job") > 9 * LEASE);
        assert_eq!(second.state(), GuardState::Held);
        assert_eq!(second.release().await.unwrap(), Release::Released);
    });
}

/// The key is deleted, and a foreign client takes the lock: Lost at the next renewal, and the
/// release leaves the foreign value alone.
#[test]
fn a_deleted_key_is_lost_at_the_next_renewal() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let lock = fixture.client().await.simple_lock("job");
        for theirs in [None, Some("theirs")] {
            let guard = lock.lock().await.unwrap();
            fixture.call(&["DEL", "job"]);
            if let Some(value) = theirs {
                fixture.call(&["SET", "job", value, "NX", "PX", "600000"]);
            }
            within("the loss", LEASE / 3 + SLACK, guard.lost()).await;
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
            assert_eq!(exists(&fixture, "job"), theirs.is_some());
        }
        assert_eq!(fixture.call(&["GET", "job"]).text(), "theirs");
        assert!(fixture.ttl("job") > Duration::from_secs(590));
    });
}

/// f36: an operator removes the TTL. A live holder's renewal restores it; if the holder is dead, a
/// waiter does.
#[test]
fn f36_a_key_of_ours_without_a_ttl_gets_one() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (client, other) = (fixture.client().await, fixture.client().await);
        let guard = client.simple_lock("job").lock().await.unwrap();
        assert_eq!(fixture.call(&["PERSIST", "job"]).int(), 1);
        eventually("the renewal sets it", LEASE + SLACK, || {
            fixture.call(&["PTTL", "job"]).int() > 0
        });
        assert_eq!(guard.release().await.unwrap(), Release::Released);

        let guard = client.simple_lock("job").lease(ms(200)).lock().await.unwrap();
        assert_eq!(fixture.call(&["PERSIST", "job"]).int(), 1);
        within("its end by the clock", SLACK, guard.lost()).await;
        let lock = other.simple_lock("job");
        let task = tokio::spawn(async move { lock.lock().await });
        // 30 s, or the waiter's lease if that is longer: here it is shorter.
        eventually("a waiter sets it", SLACK, || {
            fixture.call(&["PTTL", "job"]).int() > 29_000 - 2_000
        });
        task.abort();
        assert_eq!(guard.release().await.unwrap(), Release::Released, "it was still there");
    });
}
