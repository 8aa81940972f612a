//! Leases end and are renewed on either side.

use std::time::{Duration, Instant};

use fairlock::{GuardState, Release};
use fairlock_interop::java::Kind;
use fairlock_interop::version::Version;

use crate::fixture::{ms, run, soon, until};

const LEASE: Duration = Duration::from_millis(700);
/// Redisson renews after every third of it.
const WATCHDOG: Duration = Duration::from_millis(2_000);

/// The key is not deleted: waiters must notice the end of the TTL themselves.
#[test]
fn the_lease_of_a_java_holder_ends_for_rust() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for kind in [Kind::Fair, Kind::Plain] {
            let ours = if kind == Kind::Fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            java.lock(kind, "a").lock_for(700).value().await;
            let held = Instant::now();
            let guard = soon(ours.lock()).await.unwrap();
            let took = held.elapsed();
            assert!((LEASE - ms(50)..LEASE + ms(500)).contains(&took), "{kind:?}: {took:?}");
            let exception = java.lock(kind, "a").unlock().exception().await;
            assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
            assert_eq!(fixture.holder("a"), Some(guard.owner().to_string()));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}

#[test]
fn the_lease_of_a_rust_holder_ends_for_java() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for kind in [Kind::Fair, Kind::Plain] {
            let ours = if kind == Kind::Fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            let held = Instant::now();
            let guard = soon(ours.clone().lease(LEASE).lock()).await.unwrap();
            let mut call = java.lock(kind, "a").lock();
            // A fair waiter of 3.16 that asks just after the lease has ended may sleep forever; but
            // it listens, and any request of ours notifies it.
            while fixture.version() == Version::V3_16 && kind == Kind::Fair && !call.is_over() {
                tokio::time::sleep(ms(100)).await;
                assert!(fixture.queue("a").is_empty() || ours.try_lock().await.unwrap().is_none());
            }
            call.value().await;
            let took = held.elapsed();
            assert!((LEASE - ms(50)..LEASE + ms(700)).contains(&took), "{kind:?}: {took:?}");
            soon(guard.lost()).await;
            assert_eq!(guard.state(), GuardState::Lost);
            assert_eq!(fixture.holder("a"), Some(java.id.clone()));
            java.lock(kind, "a").unlock().value().await;
        }
        fixture.nothing_left().await;
    });
}

/// Each holds for three times its watchdog's lease while the other waits, and loses nothing.
#[test]
fn watchdogs_of_either_side_keep_the_lock() {
    run(|fixture| async move {
        let rust = fixture.rust_with(|config| config.watchdog_lease(ms(3000))).await;
        let java = fixture.java_with_watchdog(WATCHDOG).await.owner("t").await;
        let theirs = java.fair("a");

        theirs.lock().value().await;
        let held = Instant::now();
        let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        assert!(turn.wait_for(3 * WATCHDOG).await.unwrap().is_none());
        assert!(theirs.is_mine().is_true().await);
        theirs.unlock().value().await;
        assert!(held.elapsed() > 3 * WATCHDOG);

        let guard = soon(turn.wait()).await.unwrap();
        let mut call = theirs.lock();
        assert!(call.answer_within(ms(3 * 3000)).await.is_none());
        assert_eq!(guard.state(), GuardState::Held);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        call.value().await;
        theirs.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// When a Java lease has expired, the next call without a lease through the same Java object uses
/// it; in 3.16 also after an unlock. A waiter of ours sees the TTL, whatever it is.
#[test]
fn a_java_object_hands_its_last_lease_on() {
    run(|fixture| async move {
        let java = fixture.java_owner().await;
        let theirs = java.fair("a");
        theirs.lock_for(50_000).value().await;
        theirs.unlock().value().await;
        theirs.lock().value().await;
        let is_remembered = fixture.pttl("a") > 40_000;
        assert_eq!(is_remembered, fixture.version() == Version::V3_16, "{} ms", fixture.pttl("a"));
        theirs.unlock().value().await;

        theirs.lock_for(300).value().await;
        until("the lease ends", || fixture.hold("a").is_none()).await;
        theirs.lock().value().await;
        let left_ms = fixture.pttl("a");
        assert!((0..=300).contains(&left_ms), "{left_ms} ms");
        theirs.apart().force_unlock().value().await;
        let rust = fixture.rust().await;
        let _ = soon(rust.fair_lock("a").lock()).await.unwrap().release().await.unwrap();
        fixture.nothing_left().await;
    });
}

/// A lock received by a hand-over has the waiter's lease, not that of the hand-over.
#[test]
fn a_lock_handed_over_has_the_lease_of_its_waiter() {
    run(|fixture| async move {
        // One client each: `lock()` may use the lease that was last used with the lock object.
        let (rust, one, two) =
            (fixture.rust().await, fixture.java_owner().await, fixture.java_owner().await);
        let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
        let call = one.fair("a").lock_for(50_000);
        fixture.queued("a", &[&one.id]).await;
        let leased = rust.fair_lock("a").lease(ms(40_000));
        let mut turn = soon(leased.enqueue()).await.unwrap();
        let last = two.fair("a").lock();
        fixture.queued("a", &[one.id.clone(), turn.owner().to_string(), two.id.clone()]).await;
        let _ = guard.release().await.unwrap();
        call.value().await;
        assert!((45_000..=50_000).contains(&fixture.pttl("a")), "{}", fixture.pttl("a"));
        one.fair("a").unlock().value().await;
        let guard = soon(turn.wait()).await.unwrap();
        until("the whole lease", || (35_000..=40_000).contains(&fixture.pttl("a"))).await;
        let _ = guard.release().await.unwrap();
        last.value().await;
        assert!((25_000..=30_000).contains(&fixture.pttl("a")), "{}", fixture.pttl("a"));
        two.fair("a").unlock().value().await;
        fixture.nothing_left().await;
    });
}
