//! Guards that are dropped in a different runtime, and requests from another task.

use crate::faults::fixture::{Fixture, SLACK, eventually, steady};
use crate::support::{At, Store, run, runtime, soon};
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
                guard.release().await.unwrap();
                let second = soon("the other task's turn", waiter).await.unwrap();
                assert_ne!(*second.owner(), owner);
                assert!(second.token() > token);
                second.release().await.unwrap();
            }
        });
    }
}
