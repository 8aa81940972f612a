//! Tests the program as a whole: a short run finds nothing, a run with a fault unknown to the
//! checker finds it, and a run that did too little says so.

use fairlock_testkit::tempdir::TempDir;
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

/// Locks deleted behind the clients' backs get two holders. The checker was not told, and finds it, whatever
/// the kind of the lock. Its inputs are kept for diagnosis.
#[test]
fn what_the_checker_is_not_told_is_found() {
    if !is_installed() {
        return;
    }
    let notes = TempDir::new();
    let folder = notes.path().to_str().expect("a name in UTF-8");
    let only = ["--short", "--only", "single", "--seed", "7", "--notes", folder];
    let output = torture(&[&only[..], &["--sabotage"]].concat());
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("VIOLATIONS"), "{told}");

    let left = notes.path().join("7-single");
    assert!(told.contains(left.to_str().expect("a name in UTF-8")), "{told}");
    let read = |file: &str| std::fs::read_to_string(left.join(file)).expect("notes");
    let (heard, violations) = (read("heard"), read("violations"));
    // A short hold is over before anybody gets its deleted lock more often than not; one that is kept
    // is not. Which of a kind's locks is found is chance, and once was `kept-rw` alone.
    for kind in [["fair-", "kept-0"], ["rw-", "kept-rw"], ["sem-", "kept-sem"]] {
        let of_kind = |line: &str| kind.iter().any(|name| line.contains(&format!("lock {name}")));
        assert!(violations.lines().any(of_kind), "{kind:?}: {violations}");
    }
    let lock = violations.split([' ', ',', ':']).nth(1).expect("the name of a lock");
    for wanted in [&format!(" {lock} ")[..], "\nfault 0 ", "\nnote 1 granted ", " DEL "] {
        assert!(heard.contains(wanted), "{wanted}: {heard:.2000}");
    }
    assert!(read("server-0/server.log").contains("Redis"));
}

/// Sixteen processes take some of eight locks each, in any order, while they are killed, and stopped for longer
/// than their leases.
#[test]
fn overlapping_locks_at_once_under_kills_and_freezes() {
    if !is_installed() {
        return;
    }
    let output = run(&["commit", "--only", "several", "--seconds", "8"]);
    let told = text(&output);
    println!("{told}");
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("several: no violation"), "{told}");

    let notes = TempDir::new();
    let folder = notes.path().to_str().expect("a name in UTF-8");
    let only = ["commit", "--only", "several", "--seconds", "8", "--notes", folder];
    let output = run(&[&only[..], &["--sabotage"]].concat());
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("lock many-"), "{told}");
}

#[test]
fn a_run_that_did_too_little_is_invalid() {
    if !is_installed() {
        return;
    }
    let folder = TempDir::new();
    let notes = folder.path().join("notes");
    let place = notes.to_str().expect("a name in UTF-8");
    let output = torture(&["--only", "single", "--seconds", "0", "--notes", place]);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("INVALID: 0 faults that took effect"), "{told}");
    assert!(!notes.exists(), "nothing was wrong, and nothing is left of it");
}

/// The results of the other parts of a run are kept: a shard's file was once lost when the
/// Sentinels of one part did not start on a machine that stood still.
#[test]
fn a_part_that_panics_is_invalid_and_costs_only_itself() {
    if !is_installed() {
        return;
    }
    let folder = TempDir::new();
    let out = folder.path().join("out");
    let place = out.to_str().expect("a name in UTF-8");
    // No folder can be created below a file, and each part on servers creates one.
    let own = ["--only", "single,lockset", "--seconds", "1", "--notes", "/dev/null/notes"];
    let output = run(&[&["commit"], &own[..], &["--out", place]].concat());
    let told = text(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("single: the run could not go on"), "{told}");
    assert!(told.contains("single: INVALID"), "{told}");
    let counted = std::fs::read_to_string(&out).expect("what was counted");
    assert!(counted.contains("lockset"), "{counted}");
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
