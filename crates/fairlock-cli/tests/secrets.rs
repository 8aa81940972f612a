//! Passwords: three ways in, none out.

use std::fs;
use std::process::Command;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{Outcome, fairlock, finish};

/// Must never be seen in any output.
const CANARY: &str = "canary7f3a";

/// What the command of these tests prints: all that it could know.
const LEAK: &str = "env; tr '\\0' '\\n' </proc/$$/cmdline";

#[track_caller]
fn silent_about(canary: &str, outcome: &Outcome) {
    assert!(!outcome.stderr.contains(canary), "on stderr: {outcome:?}");
    assert!(!outcome.stdout.contains(canary), "told to the command: {outcome:?}");
}

fn with_password(url: &str, password: &str) -> String {
    url.replacen("://", &format!("://:{password}@"), 1)
}

fn leaky(options: &[&str]) -> Command {
    let mut command = fairlock(["run"]);
    command.args(options).args(["x", "--", "sh", "-c", LEAK]);
    command
}

fn server() -> Option<Server> {
    // The test kit talks to the server as well, so the password is set once it runs.
    let server = Server::start(Generation::Redis70)?;
    server.client().call(&["CONFIG", "SET", "requirepass", CANARY]);
    Some(server)
}

#[test]
fn three_ways_in() {
    let Some(server) = server() else { return };
    let url = server.url();
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, format!("{CANARY}\n")).unwrap();

    let in_url = with_password(&url, CANARY);
    let mut by_variable = leaky(&["--url", &url]);
    by_variable.env("FAIRLOCK_PASSWORD", CANARY);
    let mut by_url_variable = leaky(&[]);
    by_url_variable.env("FAIRLOCK_URL", &in_url);
    // The file wins over a wrong variable, and that over the URL.
    let mut by_file =
        leaky(&["--url", &with_password(&url, "wrong"), "--password-file", file.to_str().unwrap()]);
    by_file.env("FAIRLOCK_PASSWORD", "wrong");

    for command in [leaky(&["--url", &in_url]), by_variable, by_url_variable, by_file] {
        let outcome = finish(command);
        outcome.expect(0, "");
        silent_about(CANARY, &outcome);
        assert!(outcome.stdout.contains("FAIRLOCK_TOKEN="), "{outcome:?}");
    }
}

/// The command may use the same server, with a password of its own.
#[test]
fn the_command_sees_the_url_without_the_password() {
    let mut command = leaky(&["--url", "memory:"]);
    command.env("FAIRLOCK_URL", format!("redis://user:{CANARY}@host:1/2"));
    command.env("FAIRLOCK_PASSWORD", CANARY);
    let outcome = finish(command);
    outcome.expect(0, "");
    silent_about(CANARY, &outcome);
    assert!(outcome.stdout.contains("FAIRLOCK_URL=redis://user@host:1/2\n"), "{outcome:?}");
    assert!(!outcome.stdout.contains("FAIRLOCK_PASSWORD"), "{outcome:?}");
}

#[test]
fn denied_without_a_word_about_the_password() {
    let Some(server) = server() else { return };
    let url = server.url();
    let wrong = "wrong9c1e";
    finish(leaky(&["--url", &url])).expect(77, "fairlock: ");
    let mut by_variable = leaky(&["--url", &url]);
    by_variable.env("FAIRLOCK_PASSWORD", wrong);
    for command in [leaky(&["--url", &with_password(&url, wrong)]), by_variable] {
        let outcome = finish(command);
        outcome.expect(77, "fairlock: ");
        silent_about(wrong, &outcome);
    }
}

#[test]
fn every_kind_of_failure_keeps_the_secret() {
    let secret = format!("redis://user:{CANARY}@127.0.0.1:1");
    let odd = format!("redis://user:{CANARY}@:99999/x?y=z");
    for args in [
        &["status", "--url", &secret, "x"][..],
        &["status", "--url", &odd, "x"],
        // The URL in the wrong place.
        &["status", &secret, &secret],
        &["run", &secret, &secret],
        &["run", "--wait", &secret, "x", "--", "true"],
        &["run", "--kind", &secret, "x", "--", "true"],
        &[&secret],
        &["run", "--scope", "fleet", "--url", "memory:", &secret, "--", "true"],
        &["run", "--scope", &secret, "x", "--", "true"],
        &["run", "--url", "memory:", "x", "--", &secret],
        &["run", "--url", "memory:", "--password-file", &secret, "x", "--", "true"],
    ] {
        let outcome = finish(fairlock(args));
        assert_ne!(outcome.code(), 0, "{args:?}: {outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{args:?}: {outcome:?}");
        silent_about(CANARY, &outcome);
    }
}

#[test]
fn password_files_that_are_none() {
    let dir = TempDir::new();
    let file = dir.path().join("password");
    let path = file.to_str().unwrap();
    let args = ["status", "--url", "memory:", "--password-file", path, "x"];
    finish(fairlock(args)).expect(64, "No such file");
    for text in ["", "\n", "two\nlines\n"] {
        fs::write(&file, text).unwrap();
        finish(fairlock(args)).expect(64, "not one line");
    }
}
