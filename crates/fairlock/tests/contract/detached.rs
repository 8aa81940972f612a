//! Locks that are detached from their guards.

use std::time::{Duration, Instant};

use super::super::api::{Client, Lock};
use super::super::support::{Store, is_free, no_beats, soon, until};
use fairlock::{Config, ErrorKind, GuardState, Release};

const LEASE: Duration = Duration::from_millis(1_500);

fn short_lease(config: Config) -> Config {
    config.watchdog_lease(LEASE)
}

fn each_kind(client: &Client) -> [Lock; 3] {
    [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")]
}

pub(super) async fn it_stays_until_its_lease_ends(store: Store) {
    let client = store.client_with(short_lease).await;
    for lock in each_kind(&client) {
        let guard = lock.lock().await.unwrap();
        let (owner, token) = (guard.owner().clone(), guard.token());
        let name = guard.name().clone();
        let detached = guard.detach().await.unwrap();
        assert_eq!((detached.owner(), detached.token()), (&owner, token));
        assert_eq!(*detached.name(), name);
        let least = detached.remaining();
        assert!(least <= LEASE && least > LEASE / 2, "{least:?}");
        until("it ends", async || {
            let holder = lock.holder().await.unwrap();
            assert!(holder.as_ref().is_none_or(|holder| holder.owner == owner));
            // If the lock is certainly still held now, it was held when the store answered.
            assert!(holder.is_some() || detached.remaining().is_zero(), "over too early");
            holder.is_none()
        })
        .await;
    }
}

pub(super) async fn the_next_is_served_at_its_end(store: Store) {
    let client = store.client_with(short_lease).await;
    let other = store.client_with(short_lease).await;
    for (lock, other) in each_kind(&client).into_iter().zip(each_kind(&other)) {
        let guard = lock.lock().await.unwrap();
        let token = guard.token();
        let began = Instant::now();
        let detached = guard.detach().await.unwrap();
        assert!(other.try_lock().await.unwrap().is_none());
        let next = soon("the end of the lease", other.lock()).await.unwrap();
        assert!(detached.remaining().is_zero(), "granted {:?} too early", detached.remaining());
        assert!(began.elapsed() >= LEASE, "after {:?}", began.elapsed());
        assert!(next.token() > token);
        let _ = next.release().await.unwrap();
    }
}

/// Detaching renews to the whole lease, however much of it was used up.
pub(super) async fn it_is_renewed_once(store: Store) {
    let client = store.client_with(short_lease).await;
    for lock in each_kind(&client) {
        let guard = lock.lock().await.unwrap();
        // Before the first renewal, which is due after a third of the lease.
        tokio::time::sleep(LEASE / 4).await;
        let began = Instant::now();
        let detached = guard.detach().await.unwrap();
        assert!(detached.remaining() + began.elapsed() > LEASE - LEASE / 8);
        is_free(&lock).await;
        assert!(began.elapsed() >= LEASE - Duration::from_millis(1), "{:?}", began.elapsed());
    }
}

/// Detaching does not move the end of an explicit lease or of a longest hold.
pub(super) async fn an_end_is_not_moved(store: Store) {
    let client = store.client_with(short_lease).await;
    // Two kinds are enough for what the client alone decides.
    let [fair, plain, _] = each_kind(&client);
    for lock in [fair, plain] {
        let most = 2 * LEASE;
        for lock in [lock.clone().lease(most), lock.max_hold(most)] {
            let guard = soon("a free lock", lock.lock()).await.unwrap();
            let since = Instant::now();
            tokio::time::sleep(most - LEASE / 2).await;
            let Ok(detached) = guard.detach().await else {
                assert!(since.elapsed() >= LEASE, "lost after {:?}", since.elapsed());
                continue;
            };
            assert!(detached.remaining() + since.elapsed() <= most);
            let ttl = lock.remaining_ttl().await.unwrap();
            assert!(ttl.is_none_or(|ttl| ttl <= LEASE / 2), "{ttl:?}");
            is_free(&lock).await;
        }
    }
}

/// The lock stays for the given time, longer or shorter than any lease; no renewal changes that.
pub(super) async fn d24_it_stays_for_the_time_that_was_named(store: Store) {
    let client = store.client_with(short_lease).await;
    // The client alone computes the lease: it is enough to test all the cases with one kind.
    for (lock, number) in each_kind(&client).into_iter().zip([4, 1, 1]) {
        let cases = [
            (lock.clone(), 2 * LEASE),
            (lock.clone(), LEASE - LEASE / 3),
            (lock.clone().lease(LEASE), 2 * LEASE),
            (lock.max_hold(LEASE), 2 * LEASE),
        ];
        for (lock, time) in cases.into_iter().take(number) {
            let guard = lock.lock().await.unwrap();
            let began = Instant::now();
            let detached = guard.detach_for(time).await.unwrap();
            let remaining = detached.remaining();
            let most = remaining + began.elapsed();
            assert!(remaining <= time && most > time - time / 8, "{time:?}: {remaining:?}");
            match lock.remaining_ttl().await.unwrap() {
                None => {
                    assert!(began.elapsed() >= time - Duration::from_millis(1), "over too early");
                }
                Some(ttl) => {
                    assert!(
                        ttl <= time && ttl + began.elapsed() > time - time / 8,
                        "{time:?}: {ttl:?}"
                    );
                }
            }
            is_free(&lock).await;
            assert!(began.elapsed() >= time - Duration::from_millis(1), "{:?}", began.elapsed());
        }
    }
    let lock = client.fair_lock("fair");
    for time in [Duration::from_millis(99), Duration::MAX] {
        let error = lock.lock().await.unwrap().detach_for(time).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        is_free(&lock).await;
    }
}

/// Other guards rely on renewals, which would replace the given time with the lease.
pub(super) async fn d24_not_for_a_time_beside_other_guards(store: Store) {
    let client = store.client_with(no_beats).await;
    for lock in each_kind(&client) {
        let stays = lock.lock().await.unwrap();
        let second = stays.reenter().await.unwrap();
        let error = second.detach_for(100 * LEASE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert_eq!(stays.hold_count(), 1);
        stays.ensure_valid().unwrap();
        // It is still renewed, and can be entered again.
        drop(stays.reenter().await.unwrap());
        assert_eq!(stays.release().await.unwrap(), Release::Released);
        is_free(&lock).await;
    }
}

/// Owner number and remaining time show whether the work is done, even if the client is unknown.
pub(super) async fn d24_what_was_left_for_a_time_is_done(store: Store) {
    if store.is_memory() {
        // The store ends with the client.
        return;
    }
    let looker = store.client_with(short_lease).await;
    let lock = looker.fair_lock("once");
    for once in [true, false] {
        let client = store.client_with(short_lease).await;
        let owner = if once { client.once_owner() } else { client.owner() };
        let guard = client.fair_lock("once").owned_by(&owner).try_lock().await.unwrap().unwrap();
        assert!(!lock.inspect().await.unwrap().is_done(), "it is at work");
        guard.detach_for(2 * LEASE).await.unwrap();
        assert_eq!(lock.inspect().await.unwrap().is_done(), once);
        client.shutdown().await;
        let status = lock.inspect().await.unwrap();
        assert_eq!(status.is_done(), once);
        assert_eq!(&status.holder.unwrap().owner, owner.id());
        is_free(&lock).await;
        assert!(!lock.inspect().await.unwrap().is_done());
    }
}

pub(super) async fn others_do_not_free_it(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for (lock, other) in each_kind(&client).into_iter().zip(each_kind(&other)) {
        let first = lock.lock().await.unwrap();
        let second = first.reenter().await.unwrap();
        let third = second.reenter().await.unwrap();
        let detached = second.detach().await.unwrap();
        assert_eq!(first.hold_count(), 3);
        assert_eq!(first.release().await.unwrap(), Release::StillHeld(2));
        third.ensure_valid().unwrap();
        drop(third);
        until("all guards are gone", async || {
            let holder = other.holder().await.unwrap().expect("it stays");
            assert_eq!(holder.owner, *detached.owner());
            holder.count == 1
        })
        .await;
        assert!(other.try_lock().await.unwrap().is_none());
        assert!(other.force_unlock().await.unwrap());
        let _ = soon("a free lock", other.lock()).await.unwrap().release().await.unwrap();
    }
}

/// Detaching stops the renewals for all guards of the hold.
pub(super) async fn others_are_lost_at_its_end(store: Store) {
    let client = store.client_with(short_lease).await;
    for lock in each_kind(&client) {
        let stays = lock.lock().await.unwrap();
        let began = Instant::now();
        let detached = stays.reenter().await.unwrap().detach().await.unwrap();
        let again = stays.reenter().await.unwrap();
        assert_eq!(again.hold_count(), 3);
        soon("the end", stays.lost()).await;
        assert!(detached.remaining().is_zero());
        assert!(began.elapsed() > LEASE / 2, "{:?}", began.elapsed());
        assert_eq!(again.state(), GuardState::Lost);
        is_free(&lock).await;
        assert_eq!(stays.release().await.unwrap(), Release::Lost);
        // The second guard reports the loss too.
        assert_eq!(again.detach().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

pub(super) async fn a_lost_lock_is_not_detached(store: Store) {
    let client = store.client_with(no_beats).await;
    for lock in each_kind(&client) {
        let guard = lock.lock().await.unwrap();
        let owner = guard.owner().clone();
        assert!(lock.force_unlock().await.unwrap());
        let next = lock.lock().await.unwrap();
        // The guard was told of the loss, or the store reports it. The error names the new holder,
        // unless the guard was told before that one had the lock.
        let error = guard.detach().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert_eq!((error.lock(), error.owner()), (Some(next.name()), Some(&owner)));
        assert!(error.holder().is_none_or(|holder| holder == next.owner()), "{error}");
        let holder = lock.holder().await.unwrap().unwrap();
        assert_eq!((&holder.owner, holder.count), (next.owner(), 1));
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}

pub(super) async fn not_after_the_shutdown(store: Store) {
    let look = store.client_with(no_beats).await.fair_lock("job");
    let client = store.client_with(no_beats).await;
    let guard = client.fair_lock("job").lock().await.unwrap();
    soon("the shutdown", client.shutdown()).await;
    let error = guard.detach().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.lock().is_some() && error.owner().is_some(), "{error}");
    if !store.is_memory() {
        is_free(&look).await;
    }
}

/// The lock stays, and ends, without its client.
pub(super) async fn it_outlives_its_client(store: Store) {
    if store.is_memory() {
        // The store ends with the client.
        return;
    }
    let look = store.client_with(short_lease).await;
    let client = store.client_with(short_lease).await;
    let detached = client.fair_lock("job").lock().await.unwrap().detach().await.unwrap();
    drop(client);
    assert_eq!(look.fair_lock("job").holder().await.unwrap().unwrap().owner, *detached.owner());
    is_free(&look.fair_lock("job")).await;
    assert!(detached.remaining().is_zero());
}
