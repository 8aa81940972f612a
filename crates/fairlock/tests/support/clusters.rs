//! Clusters that tests share: six servers each are too many to start for every test.

use fairlock_testkit::server::Generation;
use fairlock_testkit::topology::Cluster;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Those that are running. The last test that has or waits for one ends it.
static RUNNING: Mutex<Option<HashMap<String, Weak<Shared>>>> = Mutex::new(None);

struct Shared {
    cluster: Cluster,
    taken: Mutex<bool>,
    free: Condvar,
}

/// A Cluster for one test alone, empty.
pub(crate) struct Turn(Arc<Shared>);

/// Waits until it is this test's turn; `None`, loudly, when the server is not installed.
pub(crate) fn turn(generation: Generation) -> Option<Turn> {
    let shared = {
        let mut running = lock(&RUNNING);
        let running = running.get_or_insert_default();
        let key = format!("{generation:?}");
        match running.get(&key).and_then(Weak::upgrade) {
            Some(shared) => shared,
            None => {
                let cluster = Cluster::start(generation)?;
                let (taken, free) = (Mutex::new(false), Condvar::new());
                let shared = Arc::new(Shared { cluster, taken, free });
                running.insert(key, Arc::downgrade(&shared));
                shared
            }
        }
    };
    let mut taken = lock(&shared.taken);
    while *taken {
        taken = shared.free.wait(taken).unwrap_or_else(PoisonError::into_inner);
    }
    *taken = true;
    drop(taken);
    for master in 0..3 {
        shared.cluster.raw(master).call(&["FLUSHALL"]);
    }
    Some(Turn(shared))
}

impl Turn {
    pub(crate) fn url(&self) -> String {
        self.0.cluster.url()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *lock(&self.0.taken) = false;
        self.0.free.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
