//! The host store in several processes that share a file: who is woken, when, and by whose death.

mod crowd;
mod deaths;
mod ends;
mod group;
mod idle;
mod leftovers;
mod limits;
mod shares;
mod views;
mod wakes;

use crate::faults::fixture::measured;
use crate::faults::worker::Worker;
use crate::support::{SOON, block_on, granted, queue_is, real_time};
use fairlock::{Client, Config, Guard, Lock};
use fairlock_testkit::tempdir::TempDir;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// So rare that no heartbeat within a test finds anything.
const SELDOM: Duration = Duration::from_secs(60);

/// So long that no lease ends within a test.
const LONG: Duration = Duration::from_secs(300);

/// The workers' lock.
const JOB: &str = "job";

struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: TempDir::new() }
    }

    fn url(&self) -> String {
        format!("sqlite:{}/locks", self.dir.path().display())
    }

    /// A client that is woken only by messages and deaths.
    async fn client(&self) -> Client {
        self.client_with(SELDOM).await
    }

    async fn client_with(&self, heartbeat: Duration) -> Client {
        let config = Config::from_url(&self.url()).unwrap();
        Client::with_config(config.heartbeat(heartbeat).watchdog_lease(LONG)).await.unwrap()
    }

    /// The same in a process of its own.
    fn worker(&self) -> Worker {
        Worker::with(&self.url(), SELDOM, LONG, [])
    }

    /// The names in the clients' folder with this ending.
    fn files(&self, ending: &str) -> Vec<String> {
        let all = std::fs::read_dir(self.dir.path().join("locks-clients")).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).collect()
    }
}

/// Runs a test with a folder of its own.
fn run(test: impl AsyncFn(&Fixture)) {
    real_time(|runtime| {
        let fixture = Fixture::new();
        block_on(runtime, test(&fixture));
    });
}

/// Makes a worker take the fair lock `JOB`.
async fn take(worker: &mut Worker, lock: &Lock) {
    worker.order(&format!("lock 0 {JOB}"));
    worker.expect("granted 0", SOON);
    assert!(lock.is_locked().await.unwrap());
}

/// Stops a worker, but not in the middle of a write, when it has the file locked for all others: on a slow disk, writes
/// take long.
async fn stop_between_writes(worker: &Worker, fixture: &Fixture) {
    let config = Config::from_url(&fixture.url()).unwrap();
    // Enough for a write, and far below the shortest lease.
    let config = config.store_timeout(Duration::from_millis(200));
    let client = Client::with_config(config).await.unwrap();
    loop {
        worker.stop();
        if client.plain_lock("written by others").try_lock().await.is_ok() {
            return;
        }
        worker.cont();
        // Stopped again at once, it would still be in the middle of the same write.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Far below every lease and heartbeat of these tests.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Kills the workers; `next` must then get the lock at once, and releases it.
async fn take_over(
    what: &str,
    dying: &mut [Worker],
    next: JoinHandle<Result<Guard, fairlock::Error>>,
) {
    let began = Instant::now();
    for worker in dying {
        worker.kill9();
    }
    let guard = granted(next).await;
    measured(what, began.elapsed());
    assert!(began.elapsed() < AT_ONCE, "{what}: {:?}", began.elapsed());
    let _ = guard.release().await.unwrap();
}

/// Makes a worker wait in the queue at place `place`.
async fn enter(worker: &mut Worker, lock: &Lock, place: usize) {
    worker.order(&format!("lock 0 {JOB}"));
    queue_is(lock, place).await;
}
