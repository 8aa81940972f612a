//! Uncontended locks, compared with PING and with a raw client.

use crate::stats::{percentile, ratio, us};
use fairlock::Client;
use fairlock_testkit::server::Server;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use std::time::{Duration, Instant};

/// PING round trips of redis-rs on the benchmark's own runtime: p50.
pub(crate) async fn ping(server: &Server, span: Duration) -> Duration {
    let mut samples = pings_of_redis_rs(&server.url(), span).await;
    let p50 = percentile(&mut samples, 50);
    println!("PING p50 {}, p99 {}", us(p50), us(percentile(&mut samples, 99)));
    p50
}

/// A connection of redis-rs that waits for replies as long as it takes: the default of 500 ms fails on a busy machine.
pub(crate) async fn connection(client: &redis::Client) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// All samples.
pub(crate) async fn pings_of_redis_rs(url: &str, span: Duration) -> Vec<Duration> {
    let mut conn = connection(&redis::Client::open(url).unwrap()).await;
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
    let (_, rate) = many(&client, 64, span).await;
    println!("uncontended, 64 tasks: {rate:.0} pairs/s");
}

/// Tasks on different locks: how long each pair of lock and release took, and pairs per second.
pub(crate) async fn many(client: &Client, tasks: u32, span: Duration) -> (Vec<Duration>, f64) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|n| {
            let lock = client.fair_lock(format!("uncontended:{n}"));
            tokio::spawn(async move {
                let mut samples = Vec::new();
                while began.elapsed() < span {
                    let sent = Instant::now();
                    let _ = lock.lock().await.unwrap().release().await.unwrap();
                    samples.push(sent.elapsed());
                }
                samples
            })
        })
        .collect();
    let mut samples = Vec::new();
    for task in tasks {
        samples.extend(task.await.unwrap());
    }
    let rate = samples.len() as f64 / began.elapsed().as_secs_f64();
    (samples, rate)
}
