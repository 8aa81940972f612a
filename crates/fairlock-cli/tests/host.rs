//! The host store: who keeps a lock when `fairlock` is killed or stopped.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::processes::unshare;
use fairlock_testkit::tempdir::TempDir;
use rustix::process::{Signal, kill_process};

use crate::fixture::{
    Running, children, eventually, fairlock, finish, guardian, hold_until, is_alive, pid,
    run_script, status,
};

/// Far below the lease of 30 s.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Much longer than it takes to notice a death.
const A_WHILE: Duration = Duration::from_millis(700);

fn url(dir: &TempDir) -> String {
    format!("sqlite:{}/locks", dir.path().display())
}

/// Starts a waiter and returns when it is queued.
fn waiter(url: &str, script: &str) -> Running {
    let waiter = Running::start(run_script(url, &[], "x", script));
    eventually("it waits", || queue_len(url) == 1);
    waiter
}

fn queue_len(url: &str) -> u64 {
    status(url, "x")["queue_len"].as_u64().expect("a number")
}

/// Kills the program that `env` became, or that runs below `unshare`.
fn kill(process: u32) {
    kill_process(pid(process), Signal::KILL).expect("it is there");
}

/// KILL of `fairlock` and of its guardian: nothing ends the processes that the command started, and
/// they keep the lock. The command itself ends with `fairlock`.
#[test]
fn a_grandchild_that_inherited_the_lock_keeps_it() {
    let dir = TempDir::new();
    let url = url(&dir);
    // The shell is the command; the grandchild is in its group.
    let mut holder = Running::start(run_script(&url, &[], "x", "sleep 600 & echo $!; wait"));
    let grandchild = holder.line();
    let guardian = guardian(holder.pid());
    let mut next = waiter(&url, "echo mine");
    kill(guardian);
    holder.signal(Signal::KILL);
    thread::sleep(A_WHILE);
    assert!(is_alive(&grandchild), "nobody was to end it");
    assert_eq!(queue_len(&url), 1, "handed on while the command's work goes on");
    let began = Instant::now();
    kill(grandchild.parse().expect("a number"));
    assert_eq!(next.line(), "mine");
    assert!(began.elapsed() < AT_ONCE);
    println!("measured: after the last process of the group: {:.1?}", began.elapsed());
    next.wait().expect(0, "");
}

/// KILL of `fairlock`, with a guardian. Before the next holder has the lock, all processes of the
/// command are gone, including one that closed everything it had inherited.
#[test]
fn the_lock_waits_for_a_group_that_inherited_nothing() {
    let dir = TempDir::new();
    let url = url(&dir);
    for _ in 0..5 {
        // A POSIX shell only handles single-digit descriptors.
        let script = "bash -c 'for fd in /proc/$$/fd/*; do fd=${fd##*/}; \
                      [ $fd -le 2 ] || eval \"exec $fd>&-\"; done; exec sleep 600' & echo $!; wait";
        let mut holder = Running::start(run_script(&url, &[], "x", script));
        let grandchild = holder.line();
        eventually("it has closed everything", || {
            let name = fs::read_to_string(format!("/proc/{grandchild}/comm")).unwrap_or_default();
            name == "sleep\n"
        });
        let look = format!(
            "if test -d /proc/{grandchild}; then cat /proc/{grandchild}/stat; fi; echo over"
        );
        let mut next = waiter(&url, &look);
        let began = Instant::now();
        holder.signal(Signal::KILL);
        // A process that has ended and is not reaped yet does nothing any more.
        let said = next.line();
        assert!(said == "over" || said.contains(") Z "), "it still ran: {said}");
        assert!(began.elapsed() < AT_ONCE);
        println!("measured: fairlock killed, until the next one runs: {:.1?}", began.elapsed());
        next.wait().expect(0, "");
    }
}

#[test]
fn a_stopped_fairlock_is_not_dead() {
    let dir = TempDir::new();
    let url = url(&dir);
    let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 600"));
    assert_eq!(holder.line(), "holding");
    holder.signal(Signal::STOP);
    let next = waiter(&url, "echo mine");
    thread::sleep(A_WHILE);
    assert_eq!(queue_len(&url), 1, "taken from one that lives");
    holder.signal(Signal::CONT);
    holder.signal(Signal::TERM);
    next.wait().expect(0, "");
}

/// A waiter that was stopped during its turn left the free lock idle for 19 s after it was
/// continued: the grant in its inbox was over, and the next heartbeat of this store comes after 20
/// s.
#[test]
fn a_waiter_that_slept_through_its_turn_comes_back_at_once() {
    let dir = TempDir::new();
    let url = url(&dir);
    let file = dir.path().join("go");
    let mut holder = Running::start(run_script(&url, &[], "x", &hold_until(&file)));
    assert_eq!(holder.line(), "holding");
    let mut sleeper = Running::start(run_script(&url, &["--ttl", "2s"], "x", "echo mine"));
    eventually("it waits", || queue_len(&url) == 1);
    sleeper.signal(Signal::STOP);
    fs::write(&file, "").expect("the folder is there");
    holder.wait().expect(0, "");
    eventually("its grant is over", || {
        let free = finish(fairlock(["status", "--quiet", "--exit-code", "--url", &url, "x"]));
        free.code() == 0
    });
    let began = Instant::now();
    sleeper.signal(Signal::CONT);
    assert_eq!(sleeper.line(), "mine");
    assert!(began.elapsed() < AT_ONCE, "{:.1?}", began.elapsed());
    println!("measured: it runs again, until it has the lock: {:.1?}", began.elapsed());
    sleeper.wait().expect(0, "");
}

/// Two containers, one file: `fairlock` is process 1 in each, so process ids identify nobody.
#[test]
fn two_pid_namespaces_share_a_file() {
    let dir = TempDir::new();
    let url = url(&dir);
    let container = || unshare(&["--pid", "--fork", "--kill-child", "--mount-proc"]);
    if container().is_none() {
        return;
    }
    let inside = |script: &str| {
        let command = run_script(&url, &[], "x", script);
        let mut unshared = container().expect("as a moment ago");
        unshared.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => unshared.env(name, value),
                None => unshared.env_remove(name),
            };
        }
        unshared.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        unshared.stderr(std::process::Stdio::piped());
        unshared
    };
    let mut holder = Running::start(inside("echo holding; exec sleep 600"));
    assert_eq!(holder.line(), "holding");
    let next = Running::start(inside("echo mine"));
    eventually("it waits", || queue_len(&url) == 1);
    thread::sleep(A_WHILE);
    assert_eq!(queue_len(&url), 1, "taken from one that lives");
    let inner = children(holder.pid());
    assert_eq!(inner.len(), 1);
    assert_eq!(own_number(inner[0]), 1, "it is process 1 of its namespace");
    let began = Instant::now();
    kill(inner[0]);
    assert_eq!(
        {
            let mut next = next;
            let line = next.line();
            next.wait().expect(0, "");
            line
        },
        "mine"
    );
    assert!(began.elapsed() < AT_ONCE);
    println!("measured: process 1 of a namespace killed: {:.1?}", began.elapsed());
}

/// The process id in the innermost namespace.
fn own_number(process: u32) -> u32 {
    let status = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status"));
    let status = status.expect("it is there");
    let line = status.lines().find(|line| line.starts_with("NSpid:")).expect("a line");
    line.split_whitespace().next_back().and_then(|n| n.parse().ok()).expect("a number")
}

/// Looking at a store that did not exist created it, and its folder, and reported that the lock is
/// free.
#[test]
fn d20_a_look_at_no_store_says_so_and_makes_none() {
    let dir = TempDir::new();
    let path = dir.path().join("no/such/folder/locks.db");
    let url = format!("sqlite:{}", path.display());
    for arguments in [
        &["status", "x"][..],
        &["status", "--json", "x"],
        &["list"],
        &["unlock", "--force", "--yes", "x"],
    ] {
        let outcome = finish(fairlock([arguments, &["--url", &url]].concat()));
        outcome.expect(69, &format!("there is no store at {}", path.display()));
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "{arguments:?}");
    }
}

/// SQLite's log and its index stayed behind after the last user and looked stale, and somebody
/// removed them at a time when they were not.
#[test]
fn d03_a_run_leaves_no_log_behind() {
    let dir = TempDir::new();
    let url = url(&dir);
    // The first run creates the file.
    for _ in 0..3 {
        finish(run_script(&url, &[], "x", "true")).expect(0, "");
        finish(fairlock(["status", "--url", &url, "x"]));
        for left in ["locks-wal", "locks-shm"] {
            assert!(!dir.path().join(left).exists(), "{left} stayed behind");
        }
    }
}
