//! The store inside the process: uncontended pairs by one task, which use one core. The client's
//! background thread sleeps meanwhile.

use fairlock::Client;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Parts of a run: the best one is reported as well, because the machine is shared.
const PARTS: u32 = 20;

/// Goal: pairs per second on one core (docs/testing.md, N11).
const GOAL: u32 = 1_000_000;

/// The same of a share.
const SHARED_GOAL: u32 = 700_000;

/// Pairs between two reads of the clock.
const BATCH: u32 = 1_000;

pub(crate) fn report(span: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect("memory:").await.unwrap();
        let (lock, rw) = (client.fair_lock("bench"), client.rw_lock("rw"));
        let permits = client.semaphore("permits", 10);
        measure("lock+drop", GOAL, span, async || drop(lock.lock().await.unwrap())).await;
        measure("read+drop", SHARED_GOAL, span, async || drop(rw.read().await.unwrap())).await;
        let _reader = rw.read().await.unwrap();
        let beside = "read+drop beside a reader";
        measure(beside, SHARED_GOAL, span, async || drop(rw.read().await.unwrap())).await;
        measure("permit+drop", SHARED_GOAL, span, async || drop(permits.acquire().await.unwrap()))
            .await;
    });
}

async fn measure(what: &str, goal: u32, span: Duration, pair: impl AsyncFn()) {
    let (mut pairs, mut best) = (0_u64, 0_f64);
    let (began, cpu) = (Instant::now(), cpu_time());
    for _ in 0..PARTS {
        let (mut part, start) = (0_u64, Instant::now());
        while start.elapsed() < span / PARTS {
            for _ in 0..BATCH {
                pair().await;
            }
            part += u64::from(BATCH);
        }
        best = best.max(part as f64 / start.elapsed().as_secs_f64());
        pairs += part;
    }
    let rate = pairs as f64 / began.elapsed().as_secs_f64();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let per_core = pairs as f64 / (cpu_time() - cpu).as_secs_f64();
    println!(
        "memory: uncontended {what}, 1 task: {rate:.0}/s; best {PARTS}th of the run: {best:.0}/s; \
         {per_core:.0} a second of CPU (goal {goal}), of {cores} cores"
    );
}

/// The CPU time of all threads of this process, which does not depend on other load.
fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
