//! Parents, groups and sessions of processes, from `/proc`.
//!
//! The system calls for these return 0 for anything outside the process namespace: the group of process 1
//! in a container may belong to the host. A [`Pid`] cannot be 0, so here it is `None`.

use std::fs;

use rustix::io::Errno;
use rustix::process::{self, Pid};

/// The parent, group and session of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
}

/// The ids of a process; `None` when it is gone.
#[cfg(target_os = "linux")]
pub(super) fn ids(process: Pid) -> Option<Ids> {
    if !is_of_our_namespace() {
        return None;
    }
    parse(&fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn ids(process: Pid) -> Option<Ids> {
    // There are no process namespaces there. Only our own parent is known.
    let parent = if process == process::getpid() { process::getppid() } else { None };
    let group = process::getpgid(Some(process)).ok();
    Some(Ids { parent, group, session: process::getsid(Some(process)).ok() })
}

/// Whether any process of a group still runs. One that has ended and was not reaped does not count: in
/// a container that may never happen.
pub(super) fn runs(group: Pid) -> bool {
    // A process of another user runs as well.
    if process::test_kill_process_group(group).is_err_and(|error| error != Errno::PERM) {
        return false;
    }
    // As long as the first process of the group runs, no other one has to be read.
    let first =
        fs::read_to_string(format!("/proc/{}/stat", group.as_raw_pid())).unwrap_or_default();
    if is_of_our_namespace() && has_member(&first, group) {
        return true;
    }
    // Without `/proc`, processes that have ended cannot be distinguished and count as well.
    let Ok(all) = fs::read_dir("/proc") else { return true };
    !is_of_our_namespace()
        || all.filter_map(Result::ok).any(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            has_member(&stat, group)
        })
}

/// Whether a line of `/proc/*/stat` belongs to a process of the group that has not ended.
fn has_member(stat: &str, group: Pid) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    !matches!(state, Some('Z' | 'X') | None) && parse(stat).and_then(|ids| ids.group) == Some(group)
}

/// Whether the numbers in `/proc` belong to our namespace. A `/proc` mounted from outside has other
/// numbers, and another process under ours.
pub(super) fn is_of_our_namespace() -> bool {
    let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    own == Some(process::getpid().as_raw_pid())
}

/// Parses the fields after the name, which may contain anything: state, parent, group, session.
fn parse(stat: &str) -> Option<Ids> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(1).map(|field| field.parse().ok());
    let mut next = || fields.next().flatten().map(Pid::from_raw);
    Some(Ids { parent: next()?, group: next()?, session: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_from_outside_are_none() {
        let ids = parse("17 (a) b) S 1 0 23 0 -1 4194560").unwrap();
        assert_eq!(ids, Ids { parent: Pid::from_raw(1), group: None, session: Pid::from_raw(23) });
        for odd in ["", "17 (x) S 1 2", "17 (x) S 1 x 3"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_has_ended_is_no_member() {
        let group = Pid::from_raw(23).unwrap();
        for (stat, is_one) in [
            ("17 (a) b) S 1 23 23 0 -1 4194560", true),
            ("17 (a) T 1 23 9 0", true),
            ("17 (a) Z 1 23 23 0", false),
            ("17 (a) X 1 23 23 0", false),
            ("17 (a) S 1 24 23 0", false),
            ("", false),
        ] {
            assert_eq!(has_member(stat, group), is_one, "{stat}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn our_own_ids_are_known() {
        assert!(is_of_our_namespace());
        let ids = ids(process::getpid()).unwrap();
        assert_eq!(ids.parent, process::getppid());
    }
}
