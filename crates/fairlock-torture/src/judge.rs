//! What must not have happened.
//!
//! - **Exclusion**: two guards of a lock were valid for certain at the same time. A hold counts from when
//!   its guard was in the user's hands to the last time at which it was seen valid. Excused where the
//!   documents say that writes may be lost ([`Effect::StateLoss`]) between the two grants.
//! - **Order**: a fair lock was given to somebody who asked for it after somebody else stood in the queue,
//!   and still does. Judged by what the clients saw, so it needs no word of the server's. Excused in a
//!   disturbance, and until a heartbeat after it.
//! - **Tokens** rise, in every run and through every fault. Two grants that were under way at the same
//!   time, of which a state loss made two holds, may arrive in either order.
//! - **Fencing**: no token was accepted of two owners, and no update was lost, ever. A write is refused
//!   only to guards that are lost, but after a state loss.
//! - **Losses**: a guard is lost only in a fault that loses state, or outlasts what it was granted for.
//! - **Nobody is left**: every wait ends, and every process.

use crate::bed::Effect;
use crate::campaign::{Played, UNTIL_ORDER};
use crate::fleet::Story;
use crate::note::{End, Note};
use crate::worker::HEARTBEAT;
use fairlock_testkit::history::{
    Event, Record, check_exclusion, check_no_lost_waiter, check_tokens_rise,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Errors that a store which is away may give; any other is a violation.
const BORNE: [&str; 3] = ["Unavailable", "Unknown", "Lost"];

/// A disturbance that is longer may outlast what a hand-over was granted for.
const SHORT: Duration = HEARTBEAT.saturating_mul(2);

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) acquisitions: u64,
    /// Grants of fair locks whose order was judged.
    pub(crate) ordered: u64,
    pub(crate) missed: u64,
    pub(crate) gave_up: u64,
    pub(crate) clients: usize,
    /// Guards that were lost, as the documents say.
    pub(crate) lost: u64,
    /// Holds that overlapped after a loss of state, as the documents say.
    pub(crate) overlaps: u64,
    /// Writes that the resource refused.
    pub(crate) fenced_off: u64,
    /// Calls that ended with an error that the documents name.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) violations: Vec<String>,
}

/// A time in which something was wrong.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: u64,
    until: u64,
    loses_state: bool,
}

impl Window {
    fn meets(self, from: u64, until: u64) -> bool {
        self.from <= until && from <= self.until
    }

    /// Whether a hold may be lost in it.
    fn may_lose(self) -> bool {
        self.loses_state || self.until - self.from > ns(SHORT)
    }
}

pub(crate) fn judge(stories: &[Story], faults: &[Played]) -> Judgement {
    let mut judge = Judge::new(stories, faults);
    judge.ends();
    judge.exclusion();
    judge.order();
    judge.tokens();
    judge.fencing();
    judge.losses();
    judge.found
}

struct Judge<'a> {
    stories: &'a [Story],
    windows: Vec<Window>,
    /// Of holds and places, in the order of time.
    records: Vec<Record>,
    /// When the holder of a token asked for it.
    asked: HashMap<(&'a str, u64), u64>,
    found: Judgement,
}

impl<'a> Judge<'a> {
    fn new(stories: &'a [Story], faults: &[Played]) -> Self {
        let mut windows: Vec<_> = faults
            .iter()
            .map(|played| Window {
                from: played.from,
                until: played.until,
                loses_state: played.kind.effect() == Effect::StateLoss,
            })
            .collect();
        let mut found = Judgement::default();
        for played in faults.iter().filter(|played| played.recovery.is_none()) {
            found.violations.push(format!("no recovery from: {}", played.kind.name()));
        }
        let mut asked_for = HashMap::new();
        let mut records = Vec::new();
        for note in stories.iter().flat_map(|story| &story.notes) {
            match note {
                Note::Client { .. } => found.clients += 1,
                Note::Granted { asked, lock, token, .. } => {
                    found.acquisitions += 1;
                    asked_for.insert((lock.as_str(), *token), *asked);
                }
                Note::Missed { .. } => found.missed += 1,
                Note::Ended { end: End::GaveUp, .. } => found.gave_up += 1,
                Note::Stalled { from, to } => {
                    windows.push(Window { from: *from, until: *to, loses_state: false });
                }
                Note::Failed { lock, kind, .. } => {
                    if !BORNE.contains(&kind.as_str()) {
                        found.violations.push(format!("lock {lock}: a call failed with {kind}"));
                    }
                    *found.errors.entry(kind.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        for story in stories {
            records.extend(story.notes.iter().filter_map(record));
            records.extend(cut_off(story));
        }
        records.sort_by_key(|record| record.at_ns);
        Self { stories, windows, records, asked: asked_for, found }
    }

    fn notes(&self) -> impl Iterator<Item = &'a Note> + use<'a> {
        self.stories.iter().flat_map(|story| &story.notes)
    }

    fn excused(&self, excuse: impl Fn(&Window) -> bool) -> bool {
        self.windows.iter().any(excuse)
    }

    fn ends(&mut self) {
        let unfinished =
            |story: &&Story| story.killed.is_none() && story.notes.last() != Some(&Note::Done);
        let unfinished = self.stories.iter().filter(unfinished).count();
        if unfinished > 0 {
            let what = format!("{unfinished} worker processes did not end their last turns");
            self.found.violations.push(what);
        }
        let lost = check_no_lost_waiter(&self.records);
        self.found.violations.extend(lost.iter().map(ToString::to_string));
    }

    fn exclusion(&mut self) {
        for violation in check_exclusion(&self.records) {
            let (first, second) = (violation.evidence[0].at_ns, violation.evidence[1].at_ns);
            if self.excused(|window| window.loses_state && window.meets(first, second)) {
                self.found.overlaps += 1;
            } else {
                self.found.violations.push(violation.to_string());
            }
        }
    }

    fn tokens(&mut self) {
        for violation in check_tokens_rise(&self.records) {
            let [first, second] = &violation.evidence[..] else { panic!("{violation}") };
            let Event::Granted { token } = second.event else { panic!("{violation}") };
            let asked = self.asked.get(&(second.lock.as_str(), token)).copied().unwrap_or(0);
            let at_once = asked < first.at_ns;
            let excuse =
                |window: &Window| window.loses_state && window.meets(first.at_ns, second.at_ns);
            if !(at_once && self.excused(excuse)) {
                self.found.violations.push(violation.to_string());
            }
        }
    }

    /// Nobody who stands in a queue is overtaken by somebody who asked later.
    fn order(&mut self) {
        struct Wait<'a> {
            placed: u64,
            end: u64,
            owner: &'a str,
        }
        let mut waits: HashMap<(&str, &str), Wait<'_>> = HashMap::new();
        let mut grants = Vec::new();
        for story in self.stories {
            for note in &story.notes {
                match note {
                    Note::Placed { at, lock, owner, .. } => {
                        let end = story.killed.unwrap_or(u64::MAX);
                        waits.insert((lock, owner), Wait { placed: *at, end, owner });
                    }
                    Note::Granted { at, asked, lock, owner, .. } => {
                        if lock.starts_with("fair") || lock.starts_with("kept") {
                            grants.push((*at, *asked, lock.as_str(), owner.as_str()));
                        }
                        if let Some(wait) = waits.get_mut(&(lock.as_str(), owner.as_str())) {
                            wait.end = *at;
                        }
                    }
                    Note::Ended { at, lock, owner, end: End::GaveUp } => {
                        if let Some(wait) = waits.get_mut(&(lock.as_str(), owner.as_str())) {
                            wait.end = *at;
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut queues: HashMap<&str, Vec<Wait<'_>>> = HashMap::new();
        for ((lock, _), wait) in waits {
            queues.entry(lock).or_default().push(wait);
        }
        for queue in queues.values_mut() {
            queue.sort_by_key(|wait| wait.placed);
        }
        grants.sort_unstable();
        // Of each lock: how many of those that were placed first are surely over.
        let mut over: HashMap<&str, usize> = HashMap::new();
        for (at, asked, lock, owner) in grants {
            let slack = ns(UNTIL_ORDER);
            if self.excused(|window| window.from <= at && at <= window.until + slack) {
                continue;
            }
            self.found.ordered += 1;
            let Some(queue) = queues.get(lock) else { continue };
            let first = over.entry(lock).or_default();
            while queue.get(*first).is_some_and(|wait| wait.end <= at) {
                *first += 1;
            }
            let earlier = queue[*first..].iter().take_while(|wait| wait.placed < asked);
            let overtaken = earlier.filter(|wait| wait.end > at && wait.owner != owner);
            for wait in overtaken {
                let early = wait.owner;
                self.found.violations.push(format!(
                    "lock {lock}: {owner} asked at {asked} and got it at {at}, while {early} stood \
                     in the queue since {}",
                    wait.placed
                ));
            }
        }
    }

    fn fencing(&mut self) {
        let mut accepted_of: HashMap<(&str, u64), &str> = HashMap::new();
        for note in self.notes() {
            let Note::Wrote { at, lock, owner, token, accepted, valid } = note else { continue };
            if *accepted {
                let first = *accepted_of.entry((lock, *token)).or_insert(owner);
                if first != owner {
                    let what = format!("lock {lock}: {first} and {owner} both have token {token}");
                    self.found.violations.push(what);
                }
                continue;
            }
            self.found.fenced_off += 1;
            let granted = self.granted(lock, owner);
            let excuse = |window: &Window| window.loses_state && window.meets(granted, *at);
            if *valid && !self.excused(excuse) {
                let what = format!("lock {lock}: {owner} was refused at {at}, and its guard valid");
                self.found.violations.push(what);
            }
        }
    }

    fn granted(&self, lock: &str, owner: &str) -> u64 {
        let of_it = |record: &&Record| {
            matches!(record.event, Event::Granted { .. })
                && record.lock == lock
                && record.owner == owner
        };
        self.records.iter().find(of_it).map_or(0, |record| record.at_ns)
    }

    fn losses(&mut self) {
        // A guard that said so, or whose release did: each hold once.
        let mut lost = BTreeSet::new();
        let mut noticed = HashMap::new();
        for note in self.notes() {
            match note {
                Note::Ended { lock, owner, end: End::Lost, .. } => {
                    lost.insert((lock, owner));
                }
                Note::Said { at, lock, owner, outcome } if outcome == "Lost" => {
                    lost.insert((lock, owner));
                    noticed.insert((lock, owner), *at);
                }
                _ => {}
            }
        }
        for (lock, owner) in lost {
            let granted = self.granted(lock, owner);
            let until = noticed.get(&(lock, owner)).copied().unwrap_or(granted);
            if self.excused(|window| window.may_lose() && window.meets(granted, until)) {
                self.found.lost += 1;
            } else {
                let what = format!(
                    "lock {lock}: {owner} had it from {granted} on and lost it by {until}, without \
                     a fault that explains it"
                );
                self.found.violations.push(what);
            }
        }
    }
}

fn record(note: &Note) -> Option<Record> {
    let (lock, owner, at, event) = match note {
        Note::Placed { at, asked, lock, owner } => {
            (lock, owner, at, Event::Enqueued { seq: *asked })
        }
        Note::Granted { at, lock, owner, token, .. } => {
            (lock, owner, at, Event::Granted { token: *token })
        }
        Note::Ended { at, lock, owner, end } => {
            let event = match end {
                End::Released => Event::Released,
                End::Lost => Event::Lost,
                End::GaveUp => Event::GaveUp,
            };
            (lock, owner, at, event)
        }
        _ => return None,
    };
    Some(Record { lock: lock.clone(), owner: owner.clone(), at_ns: *at, event })
}

/// What was open when a worker was killed. A hold is known to have been valid when it was granted, and
/// nothing is known of it after that.
fn cut_off(story: &Story) -> Vec<Record> {
    let Some(killed) = story.killed else { return Vec::new() };
    let mut open: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for note in &story.notes {
        match note {
            Note::Placed { at, lock, owner, .. } => {
                // It went on for a moment after we noted the time.
                open.insert((lock, owner), killed.max(*at));
            }
            Note::Granted { at, lock, owner, .. } => {
                open.insert((lock, owner), *at);
            }
            Note::Ended { lock, owner, .. } => {
                open.remove(&(lock.as_str(), owner.as_str()));
            }
            _ => {}
        }
    }
    let died = |((lock, owner), at): ((&str, &str), u64)| Record {
        lock: lock.to_owned(),
        owner: owner.to_owned(),
        at_ns: at,
        event: Event::Died,
    };
    open.into_iter().map(died).collect()
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a short time")
}

#[cfg(test)]
mod tests;
