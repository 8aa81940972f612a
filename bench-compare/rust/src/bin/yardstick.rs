//! `yardstick URL SECONDS`: what the server gives to one client without any lock. Every figure of the
//! comparison is read beside these two.

use bench_compare::now_ns;
use redis::aio::MultiplexedConnection;
use std::time::{Duration, Instant};

/// How many calls are on their way at once: more do not make it faster.
const PIPELINED: usize = 64;

/// About what the smallest lock needs: taken if free, and given back.
const SCRIPT: &str = "if redis.call('set',KEYS[1],ARGV[1],'nx','px',30000) then return redis.call('del',KEYS[1]) end return -1";

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [url, seconds] = &args[..] else { panic!("yardstick URL SECONDS") };
    let span = Duration::from_secs_f64(seconds.parse().expect("SECONDS"));
    let client = redis::Client::open(url.as_str()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await.expect("the server answers");

    let mut took = pings(connection.clone(), span).await;
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100] as f64 / 1000.0;
    let (p50, p99) = (at(50), at(99));
    let rate = scripts(connection, span).await;
    println!("{{\"ping_p50_us\":{p50:.1},\"ping_p99_us\":{p99:.1},\"evalsha_per_s\":{rate:.0}}}");
}

async fn pings(mut connection: MultiplexedConnection, span: Duration) -> Vec<u64> {
    let mut took = Vec::new();
    let began = Instant::now();
    while took.is_empty() || began.elapsed() < span {
        let start = now_ns();
        let _: String = redis::cmd("PING").query_async(&mut connection).await.expect("PING");
        took.push(now_ns() - start);
    }
    took
}

async fn scripts(mut connection: MultiplexedConnection, span: Duration) -> f64 {
    let hash: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(SCRIPT)
        .query_async(&mut connection)
        .await
        .expect("LOAD");
    let began = Instant::now();
    let tasks: Vec<_> = (0..PIPELINED)
        .map(|task| {
            let (mut connection, hash) = (connection.clone(), hash.clone());
            tokio::spawn(async move {
                let mut done = 0_u64;
                while began.elapsed() < span {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(&hash).arg(1).arg(format!("yardstick:{task}")).arg("owner");
                    let gone: i64 = call.query_async(&mut connection).await.expect("EVALSHA");
                    assert_eq!(gone, 1);
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.expect("it does not panic");
    }
    calls as f64 / began.elapsed().as_secs_f64()
}
