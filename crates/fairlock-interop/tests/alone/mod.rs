//! Situations in which Redisson alone fails, but not with a fairlock client present: both halves
//! with Redisson's own jars.
//!
//! Both halves of a test run concurrently, each on its own server. Where Redisson alone takes
//! minutes, or never ends, the clocks of its server and of its JVM are moved together ([`Moved`]):
//! every score and TTL is judged by them, so only the sleeping of threads is skipped.
//!
//! - `dead_head`: a dead Java head, and the polling behind it
//! - `no_score`: a member of the list without a score
//! - `dropped`: live waiters that are judged dead
//! - `unheard`: lost messages, and the polling behind a waiter that missed one
//! - `our_dead`: the reverse, what dead clients of ours cost Java

mod dead_head;
mod dropped;
mod no_score;
mod our_dead;
mod unheard;

use std::cell::Cell;
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use fairlock_interop::java::{Call, Java};
use fairlock_interop::version::Version;
use fairlock_testkit::server::Server;

use crate::fixture::{Fixture, block_on, generation, ms, until};

/// A heartbeat of ours, which is the cost of a lost message, plus slack for a busy machine.
const HEARTBEAT: Duration = Duration::from_millis(2500);
/// How long a free lock is kept for a dead Java head, plus a heartbeat and slack for a busy
/// machine.
const PAST_A_DEAD_HEAD: Duration = Duration::from_secs(12);
/// More than any waiter sends, and a small fraction of what one sends in a tight loop: thousands
/// per second, or some hundreds on a busy machine.
const FULL_SPEED: u64 = 150;
/// More than waiters send per second when Java is present, and a small fraction of [`FULL_SPEED`].
const CALM: u64 = 30;
/// The interval over which scripts are counted.
const WINDOW: Duration = Duration::from_millis(400);

/// A server and a JVM whose wall clocks the test moves together.
struct Moved {
    fixture: Fixture,
    by: Cell<Duration>,
}

impl Moved {
    /// Returns `None`, with a message, where something is missing.
    fn open() -> Option<Self> {
        let java = Java::with_clock(Version::of_environment())?;
        let server = Server::builder(generation()).clock_shim(true).start()?;
        Some(Self { fixture: Fixture { server, java }, by: Cell::default() })
    }

    /// Advances the clocks at once, then lets all waiters that do not sleep ask again.
    async fn pass(&self, time: Duration) {
        self.jump(time);
        tokio::time::sleep(ms(200)).await;
    }

    fn jump(&self, time: Duration) {
        let by = self.by.get() + time;
        self.by.set(by);
        let by_us = i64::try_from(by.as_micros()).unwrap();
        self.server.clock().set_offset(by_us);
        self.java.clock().set_offset(by_us);
    }
}

impl Deref for Moved {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

/// Runs a test of two halves: on a server and a JVM with true clocks, and on ones that can be
/// moved.
fn both<F: Future<Output = ()>>(test: impl FnOnce(Fixture, Moved) -> F) {
    let Some(java) = Java::shared() else { return };
    let Some(alone) = Moved::open() else { return };
    let Some(server) = Server::start(generation()) else { return };
    block_on(test(Fixture { server, java }, alone));
}

/// Scripts per second, extrapolated from a fraction of one.
async fn scripts_per_second(fixture: &Fixture) -> u64 {
    let (before, began) = (fixture.server.script_calls(), std::time::Instant::now());
    tokio::time::sleep(WINDOW).await;
    let calls = fixture.server.script_calls() - before;
    (calls as f64 / began.elapsed().as_secs_f64()) as u64
}

/// Waits until Java polls in a tight loop, and returns its rate.
async fn at_full_speed(fixture: &Fixture) -> u64 {
    let deadline = std::time::Instant::now() + fairlock_interop::java::SOON;
    loop {
        let per_second = scripts_per_second(fixture).await;
        if per_second > FULL_SPEED {
            // Measure once more, over a whole interval.
            return scripts_per_second(fixture).await.max(per_second);
        }
        assert!(std::time::Instant::now() < deadline, "{per_second} scripts a second");
    }
}

/// How far in the future the score of a waiter is.
fn score_ahead(fixture: &Fixture, lock: &str, owner: &str) -> i64 {
    let scores = fixture.scores(lock);
    let found = scores.iter().find(|(member, _)| member == owner);
    found.unwrap_or_else(|| panic!("{owner} has no score: {scores:?}")).1
}

/// Waits until a Java thread listens to its channel.
async fn listens(fixture: &Fixture, lock: &str, owner: &str) {
    let channel = format!("redisson_lock__channel:{{{lock}}}:{owner}");
    until("it listens", || fixture.listeners(&channel) == 1).await;
}

/// Asserts that the lock is free and that this call still waits.
#[track_caller]
fn assert_blocked(fixture: &Fixture, lock: &str, call: &mut Call) {
    assert!(!call.is_over(), "it waits");
    assert_eq!(fixture.hold(lock), None, "and the lock is free");
}
