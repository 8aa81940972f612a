//! What is left by calls that failed, were cut short, or were sent twice.

use super::fixture::{JavaFixture, LOCK, MINUTE_MS, SECOND_MS};
use crate::faults::fixture::{Fixture, LEASE, SLACK, client, eventually, measured, ms, steady};
use crate::support::poll_once;
use fairlock::{ErrorKind, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::redisson::{
    Call, State, Version, WATCHDOG_LEASE_MS, WATCHDOG_PERIOD_MS, Watchdog,
};
use std::time::Instant;

/// Redisson #5019. The server did not answer in time and `tryLock` threw. Its script had been
/// carried out, or was carried out later: the thread stood in the queue, and nobody ever removed
/// it. 4.7.0 leaves the queue when that happens while it waits; the first attempt still does not.
mod issue_5019_a_failed_attempt_leaves_the_queue {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut holder = fixture.start(Version::V4, Call::Lock);
        // The reply to its first attempt is lost: it throws, and cleans up nothing.
        let mut unanswered = fixture.jvm(Version::V4);
        let wait_ms = 5 * MINUTE_MS;
        assert!(unanswered.acquire(LOCK, 1, wait_ms, WATCHDOG_LEASE_MS).is_some());
        holder.unlock();
        assert_eq!(
            fixture.queue(),
            [unanswered.owner(1)],
            "nobody waits, and somebody stands there"
        );
        let mut next = fixture.start(Version::V4, Call::TryLock { wait_ms, lease_ms: SECOND_MS });
        fixture.pass(wait_ms - 1);
        next.step();
        assert!(fixture.is_free() && !next.holds());
        fixture.pass(1);
        assert_eq!(next.step(), State::GaveUp, "five minutes for a lock that was free");
    }

    /// As in Redisson's own test: the server pauses during an attempt.
    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let (one, two) = (fixture.client().await, fixture.client().await);
            let held = fixture.hold(one.fair_lock("job").lease(60 * LEASE)).await;
            fixture.call(&["CLIENT", "PAUSE", "700", "ALL"]);
            let began = Instant::now();
            let result = two.fair_lock("job").try_lock_for(ms(200)).await;
            measured("#5019 200 ms of waiting for a paused server", began.elapsed());
            // Redisson returns false here; we do not take a missing reply for a lock that is held.
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Unknown);
            eventually("it is out of the queue", ms(700) + 2 * SLACK, || {
                fixture.queue("job").is_empty()
            });
            // The pause does not affect the holder.
            held.becomes(GuardState::Held, 2 * SLACK).await;
            let next = fixture.enter(&two, "job").await;
            assert_eq!(held.release().await, Release::Released);
            let _ = next.granted(SLACK).await.release().await;
            assert_eq!((fixture.holder("job"), fixture.queue("job")), (None, vec![]));
        });
    }
}

/// Redisson #7272 (and #2714, #4368, #5358). A thread was interrupted in `lockInterruptibly()` and
/// ran its `finally`: nothing to unlock, nothing to cancel. Its request was still in flight. Once
/// it had been carried out, its reply started the watchdog: a lock was renewed without a holder,
/// for as long as the JVM ran.
mod issue_7272_no_renewal_without_a_holder {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut java = fixture.jvm(Version::V4);
        let mut watchdog = Watchdog::default();
        assert_eq!(java.plain_unlock(LOCK, 1), None, "an exception, on another connection");
        watchdog.cancel(LOCK, 1);
        assert_eq!(java.plain_acquire(LOCK, 1, WATCHDOG_LEASE_MS), None);
        watchdog.schedule(LOCK, 1);
        let mut other = fixture.jvm(Version::V4);
        for _ in 0..360 {
            fixture.pass(WATCHDOG_PERIOD_MS);
            watchdog.round(&mut java);
            let left_ms = other.plain_acquire(LOCK, 1, WATCHDOG_LEASE_MS);
            assert_eq!(left_ms, Some(WATCHDOG_LEASE_MS), "renewed");
        }
        assert_eq!(fixture.elapsed_ms(), 60 * MINUTE_MS);
    }

    /// The same race one step later: the lock is unlocked in Redis, and renewed all the same. The
    /// next lock of that thread is renewed too, even with an explicit lease.
    #[test]
    fn redisson_renews_what_has_a_lease() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut java = fixture.jvm(Version::V4);
        let mut watchdog = Watchdog::default();
        assert_eq!(java.plain_acquire(LOCK, 1, WATCHDOG_LEASE_MS), None);
        assert_eq!(java.plain_unlock(LOCK, 1), Some(1));
        watchdog.cancel(LOCK, 1);
        watchdog.schedule(LOCK, 1);
        assert!(watchdog.renews(LOCK) && fixture.is_free());
        let lease_ms = WATCHDOG_PERIOD_MS + SECOND_MS;
        assert_eq!(java.plain_acquire(LOCK, 1, lease_ms), None);
        for _ in 0..6 {
            fixture.pass(WATCHDOG_PERIOD_MS);
            watchdog.round(&mut java);
        }
        assert!(!fixture.is_free(), "held for a minute with a lease of eleven seconds");
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let client = fixture.client().await;
            for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
                for _ in 0..20 {
                    let mut cut_short = Box::pin(lock.lock());
                    // The request is sent, and its reply is not awaited.
                    if let Some(guard) = poll_once(&mut cut_short).await {
                        let _ = guard.unwrap().release().await.unwrap();
                    }
                }
            }
            // Wait until all of it is sent, answered and taken back, and a whole lease passes
            // without a call. A hold that is still renewed would be renewed three times meanwhile.
            let mut seen = (0, Instant::now());
            eventually("nobody renews what nobody holds", 5 * SLACK, || {
                let calls = fixture.script_calls();
                if calls != seen.0 {
                    seen = (calls, Instant::now());
                }
                seen.1.elapsed() > LEASE
            });
            assert_eq!((fixture.holder("fair"), fixture.holder("plain")), (None, None));

            // A lock that was renewed before still ends with an explicit lease.
            let held = fixture.hold(client.fair_lock("fair").lease(ms(500))).await;
            held.lost(ms(500) + SLACK).await;
            eventually("the lease ends", SLACK, || fixture.holder("fair").is_none());
        });
    }
}

/// Redisson #7367 (and #6025, #4109). With replicas, a request travels in a pipeline, where the
/// mark "send this once" is lost. The reply was late, the acquire script was sent again, and the
/// second copy found its own thread holding the lock: one `tryLock`, hold count 2. After one
/// `unlock` the lock was still held.
mod issue_7367_a_repeated_request_counts_once {
    use super::*;

    #[test]
    fn redisson_fails() {
        let Some(fixture) = JavaFixture::open() else { return };
        let mut java = fixture.jvm(Version::V4);
        for _copy in 0..2 {
            assert_eq!(java.plain_acquire(LOCK, 1, WATCHDOG_LEASE_MS), None);
        }
        assert_eq!(fixture.call(&["HGET", LOCK, &java.owner(1)]).text(), "2");
        assert_eq!(java.plain_unlock(LOCK, 1), Some(0), "one lock, one unlock");
        assert!(fixture.jvm(Version::V4).plain_acquire(LOCK, 1, SECOND_MS).is_some());

        // The fair lock fails as well.
        let Some(fixture) = JavaFixture::open() else { return };
        let mut java = fixture.jvm(Version::V4);
        for _copy in 0..2 {
            assert_eq!(java.acquire(LOCK, 1, SECOND_MS, WATCHDOG_LEASE_MS), None);
        }
        assert_eq!(java.unlock(LOCK, 1), Some(0));
        assert!(!fixture.is_free());
    }

    #[test]
    fn ours_does_not() {
        steady(|| async {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let client = client(&proxy.url()).await;
            for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
                // The server knows the script by now, so the next reply is that of the request.
                let _ = fixture.hold(lock.clone()).await.release().await;
                let dropped = proxy.counts().replies_dropped;
                proxy.drop_replies(1);
                let held = fixture.hold(lock).await;
                assert_eq!(proxy.counts().replies_dropped, dropped + 1, "it was sent twice");
                let name = String::from_utf8_lossy(held.guard.name().as_bytes()).into_owned();
                assert_eq!(fixture.call(&["HVALS", &name]).array()[0].text(), "1");
                assert_eq!(held.release().await, Release::Released);
                assert_eq!(fixture.holder(&name), None);
            }
        });
    }
}
