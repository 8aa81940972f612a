//! `fairlock wait`: until a lock is free, without taking it, and without a trace.

use std::fs;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{
    Outcome, Running, alone, eventually, fairlock, finish, guardian, hold_until, is_alive,
    run_script,
};

fn wait(url: &str, args: &[&str]) -> Outcome {
    finish(fairlock([&["wait", "--url", url][..], args].concat()))
}

fn waiting(url: &str, args: &[&str]) -> Running {
    Running::start(fairlock([&["wait", "--url", url][..], args].concat()))
}

/// A run that holds the lock, and says so.
fn holder(url: &str, options: &[&str], name: &str, dir: &TempDir) -> Running {
    let script = hold_until(&dir.path().join(format!("go-{name}")));
    let mut running = Running::start(run_script(url, options, name, &script));
    assert_eq!(running.line(), "holding");
    running
}

fn release(running: Running, name: &str, dir: &TempDir) {
    fs::write(dir.path().join(format!("go-{name}")), "").expect("the folder is there");
    running.wait().expect(0, "");
}

fn on_each_store(test: impl Fn(&str)) {
    test(&alone());
    if let Some(server) = Server::start(Generation::Redis70) {
        test(&server.url());
    }
}

/// Held, then released: of every kind. A look takes no place, so nobody stands in the queue.
#[test]
fn it_ends_when_the_lock_is_released() {
    on_each_store(|url| {
        for (at, options) in [
            &[][..],
            &["--kind", "plain"],
            &["--kind", "simple"],
            &["--kind", "rw"],
            &["--shared"],
            &["--permits", "3"],
        ]
        .into_iter()
        .enumerate()
        {
            let dir = TempDir::new();
            let name = format!("x{at}");
            let running = holder(url, options, &name, &dir);
            // Only a simple lock has to be named one: its string may be another program's.
            let kind: &[&str] =
                if options.contains(&"simple") { &["--kind", "simple"] } else { &[] };
            let args = [kind, &[&name]].concat();
            let waits = waiting(url, &args);
            wait(url, &[&args[..], &["--wait-for", "200ms"]].concat())
                .expect(75, &format!("{name}: not free within 200ms: held"));
            let status = [&["status", "--json", "--url", url][..], kind, &[&name]].concat();
            let form: Value = serde_json::from_str(&finish(fairlock(status)).stdout).unwrap();
            assert_eq!(form["queue_len"], 0, "{form}");
            release(running, &name, &dir);
            let outcome = waits.wait();
            outcome.expect(0, "");
            assert_eq!(outcome.stdout, "");
            wait(url, &[&args[..], &["--wait-for", "0"]].concat()).expect(0, "");
        }
    });
}

/// On this host at once, on a server when the lease ends.
#[test]
fn it_ends_when_the_holder_is_killed() {
    on_each_store(|url| {
        let dir = TempDir::new();
        let running = holder(url, &["--ttl", "3s", "--grace", "100ms"], "x", &dir);
        let waits = waiting(url, &["x"]);
        let guardian = guardian(running.pid());
        running.signal(Signal::KILL);
        waits.wait().expect(0, "");
        eventually("the command is gone", || !is_alive(guardian));
    });
}

/// A holder of Java's whose lease ends: looks come when it does, whatever the pause.
#[test]
fn it_ends_with_the_lease() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut raw = server.client();
    raw.call(&["HSET", "x", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
    let began = Instant::now();
    raw.call(&["PEXPIRE", "x", "700"]);
    wait(&server.url(), &["x"]).expect(0, "");
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
}

#[test]
fn it_waits_for_all_of_several() {
    on_each_store(|url| {
        let dir = TempDir::new();
        let (a, b) = (holder(url, &[], "a", &dir), holder(url, &["--shared"], "b", &dir));
        let waits = waiting(url, &["a", "free", "b"]);
        release(a, "a", &dir);
        wait(url, &["a", "free"]).expect(0, "");
        let outcome = wait(url, &["a", "b", "--wait-for", "150ms"]);
        outcome.expect(75, "b: not free within 150ms: held to read by ");
        let outcome = wait(url, &["b", "a", "--wait-for", "0"]);
        outcome.expect(75, "b: held to read by ");
        wait(url, &["-q", "b", "--wait-for", "0"]).expect(75, "");
        assert!(is_alive(waits.pid()), "b is held");
        release(b, "b", &dir);
        waits.wait().expect(0, "");
    });
}

/// It writes nothing, so whatever ends it leaves nothing.
#[test]
fn it_leaves_nothing_in_the_store() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut raw = server.client();
    raw.call(&["HSET", "x", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
    let calls = raw.script_calls();
    let waits = waiting(&server.url(), &["x"]);
    eventually("it looks again", || raw.script_calls() > calls + 5);
    let keys = || server.client().call(&["KEYS", "*"]);
    let dump = || server.client().call(&["DUMP", "x"]);
    let is_untouched = || {
        assert_eq!(keys().array().len(), 1, "{:?}", keys());
        assert_eq!(server.client().call(&["PTTL", "x"]).int(), -1);
    };
    let before = dump();
    is_untouched();
    waits.signal(Signal::KILL);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&waits.wait().status), Some(9));
    wait(&server.url(), &["x", "--wait-for", "100ms"])
        .expect(75, "held by a Java client (5f3c1a52-");
    is_untouched();
    assert_eq!(dump(), before);
}

#[test]
fn what_cannot_be_waited_for() {
    let url = alone();
    finish(fairlock(["run", "--url", &url, "x", "--", "true"])).expect(0, "");
    let long = "a".repeat(4_097);
    for (args, says) in [
        (&[""][..], "a lock name needs at least one byte"),
        (&["x", "fairlock_x"], "must not begin with `fairlock_`"),
        (&[&long], "at most 4096 bytes"),
        (&["--wait-for", "soon", "x"], "a duration"),
        (&["--wait", "1s", "x"], "did you mean '--wait-for'?"),
        (&[], "<NAME>..."),
        (&["--kind", "odd", "x"], "possible values"),
    ] {
        wait(&url, args).expect(64, says);
    }
    // A look makes no store.
    let dir = TempDir::new();
    let missing = format!("sqlite:{}/locks.db", dir.path().display());
    let began = Instant::now();
    wait(&missing, &["x"]).expect(69, "there is no store at ");
    assert!(began.elapsed() < Duration::from_secs(20), "it is not waited for");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    wait("redis://127.0.0.1:1", &["--wait-for", "0", "x"]).expect(69, "127.0.0.1:1");
    let Some(server) = Server::start(Generation::Redis70) else { return };
    server.client().call(&["SET", "text", "of another program"]);
    wait(&server.url(), &["text"]).expect(64, "`text` holds a string");
}

/// Silence is no answer: nobody knows whether the lock is held.
#[test]
fn a_silent_store_is_not_a_lock_that_is_held() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut raw = server.client();
    raw.call(&["HSET", "x", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "1"]);
    let calls = raw.script_calls();
    let waits = waiting(&server.url(), &["--wait-for", "8s", "x"]);
    // Connecting calls some as well.
    eventually("it looks again", || raw.script_calls() > calls + 5);
    server.stop();
    waits.wait().expect(69, "x: the store did not answer in time");
    server.cont();
}
