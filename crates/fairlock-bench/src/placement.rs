//! Where the background work runs and what that costs: the measurements behind
//! docs/decisions/01-background-thread.md.

use crate::stats::{percentile, us};
use crate::uncontended::{pings_of_client, pings_of_redis_rs};
use crate::usage::Usage;
use fairlock::{Client, Config, GuardState};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

/// How long the application's task blocks its runtime.
const BLOCK: Duration = Duration::from_millis(300);

pub(crate) fn report(span: Duration) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    for (what, workers) in [("current_thread", 0), ("multi_thread, 2 workers", 2)] {
        println!("the application's runtime: {what}");
        runtime(workers).block_on(round_trips(&server, span));
    }
    blocked(&server);
    each_client(&server);
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    let mut builder = match workers {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if workers > 0 {
        builder.worker_threads(workers);
    }
    builder.enable_all().build().unwrap()
}

async fn round_trips(server: &Server, span: Duration) {
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.fair_lock("placement");
    let mut raw = pings_of_redis_rs(&server.url(), span).await;
    let mut pings = pings_of_client(&client, span).await;
    let mut pairs = Vec::new();
    let began = Instant::now();
    while began.elapsed() < span {
        let sent = Instant::now();
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        pairs.push(sent.elapsed());
    }
    let rows = [("redis-rs PING", &mut raw), ("client.ping()", &mut pings), ("pair", &mut pairs)];
    for (what, samples) in rows {
        let (p50, p99) = (percentile(samples, 50), percentile(samples, 99));
        println!("  {what}: p50 {}, p99 {}", us(p50), us(p99));
    }
}

/// The application blocks its only thread right after a drop, and while it holds a lock.
fn blocked(server: &Server) {
    let user = runtime(0);
    user.block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let mut samples = Vec::new();
        for _ in 0..10 {
            let guard = client.fair_lock("blocked").lock().await.unwrap();
            let mut raw = server.client();
            let look = std::thread::spawn(move || {
                while raw.call(&["EXISTS", "blocked"]).int() == 0 {}
                while raw.call(&["EXISTS", "blocked"]).int() == 1 {}
                Instant::now()
            });
            // Gives the other thread time to start polling.
            std::thread::sleep(Duration::from_millis(5));
            let dropped = Instant::now();
            drop(guard);
            std::thread::sleep(BLOCK);
            // If no other thread has sent the release, it is sent now.
            client.ping().await.unwrap();
            samples.push(look.join().unwrap().saturating_duration_since(dropped));
        }
        println!("drop, then {BLOCK:?} blocked: free after {}", us(percentile(&mut samples, 50)));
        let lease = Duration::from_secs(1);
        let config = Config::from_url(&server.url()).unwrap().watchdog_lease(lease);
        let config = config.heartbeat(Duration::from_millis(200));
        let client = Client::with_config(config).await.unwrap();
        let guard = client.fair_lock("blocked").lock().await.unwrap();
        std::thread::sleep(3 * lease);
        let held = guard.state() == GuardState::Held;
        println!("blocked for three leases: {}", if held { "held" } else { "lost" });
    });
}

/// The cost of one more client.
fn each_client(server: &Server) {
    const CLIENTS: u32 = 100;
    let user = runtime(0);
    user.block_on(async {
        // Lets buffers and tables grow to their size.
        let _first = Client::connect(&server.url()).await.unwrap();
        let before = Usage::now();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(Client::connect(&server.url()).await.unwrap());
        }
        let after = Usage::now();
        println!(
            "each client: {:.1} threads, {:.1} descriptors, {:.0} KiB resident",
            (after.threads - before.threads) as f64 / f64::from(CLIENTS),
            (after.fds - before.fds) as f64 / f64::from(CLIENTS),
            (after.rss_kib.saturating_sub(before.rss_kib)) as f64 / f64::from(CLIENTS),
        );
    });
}
