//! Holds that end by themselves, while others wait: the next one is served at that moment, not with
//! its heartbeat, which comes 10 or 20 s later.

use super::{SELDOM, run};
use crate::faults::fixture::measured;
use crate::support::{granted, queue_is, until, wait_behind};
use fairlock::Guard;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Far shorter than the time between two heartbeats.
const SHORT: Duration = Duration::from_millis(1_500);

/// Far below the time to the next heartbeat, which is at least 9 s.
const SOON_AFTER: Duration = Duration::from_secs(6);

/// The next waiter gets the lock `SHORT` after `began`.
async fn served_at_the_end(
    what: &str,
    began: Instant,
    next: JoinHandle<Result<Guard, fairlock::Error>>,
) {
    let guard = granted(next).await;
    let took = began.elapsed();
    measured(what, took.saturating_sub(SHORT));
    assert!(took + Duration::from_millis(50) > SHORT, "{what}: too early, after {took:?}");
    assert!(took < SHORT + SOON_AFTER, "{what}: {took:?}");
    let _ = guard.release().await.unwrap();
}

/// The waiter knew the lease of the holder before, 300 s, and not that of the one before it, which
/// then held the lock.
#[test]
fn the_end_of_a_short_lease_is_not_missed_by_who_waited_before_it_began() {
    run(async |fixture| {
        for heartbeat in [SELDOM, Duration::from_secs(2)] {
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(fixture.client_with(heartbeat).await);
            }
            let guard = clients[0].fair_lock("job").lock().await.unwrap();
            let second = wait_behind(&clients[1].fair_lock("job").lease(SHORT), 1).await;
            let third = wait_behind(&clients[2].fair_lock("job"), 2).await;
            let began = Instant::now();
            let _ = guard.release().await.unwrap();
            // Not dropped, which would release it.
            let second = granted(second).await;
            served_at_the_end("served after the end of a short lease", began, third).await;
            drop(second);
        }
    });
}

/// Two waiters of one client: no message goes between processes then.
#[test]
fn the_end_of_a_short_lease_is_not_missed_within_a_client() {
    run(async |fixture| {
        let (one, two) = (fixture.client().await, fixture.client().await);
        let guard = one.fair_lock("job").lock().await.unwrap();
        let second = wait_behind(&two.fair_lock("job").lease(SHORT), 1).await;
        let third = wait_behind(&two.fair_lock("job"), 2).await;
        let began = Instant::now();
        let _ = guard.release().await.unwrap();
        let second = granted(second).await;
        served_at_the_end("served after the end of a short lease, within a client", began, third)
            .await;
        drop(second);
    });
}

/// The hold had 300 s left when the waiter looked, and was left to the store for a moment then.
#[test]
fn a_hold_that_is_cut_short_is_not_waited_for_longer() {
    run(async |fixture| {
        let (one, two) = (fixture.client().await, fixture.client().await);
        let locks = |client: &fairlock::Client| {
            [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")]
        };
        for (at, (ours, theirs)) in locks(&one).into_iter().zip(locks(&two)).enumerate() {
            let guard = ours.lock().await.unwrap();
            let next = tokio::spawn(async move { theirs.lock().await });
            if at == 0 {
                queue_is(&ours, 1).await;
            } else {
                until("it listens", async || fixture.files(".base").len() == 1).await;
                // It listens before it asks what it waits for.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            let began = Instant::now();
            guard.detach_for(SHORT).await.unwrap();
            served_at_the_end("served after a hold that was cut short", began, next).await;
            until("nobody listens", async || fixture.files(".base").is_empty()).await;
        }
    });
}

/// What has ended is free for the first one that asks, whoever waited for it.
#[test]
fn an_ended_lease_is_free_at_the_first_try() {
    run(async |fixture| {
        let client = fixture.client().await;
        for kind in ["lock", "plain", "simple"] {
            let (mut holder, mut waiter) = (fixture.worker(), fixture.worker());
            let lock = match kind {
                "lock" => client.fair_lock(kind),
                "plain" => client.plain_lock(kind),
                _ => client.simple_lock(kind),
            };
            // Long enough for what comes before its end.
            holder.order(&format!("{kind} 0 {kind} 5000"));
            holder.expect("granted 0", crate::support::SOON);
            if kind == "lock" {
                waiter.order(&format!("{kind} 0 {kind}"));
                queue_is(&lock, 1).await;
            }
            super::stop_between_writes(&holder, fixture).await;
            waiter.kill9();
            until("it ends", async || !lock.is_locked().await.unwrap()).await;
            let guard = lock.try_lock().await.unwrap();
            let _ = guard.unwrap_or_else(|| panic!("{kind} is free")).release().await.unwrap();
        }
    });
}
