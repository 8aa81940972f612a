//! Locks under load and faults, on every topology, and a judge of what came of it.
//!
//! `fairlock-torture topologies [--seconds N] [--seed N] [--only NAME[,NAME]] [--short]`
//!
//! Worker processes take turns at fair, plain and simple locks of a few names; a nemesis injects one fault
//! after the other, and goes on when every client has had a turn again. Everything is recorded, by the
//! processes themselves and in the time they share, and judged at the end. The layers:
//!
//! - [`bed`]: what the locks are on, which faults it knows, and which of them took effect;
//! - [`worker`]: a process that takes turns, and tells what it sees ([`note`]) before it goes on;
//! - [`resource`]: what the locks protect. It checks tokens, and is never faulted;
//! - [`fleet`]: the worker processes of a run;
//! - [`campaign`]: the run: load, faults, recoveries, quiet;
//! - [`judge`]: what must not have happened;
//! - [`report`]: what is printed, for people and for machines.
//!
//! Exit 0: no violation. 1: violations. 2: INVALID, too little was done or too few faults took effect for
//! "no violation" to mean anything. 64: wrong usage.

#![allow(clippy::unwrap_used, reason = "a run that cannot go on panics")]

mod bed;
mod campaign;
mod fleet;
mod judge;
mod note;
mod options;
mod report;
mod resource;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match &args[..] {
        ["worker", rest @ ..] => {
            worker::run(rest);
            ExitCode::SUCCESS
        }
        ["topologies", rest @ ..] => match options::Options::parse(rest) {
            Ok(options) => topologies(&options),
            Err(error) => usage(&error),
        },
        _ => usage("which campaign?"),
    }
}

fn usage(error: &str) -> ExitCode {
    eprintln!("fairlock-torture: {error}\n{}", options::USAGE);
    ExitCode::from(64)
}

/// One campaign on each topology, one after the other: they share a machine.
fn topologies(options: &options::Options) -> ExitCode {
    println!("seed {}; repeat with --seed {}", options.seed, options.seed);
    let mut verdicts = Vec::new();
    for place in &options.places {
        let Some(outcome) = campaign::run(*place, options) else {
            verdicts.push((place.name(), report::Verdict::Invalid));
            continue;
        };
        verdicts.push((place.name(), report::tell(&outcome)));
    }
    println!();
    for (name, verdict) in &verdicts {
        println!("{name}: {verdict}");
    }
    report::exit_code(verdicts.iter().map(|(_, verdict)| *verdict))
}
