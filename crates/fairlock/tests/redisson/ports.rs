//! Redisson's own tests of its plain and fair locks, in our words, in which a Java client takes
//! part or the server fails. Those that make sense on every store are in `contract/redisson.rs`.

use super::fixture::tuned;
use crate::faults::fixture::{Fixture, LEASE, SLACK, eventually, measured, ms, steady};
use fairlock::{ConnectionState, ErrorKind, GuardState, Lock, Release};
use fairlock_testkit::redisson::{
    DEFAULT_WAIT_MS, JavaClient, WATCHDOG_LEASE_MS, channel_of, queue_key,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any wait here lasts on any machine.
const LONG: Duration = Duration::from_secs(20);

/// A Java thread with a lock that is either fair or plain.
struct JavaLock {
    java: JavaClient,
    name: &'static str,
    is_fair: bool,
}

impl JavaLock {
    fn new(fixture: &Fixture, name: &'static str, is_fair: bool) -> Self {
        Self { java: JavaClient::new(&fixture.server, 0), name, is_fair }
    }

    fn owner(&self) -> String {
        self.java.owner(1)
    }

    fn try_lock(&mut self) -> bool {
        if self.is_fair {
            self.java.try_acquire(self.name, 1, WATCHDOG_LEASE_MS)
        } else {
            self.java.plain_acquire(self.name, 1, WATCHDOG_LEASE_MS).is_none()
        }
    }

    /// Waits as Java does, until it holds the lock.
    fn lock(&mut self, lease_ms: i64) {
        if self.is_fair {
            assert!(self.java.acquire_within(self.name, 1, DEFAULT_WAIT_MS, lease_ms, LONG));
            return;
        }
        let mut subscription = self.java.plain_subscribe(self.name);
        while let Some(ttl_ms) = self.java.plain_acquire(self.name, 1, lease_ms) {
            subscription.woken_within(ms(u64::try_from(ttl_ms).unwrap_or(0)));
        }
    }

    fn unlock(&mut self) -> Option<i64> {
        if self.is_fair {
            self.java.unlock(self.name, 1)
        } else {
            self.java.plain_unlock(self.name, 1)
        }
    }
}

async fn both_kinds(fixture: &Fixture) -> [(Lock, JavaLock); 2] {
    let client = fixture.client().await;
    [
        (client.fair_lock("fair"), JavaLock::new(fixture, "fair", true)),
        (client.plain_lock("plain"), JavaLock::new(fixture, "plain", false)),
    ]
}

/// The holder enters its lock again; the other side is refused until the last release; and nobody
/// but the holder can unlock. First ours holds the lock, then Java.
#[test]
fn reentry_and_ownership_beside_java() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for (lock, mut java) in both_kinds(&fixture).await {
            let outer = lock.lock().await.unwrap();
            let inner = outer.reenter().await.unwrap();
            assert!(!java.try_lock());
            assert_eq!(java.unlock(), None, "an exception: it does not hold the lock");
            assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
            assert!(!java.try_lock(), "still held once");
            assert_eq!(outer.release().await.unwrap(), Release::Released);

            assert!(java.try_lock() && java.try_lock());
            let holder = lock.holder().await.unwrap().unwrap();
            assert_eq!((holder.owner.to_string(), holder.count), (java.owner(), 2));
            assert!(lock.try_lock().await.unwrap().is_none());
            assert_eq!(java.unlock(), Some(0));
            assert!(lock.try_lock().await.unwrap().is_none(), "still held once");
            assert_eq!(java.unlock(), Some(1));
            let _ = lock.try_lock().await.unwrap().expect("free").release().await.unwrap();
        }
    });
}

/// A lease ends and the other side gets in at once; the late unlock by the first holder has no
/// effect, and does not touch the second.
#[test]
fn an_expired_lease_beside_java() {
    const LEASE_MS: i64 = 400;
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for (lock, mut java) in both_kinds(&fixture).await {
            // Java's lease ends while ours waits.
            let began = Instant::now();
            java.lock(LEASE_MS);
            let guard = tokio::time::timeout(LONG, lock.lock()).await.unwrap().unwrap();
            let took = began.elapsed();
            measured("a Java lease of 400 ms, to our grant", took);
            assert!(took >= ms(390) && took < ms(400 + 300) + SLACK, "{took:?}");
            assert_eq!(java.unlock(), None, "an exception");
            guard.ensure_valid().unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);

            // Our lease ends while Java waits.
            let began = Instant::now();
            let guard = lock.clone().lease(ms(400)).lock().await.unwrap();
            java.lock(WATCHDOG_LEASE_MS);
            let took = began.elapsed();
            measured("a lease of ours of 400 ms, to Java's hold", took);
            assert!(took >= ms(390) && took < ms(400) + SLACK, "{took:?}");
            assert_eq!(guard.state(), GuardState::Lost);
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
            assert_eq!(java.unlock(), Some(1), "untouched by that");
        }
    });
}

/// Java and ours increment one counter, each with clients of its own, and the result is exact.
#[test]
fn java_and_ours_count_together() {
    const EACH: u64 = 3;
    const ROUNDS: u64 = 10;
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        for (name, is_fair) in [("fair", true), ("plain", false)] {
            let counter = Arc::new(AtomicU64::new(0));
            // Increments are lost unless only one thread at a time reads and writes.
            let count = |counter: &AtomicU64| {
                let seen = counter.load(Ordering::Relaxed);
                thread::yield_now();
                counter.store(seen + 1, Ordering::Relaxed);
            };
            let mut threads = Vec::new();
            let mut tasks = Vec::new();
            for _ in 0..EACH {
                let mut java = JavaLock::new(&fixture, name, is_fair);
                let own = Arc::clone(&counter);
                threads.push(thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        java.lock(WATCHDOG_LEASE_MS);
                        count(&own);
                        assert_eq!(java.unlock(), Some(1));
                    }
                }));
                let client = fixture.client().await;
                let lock = if is_fair { client.fair_lock(name) } else { client.plain_lock(name) };
                let own = Arc::clone(&counter);
                tasks.push(tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        let guard = lock.lock().await.unwrap();
                        count(&own);
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                }));
            }
            let began = Instant::now();
            for task in tasks {
                tokio::time::timeout(LONG, task).await.expect("its turns").unwrap();
            }
            eventually("Java's turns", LONG, || threads.iter().all(|java| java.is_finished()));
            threads.into_iter().for_each(|java| java.join().unwrap());
            measured(&format!("sixty turns, {name}"), began.elapsed());
            assert_eq!(counter.load(Ordering::Relaxed), 2 * EACH * ROUNDS);
            assert_eq!((fixture.holder(name), fixture.queue(name)), (None, vec![]));
        }
    });
}

/// Java and ours alternate in one queue, each with a lease, and nobody ever unlocks: all get the
/// lock, in the order of their arrival.
#[test]
fn leases_that_nobody_ends_beside_java() {
    const PAIRS: usize = 3;
    const LEASE_MS: u64 = 300;
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let lease = ms(LEASE_MS);
        let held = fixture.hold(client.fair_lock("job").lease(lease + lease)).await;
        let served = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (mut came, mut threads, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let before = fixture.queue("job");
            let mut java = JavaLock::new(&fixture, "job", true);
            came.push(java.owner());
            let own = Arc::clone(&served);
            threads.push(thread::spawn(move || {
                java.lock(i64::try_from(LEASE_MS).unwrap());
                own.lock().unwrap().push(java.owner());
            }));
            eventually("Java stands in line", SLACK, || {
                fixture.queue("job").len() == before.len() + 1
            });
            let before = fixture.queue("job");
            let (lock, own) = (client.fair_lock("job").lease(lease), Arc::clone(&served));
            places.push(tokio::spawn(async move {
                let guard = lock.try_lock_for(LONG).await.unwrap().expect("its turn");
                own.lock().unwrap().push(guard.owner().to_string());
                guard
            }));
            eventually("ours stands in line", SLACK, || {
                fixture.queue("job").len() == before.len() + 1
            });
            came.push(fixture.queue("job").pop().unwrap());
        }
        let began = Instant::now();
        let mut guards = Vec::new();
        for place in places {
            guards.push(tokio::time::timeout(LONG, place).await.expect("its turn").unwrap());
        }
        threads.into_iter().for_each(|java| java.join().unwrap());
        measured("six leases of 300 ms after the first of 600 ms", began.elapsed());
        assert_eq!(*served.lock().unwrap(), came);
        assert_eq!(held.release().await, Release::Lost);
        // The last one may still hold the lock.
        guards.pop();
        for guard in guards {
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
        }
    });
}

/// The server is gone: a request for a lock gets an error, and does not hang.
#[test]
fn a_server_that_is_gone_is_an_error() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = tuned(&fixture, |config| config.store_timeout(ms(500))).await;
        let _ = fixture.take(&client, "warm").await.release().await;
        fixture.server.kill9();
        // Wait until the client notices: a request that is sent before, on a broken connection, has
        // an unknown outcome.
        let mut connection = client.connection();
        let noticed = connection.wait_for(|state| *state == ConnectionState::Reconnecting);
        tokio::time::timeout(LONG, noticed).await.expect("it notices").unwrap();
        for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
            let began = Instant::now();
            let lock = lock.lease(2 * LEASE);
            let result = tokio::time::timeout(LONG, lock.try_lock_for(5 * LEASE)).await;
            let error = result.expect("it hangs").unwrap_err();
            measured("a server that is gone, with a store timeout of 500 ms", began.elapsed());
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(began.elapsed() < ms(500) + 2 * SLACK);
        }
    });
}

/// A wait that is shorter than the store timeout also ends with an error: silence does not mean
/// that the lock is held. It used to end as "not in time".
#[test]
fn a_short_wait_for_a_server_that_is_gone_is_an_error() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let _ = fixture.take(&client, "warm").await.release().await;
        fixture.server.kill9();
        let mut connection = client.connection();
        let noticed = connection.wait_for(|state| *state == ConnectionState::Reconnecting);
        tokio::time::timeout(LONG, noticed).await.expect("it notices").unwrap();
        let locks =
            [client.fair_lock("fair"), client.plain_lock("plain"), client.simple_lock("simple")];
        for lock in locks {
            let began = Instant::now();
            let error = lock.try_lock_for(ms(100)).await.unwrap_err();
            measured("a short wait for a server that is gone", began.elapsed());
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(began.elapsed() < ms(100) + SLACK);
        }
    });
}

/// The server restarts twice in a row, and comes back without the lock. The release reports the
/// loss, and the next hold of that name is renewed like any other.
#[test]
fn renewal_goes_on_after_a_restart() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
            let guard = lock.lock().await.unwrap();
            for _ in 0..2 {
                fixture.server.kill9();
                fixture.server.restart();
            }
            tokio::time::timeout(LEASE + SLACK, guard.lost()).await.expect("the loss");
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
            let guard = tokio::time::timeout(LONG, lock.lock()).await.unwrap().unwrap();
            let lost = tokio::time::timeout(2 * LEASE, guard.lost()).await;
            assert!(lost.is_err(), "it was not renewed");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    });
}

/// Java builds its keys from a mapped name, with or without braces. A client that uses the mapped
/// name shares the queue, and is woken on its channel.
#[test]
fn mapped_names_share_a_queue() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.seldom().await;
        for name in ["prod:stock", "{prod}:stock", "prod:{stock}:7", "a}b"] {
            let guard = client.fair_lock(name).lock().await.unwrap();
            let mut java = JavaClient::new(&fixture.server, 0);
            assert!(java.acquire(name, 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
            let mut wakes_java = java.subscribe(name, 1);
            let lock = client.fair_lock(name);
            let behind = tokio::spawn(async move { lock.lock().await.unwrap() });
            let queue = || fixture.call(&["LRANGE", &queue_key(name), "0", "-1"]).array().to_vec();
            eventually("both stand in one queue", SLACK, || queue().len() == 2);
            assert_eq!(queue()[0].text(), java.owner(1));
            let ours = queue()[1].text().to_owned();
            let _ = guard.release().await.unwrap();
            assert!(wakes_java.woken_within(SLACK), "{name}");
            assert!(java.acquire(name, 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
            // Java will tell the next waiter on the channel that it knows.
            eventually("it listens there", SLACK, || {
                fixture.listeners(&channel_of(name, &ours)) == 1
            });
            assert_eq!(java.unlock(name, 1), Some(1));
            let guard = tokio::time::timeout(SLACK, behind).await.expect("woken").unwrap();
            let _ = guard.release().await.unwrap();
        }
    });
}
