//! How soon a command begins: under `fairlock run` on the host store, under `flock(1)`, and alone, in turns.
//!
//! The command is `date +%s%N`, which prints the time as soon as it runs. Its own start is a part of every figure. The
//! program is copied first, as an installation does: right after it was linked it lies in memory in small pages, which
//! takes each start 0.6 ms more.

use crate::stats::{percentile, ratio, us};
use fairlock_testkit::tempdir::TempDir;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The goal for the p50 of `fairlock run` (docs/testing.md, N32).
const GOAL: Duration = Duration::from_millis(5);

/// Rounds that are not counted: they create the store and read the programs from the disk.
const WARM_UP: u32 = 10;

/// Who starts the command, and how long that took in each round.
struct Starter<'a> {
    name: &'a str,
    words: Vec<&'a str>,
    /// From the start of the first process to the first instructions of the command.
    begun: Vec<Duration>,
    /// Until all processes have ended.
    ended: Vec<Duration>,
}

pub(crate) fn report(program: &Path, rounds: u32) {
    let dir = TempDir::on_disk();
    let url = format!("sqlite:{}", dir.path().join("locks").display());
    let flock = dir.path().join("flock").display().to_string();
    let installed = dir.path().join("fairlock");
    std::fs::copy(program, &installed).expect("the program, built like this one");
    let program = installed.to_str().expect("a path in UTF-8");
    let starter = |name, words| Starter { name, words, begun: Vec::new(), ended: Vec::new() };
    let mut starters = [
        starter("alone", vec![]),
        starter("flock(1)", vec!["flock", &flock]),
        starter("fairlock run", vec![program, "run", "--url", &url, "start", "--"]),
    ];
    for round in 0..WARM_UP + rounds {
        for starter in &mut starters {
            let (begun, ended) = once(&starter.words);
            if round >= WARM_UP {
                starter.begun.push(begun);
                starter.ended.push(ended);
            }
        }
    }
    let flock = percentile(&mut starters[1].begun, 50);
    for Starter { name, begun, ended, .. } in &mut starters {
        let p50 = percentile(begun, 50);
        println!(
            "start: a command begins, {name}: p50 {} = {:.2} x flock(1), p99 {}; and has ended: p50 {}",
            us(p50),
            ratio(p50, flock),
            us(percentile(begun, 99)),
            us(percentile(ended, 50)),
        );
    }
    println!("start: the goal for fairlock run is a p50 of {}, {rounds} rounds", us(GOAL));
}

/// Starts the command behind these words, and returns when it began and when all had ended.
fn once(words: &[&str]) -> (Duration, Duration) {
    let all = [words, &["date", "+%s%N"]].concat();
    let mut command = Command::new(all[0]);
    command.args(&all[1..]);
    let start = now();
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", all[0]));
    let ended = now();
    assert!(output.status.success(), "{all:?}: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let begun =
        Duration::from_nanos(said.trim().parse().expect("nanoseconds, as GNU date prints them"));
    (begun.saturating_sub(start), ended.saturating_sub(start))
}

/// The wall clock, because it is what `date` prints. A step of it shows in the p99 at most.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970")
}
