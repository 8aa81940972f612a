//! What adopters do in their own tests with `fairlock::test_util`. Hours pass in milliseconds.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

use fairlock::test_util::Sandbox;
use fairlock::{
    Client, Config, ConnectionState, Error, ErrorKind, Guard, GuardState, Lock, Release,
};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The real time that a test may take: far below its virtual time, far above what it takes on a
/// busy machine.
const QUICK: Duration = s(4);

/// Runs a test as `#[tokio::test(start_paused = true)]` does, and checks that it was quick.
fn paused<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let began = std::time::Instant::now();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(async { test().await });
    assert!(began.elapsed() < QUICK, "{:?} of real time", began.elapsed());
}

/// Waits in a task; returns when the task is queued at place `place`.
async fn wait_behind(lock: &Lock, place: usize) -> JoinHandle<Result<Guard, Error>> {
    let own = lock.clone();
    let task = tokio::spawn(async move { own.lock().await });
    while lock.inspect().await.unwrap().queue_len < place {
        tokio::task::yield_now().await;
    }
    task
}

/// The next state of a guard, and the time until then.
async fn next_state(guard: &Guard) -> (GuardState, Duration) {
    let began = Instant::now();
    (guard.state_changed(guard.state()).await, began.elapsed())
}

fn about(time: Duration, wanted: Duration) {
    assert!(time >= wanted - s(1) && time <= wanted + s(1), "{time:?}, not {wanted:?}");
}

#[test]
fn a_wait_times_out() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let _guard = client.fair_lock("busy").lock().await.unwrap();
        for lock in [client.fair_lock("busy"), sandbox.client().fair_lock("busy")] {
            let began = Instant::now();
            assert!(lock.try_lock_for(s(5)).await.unwrap().is_none());
            about(began.elapsed(), s(5));
            assert_eq!(lock.inspect().await.unwrap().queue_len, 0);
        }
    });
}

#[test]
fn contenders_are_served_in_order() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let served = Arc::new(Mutex::new(Vec::new()));
        let first = sandbox.client().fair_lock("job");
        let guard = first.lock().await.unwrap();
        let mut last = guard.token();
        let mut tasks = Vec::new();
        for number in 0..5 {
            let waiter = wait_behind(&sandbox.client().fair_lock("job"), number + 1).await;
            let served = Arc::clone(&served);
            tasks.push(tokio::spawn(async move {
                let guard = waiter.await.unwrap().unwrap();
                served.lock().unwrap().push((number, guard.token()));
                sleep(s(600)).await;
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }));
        }
        let began = Instant::now();
        sleep(s(600)).await;
        let _ = guard.release().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        about(began.elapsed(), s(3_600));
        for (place, (number, token)) in served.lock().unwrap().iter().enumerate() {
            assert!(*number == place && *token > last);
            last = *token;
        }
    });
}

#[test]
fn plain_and_simple_locks_hand_over_between_clients() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let (one, two) = (sandbox.client(), sandbox.client());
        for (held, wanted) in [
            (one.plain_lock("p"), two.plain_lock("p")),
            (one.simple_lock("s"), two.simple_lock("s")),
        ] {
            let guard = held.lock().await.unwrap();
            let waiter = tokio::spawn(async move { wanted.lock().await.unwrap() });
            sleep(s(100)).await;
            assert!(!waiter.is_finished());
            let released = Instant::now();
            let _ = guard.release().await.unwrap();
            drop(waiter.await.unwrap());
            assert!(released.elapsed() < s(1), "{:?}", released.elapsed());
        }
    });
}

#[test]
fn leases_follow_the_clock_of_the_test() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let renewed = client.fair_lock("renewed").lock().await.unwrap();
        let leased = client.fair_lock("leased").lease(s(60)).lock().await.unwrap();
        let longest = client.fair_lock("longest").max_hold(s(300)).lock().await.unwrap();
        let (state, after) = next_state(&leased).await;
        assert_eq!(state, GuardState::Lost);
        about(after, s(60));
        // A guard expires a little before the lease does in the store.
        sleep(s(1)).await;
        assert!(!client.fair_lock("leased").is_locked().await.unwrap());
        let (state, after) = next_state(&longest).await;
        assert_eq!(state, GuardState::Lost);
        about(after, s(240));
        sleep(s(3_600)).await;
        assert_eq!(renewed.state(), GuardState::Held);
        assert!(client.fair_lock("renewed").is_locked().await.unwrap());
        // Advanced by hand, past every renewal.
        tokio::time::advance(s(40)).await;
        assert_eq!(renewed.state(), GuardState::Lost);
    });
}

/// An adopter's job that must not continue without its lock.
#[test]
fn a_job_stops_when_its_lock_is_taken() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let lock = client.fair_lock("nightly");
        let own = lock.clone();
        let job = tokio::spawn(async move {
            let guard = own.lock().await.unwrap();
            let began = Instant::now();
            tokio::select! {
                () = guard.lost() => {}
                () = sleep(s(86_400)) => panic!("it went on"),
            }
            (guard.token(), began.elapsed(), guard.release().await.unwrap())
        });
        sleep(s(1)).await;
        let next = wait_behind(&sandbox.client().fair_lock("nightly"), 1).await;
        sleep(s(59)).await;
        assert!(!next.is_finished());
        assert!(sandbox.lose("nightly"));
        let next = next.await.unwrap().unwrap();
        let (token, after, release) = job.await.unwrap();
        about(after, s(60));
        assert_eq!(release, Release::Lost);
        assert!(next.token() > token);
        assert!(next.ensure_valid().is_ok());
        let _ = next.release().await.unwrap();
        assert!(!sandbox.lose("nightly"), "nobody holds it any more");
    });
}

/// An error that may pass, a lost term and a term that was given back are followed by another campaign.
#[test]
fn terms_follow_each_other_until_the_work_breaks() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        sandbox.refuse_next(&client, ErrorKind::Unavailable);
        let mut tokens = Vec::new();
        let election = client.election("e");
        let terms = election.run_terms("me", |term| {
            tokens.push(term.token());
            let (number, sandbox) = (tokens.len(), &sandbox);
            async move {
                match number {
                    1 => {
                        assert!(sandbox.lose("e"));
                        term.lost().await;
                        std::future::pending().await
                    }
                    2 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(number),
                }
            }
        });
        assert_eq!(terms.await.unwrap(), 3);
        assert!(tokens.is_sorted() && tokens.len() == 3, "{tokens:?}");
    });
}

#[test]
fn an_error_that_stays_ends_the_terms() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        sandbox.refuse_next(&client, ErrorKind::Denied);
        let election = client.election("e");
        let terms = election.run_terms("me", async |_| ControlFlow::<()>::Continue(())).await;
        assert_eq!(terms.unwrap_err().kind(), ErrorKind::Denied);
    });
}

#[test]
fn a_lock_in_doubt_is_held_again_after_its_renewal() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let guard = client.fair_lock("x").lock().await.unwrap();
        let told = async { guard.state_changed(GuardState::Held).await };
        let (told, any) = tokio::join!(told, async { sandbox.suspect("x") });
        assert!(any);
        assert_eq!(told, GuardState::Suspect);
        assert!(guard.ensure_valid().is_ok(), "a lock in doubt still protects");
        let (state, after) = next_state(&guard).await;
        assert_eq!(state, GuardState::Held);
        about(after, s(10));
        assert!(!sandbox.suspect("y"));
    });
}

#[test]
fn a_client_that_is_cut_off_loses_its_locks() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let (near, far) = (sandbox.client(), sandbox.client());
        let guard = far.fair_lock("x").lock().await.unwrap();
        let waiter = wait_behind(&near.fair_lock("x"), 1).await;
        sandbox.cut_off(&far);
        assert_eq!(*far.connection().borrow(), ConnectionState::Reconnecting);
        assert_eq!(*near.connection().borrow(), ConnectionState::Connected);
        assert_eq!(guard.state(), GuardState::Suspect);
        assert_eq!(far.ping().await.unwrap_err().kind(), ErrorKind::Unavailable);
        let (state, after) = next_state(&guard).await;
        assert_eq!(state, GuardState::Lost);
        about(after, s(30));
        let next = waiter.await.unwrap().unwrap();
        assert!(next.token() > guard.token());
        assert_eq!(guard.release().await.unwrap(), Release::Lost);

        // The store timeout passes in no real time as well.
        let began = Instant::now();
        let error = far.fair_lock("x").lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        about(began.elapsed(), s(30));

        sandbox.restore(&far);
        assert_eq!(*far.connection().borrow(), ConnectionState::Connected);
        let waiter = wait_behind(&far.fair_lock("x"), 1).await;
        let _ = next.release().await.unwrap();
        let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_short_cut_costs_nothing() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let (near, far) = (sandbox.client(), sandbox.client());
        let held = far.fair_lock("held").lock().await.unwrap();
        let other = near.fair_lock("waited").lock().await.unwrap();
        let waiter = wait_behind(&far.fair_lock("waited"), 1).await;
        let behind = wait_behind(&near.fair_lock("waited"), 2).await;
        sandbox.cut_off(&far);
        sleep(s(4)).await;
        assert_eq!(held.state(), GuardState::Suspect);
        sandbox.restore(&far);
        assert_eq!(next_state(&held).await.0, GuardState::Held);
        // It has kept its place.
        let _ = other.release().await.unwrap();
        let first = waiter.await.unwrap().unwrap();
        assert!(!behind.is_finished());
        let _ = first.release().await.unwrap();
        let _ = behind.await.unwrap().unwrap().release().await.unwrap();
    });
}

/// A waiter that was cut off counts as dead for the others: it delays them by seconds, and returns
/// to its place.
#[test]
fn a_waiter_that_is_cut_off_is_passed() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let (near, far) = (sandbox.client(), sandbox.client());
        let guard = near.fair_lock("x").lock().await.unwrap();
        let gone = wait_behind(&far.fair_lock("x"), 1).await;
        let behind = wait_behind(&near.fair_lock("x"), 2).await;
        sandbox.cut_off(&far);
        sleep(s(10)).await;
        let released = Instant::now();
        let _ = guard.release().await.unwrap();
        let guard = behind.await.unwrap().unwrap();
        assert!(released.elapsed() < s(1), "{:?}", released.elapsed());
        sandbox.restore(&far);
        sleep(s(1)).await;
        let _ = guard.release().await.unwrap();
        let _ = gone.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn an_attempt_can_be_refused() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let (one, two) = (sandbox.client(), sandbox.client());
        sandbox.refuse_next(&one, ErrorKind::Denied);
        assert!(two.fair_lock("x").try_lock().await.unwrap().is_some());
        let error = one.fair_lock("x").lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(one.fair_lock("x").try_lock().await.unwrap().is_some());
    });
}

#[test]
fn settings_hold_for_all_its_clients() {
    paused(|| async {
        let sandbox = Sandbox::with_config(Config::memory().store_timeout(s(3)));
        let client = sandbox.client();
        sandbox.cut_off(&client);
        let began = Instant::now();
        assert!(client.fair_lock("x").lock().await.is_err());
        about(began.elapsed(), s(3));
    });
}

/// Nothing may wait for background work that would have to run on the waiting thread itself.
#[test]
fn dropping_everything_does_not_block() {
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let guard = client.fair_lock("x").lock().await.unwrap();
        let began = std::time::Instant::now();
        sandbox.cut_off(&client);
        drop(guard); // its release cannot be told to the store
        drop(client);
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        drop(sandbox);
    });
}

/// The feature may be enabled for a whole workspace: outside a sandbox, clients use the real clock.
#[test]
fn clients_elsewhere_keep_the_real_clock() {
    let lease = Duration::from_millis(400);
    let real = async move || {
        let client = Client::connect("memory:").await.unwrap();
        let guard = client.fair_lock("x").lease(lease).lock().await.unwrap();
        let began = std::time::Instant::now();
        assert_eq!(guard.state(), GuardState::Held);
        assert!(guard.remaining() <= lease);
        guard.lost().await;
        let lasted = began.elapsed();
        assert!(lasted > lease / 2 && lasted < lease + s(2), "{lasted:?}");
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    paused(|| async {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        let guard = client.fair_lock("x").lock().await.unwrap();
        sleep(s(3_600)).await;
        std::thread::spawn(move || runtime().block_on(real())).join().unwrap();
        assert_eq!(guard.state(), GuardState::Held);
    });
    // Also on the same thread, once the sandbox's runtime is gone.
    runtime().block_on(real());
}

#[test]
#[should_panic(expected = "current_thread")]
fn a_runtime_of_many_threads_is_refused() {
    tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(async {
        let _sandbox = Sandbox::new();
    });
}
