//! A Java client whose clock is ten minutes off. Redisson judges others, and is judged, by it.

use fairlock_interop::java::{Java, JavaOwner};
use fairlock_interop::version::Version;
use fairlock_testkit::history::now_ns;

use crate::fixture::{Fixture, run_on, soon, until};

const TEN_MINUTES_US: i64 = 600_000_000;

/// A JVM whose clock is this far ahead of the machine's, if the machine has a C compiler.
fn with_clock(offset_us: i64) -> Option<Java> {
    let java = Java::with_clock(Version::of_environment())?;
    java.clock().set_offset(offset_us);
    Some(java)
}

fn skewed<F: Future<Output = ()>>(offset_us: i64, test: impl FnOnce(Fixture, JavaOwner) -> F) {
    let Some(java) = with_clock(offset_us) else { return };
    run_on(java, |fixture| async move {
        let before_ns = now_ns();
        let server = fixture.call(&["TIME"]);
        let server_ms = server.array()[0].text().parse::<i64>().unwrap() * 1000;
        let apart_ms = fixture.java.now_ms().await - server_ms - offset_us / 1000;
        let took_ms = i64::try_from((now_ns() - before_ns) / 1_000_000).unwrap();
        assert!((0..1100 + took_ms).contains(&apart_ms), "the JVM shows it: {apart_ms} ms apart");
        let owner = fixture.java_owner().await;
        test(fixture, owner).await;
    });
}

/// By its clock every waiter is long dead. It drops ours, which return to their places.
#[test]
fn ours_keep_their_places_before_a_java_client_that_is_ahead() {
    skewed(TEN_MINUTES_US, |fixture, java| async move {
        let rust = [fixture.rust().await, fixture.rust().await];
        let guard = soon(rust[0].fair_lock("a").lock()).await.unwrap();
        let mut first = soon(rust[0].fair_lock("a").enqueue()).await.unwrap();
        let mut second = soon(rust[1].fair_lock("a").enqueue()).await.unwrap();
        let call = java.fair("a").lock();
        until("it stands in the queue", || fixture.queue("a").contains(&java.id)).await;
        let mut third = soon(rust[1].fair_lock("a").enqueue()).await.unwrap();
        let in_order = [
            first.owner().to_string(),
            second.owner().to_string(),
            java.id.clone(),
            third.owner().to_string(),
        ];
        until("all are in their places", || fixture.queue("a") == in_order).await;
        let _ = guard.release().await.unwrap();
        let _ = soon(first.wait()).await.unwrap().release().await.unwrap();
        let _ = soon(second.wait()).await.unwrap().release().await.unwrap();
        call.value().await;
        java.fair("a").unlock().value().await;
        let _ = soon(third.wait()).await.unwrap().release().await.unwrap();
    });
}

/// It enters with a score that has passed by all other clocks. Redisson's rule judges it dead, and
/// it returns at the tail; ours see that it listens, notify it, and keep the free lock for it.
#[test]
fn ours_serve_a_java_client_that_is_behind_in_its_turn() {
    skewed(-TEN_MINUTES_US, |fixture, java| async move {
        let rust = fixture.rust().await;
        for _ in 0..5 {
            let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
            let call = java.fair("a").lock();
            until("it stands in the queue", || fixture.queue("a") == [java.id.clone()]).await;
            let channel = format!("redisson_lock__channel:{{a}}:{}", java.id);
            until("it listens", || fixture.listeners(&channel) == 1).await;
            assert!(fixture.scores("a")[0].1 < 0, "it has passed");
            let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
            let _ = guard.release().await.unwrap();
            call.value().await;
            assert_eq!(fixture.hold("a"), Some((java.id.clone(), 1)));
            assert_eq!(fixture.queue("a"), [turn.owner().to_string()]);
            java.fair("a").unlock().value().await;
            let _ = soon(turn.wait()).await.unwrap().release().await.unwrap();
        }
        assert_eq!((fixture.queue("a"), fixture.hold("a")), (vec![], None));
    });
}
