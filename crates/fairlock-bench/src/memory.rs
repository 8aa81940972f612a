//! The store inside the process: uncontended pairs on one core.

use fairlock::Client;
use std::time::{Duration, Instant};

pub(crate) fn report(span: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect("memory:").await.unwrap();
        let lock = client.fair_lock("bench");
        let began = Instant::now();
        let mut pairs = 0_u64;
        while began.elapsed() < span {
            for _ in 0..1_000 {
                drop(lock.lock().await.unwrap());
            }
            pairs += 1_000;
        }
        let rate = pairs as f64 / began.elapsed().as_secs_f64();
        println!("memory: uncontended lock+drop, 1 task: {rate:.0}/s");
    });
}
