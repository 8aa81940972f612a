//! The invariants of a round, and how fast the lock was handed over.

pub mod latches;
mod shares;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fairlock_testkit::history::{
    Event, Record, Violation, check_exclusion, check_fifo, check_no_lost_waiter, check_tokens_rise,
};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::{queue_key, timeout_key};

use super::in_ms;
use super::notes::{Force, Played, Problem};
use crate::watch::shares::owner_of;
use crate::watch::{Step, What, hand_overs, is_java};

/// A slower wake-up counts as late.
pub const LATE: Duration = Duration::from_millis(50);
/// How soon requests given up at the last moment are withdrawn, and a lock that no caller uses is
/// freed.
const EMPTY_WITHIN: Duration = Duration::from_secs(8);

/// Hand-overs to a waiter, by direction.
#[derive(Clone, Debug, Default)]
pub struct HandOvers {
    /// Ours to Java.
    pub rust_to_java: WakeUps,
    /// Java to ours.
    pub java_to_rust: WakeUps,
    /// Ours to ours.
    pub rust_to_rust: WakeUps,
    /// Java to Java.
    pub java_to_java: WakeUps,
    /// In any direction, past a Java waiter that was notified and gave up: Java does not pass the
    /// notification on.
    pub past_a_leaver: WakeUps,
}

/// Times from the release, by the server's clock, to the return of the waiting call.
#[derive(Clone, Debug, Default)]
pub struct WakeUps {
    /// All of them.
    pub count: u64,
    /// Those above [`LATE`].
    pub late: u64,
    /// The slowest.
    pub worst: Duration,
}

/// The order that is required.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// None: the lock is not fair.
    Any,
    /// First come, first served.
    Fifo,
    /// The same among those in the queue: clients with a wrong clock drop others.
    FifoOfThePresent,
    /// That of a read-write lock: several may read, and ours are served in their order.
    Shares,
}

/// Returns the violations of a round, and its hand-overs.
pub fn check(
    lock: &str,
    order: Order,
    played: &Played,
    steps: &[Step],
) -> (Vec<String>, HandOvers) {
    let (taken, mut violations) = taken_away(played, steps);
    let mut records = seen(lock, played, &taken);
    records.extend(of_the_queue(lock, steps, &played.grants()));
    records.extend(ends_of_java(lock, steps));
    records.sort_by_key(|record| record.at_ns);

    let mut found: Vec<Violation> = match order {
        Order::Shares => shares::exclusion(&records),
        _ => check_exclusion(&records),
    };
    if order == Order::Shares {
        found.extend(shares::order(lock, played, steps, &played.grants()));
    } else if order != Order::Any {
        let is_fair = |violation: &Violation| {
            order == Order::FifoOfThePresent && overtaken_was_away(violation, steps)
        };
        found.extend(check_fifo(&records).into_iter().filter(|violation| !is_fair(violation)));
    }
    found.extend(check_no_lost_waiter(&records));
    // Neither Java nor the killed clients reported their tokens.
    let says_no_token = |record: &&Record| record.event == Event::Granted { token: 0 };
    let ours = records.iter().filter(|record| !is_java(&record.owner) && !says_no_token(record));
    let ours: Vec<_> = ours.cloned().collect();
    found.extend(match order {
        Order::Shares => shares::tokens(&ours),
        _ => check_tokens_rise(&ours),
    });
    violations.extend(found.iter().map(ToString::to_string));
    let excused = |problem: &&Problem| taken.iter().any(|taken| taken.excuses(problem));
    let problems = played.problems.iter().filter(|problem| !excused(problem));
    violations.extend(problems.map(|problem| problem.what.clone()));
    let hand_overs = match order {
        Order::Shares => shares::wake_ups(played, steps),
        _ => wake_ups(&records, steps),
    };
    (violations, hand_overs)
}

/// A hold that another owner's call ended.
#[derive(Debug)]
struct Taken {
    owner: String,
    /// When it began and ended on the server.
    held_ns: u64,
    freed_ns: u64,
    /// When the owner's next hold began, if there was one.
    next_ns: u64,
}

impl Taken {
    fn excuses(&self, problem: &Problem) -> bool {
        problem.owner.as_deref() == Some(self.owner.as_str())
            && problem.since_ns <= self.freed_ns
            && self.freed_ns <= problem.at_ns
    }

    /// Whether the record is about this hold.
    fn covers(&self, record: &Record) -> bool {
        let at_ns = record.at_ns + CLOCKS_STEP_NS;
        record.owner == self.owner && (self.held_ns..self.next_ns).contains(&at_ns)
    }
}

/// Returns the holds that ended through `forceUnlock`, or before the Java call that acquired them
/// returned; and complaints about other locks that became free early although the owner had not
/// released them. A hold that no caller saw belonged to a request that had been given up.
fn taken_away(played: &Played, steps: &[Step]) -> (Vec<Taken>, Vec<String>) {
    let (mut taken, mut unexplained) = (Vec::new(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        let What::Frees { by_time } = step.what else { continue };
        let holds = |other: &&Step| other.owner == step.owner && other.what == What::Holds;
        let Some(held) = steps[..at].iter().rfind(holds) else { continue };
        let next_ns = steps[at..].iter().find(holds).map_or(u64::MAX, |step| step.at_ns);
        let (held_ns, freed_ns) = (held.at_ns, step.at_ns);
        let owner = step.owner.clone();
        let end = Taken { owner, held_ns, freed_ns, next_ns };
        if by_time {
            // When a Java call returns late, Java does not check whether its lease has ended. Ours
            // do.
            let is_late = |record: &Record| {
                end.covers(record) && record.at_ns > freed_ns && is_java(&record.owner)
            };
            if played.records.iter().any(is_late) {
                taken.push(end);
            }
            continue;
        }
        let count = |wanted: fn(&Event) -> bool, until_ns| {
            let mine = played.records.iter().filter(|record| end.covers(record));
            mine.filter(|record| wanted(&record.event) && record.at_ns <= until_ns).count()
        };
        let granted = count(|event| matches!(event, Event::Granted { .. }), u64::MAX);
        // What is noted before the call is noted before the server's time, apart from clock steps.
        let until_ns = freed_ns + CLOCKS_APART_NS;
        let released = count(|event| *event == Event::Released, until_ns);
        // Ours report the end of a lease slightly before the server's time, then release what may
        // be left. The killed report nothing: what they held is removed when its lease is over, if
        // others hold the lock on.
        let is_over = count(|event| matches!(event, Event::Lost | Event::Died), until_ns) > 0;
        let in_call = |force: &Force| {
            (force.began_ns.saturating_sub(CLOCKS_APART_NS)..=force.ended_ns + CLOCKS_APART_NS)
                .contains(&freed_ns)
        };
        let is_released = granted > 0 && (released >= granted || is_over);
        if played.forces.iter().any(in_call) {
            // It may have been about to be released: it has ended either way.
            taken.push(end);
        } else if granted > 0 && !is_released {
            unexplained.push(format!("{} lost the lock, and nobody took it away", end.owner));
        }
    }
    (taken, unexplained)
}

/// A very fast call may return before the server's time of what it did (seed 218993704).
const CLOCKS_STEP_NS: u64 = 200_000;

/// The largest difference between the server's clock, which MONITOR shows in microseconds, and
/// ours.
const CLOCKS_APART_NS: u64 = 1_000_000;

/// What the callers saw. A hold that was taken away ended at that time, whenever its owner noticed;
/// a grant that arrived later is ignored.
fn seen(lock: &str, played: &Played, taken: &[Taken]) -> Vec<Record> {
    let too_late = |record: &Record| {
        taken.iter().any(|taken| taken.covers(record) && record.at_ns > taken.freed_ns)
    };
    let ends_a_hold = |record: &Record| matches!(record.event, Event::Granted { .. });
    let mut records: Vec<_> = played
        .records
        .iter()
        .filter(|record| !(ends_a_hold(record) && too_late(record)))
        .cloned()
        .collect();
    for taken in taken {
        for event in [Event::Lost, Event::GaveUp] {
            let (lock, owner) = (lock.to_owned(), taken.owner.clone());
            records.push(Record { lock, owner, at_ns: taken.freed_ns, event });
        }
    }
    records
}

/// Whether the overtaken owner was not in the queue at that moment, because a client with a wrong
/// clock had dropped it; or had returned while the free lock was being offered to the other, in
/// which case ours return behind that one.
fn overtaken_was_away(violation: &Violation, steps: &[Step]) -> bool {
    let evidence = &violation.evidence;
    let granted = evidence.iter().find(|record| matches!(record.event, Event::Granted { .. }));
    let Some(granted) = granted else { return false };
    let is_other = |record: &&Record| record.owner != granted.owner;
    let Some(overtaken) = evidence.iter().find(is_other) else { return false };
    let holds = |step: &Step| step.owner == granted.owner && step.what == What::Holds;
    let before = steps.iter().rposition(|step| holds(step) && step.at_ns <= granted.at_ns);
    let Some(before) = before else { return false };
    let last = steps[..before].iter().rposition(|step| step.owner == overtaken.owner);
    let Some(last) = last else { return false };
    let is_hold = |step: &&Step| matches!(step.what, What::Holds | What::Frees { .. });
    match steps[last].what {
        What::Leaves => true,
        What::Returns => {
            let was_held = steps[..last].iter().rfind(is_hold);
            let is_held_since = steps[last..before].iter().any(|step| step.what == What::Holds);
            !is_held_since && !was_held.is_some_and(|step| step.what == What::Holds)
        }
        _ => false,
    }
}

/// Entries and departures, by what the server executed. A place is a number: an owner that is
/// dropped and returns to its place keeps it, one that returns at the tail gets a new one.
fn of_the_queue(lock: &str, steps: &[Step], grants: &HashMap<&str, usize>) -> Vec<Record> {
    let mut records = Vec::new();
    let mut record = |owner: &str, at_ns, event| {
        records.push(Record { lock: lock.to_owned(), owner: owner.to_owned(), at_ns, event });
    };
    let mut places: HashMap<&str, u64> = HashMap::new();
    let mut left: HashMap<&str, u64> = HashMap::new();
    let mut last = 0;
    for Step { at_ns, owner, what } in steps {
        let owner = owner.as_str();
        match what {
            What::Enters => {
                if let Some(at_ns) = left.remove(owner) {
                    record(owner, at_ns, Event::GaveUp);
                }
                last += 1;
                places.insert(owner, last);
                record(owner, *at_ns, Event::Enqueued { seq: last });
            }
            What::Returns => {
                left.remove(owner);
                let seq = *places.entry(owner).or_insert(0);
                record(owner, *at_ns, Event::Enqueued { seq });
            }
            What::Leaves => {
                left.insert(owner, *at_ns);
            }
            What::Holds => {
                // Its next attempt, or its Java client's next poll: its place was lost either way.
                if let Some(at_ns) = left.remove(owner) {
                    record(owner, at_ns, Event::GaveUp);
                }
                // The request was being given up when it got the lock, and no caller saw the grant.
                if !grants.contains_key(owner) {
                    record(owner, *at_ns, Event::GaveUp);
                }
            }
            What::Frees { .. } => {}
        }
    }
    for (owner, at_ns) in left {
        record(owner, at_ns, Event::GaveUp);
    }
    records
}

/// Java does not notice the end of its lease. Ours do, and have reported it.
fn ends_of_java(lock: &str, steps: &[Step]) -> Vec<Record> {
    let by_time = |step: &&Step| step.what == What::Frees { by_time: true };
    let ends = steps.iter().filter(by_time).filter(|step| is_java(&step.owner));
    let record = |step: &Step| Record {
        lock: lock.to_owned(),
        owner: step.owner.clone(),
        at_ns: step.at_ns,
        event: Event::Lost,
    };
    ends.map(record).collect()
}

fn wake_ups(records: &[Record], steps: &[Step]) -> HandOvers {
    let mut all = HandOvers::default();
    for hand_over in hand_overs(steps) {
        if hand_over.by_time || !hand_over.was_waiting {
            continue;
        }
        let seen = records.iter().find(|record| {
            record.owner == hand_over.to
                && record.at_ns >= hand_over.freed_ns
                && matches!(record.event, Event::Granted { .. })
        });
        let Some(seen) = seen else { continue };
        let took = Duration::from_nanos(seen.at_ns - hand_over.freed_ns);
        let is_between = |step: &&Step| (hand_over.freed_ns..seen.at_ns).contains(&step.at_ns);
        let leaves = |step: &Step| step.what == What::Leaves && is_java(&step.owner);
        if took > LATE && steps.iter().filter(is_between).any(leaves) {
            all.past_a_leaver.add(&WakeUps { count: 1, late: 1, worst: took });
            continue;
        }
        let wake_up = WakeUps { count: 1, late: u64::from(took > LATE), worst: took };
        way(&mut all, &hand_over.from, &hand_over.to).add(&wake_up);
    }
    all
}

fn way<'a>(all: &'a mut HandOvers, from: &str, to: &str) -> &'a mut WakeUps {
    match (is_java(from), is_java(to)) {
        (false, true) => &mut all.rust_to_java,
        (true, false) => &mut all.java_to_rust,
        (false, false) => &mut all.rust_to_rust,
        (true, true) => &mut all.java_to_java,
    }
}

/// What remains in the keys when all clients have left. Killed clients may remain in the queue.
pub async fn what_is_left(server: SocketAddr, lock: &str, dead: &[String]) -> Option<String> {
    let mut raw = Raw::connect(server);
    let (queue, scores) = (queue_key(lock), timeout_key(lock));
    let line = format!("fairlock_rw_order:{{{lock}}}");
    let dead: Vec<_> = dead.iter().map(|owner| owner_of(owner)).collect();
    let began = Instant::now();
    loop {
        let is_held = raw.call(&["EXISTS", lock]).int() > 0;
        let mut waiting = members(&mut raw, &["LRANGE", &queue, "0", "-1"]);
        waiting.extend(members(&mut raw, &["ZRANGE", &scores, "0", "-1"]));
        waiting.extend(members(&mut raw, &["ZRANGE", &line, "0", "-1"]));
        waiting.retain(|owner| !dead.contains(&owner.as_str()));
        if !is_held && waiting.is_empty() {
            return None;
        }
        if began.elapsed() > EMPTY_WITHIN {
            let hold = raw.call(&["HGETALL", lock]);
            return Some(format!("left behind: hold {hold:?}, queue {waiting:?}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn members(raw: &mut Raw, command: &[&str]) -> Vec<String> {
    let found = raw.call(command);
    found.array().iter().map(|owner| owner.text().to_owned()).collect()
}

impl HandOvers {
    /// Adds the hand-overs of another round.
    pub fn add(&mut self, other: Self) {
        self.rust_to_java.add(&other.rust_to_java);
        self.java_to_rust.add(&other.java_to_rust);
        self.rust_to_rust.add(&other.rust_to_rust);
        self.java_to_java.add(&other.java_to_java);
        self.past_a_leaver.add(&other.past_a_leaver);
    }
}

impl HandOvers {
    /// The slowest hand-over in which ours took part. Hand-overs from Java to Java are not ours to
    /// judge.
    pub fn worst_with_ours(&self) -> Duration {
        [&self.rust_to_java, &self.java_to_rust, &self.rust_to_rust]
            .map(|way| way.worst)
            .into_iter()
            .max()
            .unwrap_or_default()
    }
}

impl WakeUps {
    /// Adds the wake-ups of another round.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.late += other.late;
        self.worst = self.worst.max(other.worst);
    }
}

impl fmt::Display for HandOvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rust->Java {}, ", self.rust_to_java)?;
        write!(f, "Java->Rust {}, ", self.java_to_rust)?;
        write!(f, "Rust->Rust {}, Java->Java {}, ", self.rust_to_rust, self.java_to_java)?;
        write!(f, "past Java that gave up {}", self.past_a_leaver)
    }
}

impl fmt::Display for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, late, worst } = self;
        write!(f, "{count} ({late} late, worst {})", in_ms(*worst))
    }
}

#[cfg(test)]
mod tests;
