//! Calls that are answered at once consume tokio's cooperative budget, so that a task that does
//! nothing else still yields to others. They yield before they do anything, so nothing is lost if
//! they are dropped then.

use crate::support::{At, Store, poll_once};
use fairlock::Release;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::task::coop;

/// A test takes milliseconds; the limit leaves room for a slow disk.
const LONGEST: Duration = Duration::from_secs(100);

/// Rounds without another task running: many times the budget of a task, which is 128 calls.
const ROUNDS_MAX: usize = 2_000;

/// Runs a test on one thread, where another task runs only if the test yields.
fn run_on_one_thread<F: Future<Output = ()>>(at: At, test: impl FnOnce(Store) -> F) {
    let Some(store) = Store::open(at) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LONGEST, test(store)).await.expect("the test hangs");
    });
}

/// Repeats `round` until another task of the same thread has run.
async fn gives_way(what: &str, mut round: impl AsyncFnMut()) {
    let has_run = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&has_run);
    let other = tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
    for _ in 0..ROUNDS_MAX {
        round().await;
        if has_run.load(Ordering::Relaxed) {
            return other.await.unwrap();
        }
    }
    panic!("{what}: {ROUNDS_MAX} rounds, and nobody else has run");
}

fn all_calls_give_way(at: At) {
    run_on_one_thread(at, |store| async move {
        let client = store.client().await;
        let (fair, plain) = (client.fair_lock("fair"), client.plain_lock("plain"));
        gives_way("lock and release", async || {
            let guard = fair.lock().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        })
        .await;
        gives_way("lock and drop", async || drop(plain.lock().await.unwrap())).await;
        gives_way("try_lock and drop", async || {
            assert!(fair.try_lock().await.unwrap().is_some());
        })
        .await;
        gives_way("with", async || {
            assert_eq!(plain.with(async |_| 1).await.unwrap().value, 1);
        })
        .await;
        gives_way("enqueue and leave", async || {
            fair.enqueue().await.unwrap().leave().await.unwrap();
        })
        .await;
        let held = client.simple_lock("simple").lock().await.unwrap();
        gives_way("reenter and drop", async || drop(held.reenter().await.unwrap())).await;
        let _ = held.release().await.unwrap();
    });
}

#[test]
fn a_loop_on_memory_gives_way() {
    all_calls_give_way(At::Memory);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_loop_on_the_host_store_gives_way() {
    all_calls_give_way(At::Host);
}

/// Uses up the budget, as many earlier calls would.
async fn spend_budget() {
    while coop::has_budget_remaining() {
        coop::consume_budget().await;
    }
}

fn a_call_that_gives_way_is_dropped(at: At) {
    run_on_one_thread(at, |store| async move {
        let client = store.client().await;
        let lock = client.fair_lock("job");
        let other = client.plain_lock("other");
        let guard = other.lock().await.unwrap();
        let token = guard.token();
        spend_budget().await;
        assert!(poll_once(&mut pin!(lock.lock())).await.is_none(), "it gives way");
        assert!(poll_once(&mut pin!(lock.enqueue())).await.is_none(), "it gives way");
        assert!(poll_once(&mut pin!(guard.reenter())).await.is_none(), "it gives way");
        assert!(poll_once(&mut pin!(guard.release())).await.is_none(), "it gives way");
        // With a fresh budget.
        tokio::task::yield_now().await;
        let guard = lock.try_lock().await.unwrap().expect("nothing was asked for");
        let again = other.try_lock().await.unwrap().expect("the release went on");
        assert!(again.token() > token);
        assert_eq!((guard.hold_count(), again.hold_count()), (1, 1));
    });
}

#[test]
fn a_call_on_memory_that_gives_way_loses_nothing_when_it_is_dropped() {
    a_call_that_gives_way_is_dropped(At::Memory);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_call_on_the_host_store_that_gives_way_loses_nothing_when_it_is_dropped() {
    a_call_that_gives_way_is_dropped(At::Host);
}

/// Outside a task there is nobody to yield to: every call is ready at once.
#[test]
fn without_tokio_no_call_gives_way() {
    let client = crate::support::runtime().block_on(fairlock::Client::connect("memory:")).unwrap();
    let lock = client.fair_lock("job");
    let mut context = Context::from_waker(Waker::noop());
    for round in 0..ROUNDS_MAX {
        let pair = async { lock.lock().await.unwrap().release().await.unwrap() };
        assert!(pin!(pair).poll(&mut context).is_ready(), "round {round}");
    }
}
