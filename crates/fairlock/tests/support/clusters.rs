//! Clusters that tests share: with six servers each they are too expensive to start for every test.

use fairlock_testkit::server::Generation;
use fairlock_testkit::topology::Cluster;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// How many Clusters of a generation run at the same time: each is six servers and some 60 MB.
const RUNNING_MAX: usize = 6;

/// The pool of each generation. It ends with the last test that uses a Cluster or waits for one.
static RUNNING: Mutex<Option<HashMap<Generation, Weak<Pool>>>> = Mutex::new(None);

#[derive(Default)]
struct Pool {
    clusters: Mutex<Clusters>,
    given_back: Condvar,
}

#[derive(Default)]
struct Clusters {
    free: Vec<Cluster>,
    /// Clusters that are free, taken, or being started.
    running: usize,
}

/// An empty Cluster for one test alone.
pub(crate) struct Turn {
    /// `None` before it runs and after it is given back.
    cluster: Option<Cluster>,
    pool: Arc<Pool>,
}

/// Waits for this test's turn; `None`, with a message, if the server is not installed.
pub(crate) fn turn(generation: Generation) -> Option<Turn> {
    let pool = {
        let mut running = lock(&RUNNING);
        let known = running.get_or_insert_default().entry(generation).or_default();
        known.upgrade().unwrap_or_else(|| {
            let pool = Arc::default();
            *known = Arc::downgrade(&pool);
            pool
        })
    };
    // From here on it is given back whatever happens.
    let mut turn = Turn { cluster: pool.take(), pool };
    if turn.cluster.is_none() {
        turn.cluster = Some(Cluster::start(generation)?);
    }
    for master in 0..3 {
        turn.cluster().raw(master).call(&["FLUSHALL"]);
    }
    Some(turn)
}

impl Pool {
    /// A free one; `None` if the caller may start another one.
    fn take(&self) -> Option<Cluster> {
        let mut clusters = lock(&self.clusters);
        loop {
            if let Some(cluster) = clusters.free.pop() {
                return Some(cluster);
            }
            if clusters.running < RUNNING_MAX {
                clusters.running += 1;
                return None;
            }
            clusters = self.given_back.wait(clusters).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Turn {
    pub(crate) fn url(&self) -> String {
        self.cluster().url()
    }

    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("until it is given back")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut clusters = lock(&self.pool.clusters);
        match self.cluster.take() {
            Some(cluster) => clusters.free.push(cluster),
            // It did not start: another test may try.
            None => clusters.running -= 1,
        }
        self.pool.given_back.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
