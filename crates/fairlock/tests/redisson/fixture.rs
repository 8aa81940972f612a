//! The Java half: a server and JVMs on one clock that stands still until the test moves it. And
//! helpers for our half.

use crate::faults::fixture::{Fixture, client, config, key};
use fairlock::{Client, Config};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::{
    Call, JavaClient, StoppedClock, Thread, Version, queue_key, timeout_key,
};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const LOCK: &str = "stock";
pub(super) const SECOND_MS: i64 = 1_000;
pub(super) const MINUTE_MS: i64 = 60_000;

/// The start of every scenario: in 2033, so that no real time can be mistaken for it.
const T_MS: i64 = 2_000_000_000_000;

/// A round trip in stopped time. Without it, a thread that spins would never let time pass.
const ROUND_TRIP_MS: i64 = 1;

pub(super) struct JavaFixture {
    server: Server,
    clock: StoppedClock,
    raw: RefCell<Raw>,
}

impl JavaFixture {
    /// `None`, with a message, when the server or a C compiler for its clock is not installed.
    pub(super) fn open() -> Option<Self> {
        let server = Server::builder(Generation::Redis70).clock_shim(true).start()?;
        server.clock().freeze_at(T_MS * 1_000);
        let raw = RefCell::new(server.client());
        Some(Self { server, clock: StoppedClock::at_ms(T_MS), raw })
    }

    /// A JVM on the server's time.
    pub(super) fn jvm(&self, version: Version) -> JavaClient {
        let mut java = JavaClient::new(&self.server, 0).version(version);
        java.set_clock(&self.clock, 0);
        java
    }

    /// A thread that makes a call, in a JVM of its own.
    pub(super) fn start(&self, version: Version, call: Call) -> Thread {
        Thread::start(self.jvm(version), LOCK, call)
    }

    /// Milliseconds since the start.
    pub(super) fn elapsed_ms(&self) -> i64 {
        self.clock.now_ms() - T_MS
    }

    /// Lets time pass in which nobody does anything.
    pub(super) fn pass(&self, ms: i64) {
        let now_ms = self.clock.now_ms() + ms;
        self.server.clock().freeze_at(now_ms * 1_000);
        self.clock.set_ms(now_ms);
    }

    /// Runs requests whose caller read its clock this long before the server carries them out.
    pub(super) fn on_its_way<T>(&self, ms: i64, requests: impl FnOnce() -> T) -> T {
        self.server.clock().freeze_at((self.clock.now_ms() + ms) * 1_000);
        let result = requests();
        self.pass(ms);
        result
    }

    /// Lets time pass in which the threads sleep, ask, renew and give up.
    pub(super) fn run(&self, ms: i64, threads: &mut [Thread]) {
        let end_ms = self.clock.now_ms() + ms;
        loop {
            let now_ms = self.clock.now_ms();
            let next_ms = threads.iter().filter_map(Thread::next_ms).min().unwrap_or(end_ms);
            let next_ms = next_ms.max(now_ms + ROUND_TRIP_MS).min(end_ms);
            self.pass(next_ms - now_ms);
            for thread in &mut *threads {
                thread.step();
            }
            if next_ms == end_ms {
                return;
            }
        }
    }

    pub(super) fn call(&self, args: &[&str]) -> Value {
        self.raw.borrow_mut().call(args)
    }

    pub(super) fn is_free(&self) -> bool {
        self.call(&["EXISTS", LOCK]).int() == 0
    }

    pub(super) fn queue(&self) -> Vec<String> {
        let reply = self.call(&["LRANGE", &queue_key(LOCK), "0", "-1"]);
        reply.array().iter().map(|owner| owner.text().to_owned()).collect()
    }

    /// How far a waiter's score is ahead of now, in milliseconds.
    pub(super) fn ahead_ms(&self, owner: &str) -> i64 {
        let score = self.call(&["ZSCORE", &timeout_key(LOCK), owner]);
        score.text().parse::<i64>().unwrap() - self.clock.now_ms()
    }
}

/// A client of ours that can be made to die: its connections close, and it never comes back.
pub(super) struct Mortal {
    pub(super) client: Client,
    proxy: Proxy,
}

impl Mortal {
    pub(super) async fn new(fixture: &Fixture) -> Self {
        let proxy = Proxy::start(fixture.server.addr());
        let client = client(&proxy.url()).await;
        Self { client, proxy }
    }

    /// Dies. The server has noticed by the time this returns.
    pub(super) fn dies(&self, fixture: &Fixture, owner: &str) {
        self.proxy.refuse(true);
        self.proxy.cut_all();
        fixture.notices_the_death_of(owner);
    }
}

/// A client of ours with this fair wait, like Redisson's `fairLockWaitTimeout`.
pub(super) async fn with_fair_wait(fixture: &Fixture, wait: Duration) -> Client {
    tuned(fixture, |config| config.fair_wait(wait)).await
}

pub(super) async fn tuned(fixture: &Fixture, tune: impl FnOnce(Config) -> Config) -> Client {
    Client::with_config(tune(config(&fixture.server.url()))).await.unwrap()
}

/// How far the largest score in the queue is ahead of now.
pub(super) fn furthest_score(fixture: &Fixture, name: &str) -> Duration {
    let last =
        fixture.call(&["ZREVRANGE", &key("redisson_lock_timeout", name), "0", "0", "WITHSCORES"]);
    let score_ms: u64 = last.array()[1].text().parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::from_millis(score_ms).saturating_sub(now)
}
