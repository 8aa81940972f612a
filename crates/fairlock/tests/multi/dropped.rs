//! The cancellation driver of [`crate::cancel`] for several locks at once, where a call takes real time: on a server, on
//! the slots of a Cluster, and on the host store. In memory, poll by poll: [`super::cancelled`].

use crate::cancel::poll_n;
use crate::support::{At, Store, poll_once, run};
use fairlock::{Client, Config, MultiLock, Release};
use fairlock_testkit::server::Generation;
use std::time::{Duration, Instant};

/// Polls before the drop: 0, 1, 2, ... up to this, and once until the call returns.
const POLLS_MAX: usize = 16;

/// What a case leaves behind disappears within this time (it takes milliseconds).
const CLEAN_WITHIN: Duration = Duration::from_secs(6);

/// No grant that nobody took ends by itself before that.
const HEARTBEAT: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Free,
    /// Somebody else has one of them for as long as the call lives.
    Held,
    /// The call waits with some of them, and the holder of the last releases while it is polled.
    Granting,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Lock,
    TryLock,
    LockFor,
    With,
    Release,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    number: usize,
    start: Start,
    call: Call,
    /// `None`: until it returns.
    polls: Option<usize>,
    pause: Duration,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (call, starts) in [
        (Call::Lock, &[Start::Free, Start::Held, Start::Granting][..]),
        (Call::TryLock, &[Start::Free, Start::Held]),
        (Call::LockFor, &[Start::Held, Start::Granting]),
        (Call::With, &[Start::Free, Start::Granting]),
        (Call::Release, &[Start::Free]),
    ] {
        for start in starts {
            let ends = matches!(call, Call::TryLock) || *start != Start::Held;
            let all = (0..=POLLS_MAX).map(Some).chain(ends.then_some(None));
            for polls in all {
                for pause in [0, 40, 150].map(Duration::from_micros) {
                    let number = cases.len();
                    cases.push(Case { number, start: *start, call, polls, pause });
                }
            }
        }
    }
    cases
}

async fn call(lock: &MultiLock, call: Call) {
    match call {
        Call::Lock => drop(lock.lock().await.unwrap()),
        Call::TryLock => drop(lock.try_lock().await.unwrap()),
        Call::LockFor => drop(lock.try_lock_for(Duration::from_secs(60)).await.unwrap()),
        Call::With => {
            let done = lock.with(async |held| held.ensure_valid().unwrap()).await.unwrap();
            assert_eq!(done.release, Release::Released);
        }
        Call::Release => {
            let guard = lock.lock().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }
}

/// Returns whether the call returned.
async fn play(case: Case, holder: &Client, caller: &Client) -> bool {
    // By slot: `b`, `c`, `d`, `a`. Half of the cases have names of one slot.
    let tag = if case.number.is_multiple_of(2) { "{t}" } else { "" };
    let names = ["d", "b", "a", "c"].map(|name| format!("{tag}{name}{}", case.number));
    let lock = caller.multi_lock(&names).unwrap();
    let last = names
        .iter()
        .max_by_key(|name| (fairlock_core::slot(name.as_bytes()), name.as_bytes().to_vec()));
    let last = holder.fair_lock(last.unwrap());
    let mut held = match case.start {
        Start::Free => None,
        Start::Held | Start::Granting => Some(last.lock().await.unwrap()),
    };
    let mut work = Box::pin(call(&lock, case.call));
    if case.start == Start::Granting {
        let deadline = Instant::now() + CLEAN_WITHIN;
        while last.inspect().await.unwrap().queue_len == 0 {
            assert!(poll_once(&mut work).await.is_none(), "{case:?}");
            assert!(Instant::now() < deadline, "{case:?} does not wait");
        }
        let held = held.take().unwrap();
        tokio::spawn(async move { held.release().await.unwrap() });
    }
    let ended = poll_n(work, case.polls, case.pause).await.is_some();
    drop(held);
    let deadline = Instant::now() + CLEAN_WITHIN;
    for name in &names {
        loop {
            let seen = holder.fair_lock(name).inspect().await.unwrap();
            if seen.holder.is_none() && seen.queue_len == 0 {
                break;
            }
            assert!(Instant::now() < deadline, "{case:?} leaves {seen:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    ended
}

fn every_drop_leaves_nothing(at: At) {
    /// Cases that run at the same time.
    const AT_ONCE: usize = 8;
    run(at, async |store: Store| {
        let tune = |config: Config| config.heartbeat(HEARTBEAT);
        let (holder, caller) = (store.client_with(tune).await, store.client_with(tune).await);
        let all = cases();
        let count = all.len();
        let tasks = (0..AT_ONCE).map(|first| {
            let own: Vec<_> = all.iter().copied().skip(first).step_by(AT_ONCE).collect();
            let (holder, caller) = (holder.clone(), caller.clone());
            tokio::spawn(async move {
                let mut ended = 0;
                for case in own {
                    ended += usize::from(play(case, &holder, &caller).await);
                }
                ended
            })
        });
        let mut ended = 0;
        for task in tasks.collect::<Vec<_>>() {
            ended += task.await.unwrap();
        }
        println!("{count} cases: {ended} returned");
        assert!(count - ended > count / 4, "{ended} of {count} returned");
    });
}

#[test]
fn every_drop_leaves_nothing_on_a_server() {
    every_drop_leaves_nothing(At::Server(Generation::Redis70));
}

#[test]
fn every_drop_leaves_nothing_on_a_cluster() {
    every_drop_leaves_nothing(At::Cluster(Generation::Redis70));
}

#[cfg(feature = "sqlite")]
#[test]
fn every_drop_leaves_nothing_on_the_host_store() {
    every_drop_leaves_nothing(At::Host);
}
