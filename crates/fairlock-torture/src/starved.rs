//! Whether all processes of a run got the processor time they needed.
//!
//! A shared machine may keep one thread waiting for seconds while another, which mostly sleeps
//! ([`crate::stalls`]), runs at once. The kernel counts how long each thread was ready without
//! running. This module reads these counts for the workers, the servers and this process, and
//! reports to the checker the intervals in which a thread was kept waiting for most of the time, or
//! waited for the disk.

use crate::log::Input;
use crate::pace::{DEAD_AFTER, HEARTBEAT};
use fairlock_testkit::history::now_ns;
use fairlock_testkit::threads::{Counts, threads};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Polling interval: several fit into the shortest time that matters to the checker.
const PERIOD: Duration = Duration::from_millis(150);

/// Shorter intervals are not reported: a client whose heartbeats are this late is still heard in
/// time.
const STARVED: Duration = DEAD_AFTER.saturating_sub(HEARTBEAT);

/// Longer intervals are reported in parts.
const PART_NS: u64 = 2_000_000_000;

/// Process and thread id.
type Id = (u32, u32);

/// The kernel's counts for a thread.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Total time for which it was ready without running.
    waited: Duration,
    /// Whether it is waiting for a disk.
    in_disk: bool,
}

#[derive(Debug)]
struct Thread {
    waited: Duration,
    starved_since: Option<u64>,
}

/// The state after the last poll.
#[derive(Debug, Default)]
struct Threads {
    known: HashMap<Id, Thread>,
    at: u64,
}

impl Threads {
    /// Processes a poll of all threads. Returns the intervals, from and until, of starvation that
    /// has ended or grown too long.
    fn seen(&mut self, now: u64, all: &HashMap<Id, Seen>) -> Vec<(u64, u64)> {
        let (last, mut told) = (std::mem::replace(&mut self.at, now), Vec::new());
        self.known.retain(|id, thread| {
            let is_there = all.contains_key(id);
            told.extend(thread.starved_since.filter(|_| !is_there).map(|since| (since, last)));
            is_there
        });
        for (id, seen) in all {
            let Some(thread) = self.known.get_mut(id) else {
                self.known.insert(*id, Thread { waited: seen.waited, starved_since: None });
                continue;
            };
            // A wait is counted when it ends, so it may be longer than the time since the last
            // poll.
            let waited = seen.waited.saturating_sub(thread.waited).as_nanos() as u64;
            thread.waited = seen.waited;
            if 2 * waited > now - last || seen.in_disk {
                let since = now - waited.max(now - last);
                let since = *thread.starved_since.get_or_insert(since);
                if now - since > PART_NS {
                    told.push((since, now));
                    thread.starved_since = None;
                }
            } else if let Some(since) = thread.starved_since.take() {
                told.push((since, last));
            }
        }
        told
    }
}

/// Reports on this process and its children until `stop` is set.
pub(crate) fn look(stop: &AtomicBool, checker: &Sender<Input>) {
    let mut threads = Threads::default();
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(PERIOD);
        tell(threads.seen(now_ns(), &all()), checker);
    }
    tell(threads.seen(now_ns(), &HashMap::new()), checker);
}

fn tell(starved: Vec<(u64, u64)>, checker: &Sender<Input>) {
    for (from, until) in starved {
        if Duration::from_nanos(until - from) >= STARVED {
            let _ = checker.send(Input::Starved { from, until });
        }
    }
}

/// All threads of this process and its children; empty where the kernel has no counts.
fn all() -> HashMap<Id, Seen> {
    let own = std::process::id();
    let mut found = HashMap::new();
    let children = counts(own).into_keys().flat_map(|task| {
        let children = read(own, task, "children").unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    for process in std::iter::once(own).chain(children) {
        for (task, counts) in counts(process) {
            // The thread has exited meanwhile.
            let Some(in_disk) = in_disk(process, task) else { continue };
            found.insert((process, task), Seen { waited: counts.waited, in_disk });
        }
    }
    found
}

/// Empty for a process that has exited.
fn counts(process: u32) -> HashMap<u32, Counts> {
    threads(process).unwrap_or_default()
}

fn in_disk(process: u32, task: u32) -> Option<bool> {
    // The name precedes the state and may contain any characters.
    let stat = read(process, task, "stat")?;
    Some(stat.rsplit_once(')')?.1.trim_start().starts_with('D'))
}

fn read(process: u32, task: u32, what: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/task/{task}/{what}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Polls one thread every 100 ms; `waited` is its total wait at each poll.
    fn told(waited: &[u64]) -> Vec<(u64, u64)> {
        let mut threads = Threads::default();
        let mut told = Vec::new();
        for (at, waited) in (10..).zip(waited) {
            let seen = Seen { waited: Duration::from_millis(*waited), in_disk: false };
            told.extend(threads.seen(at * 100 * MS, &HashMap::from([((1, 1), seen)])));
        }
        told.extend(threads.seen(9_999 * MS, &HashMap::new()));
        told.into_iter().map(|(from, until)| (from / MS, until / MS)).collect()
    }

    #[test]
    fn who_waits_for_most_of_the_time_is_told() {
        assert_eq!(told(&[7_000, 7_040, 7_080, 7_120]), [], "less than half of each time");
        assert_eq!(told(&[0, 60, 130, 210, 210, 210]), [(1_000, 1_300)]);
        assert_eq!(told(&[0, 0, 0, 0, 390, 390]), [(1_010, 1_400)], "it ran for a moment at last");
        assert_eq!(told(&[0, 0, 90]), [(1_100, 1_200)], "until its end");
        let long: Vec<u64> = (0..50).map(|at| at * 100).collect();
        assert_eq!(told(&long), [(1_000, 3_100), (3_100, 5_200), (5_200, 5_900)], "in parts");
    }

    #[test]
    fn who_waits_for_the_disk_is_told() {
        let mut threads = Threads::default();
        let seen = |in_disk| HashMap::from([((1, 1), Seen { waited: Duration::ZERO, in_disk })]);
        assert_eq!(threads.seen(100, &seen(true)), [], "nobody knows since when");
        assert_eq!(threads.seen(200, &seen(true)), []);
        assert_eq!(threads.seen(300, &seen(false)), [(100, 200)]);
    }

    /// The kernel counts the time in which a thread is ready but others run.
    #[test]
    #[cfg(target_os = "linux")]
    fn threads_of_this_process_and_of_its_children_are_found() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a program that waits");
        let found = all();
        assert!(found.contains_key(&(child.id(), child.id())), "{found:?}");
        assert!(found.keys().filter(|(process, _)| *process == std::process::id()).count() > 1);
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
    }
}
