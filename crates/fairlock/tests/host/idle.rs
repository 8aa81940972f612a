//! What waiting costs.

use super::{Bed, LONG, enter};
use crate::faults::worker::Worker;
use crate::support::runtime;
use std::time::{Duration, Instant};

const WAITERS: usize = 4;

/// Two heartbeats and more, at half the default distance.
const WATCHED: Duration = Duration::from_secs(12);

/// The promise is 1 ms a minute for the program as it is shipped, which `fairlock-bench host` measures.
/// This one is built for debugging, on a machine that has other things to do.
const LIMIT_MS: f64 = 10.0;

#[test]
fn an_idle_waiter_costs_next_to_nothing() {
    let bed = Bed::new();
    let heartbeat = Duration::from_secs(1);
    runtime().block_on(async {
        let client = bed.client().await;
        let lock = client.fair_lock("job");
        let _guard = lock.lock().await.unwrap();
        let mut workers: Vec<_> =
            (0..WAITERS).map(|_| Worker::with(&bed.url(), heartbeat, LONG, [])).collect();
        for (at, worker) in workers.iter_mut().enumerate() {
            enter(worker, &lock, at + 1).await;
        }
        let used = || workers.iter().map(Worker::cpu).sum::<Duration>();
        // Time is what this is about.
        let (before, began) = (used(), Instant::now());
        tokio::time::sleep(WATCHED).await;
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        let ms = (used() - before).as_secs_f64() * 1_000.0 / minutes / WAITERS as f64;
        println!("measured: idle waiter: {ms:.2} ms of CPU a minute");
        assert!(ms < LIMIT_MS, "{ms}");
    });
}
