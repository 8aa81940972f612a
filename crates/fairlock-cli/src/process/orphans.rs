//! Adopted children: a process whose parent ends becomes a child of process 1, which this program may be in a
//! container, or of the nearest "subreaper". Nobody else can reap these children, and without that they stay for as
//! long as this process lives.

use rustix::process::{self, Pid, WaitOptions};

use super::proc;

/// Reaps the orphans that have ended, but none of `ours`.
pub(super) fn reap(ours: &[Pid]) {
    if !adopts() || !proc::is_of_our_namespace() {
        return;
    }
    for child in children() {
        if !ours.contains(&child) {
            // Nothing happens to one that lives, or that is already reaped.
            let _ = process::waitpid(Some(child), WaitOptions::NOHANG);
        }
    }
}

fn adopts() -> bool {
    process::getpid().is_init() || is_subreaper()
}

#[cfg(target_os = "linux")]
fn is_subreaper() -> bool {
    process::child_subreaper().is_ok_and(|is_one| is_one.is_some())
}

#[cfg(not(target_os = "linux"))]
fn is_subreaper() -> bool {
    false
}

/// The children of all threads. Linux lists them with `CONFIG_PROC_CHILDREN`, which distributions set;
/// without it orphans are not reaped.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let list = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let numbers = list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    found
}
