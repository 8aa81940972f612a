//! What a guard reports and does while the lock is held.

use std::time::Duration;

use super::super::support::{Store, granted, is_free, no_beats, soon, until, wait_behind};
use fairlock::{FencingToken, GuardState, Release};

pub(super) async fn reentry(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    let first = lock.lock().await.unwrap();
    let second = first.reenter().await.unwrap();
    let third = second.reenter().await.unwrap();
    assert_eq!(first.token(), third.token());
    assert_eq!(first.owner(), third.owner());
    assert_eq!(other.inspect().await.unwrap().holder.unwrap().count, 3);
    let waiter = wait_behind(&other, 1).await;
    assert_eq!(second.release().await.unwrap(), Release::StillHeld(2));
    assert_eq!(other.inspect().await.unwrap().holder.unwrap().count, 2);
    assert_eq!(first.release().await.unwrap(), Release::StillHeld(1));
    // Every `lock()` is a new owner, even through the same handle.
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(third.state(), GuardState::Held);
    let token = third.token();
    assert_eq!(third.release().await.unwrap(), Release::Released);
    assert!(granted(waiter).await.token() > token);
}

pub(super) async fn hold_counts(store: Store) {
    let client = store.client_with(no_beats).await;
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        let first = lock.lock().await.unwrap();
        assert_eq!(first.hold_count(), 1);
        let second = first.reenter().await.unwrap();
        assert_eq!((first.hold_count(), second.hold_count()), (2, 2));
        drop(first);
        assert_eq!(second.hold_count(), 1);
        // A failed re-entry does not count.
        lock.force_unlock().await.unwrap();
        assert!(second.reenter().await.is_err());
        assert_eq!(second.hold_count(), 1);
    }
}

pub(super) async fn looks_at_the_holder(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for (lock, look) in [
        (client.fair_lock("fair"), other.fair_lock("fair")),
        (client.plain_lock("plain"), other.plain_lock("plain")),
    ] {
        assert_eq!(look.holder().await.unwrap(), None);
        assert_eq!(look.remaining_ttl().await.unwrap(), None);
        let lease = Duration::from_secs(50);
        let guard = lock.clone().lease(lease).lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        let holder = look.holder().await.unwrap().unwrap();
        assert_eq!((&holder.owner, holder.count, holder.ours), (guard.owner(), 2, true));
        let ttl = look.remaining_ttl().await.unwrap().unwrap();
        assert!(ttl <= lease && ttl > lease / 2, "{ttl:?}");
        let _ = again.release().await.unwrap();
        let _ = guard.release().await.unwrap();
        assert_eq!(look.remaining_ttl().await.unwrap(), None);
    }
}

pub(super) async fn the_outer_guard_goes_first(store: Store) {
    drop_in_order(&store, true).await;
}

pub(super) async fn the_inner_guard_goes_first(store: Store) {
    drop_in_order(&store, false).await;
}

async fn drop_in_order(store: &Store, outer_first: bool) {
    let client = store.client_with(no_beats).await;
    for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
        let outer = lock.lock().await.unwrap();
        let inner = outer.reenter().await.unwrap();
        let (goes, stays) = if outer_first { (outer, inner) } else { (inner, outer) };
        drop(goes);
        // Sent after the release on the same connection, so the count already reflects it.
        let again = stays.reenter().await.unwrap();
        assert_eq!(lock.inspect().await.unwrap().holder.unwrap().count, 2);
        drop(stays);
        again.ensure_valid().unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        drop(again);
        is_free(&lock).await;
    }
}

pub(super) async fn a_cancelled_reentry_is_taken_back(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    for _ in 0..50 {
        // Polled once: the request is sent, and nobody takes the answer.
        tokio::select! {
            biased;
            _ = guard.reenter() => {}
            () = std::future::ready(()) => {}
        }
    }
    let again = guard.reenter().await.unwrap();
    // On threads, an abandoned call ends only once its thread has run.
    until("they are taken back", async || lock.inspect().await.unwrap().holder.unwrap().count == 2)
        .await;
    assert_eq!(again.release().await.unwrap(), Release::StillHeld(1));
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert!(!lock.is_locked().await.unwrap());
}

pub(super) async fn tokens_rise(store: Store) {
    let (a, b) = (store.client_with(no_beats).await, store.client_with(no_beats).await);
    let mut last = FencingToken::new(1).unwrap();
    for round in 0..25 {
        let client = if round % 2 == 0 { &a } else { &b };
        for lock in [client.fair_lock("job"), client.plain_lock("job")] {
            let guard = soon("a free lock", lock.lock()).await.unwrap();
            assert!(guard.token() > last, "{} after {last}", guard.token());
            assert_eq!(lock.inspect().await.unwrap().token, Some(guard.token()));
            last = guard.token();
            let waiter = if lock.kind() == fairlock::Kind::Fair {
                Some(wait_behind(&b.fair_lock("job"), 1).await)
            } else {
                None
            };
            let _ = guard.release().await.unwrap();
            if let Some(waiter) = waiter {
                let next = granted(waiter).await;
                assert!(next.token() > last, "{} after {last}", next.token());
                last = next.token();
                let _ = next.release().await.unwrap();
            }
        }
    }
}

/// An operator deletes the key of the token counter. In memory nobody can.
pub(super) async fn tokens_rise_without_their_key(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client_with(no_beats).await;
    let mut last = 0;
    for round in 0..30 {
        let lock = if round % 3 == 0 { client.plain_lock("job") } else { client.fair_lock("job") };
        let guard = soon("a free lock", lock.lock()).await.unwrap();
        assert!(guard.token().get() > last, "round {round}");
        last = guard.token().get();
        if round % 2 == 0 {
            // While the lock is held: the release restores the counter from the holder's token.
            assert_eq!(raw.call(&["DEL", "redisson_lock_token:{job}"]).int(), 1);
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert_eq!(lock.inspect().await.unwrap().token.unwrap().get(), last);
        } else {
            let _ = guard.release().await.unwrap();
            assert_eq!(raw.call(&["DEL", "redisson_lock_token:{job}"]).int(), 1);
        }
    }
}

pub(super) async fn release_after_force_is_lost(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let pairs = [
        (client.fair_lock("fair"), other.fair_lock("fair")),
        (client.plain_lock("plain"), other.plain_lock("plain")),
    ];
    for (lock, other) in pairs {
        let guard = lock.lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        assert!(other.force_unlock().await.unwrap());
        let next = soon("a free lock", other.lock()).await.unwrap();
        // Neither a partial nor a full release affects the next holder.
        assert_eq!(guard.release().await.unwrap(), Release::Lost);
        assert_eq!(again.state(), GuardState::Lost);
        assert_eq!(again.release().await.unwrap(), Release::Lost);
        let holder = lock.inspect().await.unwrap().holder.unwrap();
        assert_eq!((&holder.owner, holder.count), (next.owner(), 1));
        next.ensure_valid().unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}

pub(super) async fn inspection(store: Store) {
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let lock = clients[0].fair_lock("job");
    let status = lock.inspect().await.unwrap();
    assert!(status.holder.is_none() && status.ttl.is_none() && status.token.is_none());
    assert!(status.queue.is_empty() && status.queue_len == 0);
    assert!(!lock.is_locked().await.unwrap());

    let guard = lock.clone().lease(Duration::from_secs(50)).lock().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..6 {
        waiters.push(wait_behind(&clients[number % 2].fair_lock("job"), number + 1).await);
    }
    let status = lock.inspect().await.unwrap();
    let holder = status.holder.as_ref().unwrap();
    assert_eq!(holder.owner, *guard.owner());
    assert_eq!((holder.count, holder.ours), (1, true));
    assert_eq!(status.token, Some(guard.token()));
    let ttl = status.ttl.unwrap();
    assert!(ttl > Duration::from_secs(30) && ttl <= Duration::from_secs(50), "{ttl:?}");
    assert_eq!(status.queue_len, 6);
    assert!(status.queue.iter().all(|waiter| waiter.ours && waiter.alive == Some(true)));
    let same_client = status.queue[0].owner.client() == status.queue[1].owner.client();
    assert_eq!(same_client, store.is_memory());

    let _ = guard.release().await.unwrap();
    for (waiter, seen) in waiters.into_iter().zip(&status.queue) {
        let guard = granted(waiter).await;
        assert_eq!(*guard.owner(), seen.owner, "listed in the order in which they are served");
        let _ = guard.release().await.unwrap();
    }
    assert!(lock.inspect().await.unwrap().holder.is_none());
}

pub(super) async fn guards_name_what_they_hold(store: Store) {
    let client = store.client().await;
    let lock = client.fair_lock(b"a\xff\0b");
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.name().as_bytes(), b"a\xff\0b");
    assert_eq!(guard.owner().client(), Some(client.id()));
    assert!(guard.owner().to_string().starts_with(&client.id().to_string()));
    let shown = format!("{guard:?}");
    assert!(shown.contains(r"a\xff\x00b") && shown.contains("Held"), "{shown}");
    let _ = guard.release().await.unwrap();
}
