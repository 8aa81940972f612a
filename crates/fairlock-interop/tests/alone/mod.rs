//! Where Redisson alone fails, and does not with one of ours present: both halves with its own jars.
//!
//! Halves of one story are told at the same time, on servers of their own. Where Redisson alone takes
//! minutes, or for ever, the clocks of its server and of its JVM are moved together ([`Moved`]): every
//! score and TTL is judged by them, so only the sleeping of threads is left out.
//!
//! - `dead_head`: a dead Java head, and the polling behind it
//! - `no_score`: a member of the list without a score
//! - `dropped`: waiters that live and are judged dead
//! - `unheard`: lost messages, and the polling behind who missed one
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

/// A heartbeat of ours, which is what a lost message costs us, and what a busy machine adds.
const HEARTBEAT: Duration = Duration::from_millis(2500);
/// How long a free lock is kept for a dead Java head, a heartbeat, and what a busy machine adds.
const PAST_A_DEAD_HEAD: Duration = Duration::from_secs(12);
/// More than anybody sends who waits, and a small part of what one sends who polls without a pause: thousands in a
/// second, and on a machine that does much else some hundreds.
const FULL_SPEED: u64 = 150;
/// More than those send in a second who wait beside Java, and a small part of that.
const CALM: u64 = 30;
/// Over which time scripts are counted.
const WINDOW: Duration = Duration::from_millis(400);

/// A server and a JVM whose wall clocks the test moves, both by the same time.
struct Moved {
    fixture: Fixture,
    by: Cell<Duration>,
}

impl Moved {
    /// `None`, loudly, where something for it is missing.
    fn open() -> Option<Self> {
        let java = Java::with_clock(Version::of_environment())?;
        let server = Server::builder(generation()).clock_shim(true).start()?;
        Some(Self { fixture: Fixture { server, java }, by: Cell::default() })
    }

    /// Lets so much time pass at once, and then everybody look who does not sleep.
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

/// Runs a story of two halves: on a server and a JVM with true clocks, and on some that can be moved.
fn both<F: Future<Output = ()>>(test: impl FnOnce(Fixture, Moved) -> F) {
    let Some(java) = Java::shared() else { return };
    let Some(alone) = Moved::open() else { return };
    let Some(server) = Server::start(generation()) else { return };
    block_on(test(Fixture { server, java }, alone));
}

/// Scripts in a second, by what runs in a part of one.
async fn scripts_per_second(fixture: &Fixture) -> u64 {
    let (before, began) = (fixture.server.script_calls(), std::time::Instant::now());
    tokio::time::sleep(WINDOW).await;
    let calls = fixture.server.script_calls() - before;
    (calls as f64 / began.elapsed().as_secs_f64()) as u64
}

/// Waits until Java polls without a pause, and says how fast.
async fn at_full_speed(fixture: &Fixture) -> u64 {
    let deadline = std::time::Instant::now() + fairlock_interop::java::SOON;
    loop {
        let per_second = scripts_per_second(fixture).await;
        if per_second > FULL_SPEED {
            // Once more, from its beginning to its end.
            return scripts_per_second(fixture).await.max(per_second);
        }
        assert!(std::time::Instant::now() < deadline, "{per_second} scripts a second");
    }
}

/// How far ahead of now the score of a waiter is.
fn score_ahead(fixture: &Fixture, lock: &str, owner: &str) -> i64 {
    let scores = fixture.scores(lock);
    let found = scores.iter().find(|(member, _)| member == owner);
    found.unwrap_or_else(|| panic!("{owner} has no score: {scores:?}")).1
}

/// Waits until a thread of Java listens to its channel.
async fn listens(fixture: &Fixture, lock: &str, owner: &str) {
    let channel = format!("redisson_lock__channel:{{{lock}}}:{owner}");
    until("it listens", || fixture.listeners(&channel) == 1).await;
}

/// That nobody has got the lock, which is free, and this call goes on.
#[track_caller]
fn assert_blocked(fixture: &Fixture, lock: &str, call: &mut Call) {
    assert!(!call.is_over(), "it waits");
    assert_eq!(fixture.hold(lock), None, "and the lock is free");
}
