//! `fairlock list`, on a server that stores more than locks.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use serde_json::Value;

use crate::fixture::{Running, alone, eventually, fairlock, finish, hold_until, run_script};

const JAVA: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";

fn json(url: &str, options: &[&str]) -> Vec<Value> {
    let outcome = finish(fairlock([&["list", "--json", "--url", url], options].concat()));
    outcome.expect(0, "");
    let lines = outcome.stdout.lines();
    let mut found: Vec<Value> =
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    found.sort_by_key(|lock| lock["name"].to_string());
    found
}

fn names(url: &str, options: &[&str]) -> Vec<String> {
    let name = |lock: &Value| lock["name"].as_str().expect("a text").to_owned();
    json(url, options).iter().map(name).collect()
}

/// Holders and a waiter, started as commands; all of them end with the scene.
struct Scene {
    _running: Vec<Running>,
    file: PathBuf,
    _dir: TempDir,
}

impl Scene {
    /// `nightly` is held and has a waiter; `report` is held as a plain lock, `simple` as a simple
    /// one, `java` by Java with a queue; `old` is free.
    fn start(server: &Server) -> Self {
        let (url, dir) = (server.url(), TempDir::new());
        let file = dir.path().join("go");
        let mut running = Vec::new();
        let holders: [(&str, &[&str]); 3] = [
            ("nightly", &["--label", "backup"]),
            ("report", &["--kind", "plain"]),
            ("simple", &["--kind", "simple"]),
        ];
        for (name, options) in holders {
            let mut holder = Running::start(run_script(&url, options, name, &hold_until(&file)));
            assert_eq!(holder.line(), "holding");
            running.push(holder);
        }
        running.push(Running::start(run_script(&url, &[], "nightly", "true")));
        finish(run_script(&url, &[], "old", "true")).expect(0, "");
        let mut raw = server.client();
        raw.call(&["HSET", "java", JAVA, "1"]);
        raw.call(&["RPUSH", "redisson_lock_queue:{java}", "another"]);
        raw.call(&["ZADD", "redisson_lock_timeout:{java}", "9000000000000", "another"]);
        for number in 0..100 {
            raw.call(&["SET", &format!("session:{number}"), "x"]);
        }
        eventually("one waits", || json(&url, &["nightly"])[0]["queue_len"] == 1);
        Self { _running: running, file, _dir: dir }
    }

    fn end(self) {
        std::fs::write(&self.file, "").expect("the folder is there");
        for running in self._running {
            running.wait().expect(0, "");
        }
    }
}

#[test]
fn locks_are_found_and_filtered() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, scene) = (server.url(), Scene::start(&server));
    let found = json(&url, &[]);
    let seen: Vec<_> = found
        .iter()
        .map(|lock| {
            let text = |field: &str| lock[field].as_str().unwrap_or("-").to_owned();
            (text("name"), text("kind"), lock["held"] == true, lock["queue_len"].as_u64().unwrap())
        })
        .collect();
    let row = |name: &str, kind: &str, waiting| (name.into(), kind.into(), true, waiting);
    assert_eq!(
        seen,
        [
            row("java", "fair", 1),
            row("nightly", "fair", 1),
            row("report", "-", 0),
            row("simple", "simple", 0),
        ]
    );
    let nightly = &found[1];
    assert_eq!(nightly["schema"], 1);
    assert_eq!(nightly["holder"]["client"]["label"], "backup");
    assert!(nightly["ttl_ms"].is_u64() && nightly["token"].is_u64(), "{nightly}");
    assert!(nightly.get("queue").is_none(), "{nightly}");
    assert_eq!((&found[0]["holder"]["owner"], &found[0]["token"]), (&JAVA.into(), &Value::Null));

    assert_eq!(names(&url, &["--all"]), ["java", "nightly", "old", "report", "simple"]);
    assert_eq!(names(&url, &["--held", "--rate", "1000000"]), names(&url, &[]));
    assert_eq!(names(&url, &["--waiting"]), ["java", "nightly"]);
    assert_eq!(names(&url, &["--kind", "simple"]), ["simple"]);
    assert_eq!(names(&url, &["--kind", "plain"]), ["report"]);
    assert_eq!(names(&url, &["--kind", "fair"]), ["java", "nightly", "report"]);
    // Locks that are named are shown, whether free, unknown, or of another kind.
    assert_eq!(names(&url, &["old", "simple", "never"]), ["never", "old", "simple"]);
    assert_eq!(names(&url, &["--held", "old", "simple", "never"]), ["simple"]);
    // By what a name begins with: those in use, beside the ones that are named.
    assert_eq!(names(&url, &["n*"]), ["nightly"]);
    assert_eq!(names(&url, &["r*", "s*"]), ["report", "simple"]);
    assert_eq!(names(&url, &["--held", "*"]), ["java", "nightly", "report", "simple"]);
    assert_eq!(names(&url, &["o*"]), [""; 0]);
    assert_eq!(names(&url, &["--all", "o*"]), ["old"]);
    assert_eq!(names(&url, &["old", "nightly", "n*"]), ["nightly", "old"]);
    scene.end();
    assert_eq!(names(&url, &[]), ["java"]);
}

#[test]
fn those_of_this_host_are_found_by_what_they_begin_with() {
    let (url, dir) = (alone(), TempDir::new());
    let file = dir.path().join("go");
    let holders = ["job:1", "job:2", "other"].map(|name| {
        let mut holder = Running::start(run_script(&url, &[], name, &hold_until(&file)));
        assert_eq!(holder.line(), "holding");
        holder
    });
    assert_eq!(names(&url, &["job:*"]), ["job:1", "job:2"]);
    std::fs::write(&file, "").expect("the folder is there");
    for holder in holders {
        holder.wait().expect(0, "");
    }
}

#[test]
fn people_get_a_table() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, scene) = (server.url(), Scene::start(&server));
    let outcome = finish(fairlock(["list", "--all", "--url", &url]));
    outcome.expect(0, "");
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let columns: Vec<Vec<_>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(columns[0], ["NAME", "KIND", "FOR", "LEFT", "WAITING", "TOKEN", "HOLDER"]);
    let first: Vec<_> = columns.iter().map(|line| line[0]).collect();
    assert_eq!(first, ["NAME", "java", "nightly", "old", "report", "simple"]);
    assert_eq!(columns[1], ["java", "fair", "-", "never", "1", "-", JAVA]);
    assert_eq!((&columns[3][..5], columns[3][6]), (&["old", "-", "-", "-", "0"][..], "free"));
    assert!(lines[2].contains(", pid ") && lines[2].ends_with(", backup"), "{outcome:?}");
    // The columns are aligned with their headings.
    for head in ["WAITING", "TOKEN", "HOLDER"] {
        let at = lines[0].find(head).unwrap();
        let aligned = |line: &&str| !line[at..].starts_with(' ') && line[..at].ends_with("  ");
        assert!(lines.iter().all(aligned), "{head}: {}", outcome.stdout);
    }
    scene.end();
}

/// A name can neither act on the terminal nor look like another row.
#[test]
fn names_are_shown_harmlessly() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    let name = b"a\x1b[2J\nb\xff\xe2\x80\xaec";
    raw.call(&[
        b"SET".as_slice(),
        &[b"redisson_lock_token:{".as_slice(), name, b"}"].concat(),
        b"1",
    ]);
    raw.call(&[b"HSET".as_slice(), name, JAVA.as_bytes(), b"1"]);
    for named in [false, true] {
        let mut command = fairlock(["list", "--url", &url]);
        if named {
            command.arg(OsStr::from_bytes(name));
        }
        let outcome = finish(command);
        outcome.expect(0, "");
        assert_eq!(outcome.stdout.lines().count(), 2, "{outcome:?}");
        let shown = "a\\u{1b}[2J b\u{fffd}\\u{202e}c  -";
        assert!(outcome.stdout.lines().nth(1).unwrap().starts_with(shown), "{outcome:?}");
    }
    assert_eq!(json(&url, &[])[0]["name_hex"], "611b5b324a0a62ffe280ae63");
}

/// A lock whose key holds something else is reported, and hides no other.
#[test]
fn one_that_is_broken_hides_no_other() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    raw.call(&["RPUSH", "broken", "a list"]);
    raw.call(&["HSET", "java", JAVA, "1"]);
    let outcome = finish(fairlock(["list", "--url", &url, "broken", "java", ""]));
    assert_eq!(outcome.code(), 64, "{outcome:?}");
    assert!(outcome.stdout.lines().any(|line| line.starts_with("java")), "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 2, "{outcome:?}");
    assert!(outcome.stderr.contains("`broken` holds a list"), "{outcome:?}");
}

/// A slow search prints as it finds, and ends with its reader.
#[test]
fn it_ends_with_its_reader() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    for number in 0..2_000 {
        raw.call(&["SET", &format!("redisson_lock_token:{{job:{number}}}"), "1"]);
    }
    // At this pace it takes more than a minute.
    let mut command = fairlock(["list", "--json", "--all", "--rate", "100", "--url", &url]);
    command.stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("\"name\":\"job:"), "{line}");
    drop(stdout);
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn without_the_server() {
    finish(fairlock(["list", "--url", "redis://127.0.0.1:1"])).expect(69, "127.0.0.1:1");
}
