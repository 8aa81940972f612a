//! The live view, on a terminal and against a server.

use std::path::PathBuf;

use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::terminal::Terminal;
use rustix::process::Signal;

use crate::fixture::{Running, eventually, hold_until, neutral, run_script, status};

const JAVA: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";

const SIZE: (u16, u16) = (24, 100);

/// `None`, with a notice, where there can be no terminal.
fn top(url: &str, size: (u16, u16), options: &[&str]) -> Option<Terminal> {
    let args = [&["top", "--interval", "200ms", "--url", url], options].concat();
    Terminal::start(size, env!("CARGO_BIN_EXE_fairlock"), &args, neutral)
}

/// A lock held by a command with this label until the file exists.
struct Holder {
    running: Running,
    file: PathBuf,
}

impl Holder {
    fn start(url: &str, name: &str, label: &str, dir: &TempDir) -> Self {
        let file = dir.path().join(label);
        let options = ["--label", label];
        let mut running = Running::start(run_script(url, &options, name, &hold_until(&file)));
        assert_eq!(running.line(), "holding");
        Self { running, file }
    }

    /// A command that waits behind others.
    fn wait(url: &str, name: &str, label: &str, dir: &TempDir, place: usize) -> Self {
        let file = dir.path().join(label);
        let options = ["--label", label];
        let running = Running::start(run_script(url, &options, name, &hold_until(&file)));
        eventually("it waits", || status(url, name)["queue_len"] == place);
        Self { running, file }
    }

    fn go(self) {
        std::fs::write(&self.file, "").expect("the folder is there");
        self.running.wait().expect(0, "");
    }
}

/// A lock that Java holds: it needs no command of ours.
fn held_by_java(raw: &mut Raw, name: &str) {
    raw.call(&["HSET", name, JAVA, "1"]);
    raw.call(&["PEXPIRE", name, "600000"]);
    raw.call(&["SET", &format!("redisson_lock_token:{{{name}}}"), "7"]);
}

/// The first word of each row of the table.
fn names(text: &str) -> Vec<String> {
    let rows = text.lines().skip(3).take_while(|line| !line.is_empty() && !line.contains('─'));
    let name = |row: &str| {
        row.trim_start_matches("> ").split_whitespace().next().unwrap_or_default().to_owned()
    };
    rows.map(name).collect()
}

/// Replaces the digits: ids, times, rates.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if shown.ends_with('#') => {}
            '0'..='9' => shown.push('#'),
            c => shown.push(c),
        }
    }
    shown
}

#[test]
fn it_shows_holders_and_the_queue_in_order() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir, mut raw) = (server.url(), TempDir::new(), server.client());
    held_by_java(&mut raw, "reports");
    let holder = Holder::start(&url, "nightly", "backup", &dir);
    let second = Holder::wait(&url, "nightly", "second", &dir, 1);
    let third = Holder::wait(&url, "nightly", "third", &dir, 2);
    raw.call(&["RPUSH", "redisson_lock_queue:{nightly}", JAVA]);
    raw.call(&["ZADD", "redisson_lock_timeout:{nightly}", "9000000000000", JAVA]);
    let Some(mut terminal) = top(&url, SIZE, &[]) else { return };
    // The queue is read when the lock is selected; rates need two looks.
    let text = terminal.until("all is shown", |text| {
        text.contains("3. ")
            && text.contains("sort: waiting")
            && text.lines().all(|line| !line.ends_with(" -"))
    });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("fairlock top  {url}  2 in use, 0 free  every 200ms"));
    assert_eq!(lines[1], "sort: waiting");
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>(),
        ["NAME", "HOLDER", "FOR", "LEFT", "WAITING", "CHANGES/S"]
    );
    assert_eq!(names(&text), ["nightly", "reports"]);
    assert!(lines[3].starts_with("> nightly") && lines[3].contains(", backup "), "{text}");
    let row: Vec<_> = lines[3].split_whitespace().rev().take(2).collect();
    assert_eq!(row, ["0.0", "3"], "{text}");
    assert!(lines[4].contains(&JAVA[..30]), "{text}");
    let below = text.lines().skip_while(|line| !line.contains('─')).skip(1);
    let below: Vec<_> = below.map(without_numbers).collect();
    assert_eq!(below[0], "nightly  kind fair  token #");
    assert!(below[1].starts_with("held by ") && below[1].ends_with(" unless renewed"), "{text}");
    for (line, label) in below[2..4].iter().zip(["second", "third"]) {
        assert!(line.starts_with("   #. ") && line.contains(", pid #, "), "{text}");
        assert!(line.contains(&format!(", {label}, for #")), "{text}");
    }
    let java = text.lines().find(|line| line.trim_start().starts_with("3. ")).unwrap();
    assert_eq!(java, format!("   3. {JAVA} (Java: not known whether alive)"), "{text}");

    // Another order, another lock, another part.
    terminal.keys("s");
    terminal.see("sort: name");
    terminal.keys("r");
    let text = terminal.see("sort: name (reversed)");
    assert_eq!(names(&text), ["reports", "nightly"]);
    terminal.keys("\x1b[A");
    let text = terminal.see("reports  kind -  token 7");
    assert!(
        text.contains("> reports") && text.contains(&format!("held by {JAVA}, runs")),
        "{text}"
    );
    terminal.keys("/backup");
    let text = terminal.see("filter: backup_");
    assert_eq!(names(&text), ["nightly"]);
    terminal.keys("\r");
    terminal.keys("\x1b");
    terminal.until("all are shown", |text| names(text).len() == 2);

    // The lock is handed on during the display.
    raw.call(&["DEL", "redisson_lock_queue:{reports}"]);
    holder.go();
    let text = terminal.until("the next one holds it", |text| {
        text.lines().any(|line| line.contains("nightly ") && line.contains(", second"))
    });
    let row = text.lines().find(|line| line.contains(", second")).unwrap();
    assert!(!row.ends_with(" 0.0"), "the change was seen: {text}");
    terminal.keys("q");
    assert_eq!(terminal.wait().code(), Some(0));
    terminal.comes_back();
    raw.call(&["LREM", "redisson_lock_queue:{nightly}", "0", JAVA]);
    raw.call(&["ZREM", "redisson_lock_timeout:{nightly}", JAVA]);
    second.go();
    third.go();
}

#[test]
fn it_fits_into_any_window() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    for number in 0..40 {
        held_by_java(&mut raw, &format!("job:{number:02}"));
    }
    let Some(mut terminal) = top(&url, (10, 40), &["--sort", "name"]) else { return };
    let text = terminal.until("it is full", |text| text.contains("job:05"));
    assert!(!text.contains("CHANGES"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("q quit"), "{text}");
    terminal.resize(50, 120);
    let text = terminal.until("it has grown", |text| text.contains("job:25"));
    assert!(text.contains("CHANGES/S") && text.contains("job:00  kind"), "{text}");
    assert_eq!(text.lines().count(), 50, "{text}");
    // The selection stays in view.
    terminal.keys("G");
    terminal.see("> job:39");
    terminal.resize(12, 60);
    let text = terminal.until("it has shrunk", |text| text.lines().count() == 12);
    terminal.see("> job:39");
    assert!(!text.contains("job:00"), "{text}");
    terminal.keys("q");
    assert_eq!(terminal.wait().code(), Some(0));
}

/// Only a bounded number of locks is read, and each costs one call.
#[test]
fn its_cost_is_bounded() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    for number in 0..30 {
        held_by_java(&mut raw, &format!("job:{number:02}"));
    }
    // It has a waiter, so it is preferred.
    raw.call(&["RPUSH", "redisson_lock_queue:{job:29}", "another"]);
    let Some(mut terminal) = top(&url, SIZE, &["--max", "10"]) else { return };
    let text = terminal.until("ten are shown", |text| {
        text.contains("not shown: 20 more in use (--max)") && names(text).len() == 10
    });
    assert_eq!(names(&text)[0], "job:29", "{text}");
    let (calls, began) = (server.script_calls(), std::time::Instant::now());
    // This sleep is the subject of the test: ten looks at ten locks.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let made = server.script_calls() - calls;
    let most = (began.elapsed().as_millis() / 200 + 2) * 10;
    assert!(made > 0 && u128::from(made) <= most, "{made} calls, not {most}");
    terminal.keys("q");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn a_lock_is_taken_away_after_a_yes() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir, mut raw) = (server.url(), TempDir::new(), server.client());
    let holder = Holder::start(&url, "nightly", "first", &dir);
    let second = Holder::wait(&url, "nightly", "second", &dir, 1);
    let Some(mut terminal) = top(&url, SIZE, &["nightly"]) else { return };
    terminal.see(", second, for");
    let token = raw.call(&["GET", "redisson_lock_token:{nightly}"]).text().to_owned();
    // No.
    terminal.keys("u");
    let text = terminal.see("Take nightly away?");
    assert!(text.contains(", first") && text.contains("gets it at once"), "{text}");
    terminal.keys("n");
    terminal.see("nightly: left alone");
    assert_eq!(raw.call(&["GET", "redisson_lock_token:{nightly}"]).text(), token);
    // Yes, but another owner holds the lock by now, about whom the user was not asked.
    terminal.keys("u");
    terminal.see("Take nightly away?");
    holder.go();
    terminal.until("the second holds it", |text| text.contains(", second "));
    terminal.keys("y");
    terminal.see("nightly: another one holds it by now; nothing was done");
    let third = Holder::wait(&url, "nightly", "third", &dir, 1);
    assert_ne!(raw.call(&["GET", "redisson_lock_token:{nightly}"]).text(), token);
    // Yes.
    terminal.keys("u");
    terminal.see("Take nightly away?");
    terminal.keys("y");
    terminal.see("nightly: taken away");
    terminal.until("the third holds it", |text| text.contains(", third "));
    // Otherwise it would notice at its next renewal.
    drop(second);
    third.go();
    // Free: nothing to take away.
    terminal.until("it is free", |text| {
        text.lines().any(|line| line.contains("nightly  ") && line.contains("free"))
    });
    terminal.keys("u");
    terminal.see("nightly: nobody holds it");
    terminal.keys("q");
    assert_eq!(terminal.wait().code(), Some(0));
}

/// However it ends, the terminal is restored.
#[test]
fn it_leaves_the_terminal_as_it_was() {
    let ends: [(&str, Option<Signal>, i32); 7] = [
        ("q", None, 0),
        ("\x03", None, 0),
        ("/abc\x03", None, 0),
        ("", Some(Signal::TERM), 143),
        ("", Some(Signal::INT), 130),
        ("", Some(Signal::HUP), 129),
        ("/", Some(Signal::QUIT), 131),
    ];
    for (keys, signal, code) in ends {
        let Some(mut terminal) = top("memory:", SIZE, &[]) else { return };
        terminal.see("no lock is in use");
        assert!(!terminal.is_as_before());
        terminal.keys(keys);
        if let Some(signal) = signal {
            // A key that it has not read is left for the shell.
            terminal.see(if keys.is_empty() { "sort:" } else { "filter: _" });
            terminal.signal(signal);
        }
        assert_eq!(terminal.wait().code(), Some(code), "{keys:?} {signal:?}");
        terminal.comes_back();
        // A message before the screen was taken, and nothing of the screen.
        let text = terminal.text();
        assert!(text.lines().all(|line| line.starts_with("fairlock: memory:")), "{text}");
    }
}

/// Ctrl-Z stops it, and the shell has the terminal; it continues where it was.
#[test]
fn it_can_be_stopped_and_goes_on() {
    let script =
        r#"set -m; $FAIRLOCK top --url memory:; echo "stopped $?"; read key; fg; echo "left $?""#;
    let terminal = Terminal::start(SIZE, "sh", &["-c", script], |command| {
        neutral(command);
        command.env("FAIRLOCK", env!("CARGO_BIN_EXE_fairlock"));
    });
    let Some(mut terminal) = terminal else { return };
    terminal.see("no lock is in use");
    terminal.keys("\x1a");
    let text = terminal.see("stopped 1");
    assert!(!text.contains("no lock is in use"), "{text}");
    terminal.comes_back();
    terminal.keys("\n");
    terminal.see("no lock is in use");
    assert!(!terminal.is_as_before());
    terminal.keys("q");
    terminal.see("left 0");
    terminal.comes_back();
    assert_eq!(terminal.wait().code(), Some(0));
}

/// A server that is gone is reported, and polled until it is back.
#[test]
fn a_server_may_go_and_come_back() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    held_by_java(&mut raw, "reports");
    let Some(mut terminal) = top(&url, SIZE, &["reports"]) else { return };
    terminal.see("reports  kind");
    // It hangs: the last state stays on the screen, with its age.
    server.stop();
    let text = terminal.see("no answer for");
    assert!(text.contains(&JAVA[..20]), "{text}");
    server.cont();
    terminal.see("sort: waiting");
    // It is gone, and the lock with it.
    server.kill9();
    terminal.see("no answer for");
    terminal.see("no connection");
    server.restart();
    terminal.until("it is looked at again", |text| {
        text.contains("sort: waiting") && text.contains("0 in use, 1 free")
    });
    server.kill9();
    terminal.see("no answer for");
    terminal.keys("q");
    assert_eq!(terminal.wait().code(), Some(0));
    terminal.comes_back();
}

#[test]
fn colours_can_be_left_away() {
    for (value, colours) in [("", true), ("1", false)] {
        let args = ["top", "--url", "memory:", "nightly"];
        let program = env!("CARGO_BIN_EXE_fairlock");
        let terminal = Terminal::start(SIZE, program, &args, |command| {
            neutral(command);
            command.env("NO_COLOR", value);
        });
        let Some(mut terminal) = terminal else { return };
        terminal.see("nightly  kind");
        assert_eq!(terminal.has_colors(), colours, "{value:?}");
        terminal.keys("q");
        assert_eq!(terminal.wait().code(), Some(0));
    }
}
