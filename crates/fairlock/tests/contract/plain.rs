//! The plain lock: one holder, no order, and no polling.

use super::super::api::{Client, Lock};
use super::super::support::{Store, is_free, no_beats, soon};
use super::unordered;
use fairlock::{ErrorKind, Release};
use std::time::Duration;

fn job(client: &Client) -> Lock {
    client.plain_lock("job")
}

pub(super) async fn exclusion(store: Store) {
    super::contended::count_unprotected(&store, |client| client.plain_lock("counter")).await;
}

pub(super) async fn a_release_wakes(store: Store) {
    unordered::a_release_wakes(&store, job).await;
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    // Several waiters of several clients, woken one after the other.
    let guard = job(&client).lock().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..10 {
        let waits = if number % 2 == 0 { &client } else { &other };
        tasks.push(unordered::wait(&store, waits, job).await);
    }
    let _ = guard.release().await.unwrap();
    for task in tasks {
        // Each gives the lock back, so that all are served.
        tokio::spawn(async move { task.await.unwrap().release().await.unwrap() });
    }
    is_free(&job(&client)).await;
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

pub(super) async fn expiry(store: Store) {
    unordered::expiry(&store, job).await;
}

pub(super) async fn force_unlock(store: Store) {
    unordered::force_unlock(&store, job).await;
}

pub(super) async fn a_cancelled_wait_leaves_nothing(store: Store) {
    unordered::a_cancelled_wait_leaves_nothing(&store, job).await;
}

/// A holder of Java's that notifies nobody, as of its spin lock. Heartbeats are a minute apart.
pub(super) async fn it_looks_as_often_as_it_says(store: Store) {
    let client = store.client_with(no_beats).await;
    let lock = job(&client).poll(Duration::from_millis(50));
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    let _ = guard.release().await.unwrap();
    let Some(mut raw) = store.raw() else { return };
    raw.call(&["HSET", "job", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
    let asked = raw.script_calls();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    soon("some looks", async {
        while raw.script_calls() < asked + 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!waits.is_finished());
    raw.call(&["DEL", "job"]);
    let _ = soon("the next look", waits).await.unwrap().release().await.unwrap();
}

pub(super) async fn bad_polls_are_refused(store: Store) {
    let client = store.client_with(no_beats).await;
    let fine = Duration::from_millis(10);
    let _ = job(&client).poll(fine).lock().await.unwrap().release().await.unwrap();
    let _ = job(&client).poll(Duration::MAX).lock().await.unwrap().release().await.unwrap();
    for lock in [
        job(&client).poll(fine - Duration::from_nanos(1)),
        job(&client).poll(Duration::ZERO),
        client.fair_lock("fair").poll(fine),
        client.simple_lock("simple").poll(fine),
    ] {
        for error in [lock.lock().await.unwrap_err(), lock.try_lock().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        }
    }
}
