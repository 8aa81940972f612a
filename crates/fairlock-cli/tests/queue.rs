//! Several processes and one lock on a server.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::Signal;

use crate::fixture::{
    Running, eventually, fairlock, finish, hold_until, lines, run_script, status,
};
use crate::many::host;

#[track_caller]
fn queue_reaches(url: &str, name: &str, length: usize) {
    eventually("the queue has its length", || status(url, name)["queue_len"] == length);
}

/// A holder that keeps the lock until `go` is called or it is dropped.
struct Holder {
    running: Running,
    file: PathBuf,
}

impl Holder {
    fn start(url: &str, name: &str, dir: &TempDir) -> Self {
        let file = dir.path().join("go");
        let mut running = Running::start(run_script(url, &[], name, &hold_until(&file)));
        assert_eq!(running.line(), "holding");
        Self { running, file }
    }

    fn go(self) {
        fs::write(&self.file, "").expect("the folder is there");
        self.running.wait().expect(0, "");
    }
}

#[test]
fn ten_contenders_in_order_one_at_a_time() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let log = dir.path().join("log");
    let holder = Holder::start(&url, "x", &dir);
    let mut contenders = Vec::new();
    for i in 1..=10 {
        // A folder can only be created once: two holders at a time would show.
        let script = format!(
            "cd {}; mkdir inside || echo overlap >>log; echo {i} $FAIRLOCK_TOKEN >>log; \
             sleep 0.02; rmdir inside; exit {i}",
            dir.path().display()
        );
        contenders.push(Running::start(run_script(&url, &[], "x", &script)));
        queue_reaches(&url, "x", i);
    }
    holder.go();
    for (i, contender) in (1..).zip(contenders) {
        contender.wait().expect(i, "");
    }
    let log = lines(&log);
    let (mut order, mut tokens) = (Vec::new(), Vec::<u64>::new());
    for line in &log {
        let (i, token) = line.split_once(' ').expect("number and token");
        order.push(i.parse::<u32>().unwrap());
        tokens.push(token.parse().unwrap());
    }
    assert_eq!(order, (1..=10).collect::<Vec<_>>(), "{log:?}");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{log:?}");
    assert_eq!(status(&url, "x")["held"], false);
}

/// What a hand-over gives at first is 6 s, less the age of the waiter's last request. After waits of 0.9 to
/// 2.6 s that was less than the grace: the command was ended at once, as if its lease of a minute were over,
/// or did not begin, and its turn went to the next one.
#[test]
fn a_waiter_with_a_fixed_lease_keeps_its_turn() {
    let rounds = [900, 1_200, 1_700, 2_200].map(|wait_ms| {
        let dir = TempDir::new();
        let url = host(&dir);
        let holder = Holder::start(&url, "x", &dir);
        let script = |who| format!("echo {who} >>{}/log; sleep 0.2", dir.path().display());
        let fixed = Running::start(run_script(&url, &["--lease", "60s"], "x", &script("fixed")));
        queue_reaches(&url, "x", 1);
        let next = Running::start(run_script(&url, &[], "x", &script("next")));
        queue_reaches(&url, "x", 2);
        let free_at = Instant::now() + Duration::from_millis(wait_ms);
        (wait_ms, free_at, dir, holder, fixed, next)
    });
    for (wait_ms, free_at, dir, holder, fixed, next) in rounds {
        // The age of the request, not an order of events.
        std::thread::sleep(free_at.saturating_duration_since(Instant::now()));
        holder.go();
        fixed.wait().expect(0, "");
        next.wait().expect(0, "");
        assert_eq!(lines(&dir.path().join("log")), ["fixed", "next"], "after {wait_ms} ms");
    }
}

#[test]
fn a_signal_while_waiting_leaves_the_queue() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let holder = Holder::start(&url, "x", &dir);
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
    ] {
        let waiter = Running::start(run_script(&url, &[], "x", "echo must not run"));
        queue_reaches(&url, "x", 1);
        waiter.signal(signal);
        let outcome = waiter.wait();
        outcome.expect(code, "");
        assert_eq!(outcome.stdout, "");
        // The waiter left the queue itself: nobody had to notice that it is dead.
        assert_eq!(status(&url, "x")["queue_len"], 0, "{signal:?}");
    }
    holder.go();
}

#[test]
fn a_killed_waiter_holds_nobody_up() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let holder = Holder::start(&url, "x", &dir);
    let dead = Running::start(run_script(&url, &[], "x", "echo must not run"));
    queue_reaches(&url, "x", 1);
    let next = Running::start(run_script(&url, &[], "x", "exit 5"));
    queue_reaches(&url, "x", 2);
    dead.signal(Signal::KILL);
    holder.go();
    next.wait().expect(5, "");
}

#[test]
fn conflicts_have_a_code_of_their_own() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let holder = Holder::start(&url, "x", &dir);
    for (options, code, text) in [
        (&["--wait", "0"][..], 75, "x: held by "),
        (&["--wait", "50ms"], 75, "x: not acquired within 50ms: held by "),
        (&["--wait", "0", "--conflict-exit-code", "3"], 3, "x: held by "),
        // A silent skip.
        (&["--wait", "0", "--conflict-exit-code", "0"], 0, ""),
        (&["--wait", "0", "--quiet"], 75, ""),
    ] {
        let outcome = finish(run_script(&url, options, "x", "echo must not run"));
        outcome.expect(code, text);
        assert_eq!(outcome.stdout, "");
    }
    assert_eq!(status(&url, "x")["queue_len"], 0);
    holder.go();
    finish(run_script(&url, &["--wait", "0"], "x", "exit 4")).expect(4, "");
}

/// "Held by another" did not say by whom.
#[test]
fn d25_a_refused_run_names_the_holder() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    for kind in ["fair", "plain", "simple"] {
        let file = dir.path().join(kind);
        let options = ["--kind", kind, "--label", "the first"];
        let mut holder = Running::start(run_script(&url, &options, kind, &hold_until(&file)));
        assert_eq!(holder.line(), "holding");
        let who = format!(", pid {}, the first, for ", holder.pid());
        for wait in ["0", "50ms"] {
            let outcome =
                finish(run_script(&url, &["--kind", kind, "--wait", wait], kind, "echo ran"));
            outcome.expect(75, &who);
            assert!(
                outcome.stderr.contains("held by ") && outcome.stderr.contains('@'),
                "{outcome:?}"
            );
        }
        fs::write(file, "").unwrap();
        holder.wait().expect(0, "");
    }
}

/// Without a terminal, a wait used to print nothing at all, however long it was. Real time is the
/// subject of the test: the first line comes after 10 s.
#[test]
fn d25_a_long_wait_is_told_off_a_terminal() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let holder = Holder::start(&url, "x", &dir);
    let first = Running::start(run_script(&url, &["--label", "first", "-q"], "x", "exit 3"));
    queue_reaches(&url, "x", 1);
    let start = |options: &[&str]| Running::start(run_script(&url, options, "x", "echo ran"));
    let told = start(&["--wait", "18s"]);
    queue_reaches(&url, "x", 2);
    let others = [start(&["--wait", "18s", "--quiet"]), start(&["--wait", "3s", "--verbose"])];
    let (told, [quiet, verbose]) = (told.wait(), others.map(Running::wait));
    assert_eq!((told.code(), quiet.code(), verbose.code()), (75, 75, 75));
    let lines: Vec<_> = told.stderr.lines().collect();
    let [wait, end] = lines[..] else { panic!("{told:?}") };
    assert!(wait.starts_with("fairlock: x: waiting for 1"), "{wait}");
    for text in
        [" of ", " in the queue, held by ", ", sh, for ", ", after ", ", first, waiting for "]
    {
        assert!(wait.contains(text), "{text:?} is missing: {wait}");
    }
    assert!(end.starts_with("fairlock: x: not acquired within 18s: held by "), "{end}");
    assert_eq!(quiet.stderr, "");
    let lines: Vec<_> = verbose.stderr.lines().collect();
    assert!(lines.len() >= 2 && lines[0].contains(" of "), "{verbose:?}");
    holder.go();
    first.wait().expect(3, "");
}

/// If nothing listened at the address, a run in a crontab was silent for 30 s, even with --verbose.
#[test]
fn a_store_that_does_not_answer_is_told_off_a_terminal() {
    let url = "redis://127.0.0.1:1";
    let run = |options: &[&str]| Running::start(run_script(url, options, "x", "echo must not run"));
    let all = [
        run(&["--wait", "3s", "--verbose"]),
        run(&["--wait", "12s"]),
        run(&["--wait", "12s", "--quiet"]),
        run(&["--wait", "3s"]),
    ];
    let [verbose, told, quiet, short] = all.map(Running::wait);
    for (outcome, wait) in [(verbose, "3s"), (told, "12s")] {
        // Whichever of the program's two limits ends first.
        let limits = ["; tried for ", " did not answer within "];
        assert!(limits.iter().any(|text| outcome.stderr.contains(text)), "{outcome:?}");
        assert_eq!((outcome.code(), outcome.stderr.lines().count()), (69, 2), "{outcome:?}");
        let notice = format!("fairlock: {url} does not answer yet; trying for {wait}\n");
        assert!(outcome.stderr.starts_with(&notice), "{outcome:?}");
    }
    quiet.expect(69, "127.0.0.1:1");
    short.expect(69, "127.0.0.1:1");
}

/// In logs, success is silent unless more was requested.
#[test]
fn a_server_that_may_delete_locks_is_told_of_with_verbose() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    server.client().call(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.client().call(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let verbose = finish(run_script(&url, &["--verbose"], "x", "exit 4"));
    assert_eq!(verbose.code(), 4, "{verbose:?}");
    assert_eq!(verbose.stderr.matches("deletes locks").count(), 1, "{verbose:?}");
    for options in [&[][..], &["--quiet"]] {
        finish(run_script(&url, options, "x", "exit 4")).expect(4, "");
    }
}

/// The wait of the second in line was shown as that of the first: every fairlock client was taken
/// for the caller itself.
#[test]
fn d25_each_waiter_sees_its_own_place() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let holder = Holder::start(&url, "x", &dir);
    let first = Running::start(run_script(&url, &["--label", "first"], "x", "exit 3"));
    queue_reaches(&url, "x", 1);
    let options = ["--verbose", "--wait", "2500ms"];
    let second = Running::start(run_script(&url, &options, "x", "echo ran")).wait();
    assert_eq!(second.code(), 75);
    assert!(second.stderr.contains("2 of 2 in the queue, held by "), "{second:?}");
    holder.go();
    first.wait().expect(3, "");
    let run = finish(run_script(&url, &["-v"], "x", "exit 4"));
    run.expect(4, "x: acquired, token ");
}

#[test]
fn plain_locks_exclude_too() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let file = dir.path().join("go");
    let options = ["--kind", "plain"];
    let mut holder = Running::start(run_script(&url, &options, "x", &hold_until(&file)));
    assert_eq!(holder.line(), "holding");
    let options = ["--kind", "plain", "--wait", "0"];
    finish(run_script(&url, &options, "x", "true")).expect(75, "x: held by ");
    let waiter = Running::start(run_script(&url, &["--kind", "plain"], "x", "exit 6"));
    fs::write(&file, "").unwrap();
    holder.wait().expect(0, "");
    waiter.wait().expect(6, "");
}

#[test]
fn status_shows_holder_and_queue() {
    // A Java thread, and an id that would clear the screen if it were printed as it is.
    const FOREIGN: [&str; 2] = ["5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", "\x1b[2J\n"];
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let holder = Holder::start(&url, "x", &dir);
    let waiter = Running::start(run_script(&url, &["--label", "second in line"], "x", "true"));
    queue_reaches(&url, "x", 1);
    let mut raw = server.client();
    for id in FOREIGN {
        raw.call(&["RPUSH", "redisson_lock_queue:{x}", id]);
        raw.call(&["ZADD", "redisson_lock_timeout:{x}", "9000000000000", id]);
    }
    let json = status(&url, "x");
    assert_eq!(json["held"], true);
    assert_eq!((&json["holder"]["count"], &json["holder"]["ours"]), (&1.into(), &true.into()));
    assert!(json["ttl_ms"].as_u64().is_some_and(|ttl| ttl > 0), "{json}");
    assert!(json["token"].as_u64().is_some_and(|token| token > 0), "{json}");
    let of_holder = &json["holder"]["client"];
    assert_eq!(of_holder["label"], "sh", "the command's name: {json}");
    assert!(of_holder["pid"].is_u64() && of_holder["host"].is_string(), "{json}");
    assert!(of_holder["user"].is_string() && of_holder["version"].is_string(), "{json}");
    let queue = json["queue"].as_array().unwrap();
    assert_eq!((queue.len(), &json["queue_len"]), (3, &3.into()));
    let waiting = queue[0]["owner"].as_str().unwrap();
    assert_eq!((&queue[0]["place"], &queue[0]["alive"]), (&1.into(), &true.into()));
    assert_eq!(queue[0]["client"]["label"], "second in line");
    assert_ne!(queue[0]["client"]["pid"], of_holder["pid"]);
    let order = [
        &of_holder["since_ms"],
        &json["holder"]["since_ms"],
        &queue[0]["since_ms"],
        &json["at_ms"],
    ];
    let order: Vec<_> = order.iter().map(|ms| ms.as_u64().unwrap()).collect();
    assert!(order.is_sorted() && order[0] > 1_700_000_000_000, "{json}");
    for (place, java) in (2..).zip(&queue[1..]) {
        assert_eq!((&java["place"], &java["ours"]), (&place.into(), &false.into()), "{json}");
        assert!(java["alive"].is_null() && java["since_ms"].is_null(), "{json}");
        assert!(java["client"].is_null(), "{json}");
    }

    let human = finish(fairlock(["status", "--url", &url, "x"])).stdout;
    assert!(human.starts_with("x: held by "), "{human}");
    let line = human.lines().find(|line| line.contains(waiting)).unwrap();
    assert!(line.starts_with("     1. ") && line.ends_with(", second in line"), "{human}");
    let java = format!("2. {} (Java: not known whether alive)\n", FOREIGN[0]);
    assert!(human.contains(&java), "{human}");
    assert!(human.contains("\\x1b[2J\\n (not known whether alive)\n"), "{human}");
    assert!(!human.contains('\x1b') && human.lines().count() == 7, "{human}");

    // For scripts: the exit code alone, and nothing to read.
    for (args, code) in [(&["-q", "--exit-code"][..], 1), (&["--exit-code", "--json"], 1), (&[], 0)]
    {
        let mut command = fairlock(["status", "--url", &url, "x"]);
        command.args(args);
        let outcome = finish(command);
        outcome.expect(code, "");
        assert_eq!(outcome.stdout.is_empty(), args.contains(&"-q"), "{outcome:?}");
    }
    finish(fairlock(["status", "--url", &url, "--exit-code", "free"])).expect(0, "");

    // A label that cannot be displayed is refused before the store is contacted.
    finish(run_script(&url, &["--label", "a\x1b[2J"], "y", "true")).expect(64, "label");
    for id in FOREIGN {
        raw.call(&["LREM", "redisson_lock_queue:{x}", "0", id]);
        raw.call(&["ZREM", "redisson_lock_timeout:{x}", id]);
    }
    holder.go();
    waiter.wait().expect(0, "");
}
