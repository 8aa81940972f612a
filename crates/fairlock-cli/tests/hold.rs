//! `fairlock run NAME` without a command.

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use fairlock_testkit::server::{Generation, Server};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Running, alone, eventually, fairlock, finish, run_script};

fn hold(url: &str, options: &[&str], name: &str) -> Command {
    let mut command = fairlock(["run", "--url", url]);
    command.args(options).arg(name);
    command
}

/// Starts it, and reads the line that reports that the lock is held.
fn holding(command: Command) -> (Running, Value) {
    let mut running = Running::start(command);
    let line = running.line();
    (running, serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

#[test]
fn one_line_tells_that_the_lock_is_held() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let (running, line) = holding(hold(&url, &[], "x"));
    let shown = finish(fairlock(["status", "--json", "--url", &url, "x"]));
    let status: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&line["schema"], &line["event"]), (&1.into(), &"acquired".into()));
    assert_eq!((&line["name"], &line["name_hex"]), (&"x".into(), &Value::Null));
    assert_eq!(line["owner"], status["holder"]["owner"]);
    assert_eq!(line["token"], status["token"]);
    assert!(line["token"].is_u64());
    // The lock is held: a second one has to wait, and gets a larger token.
    let mut second = Running::start(hold(&url, &[], "x"));
    eventually("it waits", || {
        let shown = finish(fairlock(["status", "--json", "--url", &url, "x"])).stdout;
        serde_json::from_str::<Value>(&shown).unwrap()["queue_len"] == 1
    });
    running.signal(Signal::TERM);
    let outcome = running.wait();
    outcome.expect(143, "");
    assert_eq!(outcome.stdout, "", "one line only");
    let next: Value = serde_json::from_str(&second.line()).unwrap();
    assert!(next["token"].as_u64() > line["token"].as_u64());
    second.signal(Signal::INT);
    second.wait().expect(130, "");
    finish(fairlock(["status", "--exit-code", "-q", "--url", &url, "x"])).expect(0, "");
}

#[test]
fn every_ending_signal_releases() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    for (signal, code) in [
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
        (Signal::TERM, 143),
    ] {
        let (running, _) = holding(hold(&url, &[], "x"));
        running.signal(signal);
        running.wait().expect(code, "");
        assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0, "{signal:?}: released");
    }
}

/// The end of stdin has no effect: cron and nohup start everything with an empty one.
#[test]
fn stdin_does_not_matter() {
    let (mut running, stdin) = Running::start_with_stdin(hold(&alone(), &[], "x"));
    running.line();
    drop(stdin);
    let mut closed = Command::new("sh");
    closed.args(["-c", r#"exec "$0" run --url "$1" x <&-"#]);
    closed.args([env!("CARGO_BIN_EXE_fairlock"), &alone()]);
    closed.env("FAIRLOCK_CONFIG", "/dev/null").stdout(Stdio::piped()).stderr(Stdio::piped());
    let (closed, _) = holding(closed);
    for running in [running, closed] {
        running.signal(Signal::TERM);
        running.wait().expect(143, "");
    }
}

/// What `--help` recommends for a hold that ends with its writer.
#[test]
fn cat_holds_until_the_end_of_its_stdin() {
    let (mut running, mut stdin) =
        Running::start_with_stdin(run_script(&alone(), &[], "x", "echo holding; exec cat"));
    assert_eq!(running.line(), "holding");
    stdin.write_all(b"").unwrap();
    drop(stdin);
    running.wait().expect(0, "");
}

#[test]
fn a_lost_lock_ends_the_hold_at_once() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    for (options, code) in [(&[][..], 76), (&["--lost-exit-code", "9"], 9)] {
        let (running, _) = holding(hold(&url, options, "x"));
        assert_eq!(server.client().call(&["DEL", "x"]).int(), 1);
        running.wait().expect(code, "x: the lock was lost");
    }
}

/// The server does not answer: the hold ends with the lease by our own clock, without waiting for a
/// release.
#[test]
fn a_server_that_hangs() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (running, _) = holding(hold(&server.url(), &["--lease", "1500ms"], "x"));
    let started = Instant::now();
    server.stop();
    running.wait().expect(76, "x: the lock was lost");
    println!("measured: ended {} ms after the server stopped", started.elapsed().as_millis());
    server.cont();
}

#[test]
fn a_fixed_lease_ends_it() {
    finish(hold(&alone(), &["--lease", "1s"], "x")).expect(76, "x: the lock was lost");
}

#[test]
fn not_acquired() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (holder, _) = holding(hold(&server.url(), &[], "x"));
    let outcome = finish(hold(&server.url(), &["--wait", "0"], "x"));
    outcome.expect(75, "x: held by ");
    assert_eq!(outcome.stdout, "");
    drop(holder);
}

/// A lock that nobody can learn of is released.
#[test]
fn a_reader_that_is_gone() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut command = hold(&server.url(), &[], "x");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    finish(command).expect(141, "x: released at once: nobody reads stdout");
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0);
}

/// A full disk is not a reader that has gone: the exit code used to be that of a broken pipe.
#[test]
fn a_stdout_that_is_full() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut command = hold(&server.url(), &[], "x");
    command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    finish(command).expect(70, "x: released at once: stdout: No space left on device");
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0);
}

/// A stdout that was closed before the start has become `/dev/null`, by the language's runtime:
/// that is not a reader that has gone, and no reason to release the lock. (The documents used to
/// say that it was.)
#[test]
fn d28_a_closed_stdout_is_as_dev_null() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    for stdout in [">&-", ">/dev/null"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!(r#"exec "$0" run --url "$1" x {stdout}"#)]);
        command.args([env!("CARGO_BIN_EXE_fairlock"), &server.url()]);
        command.env("FAIRLOCK_CONFIG", "/dev/null").stderr(Stdio::piped());
        let running = Running::start(command);
        eventually("it holds", || server.client().call(&["EXISTS", "x"]).int() == 1);
        running.signal(Signal::TERM);
        running.wait().expect(143, "");
        assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0);
    }
}

/// `nohup fairlock run x` survives what nohup protects it from.
#[test]
fn signals_ignored_on_entry_stay_ignored() {
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" HUP; exec "$0" run --url "$1" x"#]);
    command.args([env!("CARGO_BIN_EXE_fairlock"), &alone()]).env("FAIRLOCK_CONFIG", "/dev/null");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (running, _) = holding(command);
    running.signal(Signal::HUP);
    let status = || fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    eventually("the signal was taken", || status().contains("SigPnd:\t0000000000000000"));
    running.signal(Signal::TERM);
    running.wait().expect(143, "");
}

#[test]
fn names_that_are_not_text() {
    let mut command = fairlock(["run", "--url", &alone()]);
    command.arg(std::ffi::OsStr::from_bytes(b"a\n\xff"));
    let (running, line) = holding(command);
    assert_eq!((&line["name"], &line["name_hex"]), (&"a\n\u{fffd}".into(), &"610aff".into()));
    running.signal(Signal::TERM);
    running.wait().expect(143, "");
}
