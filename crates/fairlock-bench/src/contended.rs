//! One contended fair lock: hand-over time, rate and script calls by number of waiters.

use crate::stats::{percentile, ratio, us};
use crate::uncontended::{pings_of_client, pings_of_redis_rs};
use fairlock::Client;
use fairlock_testkit::server::Server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) async fn report(server: &Server, span: Duration, ping: Duration) {
    let mut at_ten = 0.0;
    for waiters in [2, 10, 100, 1_000, 10_000] {
        let run = measure(&server.url(), waiters, span, || server.script_calls()).await;
        if waiters == 10 {
            at_ten = run.rate;
        }
        let beside_ten = if at_ten > 0.0 {
            format!(", {:.2} of the rate at 10", run.rate / at_ten)
        } else {
            String::new()
        };
        println!(
            "contended, {waiters} waiters: {:.0} hand-overs/s{beside_ten}, release-to-next p50 {} \
             = {:.2} PING (goal 1.5), p99 {}, {:.2} script calls each (goal 2.1)",
            run.rate,
            us(run.p50),
            ratio(run.p50, ping),
            us(run.p99),
            run.calls
        );
    }
}

/// A standing queue: every task takes the lock once, so no acquisition competes with the hand-over.
/// PINGs and queues alternate, and their overall medians are compared: on a virtual machine the
/// time of a PING doubles and halves from one second to the next.
pub(crate) async fn report_drain(server: &Server) {
    const ROUNDS: usize = 10;
    const WAITERS: usize = 500;
    let span = Duration::from_millis(200);
    let client = Client::connect(&server.url()).await.unwrap();
    let (mut pings, mut own_pings, mut next) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        pings.extend(pings_of_redis_rs(&server.url(), span).await);
        own_pings.extend(pings_of_client(&client, span).await);
        next.extend(drain(server, &format!("drain:{round}"), WAITERS).await);
    }
    let (ping, p50) = (percentile(&mut pings, 50), percentile(&mut next, 50));
    let own_ping = percentile(&mut own_pings, 50);
    println!(
        "standing queue of {WAITERS}, one turn each, {ROUNDS} times: release-to-next p50 {} = {:.2} \
         PING (goal 1.5), p99 {}; in turns with it PING p50 {} and client.ping() p50 {}, of which it \
         is {:.2}",
        us(p50),
        ratio(p50, ping),
        us(percentile(&mut next, 99)),
        us(ping),
        us(own_ping),
        ratio(p50, own_ping),
    );
}

async fn drain(server: &Server, name: &str, waiters: usize) -> Vec<Duration> {
    let clients = [
        Client::connect(&server.url()).await.unwrap(),
        Client::connect(&server.url()).await.unwrap(),
    ];
    let first = clients[0].fair_lock(name).lock().await.unwrap();
    let released: Arc<Mutex<Option<Instant>>> = Arc::default();
    let tasks: Vec<_> = (0..waiters)
        .map(|n| {
            let lock = clients[n % 2].fair_lock(name);
            let released = Arc::clone(&released);
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                let took = released.lock().unwrap().take().unwrap().elapsed();
                *released.lock().unwrap() = Some(Instant::now());
                let _ = guard.release().await.unwrap();
                took
            })
        })
        .collect();
    let look = clients[0].fair_lock(name);
    while look.inspect().await.unwrap().queue_len < waiters {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    *released.lock().unwrap() = Some(Instant::now());
    let _ = first.release().await.unwrap();
    let mut samples = Vec::new();
    for task in tasks {
        samples.push(task.await.unwrap());
    }
    samples
}

/// One measured queue.
pub(crate) struct Run {
    /// Hand-overs per second.
    pub(crate) rate: f64,
    /// From the release call to the next holder's return.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Script calls per hand-over.
    pub(crate) calls: f64,
}

struct Board {
    released: Mutex<Option<Instant>>,
    samples: Mutex<Vec<Duration>>,
    grants: AtomicU64,
}

/// Tasks of two clients that re-queue immediately. `script_calls` counts those of the server.
pub(crate) async fn measure(
    url: &str,
    waiters: usize,
    span: Duration,
    script_calls: impl Fn() -> u64,
) -> Run {
    let clients = [Client::connect(url).await.unwrap(), Client::connect(url).await.unwrap()];
    let name = format!("contended:{waiters}");
    let first = clients[0].fair_lock(&name).lock().await.unwrap();
    let board = Arc::new(Board {
        released: Mutex::new(None),
        samples: Mutex::default(),
        grants: AtomicU64::new(0),
    });
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tasks: Vec<_> = (0..waiters)
        .map(|n| {
            let lock = clients[n % 2].fair_lock(&name);
            let board = Arc::clone(&board);
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.unwrap();
                    let now = Instant::now();
                    if let Some(released) = board.released.lock().unwrap().take() {
                        board.samples.lock().unwrap().push(now - released);
                    }
                    board.grants.fetch_add(1, Ordering::Relaxed);
                    *board.released.lock().unwrap() = Some(Instant::now());
                    let _ = guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let look = clients[0].fair_lock(&name);
    while look.inspect().await.unwrap().queue_len < waiters {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let calls_before = script_calls();
    let began = Instant::now();
    let _ = first.release().await.unwrap();
    tokio::time::sleep(span).await;
    // One figure at least, however short the span was.
    while board.samples.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let grants = board.grants.load(Ordering::Relaxed);
    let took = began.elapsed();
    let calls = script_calls() - calls_before;
    let mut samples = std::mem::take(&mut *board.samples.lock().unwrap());
    stop.store(true, Ordering::Relaxed);
    // Every waiter has its turn: an abandoned request leaves a marker on the server for a while.
    for task in tasks {
        task.await.unwrap();
    }
    let run = Run {
        rate: grants as f64 / took.as_secs_f64(),
        p50: percentile(&mut samples, 50),
        p99: percentile(&mut samples, 99),
        calls: calls as f64 / grants as f64,
    };
    for client in clients {
        client.shutdown().await;
    }
    run
}
