//! Futures that are kept, and not polled.

use super::super::support::{Store, poll_once, soon};

/// A program waits for a lock or a signal, gets the signal, and shuts down while it still has the
/// future. A shutdown must not wait for that acquisition until the store timeout.
pub(super) async fn a_shutdown_does_not_wait_for_one_that_nobody_polls(store: Store) {
    let (holder, idle) = (store.client().await, store.client().await);
    let guard = holder.fair_lock("job").lock().await.unwrap();
    let other = idle.fair_lock("job");
    let mut waiting = Box::pin(async move { other.lock().await });
    for _ in 0..5 {
        assert!(poll_once(&mut waiting).await.is_none());
        idle.ping().await.unwrap();
    }
    soon("the shutdown", idle.shutdown()).await;
    let ended = soon("the end", waiting).await;
    assert_eq!(ended.unwrap_err().kind(), fairlock::ErrorKind::Closed);
    let _ = guard.release().await.unwrap();
}
