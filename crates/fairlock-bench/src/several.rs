//! Several locks at once, and latches, on a private server, beside one fair lock in the same run.

use crate::shares::Spent;
use crate::stats::{percentile, ratio, us};
use fairlock::{Client, Opened};
use fairlock_testkit::server::Server;
use std::time::{Duration, Instant};

/// Goals (docs/testing.md, N26 and N27).
const GOAL_PAIR: f64 = 2.0;
const GOAL_LATCH: Duration = Duration::from_millis(20);

/// What is compared alternates so many times, because the machine is shared.
const ROUNDS: u32 = 10;

/// Who waits for a latch.
const CLIENTS: usize = 10;
const WAITERS_OF_EACH: usize = 100;
const OPENED: usize = 30;

/// What is added to the time until all tasks of a client wait.
const SETTLED: Duration = Duration::from_millis(300);

pub(crate) async fn report(server: &Server, span: Duration) {
    pairs(server, span).await;
    latches(server).await;
}

/// Taking and giving back one lock, two, four and eight that are free.
async fn pairs(server: &Server, span: Duration) {
    const LOCKS: [usize; 4] = [1, 2, 4, 8];
    let client = Client::connect(&server.url()).await.unwrap();
    let names: Vec<_> = (0..8).map(|n| format!("several {n}")).collect();
    let one = client.fair_lock("one");
    let mut all = vec![Vec::new(); LOCKS.len()];
    let mut takes = all.clone();
    let (mut raw, mut spent) = (server.client(), [0; LOCKS.len()]);
    for _ in 0..ROUNDS {
        for (at, count) in LOCKS.into_iter().enumerate() {
            let several = client.multi_lock(&names[..count]).unwrap();
            let (before, began) = (Spent::now(&mut raw), Instant::now());
            while began.elapsed() < span / ROUNDS / 4 {
                let asked = Instant::now();
                if count == 1 {
                    let guard = one.lock().await.unwrap();
                    takes[at].push(asked.elapsed());
                    let _ = guard.release().await.unwrap();
                } else {
                    let guard = several.lock().await.unwrap();
                    takes[at].push(asked.elapsed());
                    let _ = guard.release().await.unwrap();
                }
                all[at].push(asked.elapsed());
            }
            spent[at] += Spent::now(&mut raw).since(before).us;
        }
    }
    let server_us = |at: usize, all: &[Vec<Duration>]| spent[at] as f64 / all[at].len() as f64;
    let of_server: Vec<_> = (0..LOCKS.len()).map(|at| server_us(at, &all)).collect();
    let p50: Vec<_> = all.iter_mut().map(|samples| percentile(samples, 50)).collect();
    for (at, count) in LOCKS.into_iter().enumerate() {
        let goal = if count == 4 { format!(" (goal {GOAL_PAIR})") } else { String::new() };
        println!(
            "{count} free at once, taken in {} and given back: p50 {} = {:.2} x one{goal}; {:.1} us of the server's \
             scripts = {:.2} x one",
            us(percentile(&mut takes[at], 50)),
            us(p50[at]),
            ratio(p50[at], p50[0]),
            of_server[at],
            of_server[at] / of_server[0]
        );
    }
}

/// From the last count-down until each of a thousand knows that the latch is open.
async fn latches(server: &Server) {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(&server.url()).await.unwrap());
    }
    let mut samples = Vec::new();
    for number in 0..OPENED {
        let name = format!("latch {number}");
        let opens = clients[0].latch(&name);
        assert!(opens.try_set(1).await.unwrap());
        let waits = clients.iter().flat_map(|client| {
            let latch = client.latch(&name);
            (0..WAITERS_OF_EACH).map(move |_| {
                let latch = latch.clone();
                tokio::spawn(async move { (latch.wait().await.unwrap(), Instant::now()) })
            })
        });
        let waits: Vec<_> = waits.collect();
        tokio::time::sleep(SETTLED).await;
        let began = Instant::now();
        assert_eq!(opens.count_down().await.unwrap(), 0);
        for wait in waits {
            let (opened, at) = wait.await.unwrap();
            assert_eq!(opened, Opened::CountedDown);
            samples.push(at.saturating_duration_since(began));
        }
    }
    println!(
        "a latch with {} waiters in {CLIENTS} clients, from the count-down to each: p50 {}, p99 {} (goal {})",
        CLIENTS * WAITERS_OF_EACH,
        us(percentile(&mut samples, 50)),
        us(percentile(&mut samples, 99)),
        us(GOAL_LATCH)
    );
}
