//! The simple lock: one string, nothing else. Foreign clients of it are in `tests/simple`.

use std::time::{Duration, Instant};

use super::super::api::{Client, Guard};
use super::super::support::{Store, is_free, no_beats, soon, until};
use super::plain::wait_for;
use fairlock::{ErrorKind, GuardState, Release};
use tokio::task::JoinHandle;

pub(super) async fn exclusion(store: Store) {
    super::contended::count_unprotected(&store, |client| client.simple_lock("counter")).await;
}

async fn wait(store: &Store, client: &Client) -> JoinHandle<Guard> {
    wait_for(store, client, client.simple_lock("job"), "job").await
}

/// While a client of ours holds it nobody polls: here the next look by itself is a minute away.
pub(super) async fn a_release_wakes(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for round in 0..20 {
        let guard = client.simple_lock("job").lock().await.unwrap();
        let task = wait(&store, &other).await;
        if round % 2 == 0 {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        soon("the wake-up", task).await.unwrap().release().await.unwrap();
    }
}

pub(super) async fn a_timed_wait_ends(store: Store) {
    let lock = store.client().await.simple_lock("job");
    let other = store.client().await.simple_lock("job");
    let guard = lock.lock().await.unwrap();
    let wait = Duration::from_millis(120);
    let began = Instant::now();
    assert!(soon("the end of the wait", other.try_lock_for(wait)).await.unwrap().is_none());
    assert!(began.elapsed() >= wait, "after {:?}", began.elapsed());
    guard.release().await.unwrap();
    let guard = soon("a free lock", other.try_lock_for(wait)).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

pub(super) async fn zero_wait(store: Store) {
    let lock = store.client().await.simple_lock("job");
    let other = store.client().await.simple_lock("job");
    let guard = lock.try_lock().await.unwrap().expect("a free lock");
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.try_lock_for(Duration::ZERO).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_some());
}

/// The string has no count: the guards of one hold are counted in the client.
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
    let lock = store.client().await.simple_lock("job").lease(Duration::from_millis(500));
    let outer = lock.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    soon("the loss", outer.lost()).await;
    assert_eq!(outer.reenter().await.unwrap_err().kind(), ErrorKind::Lost);
    // A guard gives up a little before the server does.
    is_free(&lock).await;
    assert_eq!(inner.release().await.unwrap(), Release::Lost);
    assert_eq!(outer.release().await.unwrap(), Release::Lost);
}

/// Nobody says anything when a lease ends: the waiter looks by itself.
pub(super) async fn expiry(store: Store) {
    let lock = store.client_with(no_beats).await.simple_lock("job");
    let other = store.client_with(no_beats).await.simple_lock("job");
    let lease = Duration::from_millis(500);
    let began = Instant::now();
    let guard = lock.clone().lease(lease).lock().await.unwrap();
    let next = soon("the end of the lease", other.lock()).await.unwrap();
    assert!(began.elapsed() >= lease - Duration::from_millis(1), "{:?}", began.elapsed());
    assert_eq!(guard.state(), GuardState::Lost);
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    next.ensure_valid().unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

pub(super) async fn force_unlock(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let guard = client.simple_lock("job").lock().await.unwrap();
    let task = wait(&store, &other).await;
    assert!(client.simple_lock("job").force_unlock().await.unwrap());
    let next = soon("the wake-up", task).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert!(!client.simple_lock("job").force_unlock().await.unwrap());
}

pub(super) async fn a_cancelled_wait_leaves_nothing(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let lock = client.simple_lock("job");
    let guard = lock.lock().await.unwrap();
    let gone = wait(&store, &other).await;
    let stays = wait(&store, &other).await;
    gone.abort();
    assert!(soon("its end", gone).await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    soon("the wake-up", stays).await.unwrap().release().await.unwrap();
    is_free(&lock).await;
    if let Some(mut raw) = store.raw() {
        until("nobody listens", async || {
            let channel = "redisson_lock__channel:{job}";
            raw.call(&["PUBSUB", "NUMSUB", channel]).array()[1].int() == 0
        })
        .await;
        let left = raw.call(&["KEYS", "*job*"]);
        assert_eq!(left.array().len(), 1, "the token alone: {left:?}");
    }
}

pub(super) async fn the_watchdog_keeps_it(store: Store) {
    let lease = Duration::from_millis(900);
    let client = store.client_with(|config| config.watchdog_lease(lease)).await;
    let other = store.client_with(|config| config.watchdog_lease(lease)).await;
    let guard = client.simple_lock("job").lock().await.unwrap();
    let none = other.simple_lock("job").try_lock_for(4 * lease).await.unwrap();
    assert!(none.is_none(), "held for four leases");
    assert_eq!(guard.state(), GuardState::Held);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// One series for all kinds, so that whoever changes the kind of a lock need not change the resource.
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

/// One name, two kinds: told before anything is written, and the holder keeps what it has.
pub(super) async fn kinds_do_not_mix(store: Store) {
    let client = store.client().await;
    let (simple, fair, plain) =
        (client.simple_lock("job"), client.fair_lock("job"), client.plain_lock("job"));
    for (held, others) in
        [(&simple, [&fair, &plain]), (&fair, [&simple, &simple]), (&plain, [&simple, &simple])]
    {
        let guard = held.lock().await.unwrap();
        let keys = store.raw().map(|mut raw| raw.call(&["DBSIZE"]).int());
        for other in others {
            let wrong = |kind| assert_eq!(kind, ErrorKind::WrongType, "{held:?}, {other:?}");
            wrong(soon("a refusal", other.lock()).await.unwrap_err().kind());
            wrong(other.try_lock().await.unwrap_err().kind());
            wrong(other.inspect().await.unwrap_err().kind());
            wrong(other.force_unlock().await.unwrap_err().kind());
        }
        assert_eq!(store.raw().map(|mut raw| raw.call(&["DBSIZE"]).int()), keys);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        for other in others {
            other.try_lock().await.unwrap().expect("free for all").release().await.unwrap();
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
    guard.release().await.unwrap();
}
