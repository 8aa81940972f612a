//! Sharing the terminal with the command.
//!
//! The command is in a process group of its own, and a terminal serves one group at a time. The
//! kernel stops a command that reads the terminal from another group (TTIN), or changes its
//! settings (TTOU). Only then does it get the terminal, and only if it is ours to give. A command
//! that never asks leaves the terminal where it was, so that `fairlock run x -- job | less` works.
//!
//! Getting it back is the harder half: `tcsetpgrp` from a group that lacks the terminal stops the
//! caller unless it IGNORES that signal, and ignoring one needs unsafe code. A shell can do it, and
//! an ignored signal stays so across `exec`: `sh` ignores TTOU and becomes `fairlock __foreground`.
//! Interactive shells take their terminal back by themselves; scripts depend on this.

use std::fs::{self, File, OpenOptions};
use std::process::{Command, Stdio};

use rustix::process::{self, Pid, Signal};
use rustix::termios;

use crate::args;
use crate::child::{Child, this_program_for_others};
use crate::exit::{Code, Failure};

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: Option<File>,
    own: Pid,
    given: bool,
}

impl Terminal {
    /// Looks for the controlling terminal, whatever stdin is: a command with its stdin redirected
    /// may still ask for a password.
    pub(crate) fn open() -> Self {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
        Self { tty, own: process::getpgrp(), given: false }
    }

    /// The command was stopped by this signal.
    pub(crate) fn child_stopped(&mut self, child: &Child, signal: i32) {
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        if wants_terminal && self.give(child.group()) {
            child.signal(Signal::CONT);
        } else if wants_terminal || signal == Signal::TSTP.as_raw() {
            self.stop_with(child, wants_terminal);
        }
        // By STOP: somebody holds the command on purpose. The lock stays renewed meanwhile.
    }

    /// This process was continued (`fg` or `bg`); the command is next.
    pub(crate) fn resumed(&mut self, child: &Child) {
        if self.given {
            // Only if the shell gave it to us; after `bg` the command asks again when it needs it.
            self.give(child.group());
        }
        child.signal(Signal::CONT);
    }

    /// After the end of the command: the terminal returns to our group.
    pub(crate) fn take_back(&mut self) {
        if !self.given || self.foreground() == Some(self.own) {
            return;
        }
        let Some(tty) = self.tty.as_ref().and_then(|tty| tty.try_clone().ok()) else { return };
        // Best effort: without it the worst case is a script that cannot read the terminal.
        let _ = Command::new("/bin/sh")
            .args(["-c", r#"trap "" TTOU; exec "$0" __foreground "$1""#])
            .arg(this_program_for_others())
            .arg(self.own.as_raw_pid().to_string())
            .stdin(tty)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }

    /// Gives the terminal to a group, if our group has it.
    fn give(&mut self, group: Pid) -> bool {
        let Some(tty) = &self.tty else { return false };
        let owner = self.foreground();
        if owner == Some(self.own) && termios::tcsetpgrp(tty, group).is_ok() {
            self.given = true;
            return true;
        }
        // It has it already: the stop was from before.
        owner == Some(group)
    }

    /// Stops our own group too, so that the shell that waits for us sees its job stopped. Renewal
    /// stops with it; when the lock is gone on return, the command is ended before it runs again.
    fn stop_with(&self, child: &Child, wants_terminal: bool) {
        if self.tty.is_some() && !self.is_orphaned() {
            let _ = process::kill_process_group(self.own, Signal::STOP);
        } else if !wants_terminal {
            // Nobody could continue us. The kernel ignores TSTP for such a group; so do we.
            child.signal(Signal::CONT);
        }
    }

    /// POSIX's "orphaned": no parent in the same session that could continue this group.
    fn is_orphaned(&self) -> bool {
        let Some(parent) = parent_of(self.own).or_else(process::getppid) else { return true };
        let session = process::getsid(None).ok();
        let same_session = session.is_some() && process::getsid(Some(parent)).ok() == session;
        let other_group = process::getpgid(Some(parent)).is_ok_and(|group| group != self.own);
        !(same_session && other_group)
    }

    fn foreground(&self) -> Option<Pid> {
        self.tty.as_ref().and_then(|tty| termios::tcgetpgrp(tty).ok())
    }
}

/// `fairlock __foreground GROUP`: gives the terminal on stdin to a group.
pub(crate) fn foreground(args: &args::Group) -> Result<Code, Failure> {
    let group = Pid::from_raw(args.group).ok_or_else(|| Failure::usage("not a process group"))?;
    termios::tcsetpgrp(std::io::stdin(), group)
        .map(|()| Code::OK)
        .map_err(|error| Failure::new(Code::INTERNAL, error))
}

/// The parent of a process, from `/proc/PID/stat`: the second field after the name.
fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)
}
