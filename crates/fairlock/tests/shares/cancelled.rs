//! Every call is dropped after every number of polls, from every state that it can be in. Nothing of it may be left.

use crate::support::{poll_once, run_paused, soon};
use fairlock::test_util::Sandbox;
use fairlock::{Client, Guard, RwLock, Semaphore};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// More than any of these calls needs.
const POLLS_MAX: usize = 12;

#[derive(Clone, Copy, Debug)]
enum Start {
    Free,
    /// Somebody else has what stands in its way, for as long as the call lives.
    Held,
    /// The same, and it is released while the call waits.
    Granting,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Write,
    TryRead,
    ReadFor,
    Turn,
    WithWrite,
    Downgrade,
    Acquire,
    AcquireFor,
    Owned,
    Release,
}

const CALLS: [Call; 11] = [
    Call::Read,
    Call::Write,
    Call::TryRead,
    Call::ReadFor,
    Call::Turn,
    Call::WithWrite,
    Call::Downgrade,
    Call::Acquire,
    Call::AcquireFor,
    Call::Owned,
    Call::Release,
];

type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn begin<'a>(call: Call, client: &Client, rw: &'a RwLock, pool: &'a Semaphore) -> Boxed<'a> {
    let wait = Duration::from_secs(5);
    let owned = rw.clone().owned_by(&client.owner());
    match call {
        Call::Read => Box::pin(async { drop(rw.read().await.unwrap()) }),
        Call::Write => Box::pin(async { drop(rw.write().await.unwrap()) }),
        Call::TryRead => Box::pin(async { drop(rw.try_read().await.unwrap()) }),
        Call::ReadFor => Box::pin(async move { drop(rw.try_read_for(wait).await.unwrap()) }),
        Call::Turn => Box::pin(async {
            drop(rw.enqueue_write().await.unwrap().wait().await.unwrap());
        }),
        Call::WithWrite => Box::pin(async {
            rw.with_write(async |_| tokio::task::yield_now().await).await.unwrap();
        }),
        Call::Downgrade => Box::pin(async {
            let writing = rw.write().await.unwrap();
            drop(writing.downgrade().await.unwrap());
        }),
        Call::Acquire => Box::pin(async { drop(pool.acquire_many(2).await.unwrap()) }),
        Call::AcquireFor => {
            Box::pin(async move { drop(pool.try_acquire_for(wait).await.unwrap()) })
        }
        Call::Owned => Box::pin(async move {
            let reading = owned.read().await.unwrap();
            drop((owned.read().await.unwrap(), reading));
        }),
        Call::Release => Box::pin(async {
            let _ = rw.read().await.unwrap().release().await.unwrap();
        }),
    }
}

/// What stands in the way of every call.
async fn in_the_way(client: &Client) -> [Guard; 2] {
    let writing = client.rw_lock("c").write().await.unwrap();
    [writing.into_guard(), client.semaphore("p", 2).acquire().await.unwrap().into_guard()]
}

async fn case(start: Start, call: Call, polls: usize, pause: Duration) {
    let sandbox = Sandbox::new();
    let (holder, caller) = (sandbox.client(), sandbox.client());
    let mut held = match start {
        Start::Free => None,
        Start::Held | Start::Granting => Some(in_the_way(&holder).await),
    };
    let (rw, pool) = (caller.rw_lock("c"), caller.semaphore("p", 2));
    let mut future = begin(call, &caller, &rw, &pool);
    for poll in 0..polls {
        if matches!(start, Start::Granting) && poll == polls.saturating_sub(2) {
            drop(held.take());
        }
        if poll_once(&mut future).await.is_some() {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    drop(future);
    drop(held);
    // Well before any lease ends.
    let clean = async {
        drop(holder.rw_lock("c").write().await.unwrap());
        drop(holder.semaphore("p", 2).acquire_many(2).await.unwrap());
    };
    let clean = tokio::time::timeout(Duration::from_secs(1), clean).await;
    assert!(clean.is_ok(), "{start:?} {call:?} after {polls} polls with {pause:?}: it is held");
    // Paused time goes on when nothing is left to do: what the caller's client still has under way is over then.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let seen = (holder.rw_lock("c").inspect().await.unwrap(), pool.inspect().await.unwrap());
    let left = [&seen.0, &seen.1].map(|status| (status.holding, status.queue_len));
    assert_eq!(left, [(0, 0); 2], "{start:?} {call:?} after {polls} polls with {pause:?}");
}

#[test]
fn nothing_is_left_of_a_call_that_is_dropped_after_any_number_of_polls() {
    for start in [Start::Free, Start::Held, Start::Granting] {
        for call in CALLS {
            for polls in 0..POLLS_MAX {
                for pause in [Duration::ZERO, Duration::from_millis(1)] {
                    run_paused(case(start, call, polls, pause));
                }
            }
        }
    }
}

/// Tasks are aborted at any moment while they read, write and wait.
#[test]
fn aborted_tasks_give_everything_back() {
    run_paused(async {
        let sandbox = Sandbox::new();
        let clients: Vec<_> = (0..4).map(|_| sandbox.client()).collect();
        let mut tasks = Vec::new();
        for number in 0..200_usize {
            let client = clients[number % clients.len()].clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    match number % 5 {
                        0 => {
                            let held = client.rw_lock("c").write().await.unwrap();
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            drop(held);
                        }
                        1 => {
                            let held = client.semaphore("p", 3).acquire_many(2).await.unwrap();
                            tokio::time::sleep(Duration::from_millis(2)).await;
                            drop(held);
                        }
                        _ => {
                            let held = client.rw_lock("c").read().await.unwrap();
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            drop(held);
                        }
                    }
                }
            }));
        }
        for task in tasks {
            tokio::time::sleep(Duration::from_micros(700)).await;
            task.abort();
        }
        let free = async {
            drop(clients[0].rw_lock("c").write().await.unwrap());
            drop(clients[0].semaphore("p", 3).acquire_many(3).await.unwrap());
        };
        soon("everything", free).await;
    });
}
