//! Errors name the lock, the owner that asked, and the current holder.

use std::time::Duration;

use super::super::api::{Guard, Lock};
use super::super::support::{Store, granted, no_beats, soon, wait_behind};
use fairlock::{Config, Error, ErrorKind, Owner, Release};

/// The error of each call on a lock that cannot be used.
pub(super) async fn of_every_call(lock: &Lock) -> [Error; 6] {
    [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.try_lock_for(Duration::from_secs(1)).await.unwrap_err(),
        lock.inspect().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
    ]
}

#[track_caller]
fn names(error: &Error, guard: &Guard) {
    assert_eq!(error.lock(), Some(guard.name()), "{error}");
    assert_eq!(error.owner(), Some(guard.owner()), "{error}");
    let text = error.to_string();
    assert!(text.contains(&guard.name().to_string()), "{text}");
    assert!(text.contains(&guard.owner().to_string()), "{text}");
}

/// Taken away and handed on at once; noticed by a renewal, a re-entry, a release.
pub(super) async fn a_lost_lock_names_its_new_holder(store: Store) {
    let short = |config: Config| config.watchdog_lease(Duration::from_millis(1_500));
    let client = store.client_with(short).await;
    let other = store.client_with(no_beats).await;
    let (lock, waits) = (client.fair_lock("job"), other.fair_lock("job"));
    for way in 0..3 {
        let guard = soon("a free lock", lock.lock()).await.unwrap();
        let again = guard.reenter().await.unwrap();
        let waiter = wait_behind(&waits, 1).await;
        assert!(waits.force_unlock().await.unwrap());
        let next = granted(waiter).await;
        match way {
            0 => soon("the next renewal", guard.lost()).await,
            1 => names(&again.reenter().await.unwrap_err(), &guard),
            _ => assert_eq!(again.release().await.unwrap(), Release::Lost),
        }
        let error = guard.ensure_valid().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        names(&error, &guard);
        assert_eq!(error.holder(), Some(next.owner()), "way {way}: {error}");
        assert!(error.to_string().contains(&next.owner().to_string()), "{error}");
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}

/// The calls of a handle, each with its error.
async fn calls(lock: &Lock) -> Vec<Error> {
    let wait = Duration::from_secs(60);
    vec![
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.try_lock_for(wait).await.unwrap_err(),
        lock.enqueue().await.unwrap_err(),
        lock.with(async |_| ()).await.unwrap_err(),
        lock.inspect().await.unwrap_err(),
        lock.holder().await.unwrap_err(),
        lock.remaining_ttl().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
    ]
}

fn all_name(errors: &[Error], kinds: &[ErrorKind], owner: Option<&Owner>) {
    for (number, error) in errors.iter().enumerate() {
        assert!(kinds.contains(&error.kind()), "{number}: {error:?}");
        assert_eq!(error.lock().map(|lock| lock.as_bytes()), Some(&b"job"[..]), "{error}");
        if let (Some(owner), 0..5) = (owner, number) {
            assert_eq!(error.owner(), Some(owner.id()), "{number}: {error}");
        }
    }
}

/// A store in memory cannot disappear.
pub(super) async fn a_store_that_is_gone(store: Store) {
    let Some(server) = store.server() else { return };
    let quick = |config: Config| no_beats(config).store_timeout(Duration::from_secs(1));
    let client = store.client_with(quick).await;
    let owner = client.owner();
    let held = client.fair_lock("held").lock().await.unwrap();
    let detaching = client.plain_lock("held too").lock().await.unwrap();
    server.kill9();
    let kinds = [ErrorKind::Unavailable, ErrorKind::Unknown];
    for lock in [client.fair_lock("job").owned_by(&owner), client.fair_lock("job")] {
        let errors = calls(&lock).await;
        all_name(&errors, &kinds, None);
        for error in &errors[..5] {
            assert!(error.owner().is_some(), "{error}");
        }
    }
    let error = held.reenter().await.unwrap_err();
    assert!(kinds.contains(&error.kind()), "{error:?}");
    names(&error, &held);
    let (name, by) = (detaching.name().clone(), detaching.owner().clone());
    let error = detaching.detach().await.unwrap_err();
    // With replicas it is their acknowledgement that is missing.
    let missing = error.kind() == ErrorKind::NotReplicated;
    assert!(kinds.contains(&error.kind()) || missing, "{error:?}");
    assert_eq!((error.lock(), error.owner()), (Some(&name), Some(&by)));
    assert_eq!(held.release().await.unwrap(), Release::Unknown);
}

/// In memory nobody else can write keys.
pub(super) async fn keys_of_another_type(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client_with(no_beats).await;
    let owner = client.owner();
    raw.call(&["SET", "job", "no lock"]);
    for lock in
        [client.fair_lock("job").owned_by(&owner), client.plain_lock("job").owned_by(&owner)]
    {
        for error in [
            lock.lock().await.unwrap_err(),
            lock.try_lock().await.unwrap_err(),
            lock.with(async |_| ()).await.unwrap_err(),
        ] {
            all_name(&[error], &[ErrorKind::WrongType], Some(&owner));
        }
        all_name(&[lock.inspect().await.unwrap_err()], &[ErrorKind::WrongType], None);
    }
}

pub(super) async fn the_end_of_the_client(store: Store) {
    let client = store.client_with(no_beats).await;
    let owner = client.owner();
    let lock = client.fair_lock("job").owned_by(&owner);
    let guard = client.fair_lock("held").lock().await.unwrap();
    soon("the shutdown", client.shutdown()).await;
    all_name(&calls(&lock).await, &[ErrorKind::Closed], Some(&owner));
    names(&guard.reenter().await.unwrap_err(), &guard);
}
