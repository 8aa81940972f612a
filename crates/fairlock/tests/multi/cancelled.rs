//! Every call on several locks is dropped after every number of polls. Nothing of it may be left.

use crate::support::{poll_once, run_paused};
use fairlock::test_util::Sandbox;
use fairlock::{Client, MultiLock, Release};
use std::pin::Pin;
use std::time::Duration;

/// More than any of these calls needs.
const POLLS_MAX: usize = 16;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum Start {
    Free,
    /// Somebody else has this one, for as long as the call lives.
    Held(&'static str),
    /// The same, and it is released while the call waits.
    Granting(&'static str),
    /// One that the call may have already is taken away meanwhile.
    Losing(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Lock,
    TryLock,
    LockFor,
    Leased,
    With,
    Release,
}

fn begin(call: Call, lock: &MultiLock) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    let (wait, leased) = (Duration::from_secs(5), lock.clone().lease(Duration::from_secs(9)));
    match call {
        Call::Lock => Box::pin(async { drop(lock.lock().await.unwrap()) }),
        Call::TryLock => Box::pin(async { drop(lock.try_lock().await.unwrap()) }),
        Call::LockFor => Box::pin(async move { drop(lock.try_lock_for(wait).await.unwrap()) }),
        Call::Leased => Box::pin(async move { drop(leased.lock().await.unwrap()) }),
        Call::With => Box::pin(async {
            // A loss is an error.
            let _ = lock.with(async |_| tokio::task::yield_now().await).await;
        }),
        Call::Release => Box::pin(async {
            let outcome = lock.lock().await.unwrap().release().await.unwrap();
            assert!(matches!(outcome, Release::Released | Release::Lost));
        }),
    }
}

async fn case(start: Start, call: Call, polls: usize, pause: Duration) {
    let sandbox = Sandbox::new();
    let (holder, caller): (Client, Client) = (sandbox.client(), sandbox.client());
    let mut held = match start {
        Start::Free => None,
        Start::Held(name) | Start::Granting(name) | Start::Losing(name, _) => {
            Some(holder.fair_lock(name).lock().await.unwrap())
        }
    };
    let lock = caller.multi_lock(NAMES).unwrap();
    let mut future = begin(call, &lock);
    for poll in 0..polls {
        match start {
            Start::Granting(_) if poll == polls.saturating_sub(2) => drop(held.take()),
            Start::Losing(_, lost) if poll == polls / 2 => _ = sandbox.lose(lost),
            _ => {}
        }
        if poll_once(&mut future).await.is_some() {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    drop(future);
    drop(held);
    let what = format!("{start:?} {call:?} after {polls} polls with {pause:?}");
    // Well before any lease ends.
    let all = holder.multi_lock(NAMES).unwrap();
    let clean = tokio::time::timeout(Duration::from_secs(1), all.lock()).await;
    drop(clean.unwrap_or_else(|_| panic!("{what}: it is held")).unwrap());
    // Paused time goes on when nothing is left to do: what the caller's client still has under way is over then.
    tokio::time::sleep(Duration::from_millis(1)).await;
    for name in NAMES {
        let seen = holder.fair_lock(name).inspect().await.unwrap();
        assert_eq!((seen.holder, seen.queue_len), (None, 0), "{what}: {name}");
    }
}

#[test]
fn nothing_is_left_of_a_call_that_is_dropped_after_any_number_of_polls() {
    let starts = [
        Start::Free,
        Start::Held("b"),
        Start::Held("a"),
        Start::Granting("b"),
        Start::Granting("a"),
        Start::Losing("a", "b"),
    ];
    for start in starts {
        for call in
            [Call::Lock, Call::TryLock, Call::LockFor, Call::Leased, Call::With, Call::Release]
        {
            for polls in 0..POLLS_MAX {
                for pause in [Duration::ZERO, Duration::from_millis(1)] {
                    run_paused(case(start, call, polls, pause));
                }
            }
        }
    }
}
