//! `fairlock elect` and `fairlock leader`: who leads, who follows, and who sees it.

use fairlock_testkit::server::{Generation, Server};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Outcome, Running, alone, eventually, fairlock, finish};

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
    // A look makes no store.
    finish(fairlock(["run", "--url", url, "x", "--", "true"])).expect(0, "");
    assert_eq!(leader(url).code(), 1, "nobody leads");
    let mut watch = Running::start(fairlock(["leader", "--url", url, "--watch", "x"]));
    assert_eq!(watch.line(), "x: nobody leads");
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
    one.signal(Signal::TERM);
    let outcome = one.wait();
    outcome.expect(3, "x: the lock was lost: it was taken away by force");
    // A state between may be missed, the order not.
    let mut seen = vec![first];
    while let Some((_, rest)) = watch.line().split_once(", term ") {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        seen.push(digits.parse().expect("a term"));
    }
    assert!(seen.is_sorted() && seen.contains(&third), "{seen:?}");
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
