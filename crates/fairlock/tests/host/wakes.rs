//! Waiters sleep until they have the lock, and wake up at once then.

use super::{Fixture, run};
use crate::faults::fixture::measured;
use crate::support::{runtime, soon};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;

const TURNS: usize = 1_000;

/// Heartbeats are a minute apart: a waiter that no release wakes sleeps for that long. `fairlock-bench host` measures how
/// soon it is awake.
#[test]
fn each_release_wakes_the_next() {
    let fixture = Fixture::new();
    let mut took = runtime().block_on(async {
        let (released, mut releases) = unbounded_channel();
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let (client, released) = (fixture.client().await, released.clone());
            tasks.push(tokio::spawn(async move {
                let lock = client.fair_lock("job");
                let mut granted = Vec::new();
                for _ in 0..TURNS / 2 {
                    let guard = lock.lock().await.unwrap();
                    granted.push(Instant::now());
                    // Long enough for the other client to be queued again.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    released.send(Instant::now()).unwrap();
                    let _ = guard.release().await.unwrap();
                }
                granted
            }));
        }
        drop(released);
        let mut granted = Vec::new();
        for task in tasks {
            granted.extend(
                tokio::time::timeout(Duration::from_secs(300), task).await.unwrap().unwrap(),
            );
        }
        granted.sort_unstable();
        let mut took = Vec::new();
        let mut at = 1;
        while let Some(release) = releases.recv().await {
            if let Some(next) = granted.get(at) {
                took.push(next.saturating_duration_since(release));
            }
            at += 1;
        }
        took
    });
    took.sort_unstable();
    let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    measured("awake after a release, two clients, p50", p50);
    measured("awake after a release, two clients, p99", p99);
    let longest = took[took.len() - 1];
    assert!(longest < Duration::from_secs(10), "{longest:?}");
}

/// A plain or simple lock has no queue: its waiters are told that it is free.
#[test]
fn waiters_without_a_queue_wake_up() {
    run(async |fixture| {
        let (one, two) = (fixture.client().await, fixture.client().await);
        for (ours, theirs) in [
            (one.plain_lock("plain"), two.plain_lock("plain")),
            (one.simple_lock("simple"), two.simple_lock("simple")),
        ] {
            for _ in 0..20 {
                let guard = ours.lock().await.unwrap();
                let waiter = theirs.clone();
                let waiter = tokio::spawn(async move { waiter.lock().await.unwrap() });
                let listens = || fixture.files(".base").len() == 1;
                crate::support::until("it listens", async || listens()).await;
                let _ = guard.release().await.unwrap();
                let _ = soon("its turn", waiter).await.unwrap().release().await.unwrap();
                crate::support::until("nobody listens", async || !listens()).await;
            }
        }
    });
}

/// A waiter that gives up between two others wakes the one behind it, which then watches another
/// process.
#[test]
fn places_that_are_given_up_keep_the_line_of_watchers_whole() {
    run(async |fixture| {
        let clients = [fixture.client().await, fixture.client().await];
        let mut holder = [fixture.worker()];
        let lock = clients[0].fair_lock("job");
        super::take(&mut holder[0], &lock).await;
        let gives_up = crate::support::wait_behind(&lock, 1).await;
        let stays = crate::support::wait_behind(&clients[1].fair_lock("job"), 2).await;
        gives_up.abort();
        crate::support::queue_is(&lock, 1).await;
        // The remaining waiter watched the one that left; now it has to watch the holder.
        super::take_over("a killed holder, after one gave up", &mut holder, stays).await;
    });
}

/// Anyone who can write to the folder can write to a bell. Content that is not a message is
/// counted, and at worst delays others.
#[test]
fn noise_in_a_bell_is_counted() {
    run(async |fixture| {
        let (one, two) = (fixture.client().await, fixture.client().await);
        let bell = fixture.dir.path().join("locks-clients").join(format!("{}.bell", two.id()));
        for noise in [&b"x"[..], &[0; 64], &[0xff; 1_000]] {
            let before = two.dropped_messages();
            std::fs::write(&bell, noise).unwrap();
            crate::support::until("it is counted", async || two.dropped_messages() > before).await;
            let guard = one.fair_lock("job").lock().await.unwrap();
            let waiter = crate::support::wait_behind(&two.fair_lock("job"), 1).await;
            let _ = guard.release().await.unwrap();
            let _ = crate::support::granted(waiter).await.release().await.unwrap();
        }
    });
}
