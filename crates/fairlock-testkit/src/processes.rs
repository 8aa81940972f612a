//! What the kernel reports about processes, and how they end. Linux only: without `/proc`, no
//! process runs.

use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process_group};

/// A child that is killed and waited for on drop.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`].
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }
}

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Both fail harmlessly if it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The ids of all processes.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The state of a process, as `ps` shows it: `R` running, `S` sleeping, `T` stopped, `Z` ended but
/// not reaped.
pub fn state(process: impl Display) -> Option<char> {
    stat(process)?.first()?.chars().next()
}

/// The current parent of a process.
pub fn parent(process: impl Display) -> Option<u32> {
    stat(process)?.get(1)?.parse().ok()
}

/// The fields of `stat` after the name, which is in brackets and may contain anything.
fn stat(process: impl Display) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Whether a process runs. One that has ended and was not waited for does not, nor does one that is
/// about to end and has no memory left to run in.
pub fn is_alive(process: impl Display) -> bool {
    let memory = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    if memory.is_empty() || memory.starts_with("0 ") {
        return false;
    }
    !matches!(state(process), Some('Z' | 'X') | None)
}

/// The children of a process's first thread.
pub fn children(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    children.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// `unshare OPTIONS`, to which the caller adds a program; `None`, with a notice, where such
/// namespaces cannot be made.
///
/// # Panics
///
/// For lack of the right where `CI` is set.
pub fn unshare(options: &[&str]) -> Option<Command> {
    let command = || {
        let mut command = Command::new("unshare");
        command.args(options);
        command
    };
    let probe = command().arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        crate::skip(&format!("the right to make namespaces (unshare {})", options.join(" ")));
        return None;
    }
    Some(command())
}

/// Waits until a child that leads a process group of its own ends; kills the group if it does not
/// end in time, since a process that keeps the pipes open would hang the test.
///
/// # Panics
///
/// If the child cannot be waited for.
pub fn end(child: Child, within: Duration) -> Output {
    let group = Pid::from_child(&child);
    let (over, is_over) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if is_over.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            // Fails only if it is gone.
            let _ = kill_process_group(group, Signal::KILL);
        }
    });
    let output = child.wait_with_output().expect("a child of ours");
    drop(over);
    watch.join().expect("it only waits");
    output
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    #[test]
    fn a_child_is_seen_until_it_ends() {
        let own = std::process::id();
        let mut child = Owned::spawn(Command::new("sleep").arg("60")).expect("sleep is there");
        assert!(is_alive(child.id()) && all().contains(&child.id()));
        assert_eq!(parent(child.id()), Some(own));
        child.kill().expect("it runs");
        crate::wait::patiently("it has ended", || state(child.id()) == Some('Z'));
        assert!(!is_alive(child.id()));
        child.wait().expect("a child of ours");
        assert_eq!((state(child.id()), parent(child.id())), (None, None));
    }

    #[test]
    fn an_owned_child_is_gone_with_its_owner() {
        let child = Owned::spawn(Command::new("sleep").arg("60")).expect("sleep is there");
        let number = child.id();
        drop(child);
        assert_eq!(state(number), None);
    }

    #[test]
    fn what_hangs_is_killed_with_all_that_it_has_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 60 & wait"]).stdout(Stdio::piped());
        let child = command.process_group(0).spawn().expect("sh is there");
        let output = end(child, Duration::from_millis(200));
        assert_eq!(output.status.signal(), Some(9));
        assert!(output.stdout.is_empty() || output.stdout == b"begun\n");
    }

    #[test]
    fn children_are_those_of_the_first_thread() {
        let mut command = Command::new("sh");
        let child = Owned::spawn(command.args(["-c", "sleep 60 & wait"])).expect("sh is there");
        crate::wait::patiently("it has a child", || children(child.id()).len() == 1);
        let grandchild = children(child.id())[0];
        assert_eq!(parent(grandchild), Some(child.id()));
        drop(child);
        let pid = i32::try_from(grandchild).ok().and_then(Pid::from_raw).expect("a number");
        rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    }
}
