//! A terminal, by courtesy of util-linux's `script`, which gives its command one of its own.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

use fairlock_testkit::server::{Generation, Server};

use crate::fixture::{Running, run_script, with_default_signals};

/// A shell script on a terminal, with a hand on the keyboard.
struct Session {
    running: Running,
    keyboard: ChildStdin,
}

impl Session {
    /// `None`, loudly, where `script` is missing.
    fn start(url: &str, script: &str) -> Option<Self> {
        let mut command = with_default_signals("script");
        command.args(["--quiet", "--return", "--command", script, "/dev/null"]);
        command.env("FAIRLOCK", env!("CARGO_BIN_EXE_fairlock")).env("SHELL", "/bin/sh");
        command.env("FAIRLOCK_URL", url).env_remove("FAIRLOCK_PASSWORD");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: needs the program script of util-linux");
            assert!(std::env::var_os("CI").is_none(), "the program script is missing");
            return None;
        }
        let (running, keyboard) = Running::start_with_stdin(command);
        Some(Self { running, keyboard })
    }

    fn keys(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("the terminal is there");
    }

    /// Reads lines until one contains this.
    #[track_caller]
    fn see(&mut self, text: &str) -> String {
        loop {
            let line = self.running.line();
            if line.contains(text) {
                return line;
            }
        }
    }
}

/// The command reads the terminal, and so does the script after it.
#[test]
fn the_command_gets_the_terminal_and_gives_it_back() {
    let script = r#"$FAIRLOCK run x -- sh -c 'echo ready; read a; echo "one=$a"'
        echo next; read b; echo "two=$b""#;
    let Some(mut session) = Session::start("memory:", script) else { return };
    session.see("ready");
    session.keys(b"first\n");
    session.see("one=first");
    session.see("next");
    session.keys(b"second\n");
    session.see("two=second");
}

/// Ctrl-C reaches a command that has the terminal, and one that never asked for it.
#[test]
fn the_interrupt_key_reaches_the_command() {
    for prelude in ["", "read a; "] {
        let script = format!(
            r#"trap : INT; $FAIRLOCK run x -- sh -c 'echo ready; {prelude}echo steady; exec sleep 60'
            echo "code=$?""#
        );
        let Some(mut session) = Session::start("memory:", &script) else { return };
        session.see("ready");
        if !prelude.is_empty() {
            session.keys(b"go\n");
        }
        session.see("steady");
        session.keys(b"\x03");
        session.see("code=130");
    }
}

/// A terminal gets what a script does not: a word on what goes on.
#[test]
fn people_are_told_more() {
    let Some(mut session) = Session::start("memory:", "$FAIRLOCK run x -- true; echo end") else {
        return;
    };
    session.see("fairlock: memory: locks nobody out");
    session.see("end");
}

/// The place in the queue, the holder and the time waited, on one line that is wiped in the end.
#[test]
fn people_see_how_the_wait_goes() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    let script = "$FAIRLOCK run --wait 2500ms x -- true; echo \"code=$?\"";
    let Some(mut session) = Session::start(&url, script) else { return };
    let line = session.see("not acquired within 2.5s");
    for text in ["x: waiting for 1", "1 of 1 in the queue", "held by ", "\r\x1b[Kfairlock: x: not"]
    {
        assert!(line.contains(text), "{text:?} is missing in {line:?}");
    }
    session.see("code=75");
}
