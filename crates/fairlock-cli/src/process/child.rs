//! The guarded command: it has its own process group and is watched without being reaped.
//! Processes that leave the group are in `escaped.rs`.
//!
//! tokio's `Child` is not used, because it reaps as soon as the process ends, and from then on the number
//! of the group may belong to another one. Here the ended process stays until `reap`, so that a signal to
//! the group never reaches strangers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child as Process, Command};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{self, Pid, Signal, WaitId, WaitIdOptions};
use tokio::signal::unix::{self, SignalKind};
use tokio::time;

use super::abandoned_holds::AbandonedHolds;
use super::escaped::{OWNER_VAR, Search, Whose};
use super::exec;
use super::guardian::Guardian;
use super::orphans;
use super::proc;
use crate::base::clock;
use crate::base::exit::Code;

/// Time between two looks at a group that was asked to end. Nothing reports the end of a grandchild.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// Time between two looks at all processes, when only escaped ones are left.
const ESCAPED_POLL: Duration = Duration::from_millis(100);

/// How long processes may take to end after KILL. Only those stuck in the kernel take longer. Pauses are counted, not the
/// clock, which goes on while this process stands still.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// What happened to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended with this code.
    Ended(Code),
    /// A signal stopped it.
    Stopped(i32),
}

/// Where processes are left of a command that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// In its group, and possibly outside.
    Group,
    Outside,
}

impl Rest {
    /// When to look again.
    fn pause(self) -> Duration {
        match self {
            Self::Group => GROUP_POLL,
            Self::Outside => ESCAPED_POLL,
        }
    }
}

/// The running command.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    /// The number of the process and of its group.
    pid: Pid,
    /// The lock's owner, in the environment of everything that the command starts.
    owner: OsString,
    changes: unix::Signal,
    guardian: Option<Guardian>,
    /// The same after it was killed, until the kernel has removed it.
    dismissed: Option<Guardian>,
}

impl Child {
    /// Prepares the command for the lock's owner; nothing of it runs before [`begin`](Self::begin). Its
    /// environment is ours, with the changes in `hidden` (`None` removes a variable) and `vars`. If this process is
    /// killed, the `holds` are released after the command is dead.
    ///
    /// Must be called on the main thread: the kernel sends the parent-death signal (see `exec.rs`) when
    /// the THREAD ends that started the child.
    pub(crate) async fn prepare(
        command: &[OsString],
        owner: &OsStr,
        hidden: &[(&str, Option<OsString>)],
        vars: &[(&str, &OsStr)],
        holds: Option<&AbandonedHolds>,
    ) -> io::Result<Self> {
        // Before the start, so that no change is missed. This also replaces an inherited "ignore",
        // under which the kernel would discard exit codes.
        let changes = unix::signal(SignalKind::child())?;
        let mut shim = this_program();
        shim.arg(exec::WORD).arg(process::getpid().as_raw_pid().to_string());
        shim.arg("--").args(command).process_group(0);
        for (name, value) in hidden {
            match value {
                Some(value) => shim.env(name, value),
                None => shim.env_remove(name),
            };
        }
        let process = shim.envs(vars.iter().copied()).env(OWNER_VAR, owner).spawn()?;
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        let (owner, guardian, dismissed) = (owner.to_owned(), None, None);
        let mut child = Self { process, pid, owner, changes, guardian, dismissed };
        // Both start at the same time: the shim stops itself before anything of the command runs.
        match Guardian::spawn(this_program(), pid, &child.owner, holds) {
            Ok(guardian) => child.guardian = Some(guardian),
            Err(error) => {
                // Without a guardian the command must not run.
                child.abandon();
                return Err(error);
            }
        }
        // If it ends instead, the next call of `change` reports that.
        child.change().await;
        Ok(child)
    }

    /// Lets the command run. `deadline`: how long it may live if this process cannot act.
    pub(crate) fn begin(&mut self, deadline: Option<Duration>) {
        if let Some(deadline) = deadline {
            self.allow_until(deadline);
        }
        // Has no effect if it has already ended: it is not reaped yet.
        self.signal(Signal::CONT);
    }

    /// Kills the command before it begins, when it has started nothing yet.
    pub(crate) fn abandon(mut self) {
        self.signal(Signal::KILL);
        self.reap();
        self.leave_rest_alone();
    }

    /// The group of the command.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Waits until the command ends or stops. After `Ended`, returns `Ended` again.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn change(&mut self) -> Change {
        loop {
            self.reap_orphans();
            if let Some(change) = self.look() {
                return change;
            }
            self.changes.recv().await;
        }
    }

    /// Sends a signal to the whole group, if it still exists.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = process::kill_process_group(self.pid, signal);
    }

    /// Asks the command and everything that it started to end. A stopped process sees that only after
    /// it is continued.
    ///
    /// A run inside the command passes the request on, so its processes are not asked a second time.
    pub(crate) fn terminate(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            self.signal(signal);
            self.signal_escaped(Whose::Own, Some(signal));
        }
    }

    /// Kills the command and everything that it started.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.signal_escaped(Whose::All, Some(Signal::KILL));
    }

    /// Whether we may not send it signals, because it runs as another user now (`sudo`).
    pub(crate) fn is_anothers(&self) -> bool {
        process::test_kill_process(self.pid).is_err_and(|error| error == Errno::PERM)
    }

    /// Sets the time of the boot clock until which the group may live if this process cannot act.
    pub(crate) fn allow_until(&mut self, deadline: Duration) {
        if let Some(guardian) = &mut self.guardian {
            guardian.allow_until(deadline);
        }
    }

    /// Whether the guardian has killed the command: its end is not its own.
    pub(crate) fn is_killed_by_guardian(&self) -> bool {
        self.guardian.as_ref().is_some_and(Guardian::kills)
    }

    /// After the command itself has ended: gives the processes that are left until `kill_at` (of the boot clock), then
    /// kills them. Returns whether all are gone; those of another user cannot be killed.
    pub(crate) async fn end_rest(mut self, kill_at: Duration) -> bool {
        self.allow_until(kill_at);
        // The ended command is a member of its group until it is reaped. Processes that remain in the
        // group keep its number from being reused.
        self.reap();
        let (mut asked, mut all) = (false, true);
        let mut paused = Duration::ZERO;
        while let Some(rest) = self.rest() {
            if clock::now() >= kill_at {
                if paused >= KILL_TIMEOUT {
                    all = false;
                    break;
                }
                self.kill();
                paused += rest.pause();
            } else if rest == Rest::Outside && !asked {
                // Runs inside the command have ended normally and left these processes running.
                for signal in [Signal::TERM, Signal::CONT] {
                    self.signal_escaped(Whose::Nested, Some(signal));
                }
                asked = true;
            }
            time::sleep(rest.pause()).await;
        }
        self.leave_rest_alone();
        all
    }

    /// After the command itself has ended normally: what it left running may continue.
    pub(crate) fn leave_rest_alone(&mut self) {
        if let Some(mut guardian) = self.guardian.take() {
            guardian.dismiss();
            self.dismissed = Some(guardian);
        }
    }

    /// Reaps the ended command. From then on the number of its group may belong to another one, so a guardian that was
    /// dismissed must be gone before.
    pub(crate) fn reap(&mut self) {
        drop(self.dismissed.take());
        // It has ended, so this does not block, and the code is already known.
        let _ = self.process.wait();
    }

    /// Where processes of the command are left, if any are.
    fn rest(&self) -> Option<Rest> {
        self.reap_orphans();
        if proc::runs(self.pid) {
            return Some(Rest::Group);
        }
        (self.signal_escaped(Whose::All, None) > 0).then_some(Rest::Outside)
    }

    fn signal_escaped(&self, whose: Whose, signal: Option<Signal>) -> usize {
        Search::new(&self.owner, whose, self.pid).signal(signal)
    }

    fn reap_orphans(&self) {
        let guardian = self.guardian.as_ref().or(self.dismissed.as_ref()).and_then(Guardian::pid);
        orphans::reap(&[Some(self.pid), guardian].into_iter().flatten().collect::<Vec<_>>());
    }

    fn look(&self) -> Option<Change> {
        if let Some(code) = self.ended() {
            return Some(Change::Ended(code));
        }
        let stopped =
            process::waitid(WaitId::Pid(self.pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        stopped.ok().flatten()?.stopping_signal().map(Change::Stopped)
    }

    /// The code of the command, if it has ended.
    pub(crate) fn ended(&self) -> Option<Code> {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // On an error it is not our child any more. Nobody else can reap it, so this does not happen.
        let Ok(status) = process::waitid(WaitId::Pid(self.pid), peek) else {
            return Some(Code::INTERNAL);
        };
        let status = status?;
        let exited = status.exit_status().and_then(|code| u8::try_from(code).ok());
        Some(match (exited, status.terminating_signal()) {
            (Some(code), _) => Code::new(code),
            (None, Some(signal)) => Code::signal(signal),
            (None, None) => Code::INTERNAL,
        })
    }
}

/// A command that starts this very program, even if its file has been replaced: an upgrade may happen
/// while a run waits in a queue.
fn this_program() -> Command {
    let mut command = Command::new(program_path("self"));
    command.arg0("fairlock");
    command
}

/// A path to this very program, valid for a child as long as this process lives.
pub(super) fn this_program_for_others() -> PathBuf {
    program_path(&process::getpid().as_raw_pid().to_string())
}

#[cfg(target_os = "linux")]
fn program_path(process: &str) -> PathBuf {
    format!("/proc/{process}/exe").into()
}

#[cfg(not(target_os = "linux"))]
fn program_path(_process: &str) -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "fairlock".into())
}
