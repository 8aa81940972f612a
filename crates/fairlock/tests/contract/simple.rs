//! The simple lock: one string, nothing else. Its foreign clients are in `tests/simple`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::api::{Client, Lock};
use super::super::support::{Store, is_free, soon};
use super::unordered;
use fairlock::{ErrorKind, GuardState, Release};
use fairlock_testkit::resp::Value;

fn job(client: &Client) -> Lock {
    client.simple_lock("job")
}

pub(super) async fn exclusion(store: Store) {
    super::contended::count_unprotected(&store, |client| client.simple_lock("counter")).await;
}

pub(super) async fn a_release_wakes(store: Store) {
    unordered::a_release_wakes(&store, job).await;
}

pub(super) async fn a_hand_over_takes_two_scripts(store: Store) {
    unordered::a_hand_over_takes_two_scripts(&store, job).await;
}

pub(super) async fn a_timed_wait_ends(store: Store) {
    unordered::a_timed_wait_ends(&store, job).await;
}

pub(super) async fn zero_wait(store: Store) {
    unordered::zero_wait(&store, job).await;
}

/// The string has no count: the client counts the guards of a hold.
pub(super) async fn guards_are_counted(store: Store) {
    let lock = store.client().await.simple_lock("job");
    let outer = lock.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!((inner.token(), inner.owner()), (outer.token(), outer.owner()));
    assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 1);
    assert_eq!(outer.release().await.unwrap(), Release::StillHeld(1));
    drop(inner.reenter().await.unwrap());
    assert!(lock.try_lock().await.unwrap().is_none());
    inner.ensure_valid().unwrap();
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    assert!(!lock.is_locked().await.unwrap());
}

pub(super) async fn a_lost_guard_counts_nothing(store: Store) {
    // Long enough for two calls that wait for a replica, on a busy machine.
    let lock = store.client().await.simple_lock("job").lease(Duration::from_secs(1));
    let outer = lock.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    soon("the loss", outer.lost()).await;
    assert_eq!(outer.reenter().await.unwrap_err().kind(), ErrorKind::Lost);
    // A guard gives up a little before the server does.
    is_free(&lock).await;
    assert_eq!(inner.release().await.unwrap(), Release::Lost);
    assert_eq!(outer.release().await.unwrap(), Release::Lost);
}

pub(super) async fn expiry(store: Store) {
    unordered::expiry(&store, job).await;
}

pub(super) async fn force_unlock(store: Store) {
    unordered::force_unlock(&store, job).await;
}

pub(super) async fn a_cancelled_wait_leaves_nothing(store: Store) {
    unordered::a_cancelled_wait_leaves_nothing(&store, job).await;
    if let Some(mut raw) = store.raw() {
        let left = raw.call(&["KEYS", "*job*"]);
        // A request that was given up while its call was in flight may stay on record for as long
        // as a late copy can arrive.
        let is_record = |key: &str| key.starts_with("fairlock_buried:");
        let keys: Vec<_> = left.array().iter().map(Value::text).collect();
        let kept = keys.iter().filter(|key| !is_record(key) && !key.starts_with("fairlock_kind:"));
        assert_eq!(kept.count(), 1, "the token: {keys:?}");
        for key in keys.into_iter().filter(|key| is_record(key)) {
            // -2: it has expired.
            assert_ne!(raw.call(&["PTTL", key]).int(), -1, "{key}");
        }
    }
}

pub(super) async fn the_watchdog_keeps_it(store: Store) {
    let lease = Duration::from_secs(2);
    let client = store.client_with(|config| config.watchdog_lease(lease)).await;
    let other = store.client_with(|config| config.watchdog_lease(lease)).await;
    let guard = client.simple_lock("job").lock().await.unwrap();
    let none = other.simple_lock("job").try_lock_for(2 * lease).await.unwrap();
    assert!(none.is_none(), "held for two leases");
    assert_eq!(guard.state(), GuardState::Held);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// One token series for all kinds: the kind of a lock can change without a change to the resource.
pub(super) async fn tokens_rise_across_kinds(store: Store) {
    let client = store.client().await;
    let kinds = [client.simple_lock("job"), client.fair_lock("job"), client.plain_lock("job")];
    let mut last = None;
    for lock in kinds.iter().cycle().take(12) {
        let guard = lock.lock().await.unwrap();
        assert!(Some(guard.token()) > last, "{:?} after {last:?}", guard.token());
        last = Some(guard.token());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// The keys of a server, except notes of a lock's last kind: a client writes those in the background.
fn written(store: &Store) -> Option<BTreeSet<String>> {
    let mut raw = store.raw()?;
    let keys = raw.call(&["KEYS", "*"]);
    let keys = keys.array().iter().map(|key| key.text().to_owned());
    Some(keys.filter(|key| !key.starts_with("fairlock_kind:")).collect())
}

/// One name, two kinds: refused before anything is written, and the holder keeps its lock.
pub(super) async fn kinds_do_not_mix(store: Store) {
    let client = store.client().await;
    let (simple, fair, plain) =
        (client.simple_lock("job"), client.fair_lock("job"), client.plain_lock("job"));
    for (held, others) in
        [(&simple, [&fair, &plain]), (&fair, [&simple, &simple]), (&plain, [&simple, &simple])]
    {
        let guard = held.lock().await.unwrap();
        let keys = written(&store);
        for other in others {
            let wrong = |kind| assert_eq!(kind, ErrorKind::WrongType, "{held:?}, {other:?}");
            wrong(soon("a refusal", other.lock()).await.unwrap_err().kind());
            wrong(other.try_lock().await.unwrap_err().kind());
            wrong(other.inspect().await.unwrap_err().kind());
            wrong(other.force_unlock().await.unwrap_err().kind());
        }
        assert_eq!(written(&store), keys);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        for other in others {
            let _ = other.try_lock().await.unwrap().expect("free for all").release().await.unwrap();
        }
    }
}

pub(super) async fn inspection(store: Store) {
    let client = store.client().await;
    let lock = client.simple_lock("job");
    let status = lock.inspect().await.unwrap();
    assert!(status.holder.is_none() && status.ttl.is_none() && status.token.is_none());
    let guard = lock.lock().await.unwrap();
    let status = lock.inspect().await.unwrap();
    let holder = status.holder.expect("a holder");
    assert_eq!((&holder.owner, holder.count, holder.ours), (guard.owner(), 1, true));
    assert_eq!(status.token, Some(guard.token()));
    assert!(status.ttl.is_some_and(|ttl| ttl <= guard.lease()));
    assert_eq!((status.queue.len(), status.queue_len), (0, 0));
    let _ = guard.release().await.unwrap();
}
