//! What plain and simple locks have in common: one holder, no queue, and no polling. `plain` and
//! `simple` run these cases with their kind of lock.

use std::time::{Duration, Instant};

use super::super::api::{Client, Guard, Lock};
use super::super::support::{Store, is_free, no_beats, soon, until};
use fairlock::{GuardState, Release};
use tokio::task::JoinHandle;

/// Makes the lock of the case, named `job`.
pub(super) type Make = fn(&Client) -> Lock;

/// The channel that wakes the lock's waiters.
const CHANNEL: &str = "redisson_lock__channel:{job}";

/// Starts a wait in a task, and returns once it waits to be woken.
pub(super) async fn wait(store: &Store, client: &Client, of: Make) -> JoinHandle<Guard> {
    let lock = of(client);
    let task = tokio::spawn(async move { lock.lock().await.unwrap() });
    if let Some(mut raw) = store.raw() {
        until("it listens", async || raw.listeners(CHANNEL) > 0).await;
    } else {
        until("it runs", async || {
            tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0
        })
        .await;
    }
    // The client's thread handles these after its earlier work.
    for _ in 0..3 {
        client.ping().await.unwrap();
    }
    task
}

/// While one of our clients holds the lock nobody polls: the waiter's next look is a minute away.
pub(super) async fn a_release_wakes(store: &Store, of: Make) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for round in 0..20 {
        let guard = of(&client).lock().await.unwrap();
        let task = wait(store, &other, of).await;
        if round % 2 == 0 {
            let _ = guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        let _ = soon("the wake-up", task).await.unwrap().release().await.unwrap();
    }
}

/// Tasks of one client take turns, with as many scripts as if each were alone: two, and more where
/// replicas confirm. The next in line used to ask while the lock was held as well.
pub(super) async fn a_hand_over_takes_two_scripts(store: &Store, of: Make) {
    const TASKS: u64 = 4;
    const TURNS: u64 = 50;
    let client = store.client_with(no_beats).await;
    let Some(mut raw) = store.raw() else { return };
    let mut scripts = async |tasks: u64| {
        let before = raw.script_calls();
        let tasks = (0..tasks).map(|_| {
            let lock = of(&client);
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    let _ = lock.lock().await.unwrap().release().await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            soon("its turns", task).await.unwrap();
        }
        raw.script_calls() - before
    };
    let alone = scripts(1).await;
    assert!(alone >= 2 * TURNS, "{alone}");
    let together = scripts(TASKS).await;
    // Each task may ask twice before it waits for the first time.
    let most = alone * TASKS * 21 / 20 + 2 * TASKS;
    assert!(
        together <= most,
        "{together} scripts for {} turns, {alone} for {TURNS}",
        TASKS * TURNS
    );
}

pub(super) async fn a_timed_wait_ends(store: &Store, of: Make) {
    let (lock, other) = (of(&store.client().await), of(&store.client().await));
    let guard = lock.lock().await.unwrap();
    let wait = Duration::from_millis(120);
    let began = Instant::now();
    assert!(soon("the end of the wait", other.try_lock_for(wait)).await.unwrap().is_none());
    assert!(began.elapsed() >= wait, "after {:?}", began.elapsed());
    let _ = guard.release().await.unwrap();
    let guard = soon("a free lock", other.try_lock_for(wait)).await.unwrap().unwrap();
    let _ = guard.release().await.unwrap();
}

pub(super) async fn zero_wait(store: &Store, of: Make) {
    let (lock, other) = (of(&store.client().await), of(&store.client().await));
    let guard = lock.try_lock().await.unwrap().expect("a free lock");
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.try_lock_for(Duration::ZERO).await.unwrap().is_none());
    let _ = guard.release().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_some());
}

/// No message is sent when a lease ends: the waiter looks by itself, and earlier than its heartbeat
/// period of a minute.
pub(super) async fn expiry(store: &Store, of: Make) {
    let lock = of(&store.client_with(no_beats).await);
    let other = of(&store.client_with(no_beats).await);
    let lease = Duration::from_secs(1);
    let began = Instant::now();
    let guard = lock.clone().lease(lease).lock().await.unwrap();
    let next = soon("the end of the lease", other.lock()).await.unwrap();
    assert!(began.elapsed() >= lease - Duration::from_millis(1), "{:?}", began.elapsed());
    assert_eq!(guard.state(), GuardState::Lost);
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    next.ensure_valid().unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

pub(super) async fn force_unlock(store: &Store, of: Make) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let guard = of(&client).lock().await.unwrap();
    let task = wait(store, &other, of).await;
    assert!(of(&client).force_unlock().await.unwrap());
    let next = soon("the wake-up", task).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert!(!of(&client).force_unlock().await.unwrap());
}

pub(super) async fn a_cancelled_wait_leaves_nothing(store: &Store, of: Make) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let lock = of(&client);
    let guard = lock.lock().await.unwrap();
    let gone = wait(store, &other, of).await;
    let stays = wait(store, &other, of).await;
    gone.abort();
    assert!(soon("its end", gone).await.unwrap_err().is_cancelled());
    let _ = guard.release().await.unwrap();
    let _ = soon("the wake-up", stays).await.unwrap().release().await.unwrap();
    is_free(&lock).await;
    if let Some(mut raw) = store.raw() {
        until("nobody listens", async || raw.listeners(CHANNEL) == 0).await;
    }
}
