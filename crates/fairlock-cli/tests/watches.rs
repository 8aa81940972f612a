//! `fairlock watch`: a line for each change, and for nothing else.

use std::fs;
use std::path::PathBuf;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Running, alone, fairlock, finish, hold_until, run_script};

fn watch(url: &str, args: &[&str]) -> Running {
    Running::start(fairlock([&["watch", "--interval", "200ms", "--url", url], args].concat()))
}

/// The event of the next line, its lock, how many hold it, and how many wait.
fn event(watch: &mut Running) -> (String, String, u64, u64) {
    let form: Value = serde_json::from_str(&watch.line()).expect("JSON");
    let text = |field: &str| form[field].as_str().expect("a text").to_owned();
    let number = |field: &str| form[field].as_u64().expect("a number");
    (text("event"), text("name"), number("holding"), number("queue_len"))
}

fn is(event: &str, name: &str, holding: u64, waiting: u64) -> (String, String, u64, u64) {
    (event.to_owned(), name.to_owned(), holding, waiting)
}

/// The next line, without the time that it begins with.
fn text(watch: &mut Running) -> String {
    let line = watch.line();
    let (time, text) = line.split_once(' ').expect("a time and a text");
    let digits: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert!(digits == "0000-00-00T00:00:00Z" && time > "2026", "{line}");
    text.to_owned()
}

/// A run that holds a lock until its file is made.
struct Run {
    running: Running,
    file: PathBuf,
}

impl Run {
    fn start(url: &str, dir: &TempDir, label: &str, options: &[&str], name: &str) -> Self {
        let file = dir.path().join(label);
        let options = [options, &["--label", label]].concat();
        let running = Running::start(run_script(url, &options, name, &hold_until(&file)));
        Self { running, file }
    }

    fn end(self) {
        fs::write(&self.file, "").expect("the folder is there");
        self.running.wait().expect(0, "");
    }
}

fn each_change_is_a_line(url: &str) {
    let dir = TempDir::new();
    let (mut forms, mut texts) = (watch(url, &["--json", "x", "y"]), watch(url, &["x"]));
    assert_eq!(event(&mut forms), is("present", "x", 0, 0));
    assert_eq!(event(&mut forms), is("present", "y", 0, 0));
    assert_eq!(text(&mut texts), "x: free");

    // Renewed every three seconds, which is no change.
    let first = Run::start(url, &dir, "first", &["--ttl", "9s"], "x");
    assert_eq!(event(&mut forms), is("taken", "x", 1, 0));
    let line = text(&mut texts);
    assert!(line.starts_with("x: taken: held by "), "{line}");
    assert!(line.contains(", first, for ") && line.contains(", token 1"), "{line}");
    let second = Run::start(url, &dir, "second", &[], "x");
    assert_eq!(event(&mut forms), is("queue", "x", 1, 1));
    let line = text(&mut texts);
    assert!(line.starts_with("x: queue: held by ") && line.ends_with(", 1 waiting"), "{line}");

    let one = Run::start(url, &dir, "one", &["--shared"], "y");
    assert_eq!(event(&mut forms), is("taken", "y", 1, 0));
    let two = Run::start(url, &dir, "two", &["--shared"], "y");
    assert_eq!(event(&mut forms), is("holders", "y", 2, 0));
    one.end();
    assert_eq!(event(&mut forms), is("holders", "y", 1, 0));
    two.end();
    assert_eq!(event(&mut forms), is("released", "y", 0, 0));

    first.end();
    assert_eq!(event(&mut forms), is("handed_over", "x", 1, 0));
    let line = text(&mut texts);
    assert!(line.starts_with("x: handed over: held by ") && line.contains(", second, "), "{line}");
    second.end();
    assert_eq!(event(&mut forms), is("released", "x", 0, 0));
    assert_eq!(text(&mut texts), "x: released: free");

    let once = Run::start(url, &dir, "once", &["--once-per", "1h"], "x");
    assert_eq!(event(&mut forms), is("taken", "x", 1, 0));
    text(&mut texts);
    once.end();
    assert_eq!(event(&mut forms), is("done", "x", 1, 0));
    let line = text(&mut texts);
    assert!(line.starts_with("x: done, next start in 59m"), "{line}");
}

#[test]
fn each_change_is_a_line_on_a_server() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    each_change_is_a_line(&server.url());
}

/// Whoever watches may come before the first holder, who makes the store.
#[test]
fn each_change_is_a_line_on_this_host() {
    each_change_is_a_line(&alone());
}

/// `watch` used to say that a lease that ran out was released, and no command said that a renewal was overdue.
fn a_holder_that_stands_still_is_overdue_and_expires(url: &str) {
    let (mut forms, mut texts) = (watch(url, &["--json", "x"]), watch(url, &["x"]));
    let mut form = || -> Value { serde_json::from_str(&forms.line()).expect("JSON") };
    assert_eq!((&form()["event"], text(&mut texts).as_str()), (&"present".into(), "x: free"));
    let dir = TempDir::new();
    let held = Run::start(url, &dir, "held", &["--ttl", "15s"], "x");
    assert_eq!(form()["event"], "taken");
    held.running.signal(Signal::STOP);
    let overdue = form();
    assert_eq!(overdue["event"], "overdue", "{overdue}");
    assert!(overdue["holder"]["overdue_ms"].as_u64().is_some_and(|ms| ms >= 1_000), "{overdue}");
    assert_eq!(overdue["holder"]["client"]["lease_ms"], 15_000);
    for command in ["status", "list"] {
        let shown = finish(fairlock([command, "--url", url, "x"])).stdout;
        assert!(shown.contains(", renewal overdue by "), "{command}: {shown}");
    }
    let expired = form();
    let seen = (&expired["event"], &expired["expired"], &expired["held"]);
    assert_eq!(seen, (&"expired".into(), &true.into(), &false.into()));
    let [_, late, end] = [(); 3].map(|()| text(&mut texts));
    assert!(late.contains(", renewal overdue by "), "{late}");
    assert_eq!(end, "x: expired: free");
    held.running.signal(Signal::CONT);
}

#[test]
fn a_holder_that_stands_still_expires_on_a_server() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    a_holder_that_stands_still_is_overdue_and_expires(&server.url());
}

#[test]
fn a_holder_that_stands_still_expires_on_this_host() {
    a_holder_that_stands_still_is_overdue_and_expires(&alone());
}

#[test]
fn a_hold_without_a_ttl_is_shown_so() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let ours = "5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:1";
    server.client().call(&["HSET", "x", ours, "1"]);
    let shows = |command| finish(fairlock([command, "--url", &url, "x"])).stdout;
    let status = shows("status");
    assert!(
        status.contains(", never runs out (no TTL) until it is renewed or waited for"),
        "{status}"
    );
    let list = shows("list");
    assert!(list.contains("  never  ") && list.ends_with(", no TTL\n"), "{list}");
    let line = text(&mut watch(&url, &["x"]));
    assert!(line.ends_with(", no TTL"), "{line}");
    let unused = finish(fairlock(["status", "--url", &url, "y"])).stdout;
    assert!(unused.starts_with("y: free\n  not used by fairlock in the last day\n"), "{unused}");
}

#[test]
fn it_ends_with_its_reader_or_with_an_error() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut unread = watch(&url, &["x"]);
    unread.line();
    unread.reads_no_more();
    // Although nothing changes.
    unread.wait().expect(0, "");

    server.client().call(&["RPUSH", "z", "a list"]);
    watch(&url, &["x", "z"]).wait().expect(64, "`z` holds a list");

    let mut lasts = watch(&url, &["x"]);
    lasts.line();
    server.kill9();
    lasts.wait().expect(69, "fairlock: ");
    let many: Vec<_> = (0..1_001).map(|number| number.to_string()).collect();
    finish(fairlock([&["watch".to_owned()], &many[..]].concat())).expect(64, "at most 1000 locks");
}
