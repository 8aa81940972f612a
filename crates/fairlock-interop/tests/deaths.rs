//! Processes of either side are killed and frozen while they hold or wait.

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock_interop::java::Java;
use fairlock_interop::version::Version;
use fairlock_interop::worker::Worker;

use crate::fixture::{Fixture, measured, ms, run, soon, until};

/// How long a free lock is kept for a Java head that is not listening.
const PATIENCE: Duration = Duration::from_secs(8);
/// A heartbeat of ours with its jitter, plus slack for a busy machine.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// The lease of a worker's lock.
pub(crate) const WORKER_LEASE: Duration = Duration::from_secs(3);

async fn worker(fixture: &Fixture, lock: &str) -> Worker {
    let program = Path::new(env!("CARGO_BIN_EXE_fairlock-interop"));
    Worker::start(program, &fixture.server.url(), lock, WORKER_LEASE).await
}

/// A JVM to be killed.
pub(crate) fn doomed(fixture: &Fixture) -> Java {
    Java::start(fixture.version()).expect("the shared one runs")
}

async fn owner_in(java: &Java, fixture: &Fixture) -> fairlock_interop::java::JavaOwner {
    java.client(fixture.server.addr(), Default::default()).await.owner("t").await
}

#[test]
fn a_java_holder_dies() {
    run(|fixture| async move {
        let (rust, java, doomed) =
            (fixture.rust().await, fixture.java_owner().await, doomed(&fixture));
        owner_in(&doomed, &fixture).await.fair("a").lock_for(1500).value().await;
        let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        let call = java.fair("a").lock();
        fixture.queued("a", &[&turn.owner().to_string(), &java.id]).await;
        let left = ms(u64::try_from(fixture.pttl("a")).unwrap());
        doomed.kill9();
        let killed = Instant::now();
        let guard = soon(turn.wait()).await.unwrap();
        let took = killed.elapsed();
        measured(&format!(
            "after the lease of a dead Java holder: {:?}",
            took.saturating_sub(left)
        ));
        assert!(took < left + ms(1000), "{took:?} for a lease of {left:?}");
        let _ = guard.release().await.unwrap();
        call.value().await;
        java.fair("a").unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// Redisson alone would wait for the score of the dead head, which is minutes away.
#[test]
fn java_waiters_die_at_the_head_and_in_the_middle() {
    run(|fixture| async move {
        let (rust, doomed) = (fixture.rust().await, doomed(&fixture));
        let (head, middle) = (owner_in(&doomed, &fixture).await, owner_in(&doomed, &fixture).await);
        let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
        let _dies = head.fair("a").lock();
        fixture.queued("a", &[&head.id]).await;
        let mut first = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        let _dies = middle.fair("a").lock();
        let first_id = first.owner().to_string();
        fixture.queued("a", &[&head.id, &first_id, &middle.id]).await;
        let mut second = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        doomed.kill9();

        let released = Instant::now();
        let _ = guard.release().await.unwrap();
        let guard = soon(first.wait()).await.unwrap();
        measured(&format!("past a dead Java head: {:?}", released.elapsed()));
        assert!(released.elapsed() < PATIENCE + HEARTBEAT, "{:?}", released.elapsed());
        assert!(released.elapsed() > PATIENCE - ms(1000), "it might have been about to subscribe");
        // The one in the middle, behind a head that was passed over, later becomes the head itself.
        let released = Instant::now();
        let _ = guard.release().await.unwrap();
        let guard = soon(second.wait()).await.unwrap();
        assert!(released.elapsed() < PATIENCE + HEARTBEAT, "{:?}", released.elapsed());
        let _ = guard.release().await.unwrap();
        // What dead Java waiters leave is for Java to remove.
        assert_eq!(fixture.queue("a"), [head.id, middle.id]);
    });
}

/// A holder and all before the last die at once, ten of each side. The cost is that of one death of
/// each kind.
#[test]
fn many_die_at_once() {
    run(|fixture| async move {
        const EACH: usize = 10;
        let (rust, doomed) = (fixture.rust().await, doomed(&fixture));
        let holder = worker(&fixture, "a").await;
        until("the worker holds it", || fixture.holder("a").as_ref() == Some(&holder.owner)).await;
        let client = doomed.client(fixture.server.addr(), Default::default()).await;
        let (mut workers, mut calls, mut queue) = (vec![holder], Vec::new(), Vec::new());
        for n in 0..EACH {
            let java = client.owner(&format!("t{n}")).await;
            calls.push(java.fair("a").lock());
            queue.push(java.id);
            fixture.queued("a", &queue).await;
            workers.push(worker(&fixture, "a").await);
            queue.push(workers[n + 1].owner.clone());
        }
        let mut last = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        queue.push(last.owner().to_string());
        fixture.queued("a", &queue).await;
        doomed.kill9();
        workers.into_iter().for_each(Worker::kill9);
        let killed = Instant::now();
        let guard = soon(last.wait()).await.unwrap();
        let took = killed.elapsed();
        measured(&format!("past a dead holder and {} dead waiters: {took:?}", 2 * EACH));
        assert!(took < WORKER_LEASE + PATIENCE + HEARTBEAT, "{took:?}");
        assert_eq!(fixture.hold("a"), Some((guard.owner().to_string(), 1)));
        let _ = guard.release().await.unwrap();
        drop(calls);
    });
}

#[test]
fn a_rust_holder_dies() {
    run(|fixture| async move {
        let java = fixture.java_owner().await;
        let worker = worker(&fixture, "a").await;
        until("the worker holds it", || fixture.holder("a").as_ref() == Some(&worker.owner)).await;
        let call = java.fair("a").lock();
        fixture.queued("a", &[&java.id]).await;
        let killed = Instant::now();
        worker.kill9();
        call.value().await;
        let took = killed.elapsed();
        measured(&format!("Java behind a dead holder of ours, lease {WORKER_LEASE:?}: {took:?}"));
        assert!(took < WORKER_LEASE + ms(1500), "{took:?}");
        assert_eq!(fixture.hold("a"), Some((java.id.clone(), 1)));
        java.fair("a").unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// While any client of ours uses the lock, dead ones of ours cost Java at most a heartbeat.
#[test]
fn rust_waiters_die_at_the_head_and_in_the_middle() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (holder, one, two) =
            (java.owner("h").await, java.owner("1").await, java.owner("2").await);
        holder.fair("a").lock().value().await;
        let head = worker(&fixture, "a").await;
        let first = one.fair("a").lock();
        fixture.queued("a", &[&head.owner, &one.id]).await;
        let middle = worker(&fixture, "a").await;
        let second = two.fair("a").lock();
        fixture.queued("a", &[&head.owner, &one.id, &middle.owner, &two.id]).await;
        let mut last = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        head.kill9();
        middle.kill9();

        let unlocked = Instant::now();
        holder.fair("a").unlock().value().await;
        first.value().await;
        measured(&format!("Java past a dead head of ours: {:?}", unlocked.elapsed()));
        assert!(unlocked.elapsed() < HEARTBEAT, "{:?}", unlocked.elapsed());
        let unlocked = Instant::now();
        one.fair("a").unlock().value().await;
        second.value().await;
        measured(&format!("Java past a dead waiter of ours: {:?}", unlocked.elapsed()));
        assert!(unlocked.elapsed() < HEARTBEAT, "{:?}", unlocked.elapsed());
        two.fair("a").unlock().value().await;
        let _ = soon(last.wait()).await.unwrap().release().await.unwrap();
        assert_eq!((fixture.queue("a"), fixture.hold("a")), (vec![], None));
    });
}

/// A frozen JVM receives nothing but stays subscribed: the lock is kept for it, and it continues in
/// its place.
#[test]
fn a_frozen_java_head_keeps_its_turn() {
    run(|fixture| async move {
        // The message sent to it while it was frozen may be the last that it gets for minutes.
        if fixture.version() == Version::V3_16 {
            fixture.skipped("its waiters sleep for minutes");
            return;
        }
        let (rust, frozen) = (fixture.rust().await, doomed(&fixture));
        let owner = owner_in(&frozen, &fixture).await;
        let guard = soon(rust.fair_lock("a").lock()).await.unwrap();
        let call = owner.fair("a").lock();
        fixture.queued("a", &[&owner.id]).await;
        let channel = format!("redisson_lock__channel:{{a}}:{}", owner.id);
        until("it listens", || fixture.listeners(&channel) == 1).await;
        let mut turn = soon(rust.fair_lock("a").enqueue()).await.unwrap();
        frozen.stop();
        let _ = guard.release().await.unwrap();
        assert!(turn.wait_for(ms(1500)).await.unwrap().is_none());
        assert_eq!(fixture.hold("a"), None);
        frozen.cont();
        call.value().await;
        assert_eq!(fixture.hold("a"), Some((owner.id.clone(), 1)));
        owner.fair("a").unlock().value().await;
        let _ = soon(turn.wait()).await.unwrap().release().await.unwrap();
        fixture.nothing_left().await;
    });
}
