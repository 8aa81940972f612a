//! The cost of waiting.

use super::{Fixture, LONG, enter};
use crate::faults::worker::Worker;
use crate::support::runtime;
use fairlock_testkit::threads::{self, Counts};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const WAITERS: usize = 4;

/// More than two heartbeats, at half the default interval.
const WATCHED: Duration = Duration::from_secs(12);

/// The promise is 1 ms per minute for the released program on an idle machine, which
/// `fairlock-bench host` measures. This is a debug build with heartbeats twice as often, on a
/// machine that others use: the test only finds clients that poll. Ten looks per second cost more
/// than this.
const LIMIT_MS: f64 = 40.0;

#[test]
fn an_idle_waiter_costs_next_to_nothing() {
    let fixture = Fixture::new();
    let heartbeat = Duration::from_secs(1);
    runtime().block_on(async {
        let client = fixture.client().await;
        let lock = client.fair_lock("job");
        let _guard = lock.lock().await.unwrap();
        let mut workers: Vec<_> =
            (0..WAITERS).map(|_| Worker::with(&fixture.url(), heartbeat, LONG, [])).collect();
        for (at, worker) in workers.iter_mut().enumerate() {
            enter(worker, &lock, at + 1).await;
        }
        // Threads for blocking calls end ten seconds after the start; this test is about time.
        let (before, began) = (workers.iter().map(Worker::cpu).collect::<Vec<_>>(), Instant::now());
        tokio::time::sleep(WATCHED).await;
        let used = |(worker, before): (&Worker, &HashMap<u32, Counts>)| {
            threads::since(before, &worker.cpu()).map(|counts| counts.ran).sum::<Duration>()
        };
        let used = workers.iter().zip(&before).map(used).sum::<Duration>();
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        let ms = used.as_secs_f64() * 1_000.0 / minutes / WAITERS as f64;
        println!("measured: idle waiter: {ms:.2} ms of CPU a minute");
        assert!(ms < LIMIT_MS, "{ms}");
    });
}
