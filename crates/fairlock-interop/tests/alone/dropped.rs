//! Live waiters that are judged dead: by a client whose clock is fast, and after an asynchronous
//! `tryLock` has given up. Java waiters lose their place, ours return to it.

use std::time::{Duration, Instant};

use fairlock_interop::java::{Java, JavaClient};
use fairlock_interop::version::Version;

use super::{HEARTBEAT, score_ahead};
use crate::fixture::{Fixture, measured, ms, run, soon, until};

const TEN_MINUTES_US: i64 = 600_000_000;
/// Java asks again after this time, and is then back in the queue.
const WATCHDOG: Duration = Duration::from_secs(3);

#[test]
fn a_fast_clock_costs_java_its_place_and_ours_a_heartbeat() {
    let Some(fast) = Java::with_clock(Version::of_environment()) else { return };
    fast.clock().set_offset(TEN_MINUTES_US);
    run(|fixture| async move {
        let alone = fixture.beside();
        let ahead = |fixture: &Fixture| fast.client(fixture.server.addr(), Default::default());
        let clients = tokio::join!(ahead(&alone), ahead(&fixture));
        tokio::join!(
            a_fast_clock_beside_java_alone(&alone, &clients.0),
            a_fast_clock_beside_ours(&fixture, &clients.1),
        );
    });
}

async fn a_fast_clock_beside_java_alone(fixture: &Fixture, ahead: &JavaClient) {
    let java = fixture.java_with_watchdog(WATCHDOG).await;
    let (holder, first) = (java.owner("holder").await, java.owner("first").await);
    let late = ahead.owner("late").await;
    holder.fair("a").lock().value().await;
    let mut waits = first.fair("a").lock();
    fixture.queued("a", &[&first.id]).await;
    let overtakes = late.fair("a").lock();
    until("it has dropped the other", || fixture.queue("a").first() == Some(&late.id)).await;
    let version = fixture.version();
    if version.looks_again() {
        // It returns when its sleep ends, behind the one that dropped it.
        fixture.queued("a", &[&late.id, &first.id]).await;
    }
    holder.fair("a").unlock().value().await;
    overtakes.value().await;
    assert!(!waits.is_over(), "it came first, and is overtaken");
    measured(&format!(
        "Redisson {version} alone, a clock 10 min ahead: the first waiter is second"
    ));
    late.fair("a").unlock().value().await;
    if version.looks_again() {
        waits.value().await;
    }
}

async fn a_fast_clock_beside_ours(fixture: &Fixture, ahead: &JavaClient) {
    let (rust, java) = (fixture.rust().await, fixture.java().await);
    let (holder, late) = (java.owner("holder").await, ahead.owner("late").await);
    holder.fair("a").lock().value().await;
    let mut first = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    let first_id = first.owner().to_string();
    let overtakes = late.fair("a").lock();
    until("it has dropped ours", || fixture.queue("a").first() == Some(&late.id)).await;
    let dropped = Instant::now();
    fixture.queued("a", &[&first_id, &late.id]).await;
    let took = dropped.elapsed();
    measured(&format!("ours dropped by a clock 10 min ahead: back in its place after {took:?}"));
    assert!(took < HEARTBEAT, "{took:?}");
    holder.fair("a").unlock().value().await;
    let _ = soon(first.wait()).await.unwrap().release().await.unwrap();
    overtakes.value().await;
    late.fair("a").unlock().value().await;
}

/// A `tryLockAsync` that gives up takes five minutes from the scores of all behind it.
#[test]
fn an_async_try_lock_that_gives_up_costs_java_its_place_and_ours_nothing() {
    run(|fixture| async move {
        let (alone, short) = (fixture.beside(), fixture.beside());
        tokio::join!(
            giving_up_beside_java_alone(&alone),
            giving_up_beside_ours(&fixture, Duration::from_secs(300)),
            // Ours with a fair wait shorter than five minutes.
            giving_up_beside_ours(&short, Duration::from_secs(1)),
        );
    });
}

/// The lease that sleeping waiters see.
const LEASE: Duration = Duration::from_secs(8);
const GIVES_UP_MS: i64 = 1500;

async fn giving_up_beside_java_alone(fixture: &Fixture) {
    let java = fixture.java().await;
    let (holder, gives_up) = (java.owner("holder").await, java.owner("gives-up").await);
    let (patient, late) = (java.owner("patient").await, java.owner("late").await);
    holder.fair("a").lock_for(LEASE.as_millis() as i64).value().await;
    let tries = gives_up.fair("a").try_lock_for_async(GIVES_UP_MS, Some(30_000));
    fixture.queued("a", &[&gives_up.id]).await;
    let mut waits = patient.fair("a").try_lock_for(20_000, Some(30_000));
    fixture.queued("a", &[&gives_up.id, &patient.id]).await;
    assert!(!tries.is_true().await);
    fixture.queued("a", &[&patient.id]).await;
    let ahead_ms = score_ahead(fixture, "a", &patient.id);
    assert!(ahead_ms < -200_000, "{ahead_ms}");
    holder.fair("a").unlock().value().await;
    assert_eq!(
        (fixture.hold("a"), fixture.queue("a")),
        (None, vec![]),
        "dropped, and nobody is told"
    );
    let freed = Instant::now();
    tokio::time::sleep(ms(1000)).await;
    assert!(!waits.is_over());
    late.fair("a").lock().value().await;
    assert!(!waits.is_over(), "overtaken");
    late.fair("a").unlock().value().await;
    assert!(waits.is_true().await);
    measured(&format!(
        "Redisson {} alone, after an async tryLock gave up: the next one's score is {ahead_ms} ms, it \
         is dropped and overtaken, and gets the lock {:?} after it was free",
        fixture.version(),
        freed.elapsed()
    ));
    assert!(freed.elapsed() > HEARTBEAT, "{:?}", freed.elapsed());
}

async fn giving_up_beside_ours(fixture: &Fixture, fair_wait: Duration) {
    let rust = fixture.rust_with(|config| config.fair_wait(fair_wait)).await;
    let java = fixture.java().await;
    let (holder, gives_up) = (java.owner("holder").await, java.owner("gives-up").await);
    let late = java.owner("late").await;
    holder.fair("a").lock_for(LEASE.as_millis() as i64).value().await;
    let tries = gives_up.fair("a").try_lock_for_async(GIVES_UP_MS, Some(30_000));
    fixture.queued("a", &[&gives_up.id]).await;
    let mut patient = soon(rust.fair_lock("a").enqueue()).await.unwrap();
    let patient_id = patient.owner().to_string();
    fixture.queued("a", &[&gives_up.id, &patient_id]).await;
    assert!(!tries.is_true().await);
    fixture.queued("a", &[&patient_id]).await;
    let ahead_ms = score_ahead(fixture, "a", &patient_id);
    let comes = late.fair("a").lock();
    let began = Instant::now();
    until("the late one waits", || fixture.queue("a").contains(&late.id)).await;
    let dropped = !fixture.queue("a").contains(&patient_id);
    fixture.queued("a", &[&patient_id, &late.id]).await;
    let back = began.elapsed();
    let freed = Instant::now();
    holder.fair("a").unlock().value().await;
    let guard = soon(patient.wait()).await.unwrap();
    let took = freed.elapsed();
    measured(&format!(
        "ours after an async tryLock gave up, fair wait {fair_wait:?}: score {ahead_ms} ms, dropped: \
         {dropped}, in its place after {back:?}, granted {took:?} after the unlock"
    ));
    assert!(back < HEARTBEAT && took < ms(1000), "{back:?}, {took:?}");
    let _ = guard.release().await.unwrap();
    comes.value().await;
    late.fair("a").unlock().value().await;
}
