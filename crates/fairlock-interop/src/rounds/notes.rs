//! What the players of a round saw.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairlock_testkit::history::{Event, Record, now_ns};
use fairlock_testkit::raw::Raw;

/// The observations of a round.
#[derive(Debug, Default)]
pub struct Played {
    /// Grants and releases as the callers saw them, and deaths.
    pub records: Vec<Record>,
    /// Calls that took the lock away from its holder.
    pub forces: Vec<Force>,
    /// Unexpected results.
    pub problems: Vec<Problem>,
    /// Owners of Java calls without an answer.
    pub unanswered: Vec<String>,
    /// Calls that got what they asked for.
    pub waits: Vec<Wait>,
    /// When calls of Java gave up.
    pub given_up_ns: Vec<u64>,
    /// Latches, in the order in which they were set.
    pub latches: Vec<LatchSeen>,
    /// A Java client failed by itself; what it left behind is not ours to answer for.
    pub spoiled: Option<String>,
}

/// A call that got what it asked for.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Who asked.
    pub owner: String,
    /// When the call began, and when it returned.
    pub began_ns: u64,
    /// See above.
    pub ended_ns: u64,
}

/// What the callers saw of a latch.
#[derive(Clone, Debug)]
pub struct LatchSeen {
    /// What it was to be set to.
    pub count: u64,
    /// Whether ours has set it, and whether Java has.
    pub sets: [bool; 2],
    /// What our count-downs left.
    pub left: Vec<u64>,
    /// Who waited for it.
    pub waits: Vec<LatchWait>,
}

/// A call that waited for a latch.
#[derive(Clone, Copy, Debug)]
pub struct LatchWait {
    /// Whether it was Java's.
    pub is_java: bool,
    /// When it began, on the clock of [`now_ns`].
    pub began_ns: u64,
    /// When it returned.
    pub ended_ns: u64,
    /// How long it would wait.
    pub wait_ms: Option<u64>,
    /// What it returned.
    pub outcome: Outcome,
}

/// See [`LatchWait`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The latch is open; ours: it was counted down.
    Opened,
    /// Ours: nothing says that it was counted down.
    Gone,
    /// Its time was over.
    GaveUp,
}

/// Start and end of a force unlock, on the clock of [`now_ns`].
#[derive(Clone, Copy, Debug)]
pub struct Force {
    /// Before the call.
    pub began_ns: u64,
    /// When its answer arrived.
    pub ended_ns: u64,
}

/// A violation, unless the lock was taken away from this owner meanwhile.
#[derive(Clone, Debug)]
pub struct Problem {
    /// A one-sentence description.
    pub what: String,
    /// The affected owner; without one it is never excused.
    pub owner: Option<String>,
    /// When the owner's turn began.
    pub since_ns: u64,
    /// When it was seen.
    pub at_ns: u64,
}

/// Where the players record what they see.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    /// The lock that they play on.
    pub(super) lock: String,
    /// A call without an answer by then gets none.
    pub(super) patience: Duration,
    played: Arc<Mutex<Played>>,
}

/// One owner's turn, for recording problems in it.
#[derive(Clone, Copy)]
pub(super) struct Mine<'a> {
    pub(super) notes: &'a Notes,
    pub(super) owner: &'a str,
    pub(super) since_ns: u64,
}

impl LatchSeen {
    pub(super) fn new(count: u64, sets: [bool; 2]) -> Self {
        Self { count, sets, left: Vec::new(), waits: Vec::new() }
    }
}

impl Played {
    /// The killed owners.
    pub fn dead(&self) -> Vec<String> {
        let died = self.records.iter().filter(|record| record.event == Event::Died);
        died.map(|record| record.owner.clone()).collect()
    }

    /// How often each owner saw itself granted the lock.
    pub fn grants(&self) -> HashMap<&str, usize> {
        let mut grants = HashMap::new();
        for record in &self.records {
            if matches!(record.event, Event::Granted { .. }) {
                *grants.entry(record.owner.as_str()).or_default() += 1;
            }
        }
        grants
    }
}

impl Notes {
    pub(super) fn new(lock: &str, patience: Duration) -> Self {
        Self { lock: lock.to_owned(), patience, played: Arc::default() }
    }

    pub(super) fn record(&self, owner: &str, at_ns: u64, event: Event) {
        let (lock, owner) = (self.lock.clone(), owner.to_owned());
        self.change(|played| played.records.push(Record { lock, owner, at_ns, event }));
    }

    pub(super) fn waited(&self, owner: &str, began_ns: u64, ended_ns: u64) {
        let owner = owner.to_owned();
        self.change(|played| played.waits.push(Wait { owner, began_ns, ended_ns }));
    }

    pub(super) fn java_gave_up(&self, at_ns: u64) {
        self.change(|played| played.given_up_ns.push(at_ns));
    }

    /// The following count-downs and waits are about this latch.
    pub(super) fn latch(&self, seen: LatchSeen) {
        self.change(|played| played.latches.push(seen));
    }

    pub(super) fn counted(&self, left: u64) {
        self.of_latch(|latch| latch.left.push(left));
    }

    pub(super) fn latch_wait(&self, wait: LatchWait) {
        self.of_latch(|latch| latch.waits.push(wait));
    }

    fn of_latch(&self, change: impl FnOnce(&mut LatchSeen)) {
        self.change(|played| change(played.latches.last_mut().expect("a latch was set")));
    }

    pub(super) fn forced(&self, began_ns: u64) {
        let ended_ns = now_ns();
        self.change(|played| played.forces.push(Force { began_ns, ended_ns }));
    }

    /// Records a problem that nothing excuses.
    pub(super) fn problem(&self, what: String) {
        let at_ns = now_ns();
        let problem = Problem { what, owner: None, since_ns: at_ns, at_ns };
        self.change(|played| played.problems.push(problem));
    }

    /// Records a Java call without an answer.
    pub(super) fn unanswered(&self, owner: &str, what: String) {
        self.problem(what);
        self.change(|played| played.unanswered.push(owner.to_owned()));
    }

    pub(super) fn spoiled(&self, what: String) {
        self.change(|played| played.spoiled = Some(what));
    }

    pub(super) fn take(&self) -> Played {
        std::mem::take(&mut *self.played.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Played)) {
        change(&mut self.played.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Mine<'_> {
    /// Records a problem that is excused if the lock was taken away from this owner.
    pub(super) fn problem(&self, what: String) {
        let owner = Some(self.owner.to_owned());
        let problem = Problem { what, owner, since_ns: self.since_ns, at_ns: now_ns() };
        self.notes.change(|played| played.problems.push(problem));
    }

    pub(super) fn record(&self, at_ns: u64, event: Event) {
        self.notes.record(self.owner, at_ns, event);
    }

    pub(super) fn count_is(&self, server: SocketAddr, count: i64) {
        let found = Raw::connect(server).call(&["HGET", &self.notes.lock, self.owner]);
        let is = if found.is_nil() { 0 } else { found.text().parse().unwrap_or(-1) };
        if is != count {
            self.problem(format!(
                "{} is in {is} times, and should be in {count} times",
                self.owner
            ));
        }
    }
}
