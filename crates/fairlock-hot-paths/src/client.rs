//! The client around the rules: handles, guards, acquisitions, waiters. Its store is inside the
//! process, and everything runs on one thread with paused time, so that nothing depends on the
//! machine.

use fairlock::test_util::Sandbox;
use std::cell::Cell;
use std::rc::Rc;

fn alone<F: Future<Output = ()>>(work: impl FnOnce(Sandbox) -> F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async { work(Sandbox::new()).await });
}

/// Takes and releases a free lock.
pub(crate) fn pairs(times: u64) {
    alone(|sandbox| async move {
        let lock = sandbox.client().fair_lock("job");
        for _ in 0..times {
            let _ = lock.lock().await.unwrap().release().await.unwrap();
        }
    });
}

/// Reads while another reads.
pub(crate) fn read_pairs(times: u64) {
    alone(|sandbox| async move {
        let lock = sandbox.client().rw_lock("job");
        let _another = lock.read().await.unwrap();
        for _ in 0..times {
            let _ = lock.read().await.unwrap().release().await.unwrap();
        }
    });
}

/// Ten tasks of two clients take turns: from the release through the message to the next task.
pub(crate) fn handovers(times: u64) {
    alone(|sandbox| async move {
        let clients = [sandbox.client(), sandbox.client()];
        let left = Rc::new(Cell::new(times));
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let lock = clients[n % 2].fair_lock("job");
                let left = Rc::clone(&left);
                tokio::task::spawn_local(async move {
                    while left.get() > 0 {
                        let guard = lock.lock().await.unwrap();
                        left.set(left.get().saturating_sub(1));
                        // Lets the other tasks enter the queue.
                        tokio::task::yield_now().await;
                        let _ = guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}
