//! What the tests share: a server, clients of both sides, and access to the keys.

use std::future::Future;
use std::io::Write as _;
use std::time::{Duration, Instant};

use fairlock::{Client, Config};
use fairlock_interop::java::{Java, JavaClient, JavaOwner, SOON, Settings};
use fairlock_interop::version::Version;
use fairlock_testkit::raw::outlives_users;
use fairlock_testkit::redisson::{queue_key, timeout_key};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::wait;

/// Time limit of each test. Rounds give up on an answer after 40 s, and report it.
const LIMIT: Duration = Duration::from_secs(120);

/// What the keys of our read-write locks begin with.
const SHARES: &str = "fairlock_rw_";

/// A server of this test, and the JVM shared by all tests.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) java: Java,
}

/// Runs one test, unless Java, Redisson or the server is missing.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    let Some(java) = Java::shared() else { return };
    run_on(java, test);
}

/// Like [`run`], with a separate JVM.
pub(crate) fn run_on<F: Future<Output = ()>>(java: Java, test: impl FnOnce(Fixture) -> F) {
    let Some(server) = Server::start(generation()) else { return };
    block_on(test(Fixture { server, java }));
}

/// Runs a test to its end, within [`LIMIT`].
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, test).await.expect("the test hangs");
    });
}

fn runtime_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn generation() -> Generation {
    let Some(name) = runtime_variable("FAIRLOCK_INTEROP_SERVER") else {
        return Generation::Redis70;
    };
    let found = Generation::ALL.into_iter().find(|generation| generation.name() == name);
    found.unwrap_or_else(|| panic!("no server {name} in FAIRLOCK_INTEROP_SERVER"))
}

impl Fixture {
    pub(crate) fn version(&self) -> Version {
        self.java.version()
    }

    pub(crate) async fn rust(&self) -> Client {
        self.rust_with(|config| config).await
    }

    pub(crate) async fn rust_with(&self, tune: impl FnOnce(Config) -> Config) -> Client {
        let config = tune(Config::from_url(&self.server.url()).unwrap());
        Client::with_config(config).await.unwrap()
    }

    pub(crate) async fn java(&self) -> JavaClient {
        self.java.client(self.server.addr(), Settings::default()).await
    }

    /// Reports, bypassing the test harness, that this version cannot play the running test or a
    /// part of it.
    pub(crate) fn skipped(&self, why: &str) {
        skipped(self.version(), why);
    }

    pub(crate) async fn java_with_watchdog(&self, watchdog: Duration) -> JavaClient {
        let settings = Settings { watchdog, ..Settings::default() };
        self.java.client(self.server.addr(), settings).await
    }

    /// Another server with the same JVM, for a concurrent half of the test.
    pub(crate) fn beside(&self) -> Self {
        let server = Server::start(generation()).expect("there is one already");
        Self { server, java: self.java.clone() }
    }

    /// A thread of a separate client.
    pub(crate) async fn java_owner(&self) -> JavaOwner {
        self.java().await.owner("t").await
    }

    pub(crate) fn call(&self, command: &[&str]) -> Value {
        self.server.client().call(command)
    }

    /// How many connections are subscribed to a channel.
    pub(crate) fn listeners(&self, channel: &str) -> i64 {
        self.server.client().listeners(channel)
    }

    /// The waiting owners, the head first.
    pub(crate) fn queue(&self, lock: &str) -> Vec<String> {
        texts(&self.call(&["LRANGE", &queue_key(lock), "0", "-1"]))
    }

    /// The owners with a score, and how many milliseconds it is ahead of the server's time.
    pub(crate) fn scores(&self, lock: &str) -> Vec<(String, i64)> {
        let set = self.call(&["ZRANGE", &timeout_key(lock), "0", "-1", "WITHSCORES"]);
        let now = self.call(&["TIME"]);
        let now = now.array().iter().map(|part| part.text().parse::<i64>().unwrap());
        let now_ms =
            now.zip([1_000_000, 1]).map(|(part, micros)| part * micros).sum::<i64>() / 1000;
        let pairs = set.array().chunks(2);
        pairs
            .map(|pair| (pair[0].text().to_owned(), pair[1].text().parse::<f64>().unwrap()))
            .map(|(owner, score)| (owner, score as i64 - now_ms))
            .collect()
    }

    /// The holder, and its hold count.
    pub(crate) fn hold(&self, lock: &str) -> Option<(String, i64)> {
        let hash = self.call(&["HGETALL", lock]);
        match hash.array() {
            [] => None,
            [owner, count] => Some((owner.text().to_owned(), count.text().parse().unwrap())),
            other => panic!("a hold of one owner, not {other:?}"),
        }
    }

    pub(crate) fn holder(&self, lock: &str) -> Option<String> {
        self.hold(lock).map(|(owner, _)| owner)
    }

    pub(crate) fn pttl(&self, lock: &str) -> i64 {
        self.call(&["PTTL", lock]).int()
    }

    /// Waits until exactly these owners are in the queue, and compares its two keys.
    #[track_caller]
    pub(crate) fn queued(
        &self,
        lock: &str,
        owners: &[impl AsRef<str>],
    ) -> impl Future<Output = ()> {
        let owners: Vec<_> = owners.iter().map(|owner| owner.as_ref().to_owned()).collect();
        let location = std::panic::Location::caller();
        // Both at one moment: Java may remove somebody in between.
        let look =
            "return {redis.call('LRANGE', KEYS[1], 0, -1), redis.call('ZRANGE', KEYS[2], 0, -1)}";
        async move {
            let (mut in_list, mut in_set) = (Vec::new(), Vec::new());
            until(&format!("the queue of {location}"), || {
                let both = self.call(&["EVAL", look, "2", &queue_key(lock), &timeout_key(lock)]);
                (in_list, in_set) = (texts(&both.array()[0]), texts(&both.array()[1]));
                in_list == owners
            })
            .await;
            in_list.sort();
            in_set.sort();
            assert_eq!(in_list, in_set, "list and scores have the same members ({location})");
        }
    }

    /// Waits until nothing is left of locks that all have left, except their tokens and the records
    /// of live clients. If Java was last, the keys that only ours use end by their TTL, because
    /// Java cannot delete them; the next client of ours does.
    pub(crate) async fn nothing_left(&self) {
        let only_ours = |key: &str| {
            ["fairlock_order:", "fairlock_state:", "fairlock_beats:", SHARES]
                .iter()
                .any(|prefix| key.starts_with(prefix))
        };
        until("no key but those of ours that Java leaves", || {
            self.left().iter().all(|key| only_ours(key))
        })
        .await;
        let ours = self.left();
        for key in &ours {
            assert!((1..=66_000).contains(&self.pttl(key)), "{key} ends in time");
        }
        let rust = self.rust().await;
        for key in ours {
            let (_, rest) = key.split_once('{').expect("a derived key");
            let name = rest.trim_end_matches('}');
            if key.starts_with(SHARES) {
                let guard = rust.rw_lock(name).try_write().await.unwrap();
                let _ = guard.expect("it is free").release().await.unwrap();
                continue;
            }
            let guard = rust.fair_lock(name).try_lock().await.unwrap();
            let _ = guard.expect("it is free").release().await.unwrap();
        }
        let deadline = Instant::now() + SOON;
        while !self.left().is_empty() {
            assert!(Instant::now() < deadline, "left behind: {:?}", self.left());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Like [`Fixture::nothing_left`], after requests were given up whose copies may be in flight:
    /// their burials are kept for 36 s.
    pub(crate) async fn nothing_left_but_burials(&self) {
        for key in self.call(&["KEYS", "fairlock_buried:*"]).array() {
            assert!((1..=36_000).contains(&self.pttl(key.text())), "{key:?} ends in time");
            self.call(&["DEL", key.text()]);
        }
        self.nothing_left().await;
    }

    /// Keys that must not remain.
    fn left(&self) -> Vec<String> {
        let keys = self.call(&["KEYS", "*"]);
        let mut left: Vec<_> = keys.array().iter().map(|key| key.text().to_owned()).collect();
        left.retain(|key| {
            let stays = outlives_users(key)
                || key.starts_with("fairlock_client:")
                // 3.52.0 deletes the wrong key after an unlock; this one ends by its TTL.
                || (self.version() == Version::V3_52
                    && key.starts_with("redisson_unlock_latch:"));
            !stays
        });
        left
    }
}

/// An array of texts.
pub(crate) fn texts(array: &Value) -> Vec<String> {
    array.array().iter().map(|text| text.text().to_owned()).collect()
}

/// Says that the running test, or what is left of it, makes no sense on this version.
pub(crate) fn skipped(version: Version, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    say(&format!("SKIPPED on Redisson {version}: {test}: {why}"));
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn until(
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> impl Future<Output = Duration> {
    wait::until_async(what, SOON, async move || condition())
}

/// Waits until no client sends scripts any more, so that all waiters are asleep.
pub(crate) async fn settled(fixture: &Fixture) {
    let mut seen = (0, Instant::now());
    until("nobody asks any more", || {
        let calls = fixture.server.script_calls();
        if calls != seen.0 {
            seen = (calls, Instant::now());
        }
        seen.1.elapsed() > ms(20)
    })
    .await;
}

/// Waits for the result, which must arrive within [`SOON`].
#[track_caller]
pub(crate) fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let location = std::panic::Location::caller();
    async move {
        let result = tokio::time::timeout(SOON, future).await;
        result.unwrap_or_else(|_| panic!("not within {SOON:?} ({location})"))
    }
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Prints a figure, bypassing the test harness, which hides the output of passing tests.
pub(crate) fn measured(text: &str) {
    say(&format!("measured: {text}"));
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
