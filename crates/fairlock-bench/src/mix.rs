//! Readers and writers of one lock who come again at once: how long a writer waits at most.

use crate::stats::{percentile, ratio, us};
use fairlock::Client;
use fairlock_testkit::tempdir::TempDir;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TASKS: u32 = 64;

/// A tenth, rounded.
const WRITERS: u32 = 6;

/// The machine is shared, and one interruption lengthens a round's longest wait: their median is
/// reported.
const ROUNDS: u32 = 9;

/// How long each holds the lock. Without it, a turn would take microseconds, and the longest wait tell
/// how long the machine was busy elsewhere.
const HOLD: Duration = Duration::from_millis(1);

/// Goal: a writer's longest wait, of the one that is expected if all tasks take turns.
const GOAL: f64 = 1.5;

pub(crate) fn report(span: Duration) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = TempDir::new();
    let file = format!("sqlite:{}", folder.path().join("locks").display());
    for url in ["memory:", &file] {
        runtime.block_on(on(url, span));
    }
}

async fn on(url: &str, span: Duration) {
    let client = Client::connect(url).await.unwrap();
    let (mut grants, mut worst, mut factors) = (0, Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (round, longest) = round(&client, span / ROUNDS).await;
        let expected = span / ROUNDS * TASKS / round;
        grants += round;
        factors.push(ratio(longest, expected));
        worst.push(longest);
    }
    factors.sort_by(f64::total_cmp);
    let store = url.split_inclusive(':').next().unwrap_or(url);
    println!(
        "mix, {store} {TASKS} tasks, {} of them read: {:.0} grants/s; a writer's longest wait {}, \
         {:.2} of the expected one (goal {GOAL}), medians of {ROUNDS} rounds ({:.2} to {:.2})",
        TASKS - WRITERS,
        f64::from(grants) / span.as_secs_f64(),
        us(percentile(&mut worst, 50)),
        factors[factors.len() / 2],
        factors[0],
        factors[factors.len() - 1],
    );
}

/// How many were served, and the longest wait of a writer; one that waits at the end counts with
/// its time so far.
async fn round(client: &Client, span: Duration) -> (u32, Duration) {
    let lock = client.rw_lock("mix");
    let stop = Arc::new(AtomicBool::new(false));
    // All stand in line when it begins.
    let first = lock.write().await.unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let (lock, stop) = (lock.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut served, mut longest) = (0_u32, Duration::ZERO);
                let mut began = false;
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    // The first turn is about the queue that was there before.
                    let guard = if number % TASKS.div_ceil(WRITERS) == 0 {
                        let guard = lock.write().await.unwrap();
                        longest = longest.max(if began { asked.elapsed() } else { Duration::ZERO });
                        guard.into_guard()
                    } else {
                        lock.read().await.unwrap().into_guard()
                    };
                    tokio::time::sleep(HOLD).await;
                    drop(guard);
                    served += u32::from(began);
                    began = true;
                }
                (served, longest)
            })
        })
        .collect();
    while lock.inspect().await.unwrap().queue_len < TASKS as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.release().await.unwrap();
    tokio::time::sleep(span).await;
    stop.store(true, Ordering::Relaxed);
    let (mut grants, mut worst) = (0, Duration::ZERO);
    for task in tasks {
        let (served, longest) = task.await.unwrap();
        grants += served;
        worst = worst.max(longest);
    }
    (grants, worst)
}
