//! `--max-run`: a bounded run whose lock is renewed.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::Signal;

use crate::fixture::{
    Running, alone, eventually, fairlock, finish, is_alive, lines, run_script, state,
};

/// `--lease` was the only bound: its end counted as a loss (76), and the lock had to be as long as
/// the longest run.
#[test]
fn a_run_that_takes_too_long_ends_with_124_and_gives_the_lock_back() {
    for options in [&[][..], &["--shared"], &["--permits", "2"], &["--on-lost", "ignore"]] {
        // Each kind has a name of its own.
        let url = alone();
        let bounded = [&["--max-run", "300ms"], options].concat();
        let outcome = finish(run_script(&url, &bounded, "x", "exec sleep 60"));
        outcome.expect(124, "x: its --max-run of 300ms is over; the command was ended");
        // An exclusive run succeeds. `--quiet` suppresses the warning about the former kind.
        finish(run_script(&url, &["--wait", "0", "--quiet"], "x", "true")).expect(0, "");
        // In time.
        let bounded = [&["--max-run", "60s", "--quiet"], options].concat();
        finish(run_script(&url, &bounded, "x", "exit 3")).expect(3, "");
    }
    let url = alone();
    let mut two = fairlock(["run", "--url", &url, "--max-run", "300ms", "a", "b", "--"]);
    two.args(["sleep", "60"]);
    finish(two).expect(124, "a, b: its --max-run of 300ms is over; the command was ended");
}

/// As timeout(1) has it: a command that ends well because it was asked to has not succeeded, and
/// counts as no run of `--once-per`.
#[test]
fn a_run_that_was_ended_is_no_success() {
    let url = alone();
    let script = "trap 'exit 0' TERM; sleep 60 & wait";
    let options = ["--once-per", "1h", "--max-run", "300ms"];
    finish(run_script(&url, &options, "x", script))
        .expect(124, "x: its --max-run of 300ms is over");
    finish(run_script(&url, &["--once-per", "1h"], "x", "true")).expect(0, "");
}

/// TERM at the bound, KILL after the grace, for everything that the command has started. The lock
/// is held for longer than its lease meanwhile.
#[test]
fn who_ignores_term_is_killed_after_the_grace_and_the_lock_is_renewed_until_then() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let log = dir.path().join("log");
    let script = format!(
        r#"exec 2>/dev/null; trap 'echo asked >>{0}' TERM; sh -c 'trap "" TERM; echo $$ held; exec sleep 60' &
        while :; do sleep 0.05; done"#,
        log.display()
    );
    let options = ["--ttl", "4s", "--max-run", "4500ms", "--grace", "3s", "-q"];
    let began = Instant::now();
    let mut running = Running::start(run_script(&url, &options, "x", &script));
    let said = running.line();
    let worker = said.split(' ').next().expect("a number").to_owned();
    eventually("it is asked to end", || !lines(&log).is_empty());
    // More than a lease after the start, and still held.
    let mut status = fairlock(["status", "--url", &url, "--exit-code", "-q", "x"]);
    status.stdin(std::process::Stdio::null());
    assert_eq!(finish(status).code(), 1);
    assert!(is_alive(&worker));
    running.wait().expect(124, "x: its --max-run of 4.5s is over; the command was ended");
    assert!(began.elapsed() >= Duration::from_millis(7_500));
    assert_eq!(lines(&log), ["asked"], "once");
    assert!(!is_alive(&worker));
}

/// A command that had ended by itself, while `fairlock` stood still until after the bound, was reported as ended by it.
#[test]
fn a_command_that_ended_in_time_has_its_own_code_however_late_that_is_seen() {
    /// Between the start of the command and the STOP, a machine may be slow.
    const BOUND: Duration = Duration::from_secs(4);
    let url = alone();
    let case = |name: &str, grace: &str, end: &str| {
        let dir = TempDir::new();
        let go = dir.path().join("go");
        let script = format!("echo $$; until test -e {}; do sleep 0.02; done; {end}", go.display());
        let options = ["--max-run", "4s", "--grace", grace];
        let mut running = Running::start(run_script(&url, &options, name, &script));
        let command = running.line();
        running.signal(Signal::STOP);
        if !end.is_empty() {
            fs::write(&go, "").unwrap();
        }
        eventually("the command has ended", || state(&command) == Some('Z'));
        thread::sleep(BOUND);
        running.signal(Signal::CONT);
        running.wait()
    };
    thread::scope(|scope| {
        scope.spawn(|| case("a", "60s", "exit 3").expect(3, ""));
        scope.spawn(|| case("b", "60s", "kill -9 $$").expect(137, ""));
        // The guardian ends it after bound and grace.
        scope.spawn(|| case("c", "1ms", "").expect(124, "its --max-run of 4s is over"));
    });
}
