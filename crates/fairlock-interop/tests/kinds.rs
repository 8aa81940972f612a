//! Kinds of Redisson locks, and forms of its calls, that other tests do not cover.

use std::time::{Duration, Instant};

use fairlock::{ErrorKind, Release};
use fairlock_interop::java::Kind;

use crate::fixture::{measured, ms, run, soon, until};

/// How often a plain waiter of ours asks without being notified.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A spin lock neither receives nor sends notifications: it polls, and ours ask by themselves.
#[test]
fn a_spin_lock_waits_for_ours_and_ours_for_it() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let (ours, theirs) = (rust.plain_lock("a"), java.lock(Kind::Spin, "a"));
        for _ in 0..3 {
            let guard = soon(ours.lock()).await.unwrap();
            let mut call = theirs.lock();
            assert!(call.answer_within(ms(100)).await.is_none(), "it is held");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            call.value().await;
            assert_eq!(fixture.hold("a"), Some((java.id.clone(), 1)));

            let waiting = tokio::spawn({
                let ours = ours.clone();
                async move { ours.lock().await.unwrap() }
            });
            tokio::time::sleep(ms(100)).await;
            let unlocked = Instant::now();
            theirs.unlock().value().await;
            let guard = soon(waiting).await.unwrap();
            let took = unlocked.elapsed();
            measured(&format!("ours after the unlock of a spin lock: {took:?}"));
            assert!(took < HEARTBEAT + ms(500), "{took:?}");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}

/// With `poll` ours look that often. Heartbeats are a minute apart, so nothing else finds the lock free.
#[test]
fn ours_look_at_a_spin_lock_as_often_as_they_say() {
    run(|fixture| async move {
        let rust = fixture.rust_with(|config| config.heartbeat(Duration::from_secs(60))).await;
        let java = fixture.java_owner().await;
        let (ours, theirs) = (rust.plain_lock("a").poll(ms(50)), java.lock(Kind::Spin, "a"));
        for _ in 0..3 {
            theirs.lock().value().await;
            let waiting = tokio::spawn({
                let ours = ours.clone();
                async move { ours.lock().await.unwrap() }
            });
            until("it listens", || fixture.listeners("redisson_lock__channel:{a}") == 1).await;
            let unlocked = Instant::now();
            theirs.unlock().value().await;
            let guard = soon(waiting).await.unwrap();
            measured(&format!("ours with a poll of 50 ms: {:?}", unlocked.elapsed()));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}

/// Java refuses its own second entry; the first one stays, also for ours. In the queue it is a fair
/// waiter like any other. Ours do the same if they are asked to.
#[test]
fn a_lock_that_cannot_be_re_entered_is_held_once() {
    run(|fixture| async move {
        if !fixture.version().has_non_reentrant() {
            eprintln!("SKIPPED on {:?}: it has no non-reentrant locks", fixture.version());
            return;
        }
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for kind in [Kind::NonReentrant, Kind::NonReentrantFair] {
            let is_fair = kind == Kind::NonReentrantFair;
            let ours = if is_fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            let theirs = java.lock(kind, "a");
            let own = ours.clone().owned_by(&rust.owner()).non_reentrant();
            let guard = soon(own.lock()).await.unwrap();
            assert_eq!(own.lock().await.unwrap_err().kind(), ErrorKind::AlreadyHeld);
            assert_eq!(fixture.hold("a"), Some((guard.owner().to_string(), 1)));
            let call = theirs.lock();
            if is_fair {
                fixture.queued("a", &[&java.id]).await;
            }
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            call.value().await;
            let exception = theirs.lock().exception().await;
            assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
            assert_eq!(fixture.hold("a"), Some((java.id.clone(), 1)));
            assert!(ours.try_lock().await.unwrap().is_none());
            theirs.unlock().value().await;
            let guard = soon(ours.lock()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}

/// An asynchronous call waits without a thread; its owner is the thread that made it.
#[test]
fn asynchronous_calls_wait_and_are_served_like_others() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        for kind in [Kind::Fair, Kind::Plain] {
            let ours = if kind == Kind::Fair { rust.fair_lock("a") } else { rust.plain_lock("a") };
            let theirs = java.lock(kind, "a");
            let asynchronous = [
                ("lockAsync()", theirs.lock_async()),
                ("lockAsync(lease)", theirs.call("lockAsync", &[20_000])),
                ("tryLockAsync(wait, lease)", theirs.try_lock_for_async(10_000, Some(20_000))),
                ("tryLockAsync(wait)", theirs.try_lock_for_async(10_000, None)),
            ];
            // One owner that requests the lock four times enters once and counts four.
            for (what, call) in asynchronous {
                let value = call.value().await;
                assert!(value == "-" || value == "true", "{what}: {value}");
            }
            assert_eq!(fixture.hold("a"), Some((java.id.clone(), 4)));
            assert!(ours.try_lock().await.unwrap().is_none());
            for _ in 0..4 {
                theirs.unlock_async().value().await;
            }
            let guard = soon(ours.lock()).await.unwrap();
            assert!(!theirs.call("tryLockAsync", &[]).is_true().await);
            let mut call = theirs.lock_async();
            assert!(call.answer_within(ms(50)).await.is_none(), "it is held");
            let waiting = tokio::spawn({
                let ours = ours.clone();
                async move { ours.lock().await.unwrap() }
            });
            if kind == Kind::Fair {
                until("two wait", || fixture.queue("a").len() == 2).await;
            }
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            if kind == Kind::Fair {
                call.value().await;
                assert_eq!(fixture.hold("a"), Some((java.id.clone(), 1)));
                theirs.unlock_async().value().await;
                assert_eq!(
                    soon(waiting).await.unwrap().release().await.unwrap(),
                    Release::Released
                );
            } else {
                // In either order.
                let ours = async { soon(waiting).await.unwrap().release().await.unwrap() };
                let theirs = async {
                    call.value().await;
                    theirs.unlock_async().value().await
                };
                assert_eq!(tokio::join!(ours, theirs).0, Release::Released);
            }
        }
        fixture.nothing_left().await;
    });
}
