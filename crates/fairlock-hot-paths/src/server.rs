//! The same paths with a server: counts the instructions of the server, or of the client including
//! its background thread.

use fairlock::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn with_clients<F: Future<Output = ()>>(url: &str, work: impl FnOnce([Client; 2]) -> F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    runtime.block_on(async {
        let clients = [Client::connect(url).await.unwrap(), Client::connect(url).await.unwrap()];
        work(clients).await;
    });
}

/// A round trip without a script: the unit in which the other paths are expressed.
pub(crate) fn pings(times: u64, url: &str) {
    with_clients(url, |clients| async move {
        for _ in 0..times {
            clients[0].ping().await.unwrap();
        }
    });
}

/// Takes and releases a free lock.
pub(crate) fn pairs(times: u64, url: &str) {
    with_clients(url, |clients| async move {
        let lock = clients[0].fair_lock("guard:pair");
        for _ in 0..times {
            let _ = lock.lock().await.unwrap().release().await.unwrap();
        }
    });
}

/// Ten tasks of two clients take turns.
pub(crate) fn handovers(times: u64, url: &str) {
    with_clients(url, |clients| async move {
        let done = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let lock = clients[n % 2].fair_lock("guard:handover");
                let done = Arc::clone(&done);
                tokio::spawn(async move {
                    while done.fetch_add(1, Ordering::Relaxed) < times {
                        let _ = lock.lock().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}
