//! Many requests at once, with every way of asking and giving up; then the history is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::api::{Client, Guard, Lock};
use super::super::support::{Store, is_free, no_beats, queue_is, soon};
use fairlock::Release;
use fairlock_testkit::history::{Event, History};

/// How long the mixes run; longer on a machine that is too busy for so many grants in that time.
const MIX: Duration = Duration::from_secs(2);
/// A mix of fewer shows nothing.
const GRANTS_MIN: u64 = 100;

const TASKS: usize = 12;

/// A counter that loses increments unless only one task at a time reads and writes it.
pub(super) async fn count_unprotected(store: &Store, lock: impl Fn(&Client) -> Lock) {
    const ROUNDS: u64 = 25;
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let lock = lock(&clients[number % 2]);
        let counter = Arc::clone(&counter);
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.lock().await.unwrap();
                let seen = counter.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                counter.store(seen + 1, Ordering::Relaxed);
                guard.ensure_valid().unwrap();
                if seen.is_multiple_of(2) {
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
            }
        }));
    }
    for task in tasks {
        soon("its turns", task).await.unwrap();
    }
    assert_eq!(counter.load(Ordering::Relaxed), TASKS as u64 * ROUNDS);
}

pub(super) async fn fair(store: Store) {
    mix(&store, |client| client.fair_lock("counter")).await;
}

pub(super) async fn plain(store: Store) {
    mix(&store, |client| client.plain_lock("counter")).await;
}

pub(super) async fn simple(store: Store) {
    mix(&store, |client| client.simple_lock("counter")).await;
}

async fn mix(store: &Store, lock: impl Fn(&Client) -> Lock) {
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let history = History::new();
    let counter = Arc::new(AtomicU64::new(0));
    let increments = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + MIX;
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let lock = lock(&clients[number % 2]);
        let (history, counter) = (history.clone(), Arc::clone(&counter));
        let increments = Arc::clone(&increments);
        tasks.push(tokio::spawn(async move {
            let mut round = number;
            while Instant::now() < until || increments.load(Ordering::Relaxed) <= GRANTS_MIN {
                round += 1;
                let Some(guard) = attempt(&lock, round).await else { continue };
                let owner = guard.owner().to_string();
                let token = guard.token().get();
                history.record("counter", &owner, Event::Granted { token });
                let seen = counter.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                counter.store(seen + 1, Ordering::Relaxed);
                increments.fetch_add(1, Ordering::Relaxed);
                history.record("counter", &owner, Event::Released);
                if round % 3 == 0 {
                    drop(guard);
                } else {
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
            }
        }));
    }
    for task in tasks {
        soon("its end", task).await.unwrap();
    }
    let done = increments.load(Ordering::Relaxed);
    assert_eq!(counter.load(Ordering::Relaxed), done);
    assert!(done > GRANTS_MIN, "only {done} grants");
    history.assert_sound();
    let lock = lock(&clients[0]);
    is_free(&lock).await;
    queue_is(&lock, 0).await;
}

/// Cycles through the ways of asking for the lock.
async fn attempt(lock: &Lock, round: usize) -> Option<Guard> {
    let short = Duration::from_micros(200 + (round as u64 * 137) % 3_000);
    match round % 5 {
        0 | 1 => Some(soon("a grant", lock.lock()).await.unwrap()),
        // The store may not answer in so short a time on a busy machine.
        2 => match lock.try_lock_for(short).await {
            Err(error) if error.kind().is_retryable() => None,
            outcome => outcome.unwrap(),
        },
        3 => lock.try_lock().await.unwrap(),
        // Dropped while it waits.
        _ => tokio::time::timeout(short, lock.lock()).await.ok().map(Result::unwrap),
    }
}

/// A plain and a fair lock with the same name exclude each other.
pub(super) async fn fair_and_plain_names_do_not_touch(store: Store) {
    let client = store.client_with(no_beats).await;
    for (held, tried) in [
        (client.fair_lock("one"), client.plain_lock("one")),
        (client.plain_lock("one"), client.fair_lock("one")),
    ] {
        let guard = held.lock().await.unwrap();
        assert!(tried.try_lock().await.unwrap().is_none());
        let elsewhere = client.plain_lock("two").try_lock().await.unwrap();
        // If it were dropped, it would be released in the background, on a Cluster by a different
        // node than the one that the next attempt asks.
        let _ = elsewhere.expect("free").release().await.unwrap();
        let _ = guard.release().await.unwrap();
        assert!(tried.try_lock().await.unwrap().is_some());
        is_free(&tried).await;
    }
}
