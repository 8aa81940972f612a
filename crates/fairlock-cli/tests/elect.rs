//! `fairlock elect` and `fairlock leader`: who leads, who follows, and who sees it.

use fairlock_testkit::server::{Generation, Server};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Outcome, Running, alone, eventually, fairlock, finish, is_alive};

/// Leads until it is ended, and says so.
const SERVE: &str = r#"exec 2>/dev/null
trap 'echo ended; exit 3' TERM; echo "term $FAIRLOCK_TOKEN"
while :; do sleep 0.02; done"#;

fn candidate(url: &str, value: &str, options: &[&str]) -> Running {
    let mut command = fairlock(["elect", "--url", url, "--value", value]);
    command.args(options).args(["x", "--", "sh", "-c", SERVE]);
    Running::start(command)
}

fn leader(url: &str) -> Outcome {
    finish(fairlock(["leader", "--url", url, "--json", "x"]))
}

/// The value that the leader announces.
fn value(url: &str) -> Option<String> {
    let seen: Value = serde_json::from_str(&leader(url).stdout).expect("JSON");
    seen["leader"]["value"].as_str().map(str::to_owned)
}

fn term(line: &str) -> u64 {
    line.strip_prefix("term ").and_then(|term| term.parse().ok()).expect("a term")
}

fn is_followed_and_campaigns_again(url: &str) {
    // A look makes no store; who watches may come before the first candidate.
    let mut watch = Running::start(fairlock(["leader", "--url", url, "--watch", "x"]));
    assert_eq!(watch.line(), "x: nobody leads");
    assert_eq!(leader(url).code(), 1, "nobody leads");
    let mut one = candidate(url, "one", &[]);
    let first = term(&one.line());
    assert!(watch.line().ends_with(&format!(", term {first}: one")));
    let mut two = candidate(url, "two", &[]);
    eventually("it waits", || {
        finish(fairlock(["status", "--url", url, "x"])).stdout.contains("  1. ")
    });
    finish(fairlock(["unlock", "--force", "--url", url, "x"])).expect(0, "");
    let second = term(&two.line());
    assert!(second > first);
    assert_eq!(one.line(), "ended");
    assert_eq!(value(url).as_deref(), Some("two"));
    let third = term(&{
        two.signal(Signal::TERM);
        one.line()
    });
    assert!(third > second, "it campaigned again");
    assert_eq!(two.wait().code(), 3, "its own code");
    assert_eq!(value(url).as_deref(), Some("one"));
    // A state in between may be missed, that nobody leads among them, but neither the order nor the last one.
    let mut seen = vec![first];
    while seen.last() != Some(&third) {
        if let Some((_, rest)) = watch.line().split_once(", term ") {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            seen.push(digits.parse().expect("a term"));
        }
    }
    assert!(seen.is_sorted(), "{seen:?}");
    one.signal(Signal::TERM);
    let outcome = one.wait();
    outcome.expect(3, "x: the lock was lost: it was taken away by force");
    assert_eq!(watch.line(), "x: nobody leads");
    let form: Value = serde_json::from_str(&leader(url).stdout).expect("JSON");
    assert_eq!(form["leader"], Value::Null);
}

#[test]
fn a_leader_is_followed_and_campaigns_again_on_a_server() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    is_followed_and_campaigns_again(&server.url());
}

#[test]
fn a_leader_is_followed_and_campaigns_again_on_this_host() {
    is_followed_and_campaigns_again(&alone());
}

#[test]
fn once_it_ends_with_the_term() {
    let url = alone();
    let mut one = candidate(&url, "one", &["--once", "--grace", "300ms"]);
    term(&one.line());
    finish(fairlock(["unlock", "--force", "--url", &url, "x"])).expect(0, "");
    one.wait().expect(76, "x: the lock was lost");
}

#[test]
fn a_command_that_ends_gives_the_term_back() {
    let url = alone();
    let run = |script: &str| {
        finish(fairlock(["elect", "--url", &url, "--value", "v", "x", "--", "sh", "-c", script]))
    };
    run("exit 5").expect(5, "");
    assert_eq!(leader(&url).code(), 1);
    run("exit 0").expect(0, "");
}

#[test]
fn the_form_of_a_leader() {
    let url = alone();
    let mut one = candidate(&url, "http://10.0.0.7:8080", &[]);
    let term = term(&one.line());
    let outcome = leader(&url);
    outcome.expect(0, "");
    let form: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!((form["schema"].as_u64(), form["name"].as_str()), (Some(1), Some("x")));
    assert_eq!(form["leader"]["term"].as_u64(), Some(term));
    assert_eq!(form["leader"]["value"], "http://10.0.0.7:8080");
    assert_eq!((&form["name_hex"], &form["leader"]["value_hex"]), (&Value::Null, &Value::Null));
    assert!(form["leader"]["since_ms"].as_u64().is_some_and(|ms| ms > 1_700_000_000_000));
    assert!(form["leader"]["owner"].is_string());
    let text = finish(fairlock(["leader", "--url", &url, "x"])).stdout;
    assert!(text.starts_with("x: led by ") && text.ends_with(": http://10.0.0.7:8080\n"), "{text}");
    // Both commands show who it is, and what it announces.
    let status =
        |args: &[&str]| finish(fairlock([&["status", "--url", &url, "x"], args].concat())).stdout;
    let seen: Value = serde_json::from_str(&status(&["--json"])).expect("JSON");
    // The start of a client is worked out anew by each look, to the millisecond.
    let client = &form["leader"]["client"];
    for field in ["host", "user", "pid", "label", "lease_ms", "version"] {
        assert_eq!(client[field], seen["holder"]["client"][field], "{field}");
        assert!(!client[field].is_null(), "{field}");
    }
    assert!(text.contains(&format!(", pid {}", client["pid"])), "{text}");
    assert_eq!((&seen["value"], &seen["value_hex"]), (&form["leader"]["value"], &Value::Null));
    let human = status(&[]);
    assert!(human.contains("\n  announces http://10.0.0.7:8080\n"), "{human}");
    one.signal(Signal::INT);
    one.wait();
}

#[test]
fn what_cannot_be_announced_is_refused() {
    let long = "v".repeat(1_025);
    let outcome =
        finish(fairlock(["elect", "--url", &alone(), "--value", &long, "x", "--", "true"]));
    outcome.expect(64, "x: a --value of 1025 bytes cannot be announced; the most are 1024");
    let outcome = finish(fairlock(["elect", "--url", "memory:", "x", "--", "true"]));
    outcome.expect(64, "one process only");
}

/// Runs as long as it leads, with a child that must not outlive it.
const FAMILY: &str = r#"exec 2>/dev/null
sh -c 'while :; do sleep 0.02; done' &
echo "term $FAIRLOCK_TOKEN"; echo $$ $!
while :; do sleep 0.02; done"#;

fn family(url: &str, value: &str, options: &[&str]) -> Running {
    let mut command = fairlock(["elect", "--url", url, "--value", value]);
    command.args(options).args(["x", "--", "sh", "-c", FAMILY]);
    Running::start(command)
}

fn is_in_line(url: &str) {
    eventually("it waits", || {
        finish(fairlock(["status", "--url", url, "x"])).stdout.contains("  1. ")
    });
}

/// Nothing of a killed leader works on, and the next one leads when the lease is over.
fn a_killed_leader_is_followed(url: &str) {
    let mut one = family(url, "one", &["--ttl", "6s"]);
    let first = term(&one.line());
    let processes: Vec<_> = one.line().split(' ').map(str::to_owned).collect();
    let mut watch = Running::start(fairlock(["leader", "--url", url, "--watch", "x"]));
    assert!(watch.line().ends_with(&format!(", term {first}: one")));
    let mut two = candidate(url, "two", &["--ttl", "6s"]);
    is_in_line(url);
    one.signal(Signal::KILL);
    assert!(term(&two.line()) > first);
    for process in &processes {
        eventually("nothing of it is left", || !is_alive(process));
    }
    while !watch.line().ends_with(": two") {}
    two.signal(Signal::TERM);
    assert_eq!(two.wait().code(), 3);
}

#[test]
fn a_killed_leader_is_followed_on_a_server() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    a_killed_leader_is_followed(&server.url());
}

#[test]
fn a_killed_leader_is_followed_on_this_host() {
    a_killed_leader_is_followed(&alone());
}

/// A leader that is stopped renews nothing. Its command is ended by the end of the lease all the same; when
/// continued, it says that it was deposed, and stands at the end of the line.
#[test]
fn a_stopped_leader_is_deposed_and_stands_again() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut one = family(&url, "one", &["--ttl", "6s", "--grace", "100ms"]);
    let first = term(&one.line());
    let processes: Vec<_> = one.line().split(' ').map(str::to_owned).collect();
    let mut two = candidate(&url, "two", &["--ttl", "6s"]);
    is_in_line(&url);
    one.signal(Signal::STOP);
    let second = term(&two.line());
    assert!(second > first);
    // Killed at the deadline, which is a hundredth of the lease before its end: on a busy machine the kill may come
    // later than that, as `cli::loss` measures with longer leases.
    for process in &processes {
        eventually("nothing of it is left", || !is_alive(process));
    }
    one.signal(Signal::CONT);
    is_in_line(&url);
    two.signal(Signal::TERM);
    assert_eq!(two.wait().code(), 3);
    let third = term(&one.line());
    assert!(third > second);
    one.line();
    one.signal(Signal::TERM);
    let outcome = one.wait();
    // The command has no handler of its own.
    outcome.expect(143, "x: the lock was lost: its lease ran out");
}

/// A candidate whose command had run before, and who waited again, took every signal for one that ends it: 146 after `fg`, 156
/// when its terminal was resized.
#[test]
fn job_control_ends_no_second_candidacy() {
    let url = alone();
    let mut one = candidate(&url, "one", &[]);
    let first = term(&one.line());
    let mut two = candidate(&url, "two", &[]);
    is_in_line(&url);
    finish(fairlock(["unlock", "--force", "--url", &url, "x"])).expect(0, "");
    assert!(term(&two.line()) > first);
    assert_eq!(one.line(), "ended");
    is_in_line(&url);
    for signal in [Signal::WINCH, Signal::TSTP, Signal::CONT, Signal::WINCH] {
        one.signal(signal);
    }
    two.signal(Signal::TERM);
    two.wait().expect(3, "");
    let third = term(&one.line());
    let mut three = candidate(&url, "three", &[]);
    is_in_line(&url);
    finish(fairlock(["unlock", "--force", "--url", &url, "x"])).expect(0, "");
    assert!(term(&three.line()) > third);
    assert_eq!(one.line(), "ended");
    is_in_line(&url);
    one.signal(Signal::TERM);
    assert_eq!(one.wait().code(), 143, "it is ended as in its first candidacy");
    three.signal(Signal::TERM);
    three.wait().expect(3, "");
}

/// With `--once` a stopped leader ends with 76 instead.
#[test]
fn a_stopped_leader_ends_with_its_only_term() {
    let url = alone();
    let mut one = family(&url, "one", &["--once", "--ttl", "3s", "--grace", "100ms"]);
    term(&one.line());
    let processes: Vec<_> = one.line().split(' ').map(str::to_owned).collect();
    one.signal(Signal::STOP);
    for process in &processes {
        eventually("nothing of it is left", || !is_alive(process));
    }
    one.signal(Signal::CONT);
    one.wait().expect(76, "x: the lock was lost");
    assert_eq!(leader(&url).code(), 1);
}

/// The code is the command's own, 128 + n where a signal ended it, or ends the candidacy.
#[test]
fn how_a_candidate_ends() {
    let url = alone();
    let run = |command: &[&str]| {
        finish(fairlock([&["elect", "--url", &url, "x", "--"], command].concat()))
    };
    run(&["sh", "-c", "kill -KILL $$"]).expect(137, "");
    run(&["/does/not/exist"]).expect(127, "fairlock: ");
    run(&["/"]).expect(126, "fairlock: ");
    assert_eq!(leader(&url).code(), 1, "each term was given back");

    let mut one = candidate(&url, "one", &[]);
    term(&one.line());
    let two = candidate(&url, "two", &[]);
    is_in_line(&url);
    two.signal(Signal::TERM);
    two.wait().expect(143, "");
    eventually("it has left the line", || {
        !finish(fairlock(["status", "--url", &url, "x"])).stdout.contains("  1. ")
    });
    assert_eq!(value(&url).as_deref(), Some("one"));
    one.signal(Signal::HUP);
    // Passed on to the command, which has no handler for it.
    one.wait().expect(129, "");
    assert_eq!(leader(&url).code(), 1);
}

/// What `leader` says when nobody leads, when somebody holds the lock who has announced nothing, and when there is no store.
#[test]
fn what_is_shown_of_no_leader() {
    let url = alone();
    finish(fairlock(["leader", "--url", &url, "x"])).expect(69, "fairlock: ");
    finish(fairlock(["run", "--url", &url, "x", "--", "true"])).expect(0, "");
    let outcome = finish(fairlock(["leader", "--url", &url, "x"]));
    outcome.expect(1, "");
    assert_eq!(outcome.stdout, "x: nobody leads\n");
    let outcome = leader(&url);
    outcome.expect(1, "");
    let form = r#"{"leader":null,"name":"x","name_hex":null,"schema":1}"#;
    let seen: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(seen, serde_json::from_str::<Value>(form).expect("JSON"));

    let mut holds = Running::start(fairlock(["run", "--url", &url, "x", "--", "sh", "-c", SERVE]));
    holds.line();
    let outcome = finish(fairlock(["leader", "--url", &url, "x"]));
    outcome.expect(0, "");
    assert!(outcome.stdout.starts_with("x: led by "), "{outcome:?}");
    assert!(outcome.stdout.ends_with(", not announced\n"), "{outcome:?}");
    let seen: Value = serde_json::from_str(&leader(&url).stdout).expect("JSON");
    assert_eq!(
        (&seen["leader"]["value"], &seen["leader"]["since_ms"]),
        (&Value::Null, &Value::Null)
    );
    holds.signal(Signal::TERM);
    holds.wait();
}

/// A terminal must not obey a value, and JSON has what it cannot show as text.
#[test]
fn values_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let url = alone();
    let mut command = fairlock(["elect", "--url", &url, "--value"]);
    command.arg(std::ffi::OsStr::from_bytes(b"a\x1b[31m\n\xff"));
    command.args(["x", "--", "sh", "-c", SERVE]);
    let mut one = Running::start(command);
    term(&one.line());
    let outcome = finish(fairlock(["leader", "--url", &url, "x"]));
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
    assert!(!outcome.stdout.contains('\x1b'), "{outcome:?}");
    let seen: Value = serde_json::from_str(&leader(&url).stdout).expect("JSON");
    assert_eq!(seen["leader"]["value_hex"], "611b5b33316d0aff");
    assert_eq!(seen["leader"]["value"], "a\u{1b}[31m\n\u{fffd}");
    one.signal(Signal::TERM);
    assert_eq!(one.wait().code(), 3);
}

/// Each change is one object; nobody who reads ends it without a message, and a store that is gone with one.
#[test]
fn watching_ends_with_its_reader_or_its_store() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let watch = || Running::start(fairlock(["leader", "--url", &url, "--watch", "--json", "x"]));
    let mut seen = watch();
    let form = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    assert_eq!(form(&seen.line())["leader"], Value::Null);
    let mut one = candidate(&url, "one", &[]);
    let first = term(&one.line());
    let value = loop {
        let form = form(&seen.line());
        assert_eq!(form["leader"]["term"].as_u64(), Some(first));
        if form["leader"]["value"] != Value::Null {
            break form["leader"]["value"].clone();
        }
    };
    assert_eq!(value, "one");
    seen.signal(Signal::TERM);
    assert!(!seen.wait().status.success());

    let mut unread = watch();
    unread.line();
    unread.reads_no_more();
    // Nothing changes: it ended only with the next change, under a stable leader never.
    unread.wait().expect(0, "");
    one.signal(Signal::TERM);
    one.wait();

    let mut lasts = watch();
    lasts.line();
    server.kill9();
    lasts.wait().expect(69, "fairlock: ");
}
