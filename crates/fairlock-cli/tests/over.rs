//! A grant that is over before the command begins: the run is stopped between the two, for longer
//! than the lease lasts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::Signal;

use crate::fixture::{
    Outcome, Running, children, eventually, fairlock, finish, is_alive, run_script,
};

/// How often the moment may be missed: the command then began before the stop, which is another
/// case.
const ATTEMPTS: u32 = 50;

/// Starts a run of `x` under a short lease and stops it when the first process of the command
/// exists, which then waits for its guardian and has not begun; calls `meanwhile` when the lease is
/// over. `None`: it had begun.
fn stopped_before_the_command(
    url: &str,
    options: &[&str],
    began: &Path,
    meanwhile: impl FnOnce(),
) -> Option<Outcome> {
    let _ = fs::remove_file(began);
    let script = format!(": >{}; echo ran", began.display());
    let running = Running::start(run_script(url, options, "x", &script));
    let main = running.pid();
    // A busy loop: the moment lasts for some milliseconds.
    while children(main).is_empty() {
        // A process that has ended still exists until it is waited for.
        if !is_alive(main.to_string()) {
            return None;
        }
    }
    running.signal(Signal::STOP);
    // This sleep is the subject of the test: the lease ends while the process is stopped.
    std::thread::sleep(Duration::from_millis(900));
    if began.exists() {
        return None;
    }
    meanwhile();
    running.signal(Signal::CONT);
    Some(running.wait())
}

/// The run used to end with 76 and "the command was ended", though nothing had begun. Since nothing
/// ran, it waits again.
#[test]
fn d39_a_grant_that_is_over_before_the_command_begins_is_waited_for_again() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let began = dir.path().join("began");
    let outcome = (0..ATTEMPTS)
        .find_map(|_| stopped_before_the_command(&url, &["--lease", "800ms"], &began, || ()));
    let outcome = outcome.expect("the moment is met once in a while");
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "ran\n", "once");
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0);
}

/// The wait may be over by then, and another client may have the lock: then the lock was not
/// acquired, and the message says that nothing ran.
#[test]
fn d39_a_wait_that_is_over_then_says_that_nothing_ran() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let began = dir.path().join("began");
    let mut another = None;
    let options = ["--lease", "800ms", "--wait", "100ms"];
    let outcome = (0..ATTEMPTS).find_map(|_| {
        stopped_before_the_command(&url, &options, &began, || {
            let mut holder = Running::start(fairlock(["run", "--url", &url, "x"]));
            holder.line();
            another = Some(holder);
        })
    });
    let outcome = outcome.expect("the moment is met once in a while");
    outcome.expect(75, "; it was granted, and over before the command began: nothing ran");
    assert_eq!(outcome.stdout, "");
    assert!(!began.exists());
    another.expect("it holds").signal(Signal::TERM);
}

/// A holder that is not renewed: another program's plain lock.
const HOLDER: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";

/// Starts a run of the plain lock `x` under a lease of 800 ms behind a proxy; when it waits, `make_late` lets every reply
/// come later than that, and the holder goes.
fn granted_too_late(server: &Server, proxy: &Proxy, make_late: fn(&Proxy)) -> Running {
    let mut raw = server.client();
    raw.call(&["HSET", "x", HOLDER, "1"]);
    let options = ["--kind", "plain", "--lease", "800ms"];
    let running = Running::start(run_script(&proxy.url(), &options, "x", "echo ran"));
    let channel = "redisson_lock__channel:{x}";
    eventually("it listens", || {
        let reply = raw.call(&["PUBSUB", "NUMSUB", channel]);
        format!("{reply:?}").contains("Int(1)")
    });
    make_late(proxy);
    raw.call(&["DEL", "x"]);
    raw.call(&["PUBLISH", channel, "0"]);
    eventually("it is granted", || raw.call(&["EXISTS", "x"]).int() == 1);
    running
}

/// A process, or its store, stood still once between a grant and the news of it: the lock was over
/// before it could be used. The run ended with 64, "choose a longer lease", although its next
/// attempt would have got it.
#[test]
fn a_grant_that_is_over_before_it_is_heard_is_waited_for_again() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(server.addr());
    let running = granted_too_late(&server, &proxy, |proxy| proxy.hold_replies(true));
    eventually("its lease is over", || server.client().call(&["EXISTS", "x"]).int() == 0);
    proxy.hold_replies(false);
    let outcome = running.wait();
    outcome.expect(0, "");
    assert_eq!(outcome.stdout, "ran\n", "once");
}

/// If each grant comes too late, the run ends instead of trying forever.
#[test]
fn grants_that_are_over_each_time_end_the_run() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(server.addr());
    let delay = |proxy: &Proxy| proxy.delay_to_client(Duration::from_millis(900));
    let outcome = granted_too_late(&server, &proxy, delay).wait();
    outcome.expect(
        64,
        "x: 3 times its --lease of 800ms was over before the command began; nothing ran",
    );
    assert_eq!(outcome.stdout, "");
}

/// A fixed lease too short for any command to begin must not be retried forever.
#[test]
fn d39_a_lease_in_which_nothing_can_begin_is_refused() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    // The command is asked to end after two thirds of it, and starting one takes longer than what
    // is left, if the machine is loaded enough. So either of these ends is right, and no third one.
    let outcome = finish(run_script(&url, &["--lease", "100ms"], "x", "exec sleep 60"));
    assert!(matches!(outcome.code(), 64 | 76), "{outcome:?}");
    eventually("it is free again", || {
        finish(fairlock(["status", "--url", &url, "--exit-code", "-q", "x"])).code() == 0
    });
}
