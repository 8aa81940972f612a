//! What must not have happened, checked while the run goes on.
//!
//! The checker hears everything as it happens ([`Input`]), puts what the clients saw in the order of time,
//! and lets go of it again: what it keeps is what is open, and what was open lately. What looks wrong is a
//! suspicion first. At the end, when all faults are known with their ends, each is either explained by
//! one of them as docs/guarantees.md says, or a violation.
//!
//! - [`clients`]: what the clients saw: exclusion (I2), order (I5), tokens (I4), losses (I14), nobody left
//!   behind (L1), hand-overs (L2);
//! - [`fencing`]: what the resource saw (I3);
//! - [`server`]: what the server carried out (I1, I4 to I7, I9 to I12, I15), and when (L3 to L5, L9);
//! - [`both`]: what the two must agree on (I8, I13, I14, I16, L7);
//! - [`calls`]: what the server was asked for (L10);
//! - [`rest`]: what is left in the end (H1);
//! - [`window`]: what explains what.
//!
//! Recoveries (L6) are checked where they are heard of. Not checked here: I9's "one effect for each request" beyond
//! counts, tokens and second turns, since the log of a server does not name requests.

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

/// How late a note may come and still find its place: a process that was stopped tells when it goes on.
const LATE: Duration = Duration::from_secs(10);

/// How many suspicions are kept. There are some hundreds for a fault that loses something, and hundreds of faults
/// in a shard.
const SUSPICIONS_MAX: usize = 1_000_000;

/// How long after a fault somebody may be without a turn (L6), beside a lease that must end first: a call is given
/// up after 2 s and a connection found dead after 1.5 s, the pause before the next try is 2 s at most, and a
/// silence is a deadline and a heartbeat. The rest is for a machine that others use too.
const RECOVERED: Duration = Duration::from_secs(10);

/// Errors that a store which is away may give.
const BORNE: [&str; 5] = ["Unavailable", "Unknown", "Lost", "WrongType", "LeaseTooShort"];

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) acquisitions: u64,
    /// Those for which somebody else had to let go first.
    pub(crate) contended: u64,
    /// Grants of fair locks whose order was checked by what clients saw.
    pub(crate) ordered: u64,
    /// Grants that the server's log shows.
    pub(crate) logged: u64,
    pub(crate) missed: u64,
    pub(crate) gave_up: u64,
    pub(crate) clients: usize,
    /// Grants to somebody in the queue after the end of a hold, by the server's log: how long it was free.
    pub(crate) followed: u64,
    /// Renewals in the server's log.
    pub(crate) renewed: u64,
    /// Samples of the server's calls outside of disturbances, and the most of a second among them.
    pub(crate) calls_checked: u64,
    pub(crate) calls_a_second: u64,
    /// Guards that were lost, as the documents say.
    pub(crate) lost: u64,
    /// Holds that overlapped after a loss of state, as the documents say.
    pub(crate) overlaps: u64,
    /// Writes that the resource refused.
    pub(crate) fenced_off: u64,
    /// Calls that ended with an error that the documents name.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) times: Times,
    pub(crate) violations: Vec<String>,
}

/// Something that needs an explanation.
#[derive(Debug)]
struct Suspicion {
    what: String,
    excuse: Excuse,
    from: u64,
    until: u64,
    counts: Counts,
}

/// What an explained suspicion is counted as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Counts {
    Nothing,
    Lost,
    Overlap,
}

/// What all parts of the checker write to.
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

/// A note, and who told it; or that somebody was killed.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    Note(Note),
    Killed,
}

/// The order in which things are looked at: by time, and as they came.
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

/// Whoever hears everything.
#[derive(Debug)]
pub(crate) struct Checker {
    /// What holds are renewed to.
    lease: Duration,
    /// What came lately, the earliest first.
    lately: BinaryHeap<Reverse<Waiting>>,
    number: u64,
    /// The latest time that was heard of.
    latest: u64,
    clients: clients::Clients,
    fencing: fencing::Fencing,
    calls: calls::Calls,
    server: Option<server::Server>,
    /// Processes that ended as they should.
    done: HashSet<usize>,
    ended: HashMap<usize, &'static str>,
    found: Found,
}

impl Checker {
    /// With the server's log, or without: [`crate::deployment::Deployment::attach`].
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

    /// All of it was heard.
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
