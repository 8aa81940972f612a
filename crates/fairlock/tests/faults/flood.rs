//! F86: messages flood every channel of a lock, ten thousand a second. None counts as a grant, each
//! waiter asks the server at most once in 50 ms except for the first few times, memory does not
//! grow, and the real grants arrive.

use super::fixture::{Fixture, SLACK, eventually, inbox, measured, steady};
use super::worker::Worker;
use fairlock::Release;
use fairlock_testkit::redisson::{DEFAULT_WAIT_MS, JavaClient, channel, channel_of};
use fairlock_testkit::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Messages a second, all channels together.
const RATE: u64 = 10_000;

/// How long each flood is observed, at least.
const LOOK: Duration = Duration::from_secs(2);

/// How many messages are observed, at least: a flood that was slower proves nothing.
const OBSERVED: u64 = RATE;

/// How many times a second a waiter asks, at most.
const ASKS_MAX: f64 = 20.0;

/// What else may be asked during each `LOOK`: heartbeats 5 s apart, renewals 20 s apart, and what a
/// plain waiter asks before it notices that it is woken for nothing.
const OTHER_MAX: f64 = 14.0;

/// A flood; it ends when it is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn begin(server: &Server, messages: Vec<(String, String)>) -> Self {
        let mut raw = server.client();
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let began = Instant::now();
        let run = {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            move || {
                let mut messages = messages.iter().cycle();
                while !stop.load(Ordering::Relaxed) {
                    let due = (began.elapsed().as_secs_f64() * RATE as f64) as u64;
                    let batch = due.saturating_sub(sent.load(Ordering::Relaxed)).min(500);
                    for (channel, payload) in messages.by_ref().take(batch as usize) {
                        raw.send(&["PUBLISH", channel, payload]);
                    }
                    for _ in 0..batch {
                        raw.read().unwrap();
                    }
                    sent.fetch_add(batch, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        Self { stop, sent, thread: Some(std::thread::spawn(run)) }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How many scripts the server was asked for in each `LOOK` of the flood.
fn asked(fixture: &Fixture, what: &str, flood: &Flood) -> f64 {
    let (calls, sent, began) = (fixture.script_calls(), flood.sent(), Instant::now());
    // This test is about time.
    std::thread::sleep(LOOK);
    eventually("enough messages", 20 * SLACK, || flood.sent() - sent >= OBSERVED);
    let (calls, took) = (fixture.script_calls() - calls, began.elapsed());
    println!(
        "measured: f86 {what}: {calls} scripts for {} messages in {took:?}",
        flood.sent() - sent
    );
    calls as f64 / took.div_duration_f64(LOOK)
}

fn allowed(waiters: f64) -> f64 {
    waiters * ASKS_MAX * LOOK.as_secs_f64() * 1.1 + OTHER_MAX
}

/// Floods the inbox of a client in a process of its own, so that its memory can be measured:
/// messages of every form, including well-formed grants.
#[test]
fn f86_a_flooded_inbox_asks_nothing_and_keeps_nothing() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let holder = fixture.seldom().await;
        let held = fixture.take(&holder, "job").await;
        let mut worker = Worker::seldom(&fixture.server);
        let owner = worker.enter(&fixture, "job");
        let (client, _) = owner.split_once(':').unwrap();
        let channel = format!("fairlock_inbox:{client}");
        let message = |n: u64| {
            let text = match n % 4 {
                0 => format!("g1 {n:032x} {} {n} 6000", 1_u64 << 52),
                1 => "0".to_owned(),
                2 => "g1 ".repeat(n as usize % 300),
                _ => format!("g1 {n:032x} {n} {} 6000", 1_u64 << 50),
            };
            (channel.clone(), text)
        };
        let flood = Flood::begin(&fixture.server, (0..1_000).map(message).collect());
        // The first messages make buffers grow to their final size.
        eventually("the flood has begun", 20 * SLACK, || flood.sent() > RATE);
        let before = worker.memory_kib();
        let calls = asked(&fixture, "inbox", &flood);
        assert!(calls <= OTHER_MAX, "{calls} scripts: an odd message is dropped, not answered");
        let grown = worker.memory_kib().saturating_sub(before);
        println!("measured: f86 inbox: the flooded process grew by {grown} KiB");
        assert!(grown < 1_024, "{grown} KiB");
        assert_eq!(fixture.holder("job"), Some(held.owner()));
        // The real grant arrives during the flood.
        let released = Instant::now();
        let _ = held.release().await;
        let line = worker.granted(&fixture, "job", 20 * SLACK);
        measured("f86 inbox: hand-over in the flood", released.elapsed());
        assert_eq!(line.owner(), owner);
        drop(flood);
        fixture.history.assert_sound();
    });
}

/// The channels that wake waiters: that of a fair waiter behind a Java client, and that of a lock
/// with plain waiters, of two clients.
#[test]
fn f86_flooded_wake_ups_are_paced() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let (one, two) = (fixture.seldom().await, fixture.seldom().await);
        let mut java = JavaClient::new(&fixture.server, 0);
        let held = fixture.take(&one, "job").await;
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, 30_000).is_some());
        let place = fixture.enter(&two, "job").await;
        let wake = channel_of("job", &place.owner);
        let listens = |channel: &str, clients: i64| {
            eventually("it listens", 10 * SLACK, || fixture.listeners(channel) == clients);
        };
        listens(&wake, 1);
        let plain = one.plain_lock("plain").lock().await.unwrap();
        let waits = [&one, &two].map(|client| {
            let lock = client.plain_lock("plain");
            // Each releases by itself: a plain lock has no order.
            tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
        });
        listens(&channel("plain"), 2);

        let zero = |channel: &str| (channel.to_owned(), "0".to_owned());
        let flood = Flood::begin(&fixture.server, vec![zero(&wake)]);
        let calls = asked(&fixture, "channel of a fair waiter", &flood);
        assert!(calls <= allowed(1.0), "{calls} scripts");
        drop(flood);

        let flood = Flood::begin(&fixture.server, vec![zero(&channel("plain"))]);
        let calls = asked(&fixture, "channel of two plain waiters", &flood);
        assert!(calls <= allowed(2.0), "{calls} scripts");
        drop(flood);

        let all = [&wake, &channel("plain"), &inbox(&one), &inbox(&two)];
        let flood = Flood::begin(&fixture.server, all.map(|channel| zero(channel)).to_vec());
        let calls = asked(&fixture, "all channels", &flood);
        assert!(calls <= allowed(3.0), "{calls} scripts");
        assert!(!place.is_over() && !waits.iter().any(|wait| wait.is_finished()));
        assert_eq!(fixture.holder("job"), Some(held.owner()));

        // The real wake-ups arrive during the flood.
        let released = Instant::now();
        let _ = plain.release().await.unwrap();
        for wait in waits {
            assert_eq!(wait.await.unwrap(), Release::Released);
        }
        measured("f86: both plain waiters in the flood", released.elapsed());
        java.leave("job", 1, DEFAULT_WAIT_MS);
        let released = Instant::now();
        let _ = held.release().await;
        let _ = place.granted(20 * SLACK).await.release().await;
        measured("f86: the fair waiter in the flood", released.elapsed());
        fixture.history.assert_sound();
    });
}
