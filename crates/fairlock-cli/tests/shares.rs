//! Read-write locks and semaphores: `--shared`, `--kind rw`, `--permits`.

use std::path::PathBuf;
use std::process::Command;

use fairlock_testkit::redisson::JavaClient;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::terminal::Terminal;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{
    PROGRAM, Running, alone, eventually, fairlock, finish, guardian, hold_until, is_alive, lines,
    neutral, run_script,
};

const READ: &[&str] = &["--shared"];
const WRITE: &[&str] = &["--kind", "rw"];

/// A store, and a folder in which commands note their turns.
struct Scene {
    url: String,
    dir: TempDir,
    server: Option<Server>,
}

/// Plays a test on the host store and on a server.
fn on_each(test: fn(Scene)) {
    test(Scene::new());
    if let Some(server) = Server::start(Generation::Redis70) {
        test(Scene::on(server));
    }
}

impl Scene {
    fn new() -> Self {
        Self { url: alone(), dir: TempDir::new(), server: None }
    }

    fn on(server: Server) -> Self {
        Self { url: server.url(), dir: TempDir::new(), server: Some(server) }
    }

    fn file(&self, label: &str) -> PathBuf {
        self.dir.path().join(label)
    }

    fn command(&self, options: &[&str], label: &str) -> Command {
        let options = [options, &["--label", label]].concat();
        let turns = self.file("turns").display().to_string();
        let script = format!("echo {label} >>{turns}; {}", hold_until(&self.file(label)));
        run_script(&self.url, &options, "x", &script)
    }

    /// A run that holds its share until [`go`](Self::go).
    fn holds(&self, options: &[&str], label: &str) -> Running {
        let mut running = Running::start(self.command(options, label));
        assert_eq!(running.line(), "holding");
        running
    }

    /// A run that waits, as the last of so many.
    fn waits(&self, options: &[&str], label: &str, place: usize) -> Running {
        let running = Running::start(self.command(options, label));
        eventually("it waits", || self.status()["queue_len"] == place);
        running
    }

    fn go(&self, label: &str) {
        std::fs::write(self.file(label), "").expect("the folder is there");
    }

    fn ends(&self, label: &str, running: Running) {
        self.go(label);
        running.wait().expect(0, "");
    }

    fn turns(&self) -> Vec<String> {
        lines(&self.file("turns"))
    }

    fn ours(&self, args: &[&str]) -> Command {
        let mut command = fairlock([&args[..1], &["--url", &self.url], &args[1..]].concat());
        command.env("FAIRLOCK_URL", &self.url);
        command
    }

    fn status(&self) -> Value {
        let outcome = finish(self.ours(&["status", "--json", "x"]));
        outcome.expect(0, "");
        serde_json::from_str(&outcome.stdout).expect("JSON")
    }

    /// What people see, without the numbers.
    fn shown(&self, args: &[&str]) -> Vec<String> {
        let outcome = finish(self.ours(args));
        outcome.expect(0, "");
        outcome.stdout.lines().map(str::to_owned).collect()
    }
}

#[test]
fn readers_run_together_and_none_passes_a_writer() {
    on_each(|scene| {
        let (a, b) = (scene.holds(READ, "a"), scene.holds(READ, "b"));
        let writer = scene.waits(WRITE, "writer", 1);
        let late = scene.waits(READ, "late", 2);
        // It would fit beside those who read, and is not let in before the writer.
        let once = [READ, &["--wait", "0"]].concat();
        let refused = finish(run_script(&scene.url, &once, "x", "true"));
        refused.expect(75, "x: held to read by ");
        assert!(refused.stderr.ends_with(", and another, 2 waiting\n"), "{refused:?}");

        let seen = scene.status();
        assert_eq!((&seen["kind"], &seen["holding"]), (&"rw".into(), &2.into()));
        let shares: Vec<_> = ["holders", "queue"]
            .into_iter()
            .flat_map(|part| seen[part].as_array().expect("a list"))
            .map(|of| of["share"].as_str().expect("a text"))
            .collect();
        assert_eq!(shares, ["read", "read", "whole", "read"]);
        let text = scene.shown(&["status", "x"]);
        assert!(text[0].starts_with("x: held to read by 2, for "), "{text:?}");
        assert!(text[1..3].iter().all(|line| line.contains(", runs out in ")), "{text:?}");
        let queue: Vec<_> = text.iter().filter(|line| line.contains(". ")).collect();
        assert!(queue[0].contains(", to write, for "), "{text:?}");
        assert!(queue[1].contains(", to read, for "), "{text:?}");
        let row = scene.shown(&["list", "--kind", "rw"]).pop().expect("a row");
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!((cells[0], cells[1], cells[4]), ("x", "rw", "2"), "{row}");
        assert!(row.contains(" read by ") && row.ends_with(", and another"), "{row}");
        assert_eq!(scene.shown(&["list", "--kind", "semaphore"]), [""; 0]);

        scene.ends("a", a);
        scene.ends("b", b);
        eventually("it is the writer's turn", || scene.turns().len() == 3);
        assert!(scene.shown(&["status", "x"])[0].starts_with("x: held to write by "));
        scene.ends("writer", writer);
        scene.ends("late", late);
        let turns = scene.turns();
        assert_eq!(turns[2..], ["writer", "late"], "{turns:?}");
        assert_eq!(scene.shown(&["status", "x"])[0], "x: free");
    });
}

#[test]
fn no_more_permits_than_the_limit() {
    on_each(|scene| {
        let wide = scene.holds(&["--permits", "3", "--take", "2"], "wide");
        let one = scene.holds(&["--permits", "3"], "one");
        let refused =
            finish(run_script(&scene.url, &["--permits", "3", "--wait", "0"], "x", "true"));
        refused.expect(75, ", and another, 3 of 3 permits in use");
        assert_eq!(scene.shown(&["status", "x"])[0], "x: held by 2, 3 of 3 permits in use");
        let next = scene.waits(&["--permits", "3"], "next", 1);
        scene.ends("wide", wide);
        eventually("it is the next one's turn", || scene.turns().len() == 3);

        // Another limit is let in by its own word, and is visible to all.
        let other = scene.holds(&["--permits", "5"], "other");
        let seen = scene.status();
        assert_eq!((&seen["used"], &seen["kind"]), (&3.into(), &"semaphore".into()));
        assert_eq!(seen["limits"], serde_json::json!([3, 5]));
        let text = scene.shown(&["status", "x"]);
        assert_eq!(text[0], "x: held by 3, 3 of 5 permits in use");
        let warning = "  limits from 3 to 5: the larger one bounds the permits in use";
        assert!(text.iter().any(|line| line == warning), "{text:?}");
        let row = scene.shown(&["list"]).pop().expect("a row");
        assert!(row.contains("3 of 3-5 permits, ") && row.ends_with(", and 2 others"), "{row}");
        // A limit that only a waiter names is shown to all, and bounds nothing yet.
        let waits = scene.waits(&["--permits", "9", "--take", "9"], "waits", 1);
        assert_eq!(scene.shown(&["status", "x"])[0], text[0]);
        assert!(scene.shown(&["list"]).pop().expect("a row").contains("3 of 3-5 permits, "));
        let listed = finish(scene.ours(&["list", "--json"])).stdout;
        for seen in [scene.status(), serde_json::from_str(&listed).expect("one lock")] {
            assert_eq!(seen["limits"], serde_json::json!([3, 9]));
        }
        waits.signal(Signal::TERM);
        waits.wait().expect(143, "");
        for (label, running) in [("one", one), ("next", next), ("other", other)] {
            scene.ends(label, running);
        }
    });
}

#[test]
fn force_ends_all_holds() {
    on_each(|scene| {
        let (a, b) = (scene.holds(READ, "a"), scene.holds(READ, "b"));
        let writer = scene.waits(WRITE, "writer", 1);
        // Of another kind it is no lock.
        let wrong = ["unlock", "--force", "--kind", "semaphore", "x"];
        finish(scene.ours(&wrong)).expect(64, "in use for a read-write lock");
        let said = scene.shown(&["unlock", "--force", "x"]);
        let start = "x: unlocked, taken away from 2 holders; it was held to read by ";
        assert!(said.len() == 1 && said[0].starts_with(start), "{said:?}");
        for reader in [a, b] {
            reader.wait().expect(76, "it was taken away by force");
        }
        eventually("it is the writer's turn", || scene.turns().len() == 3);
        let said = scene.shown(&["unlock", "--force", "--kind", "rw", "x"]);
        assert!(said[0].starts_with("x: unlocked; it was held to write by "), "{said:?}");
        writer.wait().expect(76, "it was taken away by force");
        finish(scene.ours(&["unlock", "--force", "--kind", "rw", "x"])).expect(1, "");
    });
}

/// B8: one dead reader of two, and nobody waits for its lease.
#[test]
fn a_run_that_is_killed_holds_nobody_up() {
    let scene = Scene::new();
    // Its lease outlasts every test: only its death can end the hold.
    let a = scene.holds(&["--shared", "--ttl", "1h"], "a");
    let b = scene.holds(READ, "b");
    let writer = scene.waits(WRITE, "writer", 1);
    let last = guardian(a.pid());
    a.signal(Signal::KILL);
    eventually("its guardian ends", || !is_alive(last));
    scene.ends("b", b);
    eventually("it is the writer's turn", || scene.turns().len() == 3);
    scene.ends("writer", writer);
}

/// A permit under a fixed lease ends with it, as any lock.
#[test]
fn a_lease_ends_the_command() {
    on_each(|scene| {
        let options = ["--permits", "1", "--lease", "6s"];
        let ended = finish(run_script(&scene.url, &options, "x", "exec sleep 60"));
        ended.expect(76, "x: the lock was about to be lost: its --lease of 6s is over");
        finish(run_script(&scene.url, &["--permits", "1"], "x", "true")).expect(0, "");
    });
}

/// A writer that has succeeded keeps readers out for the rest of the time, and says so.
#[test]
fn a_writer_once_in_a_time() {
    on_each(|scene| {
        let once = ["--kind", "rw", "--once-per", "1h"];
        finish(run_script(&scene.url, &once, "x", "true")).expect(0, "");
        let skipped = finish(run_script(&scene.url, &once, "x", "echo ran"));
        assert_eq!((skipped.code(), skipped.stdout.as_str()), (75, ""));
        let reader = finish(run_script(&scene.url, &["--shared", "--wait", "0"], "x", "echo ran"));
        reader.expect(75, "x: done, next start in ");
        assert_eq!(scene.status()["done"], true);
    });
}

/// `u` takes away what the question named: all who read at the same time.
#[test]
fn top_shows_all_holders() {
    on_each(|scene| {
        let (a, b) = (scene.holds(READ, "a"), scene.holds(READ, "b"));
        let writer = scene.waits(WRITE, "writer", 1);
        let args = ["top", "--interval", "200ms", "--url", &scene.url];
        let Some(mut terminal) = Terminal::start((24, 120), PROGRAM, &args, neutral) else {
            return;
        };
        let text = terminal.until("all is shown", |text| text.contains(", writer, to write, for "));
        assert!(text.contains("held to read by 2"), "{text}");
        let row = text.lines().find(|line| line.starts_with("> x ")).expect("a row");
        assert!(row.contains(" read by "), "{text}");
        for label in ["a", "b"] {
            assert!(text.contains(&format!(", {label}, runs out in ")), "{text}");
        }
        terminal.keys("u");
        terminal.see("From all who hold it: read by ");
        terminal.keys("y");
        terminal.see("x: taken away from 2 holders");
        for reader in [a, b] {
            reader.wait().expect(76, "it was taken away by force");
        }
        terminal.until("the writer holds it", |text| text.contains(" written by "));
        // Another holder than the question named.
        terminal.keys("u");
        terminal.see("Take x away?");
        scene.ends("writer", writer);
        let next = scene.holds(READ, "next");
        terminal.keys("y");
        terminal.see("x: another one holds it by now; nothing was done");
        scene.ends("next", next);
        terminal.keys("q");
        assert_eq!(terminal.wait().code(), Some(0));
    });
}

#[test]
fn unlock_asks_about_all_holders() {
    on_each(|scene| {
        let permits = ["--permits", "3"];
        let (a, b) = (scene.holds(&permits, "a"), scene.holds(&permits, "b"));
        let args = ["unlock", "--force", "--url", &scene.url, "x"];
        let Some(mut terminal) = Terminal::start((24, 200), PROGRAM, &args, neutral) else {
            return;
        };
        let text = terminal.see("Take the lock away from all of them? [y/N]");
        assert!(text.contains("x: held by 2, 2 of 3 permits in use"), "{text}");
        assert_eq!(text.matches(", 1 permit, for ").count(), 2, "{text}");
        terminal.keys("y\r");
        terminal.see("x: unlocked, taken away from 2 holders");
        assert_eq!(terminal.wait().code(), Some(0));
        for run in [a, b] {
            run.wait().expect(76, "it was taken away by force");
        }
    });
}

/// Without a command, beside another reader.
#[test]
fn readers_without_a_command() {
    on_each(|scene| {
        let hold = || {
            let mut running = Running::start(scene.ours(&["run", "--shared", "x"]));
            let line: Value = serde_json::from_str(&running.line()).expect("JSON");
            (running, line["token"].clone())
        };
        let ((one, first), (two, second)) = (hold(), hold());
        assert_eq!(first, second, "those who read at the same time have one token");
        for running in [one, two] {
            running.signal(Signal::TERM);
            assert_eq!(running.wait().code(), 143);
        }
    });
}

/// A share may fit beside the outer one; with a writer in between, each would wait for the other.
#[test]
fn a_share_under_its_own_lock_is_refused() {
    on_each(|scene| {
        let inner = format!("{} run --shared x -- true", env!("CARGO_BIN_EXE_fairlock"));
        for outer in [READ, WRITE] {
            let mut command = run_script(&scene.url, outer, "x", &inner);
            command.env("FAIRLOCK_URL", &scene.url);
            finish(command).expect(64, "so it may wait for itself for ever");
        }
        let other = inner.replace(" x ", " y ");
        let mut command = run_script(&scene.url, READ, "x", &other);
        command.env("FAIRLOCK_URL", &scene.url);
        finish(command).expect(0, "");
    });
}

/// `--shared` beside a run that does not know of it is an error, not a second lock.
#[test]
fn all_users_of_a_name_name_one_kind() {
    on_each(|scene| {
        let kinds: [(&str, &[&str]); 5] = [
            ("a fair or plain lock", &[]),
            ("a fair or plain lock", &["--kind", "plain"]),
            ("a simple lock", &["--kind", "simple"]),
            ("a read-write lock", READ),
            ("a semaphore", &["--permits", "2"]),
        ];
        let is_shared = |kind: &str| ["a read-write lock", "a semaphore"].contains(&kind);
        for (at, (held, of)) in kinds.into_iter().enumerate() {
            let label = format!("holder-{at}");
            // Each is another kind than the last, which it would say.
            let running = scene.holds(&[of, &["--quiet"]].concat(), &label);
            for (asked, options) in kinds {
                if held != asked && (is_shared(held) || is_shared(asked)) {
                    let options = [options, &["--wait", "0"]].concat();
                    let outcome = finish(run_script(&scene.url, &options, "x", "true"));
                    // A string may be anybody's.
                    let is_told = held != "a simple lock";
                    let told = format!("the name is in use for {held} (");
                    match scene.server.is_none() || is_told {
                        true => outcome.expect(64, &told),
                        false => outcome.expect(64, "kind"),
                    }
                }
            }
            scene.ends(&label, running);
        }
    });
}

/// What Java's clients leave under a name: a reader beside ours is a holder, and an object of another kind is named.
#[test]
fn java_stands_under_the_same_name() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let scene = Scene::on(server);
    let server = scene.server.as_ref().expect("it was started");
    let mut java = JavaClient::new(server, 0);
    assert_eq!(java.read_acquire("x", 7, 60_000), None);
    let text = scene.shown(&["status", "x"]);
    assert!(
        text[0].starts_with(&format!("x: held to read by a Java client ({})", java.owner(7))),
        "{text:?}"
    );
    assert_eq!(scene.status()["kind"], "rw");
    let reader = scene.holds(READ, "a");
    assert!(scene.shown(&["status", "x"])[0].starts_with("x: held to read by 2, for "));
    let row = scene.shown(&["list", "--kind", "rw"]).pop().expect("a row");
    assert!(row.starts_with("x ") && row.ends_with(", and another"), "{row}");
    let refused = finish(run_script(&scene.url, &["--permits", "2", "--wait", "0"], "x", "true"));
    refused.expect(64, "the name is in use for a read-write lock (");
    let writer = scene.waits(WRITE, "writer", 1);
    scene.ends("a", reader);
    assert_eq!(scene.turns(), ["a"], "Java reads on");
    assert_eq!(java.read_unlock("x", 7), Some(1));
    eventually("it is the writer's turn", || scene.turns().len() == 2);
    assert!(java.read_acquire("x", 7, 60_000).is_some() && java.write_acquire("x", 7, 1).is_some());
    scene.ends("writer", writer);
    // `RSemaphore` keeps a string.
    java.command(&["SET", "x", "3"]);
    for options in [READ, &["--permits", "2"]] {
        let outcome = finish(run_script(&scene.url, options, "x", "true"));
        outcome.expect(64, "holds a number without a TTL: a latch");
    }
    // A mode of nobody's: to name a kind of share helps no one who just did.
    java.command(&["DEL", "x"]);
    java.command(&["HSET", "x", "mode", "dark"]);
    let outcome = finish(run_script(&scene.url, READ, "x", "true"));
    outcome.expect(64, "another program uses that name");
    let outcome = finish(run_script(&scene.url, &[], "x", "true"));
    outcome.expect(64, "if it is a read-write lock or a semaphore, name that kind");
}

/// Waiters of another kind stand under the name of a lock: whoever looks is told.
#[test]
fn kinds_that_meet_are_reported() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let scene = Scene::on(server);
    let server = scene.server.as_ref().expect("it was started");
    let reader = scene.holds(READ, "a");
    let mut raw = server.client();
    raw.call(&["RPUSH", "redisson_lock_queue:{x}", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51"]);
    raw.call(&["ZADD", "fairlock_sem_order:{x}", "1", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:52"]);
    for args in [&["list"][..], &["list", "--json"]] {
        let outcome = finish(scene.ours(args));
        outcome.expect(
            0,
            "x: in use as a read-write lock, and waited for as a fair lock and as a semaphore too: use one kind for a name",
        );
    }
    scene.ends("a", reader);
    let outcome = finish(scene.ours(&["status", "x"]));
    let all = "x: waited for as a fair lock and as a semaphore: use one kind for a name";
    outcome.expect(0, all);
    let shown = |args: &[&str]| {
        let outcome = finish(scene.ours(args));
        outcome.expect(0, all);
        outcome.stdout
    };
    assert_eq!(shown(&["list", "x"]), shown(&["list"]));
}

/// Whatever waits for a lock that is free at the moment is shown, though the look begins with another kind.
#[test]
fn a_line_of_a_free_lock_is_shown() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let scene = Scene::on(server);
    let server = scene.server.as_ref().expect("it was started");
    let mut raw = server.client();
    raw.call(&["ZADD", "fairlock_rw_order:{x}", "1", "5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:51"]);
    raw.call(&["SET", "redisson_lock_token:{x}", "7"]);
    let seen = scene.status();
    assert_eq!(
        (&seen["kind"], &seen["held"], &seen["queue_len"]),
        (&"rw".into(), &false.into(), &1.into())
    );
    let row = scene.shown(&["list"]).pop().expect("a row");
    assert!(row.starts_with("x ") && row.contains(" rw "), "{row}");
}

/// D54: `run encode` and `run --permits 3 encode` passed all tests, and one of them failed in the one night in which
/// they met. Without a terminal, too: a crontab has both.
#[test]
fn another_kind_than_the_last_is_told_once_by_each_run() {
    on_each(|scene| {
        let run = |options: &[&str], expected: &str| {
            let outcome = finish(run_script(&scene.url, options, "x", "true"));
            outcome.expect(0, expected);
            assert_eq!(outcome.stderr.lines().count(), usize::from(!expected.is_empty()));
        };
        let pool: &[&str] = &["--permits", "3"];
        run(&[], "");
        run(&[], "");
        run(pool, "warning: x: used as kind `semaphore`, but last used as kind `fair`;");
        run(pool, "");
        run(&["--quiet"], "");
        run(&[], "");
    });
}
