//! The program as a whole: a short run finds nothing, one with a fault that nobody told the judge of does,
//! and one that did too little says so.

use std::process::{Command, Output};

fn torture(args: &[&str]) -> Output {
    run(&[&["topologies"], args].concat())
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlock-torture"));
    command.args(args).output().expect("the program is built")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn is_installed() -> bool {
    fairlock_testkit::server::require(fairlock_testkit::server::Generation::Redis70).is_some()
}

#[test]
fn a_short_run_on_each_topology() {
    if !is_installed() {
        return;
    }
    let output = torture(&["--short"]);
    let told = text(&output);
    println!("{told}");
    assert_eq!(output.status.code(), Some(0), "{told}");
    for wanted in ["acquisitions", "failovers", "violations      0", "recovery", "json {"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

/// Locks that are deleted behind everybody's back have two holders. The judge was not told, and finds it.
#[test]
fn what_the_judge_is_not_told_is_found() {
    if !is_installed() {
        return;
    }
    let output = torture(&["--short", "--only", "single", "--sabotage"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("VIOLATIONS"), "{told}");
}

#[test]
fn a_run_that_did_too_little_is_invalid() {
    if !is_installed() {
        return;
    }
    let output = torture(&["--only", "single", "--seconds", "0"]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("INVALID: 0 faults that took effect"), "{told}");
}

#[test]
fn wrong_usage_is_told() {
    for args in [&["--only", "moon"][..], &["--seconds"], &["--seconds", "x"], &["--wrong"]] {
        let output = torture(args);
        assert_eq!(output.status.code(), Some(64));
        assert!(text(&output).contains("usage:"), "{args:?}");
    }
}

#[test]
fn wrong_shards_and_files_are_told() {
    for args in [
        &["nightly", "--shard", "3/2"][..],
        &["nightly", "--shard", "0/2"],
        &["commit", "--only", "moon"],
        &["merge", "/nowhere/at/all"],
    ] {
        assert_eq!(run(args).status.code(), Some(64), "{args:?}");
    }
}
