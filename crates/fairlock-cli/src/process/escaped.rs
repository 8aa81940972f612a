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
//! A guardian shares its looks with other guardians (`shared_scan.rs`): it checks and kills only its own processes.
//!
//! This needs a `/proc` with environments, and `pidfd` (Linux 5.3) to hold on to a process while it is checked.
//! Elsewhere only the group is ended.

use std::collections::HashSet;
use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::{fs, io};

use rustix::process::{Pid, Signal};

#[cfg(target_os = "linux")]
use super::proc;
#[cfg(target_os = "linux")]
use super::shared_scan::SharedScan;

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

/// Most environments are shorter, and are read at once.
#[cfg(target_os = "linux")]
const ENVIRONMENT_USUAL: usize = 8 << 10;

/// A search for the processes of one run outside of the command's group.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no such `/proc`"))]
pub(super) struct Search<'a> {
    mark: Mark<'a>,
    group: Pid,
    /// `None`: each look reads all processes itself.
    #[cfg(target_os = "linux")]
    pub(super) shared: Option<SharedScan>,
    /// Processes that the last look found to be of others, if it found none of ours. They stay so: a process inherits
    /// its environment. So the next look does not read them again.
    strangers: HashSet<Pid>,
    /// For reading, so that no look allocates for each process.
    environment: Vec<u8>,
    /// The processes whose environments were read.
    #[cfg(test)]
    read: Vec<Pid>,
}

impl<'a> Search<'a> {
    pub(super) fn new(owner: &'a OsStr, whose: Whose, group: Pid) -> Self {
        let mark = Mark { owner: owner.as_encoded_bytes(), whose };
        Self {
            mark,
            group,
            #[cfg(target_os = "linux")]
            shared: None,
            strangers: HashSet::new(),
            environment: Vec::new(),
            #[cfg(test)]
            read: Vec::new(),
        }
    }
}

#[cfg(target_os = "linux")]
impl Search<'_> {
    /// Shares the looks with the searches of other processes, if it can.
    pub(super) fn sharing(mut self) -> Self {
        self.shared = SharedScan::new();
        self
    }

    /// Counts the processes and sends each of them the signal, if there is one.
    pub(super) fn signal(&mut self, signal: Option<Signal>) -> usize {
        if !proc::is_of_our_namespace() {
            return 0;
        }
        let found = self.signal_shared(signal).unwrap_or_else(|| self.signal_alone(signal));
        if found > 0 {
            // The next look is not the last one. Until then numbers may be used again.
            self.strangers.clear();
        }
        found
    }

    /// `None` if the looks are not shared. After one failure they no longer are: the next could take as long.
    fn signal_shared(&mut self, signal: Option<Signal>) -> Option<usize> {
        let shared = self.shared.take()?;
        let looked = shared.find(self.mark.owner)?;
        // One that has ended since it was found may have started another: it counts, so that the search goes on.
        let is_outside = |process: &&Pid| {
            self.is_signalled(**process, signal)
                || proc::ids(**process).and_then(|ids| ids.group) != Some(self.group)
        };
        let found = looked.processes.iter().filter(is_outside).count();
        // Only now: its own processes must not live on while it serves others.
        if let Some(scanner) = looked.scanner {
            scanner.serve();
        }
        self.shared = Some(shared);
        Some(found)
    }

    fn signal_alone(&mut self, signal: Option<Signal>) -> usize {
        let Ok(processes) = processes() else { return 0 };
        let known = std::mem::take(&mut self.strangers);
        let mut found = 0;
        for process in processes {
            if known.contains(&process) {
                self.strangers.insert(process);
            } else if self.is_signalled(process, signal) {
                found += 1;
            }
        }
        found
    }

    fn is_signalled(&mut self, process: Pid, signal: Option<Signal>) -> bool {
        use rustix::process::{self, PidfdFlags};

        if !self.has_mark(process) {
            // A process that is executing another program has no environment for a moment.
            if !self.environment.is_empty() {
                self.strangers.insert(process);
            }
            return false;
        }
        if proc::ids(process).and_then(|ids| ids.group) == Some(self.group) {
            return false;
        }
        let Some(signal) = signal else { return true };
        // First held on to, then checked again: the number may belong to another process by now.
        let Ok(held) = process::pidfd_open(process, PidfdFlags::empty()) else { return false };
        self.has_mark(process) && process::pidfd_send_signal(held, signal).is_ok()
    }

    /// Whether a process was started with this mark in its environment. `false` if it has ended.
    fn has_mark(&mut self, process: Pid) -> bool {
        #[cfg(test)]
        self.read.push(process);
        read_environment(process, &mut self.environment).is_ok()
            && self.mark.is_in(&self.environment)
    }
}

/// All processes.
#[cfg(target_os = "linux")]
pub(super) fn processes() -> io::Result<impl Iterator<Item = Pid>> {
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(fs::read_dir("/proc")?.filter_map(number).filter_map(Pid::from_raw))
}

/// Reads the environment of a process, which is empty for one that is executing another program.
#[cfg(target_os = "linux")]
pub(super) fn read_environment(process: Pid, environment: &mut Vec<u8>) -> io::Result<()> {
    use std::io::Read as _;

    environment.clear();
    environment.reserve(ENVIRONMENT_USUAL);
    let file = fs::File::open(format!("/proc/{}/environ", process.as_raw_pid()))?;
    let read = file.take(ENVIRONMENT_MAX).read_to_end(environment);
    read.inspect_err(|_| environment.clear()).map(drop)
}

/// The owners of all runs around a process with this environment. Some may occur twice.
#[cfg(target_os = "linux")]
pub(super) fn owners(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let variables = environment.split(|byte| *byte == 0);
    let all = variables.filter_map(|it| value(it, OWNER_VAR).or_else(|| value(it, OWNERS_VAR)));
    all.flat_map(|owners| owners.split(|byte| *byte == b' '))
}

#[cfg(not(target_os = "linux"))]
impl Search<'_> {
    pub(super) fn sharing(self) -> Self {
        self
    }

    pub(super) fn signal(&mut self, _: Option<Signal>) -> usize {
        0
    }
}

/// How a process is recognized by its environment.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no such `/proc`"))]
struct Mark<'a> {
    owner: &'a [u8],
    whose: Whose,
}

#[cfg(target_os = "linux")]
impl Mark<'_> {
    /// Whether a process with this environment is meant.
    fn is_in(self, environment: &[u8]) -> bool {
        let (mut is_own, mut is_listed) = (false, false);
        for variable in environment.split(|byte| *byte == 0) {
            if let Some(owner) = value(variable, OWNER_VAR) {
                is_own |= owner == self.owner;
            } else if let Some(all) = value(variable, OWNERS_VAR) {
                is_listed |= all.split(|byte| *byte == b' ').any(|owner| owner == self.owner);
            }
        }
        match self.whose {
            Whose::Own => is_own,
            Whose::Nested => is_listed && !is_own,
            Whose::All => is_own || is_listed,
        }
    }
}

/// The value, if this is the variable of that name.
#[cfg(target_os = "linux")]
fn value<'a>(variable: &'a [u8], name: &str) -> Option<&'a [u8]> {
    variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::super::guardian::Guardian;
    use super::*;

    const NOBODY: Pid = Pid::INIT;

    /// A process with this owner in its environment.
    #[cfg(target_os = "linux")]
    fn process_of(owner: &str) -> (Child, Pid) {
        let mut sleep = Command::new("sleep");
        sleep.arg("60").env(OWNER_VAR, owner).env("OTHER", format!("{OWNER_VAR}=escaped:1"));
        let process = sleep.spawn().unwrap();
        let pid = Pid::from_child(&process);
        // A new process has no environment before its program begins: one of some thousand runs failed here.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !Search::new(OsStr::new(owner), Whose::Own, NOBODY).has_mark(pid) {
            assert!(std::time::Instant::now() < limit, "{owner} does not begin");
            std::thread::yield_now();
        }
        (process, pid)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_mark_is_a_whole_variable() {
        let mut processes =
            ["escaped:1", "escaped:12", "escaped:"].map(|owner| process_of(owner).0);
        let group = proc::ids(rustix::process::getpid()).unwrap().group.unwrap();
        let signal =
            |group, signal| Search::new(OsStr::new("escaped:1"), Whose::Own, group).signal(signal);
        assert_eq!(signal(group, None), 0, "those in the group are not meant");
        assert_eq!(signal(NOBODY, None), 1);
        assert_eq!(signal(NOBODY, Some(Signal::KILL)), 1);
        assert!(!processes[0].wait().unwrap().success());
        assert_eq!(signal(NOBODY, None), 0);
        for process in &mut processes[1..] {
            assert!(process.try_wait().unwrap().is_none(), "it is another's");
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Of 400 runs that were killed at once, each guardian read the environments of all others twice (D63).
    #[test]
    #[cfg(target_os = "linux")]
    fn a_look_that_found_nothing_leaves_little_to_the_next() {
        let owner = OsStr::new("searched:1");
        let mut strangers: Vec<_> = (0..5).map(|_| process_of("searched:2")).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo; exec sleep 60", "guardian"]);
        let guardian = Guardian::spawn(shell, NOBODY, owner, None).unwrap();
        let guardian_pid = guardian.pid().unwrap();
        let mut search = Search::new(owner, Whose::All, NOBODY);
        let begun = std::time::Instant::now();
        while !search.strangers.contains(&guardian_pid) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "it has no environment");
            search = Search::new(owner, Whose::All, NOBODY);
            assert_eq!(search.signal(None), 0);
        }
        let reads =
            |search: &Search<'_>, pid| search.read.iter().filter(|read| **read == pid).count();
        let (ours, our_pid) = process_of("searched:1");
        assert_eq!(search.signal(None), 1, "it has begun after the first look");
        for pid in strangers.iter().map(|(_, pid)| *pid).chain([guardian_pid]) {
            assert_eq!(reads(&search, pid), 1, "both looks read {pid:?}");
        }
        // That look found something.
        assert_eq!(search.signal(None), 1);
        assert_eq!((reads(&search, our_pid), reads(&search, guardian_pid)), (2, 2));
        drop(guardian);
        for (process, _) in strangers.iter_mut().chain([&mut (ours, our_pid)]) {
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
