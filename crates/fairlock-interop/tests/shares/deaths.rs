use std::path::Path;
use std::time::{Duration, Instant};

use fairlock::{Client, Guard, Release};
use fairlock_interop::java::{Java, JavaOwner};
use fairlock_interop::worker::{Asks, Worker};

use super::Theirs;
use crate::deaths::{WORKER_LEASE, doomed};
use crate::fixture::{Fixture, measured, ms, run, soon, until};

/// How late the next holder may be after the end of a lease, on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);
/// The lease of Java's that die.
const JAVA_LEASE_MS: i64 = 1500;

async fn worker(fixture: &Fixture, lock: &str, asks: Asks) -> Worker {
    let program = Path::new(env!("CARGO_BIN_EXE_fairlock-interop"));
    Worker::asking(program, &fixture.server.url(), lock, WORKER_LEASE, asks).await
}

async fn owner_in(java: &Java, fixture: &Fixture) -> JavaOwner {
    java.client(fixture.server.addr(), Default::default()).await.owner("t").await
}

async fn waits(rust: &Client, lock: &str, writes: bool) -> tokio::task::JoinHandle<Guard> {
    let lock = rust.rw_lock(lock);
    let turn = if writes { lock.enqueue_write().await } else { lock.enqueue_read().await };
    let mut turn = turn.unwrap();
    tokio::spawn(async move { turn.wait().await.unwrap() })
}

/// A JVM dies that writes one lock and reads another. Ours and Java's that wait are served when its
/// leases end.
#[test]
fn java_dies_that_writes_and_that_reads() {
    run(|fixture| async move {
        let (rust, java, doomed) = (fixture.rust().await, fixture.java().await, doomed(&fixture));
        let dies = owner_in(&doomed, &fixture).await;
        let (written, read) = (Theirs::new(&dies, "written"), Theirs::new(&dies, "read"));
        let asked = Instant::now();
        written.writes.lock_for(JAVA_LEASE_MS).value().await;
        read.reads.lock_for(JAVA_LEASE_MS).value().await;
        let held = Instant::now();
        let (reading, writing) =
            (waits(&rust, "written", false).await, waits(&rust, "read", true).await);
        let behind = Theirs::new(&java.owner("behind").await, "written");
        let reads_too = behind.reads.lock();
        doomed.kill9();
        let lease = ms(JAVA_LEASE_MS.unsigned_abs());
        for (what, waiting) in [("a dead writer", reading), ("a dead reader", writing)] {
            let guard = soon(waiting).await.unwrap();
            let took = held.elapsed();
            measured(&format!("ours behind {what} of Java, lease {lease:?}: {took:?}"));
            // Either lease began between the two. A server that counts milliseconds may end it one early.
            assert!(took < lease + SLACK, "{what}: {took:?}");
            assert!(asked.elapsed() + ms(1) >= lease, "{what}: {:?}", asked.elapsed());
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        reads_too.value().await;
        behind.reads.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// A process of ours dies that writes one lock and reads another.
#[test]
fn ours_dies_that_writes_and_that_reads() {
    run(|fixture| async move {
        let java = fixture.java().await;
        let writes = worker(&fixture, "written", Asks::Write).await;
        let reads = worker(&fixture, "read", Asks::Read).await;
        until("they hold", || {
            !fixture.holds("written").is_empty() && !fixture.holds("read").is_empty()
        })
        .await;
        let behind = Theirs::new(&java.owner("written").await, "written");
        let (reading, writing) =
            (behind.reads.lock(), Theirs::new(&java.owner("read").await, "read").writes.lock());
        fixture.waiting("written", 1).await;
        fixture.waiting("read", 1).await;
        writes.kill9();
        reads.kill9();
        let killed = Instant::now();
        reading.value().await;
        writing.value().await;
        let took = killed.elapsed();
        measured(&format!("Java behind dead ones of ours, lease {WORKER_LEASE:?}: {took:?}"));
        assert!(took < WORKER_LEASE + SLACK, "{took:?}");
    });
}

/// Waiters die: ours in the line, before ours that live, and Java's, which no line knows.
#[test]
fn waiters_die() {
    run(|fixture| async move {
        let (rust, java, doomed) = (fixture.rust().await, fixture.java().await, doomed(&fixture));
        let holder = Theirs::new(&java.owner("h").await, "job");
        holder.reads.lock().value().await;
        let head = worker(&fixture, "job", Asks::Write).await;
        let middle = worker(&fixture, "job", Asks::Read).await;
        let _dies = Theirs::new(&owner_in(&doomed, &fixture).await, "job").writes.lock();
        fixture.waiting("job", 3).await;
        let writing = waits(&rust, "job", true).await;
        let theirs = Theirs::new(&java.owner("w").await, "job");
        let call = theirs.writes.lock();
        head.kill9();
        middle.kill9();
        doomed.kill9();
        let unlocked = Instant::now();
        holder.reads.unlock().value().await;
        // In either order: Java's waiters stand in no line.
        let ours = async {
            let guard = soon(writing).await.unwrap();
            let took = unlocked.elapsed();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            took
        };
        let theirs = async {
            call.value().await;
            theirs.writes.unlock().value().await;
        };
        let (took, _) = tokio::join!(ours, theirs);
        measured(&format!("ours past dead waiters of both sides: {took:?}"));
        assert!(took < Duration::from_secs(4), "{took:?}: a heartbeat, and slack");
        assert!(fixture.holds("job").is_empty());
    });
}
