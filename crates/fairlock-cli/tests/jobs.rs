//! As a job of an interactive shell: the keys, `fg`, `bg`, and a terminal that goes away.
//!
//! The terminal also echoes what is typed, so the text that a test waits for is spelled differently
//! there.

use std::process::{Command, Stdio};

use fairlock_testkit::processes;
use fairlock_testkit::server::{Generation, Server};

use crate::fixture::{alone, eventually, is_alive, state};
use crate::terminal::Session;

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";

/// `None`, with a notice, where bash is missing.
fn shell(url: &str) -> Option<Session> {
    if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
        fairlock_testkit::skip("bash");
        return None;
    }
    let mut session = Session::start(url, "exec bash --norc --noprofile -i")?;
    session.keys(b"PS1='$ '; bind 'set enable-bracketed-paste off'; echo a''shell\n");
    session.see("ashell");
    Some(session)
}

/// The number after `pid=` in a line.
fn number(line: &str) -> String {
    let (_, rest) = line.split_once("pid=").expect("a line with a number");
    rest.chars().take_while(char::is_ascii_digit).collect()
}

/// The shell gets its prompt back when the command is stopped, and `fg` gives the command the
/// terminal.
#[test]
fn a_job_is_stopped_and_continued() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let Some(mut session) = shell(&server.url()) else { return };
    session.keys(b"$FAIRLOCK run x -- sh -c 'echo p''id=$$; exec sleep 60'\n");
    let process = number(&session.see("pid="));
    for _ in 0..2 {
        eventually("the command runs", || state(&process) == Some('S'));
        session.keys(CTRL_Z);
        session.see("Stopped");
        assert_eq!(state(&process), Some('T'));
        session.keys(b"echo usa''ble\n");
        session.see("usable");
        session.keys(b"fg\n");
    }
    eventually("the command runs", || state(&process) == Some('S'));
    session.keys(CTRL_C);
    session.keys(b"echo c''ode=$?\n");
    session.see("code=130");
    assert!(!is_alive(&process));
    assert_eq!(server.client().call(&["EXISTS", "x"]).int(), 0, "it was released");
}

/// A command that reads the terminal has it; stopped and continued, it has it again.
#[test]
fn a_job_that_reads_the_terminal() {
    let Some(mut session) = shell(&alone()) else { return };
    session.keys(
        b"$FAIRLOCK run x -- sh -c 'echo p''id=$$; read a; echo on''e=$a; read b; echo tw''o=$b'\n",
    );
    let process = number(&session.see("pid="));
    session.keys(b"first\n");
    session.see("one=first");
    session.keys(CTRL_Z);
    session.see("Stopped");
    assert_eq!(state(&process), Some('T'));
    session.keys(b"fg\n");
    eventually("the command reads", || state(&process) == Some('S'));
    session.keys(b"second\n");
    session.see("two=second");
    session.keys(b"read c; echo thr''ee=$c\nthird\n");
    session.see("three=third");
}

/// In the background it stops when it reads the terminal, and the shell reports that.
#[test]
fn a_job_in_the_background_wants_the_terminal() {
    let Some(mut session) = shell(&alone()) else { return };
    session.keys(b"$FAIRLOCK run x -- sh -c 'echo p''id=$$; read a; echo go''t=$a' &\n");
    let process = number(&session.see("pid="));
    eventually("the command is stopped", || state(&process) == Some('T'));
    let fairlock = processes::parent(&process).expect("the process is there");
    eventually("the job is stopped", || state(fairlock) == Some('T'));
    // The shell reports it before its next prompt, if it knows of it by then.
    session.keys(b"until jobs | grep -q St''opped; do sleep 0.05; done; jobs\n");
    session.see("Stopped");
    session.keys(b"fg\n");
    eventually("the command reads", || state(&process) == Some('S'));
    session.keys(b"it\n");
    session.see("got=it");
}

#[test]
fn a_stopped_job_goes_on_in_the_background() {
    let Some(mut session) = shell(&alone()) else { return };
    session.keys(b"$FAIRLOCK run x -- sh -c 'echo p''id=$$; exec sleep 60'\n");
    let process = number(&session.see("pid="));
    session.keys(CTRL_Z);
    session.see("Stopped");
    assert_eq!(state(&process), Some('T'));
    session.keys(b"bg\n");
    eventually("it goes on", || state(&process) == Some('S'));
    session.keys(b"kill %1; wait %1; echo c''ode=$?\n");
    session.see("code=143");
}

/// Nobody renews while it is stopped: if it is continued too late, it must not keep working.
#[test]
fn a_job_that_was_stopped_for_too_long() {
    let Some(mut session) = shell(&alone()) else { return };
    session.keys(b"$FAIRLOCK run --lease 6s x -- sh -c 'echo p''id=$$; exec sleep 60'\n");
    let process = number(&session.see("pid="));
    session.keys(CTRL_Z);
    session.see("Stopped");
    eventually("the command is gone", || !is_alive(&process));
    session.keys(b"fg\n");
    session.see("lost");
    session.keys(b"echo c''ode=$?\n");
    session.see("code=76");
}

/// The window is closed: the command gets the hang-up, and the lock is free at once.
#[test]
fn the_terminal_goes_away() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let script = "exec $FAIRLOCK run x -- sh -c 'echo pid=$$; exec sleep 60'";
    for script in [script, &script.replace("exec sleep", "read a; exec sleep")] {
        let Some(mut session) = Session::start(&server.url(), script) else { return };
        let process = number(&session.see("pid="));
        session.running.signal(rustix::process::Signal::KILL);
        eventually("the command is gone", || !is_alive(&process));
        eventually("the lock is free", || server.client().call(&["EXISTS", "x"]).int() == 0);
    }
}
