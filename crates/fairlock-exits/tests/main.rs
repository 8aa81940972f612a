//! What happens to a lock when its program ends in each way: see `docs/guarantees.md`.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::{processes, wait};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The watchdog lease of the program.
const LEASE: Duration = Duration::from_secs(4);
const LEASE_MS: i64 = 4_000;

/// Added to every upper bound: the machine is shared.
const SLACK: Duration = Duration::from_secs(1);

/// No way to end takes this long.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

fn start(way: &str, server: &Server) -> Child {
    start_on(way, &server.url())
}

fn start_on(way: &str, url: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fairlock-exits"))
        .args([way, url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // In its own group, so that its children are killed with it: one that hangs would keep our
        // pipes open.
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Waits for the program's end; returns its status and output.
fn end(child: Child) -> (ExitStatus, String) {
    let output = processes::end(child, ENDS_WITHIN);
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8(said).unwrap())
}

/// Runs the program to its end. Returns its status, the remaining TTL of the lock in milliseconds
/// (-2 when the lock is free), and the output.
fn left_by(way: &str, server: &Server) -> (ExitStatus, i64, String) {
    let mut raw = server.client();
    let (status, said) = end(start(way, server));
    let ttl_ms = raw.call(&["PTTL", "job"]).int();
    println!("measured: {way}: {status}, TTL left {ttl_ms} ms");
    assert!(said.contains("held"), "{way}: {said}");
    (status, ttl_ms, said)
}

/// Asserts that the lock is free when the program has ended.
fn released(way: &str, wanted: Option<i32>) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    // Repeated, because the release races with the end of the program.
    for _ in 0..10 {
        let (status, ttl_ms, said) = left_by(way, &server);
        assert_eq!(status.code(), wanted, "{way}: {said}");
        assert_eq!(ttl_ms, -2, "{way}: the lock is still held: {said}");
        let queue = server.client().call(&["LLEN", "redisson_lock_queue:{job}"]).int();
        assert_eq!(queue, 0, "{way}");
    }
}

/// Asserts that the lock stays held until its lease ends.
fn expires(way: &str, wanted: Option<i32>) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (status, ttl_ms, said) = left_by(way, &server);
    assert_eq!(status.code(), wanted, "{way}: {said}");
    assert!((1..=LEASE_MS).contains(&ttl_ms), "{way}: {ttl_ms}");
    is_free_within(&server, LEASE + SLACK);
}

fn is_free_within(server: &Server, limit: Duration) {
    let mut raw = server.client();
    wait::until("the lock is free", limit, || raw.call(&["EXISTS", "job"]).int() == 0);
}

#[test]
fn main_returns_right_after_a_drop() {
    released("drop", Some(0));
}

/// A client in a static is never dropped, so nothing waited for the release: the program was gone
/// before it was sent, and the others waited for the lease to expire.
#[test]
fn main_returns_right_after_a_drop_and_the_client_is_static() {
    released("drop-static", Some(0));
}

#[test]
fn f16_dropped_after_the_runtime() {
    released("drop-after-the-runtime", Some(0));
}

#[test]
fn main_shuts_the_client_down() {
    released("shutdown", Some(0));
}

#[test]
fn exit_on_the_main_thread_right_after_a_drop() {
    released("exit", Some(0));
}

/// `exit` drops nothing.
#[test]
fn exit_while_holding() {
    expires("exit-held", Some(0));
}

/// Nothing waits for the release: it is sent in time, or the lease expires.
#[test]
fn exit_on_another_thread_right_after_a_drop() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    for _ in 0..10 {
        let (status, ttl_ms, said) = left_by("exit-in-a-thread", &server);
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(ttl_ms == -2 || (0..=LEASE_MS).contains(&ttl_ms), "{ttl_ms}");
        is_free_within(&server, LEASE + SLACK);
    }
}

#[test]
fn f14_panic_with_unwinding() {
    released("panic", Some(101));
}

#[test]
fn f14_panic_with_unwinding_and_the_client_is_static() {
    released("panic-static", Some(101));
}

#[test]
fn f14_panic_in_a_task() {
    released("panic-in-a-task", Some(0));
}

#[test]
fn f14_panic_with_abort() {
    expires("panic-abort", None);
}

#[test]
fn abort_while_holding() {
    expires("abort", None);
}

/// A guard that is never dropped, in a program that ends normally.
#[test]
fn f18_a_leaked_guard_ends_with_the_program() {
    expires("leak", Some(0));
}

#[test]
fn f16_dropped_in_the_destructor_of_a_thread_local() {
    released("thread-local", Some(0));
}

#[test]
fn f16_dropped_in_the_destructor_of_a_thread_local_of_the_main_thread() {
    released("thread-local-main", Some(0));
}

/// The guard's destructor runs after all others, when the thread has no storage left to record it.
#[test]
fn f16_dropped_in_the_last_destructor_of_the_main_thread() {
    released("thread-local-main-early", Some(0));
}

#[test]
fn f17_a_runtime_is_shut_down_under_guards_and_waiters() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (status, ttl_ms, said) = left_by("runtime-shut-down", &server);
    println!("measured: f17: {said}");
    assert!(status.success(), "{said}");
    assert_eq!(ttl_ms, -2);
}

/// The server does not answer, but the program still ends.
#[test]
fn main_returns_and_the_server_hangs() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut child = start("drop-when-told", &server);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    server.stop();
    let began = Instant::now();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    out.read_to_string(&mut line).unwrap();
    let (status, said) = end(child);
    let took = began.elapsed();
    println!("measured: end of a program while the server hangs: {took:?}");
    assert!(status.success(), "{said}");
    // It waits for a second; without that bound it would wait 30 s.
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.cont();
    is_free_within(&server, LEASE + SLACK);
}

#[test]
fn f13_the_child_of_a_fork_leaves_its_parents_locks_alone() {
    released_once("fork");
}

#[test]
fn f13_forks_in_the_middle_of_work() {
    released_once("fork-under-load");
}

/// On the host store, where the child must not even reopen the file.
#[test]
fn f13_the_child_of_a_fork_leaves_a_file_alone() {
    on_a_file("fork-on-a-file");
}

#[test]
fn f13_forks_in_the_middle_of_work_on_a_file() {
    on_a_file("fork-under-load");
}

fn on_a_file(way: &str) {
    let dir = fairlock_testkit::tempdir::TempDir::new();
    let (status, said) =
        end(start_on(way, &format!("sqlite:{}", dir.path().join("locks").display())));
    println!("measured: {way}: {said}");
    assert!(status.success(), "{way}: {said}");
}

fn released_once(way: &str) {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (status, ttl_ms, said) = left_by(way, &server);
    println!("measured: {way}: {said}");
    assert!(status.success(), "{way}: {said}");
    assert_eq!(ttl_ms, -2, "{way}");
}
