//! Guards that are dropped in a different runtime, and requests from another task.

use crate::faults::fixture::{Fixture, SLACK, eventually, steady};
use crate::support::{At, Store, run, runtime, soon};
use fairlock::Guard;
use fairlock_testkit::server::Generation;

/// F16: the guard moves into another runtime's task, which ends, or whose runtime is shut down.
#[test]
fn f16_a_guard_ends_in_another_runtime() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        for shut_down in [false, true] {
            let guard = client.fair_lock("job").lock().await.unwrap();
            let other = runtime();
            let task = other.spawn(async move {
                let _guard = guard;
                if shut_down {
                    std::future::pending::<()>().await;
                }
            });
            if shut_down {
                other.shutdown_background();
            } else {
                soon("the task", task).await.unwrap();
                other.shutdown_background();
            }
            eventually("the lock is released", SLACK, || fixture.holder("job").is_none());
        }
    });
}

/// Releases its guard in a task of its own, as an async destructor would.
struct Job(Option<Guard>);

impl Drop for Job {
    fn drop(&mut self) {
        let guard = self.0.take();
        tokio::spawn(async move { guard.expect("held until now").release().await.map(drop) });
    }
}

/// An ending runtime drops what is spawned in it at once, in the middle of its own work, where no
/// other runtime can be entered. A release that was begun there did so, and was lost with its
/// guard: nothing renewed the lock, and nothing gave it back.
#[test]
fn a_guard_ends_in_a_task_that_an_ending_runtime_refuses() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let job = Job(Some(fixture.client().await.fair_lock("job").lock().await.unwrap()));
        let ended = std::thread::spawn(move || {
            let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
            other.block_on(async {
                tokio::spawn(async move {
                    let _job = job;
                    std::future::pending::<()>().await;
                });
                tokio::task::yield_now().await;
            });
        });
        ended.join().unwrap();
        eventually("the lock is released", SLACK, || fixture.holder("job").is_none());
    });
}

/// F80: another task of the same process, with the same client, is a different owner.
#[test]
fn f80_another_task_is_another_owner() {
    for at in [At::Memory, At::Server(Generation::Redis70)] {
        run(at, |store: Store| async move {
            let client = store.client().await;
            for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
                let guard = lock.lock().await.unwrap();
                let own = lock.clone();
                let tried = tokio::spawn(async move { own.try_lock().await.unwrap().is_some() });
                assert!(!tried.await.unwrap(), "entered by another task");
                let own = lock.clone();
                let waiter = tokio::spawn(async move { own.lock().await.unwrap() });
                client.ping().await.unwrap();
                assert!(!waiter.is_finished(), "entered by another task");
                let (owner, token) = (guard.owner().clone(), guard.token());
                let _ = guard.release().await.unwrap();
                let second = soon("the other task's turn", waiter).await.unwrap();
                assert_ne!(*second.owner(), owner);
                assert!(second.token() > token);
                let _ = second.release().await.unwrap();
            }
        });
    }
}
