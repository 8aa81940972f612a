//! What a look at a lock shows: places, times, who is who.

use crate::support::{Store, granted, no_beats, wait_behind};
use std::time::Duration;

/// Java's id of a thread, and bytes that are no text: both foreign.
const FOREIGN: [&[u8]; 2] = [b"5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", b"\xff\x1b[31m\n"];

pub(super) async fn places_and_times(store: Store) {
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let lock = clients[0].fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..3 {
        waiters.push(wait_behind(&clients[number % 2].fair_lock("job"), number + 1).await);
    }
    let first = lock.inspect().await.unwrap();
    let held_since = first.holder.as_ref().unwrap().since.unwrap();
    let since: Vec<_> = first.queue.iter().map(|waiter| waiter.since.unwrap()).collect();
    assert!(since.is_sorted() && held_since <= since[0] && since[2] <= first.at, "{first:?}");
    assert_eq!(first.queue.iter().map(|waiter| waiter.place).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(first.queue.iter().all(|waiter| waiter.ours && waiter.alive == Some(true)));

    // Time is what this is about: ages grow, and the moments stay.
    tokio::time::sleep(Duration::from_millis(30)).await;
    guard.release().await.unwrap();
    let mut waiters = waiters.into_iter();
    let next = granted(waiters.next().unwrap()).await;
    let second = lock.inspect().await.unwrap();
    assert!(second.at >= first.at + Duration::from_millis(30), "{second:?}");
    let holder = second.holder.unwrap();
    assert_eq!(holder.owner, *next.owner());
    let held_since = holder.since.unwrap();
    assert!(held_since > first.at && held_since <= second.at, "{holder:?}");
    let seen: Vec<_> = second.queue.iter().map(|w| (w.place, w.since.unwrap())).collect();
    assert_eq!(seen, [(1, since[1]), (2, since[2])]);

    drop(next);
    for waiter in waiters {
        drop(granted(waiter).await);
    }
}

/// Foreign clients have a place and an id. What is not known of them is not made up.
pub(super) async fn foreign_waiters(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client_with(no_beats).await;
    let lock = client.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let ours = wait_behind(&lock, 1).await;
    for id in FOREIGN {
        let score = b"9000000000000";
        raw.call(&[b"RPUSH".as_slice(), b"redisson_lock_queue:{job}", id]);
        raw.call(&[b"ZADD".as_slice(), b"redisson_lock_timeout:{job}", score, id]);
    }
    let status = lock.inspect().await.unwrap();
    let seen: Vec<_> = status.queue.iter().map(|w| (w.place, w.ours, w.alive)).collect();
    assert_eq!(seen, [(1, true, Some(true)), (2, false, None), (3, false, None)]);
    for (waiter, id) in status.queue[1..].iter().zip(FOREIGN) {
        assert_eq!((waiter.owner.to_bytes().as_slice(), waiter.since), (id, None));
        assert!(waiter.owner.to_string().chars().all(|c| c.is_ascii_graphic() || c == ' '));
    }

    // A Java thread holds: its count shows, since when it does is not known.
    drop(ours);
    raw.call(&["DEL", "job"]);
    raw.call(&[b"HSET".as_slice(), b"job", FOREIGN[0], b"2"]);
    let holder = lock.inspect().await.unwrap().holder.unwrap();
    assert_eq!((holder.count, holder.ours, holder.since), (2, false, None));
    drop(guard);
}
