//! Locks under load and faults, on every topology, and a checker of the results.
//!
//! `fairlock-torture topologies|commit|nightly|release [OPTION...]`, `fairlock-torture merge
//! FILE...`; see [`options::USAGE`].
//!
//! Worker processes take turns at locks of a few names, of each kind that the deployment has. A nemesis injects
//! one fault after another, and continues when every client has had a turn again. The processes, on
//! their shared clock, and the server's own log report everything as it happens, and it is checked
//! while the run goes on. The layers:
//!
//! - [`deployment`]: where the locks are stored, and which faults it can play;
//! - [`nemesis`]: the kinds of fault, how each is played, and how its effect is observed;
//! - [`worker`]: a process that takes turns, at one lock or at several at once, and reports what it
//!   sees before it goes on; [`wanted`]: what it asks for;
//! - [`resource`]: what the locks protect. It checks tokens, and no fault touches it;
//! - [`fleet`]: the worker processes of a run; [`stalls`]: whether they ran at all; [`starved`]:
//!   whether all processes got the processor time they needed;
//! - [`campaign`]: the run: load, faults, recoveries, quiet;
//! - [`log`]: what clients, server, faults and resource report;
//! - [`checker`]: the invariants;
//! - [`lockset`]: a separate workload whose holders are stopped for longer than their leases;
//! - [`notes`]: what a run leaves behind when something was wrong;
//! - [`report`]: the output for people and for machines; [`merge`] adds up several of these.
//!
//! Exit 0: no violation. 1: violations. 2: INVALID, too little was done or too few faults took
//! effect for "no violation" to mean anything. 64: wrong usage.

#![allow(clippy::unwrap_used, reason = "a run that cannot go on panics")]

mod campaign;
mod checker;
mod deployment;
mod fleet;
mod lockset;
mod log;
mod merge;
mod nemesis;
mod notes;
mod options;
mod pace;
mod report;
mod resource;
mod stalls;
mod starved;
mod wanted;
mod worker;

use deployment::Topology;
use options::{Options, Span};
use report::Verdict;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match &args[..] {
        ["worker", rest @ ..] => {
            worker::run(rest);
            ExitCode::SUCCESS
        }
        ["lockset-worker", rest @ ..] => {
            lockset::worker(rest);
            ExitCode::SUCCESS
        }
        ["merge", files @ ..] => merge::run(files),
        [profile @ ("topologies" | "commit" | "nightly" | "release"), rest @ ..] => {
            match Options::parse(profile, rest) {
                Ok(options) => torture(&options),
                Err(error) => usage(&error),
            }
        }
        _ => usage("which campaign?"),
    }
}

fn usage(error: &str) -> ExitCode {
    eprintln!("fairlock-torture: {error}\n{}", options::USAGE);
    ExitCode::from(64)
}

/// Runs one campaign on each topology.
fn torture(options: &Options) -> ExitCode {
    println!("seed {}; repeat with --seed {}", options.seed, options.seed);
    let (first, rest) = options.spans.split_at(usize::from(options.at_once));
    let play = |spans: &[Span]| spans.iter().map(|span| play(span, options)).collect::<Vec<_>>();
    let played = std::thread::scope(|scope| {
        let beside = scope.spawn(|| play(first));
        let rest = play(rest);
        let mut played = beside.join().expect("`play` catches panics");
        played.extend(rest);
        played
    });
    let (mut verdicts, mut lines) = (Vec::new(), Vec::new());
    for (name, played) in played {
        let told = match played {
            Played::Nothing => None,
            Played::Campaign(outcome) => Some(report::tell(&outcome)),
            Played::Lockset(outcome) => Some(lockset::tell(&outcome)),
        };
        let (verdict, line) = told.unwrap_or((Verdict::Invalid, Value::Null));
        verdicts.push((name, verdict));
        lines.push(line);
    }
    println!();
    for (name, verdict) in &verdicts {
        println!("{name}: {verdict}");
    }
    println!("{}", report::in_all(&lines));
    if let Some(out) = &options.out {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(out, text).expect("the file that --out names");
    }
    report::exit_code(verdicts.iter().map(|(_, verdict)| *verdict))
}

/// The result of one part of a run.
enum Played {
    /// A server is missing, or the run could not continue.
    Nothing,
    Campaign(Box<campaign::Outcome>),
    Lockset(lockset::Outcome),
}

fn play(span: &Span, options: &Options) -> (&'static str, Played) {
    let (name, seconds) = (span.topology.map_or(lockset::NAME, Topology::name), span.seconds);
    let run = || match span.topology {
        Some(topology) => {
            campaign::run(topology, seconds, options).map(Box::new).map(Played::Campaign)
        }
        None => lockset::run(seconds, options.seed).map(Played::Lockset),
    };
    // A part that cannot continue proves nothing; what the others of a shard have done still
    // counts.
    let played = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        eprintln!("{name}: the run could not go on, and says nothing; its panic stands above");
        None
    });
    (name, played.unwrap_or(Played::Nothing))
}
