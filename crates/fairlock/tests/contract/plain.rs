//! The plain lock: one holder, no order, and still no polling.

use std::time::{Duration, Instant};

use super::super::api::{Client, Guard, Lock};
use super::super::support::{Store, is_free, no_beats, soon, until};
use fairlock::{GuardState, Release};
use tokio::task::JoinHandle;

pub(super) async fn exclusion(store: Store) {
    super::contended::count_unprotected(&store, |client| client.plain_lock("counter")).await;
}

/// Begins to wait for a plain lock in a task; returns once it waits to be woken.
async fn wait(store: &Store, client: &Client, name: &str) -> JoinHandle<Guard> {
    wait_for(store, client, client.plain_lock(name), name).await
}

/// The same for a lock of any kind that has no queue.
pub(super) async fn wait_for(
    store: &Store,
    client: &Client,
    lock: Lock,
    name: &str,
) -> JoinHandle<Guard> {
    let task = tokio::spawn(async move { lock.lock().await.unwrap() });
    if let Some(mut raw) = store.raw() {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        until("it listens", async || {
            raw.call(&["PUBSUB", "NUMSUB", &channel]).array()[1].int() > 0
        })
        .await;
    } else {
        until("it runs", async || {
            tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0
        })
        .await;
    }
    // Handled by the client's thread after what stood there before.
    for _ in 0..3 {
        client.ping().await.unwrap();
    }
    task
}

pub(super) async fn a_release_wakes(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for round in 0..20 {
        let lock = client.plain_lock("job");
        let guard = lock.lock().await.unwrap();
        let task = wait(&store, &other, "job").await;
        if round % 2 == 0 {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        soon("the wake-up", task).await.unwrap().release().await.unwrap();
    }
    // Several waiters of several clients, woken one after the other.
    let guard = client.plain_lock("job").lock().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..10 {
        tasks.push(wait(&store, if number % 2 == 0 { &client } else { &other }, "job").await);
    }
    guard.release().await.unwrap();
    for task in tasks {
        // Whoever got it gives it back, so that all are served.
        tokio::spawn(async move { task.await.unwrap().release().await.unwrap() });
    }
    is_free(&client.plain_lock("job")).await;
}

pub(super) async fn a_timed_wait_ends(store: Store) {
    let lock = store.client().await.plain_lock("job");
    let other = store.client().await.plain_lock("job");
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
    let lock = store.client().await.plain_lock("job");
    let other = store.client().await.plain_lock("job");
    let guard = lock.try_lock().await.unwrap().expect("a free lock");
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.try_lock_for(Duration::ZERO).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_some());
}

pub(super) async fn reentry(store: Store) {
    let lock = store.client().await.plain_lock("job");
    let outer = lock.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.token(), outer.token());
    assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 2);
    assert_eq!(outer.release().await.unwrap(), Release::StillHeld(1));
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(inner.release().await.unwrap(), Release::Released);
    assert!(!lock.is_locked().await.unwrap());
}

/// Nobody says anything when a lease ends: the waiter looks by itself, and not only after its
/// heartbeat period of a minute.
pub(super) async fn expiry(store: Store) {
    let lock = store.client_with(no_beats).await.plain_lock("job");
    let other = store.client_with(no_beats).await.plain_lock("job");
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
    let guard = client.plain_lock("job").lock().await.unwrap();
    let task = wait(&store, &other, "job").await;
    assert!(client.plain_lock("job").force_unlock().await.unwrap());
    let next = soon("the wake-up", task).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert!(!client.plain_lock("job").force_unlock().await.unwrap());
}

pub(super) async fn a_cancelled_wait_leaves_nothing(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let lock: Lock = client.plain_lock("job");
    let guard = lock.lock().await.unwrap();
    let gone = wait(&store, &other, "job").await;
    let stays = wait(&store, &other, "job").await;
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
    }
}
