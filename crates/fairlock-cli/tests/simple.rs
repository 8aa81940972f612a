//! `--kind simple`: one string, shared with clients that know nothing of fairlock.

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use serde_json::Value;

use crate::fixture::{Running, fairlock, finish, hold_until, run_script};

const SIMPLE: &[&str] = &["--kind", "simple"];

#[test]
fn a_foreign_holder_keeps_us_out() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    raw.call(&["SET", "x", "a\tvalue\x1b[31m", "NX", "PX", "60000"]);
    let once = ["--kind", "simple", "--wait", "0"];
    finish(run_script(&url, &once, "x", "echo never")).expect(75, "x");
    let shown = finish(fairlock(["status", "--kind", "simple", "--url", &url, "x"]));
    shown.expect(0, "");
    assert!(
        shown.stdout.starts_with("x: held by another program (a\\tvalue\\x1b[31m), runs out in"),
        "{shown:?}"
    );
    // Of another kind: refused, with the key's name.
    finish(fairlock(["run", "--url", &url, "x", "--", "true"])).expect(64, "`x` holds a string");
    let unlocked = finish(fairlock(["unlock", "--force", "--kind", "simple", "--url", &url, "x"]));
    unlocked.expect(0, "");
    assert!(unlocked.stdout.starts_with("x: unlocked; it was held by "), "{unlocked:?}");
    assert_eq!(raw.call(&["EXISTS", "x"]).int(), 0);
}

/// D01: a wait for a name that was an application's hash gave the hash a TTL of 30 s and then ran
/// the command; `unlock --force` deleted it, and with `--kind simple` a semaphore's string.
#[test]
fn d01_what_is_no_lock_is_named_and_stays() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    raw.call(&["HSET", "user:42", "name", "bob", "mail", "b@x"]);
    raw.call(&["SET", "permits", "5"]);
    let says = "user:42` holds a hash with 2 fields, not a lock";
    for kind in ["fair", "plain"] {
        for args in [
            &["run", "--wait", "1s", "--kind", kind, "--url", &url, "user:42", "--", "true"][..],
            &["unlock", "--force", "--kind", kind, "--url", &url, "user:42"],
        ] {
            finish(fairlock(args)).expect(64, says);
        }
    }
    finish(fairlock(["status", "--url", &url, "user:42"])).expect(64, says);
    assert_eq!(raw.call(&["PTTL", "user:42"]).int(), -1);
    assert_eq!(raw.call(&["HLEN", "user:42"]).int(), 2);
    let unlock = ["unlock", "--force", "--kind", "simple", "--url", &url, "permits"];
    let counter =
        "permits` holds a number without a TTL: a latch (`fairlock latch`; `latch`), or a counter";
    finish(fairlock(unlock)).expect(64, counter);
    finish(fairlock(["run", "--wait", "0", "--url", &url, "permits", "--", "true"]))
        .expect(64, counter);
    // Other strings may be locks.
    for (value, ttl) in [("5", &["PX", "60000"][..]), ("123456789012345678901", &[]), ("5x", &[])] {
        raw.call(&[&["SET", "text", value], ttl].concat());
        let other = finish(fairlock(["run", "--wait", "0", "--url", &url, "text", "--", "true"]));
        other.expect(64, "it is a simple lock (`--kind simple`");
    }
    assert_eq!(raw.call(&["GET", "permits"]).text(), "5");
}

/// A latch or a counter was shown as held by its number, and a lock that never ends looked like a free one.
#[test]
fn a_number_is_no_holder_and_what_never_ends_says_so() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    let shown = |args: &[&str]| {
        let outcome = finish(fairlock([args, &["--url", &url]].concat()));
        outcome.expect(0, "");
        outcome.stdout
    };
    finish(fairlock(["latch", "--url", &url, "l", "--set", "3"])).expect(0, "");
    let number =
        "3, a number without a TTL: a latch (`fairlock latch --show`) or a counter, not a lock";
    assert!(shown(&["status", "--kind", "simple", "l"]).starts_with(&format!("l: {number}\n")));
    assert!(shown(&["list", "l"]).contains(number));
    // One that ends may be a lock of another program, whose values are numbers.
    raw.call(&["SET", "n", "3", "PX", "60000"]);
    let line = shown(&["status", "--kind", "simple", "n"]);
    assert!(line.starts_with("n: held by another program (3), runs out in "), "{line}");
    raw.call(&["HSET", "java", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
    let line = shown(&["status", "java"]);
    let held = "java: held by a Java client (5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51), never runs out (no TTL)\n";
    assert!(line.starts_with(held), "{line}");
    let line = shown(&["list", "java"]);
    let row: Vec<_> = line.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["java", "-", "-", "never"], "{line}");
}

/// The message used to advise removing the key: a live lock that somebody held.
#[test]
fn the_message_about_a_lock_of_another_kind_names_the_kind() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir, mut raw) = (server.url(), TempDir::new(), server.client());
    for (held, typed, advice) in [
        (
            "fair",
            "simple",
            "(`--kind fair` or `plain`; `fair_lock`, `plain_lock`), and remove nothing",
        ),
        ("simple", "fair", "(`--kind simple`; `simple_lock`), a latch (`fairlock latch`; `latch`)"),
        (
            "simple",
            "plain",
            "(`--kind simple`; `simple_lock`), a latch (`fairlock latch`; `latch`)",
        ),
    ] {
        let name = format!("{held}-{typed}");
        let file = dir.path().join(&name);
        let script = hold_until(&file);
        let mut running = Running::start(run_script(&url, &["--kind", held], &name, &script));
        assert_eq!(running.line(), "holding");
        for args in [&["run", "--wait", "0"][..], &["status"], &["unlock", "--force"]] {
            let mut other = fairlock(args);
            other.args(["--kind", typed, "--url", &url, &name]);
            let outcome = finish(other);
            outcome.expect(64, advice);
            for advice in ["use another name", "remove nothing"] {
                assert!(outcome.stderr.contains(advice), "{outcome:?}");
            }
        }
        assert_eq!(raw.call(&["EXISTS", &name]).int(), 1);
        std::fs::write(&file, "").expect("the folder is there");
        running.wait().expect(0, "");
    }
    // A key that belongs to a fair lock's queue is not a lock of any kind.
    raw.call(&["SET", "redisson_lock_queue:{queue}", "x"]);
    let outcome = finish(fairlock(["run", "--url", &url, "queue", "--", "true"]));
    outcome.expect(64, "another program wrote it: use another name for the lock");
}

#[test]
fn we_keep_a_foreign_client_out() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir, mut raw) = (server.url(), TempDir::new(), server.client());
    let file = dir.path().join("go");
    let mut running = Running::start(run_script(&url, SIMPLE, "x", &hold_until(&file)));
    assert_eq!(running.line(), "holding");
    assert!(raw.call(&["SET", "x", "theirs", "NX", "PX", "60000"]).is_nil());
    let shown = finish(fairlock(["status", "--json", "--kind", "simple", "--url", &url, "x"]));
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let value = raw.call(&["GET", "x"]);
    let owner = shown["holder"]["owner"].as_str().expect("an owner");
    assert!(value.text().starts_with(&format!("{owner}:")), "{value:?}, {shown}");
    assert_eq!((&shown["held"], &shown["queue_len"]), (&true.into(), &0.into()));
    std::fs::write(&file, "").expect("the folder is there");
    running.wait().expect(0, "");
    assert_eq!(raw.call(&["SET", "x", "theirs", "NX", "PX", "60000"]).text(), "OK");
}
