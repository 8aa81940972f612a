//! Many waiters of one client.

use crate::support::{in_real_time, until};
use fairlock::{Client, Config};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

const WAITERS: usize = 3_000;

const HEARTBEAT: Duration = Duration::from_millis(200);

/// A18: if each of 100 000 waiters sent heartbeats, they would keep the server busy, and be late
/// over a slow link. One call per client and lock speaks for all of them.
#[test]
fn a18_one_heartbeat_speaks_for_all_waiters() {
    in_real_time(|| async {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let config = Config::from_url(&server.url()).unwrap().heartbeat(HEARTBEAT);
        let client = Client::with_config(config).await.unwrap();
        let lock = client.fair_lock("many");
        let guard = lock.lock().await.unwrap();
        let mut waiters = tokio::task::JoinSet::new();
        for _ in 0..WAITERS {
            let lock = lock.clone();
            waiters.spawn(async move { lock.lock().await.map(drop) });
        }
        while lock.inspect().await.unwrap().queue_len < WAITERS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }

        let (before, began) = (server.script_calls(), Instant::now());
        tokio::time::sleep(10 * HEARTBEAT).await;
        until("five heartbeats", async || server.script_calls() - before >= 5).await;
        let calls = server.script_calls() - before;
        let periods = began.elapsed().div_duration_f64(HEARTBEAT);
        println!("{calls} script calls of {WAITERS} waiters in {periods:.1} heartbeats");
        // The guard's renewals and early heartbeats come on top; 3 000 waiters must not.
        assert!(calls as f64 <= 4.0 * periods, "{calls} calls in {periods:.1} heartbeats");

        // All of them get the lock: none was dropped for lack of its own heartbeat.
        let _ = guard.release().await.unwrap();
        let mut served = 0;
        while let Some(done) = waiters.join_next().await {
            done.unwrap().unwrap();
            served += 1;
        }
        assert_eq!(served, WAITERS);
    });
}
