//! docs/redisson-tests.md lists them. Each is played both ways: the side that Java's test has in one
//! client is ours in one half and Java's in the other. Times are a fifth of Redisson's.

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock::{Client, GuardState, Release};
use fairlock_interop::version::Version;
use fairlock_interop::worker::{Asks, Worker};

use super::Theirs;
use crate::deaths::{WORKER_LEASE, doomed};
use crate::fixture::{Fixture, measured, ms, run, soon, until};

/// How late a waiter may be after the end of what it waits for, on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

/// One reader, of either side.
struct Reader {
    ours: Option<fairlock::ReadGuard>,
    theirs: Option<Theirs>,
}

impl Reader {
    async fn with_lease(
        fixture: &Fixture,
        rust: &Client,
        is_java: bool,
        lock: &str,
        ms: u64,
    ) -> Self {
        if is_java {
            let theirs = Theirs::new(&fixture.java_owner().await, lock);
            theirs.reads.lock_for(i64::try_from(ms).unwrap()).value().await;
            return Self { ours: None, theirs: Some(theirs) };
        }
        let ours = rust.rw_lock(lock).lease(Duration::from_millis(ms));
        Self { ours: Some(soon(ours.read()).await.unwrap()), theirs: None }
    }

    async fn release(self) {
        if let Some(guard) = self.ours {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        if let Some(theirs) = self.theirs {
            theirs.reads.unlock().value().await;
        }
    }
}

/// Waits to write, on the given side, and returns how long that took. It releases.
async fn writes(fixture: &Fixture, rust: &Client, is_java: bool, lock: &str) -> Duration {
    let began = Instant::now();
    if is_java {
        let theirs = Theirs::new(&fixture.java_owner().await, lock);
        theirs.writes.lock().value().await;
        let took = began.elapsed();
        theirs.writes.unlock().value().await;
        return took;
    }
    let guard = soon(rust.rw_lock(lock).write()).await.unwrap();
    let took = began.elapsed();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    took
}

/// Who is Java: the long reader, the short one, the writer. All of one side are Redisson's business,
/// or tests of our own.
const SIDES: [(bool, bool, bool); 6] = [
    (true, true, false),
    (true, false, true),
    (true, false, false),
    (false, true, true),
    (false, true, false),
    (false, false, true),
];

/// 32: of two readers the one with a short lease leaves. The writer comes in when the long lease of the
/// other ends, which nobody releases.
#[test]
fn a_writer_waits_for_the_long_lease_when_the_short_reader_has_left() {
    run(|fixture| async move {
        let rust = fixture.rust().await;
        for (n, (long, short, writer)) in SIDES.into_iter().enumerate() {
            let lock = format!("job{n}");
            let asked = Instant::now();
            let _long = Reader::with_lease(&fixture, &rust, long, &lock, 1200).await;
            let read = Instant::now();
            let short = Reader::with_lease(&fixture, &rust, short, &lock, 400).await;
            let _ = short.release().await;
            writes(&fixture, &rust, writer, &lock).await;
            let took = read.elapsed();
            assert!(asked.elapsed() + ms(1) >= ms(1200), "{n}: {:?}", asked.elapsed());
            assert!(took < ms(1200) + SLACK, "{n}: {took:?}");
        }
    });
}

/// 33: readers with leases of 10 s and 3 s, and nobody releases. The writer comes in after the first.
#[test]
fn a_writer_waits_for_the_longest_of_the_leases() {
    run(|fixture| async move {
        let rust = fixture.rust().await;
        for (n, (long, short, writer)) in SIDES.into_iter().enumerate() {
            let lock = format!("job{n}");
            let read = Instant::now();
            let _long = Reader::with_lease(&fixture, &rust, long, &lock, 1500).await;
            let _short = Reader::with_lease(&fixture, &rust, short, &lock, 500).await;
            writes(&fixture, &rust, writer, &lock).await;
            let took = read.elapsed();
            assert!(took + ms(1) >= ms(1500), "{n}: {took:?}");
            assert!(took < ms(1500) + SLACK, "{n}: {took:?}");
        }
    });
}

/// 34: a writer also reads, and then writes no more. Others read only from then on, and nobody writes
/// before its own read has ended.
#[test]
fn a_writer_reads_and_reads_on() {
    run(|fixture| async move {
        let (rust, java) = (fixture.rust().await, fixture.java().await);
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java.owner("t").await, "job"));
        theirs.writes.lock().value().await;
        theirs.reads.lock().value().await;
        assert!(ours.try_read().await.unwrap().is_none());
        assert!(ours.try_write().await.unwrap().is_none());
        let waiting = tokio::spawn({
            let ours = ours.clone();
            async move { ours.read().await.unwrap() }
        });
        fixture.waiting("job", 1).await;
        theirs.writes.unlock().value().await;
        // Java tells nobody of this: ours look.
        let reading = soon(waiting).await.unwrap();
        assert!(ours.try_write().await.unwrap().is_none());
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        assert!(ours.try_write().await.unwrap().is_none(), "it reads on");
        theirs.reads.unlock().value().await;
        let writing = ours.try_write().await.unwrap().expect("it is free");
        assert_eq!(writing.release().await.unwrap(), Release::Released);

        // The same of ours: an owner that writes enters what it has, and a writer may read on.
        let owned = ours.clone().owned_by(&rust.owner());
        let writing = soon(owned.write()).await.unwrap();
        let reading = soon(owned.read()).await.unwrap();
        assert!(!theirs.reads.try_lock().is_true().await);
        assert_eq!(reading.release().await.unwrap(), Release::StillHeld(1));
        assert!(!theirs.reads.try_lock().is_true().await);
        let call = theirs.reads.lock();
        fixture.waiting("job", 1).await;
        let reading = writing.downgrade().await.unwrap();
        call.value().await;
        assert!(!theirs.writes.try_lock().is_true().await);
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        assert!(ours.try_write().await.unwrap().is_none(), "Java reads on");
        theirs.reads.unlock().value().await;
        assert!(theirs.writes.try_lock().is_true().await);
        theirs.writes.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// 35: what writes and reads is renewed, and what reads on alone is, too. Redisson's test releases the
/// write hold first. With the read hold first, 3.52 and 4.7 renew Java's write hold no more, and it is
/// lost; ours is renewed.
#[test]
fn both_halves_are_renewed() {
    run(|fixture| async move {
        const LEASE: Duration = Duration::from_millis(2100);
        const LONGER: Duration = Duration::from_millis(3200);
        let rust = fixture.rust_with(|config| config.watchdog_lease(LEASE)).await;
        let java = fixture.java_with_watchdog(LEASE).await.owner("t").await;
        let (ours, theirs) = (rust.rw_lock("job"), Theirs::new(&java, "job"));
        theirs.writes.lock().value().await;
        theirs.reads.lock().value().await;
        let mut writing = soon(ours.enqueue_write()).await.unwrap();
        assert!(writing.wait_for(LONGER).await.unwrap().is_none());
        theirs.writes.unlock().value().await;
        // Before 3.17.1 it is not renewed from here on.
        if fixture.version() != Version::V3_16 {
            assert!(writing.wait_for(LONGER).await.unwrap().is_none());
            assert!(theirs.reads.is_mine().is_true().await);
            theirs.reads.unlock().value().await;
        }
        let guard = soon(writing.wait()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);

        theirs.writes.lock().value().await;
        theirs.reads.lock().value().await;
        theirs.reads.unlock().value().await;
        let mut writing = soon(ours.enqueue_write()).await.unwrap();
        let lost = writing.wait_for(LONGER).await.unwrap();
        measured(&format!(
            "Redisson {}, a write hold after its nested read is lost: {}",
            fixture.version(),
            lost.is_some()
        ));
        if let Some(guard) = lost {
            let exception = theirs.writes.unlock().exception().await;
            assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        } else {
            theirs.writes.unlock().value().await;
            let guard = soon(writing.wait()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }

        let owned = ours.clone().owned_by(&rust.owner());
        let guard = soon(owned.write()).await.unwrap();
        let nested = soon(owned.read()).await.unwrap();
        assert_eq!(nested.release().await.unwrap(), Release::StillHeld(1));
        let mut call = theirs.writes.lock();
        assert!(call.answer_within(LONGER).await.is_none());
        let guard = guard.downgrade().await.unwrap();
        assert!(call.answer_within(LONGER).await.is_none());
        assert_eq!(guard.state(), GuardState::Held);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        call.value().await;
        theirs.writes.unlock().value().await;
        fixture.nothing_left().await;
    });
}

/// 36: a reader crashes, another lives and is renewed. When that one leaves, the crashed one keeps no
/// writer out, once its time is over: at once if Java's leaves, and for the rest of the last renewal if
/// ours does, because no client of ours removes what another client holds.
#[test]
fn a_reader_that_crashed_does_not_block_a_writer() {
    run(|fixture| async move {
        const LEASE: Duration = Duration::from_millis(2100);
        let rust = fixture.rust_with(|config| config.watchdog_lease(LEASE)).await;
        let lives = fixture.java_with_watchdog(LEASE).await.owner("t").await;
        // Java's has crashed, and ours lives; a writer of Java's waits.
        let doomed = doomed(&fixture);
        let crashed = doomed.client(fixture.server.addr(), Default::default()).await;
        let crashed = Theirs::new(&crashed.owner("t").await, "java");
        crashed.reads.lock_for(2100).value().await;
        let guard = soon(rust.rw_lock("java").read()).await.unwrap();
        doomed.kill9();
        // One of ours has crashed, and Java's lives; ours waits to write.
        let program = Path::new(env!("CARGO_BIN_EXE_fairlock-interop"));
        let url = fixture.server.url();
        let worker = Worker::asking(program, &url, "ours", WORKER_LEASE, Asks::Read).await;
        until("it reads", || !fixture.holds("ours").is_empty()).await;
        let theirs = Theirs::new(&lives, "ours");
        theirs.reads.lock().value().await;
        worker.kill9();

        tokio::time::sleep(WORKER_LEASE + LEASE).await;
        assert_eq!(guard.state(), GuardState::Held);
        assert!(theirs.reads.is_mine().is_true().await);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        theirs.reads.unlock().value().await;
        let (java, ours) = tokio::join!(
            writes(&fixture, &rust, true, "java"),
            writes(&fixture, &rust, false, "ours")
        );
        measured(&format!("past a reader that crashed: Java {java:?}, ours {ours:?}"));
        assert!(java < LEASE + SLACK && ours < SLACK, "{java:?}, {ours:?}");
    });
}

/// 19: a server that starts without its data takes both halves away. The unlock says so, and the next
/// holds of the same name are renewed, twice in a row.
#[test]
fn halves_are_renewed_after_a_restart() {
    run(|fixture| async move {
        const LEASE: Duration = Duration::from_millis(2100);
        let rust = fixture.rust_with(|config| config.watchdog_lease(LEASE)).await;
        let java = fixture.java_with_watchdog(LEASE).await;
        let (ours, owner) = (rust.rw_lock("job"), java.owner("t").await);
        let theirs = Theirs::new(&owner, "job");
        for _ in 0..2 {
            theirs.reads.lock().value().await;
            let reading = soon(ours.read()).await.unwrap();
            fixture.call(&["FLUSHALL"]);
            soon(reading.lost()).await;
            assert_eq!(reading.release().await.unwrap(), Release::Lost);
            // Before 3.44 it says nothing about a lock that is not there.
            if fixture.version() != Version::V3_16 {
                let exception = theirs.reads.unlock().exception().await;
                assert!(exception.contains("IllegalMonitorStateException"), "{exception}");
            }

            let writing = soon(ours.write()).await.unwrap();
            let mut call = theirs.writes.lock();
            assert!(call.answer_within(2 * LEASE).await.is_none(), "ours is renewed");
            assert_eq!(writing.release().await.unwrap(), Release::Released);
            call.value().await;
            let mut reading = soon(ours.enqueue_read()).await.unwrap();
            assert!(reading.wait_for(2 * LEASE).await.unwrap().is_none(), "Java's is renewed");
            theirs.writes.unlock().value().await;
            let guard = soon(reading.wait()).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        fixture.nothing_left().await;
    });
}
