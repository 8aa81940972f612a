//! The contract about the command's processes and signals, row by row: what is passed on, what ends
//! when, and which codes and variables result.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fairlock_testkit::processes;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::wait::in_naps;
use rustix::process::{Signal, kill_process};

use crate::fixture::{
    Running, alone, children, eventually, finish, hold_until, is_alive, lines, pid, run_script,
    state, with_default_signals,
};

/// What ends the command in a row of the table.
enum End {
    /// Its script ends it.
    Itself,
    /// A signal to `fairlock`, once the script is ready.
    Signal(Signal),
    /// The lock's key is deleted, once the script is ready.
    Deleted,
}

struct Row {
    what: &'static str,
    options: &'static [&'static str],
    script: &'static str,
    end: End,
    code: i32,
    stdout: &'static str,
    /// The one line on stderr contains this; empty: stderr is empty.
    says: &'static str,
}

const fn row(what: &'static str, script: &'static str, code: i32, stdout: &'static str) -> Row {
    Row { what, options: &[], script, end: End::Itself, code, stdout, says: "" }
}

/// Reports that it is ready, and works until it is stopped.
macro_rules! works {
    ($first:literal) => {
        concat!("exec 2>/dev/null; ", $first, " echo ready; while :; do sleep 0.02; done")
    };
}

const TABLE: &[Row] = &[
    row("the command's own code", "exit 7", 7, ""),
    row("a code that is one of ours too", "exit 75", 75, ""),
    row("a signal ended it", "kill -USR1 $$", 138, ""),
    row("KILL ended it", "kill -KILL $$", 137, ""),
    row(
        "it stopped itself, and nobody is there to continue it",
        "kill -TSTP $$; echo on",
        0,
        "on\n",
    ),
    row("name", "echo \"$FAIRLOCK_NAME\"", 0, "x\n"),
    row("token", "test \"$FAIRLOCK_TOKEN\" -gt 1000000000000000", 0, ""),
    row("owner", "case $FAIRLOCK_OWNER in ????????-????-8*:?*) exit 3;; esac", 3, ""),
    row("no password", "echo \"<$FAIRLOCK_PASSWORD>\"", 0, "<>\n"),
    row("once each", "env | grep -cE '^FAIRLOCK_(NAME|OWNER|TOKEN)='", 0, "3\n"),
    Row { end: End::Signal(Signal::TERM), ..row("TERM", works!(""), 143, "ready\n") },
    Row { end: End::Signal(Signal::INT), ..row("INT", works!(""), 130, "ready\n") },
    Row { end: End::Signal(Signal::HUP), ..row("HUP", works!(""), 129, "ready\n") },
    Row { end: End::Signal(Signal::QUIT), ..row("QUIT", works!("ulimit -c 0;"), 131, "ready\n") },
    Row { end: End::Signal(Signal::USR1), ..row("USR1", works!(""), 138, "ready\n") },
    Row { end: End::Signal(Signal::USR2), ..row("USR2", works!(""), 140, "ready\n") },
    Row {
        end: End::Signal(Signal::TERM),
        ..row("TERM, and a code of its own", works!("trap 'exit 5' TERM;"), 5, "ready\n")
    },
    Row {
        options: &["--lease", "6s"],
        says: "the command was ended",
        ..row("the lease ends", works!("trap 'echo asked; exit 0' TERM;"), 76, "ready\nasked\n")
    },
    Row {
        options: &["--lease", "3s", "--lost-exit-code", "9"],
        says: "the command was ended",
        ..row("the lease ends, deaf to TERM", works!("trap '' TERM;"), 9, "ready\n")
    },
    Row {
        // Between the loss and its news, or after it: the command ends by itself either way.
        end: End::Deleted,
        says: "the lock was lost",
        ..row("the lock is gone while it ends", "echo ready; sleep 0.1; exit 0", 76, "ready\n")
    },
    Row {
        end: End::Deleted,
        options: &["--on-lost", "ignore", "--lost-exit-code", "4"],
        says: "lost while the command ran",
        ..row(
            "the lock is gone, and is ignored",
            "echo ready; sleep 0.3; echo on",
            4,
            "ready\non\n",
        )
    },
];

/// Exit codes and environment in one table.
#[test]
fn codes_and_variables() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    for row in TABLE {
        println!("{}", row.what);
        let url = if matches!(row.end, End::Deleted) { server.url() } else { alone() };
        let mut command = run_script(&url, row.options, "x", row.script);
        command.env("FAIRLOCK_PASSWORD", "");
        let mut running = Running::start(command);
        let mut first = String::new();
        match row.end {
            End::Itself => {}
            End::Signal(signal) => {
                first = running.line() + "\n";
                running.signal(signal);
            }
            End::Deleted => {
                first = running.line() + "\n";
                assert_eq!(server.client().call(&["DEL", "x"]).int(), 1);
            }
        }
        let outcome = running.wait();
        outcome.expect(row.code, row.says);
        assert_eq!(first + &outcome.stdout, row.stdout, "{}", row.what);
    }
}

/// A process that a command starts in a session of its own: it records what happens to it in `{}`.
const ESCAPE: &str = r#"exec 2>/dev/null
setsid sh -c 'trap "echo asked >> {}" TERM; echo $$ > {}; while :; do sleep 0.02; done' >/dev/null &
until test -s {}; do sleep 0.02; done; echo ready; wait"#;

struct Escaped {
    running: Running,
    dir: TempDir,
}

impl Escaped {
    fn start(url: &str, options: &[&str], script: &str) -> Self {
        let dir = TempDir::new();
        let log = dir.path().join("log");
        let script = script.replace("{}", log.to_str().expect("UTF-8"));
        let mut running = Running::start(run_script(url, options, "x", &script));
        assert_eq!(running.line(), "ready");
        Self { running, dir }
    }

    fn log(&self) -> Vec<String> {
        lines(&self.dir.path().join("log"))
    }

    fn process(&self) -> String {
        self.log().swap_remove(0)
    }
}

/// `setsid`: it is asked to end like the group.
#[test]
fn who_left_the_group_ends_with_the_lock() {
    let escaped = Escaped::start(&alone(), &["--lease", "9s"], ESCAPE);
    let process = escaped.process();
    assert!(is_alive(&process));
    let Escaped { running, dir } = escaped;
    running.wait().expect(76, "the command was ended");
    assert!(!is_alive(&process), "it goes on unlocked");
    assert_eq!(lines(&dir.path().join("log"))[1..], ["asked"]);
}

/// Like a daemon: its parent is gone, and the command as well.
#[test]
fn a_daemon_ends_with_the_lock() {
    let daemon = r#"exec 2>/dev/null
        setsid sh -c 'setsid sh -c "echo \$\$ > {}; while :; do sleep 0.02; done" & exit' >/dev/null
        until test -s {}; do sleep 0.02; done; echo ready; trap "exit 0" TERM; while :; do sleep 0.02; done"#;
    let escaped = Escaped::start(&alone(), &["--lease", "9s"], daemon);
    let process = escaped.process();
    escaped.running.wait().expect(76, "the command was ended");
    assert!(!is_alive(&process), "it goes on unlocked");
}

/// `fairlock` cannot look for processes then: its guardian does.
#[test]
fn who_left_the_group_ends_with_a_killed_fairlock() {
    let escaped = Escaped::start(&alone(), &[], ESCAPE);
    let process = escaped.process();
    escaped.running.signal(Signal::KILL);
    eventually("what left the group is gone", || !is_alive(&process));
}

#[test]
fn who_left_the_group_ends_with_the_lease_of_a_stopped_fairlock() {
    let escaped = Escaped::start(&alone(), &["--lease", "3s"], ESCAPE);
    let process = escaped.process();
    escaped.running.signal(Signal::STOP);
    eventually("what left the group is gone", || !is_alive(&process));
    escaped.running.signal(Signal::CONT);
    escaped.running.wait().expect(76, "lost");
}

/// For some commands the purpose is to start a daemon; it stays if its lock was never in danger.
#[test]
fn who_left_the_group_survives_an_orderly_end() {
    let script = ESCAPE.replace("wait", "exit 0");
    let escaped = Escaped::start(&alone(), &[], &script);
    let process = escaped.process();
    escaped.running.wait().expect(0, "");
    assert!(is_alive(&process));
    kill_process(pid(process.parse().unwrap()), Signal::KILL).unwrap();
}

/// Another run's processes have another owner, even inside the first one's command.
#[test]
fn runs_inside_of_runs_end_only_their_own() {
    let dir = TempDir::new();
    let log = dir.path().join("log");
    let inner =
        format!("setsid sleep 60 >/dev/null & echo $! >> {0}; exec sleep 60", log.display());
    let script = r#"setsid sleep 60 >/dev/null 2>&1 & echo $! >> "$LOG"
        "$FAIRLOCK" run --url "$INNERS" --lease 6s y -- sh -c "$INNER" 2>/dev/null; echo "inner=$?"; exit 0"#;
    let mut command = run_script(&alone(), &[], "x", script);
    command
        .env("FAIRLOCK", env!("CARGO_BIN_EXE_fairlock"))
        .env("INNER", inner)
        .env("INNERS", alone())
        .env("LOG", &log);
    let outcome = finish(command);
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "inner=76\n");
    let [outers, inners] = &lines(&log)[..] else { panic!("two lines") };
    assert!(is_alive(outers), "the outer lock was never in danger");
    assert!(!is_alive(inners));
    kill_process(pid(outers.parse().unwrap()), Signal::KILL).unwrap();
}

/// Without a terminal nobody pressed a key: TSTP stops the command until CONT, and the lock is
/// kept.
#[test]
fn tstp_and_cont_without_a_terminal() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut command = Command::new("setsid");
    command.args(["env", "--default-signal", env!("CARGO_BIN_EXE_fairlock"), "run", "--url"]);
    command.args([&server.url(), "x", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    command.stdout(Stdio::piped());
    let mut running = Running::start(command);
    let process = running.line();
    eventually("it sleeps", || state(&process) == Some('S'));
    for _ in 0..3 {
        running.signal(Signal::TSTP);
        eventually("the command is stopped", || state(&process) == Some('T'));
        // Nothing continues it, and the lock is kept. This sleep is the subject of the test.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(state(&process), Some('T'));
        assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 1);
        running.signal(Signal::CONT);
        eventually("the command goes on", || state(&process) == Some('S'));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 143);
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0);
}

/// Each of the three, closed before the start: the command gets none of our files, and no socket of
/// ours takes their place.
#[test]
fn closed_streams() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let dir = TempDir::new();
    let seen = dir.path().join("seen");
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let mut command = with_default_signals("sh");
        let inner = format!("ls -l /proc/$$/fd > {}; cat; echo out; exit 9", seen.display());
        command.args(["-c", &format!(r#"exec "$0" run --url "$1" x -- sh -c "$2" {closed}"#)]);
        command.args([env!("CARGO_BIN_EXE_fairlock"), &server.url(), &inner]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(finish(command).code(), 9, "{closed}");
        let text = fs::read_to_string(&seen).unwrap();
        assert!(text.contains("/dev/null") && !text.contains("socket:"), "{closed}: {text}");
    }
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0);
}

/// Nobody reads the output: the command gets SIGPIPE as usual, and our own messages may be lost.
#[test]
fn readers_that_are_gone() {
    let script = r#"( "$0" run --url "$1" x -- sh -c 'while :; do echo y; done'; echo "code=$?" >&2 ) | head -n 1
        "$0" run --url "$1" --lease 600ms x -- sh -c 'exec sleep 60 2>/dev/null' 2>&1 >/dev/null | true; echo on"#;
    let mut command = with_default_signals("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fairlock"), &alone()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(command);
    assert_eq!(outcome.stdout, "y\non\n");
    assert_eq!(outcome.stderr, "code=141\n", "SIGPIPE, as without us");
}

/// The guardian and the parent-death signal are there from the command's first instruction to its
/// last, and end nothing while all is well. The latter is sent when the THREAD that started the
/// command ends.
#[test]
fn nothing_ends_a_command_that_is_well() {
    let dir = TempDir::new();
    let go = dir.path().join("go");
    let mut running = Running::start(run_script(&alone(), &[], "x", &hold_until(&go)));
    assert_eq!(running.line(), "holding");
    // The main thread, which lives as long as the process. A thread of a runtime's pool would end
    // after a while, and the command with it.
    let main = running.pid().to_string();
    let mut children = BTreeSet::new();
    for task in fs::read_dir(format!("/proc/{main}/task")).unwrap() {
        let thread = task.unwrap().file_name().into_string().unwrap();
        let of_it = fs::read_to_string(format!("/proc/{main}/task/{thread}/children")).unwrap();
        assert!(of_it.is_empty() || thread == main, "{thread} of {main} has started {of_it}");
        children.extend(of_it.split_whitespace().map(str::to_owned));
    }
    assert!(!children.is_empty(), "somebody runs the command");
    fs::write(&go, "").unwrap();
    running.wait().expect(0, "");
}

/// In a container `fairlock` may be process 1: orphaned processes become its children.
mod as_process_1 {
    use super::*;

    /// `fairlock ARGS...` as process 1 of a namespace; `None`, with a notice, where that is
    /// impossible.
    fn in_a_namespace(args: &[&str]) -> Option<Command> {
        let options = ["--pid", "--fork", "--mount-proc", "--kill-child"];
        processes::unshare(&options)?;
        let mut command = with_default_signals("unshare");
        command.args(options).arg(env!("CARGO_BIN_EXE_fairlock")).args(args);
        command.env_remove("FAIRLOCK_URL").env_remove("FAIRLOCK_PASSWORD");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Some(command)
    }

    /// Process 1 as the host sees it: the child of `unshare`.
    fn process_1(running: &Running) -> u32 {
        let found = in_naps(|| children(running.pid()).first().copied());
        found.expect("unshare has a child")
    }

    fn children_of(process: u32) -> usize {
        children(process).len()
    }

    #[test]
    fn it_reaps_what_is_orphaned() {
        let dir = TempDir::new();
        let go = dir.path().join("go");
        // Each inner shell leaves its child behind, which then ends.
        let script = format!(
            "test $PPID = 1 && i=0; while test $i -lt 20; do sh -c 'sleep 0.05 &'; i=$((i+1)); done; {}; exit 6",
            hold_until(&go)
        );
        let args = ["run", "--url", &alone(), "x", "--", "sh", "-c", &script];
        let Some(command) = in_a_namespace(&args) else { return };
        let mut running = Running::start(command);
        assert_eq!(running.line(), "holding");
        let process = process_1(&running);
        eventually("only the command and its guardian are left", || children_of(process) == 2);
        fs::write(&go, "").unwrap();
        running.wait().expect(6, "");
    }

    /// The kernel gives process 1 no default actions: a signal that it does not handle is lost.
    #[test]
    fn it_passes_signals_on() {
        for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
            let script = format!(
                "exec 2>/dev/null; trap 'exit 33' {name}; echo ready; while :; do sleep 0.02; done"
            );
            let args = ["run", "--url", &alone(), "x", "--", "sh", "-c", &script];
            let Some(command) = in_a_namespace(&args) else { return };
            let mut running = Running::start(command);
            assert_eq!(running.line(), "ready");
            kill_process(pid(process_1(&running)), signal).unwrap();
            running.wait().expect(33, "");
        }
    }

    #[test]
    fn a_signal_ends_its_wait() {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let url = server.url();
        let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
        assert_eq!(holder.line(), "holding");
        let Some(command) = in_a_namespace(&["run", "--url", &url, "x", "--", "true"]) else {
            return;
        };
        let running = Running::start(command);
        let waiting = || server.client().call(&["LLEN", "redisson_lock_queue:{x}"]).int();
        eventually("it waits", || waiting() == 1);
        kill_process(pid(process_1(&running)), Signal::TERM).unwrap();
        running.wait().expect(143, "");
        assert_eq!(waiting(), 0, "it has left the queue");
    }

    /// A process that has ended in the command's group is a member of it until it is reaped: it
    /// must not cost the whole grace.
    #[test]
    fn it_ends_a_lost_command_with_its_orphans() {
        let script = "sh -c 'sleep 60 &'; setsid sleep 61 & echo ready; exec sleep 62";
        let args = ["run", "--url", &alone(), "--lease", "12s", "x", "--", "sh", "-c", script];
        let Some(command) = in_a_namespace(&args) else { return };
        let mut running = Running::start(command);
        assert_eq!(running.line(), "ready");
        // The lease has begun by then; how long a start takes depends on the machine.
        let began = std::time::Instant::now();
        running.wait().expect(76, "the command was ended");
        // Asked 4 s before the lease ends, all of them end at once.
        let took = began.elapsed();
        println!("measured: lost after {took:?} of a lease of 12 s with 4 s of grace");
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }

    /// The kernel ends every process of the namespace with process 1.
    #[test]
    fn killing_it_ends_everything() {
        let args =
            ["run", "--url", &alone(), "x", "--", "sh", "-c", "setsid sleep 60 & echo ready; wait"];
        let Some(command) = in_a_namespace(&args) else { return };
        let mut running = Running::start(command);
        assert_eq!(running.line(), "ready");
        let process = process_1(&running);
        kill_process(pid(process), Signal::KILL).unwrap();
        eventually("the namespace is gone", || !Path::new(&format!("/proc/{process}")).exists());
        let _ = running.wait();
    }
}
