//! Leases: kept, ended, taken away; and how the holder learns of it.

use std::time::{Duration, Instant};

use super::super::support::{Store, granted, no_beats, soon, unless_it_pauses, until, wait_behind};
use fairlock::{Config, Error, ErrorKind, GuardState, Release};

const SHORT: Duration = Duration::from_secs(3);

fn short_lease(config: Config) -> Config {
    config.watchdog_lease(SHORT)
}

/// A machine that pauses for longer than two thirds of the lease rightly loses the lock; the test
/// then tries again.
pub(super) async fn the_watchdog_keeps_a_lock(store: Store) {
    const LEASE: Duration = Duration::from_millis(600);
    const HELD: Duration = Duration::from_millis(2_400);
    let client = store.client_with(|config| config.watchdog_lease(LEASE)).await;
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        unless_it_pauses(LEASE / 4, async || {
            let guard = soon("a free lock", lock.lock()).await?;
            let _ = tokio::time::timeout(HELD, guard.lost()).await;
            guard.ensure_valid()?;
            assert!(guard.remaining() <= LEASE);
            let ttl = lock.inspect().await.unwrap().ttl;
            assert!(ttl.is_none_or(|ttl| ttl <= LEASE), "{ttl:?}");
            Ok::<_, Error>(())
        })
        .await;
    }
}

pub(super) async fn an_explicit_lease_ends(store: Store) {
    let client = store.client_with(short_lease).await;
    let lease = Duration::from_millis(1_500);
    for lock in [client.fair_lock("fair").lease(lease), client.plain_lock("plain").lease(lease)] {
        let began = Instant::now();
        let guard = lock.lock().await.unwrap();
        let token = guard.token();
        soon("the end of the lease", guard.lost()).await;
        let lasted = began.elapsed();
        assert!(lasted > lease / 2, "{lasted:?}: the guard gets its whole lease, less a margin");
        assert_eq!(guard.remaining(), Duration::ZERO);
        until("the lease ends", async || !lock.is_locked().await.unwrap()).await;
        assert!(began.elapsed() >= lease - Duration::from_millis(1), "{:?}", began.elapsed());
        assert_eq!(guard.release().await.unwrap(), Release::Lost);
        assert!(lock.lock().await.unwrap().token() > token);
    }
}

pub(super) async fn signals_of_a_taken_lock(store: Store) {
    let client = store.client_with(short_lease).await;
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.state(), GuardState::Held);
        assert!(guard.remaining() > Duration::ZERO);
        guard.ensure_valid().unwrap();
        lock.force_unlock().await.unwrap();
        // A renewal discovers it, long before the clock would.
        let state = soon("the loss", guard.state_changed(GuardState::Held)).await;
        assert_eq!(state, GuardState::Lost);
        soon("the loss", guard.lost()).await;
        assert_eq!(guard.state(), GuardState::Lost);
        assert_eq!(guard.remaining(), Duration::ZERO);
        let error = guard.ensure_valid().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert_eq!((error.lock(), error.owner()), (Some(guard.name()), Some(guard.owner())));
        assert_eq!(guard.release().await.unwrap(), Release::Lost);
    }
}

/// The holder stops being renewed and never releases. The next waiter gets the lock at the end of
/// the lease, by its own early heartbeat and not by the regular one.
pub(super) async fn an_expired_lock_goes_to_the_next(store: Store) {
    let holder = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    let lease = Duration::from_secs(3);
    let began = Instant::now();
    let guard = holder.clone().lease(lease).lock().await.unwrap();
    let waiter = wait_behind(&other, 1).await;
    let second = wait_behind(&holder, 2).await;
    let next = granted(waiter).await;
    let after = began.elapsed();
    assert!(after >= lease - Duration::from_millis(1), "{after:?}");
    assert!(next.token() > guard.token());
    // Never valid at the same time: the guard was lost before the next grant.
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    next.ensure_valid().unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert_eq!(granted(second).await.release().await.unwrap(), Release::Released);
}

pub(super) async fn a_lost_guard_does_not_reenter(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    lock.force_unlock().await.unwrap();
    // The guard does not know of the loss yet: the store reports it.
    let error = guard.reenter().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.state(), GuardState::Lost);
    // Now the guard knows, and does not ask the store.
    assert_eq!(guard.reenter().await.unwrap_err().kind(), ErrorKind::Lost);
    let next = lock.lock().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 1);
    let _ = next.release().await.unwrap();
}
