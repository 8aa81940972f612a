//! The invariants, checked while the run goes on.
//!
//! The checker receives everything as it happens ([`Input`]), sorts what the clients saw by time,
//! and keeps only what is open or recent. A possible violation is a suspicion first. At the end,
//! when the start and end of every fault are known, each suspicion is either explained by a fault
//! as docs/guarantees.md says, or it is a violation.
//!
//! - [`clients`]: what the clients saw: exclusion (I2), order (I5), tokens (I4), losses (I14),
//!   nobody left behind (L1), hand-overs (L2); [`beside`]: what may be held beside what;
//! - [`fencing`]: what the resource saw (I3);
//! - [`server`]: what the server carried out (I1, I4 to I7, I9 to I12, I15), and when (L3 to L5,
//!   L9);
//! - [`both`]: what the two must agree on (I8, I13, I14, I16, L7);
//! - [`calls`]: how many calls the server received (L10);
//! - [`rest`]: what remains at the end (H1);
//! - [`window`]: which fault explains which suspicion.
//!
//! Recoveries (L6) are checked as they arrive. Not checked here: I9's "one effect for each request"
//! beyond counts, tokens and second turns, because a server's log does not name requests.

mod beside;
mod both;
mod calls;
mod clients;
mod fencing;
pub(crate) mod rest;
mod server;
mod times;
mod window;

use crate::log::Input;
use crate::log::note::Note;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::time::Duration;
pub(crate) use times::Times;
use window::{Excuse, Windows};

/// How late a note may arrive and still be sorted in: a stopped process reports only after it
/// continues.
const LATE: Duration = Duration::from_secs(10);

/// Upper limit of suspicions. A fault that loses state causes some hundreds, and a shard has
/// hundreds of faults.
const SUSPICIONS_MAX: usize = 1_000_000;

/// How long a client may be without a turn after a fault (L6), besides a lease that must end first:
/// a call times out after 2 s, a dead connection is found after 1.5 s, the pause before the next
/// attempt is at most 2 s, and a silence lasts a deadline and a heartbeat. The rest is slack for a
/// shared machine.
const RECOVERED: Duration = Duration::from_secs(10);

/// Errors that calls may return while the store is unavailable.
const BORNE: [&str; 5] = ["Unavailable", "Unknown", "Lost", "WrongType", "LeaseTooShort"];

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) acquisitions: u64,
    /// Acquisitions that had to wait for another holder.
    pub(crate) contended: u64,
    /// Grants of fair locks whose order was checked by what the clients saw.
    pub(crate) ordered: u64,
    /// Grants in the server's log.
    pub(crate) logged: u64,
    pub(crate) missed: u64,
    pub(crate) gave_up: u64,
    pub(crate) clients: usize,
    /// Grants to a waiter in the queue after the end of a hold, by the server's log, whose free
    /// time was checked.
    pub(crate) followed: u64,
    /// Renewals in the server's log.
    pub(crate) renewed: u64,
    /// Samples of the server's calls outside of disturbances, and the largest calls per second
    /// among them.
    pub(crate) calls_checked: u64,
    pub(crate) calls_a_second: u64,
    /// Guards lost in ways that the documentation allows.
    pub(crate) lost: u64,
    /// Holds that overlapped after a loss of state, as the documentation allows.
    pub(crate) overlaps: u64,
    /// Writes that the resource refused.
    pub(crate) fenced_off: u64,
    /// Calls that ended with a documented error.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) times: Times,
    pub(crate) violations: Vec<String>,
}

/// An observation that needs an explanation.
#[derive(Debug)]
struct Suspicion {
    what: String,
    excuse: Excuse,
    from: u64,
    until: u64,
    counts: Counts,
}

/// How an explained suspicion is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Counts {
    Nothing,
    Lost,
    Overlap,
}

/// The output of all parts of the checker.
#[derive(Debug, Default)]
struct Found {
    windows: Windows,
    suspicions: Vec<Suspicion>,
    result: Findings,
}

impl Found {
    fn suspect(&mut self, excuse: Excuse, from: u64, until: u64, what: String) {
        self.suspect_as(Counts::Nothing, excuse, from, until, what);
    }

    fn suspect_as(&mut self, as_: Counts, excuse: Excuse, from: u64, until: u64, what: String) {
        assert!(self.suspicions.len() < SUSPICIONS_MAX, "too many suspicions, the last: {what}");
        self.suspicions.push(Suspicion { what, excuse, from, until, counts: as_ });
    }

    fn violation(&mut self, what: String) {
        self.suspect(Excuse::Never, 0, 0, what);
    }
}

/// A note of a worker, or the fact that it was killed.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    Note(Note),
    Killed,
}

/// An observation to be checked: ordered by time, then by arrival.
#[derive(Debug, Eq, PartialEq)]
struct Waiting {
    at: u64,
    number: u64,
    worker: usize,
    seen: Seen,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(crate) struct Checker {
    /// The lease to which holds are renewed.
    lease: Duration,
    /// Recent observations, the earliest first.
    lately: BinaryHeap<Reverse<Waiting>>,
    number: u64,
    /// The latest time seen.
    latest: u64,
    clients: clients::Clients,
    fencing: fencing::Fencing,
    calls: calls::Calls,
    server: Option<server::Server>,
    /// Processes that ended normally.
    done: HashSet<usize>,
    ended: HashMap<usize, &'static str>,
    found: Found,
}

impl Checker {
    /// `has_log`: whether the server's log is available, see
    /// [`crate::deployment::Deployment::attach`].
    pub(crate) fn new(lease: Duration, has_log: bool) -> Self {
        Self {
            lease,
            lately: BinaryHeap::new(),
            number: 0,
            latest: 0,
            clients: clients::Clients::default(),
            fencing: fencing::Fencing::default(),
            calls: calls::Calls::default(),
            server: has_log.then(|| server::Server::new(lease)),
            done: HashSet::new(),
            ended: HashMap::new(),
            found: Found::default(),
        }
    }

    pub(crate) fn hear(&mut self, input: Input) {
        match input {
            Input::Note { worker, note } => match note {
                Note::Client { .. } => self.found.result.clients += 1,
                Note::Stalled { from, to } => self.found.windows.stall(from, to),
                Note::Done => {
                    self.done.insert(worker);
                }
                note => {
                    self.calls.look(&note);
                    self.wait(note.at(), worker, Seen::Note(note));
                }
            },
            Input::Killed { worker, at } => self.wait(at, worker, Seen::Killed),
            Input::Gone { worker } => {
                if !self.done.contains(&worker) {
                    self.ended.insert(worker, "did not end its last turns");
                }
            }
            Input::Fault { id, kind, from } => self.found.windows.begin(id, kind, from),
            Input::Over { id, until } => self.found.windows.end(id, until),
            Input::Recovered { kind, healed, at } => {
                if at > healed + ns(self.lease + RECOVERED) {
                    let what = format!(
                        "{}: over at {healed}, and somebody was without a turn for {} ms after it",
                        kind.name(),
                        (at - healed) / 1_000_000
                    );
                    self.found.suspect(Excuse::Machine, healed, at, what);
                }
            }
            Input::Asked { from, until, scripts } => self.calls.asked(from, until, scripts),
            Input::Stalled { from, until } => self.found.windows.stall(from, until),
            Input::Starved { from, until } => self.found.windows.starve(from, until),
            Input::Effects { read_us, commands } => {
                if let Some(server) = &mut self.server {
                    server.carried_out(&commands, read_us, &mut self.found);
                }
            }
            Input::Emptied => {
                if let Some(server) = &mut self.server {
                    server.emptied();
                }
            }
        }
    }

    fn wait(&mut self, at: u64, worker: usize, seen: Seen) {
        self.number += 1;
        self.latest = self.latest.max(at);
        self.lately.push(Reverse(Waiting { at, number: self.number, worker, seen }));
        while let Some(Reverse(first)) = self.lately.peek() {
            if first.at + ns(LATE) > self.latest {
                break;
            }
            self.look_at_the_first();
        }
    }

    fn look_at_the_first(&mut self) {
        let Some(Reverse(Waiting { at, worker, seen, .. })) = self.lately.pop() else { return };
        let found = &mut self.found;
        match seen {
            Seen::Killed => self.clients.killed(worker, at),
            Seen::Note(note) => {
                if let Some(server) = &self.server {
                    both::look(&note, server, &self.clients, found);
                }
                self.fencing.look(&note, &self.clients, found);
                self.clients.look(worker, &note, found);
                if let Note::Failed { lock, kind, .. } = note {
                    if !BORNE.contains(&kind.as_str()) {
                        found.violation(format!("lock {lock}: a call failed with {kind}"));
                    } else if kind == "WrongType" {
                        let what =
                            format!("lock {lock}: a call failed with {kind}, and nobody did");
                        found.suspect(Excuse::WrongType, at.saturating_sub(ns(LATE)), at, what);
                    } else if kind == "LeaseTooShort" {
                        let what = format!(
                            "lock {lock}: a call failed with {kind} at {at}, for no reason"
                        );
                        found.suspect(Excuse::MayLose, at.saturating_sub(ns(LATE)), at, what);
                    }
                    *found.result.errors.entry(kind).or_default() += 1;
                }
            }
        }
    }

    /// Checks what is left after the last input.
    pub(crate) fn finish(mut self) -> Findings {
        while !self.lately.is_empty() {
            self.look_at_the_first();
        }
        let found = &mut self.found;
        self.clients.finish(found);
        self.calls.finish(found);
        for (worker, what) in self.ended {
            found.violation(format!("worker process {worker} {what}"));
        }
        let Found { windows, suspicions, mut result } = self.found;
        for Suspicion { what, excuse, from, until, counts } in suspicions {
            if !windows.excuse(excuse, from, until) {
                result.violations.push(what);
                continue;
            }
            match counts {
                Counts::Nothing => {}
                Counts::Lost => result.lost += 1,
                Counts::Overlap => result.overlaps += 1,
            }
        }
        result
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a short time")
}

#[cfg(test)]
mod tests;
