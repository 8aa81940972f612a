//! F11: the application blocks its runtimes for longer than a lease, or keeps every processor busy.
//! The lock stays held, and nobody else gets it.

use crate::faults::fixture::{Fixture, HB, LEASE, SLACK, client, measured, ms, steady};
use fairlock::{Client, Guard, GuardState};
use fairlock_testkit::raw::Raw;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How long the application keeps its tasks from running.
const BLOCKED: Duration = Duration::from_millis(3_500);

/// A thread that continuously compares the guard's state with the server's.
struct Observer {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

#[derive(Debug)]
struct Seen {
    looks: u32,
    least: Duration,
}

impl Observer {
    fn watch(fixture: &Fixture, guard: &Arc<Guard>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (guard, mut raw) = (Arc::clone(guard), fixture.server.client());
        let is_over = Arc::clone(&over);
        let look = move || {
            let mut seen = Seen { looks: 0, least: Duration::MAX };
            while !is_over.load(Ordering::Relaxed) {
                let held = is_held(&mut raw, &guard);
                // Read after the server's answer: a hold that was gone then must not be claimed
                // now.
                let claims = guard.state() != GuardState::Lost;
                assert!(held || !claims, "the guard claims a lock that the server has given up");
                assert!(held, "the lock was lost");
                seen.looks += 1;
                seen.least = seen.least.min(guard.remaining());
                std::thread::sleep(ms(2));
            }
            seen
        };
        Self { over, thread: std::thread::spawn(look) }
    }

    fn end(self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn is_held(raw: &mut Raw, guard: &Guard) -> bool {
    raw.call(&["HEXISTS", "job", &guard.owner().to_string()]).int() == 1
}

/// Runs `block` as the application, on a runtime of its own, while the lock is held.
fn stays_held(what: &str, user: &Runtime, block: impl Fn(&Runtime)) {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        // The application has a runtime of its own; the thread of the test's runtime waits here.
        tokio::task::block_in_place(|| {
            let (held, own): (Arc<Guard>, Client) = on(user, async {
                let own = client(&fixture.server.url()).await;
                (Arc::new(own.fair_lock("job").lock().await.unwrap()), own)
            });
            let observer = Observer::watch(&fixture, &held);
            let began = Instant::now();
            block(user);
            assert!(began.elapsed() >= BLOCKED && BLOCKED > 3 * LEASE);
            let seen = observer.end();
            println!("measured: f11 {what}: least validity {:?}, {} looks", seen.least, seen.looks);
            assert!(seen.looks > 10, "{seen:?}");
            assert_eq!(held.state(), GuardState::Held);
            let guard = Arc::into_inner(held).unwrap();
            let _ = on(user, guard.release()).unwrap();
            drop(own);
        });
    });
}

/// Runs `work` on a runtime of the application, from a thread that is in no runtime.
fn on<T: Send>(user: &Runtime, work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| user.block_on(work)).join().unwrap())
}

#[test]
fn f11_a_current_thread_runtime_is_blocked() {
    let user = Builder::new_current_thread().enable_all().build().unwrap();
    stays_held("current_thread", &user, |user| {
        on(user, async { std::thread::sleep(BLOCKED) });
    });
}

#[test]
fn f11_all_workers_of_a_runtime_are_blocked() {
    let user = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    stays_held("all workers", &user, |user| {
        on(user, async {
            // One task more than there are workers: one blocks each worker, and this thread waits.
            let tasks: Vec<_> =
                (0..3).map(|_| tokio::spawn(async { std::thread::sleep(BLOCKED) })).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

/// More busy loops than the machine has processors.
#[test]
fn f11_busy_loops_take_all_processors() {
    let user = Builder::new_multi_thread().worker_threads(8).enable_all().build().unwrap();
    stays_held("8 busy loops", &user, |user| {
        on(user, async {
            let until = Instant::now() + BLOCKED;
            let spin = || tokio::spawn(async move { while Instant::now() < until {} });
            for task in (0..8).map(|_| spin()).collect::<Vec<_>>() {
                task.await.unwrap();
            }
        });
    });
}

/// A waiter in a blocked application keeps its place, and the grant that it cannot accept yet.
#[test]
fn f11_a_blocked_waiter_keeps_its_place_and_its_grant() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let other = fixture.client().await;
        let held = fixture.take(&other, "job").await;
        let url = fixture.server.url();
        let user = Builder::new_current_thread().enable_all().build().unwrap();
        let before = fixture.queue("job");
        let blocked = std::thread::spawn(move || {
            user.block_on(async {
                let own = client(&url).await;
                let lock = own.fair_lock("job");
                let wait = tokio::spawn(async move { lock.lock().await });
                // Long enough for the request to reach the client's thread.
                tokio::time::sleep(HB).await;
                std::thread::sleep(BLOCKED);
                let guard = wait.await.unwrap().unwrap();
                assert_eq!(guard.state(), GuardState::Held);
                guard.release().await.unwrap()
            })
        });
        let owner = fixture.joined("job", &before);
        let younger = fixture.enter(&other, "job").await;
        let _ = held.release().await;
        let granted = Instant::now();
        while fixture.holder("job").as_ref() != Some(&owner) {
            assert!(granted.elapsed() < LEASE + SLACK, "the blocked one is passed by");
        }
        measured("f11 release to the grant of a blocked waiter", granted.elapsed());
        let released = tokio::task::block_in_place(|| blocked.join().unwrap());
        assert_eq!(released, fairlock::Release::Released);
        let _ = younger.granted(LEASE + SLACK).await.release().await;
    });
}
