//! Waiters of either side that give up harm no one.

use std::time::Instant;

use fairlock::Release;
use fairlock_interop::java::{Call, JavaLock};

use crate::fixture::{Fixture, measured, ms, run, settled, soon, until};

/// A way to wait in Java for 300 ms.
type Timed = fn(&JavaLock) -> Call;

const TIMED: [(&str, Timed); 4] = [
    ("tryLock(wait, lease)", |lock| lock.try_lock_for(300, Some(5000))),
    ("tryLock(wait)", |lock| lock.try_lock_for(300, None)),
    ("tryLockAsync(wait, lease)", |lock| lock.try_lock_for_async(300, Some(5000))),
    ("tryLockAsync(wait)", |lock| lock.try_lock_for_async(300, None)),
];

/// A timed Java waiter is at the head, with ours and another Java waiter behind it. It gives up and
/// takes up to five minutes from the scores of those behind it; they are served in order, and at
/// once.
#[test]
fn java_gives_up_at_the_head() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (gives_up, last) = (java.owner("g").await, java.owner("l").await);
        for (what, timed) in TIMED {
            let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
            let began = Instant::now();
            let call = timed(&gives_up.fair("a"));
            fixture.queued("a", &[&gives_up.id]).await;
            let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
            let waits = last.fair("a").lock();
            let behind = [turn.owner().to_string(), last.id.clone()];
            fixture.queued("a", &[&gives_up.id, &behind[0], &behind[1]]).await;
            assert!(!call.is_true().await, "{what}");
            assert!(began.elapsed() >= ms(290), "{what}");
            fixture.queued("a", &behind).await;
            let released = Instant::now();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            let guard = soon(turn.wait()).await.unwrap();
            assert!(released.elapsed() < ms(1000), "{what}: {:?}", released.elapsed());
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            waits.value().await;
            assert!(released.elapsed() < ms(2000), "{what}: {:?}", released.elapsed());
            last.fair("a").unlock().value().await;
        }
        fixture.nothing_left().await;
    });
}

/// The same with ours at the head: the one that gives up is between others.
#[test]
fn java_gives_up_in_the_middle() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (gives_up, last) = (java.owner("g").await, java.owner("l").await);
        for (what, timed) in TIMED {
            let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
            let mut first = soon(rust.fair_lock("a").enqueue()).await.unwrap();
            let call = timed(&gives_up.fair("a"));
            fixture.queued("a", &[first.owner().to_string(), gives_up.id.clone()]).await;
            let mut second = soon(rust.fair_lock("a").enqueue()).await.unwrap();
            let waits = last.fair("a").lock();
            let others = [first.owner().to_string(), second.owner().to_string(), last.id.clone()];
            until("four wait", || fixture.queue("a").len() == 4).await;
            assert!(!call.is_true().await, "{what}");
            fixture.queued("a", &others).await;
            let _ = guard.release().await.unwrap();
            let _ = soon(first.wait()).await.unwrap().release().await.unwrap();
            let _ = soon(second.wait()).await.unwrap().release().await.unwrap();
            waits.value().await;
            last.fair("a").unlock().value().await;
        }
        fixture.nothing_left().await;
    });
}

/// An interrupted Java thread leaves its entry behind and stops listening: others see it as dead,
/// and it costs what a dead one costs.
#[test]
fn a_java_thread_is_interrupted_at_the_head() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java_owner().await);
        let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
        let call = java.fair("a").call("lockInterruptibly", &[]);
        fixture.queued("a", &[&java.id]).await;
        let channel = format!("redisson_lock__channel:{{a}}:{}", java.id);
        let listens = || fixture.listeners(&channel) == 1;
        until("it listens", listens).await;
        // A thread interrupted while it subscribes stays subscribed.
        settled(&fixture).await;
        let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        java.interrupt().value().await;
        let exception = call.exception().await;
        assert!(exception.contains("InterruptedException"), "{exception}");
        until("it listens no more", || !listens()).await;
        assert_eq!(fixture.queue("a"), [java.id.clone(), turn.owner().to_string()]);
        let released = Instant::now();
        let _ = guard.release().await.unwrap();
        let guard = soon(turn.wait()).await.unwrap();
        let took = released.elapsed();
        measured(&format!("past an interrupted Java head: {took:?}"));
        assert!(took < ms(8000 + 2000), "{took:?}");
        let _ = guard.release().await.unwrap();
    });
}

/// Ours give up in every way, at the head and in the middle, while Java waits behind.
#[test]
fn rust_gives_up_before_java() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (one, two) = (java.owner("1").await, java.owner("2").await);
        let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
        let head = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        let first = one.fair("a").lock();
        fixture.queued("a", &[head.owner().to_string(), one.id.clone()]).await;
        let middle = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        let second = two.fair("a").lock();
        until("four wait", || fixture.queue("a").len() == 4).await;

        head.leave().await.unwrap();
        drop(middle);
        fixture.queued("a", &[one.id.clone(), two.id.clone()]).await;
        assert!(soon(rust.fair_lock("a").try_lock_for(ms(100))).await.unwrap().is_none());
        fixture.queued("a", &[one.id.clone(), two.id.clone()]).await;
        let cancelled = tokio::spawn({
            let lock = rust.fair_lock("a");
            async move { lock.lock().await.map(drop) }
        });
        until("three wait", || fixture.queue("a").len() == 3).await;
        cancelled.abort();
        fixture.queued("a", &[one.id.clone(), two.id.clone()]).await;

        let _ = guard.release().await.unwrap();
        first.value().await;
        one.fair("a").unlock().value().await;
        second.value().await;
        two.fair("a").unlock().value().await;
        fixture.nothing_left_but_burials().await;
    });
}

/// Ours is the head and gives up just as the lock becomes free: we notify Java behind it, which
/// another Java waiter would not.
#[test]
fn rust_gives_up_on_a_free_lock_and_tells_java() {
    run(|fixture: Fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (holder, waiter) = (java.owner("h").await, java.owner("w").await);
        for _ in 0..10 {
            holder.fair("a").lock().value().await;
            let turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
            let call = waiter.fair("a").lock();
            fixture.queued("a", &[turn.owner().to_string(), waiter.id.clone()]).await;
            let unlock = holder.fair("a").unlock();
            let began = Instant::now();
            drop(turn);
            unlock.value().await;
            call.value().await;
            assert!(began.elapsed() < ms(2000), "{:?}", began.elapsed());
            waiter.fair("a").unlock().value().await;
        }
        fixture.nothing_left_but_burials().await;
    });
}
