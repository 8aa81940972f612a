//! Closures that run under a lock.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Store, is_free, no_beats, poll_once, soon, until};
use fairlock::{Client, Config, ErrorKind, GuardState, Held, Lock, Release};

fn short_lease(config: Config) -> Config {
    config.watchdog_lease(Duration::from_millis(900))
}

fn all(client: &Client) -> [Lock; 3] {
    [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")]
}

pub(super) async fn closures_of_both_forms(store: Store) {
    for lock in all(&store.client_with(no_beats).await) {
        let name = String::from("borrowed");
        let mut calls = 0;
        let done = lock
            .with(async |held| {
                calls += 1;
                tokio::task::yield_now().await;
                (name.len(), held.token())
            })
            .await
            .unwrap();
        assert_eq!((done.value.0, done.release), (8, Release::Released));
        let moved = name.clone();
        let next = lock.with(|held| async move { (moved, held.token()) }).await.unwrap();
        assert_eq!(next.value.0, name);
        assert!(next.value.1 > done.value.1);
        // A function works as well.
        async fn token(held: Held) -> u64 {
            held.token().get()
        }
        assert!(lock.with(token).await.unwrap().value > next.value.1.get());
        // The closure's value is for the caller, even if it is an error.
        let failed = lock.with(async |_| Err::<(), _>("no")).await.unwrap();
        assert_eq!(failed.value, Err("no"));
        assert_eq!(calls, 1);
        assert!(!lock.is_locked().await.unwrap());
    }
}

pub(super) async fn closures_run_with_a_permit(store: Store) {
    let pool = store.client().await.semaphore("pool", 1);
    assert_eq!(pool.name().unwrap().as_bytes(), b"pool");
    let used = async || pool.usage().await.unwrap().used;
    let done = pool.with(async |_| used().await).await.unwrap();
    assert_eq!((done.value, done.release), (1, Release::Released));
    let permit = pool.acquire().await.unwrap();
    let refused = pool
        .try_with_for(Duration::from_millis(50), async |_| panic!("it has no permit"))
        .await
        .unwrap();
    assert_eq!(refused, None::<fairlock::Done<()>>);
    let _ = permit.release().await.unwrap();
    let done =
        pool.try_with_for(Duration::from_secs(20), async |_| used().await).await.unwrap().unwrap();
    assert_eq!((done.value, done.release), (1, Release::Released));
    assert_eq!(pool.usage().await.unwrap().used, 0);
}

pub(super) async fn it_runs_in_a_task(store: Store) {
    let client = store.client_with(no_beats).await;
    for lock in all(&client) {
        let count = Arc::new(AtomicU32::new(0));
        let mut tasks = Vec::new();
        for number in 0..20 {
            let (lock, count) = (lock.clone(), Arc::clone(&count));
            tasks.push(tokio::spawn(async move {
                if number % 2 == 0 {
                    lock.with(async |held| add_one(held, &count).await).await
                } else {
                    lock.with(|held| async move { add_one(held, &count).await }).await
                }
            }));
        }
        for task in tasks {
            let done = soon("its turn", task).await.unwrap().unwrap();
            assert_eq!(done.release, Release::Released);
        }
        assert_eq!(count.load(Ordering::SeqCst), 20);
    }
}

/// Not atomic: two at a time would lose an increment.
async fn add_one(held: Held, count: &AtomicU32) {
    let seen = count.load(Ordering::SeqCst);
    tokio::task::yield_now().await;
    held.ensure_valid().unwrap();
    count.store(seen + 1, Ordering::SeqCst);
}

pub(super) async fn the_lock_is_held_meanwhile(store: Store) {
    for lock in all(&store.client_with(no_beats).await) {
        let look = lock.clone();
        lock.with(async |held| {
            let status = look.inspect().await.unwrap();
            if look.kind() != fairlock::Kind::Simple {
                assert_eq!(status.token, Some(held.token()));
            }
            assert_eq!(status.holder.unwrap().owner, *held.owner());
            assert!(look.try_lock().await.unwrap().is_none());
            assert_eq!(held.state(), GuardState::Held);
            assert!(held.remaining() > Duration::ZERO);
            held.ensure_valid().unwrap();
            let shown = format!("{held:?}");
            assert!(shown.contains(&held.name().to_string()), "{shown}");
            assert!(shown.contains("state: Held"), "{shown}");
        })
        .await
        .unwrap();
    }
}

/// Notes that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(super) async fn a_loss_cancels_the_closure(store: Store) {
    for lock in all(&store.client_with(short_lease).await) {
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = Mutex::new(None);
        let result = lock.with(async |held| {
            let _dropped = Dropped(Arc::clone(&dropped));
            *owner.lock().unwrap() = Some(held.owner().clone());
            lock.force_unlock().await.unwrap();
            std::future::pending::<()>().await;
        });
        let error = soon("the loss", result).await.unwrap_err();
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!(error.kind(), ErrorKind::Lost);
        let owner = owner.lock().unwrap().take();
        assert_eq!(error.owner(), owner.as_ref());
        assert!(error.lock().is_some());
        is_free(&lock).await;
    }
}

pub(super) async fn a_value_outlives_a_loss(store: Store) {
    let lease = Duration::from_secs(1);
    for lock in all(&store.client_with(no_beats).await) {
        let lock = lock.lease(lease);
        let done = lock
            .with(async |held| {
                // Nothing can cancel this.
                std::thread::sleep(2 * lease);
                (held.state(), "dear")
            })
            .await
            .unwrap();
        assert_eq!((done.value, done.release), ((GuardState::Lost, "dear"), Release::Lost));
    }
}

/// Value and loss are ready at the same poll.
pub(super) async fn a_value_wins_over_a_loss(store: Store) {
    let lease = Duration::from_secs(1);
    for lock in all(&store.client_with(no_beats).await) {
        let lock = lock.lease(lease);
        let (runs, gate) = (AtomicBool::new(false), tokio::sync::Notify::new());
        let mut future = Box::pin(lock.with(async |_| {
            runs.store(true, Ordering::SeqCst);
            gate.notified().await;
            "dear"
        }));
        until("it runs", async || {
            assert!(poll_once(&mut future).await.is_none());
            runs.load(Ordering::SeqCst)
        })
        .await;
        gate.notify_one();
        tokio::time::sleep(lease + lease / 10).await;
        let done = soon("the value", future).await.unwrap();
        assert_eq!((done.value, done.release), ("dear", Release::Lost));
    }
}

/// A store in memory cannot disappear.
pub(super) async fn a_value_outlives_the_store(store: Store) {
    let Some(server) = store.server() else { return };
    let lock = store.client_with(no_beats).await.fair_lock("job").lease(Duration::from_secs(2));
    let done = lock.with(async |_| {
        server.kill9();
        "dear"
    });
    let done = soon("the end of the lease", done).await.unwrap();
    assert_eq!((done.value, done.release), ("dear", Release::Unknown));
}

pub(super) async fn a_panic_releases(store: Store) {
    for lock in all(&store.client_with(no_beats).await) {
        let later = lock.clone();
        let task = tokio::spawn(async move {
            later
                .with(async |_| {
                    tokio::task::yield_now().await;
                    panic!("as it is meant to");
                })
                .await
        });
        assert!(soon("its end", task).await.unwrap_err().is_panic());
        is_free(&lock).await;
        let at_once = lock.clone();
        let task = tokio::spawn(async move {
            at_once.with(|_| -> std::future::Ready<()> { panic!("as it is meant to") }).await
        });
        assert!(soon("its end", task).await.unwrap_err().is_panic());
        is_free(&lock).await;
    }
}

pub(super) async fn a_dropped_future_drops_the_closure_first(store: Store) {
    /// Records the guard's state when the closure's future is dropped.
    struct Looks(Held, Arc<Mutex<Option<GuardState>>>);
    impl Drop for Looks {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(self.0.state());
        }
    }
    for lock in all(&store.client_with(no_beats).await) {
        let seen = Arc::new(Mutex::new(None));
        let kept = Mutex::new(None);
        let mut future = Box::pin(lock.with(async |held| {
            *kept.lock().unwrap() = Some(held.clone());
            let _looks = Looks(held, Arc::clone(&seen));
            std::future::pending::<()>().await;
        }));
        until("it runs", async || {
            assert!(poll_once(&mut future).await.is_none());
            kept.lock().unwrap().is_some()
        })
        .await;
        assert!(lock.is_locked().await.unwrap());
        drop(future);
        assert_eq!(seen.lock().unwrap().take(), Some(GuardState::Held));
        let kept = kept.lock().unwrap().take().unwrap();
        assert_eq!(kept.state(), GuardState::Lost);
        is_free(&lock).await;
    }
}

pub(super) async fn nothing_is_held_after_it(store: Store) {
    for lock in all(&store.client_with(no_beats).await) {
        let held = lock.with(async |held| held).await.unwrap().value;
        assert_eq!((held.state(), held.remaining()), (GuardState::Lost, Duration::ZERO));
        soon("what is so already", held.lost()).await;
        let error = held.ensure_valid().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert_eq!((error.lock(), error.owner()), (Some(held.name()), Some(held.owner())));
        assert!(error.to_string().contains("is over"), "{error}");
    }
}

pub(super) async fn it_can_give_up_waiting(store: Store) {
    for lock in all(&store.client_with(no_beats).await) {
        let guard = lock.lock().await.unwrap();
        let never = async |_: Held| panic!("called");
        assert!(lock.try_with(never).await.unwrap().is_none());
        let wait = Duration::from_millis(30);
        assert!(soon("its end", lock.try_with_for(wait, never)).await.unwrap().is_none());
        let _ = guard.release().await.unwrap();
        let one = lock.try_with(async |_| 1).await.unwrap().unwrap();
        let two = lock.try_with_for(Duration::from_secs(60), async |_| 2).await.unwrap().unwrap();
        assert_eq!((one.value, two.value), (1, 2));
        assert_eq!((one.release, two.release), (Release::Released, Release::Released));
    }
}

pub(super) async fn errors_come_before_the_closure(store: Store) {
    let client = store.client().await;
    let never = async |_: Held| panic!("called");
    let error = client.fair_lock("").with(never).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    let locks = all(&client);
    soon("the shutdown", client.shutdown()).await;
    for lock in locks {
        for error in [
            lock.with(never).await.unwrap_err(),
            lock.try_with(never).await.unwrap_err(),
            lock.try_with_for(Duration::from_secs(1), never).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Closed);
            assert!(error.lock().is_some(), "{error}");
        }
    }
}
