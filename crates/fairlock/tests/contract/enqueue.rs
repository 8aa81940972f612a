//! Places in the queue as values: kept, awaited, given up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::{
    Store, granted, is_free, no_beats, poll_once, queue_is, soon, unless_it_pauses, until,
    wait_behind,
};
use fairlock::{Config, ErrorKind, Release};

pub(super) async fn a_free_lock_is_granted_at_once(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let mut turn = lock.enqueue().await.unwrap();
    assert_eq!(lock.holder().await.unwrap().unwrap().owner, *turn.owner());
    assert_eq!(turn.position().await.unwrap(), 0);
    let guard = soon("what is there", turn.wait()).await.unwrap();
    assert_eq!((guard.owner(), guard.name()), (turn.owner(), turn.name()));
    guard.ensure_valid().unwrap();
    // A turn gives only one guard.
    for error in [
        turn.wait().await.unwrap_err(),
        turn.wait_for(Duration::from_secs(1)).await.unwrap_err(),
        turn.position().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert_eq!((error.lock(), error.owner()), (Some(guard.name()), Some(guard.owner())));
    }
    // The turn is over; the guard is not.
    turn.leave().await.unwrap();
    guard.ensure_valid().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

pub(super) async fn it_stands_in_the_queue_when_ready(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let mut turns = Vec::new();
    for place in 0..10 {
        turns.push(other.enqueue().await.unwrap());
        let status = lock.inspect().await.unwrap();
        assert_eq!(status.queue_len, place + 1, "at once");
        assert_eq!(status.queue[place].owner, *turns[place].owner());
    }
    let _ = guard.release().await.unwrap();
    for turn in &mut turns {
        let guard = soon("its turn", turn.wait()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

pub(super) async fn a_dropped_wait_keeps_the_place(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    let first = lock.lock().await.unwrap();
    let mut turn = other.enqueue().await.unwrap();
    let behind = wait_behind(&lock, 2).await;
    for round in 0..50_u64 {
        let waited = tokio::select! {
            biased;
            guard = turn.wait() => Some(guard),
            () = tokio::time::sleep(Duration::from_micros(round * 20)) => None,
        };
        assert!(waited.is_none());
    }
    assert_eq!(lock.inspect().await.unwrap().queue[0].owner, *turn.owner());
    let _ = first.release().await.unwrap();
    // The wait is also dropped repeatedly while the grant arrives.
    let guard = loop {
        if let Some(guard) = poll_once(&mut pin!(turn.wait())).await {
            break guard.unwrap();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(guard.owner(), turn.owner());
    let token = guard.token();
    let _ = guard.release().await.unwrap();
    assert!(granted(behind).await.token() > token);
}

pub(super) async fn a_timed_wait_keeps_the_place(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let first = lock.lock().await.unwrap();
    let mut turn = lock.enqueue().await.unwrap();
    let behind = wait_behind(&lock, 2).await;
    for wait in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(80)] {
        let began = Instant::now();
        assert!(soon("its end", turn.wait_for(wait)).await.unwrap().is_none());
        assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
    }
    assert_eq!(lock.inspect().await.unwrap().queue[0].owner, *turn.owner());
    drop(first);
    let guard = soon("its turn", turn.wait_for(Duration::MAX)).await.unwrap().unwrap();
    let _ = guard.release().await.unwrap();
    let _ = granted(behind).await.release().await.unwrap();
}

/// Nobody polls the turn when its grant arrives: the lock is held for it, and renewed.
pub(super) async fn a_granted_turn_is_renewed(store: Store) {
    const LEASE: Duration = Duration::from_millis(600);
    let client = store.client_with(|config| config.watchdog_lease(LEASE)).await;
    let lock = client.fair_lock("job");
    unless_it_pauses(LEASE / 4, async || {
        let first = soon("a free lock", lock.lock()).await.unwrap();
        let mut turn = lock.enqueue().await.unwrap();
        drop(first);
        tokio::time::sleep(4 * LEASE).await;
        let guard = soon("what is there", turn.wait()).await?;
        let holder = lock.holder().await.unwrap().expect("it is held");
        assert_eq!(holder.owner, *guard.owner());
        guard.ensure_valid()
    })
    .await;
}

/// The grant came and was lost while nobody waited for the turn: an error, and no guard.
pub(super) async fn a_granted_turn_ends_with_its_longest_hold(store: Store) {
    let short = |config: Config| config.watchdog_lease(Duration::from_secs(3));
    let lock = store.client_with(short).await.fair_lock("job");
    let other = store.client_with(short).await.fair_lock("job");
    let first = lock.lock().await.unwrap();
    let mut turn = lock.clone().max_hold(Duration::from_secs(4)).enqueue().await.unwrap();
    let behind = wait_behind(&other, 2).await;
    let _ = first.release().await.unwrap();
    let next = granted(behind).await;
    for _ in 0..2 {
        let error = soon("what is there", turn.wait()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!((error.lock(), error.owner()), (Some(turn.name()), Some(turn.owner())));
    }
    next.ensure_valid().unwrap();
    turn.leave().await.unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

pub(super) async fn leaving_is_confirmed(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    for round in 0..20 {
        let first = lock.lock().await.unwrap();
        let turn = other.enqueue().await.unwrap();
        let stays = wait_behind(&lock, 2).await;
        soon("the confirmation", turn.leave()).await.unwrap();
        assert_eq!(lock.inspect().await.unwrap().queue_len, 1, "round {round}: at once");
        let _ = first.release().await.unwrap();
        let _ = granted(stays).await.release().await.unwrap();
    }
    // Granted at once, granted later, and granted while leaving.
    soon("the release", other.enqueue().await.unwrap().leave()).await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    for round in 0..40_u64 {
        let first = lock.lock().await.unwrap();
        let turn = other.enqueue().await.unwrap();
        let owner = turn.owner().clone();
        let releasing = tokio::spawn(first.release());
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_micros(round * 20)).await;
        } else {
            until("the grant", async || {
                lock.holder().await.unwrap().is_some_and(|holder| holder.owner == owner)
            })
            .await;
        }
        soon("the confirmation", turn.leave()).await.unwrap();
        let _ = soon("the release", releasing).await.unwrap().unwrap();
        let status = lock.inspect().await.unwrap();
        assert!(status.holder.is_none() && status.queue_len == 0, "round {round}: {status:?}");
    }
}

pub(super) async fn dropped_turns_leave(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    drop(other.enqueue().await.unwrap());
    is_free(&lock).await;
    let first = lock.lock().await.unwrap();
    let turns = [other.enqueue().await.unwrap(), other.enqueue().await.unwrap()];
    let stays = wait_behind(&lock, 3).await;
    drop(turns);
    queue_is(&lock, 1).await;
    let turn = other.enqueue().await.unwrap();
    let _ = first.release().await.unwrap();
    let _ = granted(stays).await.release().await.unwrap();
    until("the grant", async || lock.is_locked().await.unwrap()).await;
    // A call to `leave` that is never polled.
    drop(turn.leave());
    is_free(&lock).await;
}

pub(super) async fn only_fair_locks_have_a_queue(store: Store) {
    let client = store.client().await;
    for lock in [client.plain_lock("job"), client.simple_lock("job")] {
        let error = lock.enqueue().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse);
        assert!(error.to_string().contains("only a fair lock has a queue"), "{error}");
        assert_eq!(error.lock().unwrap().as_bytes(), b"job");
    }
    let bad = client.fair_lock("job").lease(Duration::ZERO).enqueue().await.unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::Misuse);
    assert_eq!(client.fair_lock("").enqueue().await.unwrap_err().kind(), ErrorKind::Misuse);
}

pub(super) async fn the_shutdown_ends_them(store: Store) {
    let look = store.client_with(no_beats).await.fair_lock("job");
    let guard = look.lock().await.unwrap();
    let client = store.client_with(no_beats).await;
    let lock = client.fair_lock("job");
    let mut turn = lock.enqueue().await.unwrap();
    let leaves = lock.enqueue().await.unwrap();
    soon("the shutdown", client.shutdown()).await;
    for _ in 0..2 {
        for error in [
            soon("its end", turn.wait()).await.unwrap_err(),
            soon("its end", turn.wait_for(Duration::from_secs(60))).await.unwrap_err(),
            soon("its end", turn.position()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            assert_eq!((error.lock(), error.owner()), (Some(turn.name()), Some(turn.owner())));
        }
    }
    soon("the confirmation", leaves.leave()).await.unwrap();
    let error = lock.enqueue().await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Closed, Some(turn.name())));
    if !store.is_memory() {
        queue_is(&look, 0).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

pub(super) async fn positions(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    let mut guard = lock.lock().await.unwrap();
    let mut turns = Vec::new();
    for place in 0..5 {
        let lock = if place % 2 == 0 { &lock } else { &other };
        turns.push(lock.enqueue().await.unwrap());
    }
    for (place, turn) in turns.iter_mut().enumerate() {
        assert_eq!(turn.position().await.unwrap(), place);
    }
    soon("the confirmation", turns.remove(2).leave()).await.unwrap();
    while !turns.is_empty() {
        for (place, turn) in turns.iter_mut().enumerate() {
            assert_eq!(turn.position().await.unwrap(), place);
        }
        let _ = guard.release().await.unwrap();
        let mut turn = turns.remove(0);
        // The grant may not have arrived yet: `wait` waits for it.
        assert_eq!(soon("its place", turn.position()).await.unwrap(), 0);
        guard = soon("its turn", turn.wait()).await.unwrap();
    }
    let _ = guard.release().await.unwrap();
}

/// At most one request of an owner stands in the queue; its other requests enter the same hold.
pub(super) async fn turns_of_one_owner(store: Store) {
    let client = store.client_with(no_beats).await;
    let lock = client.fair_lock("job");
    let first = lock.lock().await.unwrap();
    let owned = lock.clone().owned_by(&client.owner());
    let mut one = owned.enqueue().await.unwrap();
    let mut enqueueing = Box::pin(owned.enqueue());
    assert!(poll_once(&mut enqueueing).await.is_none());
    assert_eq!(lock.inspect().await.unwrap().queue_len, 1);
    let _ = first.release().await.unwrap();
    let mut two = soon("it is over with the first", enqueueing).await.unwrap();
    let guard = soon("its turn", one.wait()).await.unwrap();
    assert_eq!(two.owner(), guard.owner());
    let again = soon("what is there", two.wait()).await.unwrap();
    assert_eq!((again.token(), again.hold_count()), (guard.token(), 2));
    // Leaving gives back its own re-entry, not those of the others.
    soon("the confirmation", owned.enqueue().await.unwrap().leave()).await.unwrap();
    assert_eq!(lock.holder().await.unwrap().unwrap().count, 2);
    assert_eq!(again.release().await.unwrap(), Release::StillHeld(1));
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A minimal executor, to poll futures on a thread that has no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

pub(super) async fn no_runtime_is_needed(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let thread = std::thread::spawn(move || {
        let mut turn = block_on(lock.enqueue()).unwrap();
        assert!(block_on(turn.wait_for(Duration::from_millis(20))).unwrap().is_none());
        assert_eq!(block_on(turn.position()).unwrap(), 0);
        drop(guard);
        let guard = block_on(turn.wait()).unwrap();
        let next = block_on(lock.enqueue()).unwrap();
        block_on(next.leave()).unwrap();
        drop(guard);
    });
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
}
