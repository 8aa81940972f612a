//! `cargo run --release -p fairlock-bench [SECONDS]`: hand-over and uncontended cost of fair
//! locks on a private server, beside the server's PING in the same run. Ratios count; the
//! machine is noisy.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

mod contended;
mod memory;
mod stats;
mod uncontended;

use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;

fn main() {
    let seconds = std::env::args().nth(1).map_or(2.0, |text| text.parse().expect("SECONDS"));
    let span = Duration::from_secs_f64(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    memory::report(span);
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime.block_on(async {
        let ping = uncontended::ping(&server, span).await;
        uncontended::report(&server, span, ping).await;
        contended::report_drain(&server).await;
        contended::report(&server, span, ping).await;
    });
}
