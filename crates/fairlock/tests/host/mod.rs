//! The host store: who is told what, and when, by whose death, in processes that share a file.

mod deaths;
mod idle;
mod leftovers;
mod wakes;

use crate::faults::worker::Worker;
use crate::support::{SOON, queue_is};
use fairlock::{Client, Config, Lock};
use fairlock_testkit::tempdir::TempDir;
use std::time::Duration;

/// So far apart that nothing within a test is found by a heartbeat.
const SELDOM: Duration = Duration::from_secs(60);

/// So long that nothing within a test is found by its end.
const LONG: Duration = Duration::from_secs(300);

/// The lock of workers.
const JOB: &str = "job";

struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Self {
        Self { dir: TempDir::new() }
    }

    fn url(&self) -> String {
        format!("sqlite:{}/locks", self.dir.path().display())
    }

    /// A client to which only messages and deaths come.
    async fn client(&self) -> Client {
        let config = Config::from_url(&self.url()).unwrap();
        Client::with_config(config.heartbeat(SELDOM).watchdog_lease(LONG)).await.unwrap()
    }

    /// The same in a process of its own.
    fn worker(&self) -> Worker {
        Worker::with(&self.url(), SELDOM, LONG, [])
    }

    /// The names in the folder of the clients that end so.
    fn files(&self, ending: &str) -> Vec<String> {
        let all = std::fs::read_dir(self.dir.path().join("locks-clients")).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).collect()
    }
}

/// A worker that holds the fair lock `JOB`.
async fn take(worker: &mut Worker, lock: &Lock) {
    worker.order(&format!("lock 0 {JOB}"));
    worker.expect("granted 0", SOON);
    assert!(lock.is_locked().await.unwrap());
}

/// A worker that stands in the queue as the `place`th.
async fn enter(worker: &mut Worker, lock: &Lock, place: usize) {
    worker.order(&format!("lock 0 {JOB}"));
    queue_is(lock, place).await;
}
