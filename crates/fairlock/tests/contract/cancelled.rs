//! A dropped future leaves nothing behind. `cancel.rs` drops futures after every poll.

use std::time::Duration;

use super::super::support::{
    Store, granted, is_free, no_beats, poll_once, queue_is, soon, until, wait_behind,
};
use fairlock::Release;

pub(super) async fn an_unpolled_future_does_nothing(store: Store) {
    let client = store.client().await;
    for lock in [client.fair_lock("job"), client.plain_lock("job")] {
        drop(lock.lock());
        drop(lock.try_lock());
        drop(lock.try_lock_for(Duration::from_secs(1)));
        // Everything sent before this ping was carried out before its reply.
        client.ping().await.unwrap();
        let status = lock.inspect().await.unwrap();
        assert!(status.holder.is_none() && status.queue_len == 0 && status.token.is_none());
    }
}

pub(super) async fn while_waiting(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let gone = wait_behind(&other, 1).await;
    let stays = wait_behind(&other, 2).await;
    let stays_owner = lock.inspect().await.unwrap().queue[1].owner.clone();
    gone.abort();
    queue_is(&lock, 1).await;
    let _ = guard.release().await.unwrap();
    let next = granted(stays).await;
    assert_eq!(*next.owner(), stays_owner);
    assert!(soon("the end of the task", gone).await.unwrap_err().is_cancelled());
}

pub(super) async fn the_last_waiter_and_the_next(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let gone = wait_behind(&lock, 1).await;
    gone.abort();
    queue_is(&lock, 0).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let guard = soon("a free lock", lock.lock()).await.unwrap();
    let _ = guard.release().await.unwrap();
}

/// The release and the cancellation race. Whichever wins, the next waiter gets the lock, and the
/// lock is free in the end.
pub(super) async fn a_grant_nobody_takes_is_passed_on(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    for round in 0..40_u64 {
        let guard = lock.lock().await.unwrap();
        let gone = wait_behind(&other, 1).await;
        let next = wait_behind(&lock, 2).await;
        let releasing = tokio::spawn(guard.release());
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_micros(round * 20)).await;
        } else {
            let _ = soon("the release", releasing).await.unwrap().unwrap();
        }
        gone.abort();
        // It may have got its guard before the abort: the guard is dropped with the task's result.
        drop(gone.await);
        let _ = granted(next).await.release().await.unwrap();
    }
    is_free(&lock).await;
    assert_eq!(lock.inspect().await.unwrap().queue_len, 0);
}

/// The guard was ready for a future that was dropped before its next poll. Nobody released it, and
/// the watchdog renewed it for as long as the client lived.
pub(super) async fn a_guard_on_its_way_is_released(store: Store) {
    let client = store.client_with(no_beats).await;
    let client_of_waiter = store.client_with(no_beats).await;
    let other = client_of_waiter.clone();
    let pairs = [
        (client.fair_lock("fair"), other.fair_lock("fair")),
        (client.plain_lock("plain"), other.plain_lock("plain")),
    ];
    for (lock, other) in pairs {
        let guard = lock.lock().await.unwrap();
        let token = guard.token();
        let mut waiting = Box::pin(other.lock());
        assert!(poll_once(&mut waiting).await.is_none());
        let _ = guard.release().await.unwrap();
        until("the grant", async || lock.inspect().await.unwrap().token > Some(token)).await;
        // By then the client has finished its work for the grant.
        for _ in 0..5 {
            client_of_waiter.ping().await.unwrap();
        }
        drop(waiting);
        is_free(&lock).await;
        let _ = soon("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
    }
}

pub(super) async fn a_thousand_give_up(store: Store) {
    let client = store.client_with(no_beats).await;
    let lock = client.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let own = lock.clone();
            tokio::spawn(async move { own.lock().await })
        })
        .collect();
    queue_is(&lock, 1_000).await;
    let last = {
        let own = lock.clone();
        tokio::spawn(async move { own.lock().await })
    };
    queue_is(&lock, 1_001).await;
    for task in &tasks {
        task.abort();
    }
    queue_is(&lock, 1).await;
    let _ = guard.release().await.unwrap();
    let _ = granted(last).await.release().await.unwrap();
}
