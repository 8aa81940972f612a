//! A terminal, provided by util-linux's `script`, which gives its command one of its own.

use std::fs;
use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rustix::process::Signal;

use crate::fixture::{
    Running, alone, eventually, fairlock, finish, hold_until, neutral, run_script, status,
    with_default_signals,
};

/// A shell script on a terminal, and its keyboard.
pub(crate) struct Session {
    pub(crate) running: Running,
    keyboard: ChildStdin,
}

impl Session {
    /// `None`, with a notice, where `script` is missing.
    pub(crate) fn start(url: &str, script: &str) -> Option<Self> {
        let mut command = with_default_signals("script");
        command.args(["--quiet", "--return", "--command", script, "/dev/null"]);
        neutral(&mut command);
        command.env("FAIRLOCK", env!("CARGO_BIN_EXE_fairlock")).env("SHELL", "/bin/sh");
        command.env("FAIRLOCK_URL", url).env("TERM", "xterm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
            fairlock_testkit::skip("the program script of util-linux");
            return None;
        }
        let (running, keyboard) = Running::start_with_stdin(command);
        Some(Self { running, keyboard })
    }

    pub(crate) fn keys(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("the terminal is there");
    }

    /// Reads lines until one contains this text.
    #[track_caller]
    pub(crate) fn see(&mut self, text: &str) -> String {
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
    let Some(mut session) = Session::start(&alone(), script) else { return };
    session.see("ready");
    session.keys(b"first\n");
    session.see("one=first");
    session.see("next");
    session.keys(b"second\n");
    session.see("two=second");
}

/// Ctrl-C reaches a command that has the terminal, and one that never read from it.
#[test]
fn the_interrupt_key_reaches_the_command() {
    for prelude in ["", "read a; "] {
        let script = format!(
            r#"trap : INT; $FAIRLOCK run x -- sh -c 'echo ready; {prelude}echo steady; exec sleep 60'
            echo "code=$?""#
        );
        let Some(mut session) = Session::start(&alone(), &script) else { return };
        session.see("ready");
        if !prelude.is_empty() {
            session.keys(b"go\n");
        }
        session.see("steady");
        session.keys(b"\x03");
        session.see("code=130");
    }
}

/// A terminal gets what a script does not: a message about what is happening.
#[test]
fn people_are_told_more() {
    let Some(mut session) = Session::start("memory:", "$FAIRLOCK status x; echo end") else {
        return;
    };
    session.see("fairlock: memory: locks nobody out");
    session.see("end");
}

/// The place in the queue, the holder and the time waited, on one line that is erased at the end.
#[test]
fn people_see_how_the_wait_goes() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    let script = "$FAIRLOCK run --wait 5s x -- true; echo \"code=$?\"";
    let Some(mut session) = Session::start(&url, script) else { return };
    let line = session.see("not acquired within 5s");
    for text in ["x: waiting 1", ", place 1 of 1, held by sh for ", "\r\x1b[Kfairlock: x: not"] {
        assert!(line.contains(text), "{text:?} is missing in {line:?}");
    }
    session.see("code=75");
}

/// People who had forgotten the command did not learn why nothing happened.
#[test]
fn a_hold_says_that_there_is_no_command() {
    let Some(mut session) = Session::start(&alone(), "exec $FAIRLOCK run x") else { return };
    session.see("fairlock: x: no command was given: held until a signal, such as Ctrl-C");
    session.keys(b"\x03");
    assert_eq!(session.running.wait().code(), 130);
}

/// `*` is a pattern for `list` only.
#[test]
fn a_star_in_a_name_is_noted() {
    let script = "$FAIRLOCK run f -- true 2>/dev/null
        for i in status wait; do $FAIRLOCK $i 'f*'; $FAIRLOCK $i f; echo end; done
        $FAIRLOCK watch 'f*' | head -n 1";
    let Some(mut session) = Session::start(&alone(), script) else { return };
    let note = "fairlock: f*: `*` is part of the name here; `fairlock list 'f*'` looks for names";
    for _ in 0..3 {
        assert_eq!(session.see("fairlock: f"), note);
    }
}

/// How fast the server is searched was told with every list.
#[test]
fn a_search_tells_its_pace_if_it_takes_long() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let keys = "for i = 1, 4000 do redis.call('SET', i, '') end";
    server.client().call(&["EVAL", keys, "0"]);
    let script = "$FAIRLOCK list --rate 1000000; $FAIRLOCK list --rate 1000";
    let Some(mut session) = Session::start(&server.url(), script) else { return };
    let nothing = "fairlock: no locks to show";
    assert_eq!(session.see("fairlock: "), nothing);
    let looked = format!("fairlock: looked in {}, seen by all hosts ", server.url());
    assert!(session.see("fairlock: ").starts_with(&looked));
    let pace = "fairlock: looking at 1000 keys of the server a second at most (--rate)";
    assert_eq!(session.see("fairlock: "), pace);
    assert_eq!(session.see("fairlock: "), nothing);
}

#[test]
fn quiet_people_are_told_nothing() {
    let script = "$FAIRLOCK run --quiet x -- echo working; echo end";
    let Some(mut session) = Session::start(&alone(), script) else { return };
    assert_eq!(session.running.line(), "working");
    assert_eq!(session.running.line(), "end");
}

/// Every user of the host can see arguments. Scripts get no such line: their success is silent.
#[test]
fn a_password_in_the_url_is_warned_of() {
    let script = "$FAIRLOCK status --url redis://:canary@127.0.0.1:1 x; $FAIRLOCK run --wait 0 x -- echo end";
    let Some(mut session) = Session::start("redis://:canary@127.0.0.1:1", script) else { return };
    let line = session.running.line();
    assert!(line.contains("every user of this host can see the password in --url"), "{line}");
    // Nobody else sees it in the environment. Both then fail, at a port without a server.
    for _ in 0..2 {
        let line = session.running.line();
        assert!(line.contains("127.0.0.1:1") && !line.contains("password"), "{line}");
        assert!(!line.contains("canary"), "{line}");
    }
}

/// Problems of the server are shown to people, but not to scripts, nor with `--quiet`.
#[test]
fn a_server_that_may_delete_locks_is_warned_of() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    server.client().call(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.client().call(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let script = "$FAIRLOCK run --quiet x -- echo quiet; $FAIRLOCK run x -- echo script 2>&1 | cat; \
                  $FAIRLOCK run x -- echo end";
    let Some(mut session) = Session::start(&server.url(), script) else { return };
    assert_eq!(session.running.line(), "quiet");
    assert_eq!(session.running.line(), "script");
    let line = session.running.line();
    assert!(line.contains("deletes locks") && line.contains("volatile-lru"), "{line}");
    session.see("end");
}

/// A server without memory was waited for in silence for 30 s, until the error named it; and the line named the holder,
/// who was not to blame.
#[test]
fn a_wait_for_a_server_that_is_full_says_so() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "held", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    server.client().call(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let script = "$FAIRLOCK run --wait 5s free -- true; $FAIRLOCK run --wait 5s held -- true";
    let Some(mut session) = Session::start(&url, script) else { return };
    for (name, what) in [
        ("free", "s, free, and not granted: the store"),
        ("held", "s, not in the queue: the store"),
    ] {
        let line = session.see("the server refuses writes: its memory is full (OOM)");
        assert!(line.contains(name) && line.contains(what), "{line}");
    }
}

/// People got pages of roff, and nothing that said what to do with them.
#[test]
fn a_page_on_a_terminal_says_how_to_read_it() {
    let Some(mut session) = Session::start("memory:", "$FAIRLOCK man leader") else { return };
    session.see(".TH fairlock-leader 1");
    session.see("to read it: fairlock man leader | man -l -");
}

#[test]
fn unlock_asks_people() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder =
        Running::start(run_script(&url, &["--label", "job 7"], "x", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    let script = r#"$FAIRLOCK unlock --force x; echo "code=$?"
        $FAIRLOCK unlock --force x </dev/null; echo "code=$?"
        $FAIRLOCK unlock --force x; echo "code=$?"
        $FAIRLOCK unlock --force --yes x; echo "code=$?""#;
    // The second one has no terminal to ask on, as in a script; here for a lock that nobody holds.
    let script = script.replacen("--force x </dev/null", "--force free </dev/null", 1);
    let Some(mut session) = Session::start(&url, &script) else { return };
    session.see("Store: redis://127.0.0.1:");
    assert!(session.see("x: held by ").contains(":"));
    session.see("job 7");
    session.keys(b"n\n");
    session.see("Its holder is told at once, and `fairlock run` ends its command;");
    session.see("Take the lock away from it? [y/N]");
    session.see("x: left alone");
    session.see("code=1");
    session.see("free: was not locked");
    session.see("code=1");
    session.see("x: held by ");
    session.keys(b"Y\n");
    session.see("x: unlocked");
    session.see("code=0");
    // Not held: nothing to ask.
    session.see("x: was not locked");
    session.see("code=1");
    holder.wait().expect(76, "the command was ended");
}

/// The question named a waiter as the next one that had been stopped, and was passed over.
#[test]
fn unlock_says_that_the_next_one_is_silent() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    let stopped = Running::start(run_script(&url, &[], "x", "true"));
    eventually("it waits", || status(&url, "x")["queue_len"] == 1);
    stopped.signal(Signal::STOP);
    eventually("it is silent", || status(&url, "x")["queue"][0]["alive"] == false);
    let Some(mut session) = Session::start(&url, "$FAIRLOCK unlock --force x") else { return };
    session.see("(silent: it is passed over).");
    session.keys(b"n\n");
    session.see("x: left alone");
}

/// While the question stood, the next one got the lock: the answer took it from that one, whose command was killed.
#[test]
fn unlock_takes_nothing_from_one_that_it_did_not_ask_about() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, dir) = (server.url(), TempDir::new());
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let mut first = Running::start(run_script(&url, &[], "x", &hold_until(&one)));
    assert_eq!(first.line(), "holding");
    let options = ["--label", "the next"];
    let mut second = Running::start(run_script(&url, &options, "x", &hold_until(&two)));
    let waits = || finish(fairlock(["status", "--url", &url, "x"])).stdout.contains("the next");
    eventually("it waits", waits);
    let script = r#"$FAIRLOCK unlock --force x; echo "code=$?""#;
    let Some(mut session) = Session::start(&url, script) else { return };
    session.see("x: held by ");
    assert!(session.see("Next: ").contains(", the next."));
    fs::write(&one, "").unwrap();
    assert_eq!(second.line(), "holding");
    session.keys(b"y\n");
    session.see("x: another one holds it by now; nothing was done");
    session.see("code=1");
    first.wait().expect(0, "");
    // It was left alone.
    fs::write(&two, "").unwrap();
    second.wait().expect(0, "");
}

/// A mark of `--once-per` was asked about as if a command were at work.
#[test]
fn unlock_asks_about_what_is_done() {
    let url = alone();
    let once = ["run", "--url", &url, "--once-per", "1h", "x", "--", "true"];
    finish(fairlock(once)).expect(0, "");
    let Some(mut session) = Session::start(&url, "$FAIRLOCK unlock --force x") else { return };
    session.see("x: done, next start in 59m");
    session.keys(b"y\n");
    session.see("Forget that it is done, so that it may be started again now? [y/N]");
    session.see("x: unlocked; it was done, next start in 59m");
}

/// In the wrong store everything is free. Whoever names the store on the command line knows which one it is.
#[test]
fn people_see_where_nothing_was_found() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let url = server.url();
    let looked =
        format!("fairlock: looked in {url}, seen by all hosts that use it; from FAIRLOCK_URL");
    for command in
        ["list", "list x", "leader x", "wait x", "latch x --show", "unlock --force --yes x"]
    {
        let script = format!("$FAIRLOCK {command}; $FAIRLOCK {command} --url {url}; echo end");
        let Some(mut session) = Session::start(&url, &script) else { return };
        session.see(&looked);
        loop {
            let line = session.running.line();
            assert!(!line.contains("looked in"), "{command}: {line}");
            if line == "end" {
                break;
            }
        }
    }
    let piped = finish(fairlock(["leader", "--url", &url, "x"]));
    piped.expect(1, "");
    // A lock that is found is in the right store.
    let mut holder = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
    assert_eq!(holder.line(), "holding");
    let Some(mut session) = Session::start(&url, "$FAIRLOCK list; echo end") else { return };
    loop {
        let line = session.running.line();
        assert!(!line.contains("looked in"), "{line}");
        if line == "end" {
            break;
        }
    }
}

/// Colours on a terminal, unless they are turned off.
#[test]
fn colours_are_for_terminals() {
    // Without the line about its wait, which a slow machine gives it the time to write.
    let script = r#"$FAIRLOCK run x -- true 2>/dev/null; $FAIRLOCK status x; echo; NO_COLOR=1 $FAIRLOCK status x; echo
        TERM=dumb $FAIRLOCK status x; $FAIRLOCK --help | head -n 3; $FAIRLOCK --help"#;
    let Some(mut session) = Session::start(&alone(), script) else { return };
    assert_eq!(session.see("free"), "\x1b[1mx\x1b[0m: \x1b[32mfree\x1b[0m");
    assert_eq!(session.see("free"), "x: free");
    assert_eq!(session.see("free"), "x: free");
    assert_eq!(session.see("Usage"), "Usage: fairlock <COMMAND>");
    assert_eq!(session.see("Usage"), "\x1b[1mUsage:\x1b[0m fairlock <COMMAND>");
    assert_eq!(session.see("Options"), "\x1b[1mOptions:\x1b[0m");
    let piped = finish(fairlock(["status", "--url", "memory:", "x"]));
    assert!(piped.stdout.starts_with("x: free\n"), "{piped:?}");
}
