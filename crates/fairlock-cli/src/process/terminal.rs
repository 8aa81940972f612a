//! Sharing the terminal with the command.
//!
//! The command has its own process group, and a terminal serves one group at a time. The kernel
//! stops a command that reads the terminal from another group (TTIN) or changes its settings (TTOU).
//! Only then does the command get the terminal, and only if it is ours to give. If the command never
//! needs it, the terminal stays where it was, so that `fairlock run x -- job | less` works.
//!
//! Taking it back is harder: `tcsetpgrp` from a group that lacks the terminal stops the caller unless
//! it IGNORES that signal, and ignoring a signal needs unsafe code. A shell can do it, and an ignored
//! signal stays ignored across `exec`: `sh` ignores TTOU and becomes `fairlock __foreground`.
//! Interactive shells take their terminal back by themselves; scripts depend on this.

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

use rustix::process::{self, Pid, Signal};
use rustix::termios;

use super::child::{Child, this_program_for_others};
use super::proc;
use crate::base::exit::{Code, Failure};

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: Option<File>,
    /// Our group. If it is outside our namespace, the terminal is not ours to share.
    own: Option<Pid>,
    given: bool,
    /// This process got a TSTP and passed it on.
    asked_to_stop: bool,
}

impl Terminal {
    /// Opens the controlling terminal, whatever stdin is: a command whose stdin is redirected may still
    /// ask for a password.
    pub(crate) fn open() -> Self {
        let own = proc::ids(process::getpid()).and_then(|ids| ids.group);
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
        Self { tty: tty.filter(|_| own.is_some()), own, given: false, asked_to_stop: false }
    }

    /// Notes that this process passes on a TSTP.
    pub(crate) fn asked_to_stop(&mut self) {
        self.asked_to_stop = true;
    }

    /// Reacts to the stop of the command by this signal.
    pub(crate) fn child_stopped(&mut self, child: &Child, signal: i32) {
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        if wants_terminal && self.give(child.group()) {
            child.signal(Signal::CONT);
        } else if wants_terminal || signal == Signal::TSTP.as_raw() {
            self.stop_with(child, wants_terminal);
        }
        // By STOP: the command was stopped on purpose. The lock is renewed meanwhile.
    }

    /// Continues the command after this process was continued (`fg` or `bg`).
    pub(crate) fn resumed(&mut self, child: &Child) {
        self.asked_to_stop = false;
        if self.given {
            // Only if the shell gave it to us; after `bg` the command stops again when it needs it.
            self.give(child.group());
        }
        child.signal(Signal::CONT);
    }

    /// Returns the terminal to our group after the end of the command.
    pub(crate) fn take_back(&mut self) {
        let Some(own) = self.own else { return };
        if !self.given || self.foreground() == Some(own) {
            return;
        }
        let Some(tty) = self.tty.as_ref().and_then(|tty| tty.try_clone().ok()) else { return };
        // Best effort: at worst, a script cannot read the terminal.
        let _ = Command::new("/bin/sh")
            .args(["-c", r#"trap "" TTOU; exec "$0" __foreground "$1""#])
            .arg(this_program_for_others())
            .arg(own.as_raw_pid().to_string())
            .stdin(tty)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }

    /// Gives the terminal to a group, if our group has it.
    fn give(&mut self, group: Pid) -> bool {
        let Some(tty) = &self.tty else { return false };
        let owner = self.foreground();
        if owner.is_some() && owner == self.own && termios::tcsetpgrp(tty, group).is_ok() {
            self.given = true;
            return true;
        }
        // The group has it already: the stop dates from before.
        owner == Some(group)
    }

    /// Stops our own group as well, so that the waiting shell sees its job stopped. Renewal stops with it;
    /// if the lock is lost by the time of the return, the command is ended before it runs again.
    fn stop_with(&self, child: &Child, wants_terminal: bool) {
        let stoppable = self.own.filter(|own| self.tty.is_some() && !is_orphaned(*own));
        if let Some(own) = stoppable {
            let _ = process::kill_process_group(own, Signal::STOP);
        } else if !wants_terminal && (self.tty.is_some() || !self.asked_to_stop) {
            // Nobody could continue us. The kernel ignores TSTP for such a group; so do we. Without a
            // terminal nobody pressed a key: whoever sent TSTP means it and sends CONT later. The lock
            // is renewed meanwhile.
            child.signal(Signal::CONT);
        }
    }

    fn foreground(&self) -> Option<Pid> {
        self.tty.as_ref().and_then(|tty| termios::tcgetpgrp(tty).ok())
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    group: i32,
}

/// `fairlock __foreground GROUP`: gives the terminal on stdin to a group.
pub(crate) fn foreground(args: &Args) -> Result<Code, Failure> {
    let group = Pid::from_raw(args.group).ok_or_else(|| Failure::usage("not a process group"))?;
    termios::tcsetpgrp(std::io::stdin(), group)
        .map(|()| Code::OK)
        .map_err(|error| Failure::new(Code::INTERNAL, error))
}

/// What TSTP does to this process by default.
pub(super) fn stop() {
    let own = proc::ids(process::getpid()).and_then(|ids| ids.group);
    if own.is_some_and(|own| !is_orphaned(own)) {
        let _ = process::kill_process(process::getpid(), Signal::STOP);
    }
}

/// "Orphaned" in the sense of POSIX: no parent in the same session could continue this group.
fn is_orphaned(group: Pid) -> bool {
    let leader = proc::ids(group).or_else(|| proc::ids(process::getpid()));
    let Some(leader) = leader else { return true };
    let Some(parent) = leader.parent.and_then(proc::ids) else { return true };
    let same_session = parent.session.is_some() && parent.session == leader.session;
    !(same_session && parent.group != Some(group))
}
