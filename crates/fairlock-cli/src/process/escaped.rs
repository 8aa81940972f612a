//! Escaped processes: the command started them, and they left its group, by `setsid` as a daemon does, or because a
//! shell with job control started them.
//!
//! They must not continue without the lock any more than the group may. Everything that a command starts inherits its
//! environment, and with it the lock's owner, which no other run has. That identifies escaped processes whoever their
//! parent is by now, also from the guardian, which is nobody's ancestor. A run inside the command has an owner of its
//! own and keeps ours in a list (`locks/nested.rs`).
//!
//! Not found is a process that has left the group and
//! - runs with another environment (`env -i`, `sudo`) or as another user;
//! - has overwritten its environment (a title, as `redis-server` does);
//! - lets nobody read it (not dumpable, as `ssh-agent`);
//! - is executing another program at this moment: it has no environment until that program begins. For these the
//!   guardian looks a second time; a run that ends by itself does not, since every run would end later for it.
//!
//! This needs a `/proc` with environments, and `pidfd` (Linux 5.3) to hold on to a process while it is checked.
//! Elsewhere only the group is ended.

use std::ffi::OsStr;

use rustix::process::{Pid, Signal};

#[cfg(target_os = "linux")]
use super::proc;

/// The variable with the owner of the innermost run, which distinguishes its processes from all others.
pub(crate) const OWNER_VAR: &str = "FAIRLOCK_OWNER";

/// The variable with the owners of all runs around a process, the outermost first, separated by spaces.
pub(crate) const OWNERS_VAR: &str = "FAIRLOCK_OWNERS";

/// Which processes outside of the group are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The command's own.
    Own,
    /// Those of runs inside the command.
    Nested,
    All,
}

/// Longest environment that is read, in bytes: longer than the kernel allows at the start of a process.
#[cfg(target_os = "linux")]
const ENVIRONMENT_MAX: u64 = 8 << 20;

/// Counts the processes of the run of `owner` outside of `group`, and sends each of them the signal, if there is one.
#[cfg(target_os = "linux")]
pub(super) fn signal(owner: &OsStr, whose: Whose, group: Pid, signal: Option<Signal>) -> usize {
    if !proc::is_of_our_namespace() {
        return 0;
    }
    let mark = Mark { owner: owner.as_encoded_bytes(), whose };
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let processes = processes.filter_map(Pid::from_raw);
    processes.filter(|process| is_signalled(*process, mark, group, signal)).count()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn signal(_owner: &OsStr, _whose: Whose, _group: Pid, _: Option<Signal>) -> usize {
    0
}

/// How a process is recognized by its environment.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
struct Mark<'a> {
    owner: &'a [u8],
    whose: Whose,
}

#[cfg(target_os = "linux")]
impl Mark<'_> {
    /// Whether a process with this environment is meant.
    fn is_in(self, environment: &[u8]) -> bool {
        let variables = || environment.split(|byte| *byte == 0);
        let value = |name: &str| {
            let mark = format!("{name}=").into_bytes();
            variables().find_map(|variable| variable.strip_prefix(&mark[..]).map(<[u8]>::to_vec))
        };
        let is_own = value(OWNER_VAR).is_some_and(|owner| owner == self.owner);
        let is_listed = value(OWNERS_VAR)
            .is_some_and(|all| all.split(|byte| *byte == b' ').any(|owner| owner == self.owner));
        match self.whose {
            Whose::Own => is_own,
            Whose::Nested => is_listed && !is_own,
            Whose::All => is_own || is_listed,
        }
    }
}

#[cfg(target_os = "linux")]
fn is_signalled(process: Pid, mark: Mark<'_>, group: Pid, signal: Option<Signal>) -> bool {
    use rustix::process::{self, PidfdFlags};

    if !has(process, mark) || proc::ids(process).and_then(|ids| ids.group) == Some(group) {
        return false;
    }
    let Some(signal) = signal else { return true };
    // First held on to, then checked again: the number may belong to another process by now.
    let Ok(held) = process::pidfd_open(process, PidfdFlags::empty()) else { return false };
    has(process, mark) && process::pidfd_send_signal(held, signal).is_ok()
}

/// Whether a process was started with this mark in its environment. `false` if it has ended.
#[cfg(target_os = "linux")]
fn has(process: Pid, mark: Mark<'_>) -> bool {
    use std::io::Read as _;

    let path = format!("/proc/{}/environ", process.as_raw_pid());
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut environment = Vec::new();
    let read = file.take(ENVIRONMENT_MAX).read_to_end(&mut environment);
    read.is_ok() && mark.is_in(&environment)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_mark_is_a_whole_variable() {
        let mine = |value: &str| {
            let mut sleep = Command::new("sleep");
            sleep.arg("60").env(OWNER_VAR, value).env("OTHER", format!("{OWNER_VAR}=escaped:1"));
            sleep.spawn().unwrap()
        };
        let mut processes = [mine("escaped:1"), mine("escaped:12"), mine("escaped:")];
        let group = proc::ids(rustix::process::getpid()).unwrap().group.unwrap();
        let nobodys = Pid::from_raw(i32::MAX).unwrap();
        let owner = OsStr::new("escaped:1");
        // A new process has no environment before its program begins: one of some thousand runs failed here.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        for (process, value) in processes.iter().zip(["escaped:1", "escaped:12", "escaped:"]) {
            let mark = Mark { owner: value.as_bytes(), whose: Whose::Own };
            let process = Pid::from_raw(process.id().try_into().unwrap()).unwrap();
            while !has(process, mark) {
                assert!(std::time::Instant::now() < limit, "{value} does not begin");
                std::thread::yield_now();
            }
        }
        assert_eq!(signal(owner, Whose::Own, group, None), 0, "those in the group are not meant");
        assert_eq!(signal(owner, Whose::Own, nobodys, None), 1);
        assert_eq!(signal(owner, Whose::Own, nobodys, Some(Signal::KILL)), 1);
        assert!(!processes[0].wait().unwrap().success());
        assert_eq!(signal(owner, Whose::Own, nobodys, None), 0);
        for process in &mut processes[1..] {
            assert!(process.try_wait().unwrap().is_none(), "it is another's");
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// A process of a nested run has another innermost owner, and ours in the list.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_nested_run_is_of_all_those_around_it() {
        let is =
            |whose, environment: &str| Mark { owner: b"a:1", whose }.is_in(environment.as_bytes());
        for (environment, own, nested) in [
            ("X=1\0FAIRLOCK_OWNER=a:1", true, false),
            ("FAIRLOCK_OWNER=a:1\0FAIRLOCK_OWNERS=a:1", true, false),
            ("FAIRLOCK_OWNERS=c:3 a:1\0FAIRLOCK_OWNER=a:1\0", true, false),
            ("FAIRLOCK_OWNER=b:2\0FAIRLOCK_OWNERS=a:1 b:2", false, true),
            ("FAIRLOCK_OWNERS=b:2 a:1", false, true),
            ("FAIRLOCK_OWNER=a:12\0FAIRLOCK_OWNERS=b:2 a:12", false, false),
            ("OTHER=\nFAIRLOCK_OWNERS=a:1", false, false),
            ("FAIRLOCK_OWNERS", false, false),
        ] {
            let seen = [Whose::Own, Whose::Nested, Whose::All].map(|whose| is(whose, environment));
            assert_eq!(seen, [own, nested, own || nested], "{environment:?}");
        }
    }
}
