//! `memory`: the store inside the process. `host`: the host store, compared with `flock`. `soak`:
//! what many cycles of lock and release leave behind. `mix`: readers and writers. `shares`:
//! read-write locks and semaphores on a server, beside the fair lock. `several`: several locks at
//! once, beside one, and latches. `elections`: how soon a leader is followed and seen. `start`: how
//! soon a command begins under `fairlock run`. `fence`: what a fence adds to a transaction. `placement`: the cost of the background thread. `own`:
//! the figures for `scripts/bench-compare`, as JSON.
//!
//! `cargo run --release -p fairlock-bench [SECONDS]`: hand-over and uncontended cost of fair locks
//! on a private server, compared with the server's PING in the same run. Only ratios are
//! comparable; the machine is noisy.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

mod contended;
mod elections;
mod fence;
mod host;
mod memory;
mod mix;
mod own;
mod placement;
mod raw;
mod several;
mod shares;
mod soak;
mod start;
mod stats;
mod uncontended;
mod usage;

use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["soak"] => soak(1_000_000),
        ["soak", cycles] => soak(cycles.parse().expect("CYCLES")),
        ["mix"] => mix::report(Duration::from_secs(9)),
        ["mix", "process", url, first, end] => mix::process(url, first, end),
        ["mix", seconds] => mix::report(span(seconds)),
        ["shares"] => shares(Duration::from_secs(2)),
        ["shares", seconds] => shares(span(seconds)),
        ["several"] => several(Duration::from_secs(2)),
        ["several", seconds] => several(span(seconds)),
        ["elections"] => elections(Duration::from_secs(4)),
        ["elections", "leads", url] => runtime().block_on(elections::leads(url)),
        ["elections", seconds] => elections(span(seconds)),
        ["fence"] => fence(300),
        ["fence", times] => fence(times.parse().expect("TIMES")),
        ["memory"] => memory::report(Duration::from_secs(5)),
        ["memory", seconds] => memory::report(span(seconds)),
        ["host"] => host::report(Duration::from_secs(2)),
        ["host", seconds] if seconds.parse::<f64>().is_ok() => host::report(span(seconds)),
        ["host", ref process @ ..] => host::process(process),
        ["start"] => start(1_000),
        ["start", rounds] => start(rounds.parse().expect("ROUNDS")),
        ["own", url, seconds, waiters] => own(url, span(seconds), waiters),
        ["placement"] => placement::report(Duration::from_secs(2)),
        ["placement", seconds] => placement::report(span(seconds)),
        [] => costs(Duration::from_secs(2)),
        [seconds] => costs(span(seconds)),
        _ => panic!(
            "fairlock-bench [SECONDS] | memory [SECONDS] | host [SECONDS] | host shares | mix [SECONDS] | \
             shares [SECONDS] | several [SECONDS] | elections [SECONDS] | fence [TIMES] | soak [CYCLES] | \
             start [ROUNDS] | placement [SECONDS] | own URL SECONDS WAITERS,..."
        ),
    }
}

fn fence(times: u32) {
    runtime().block_on(fence::report(times));
}

fn span(seconds: &str) -> Duration {
    Duration::from_secs_f64(seconds.parse().expect("SECONDS"))
}

fn soak(cycles: u64) {
    if !soak::run(cycles) {
        std::process::exit(1);
    }
}

/// Measures the program beside this one.
fn start(rounds: u32) {
    host::build_program();
    let own = std::env::current_exe().expect("this program has a path");
    start::report(&own.with_file_name("fairlock"), rounds);
}

/// On one thread: a PING must not cost a switch of threads.
fn own(url: &str, span: Duration, waiters: &str) {
    let waiters: Vec<_> = waiters.split(',').map(|n| n.parse().expect("WAITERS")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(own::report(url, span, &waiters));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn shares(span: Duration) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(shares::report(&server, span));
}

fn several(span: Duration) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(several::report(&server, span));
}

fn elections(span: Duration) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(elections::report(&server, span));
}

fn costs(span: Duration) {
    let runtime = runtime();
    memory::report(span);
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime.block_on(async {
        let ping = uncontended::ping(&server, span).await;
        uncontended::report(&server, span, ping).await;
        contended::report_drain(&server).await;
        contended::report(&server, span, ping).await;
    });
}
