//! F20: a wait times out at the moment of its grant. Either the waiter holds the lock, or nothing
//! of it is left; never both, never neither.

use crate::support::{At, Store, run, soon};
use fairlock::{Client, GuardState, Release};
use fairlock_testkit::server::Generation;
use std::time::Duration;
use tokio::task::JoinSet;

/// The timeout of each wait.
const WAIT: Duration = Duration::from_millis(6);

/// The release precedes or follows the end of the wait by at most this much.
const SPREAD_US: u64 = 2_000;

/// Locks on which the race runs concurrently.
const LOCKS: u64 = 40;

/// A race that one side always wins is no race: the runs are repeated until one in this many has ended each way.
const EACH_WAY: u64 = 20;

#[test]
fn f20_in_memory() {
    run(At::Memory, |store| races(store, 10_000));
}

#[test]
fn f20_on_redis() {
    run(At::Server(Generation::Redis70), |store| races(store, 2_000));
}

async fn races(store: Store, runs: u64) {
    let client = store.client().await;
    let (mut won, mut all) = (0, 0);
    while won < runs / EACH_WAY || all - won < runs / EACH_WAY {
        assert!(all < 10 * runs, "one side always wins: {won} of {all}");
        let mut tasks = JoinSet::new();
        for lock in 0..LOCKS {
            let client = client.clone();
            tasks.spawn(async move {
                let mut won = 0;
                for run in 0..runs / LOCKS {
                    // From 2 ms before to 2 ms after, in different steps for each lock.
                    let at_us = (run * 97 + lock * 211) % (2 * SPREAD_US + 1);
                    let offset = Duration::from_micros(at_us);
                    won += u64::from(race(&client, &format!("job{lock}"), offset).await);
                }
                won
            });
        }
        won += soon_all(tasks).await;
        all += runs;
    }
    println!("measured: f20: {won} of {all} runs got the lock");
}

async fn soon_all(tasks: JoinSet<u64>) -> u64 {
    let limit = Duration::from_secs(280);
    let all = tokio::time::timeout(limit, tasks.join_all()).await;
    all.expect("the races hang").into_iter().sum()
}

/// Whether the waiter got the lock.
async fn race(client: &Client, name: &str, offset: Duration) -> bool {
    let lock = client.fair_lock(name);
    let holder = soon("the first hold", lock.lock()).await.unwrap();
    let first = holder.token();
    let own = lock.clone();
    let waiter = tokio::spawn(async move {
        match own.try_lock_for(WAIT).await {
            // The store may not answer in time on a busy machine.
            Err(error) if error.kind().is_retryable() => None,
            outcome => outcome.unwrap(),
        }
    });
    let earliest = WAIT - Duration::from_micros(SPREAD_US);
    tokio::time::sleep(earliest + offset).await;
    assert_eq!(soon("the release", holder.release()).await.unwrap(), Release::Released);
    let got = soon("the end of the wait", waiter).await.unwrap();
    let won = got.is_some();
    if let Some(guard) = got {
        assert_eq!(guard.state(), GuardState::Held);
        assert!(guard.token() > first);
        let status = lock.inspect().await.unwrap();
        assert_eq!(status.holder.unwrap().owner, *guard.owner(), "told that it holds the lock");
        assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
    }
    // The next request gets the lock at once, or as soon as the abandoned one has been taken back.
    let next = lock.try_lock_for(Duration::from_secs(30)).await.unwrap();
    let next = next.expect("nothing is left behind");
    let status = lock.inspect().await.unwrap();
    assert_eq!((status.queue_len, status.holder.unwrap().count), (0, 1));
    assert_eq!(soon("the release", next.release()).await.unwrap(), Release::Released);
    won
}
