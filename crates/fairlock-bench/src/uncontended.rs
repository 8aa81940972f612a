//! Uncontended locks, compared with PING and with a raw client.

use crate::stats::{percentile, ratio, us};
use fairlock::Client;
use fairlock_testkit::server::Server;
use std::time::{Duration, Instant};

/// PING round trips of redis-rs on the benchmark's own runtime: p50.
pub(crate) async fn ping(server: &Server, span: Duration) -> Duration {
    let mut samples = pings_of_redis_rs(server, span).await;
    let p50 = percentile(&mut samples, 50);
    println!("PING p50 {}, p99 {}", us(p50), us(percentile(&mut samples, 99)));
    p50
}

/// All samples.
pub(crate) async fn pings_of_redis_rs(server: &Server, span: Duration) -> Vec<Duration> {
    let client = redis::Client::open(server.url()).unwrap();
    let mut conn = client.get_multiplexed_async_connection().await.unwrap();
    let mut samples = Vec::new();
    let began = Instant::now();
    while began.elapsed() < span {
        let sent = Instant::now();
        let _: String = redis::cmd("PING").query_async(&mut conn).await.unwrap();
        samples.push(sent.elapsed());
    }
    samples
}

/// The same through fairlock: its background thread adds two context switches.
pub(crate) async fn pings_of_client(client: &Client, span: Duration) -> Vec<Duration> {
    let mut samples = Vec::new();
    let began = Instant::now();
    while began.elapsed() < span {
        let sent = Instant::now();
        client.ping().await.unwrap();
        samples.push(sent.elapsed());
    }
    samples
}

pub(crate) async fn report(server: &Server, span: Duration, ping: Duration) {
    let client = Client::connect(&server.url()).await.unwrap();
    let mut pings = pings_of_client(&client, span / 2).await;
    let own = percentile(&mut pings, 50);
    println!("client.ping() p50 {} = {:.2} PING", us(own), ratio(own, ping));

    let lock = client.fair_lock("uncontended");
    let mut samples = Vec::new();
    let began = Instant::now();
    while began.elapsed() < span {
        let sent = Instant::now();
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        samples.push(sent.elapsed());
    }
    let p50 = percentile(&mut samples, 50);
    println!(
        "uncontended lock+release, 1 task: p50 {} = {:.2} x two PINGs (goal 1.15), {:.0}/s",
        us(p50),
        ratio(p50, 2 * ping),
        samples.len() as f64 / began.elapsed().as_secs_f64()
    );
    many(&client, span).await;
}

/// 64 tasks on different locks.
async fn many(client: &Client, span: Duration) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let lock = client.fair_lock(format!("uncontended:{n}"));
            tokio::spawn(async move {
                let mut pairs = 0_u64;
                while began.elapsed() < span {
                    let _ = lock.lock().await.unwrap().release().await.unwrap();
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let mut pairs = 0;
    for task in tasks {
        pairs += task.await.unwrap();
    }
    println!("uncontended, 64 tasks: {:.0} pairs/s", pairs as f64 / began.elapsed().as_secs_f64());
}
