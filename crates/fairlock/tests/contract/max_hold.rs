//! The longest hold: no guard is renewed beyond it.

use std::time::{Duration, Instant};

use super::super::api::{Guard, Lock};
use super::super::support::{
    Pauses, Store, granted, no_beats, soon, unless_it_pauses, until, wait_behind,
};
use fairlock::{Config, Error, ErrorKind, GuardState};

const LEASE: Duration = Duration::from_millis(600);

const MOST: Duration = Duration::from_millis(1_500);

/// From the end of a hold until the guard's future has been polled.
const PUSHED_WITHIN: Duration = Duration::from_millis(100);

fn short_lease(config: Config) -> Config {
    config.watchdog_lease(LEASE)
}

/// Checks that the guard is renewed until shortly before `MOST`, and Lost by then. `since` is a
/// moment after the grant, `last` a moment before it.
async fn ends_in_time(guard: &Guard, last: Instant, since: Instant) -> Result<(), Duration> {
    let pauses = Pauses::watch();
    soon("the end of the hold", guard.lost()).await;
    let (least, most) = (last.elapsed(), since.elapsed());
    // Waits of single threads of the client, of a server or of a replica count too: such a wait
    // does not stop all threads.
    let paused = pauses.longest().max(pauses.together());
    // A push passes through two threads, one after the other.
    assert!(most <= MOST + PUSHED_WITHIN + 2 * paused, "{most:?}, pauses of {paused:?}");
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.ensure_valid().unwrap_err().kind(), ErrorKind::Lost);
    // A machine that pauses for longer than two thirds of the lease loses the lock earlier.
    if least < MOST - LEASE / 4 {
        assert!(paused > LEASE / 4, "lost after {least:?} without a pause ({paused:?})");
        return Err(paused);
    }
    Ok(())
}

pub(super) async fn renewals_end_with_it(store: Store) {
    let client = store.client_with(short_lease).await;
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        let lock = lock.max_hold(MOST);
        for attempt in 1.. {
            let began = Instant::now();
            let guard = soon("a free lock", lock.lock()).await.unwrap();
            assert_eq!(guard.lease(), LEASE);
            let in_time = ends_in_time(&guard, began, Instant::now()).await;
            // The store has let go as well, without a request from the guard.
            until("it ends on the store", async || !lock.is_locked().await.unwrap()).await;
            if in_time.is_ok() {
                break;
            }
            assert!(attempt < 8, "this machine pauses all the time");
        }
    }
}

/// F18: nobody ever releases this guard, and its client would renew it for as long as the process
/// lives. The longest hold passes the lock to the next request.
pub(super) async fn a_leaked_guard_ends_with_it(store: Store) {
    let client = store.client_with(short_lease).await;
    let other = store.client_with(short_lease).await;
    for (lock, other) in [
        (client.fair_lock("fair"), other.fair_lock("fair")),
        (client.plain_lock("plain"), other.plain_lock("plain")),
    ] {
        let lock = lock.max_hold(MOST);
        // If the machine pauses for longer than a hold, the hold ends too early, or proves nothing.
        let _ = unless_it_pauses(LEASE / 4, async || {
            let told = |error: Error| error.to_string();
            let guard = lock.lock().await.map_err(told)?;
            let (since, token) = (Instant::now(), guard.token());
            std::mem::forget(guard);
            // Until it must have been renewed beyond its first lease.
            tokio::time::sleep(LEASE + LEASE / 4).await;
            let left = other.remaining_ttl().await.map_err(told)?;
            if left.is_none() && since.elapsed() <= MOST {
                return Err("not renewed".to_owned());
            }
            let next = soon("the end of the leaked one", other.lock()).await.map_err(told)?;
            assert!(next.token() > token);
            next.release().await.map_err(told)
        })
        .await;
    }
}

async fn ends_after(lock: &Lock, most: Duration) {
    let began = Instant::now();
    let guard = soon("a free lock", lock.lock()).await.unwrap();
    assert_eq!(guard.lease(), most);
    assert!(guard.remaining() <= most);
    let ttl = lock.remaining_ttl().await.unwrap();
    assert!(ttl.is_none_or(|ttl| ttl <= most), "{ttl:?}");
    soon("its end", guard.lost()).await;
    assert!(began.elapsed() > most / 2, "{:?}", began.elapsed());
    until("it ends on the store", async || !lock.is_locked().await.unwrap()).await;
}

pub(super) async fn it_shortens_the_lease(store: Store) {
    let client = store.client_with(no_beats).await;
    let most = Duration::from_secs(1);
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        let lock = lock.max_hold(most);
        ends_after(&lock, most).await;
        ends_after(&lock.lease(Duration::from_secs(200)), most).await;
    }
}

pub(super) async fn a_shorter_lease_counts(store: Store) {
    let client = store.client_with(no_beats).await;
    let lease = Duration::from_secs(1);
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        ends_after(&lock.max_hold(Duration::from_secs(100)).lease(lease), lease).await;
    }
}

/// The time in the queue does not count, and a hold that was granted by message ends in time too.
pub(super) async fn a_hand_over_counts_from_the_grant(store: Store) {
    let client = store.client_with(short_lease).await;
    let lock = client.fair_lock("job").max_hold(MOST);
    for attempt in 1.. {
        let first = client.fair_lock("job").lock().await.unwrap();
        let waiter = wait_behind(&lock, 1).await;
        tokio::time::sleep(MOST).await;
        let last = Instant::now();
        drop(first);
        let guard = granted(waiter).await;
        if ends_in_time(&guard, last, Instant::now()).await.is_ok() {
            break;
        }
        assert!(attempt < 8, "this machine pauses all the time");
    }
}

pub(super) async fn bad_values_are_refused(store: Store) {
    let client = store.client().await;
    let values = [
        Duration::ZERO,
        Duration::from_nanos(99_999_999),
        Duration::from_secs(11 * 366 * 24 * 3_600),
        Duration::MAX,
    ];
    for most in values {
        for lock in [client.fair_lock("job"), client.plain_lock("job")] {
            let lock = lock.max_hold(most);
            let errors = [
                lock.lock().await.unwrap_err(),
                lock.try_lock().await.unwrap_err(),
                lock.try_lock_for(Duration::from_secs(1)).await.unwrap_err(),
                lock.clone().lease(Duration::from_secs(1)).lock().await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Misuse);
                let text = error.to_string();
                assert!(text.contains("longest hold"), "{text}");
                assert!(text.contains(&format!("{most:?}")), "{text}");
                assert_eq!(error.lock().unwrap().as_bytes(), b"job");
            }
        }
    }
    let status = client.fair_lock("job").inspect().await.unwrap();
    assert!(status.holder.is_none() && status.token.is_none(), "nothing was sent");
}
