//! A guard is released wherever it is dropped.

use super::super::api::Lock;
use super::super::support::{Store, is_free, no_beats, queue_is, runtime, wait_behind};

async fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(work);
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
}

async fn both_kinds(store: &Store) -> [(Lock, Lock); 2] {
    let (a, b) = (store.client_with(no_beats).await, store.client_with(no_beats).await);
    [(a.fair_lock("fair"), b.fair_lock("fair")), (a.plain_lock("plain"), b.plain_lock("plain"))]
}

pub(super) async fn inside_a_runtime(store: Store) {
    for (lock, look) in both_kinds(&store).await {
        let guard = lock.lock().await.unwrap();
        assert!(look.is_locked().await.unwrap());
        drop(guard);
        is_free(&look).await;
    }
}

pub(super) async fn in_a_plain_thread(store: Store) {
    for (lock, look) in both_kinds(&store).await {
        let guard = lock.lock().await.unwrap();
        elsewhere(move || drop(guard)).await;
        is_free(&look).await;
    }
}

pub(super) async fn after_the_runtime_is_gone(store: Store) {
    for (lock, look) in both_kinds(&store).await {
        elsewhere(move || {
            let own = runtime();
            let guard = own.block_on(lock.lock()).unwrap();
            drop(own);
            drop(guard);
        })
        .await;
        is_free(&look).await;
    }
}

/// The guard alone keeps the client alive; the client's thread ends with it.
pub(super) async fn then_the_client_at_once(store: Store) {
    let look = store.client_with(no_beats).await.fair_lock("job");
    for _ in 0..20 {
        let client = store.client_with(no_beats).await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        drop(client);
        drop(guard);
        // Dropping does not wait; the client's thread ends once the lock is released.
        is_free(&look).await;
    }
}

pub(super) async fn a_cancelled_wait_then_the_client_at_once(store: Store) {
    let look = store.client_with(no_beats).await.fair_lock("job");
    let guard = look.lock().await.unwrap();
    for _ in 0..20 {
        let client = store.client_with(no_beats).await;
        let task = wait_behind(&client.fair_lock("job"), 1).await;
        drop(client);
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        // Dropping does not wait; the client's thread ends once the place in the queue is given up.
        queue_is(&look, 0).await;
    }
    let _ = guard.release().await.unwrap();
    is_free(&look).await;
}
