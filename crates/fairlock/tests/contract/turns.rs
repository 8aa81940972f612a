//! Which waiter gets a fair lock, and when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::support::{Store, granted, no_beats, queue_is, soon, wait_behind};
use fairlock::Release;
use fairlock_testkit::history::{Event, History};

pub(super) async fn exclusion(store: Store) {
    super::contended::count_unprotected(&store, |client| client.fair_lock("counter")).await;
}

pub(super) async fn first_in_first_out(store: Store) {
    const WAITERS: usize = 20;
    let clients = [
        store.client_with(no_beats).await,
        store.client_with(no_beats).await,
        store.client_with(no_beats).await,
    ];
    let history = History::new();
    let served = Arc::new(Mutex::new(Vec::new()));
    let look = clients[0].fair_lock("line");
    let first = look.lock().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let lock = clients[number % 3].fair_lock("line");
        let (served, own) = (Arc::clone(&served), history.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            let token = guard.token().get();
            own.record("line", &number.to_string(), Event::Granted { token });
            served.lock().unwrap().push(number);
            own.record("line", &number.to_string(), Event::Released);
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }));
        queue_is(&look, number + 1).await;
        history.record("line", &number.to_string(), Event::Enqueued { seq: number as u64 });
    }
    let _ = first.release().await.unwrap();
    for task in tasks {
        soon("its turn", task).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    assert_eq!(history.records().len(), 3 * WAITERS);
    history.assert_sound();
}

pub(super) async fn a_timed_wait_ends(store: Store) {
    let lock = store.client().await.fair_lock("job");
    let other = store.client().await.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let wait = Duration::from_millis(120);
    let began = Instant::now();
    let result = soon("the end of the wait", other.try_lock_for(wait)).await.unwrap();
    assert!(result.is_none());
    assert!(began.elapsed() >= wait, "after {:?}", began.elapsed());
    queue_is(&lock, 0).await;
    let _ = guard.release().await.unwrap();
    // Nobody is in the way, and a wait that is long enough gets the lock.
    let guard = soon("a free lock", other.try_lock_for(wait)).await.unwrap().unwrap();
    let waiting = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.try_lock_for(Duration::from_secs(60)).await })
    };
    queue_is(&lock, 1).await;
    drop(guard);
    assert!(soon("its turn", waiting).await.unwrap().unwrap().is_some());
}

pub(super) async fn zero_wait(store: Store) {
    let lock = store.client().await.fair_lock("job");
    let other = store.client().await.fair_lock("job");
    let guard = lock.try_lock().await.unwrap().expect("a free lock");
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.try_lock_for(Duration::ZERO).await.unwrap().is_none());
    assert_eq!(lock.inspect().await.unwrap().queue_len, 0);
    let _ = guard.release().await.unwrap();
    let guard = other.try_lock_for(Duration::ZERO).await.unwrap().expect("a free lock");
    let _ = guard.release().await.unwrap();
}

/// The lock is repeatedly released and handed on while waiters queue: a request that is not in the
/// queue never gets it.
pub(super) async fn no_barging(store: Store) {
    const WAITERS: usize = 10;
    let client = store.client_with(no_beats).await;
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let first = lock.lock().await.unwrap();
    let waiting = Arc::new(AtomicU64::new(WAITERS as u64));
    let mut tasks = Vec::new();
    for place in 1..=WAITERS {
        let own = client.fair_lock("job");
        let waiting = Arc::clone(&waiting);
        tasks.push(tokio::spawn(async move {
            let guard = own.lock().await.unwrap();
            waiting.fetch_sub(1, Ordering::SeqCst);
            let _ = guard.release().await.unwrap();
        }));
        queue_is(&lock, place).await;
    }
    let _ = first.release().await.unwrap();
    loop {
        let guard = lock.try_lock().await.unwrap();
        if guard.is_some() {
            assert_eq!(waiting.load(Ordering::SeqCst), 0, "overtaken");
            break;
        }
    }
    for task in tasks {
        soon("its turn", task).await.unwrap();
    }
}

pub(super) async fn endless_waits(store: Store) {
    let client = store.client().await;
    let lock = client.fair_lock("job");
    for wait in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)] {
        let guard = lock.try_lock_for(wait).await.unwrap().expect("a free lock");
        let own = lock.clone();
        let task = tokio::spawn(async move { own.try_lock_for(wait).await.unwrap().unwrap() });
        queue_is(&lock, 1).await;
        let _ = guard.release().await.unwrap();
        let _ = soon("its turn", task).await.unwrap().release().await.unwrap();
        let plain = client.plain_lock("plain");
        let guard = plain.try_lock_for(wait).await.unwrap().expect("a free lock");
        let own = plain.clone();
        let task = tokio::spawn(async move { own.try_lock_for(wait).await.unwrap().unwrap() });
        let _ = guard.release().await.unwrap();
        let _ = soon("its turn", task).await.unwrap().release().await.unwrap();
    }
}

pub(super) async fn force_unlock_hands_on(store: Store) {
    let lock = store.client_with(no_beats).await.fair_lock("job");
    let other = store.client_with(no_beats).await.fair_lock("job");
    assert!(!other.force_unlock().await.unwrap(), "nobody held it");
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&other, 1).await;
    assert!(other.force_unlock().await.unwrap());
    let next = granted(waiter).await;
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert!(!lock.is_locked().await.unwrap());
}

/// Waiters in the middle, at the end and at the front give up: the others keep their order.
pub(super) async fn a_place_is_not_lost_by_others_leaving(store: Store) {
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let lock = clients[0].fair_lock("job");
    let first = lock.lock().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..7 {
        tasks.push(wait_behind(&clients[number % 2].fair_lock("job"), number + 1).await);
    }
    for leaving in [3, 6, 0] {
        tasks[leaving].abort();
    }
    queue_is(&lock, 4).await;
    let owners: Vec<_> =
        lock.inspect().await.unwrap().queue.into_iter().map(|waiter| waiter.owner).collect();
    let _ = first.release().await.unwrap();
    for (owner, number) in owners.into_iter().zip([1, 2, 4, 5]) {
        let guard = soon("its turn", &mut tasks[number]).await.unwrap().unwrap();
        assert_eq!(*guard.owner(), owner, "number {number}");
        let _ = guard.release().await.unwrap();
    }
}
