//! The simulated client: everything from the handles down to the bytes of its connections, against
//! a server, a network and a clock that a seed determines.
//!
//! The API, acquisitions, waiters, heartbeats, watchdog, releases, connections and tokio are
//! real. Simulated are the streams (`wire`), the server (`server`: the core behind the
//! commands; the differential tests compare it with the Lua), time (tokio's, paused) and random
//! numbers (`random.rs`). Everything runs on one thread, so a seed always makes the same run, to
//! the millisecond and to the byte: a failing seed is played again with a trace.
//!
//! `actors` are the applications, `faults` the faults, and `oracle` checks what must not happen:
//! two valid guards, a guard that is relied on for longer than its hold lasts, a token that falls,
//! a waiter that is overtaken or forgotten, a grant that expires unnoticed, a loss that is not
//! reported, a future that never ends, anything left behind.
//!
//! `scripts/simulate [SECONDS] [--seed N]` runs it for longer.

mod actors;
mod codec;
mod cohort;
mod faults;
mod latches;
mod oracle;
mod regression;
mod run;
mod server;
mod several;
mod shared;
mod twins;
mod wire;
mod world;

pub(super) use world::{is_simulated, stream_to};

use fairlock_testkit::tier;
use run::Report;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least number of faults in a run, whatever its seed.
const FAULTS_MIN: u64 = 3;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Reports what a seed has found, with the trace of a second run, and whether that run was the
/// same.
fn tell(report: &Report) -> String {
    let again = run::play(report.seed, true);
    let same = if again.hash == report.hash { "the same again" } else { "ANOTHER run, this time" };
    let mut text = format!("seed {} ({same}):\n", report.seed);
    for violation in &report.violations {
        text.push_str(&format!("  {violation}\n"));
    }
    let lines = again.lines.unwrap_or_default();
    let last = lines.iter().rposition(|line| line.contains("VIOLATION")).unwrap_or(lines.len());
    for line in &lines[last.saturating_sub(120)..lines.len().min(last + 1)] {
        text.push_str(&format!("    {line}\n"));
    }
    text.push_str(&format!("replay it: scripts/simulate --seed {}\n", report.seed));
    text
}

/// Plays seeds until `enough`, on `threads` threads; returns the failures and the number of seeds
/// played.
fn play_all(first: u64, threads: usize, enough: impl Fn(u64) -> bool + Sync) -> (Vec<Report>, u64) {
    /// More failures would add nothing.
    const FAILURES_MAX: usize = 3;
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let play = || {
        loop {
            let played = next.fetch_add(1, Ordering::Relaxed);
            let failed = || failures.lock().unwrap_or_else(PoisonError::into_inner);
            if enough(played) || failed().len() >= FAILURES_MAX {
                return;
            }
            let report = run::play(first + played, false);
            if !report.violations.is_empty() {
                failed().push(report);
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(play)));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    (failures, next.into_inner().saturating_sub(threads as u64))
}

#[test]
fn clients_keep_their_promises_in_every_simulated_run() {
    let first = number("FAIRLOCK_SEED").unwrap_or(1);
    let seeds = number("FAIRLOCK_SIMULATE_SEEDS").unwrap_or_else(|| tier::size(80, 400));
    let (failures, _) = play_all(first, 1, |played| played >= seeds);
    let stories: Vec<_> = failures.iter().map(tell).collect();
    assert!(stories.is_empty(), "{}", stories.concat());
}

/// A failing seed is useful only if it fails again.
#[test]
fn a_seed_is_always_the_same_run() {
    let mut hashes = BTreeSet::new();
    for seed in 1..=20 {
        let (one, two) = (run::play(seed, false), run::play(seed, true));
        assert_eq!(one.hash, two.hash, "seed {seed}");
        assert!(one.counts.calls > 20 && one.counts.faults >= FAULTS_MIN, "{:?}", one.counts);
        hashes.insert(one.hash);
    }
    assert_eq!(hashes.len(), 20, "each seed is another run");
}

/// `scripts/simulate`: as many seeds as the time allows, or one seed with its whole trace.
#[test]
#[ignore = "for as long as it is told to: scripts/simulate"]
fn long() {
    if let Some(seed) = number("FAIRLOCK_SIMULATE_SEED") {
        let report = run::play(seed, true);
        for line in report.lines.iter().flatten() {
            println!("{line}");
        }
        assert!(report.violations.is_empty(), "{}", report.violations.join("\n"));
        return println!("seed {seed}: no violation; {:?}", report.counts);
    }
    let seconds = number("FAIRLOCK_SIMULATE_SECONDS").unwrap_or(60);
    let first = number("FAIRLOCK_SEED").unwrap_or(1_000_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let until = Duration::from_secs(seconds);
    let (failures, played) = play_all(first, threads, |_| began.elapsed() >= until);
    let took = began.elapsed().as_secs_f64();
    println!(
        "seeds {first} to {}: {played} in {took:.0} s on {threads} threads, {:.0} a minute, {} failed",
        first + played.saturating_sub(1),
        played as f64 * 60.0 / took,
        failures.len()
    );
    let stories: Vec<_> = failures.iter().map(tell).collect();
    assert!(stories.is_empty(), "{}", stories.concat());
}
