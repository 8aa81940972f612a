//! A writer of Redisson's beside writers of ours that hand their read-write lock on and on. It stands in no line, so ours
//! leave the lock to it about once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_interop::java::{Java, Kind};
use fairlock_testkit::server::Server;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, generation, measured, ms, run, soon, until};

const CHANNEL: &str = "redisson_rwlock:{job}";

/// Writers and readers of ours in two clients, each of which asks again at once.
struct Hot {
    over: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
    clients: Vec<Client>,
}

impl Hot {
    /// `readers` of the eight read, for `section` each, the others write.
    async fn begin(fixture: &Fixture, readers: usize, section: Duration) -> Self {
        let clients = vec![fixture.rust().await, fixture.rust().await];
        let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..8).map(|n| {
            let lock = clients[n % 2].rw_lock("job");
            let (over, turns) = (Arc::clone(&over), Arc::clone(&turns));
            tokio::spawn(async move {
                let works = async || {
                    if !section.is_zero() {
                        tokio::time::sleep(section).await;
                    }
                };
                while !over.load(Ordering::Relaxed) {
                    if n < readers {
                        let reading = lock.read().await.unwrap();
                        works().await;
                        let _ = reading.release().await.unwrap();
                    } else {
                        let writing = lock.write().await.unwrap();
                        works().await;
                        let _ = writing.release().await.unwrap();
                    }
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self { tasks: tasks.collect(), over, turns, clients }
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Turns a second while `meanwhile` lasts.
    async fn pace<T>(&self, meanwhile: impl Future<Output = T>) -> (f64, T) {
        let (began, before) = (Instant::now(), self.turns());
        let result = meanwhile.await;
        ((self.turns() - before) as f64 / began.elapsed().as_secs_f64(), result)
    }

    async fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            soon(task).await.unwrap();
        }
        drop(self.clients);
    }
}

/// How long a thread of Java waits for the lock each time. It pauses in between for longer than the lock is left to it: one
/// that asks again at once gets it many times in that time.
async fn java_waits(fixture: &Fixture, kind: Kind, times: usize) -> Vec<Duration> {
    let lock = fixture.java_owner().await.lock(kind, "job");
    let mut took = Vec::new();
    for _ in 0..times {
        let answer = lock.lock().answer().await;
        answer.result.expect("it gets the lock");
        took.push(Duration::from_nanos(answer.ended_ns - answer.began_ns));
        lock.unlock().value().await;
        tokio::time::sleep(ms(47)).await;
    }
    took.sort();
    took
}

fn at(took: &[Duration], percent: usize) -> Duration {
    took[(took.len() * percent / 100).min(took.len() - 1)]
}

fn show(what: &str, took: &[Duration]) {
    measured(&format!(
        "{what}: {} times, p50 {:?}, p99 {:?}, longest {:?}",
        took.len(),
        at(took, 50),
        at(took, 99),
        took.last().expect("some")
    ));
}

/// How often Java asks in a test: about once in a second it gets the lock.
const TIMES: usize = 12;

#[test]
fn b22_a_java_writer_gets_the_lock_beside_hot_writers_of_ours() {
    run(|fixture| async move {
        let hot = Hot::begin(&fixture, 0, Duration::ZERO).await;
        let (alone, ()) = hot.pace(tokio::time::sleep(ms(2_000))).await;
        let (beside, took) = hot.pace(java_waits(&fixture, Kind::Write, TIMES)).await;
        until("nobody listens any more", || fixture.listeners(CHANNEL) == 0).await;
        let (after, ()) = hot.pace(tokio::time::sleep(ms(2_000))).await;
        hot.end().await;
        show(&format!("Redisson {}, a writer beside 8 of ours", fixture.version()), &took);
        measured(&format!(
            "hand-overs of ours a second: {alone:.0} alone, {beside:.0} beside Java, {after:.0} after it"
        ));
        assert!(at(&took, 99) < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn b22_a_java_writer_gets_the_lock_beside_hot_readers_and_writers_of_ours() {
    run(|fixture| async move {
        let hot = Hot::begin(&fixture, 4, ms(1)).await;
        let took = java_waits(&fixture, Kind::Write, TIMES).await;
        let read = java_waits(&fixture, Kind::Read, TIMES).await;
        hot.end().await;
        let version = fixture.version();
        show(
            &format!("Redisson {version}, a writer beside 4 readers and 4 writers of ours"),
            &took,
        );
        show(
            &format!("Redisson {version}, a reader beside 4 readers and 4 writers of ours"),
            &read,
        );
        assert!(at(&took, 99) < Duration::from_secs(5), "{took:?}");
        assert!(at(&read, 99) < Duration::from_secs(5), "{read:?}");
    });
}

/// D67: Java only tries. Without a wait it subscribes to nothing, and ours leave it nothing: that is what the documents say.
/// The shortest wait suffices.
#[test]
fn a_java_writer_that_only_tries_needs_a_wait_beside_hot_writers_of_ours() {
    run(|fixture| async move {
        let hot = Hot::begin(&fixture, 0, Duration::ZERO).await;
        let lock = fixture.java_owner().await.lock(Kind::Write, "job");
        let mut counts = Vec::new();
        for wait_ms in [0, 5] {
            let (began, mut got, mut tried) = (Instant::now(), 0, 0);
            while began.elapsed() < Duration::from_secs(4) {
                tried += 1;
                if lock.try_lock_for(wait_ms, None).is_true().await {
                    got += 1;
                    lock.unlock().value().await;
                }
            }
            measured(&format!("tryLock({wait_ms} ms) beside 8 hot writers: {got} of {tried}"));
            counts.push(got);
        }
        hot.end().await;
        assert!(counts[1] > 0, "{counts:?}");
        assert!(lock.try_lock().is_true().await, "it is free");
    });
}

/// The figures of docs/redisson.md. Longer than the other tests may take.
#[test]
#[ignore = "a measurement"]
fn b22_figures() {
    let (Some(java), Some(server)) = (Java::shared(), Server::start(generation())) else { return };
    let fixture = Fixture { server, java };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let version = fixture.version();
        let hot = Hot::begin(&fixture, 0, Duration::ZERO).await;
        let (before, ()) = hot.pace(tokio::time::sleep(ms(10_000))).await;
        let (beside, took) = hot.pace(java_waits(&fixture, Kind::Write, 200)).await;
        until("nobody listens any more", || fixture.listeners(CHANNEL) == 0).await;
        let (after, ()) = hot.pace(tokio::time::sleep(ms(10_000))).await;
        hot.end().await;
        show(&format!("Redisson {version}, a writer beside 8 of ours"), &took);
        measured(&format!(
            "hand-overs of ours a second: {before:.0}, beside Java {beside:.0}, after it {after:.0}"
        ));
    });
}

/// Java holds the lock for long when it gets it. Ours hear that it has let go, and do not wait for a heartbeat.
#[test]
fn ours_follow_at_once_when_java_lets_go() {
    run(|fixture| async move {
        let hot = Hot::begin(&fixture, 0, Duration::ZERO).await;
        let lock = fixture.java_owner().await.lock(Kind::Write, "job");
        for _ in 0..5 {
            lock.lock().value().await;
            tokio::time::sleep(ms(300)).await;
            let before = hot.turns();
            lock.unlock().value().await;
            let took = until("ours go on", || hot.turns() > before).await;
            measured(&format!("ours after Java's unlock: {took:?}"));
            assert!(took < ms(500), "{took:?}: a message, not a heartbeat");
        }
        hot.end().await;
    });
}
