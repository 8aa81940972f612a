//! What must not have happened in a round, and how fast the lock went from hand to hand.

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
use super::play::{Played, grants};
use super::script::Script;
use crate::watch::{Step, What, hand_overs, is_java};

/// A wake-up that takes longer is counted as late.
pub const LATE: Duration = Duration::from_millis(50);
/// What was given up in the last moment is taken back this soon, also a lock that nobody holds on to.
const EMPTY_WITHIN: Duration = Duration::from_secs(8);

/// Hand-overs to somebody who was waiting, by direction.
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
}

/// From the server's time of the release to the return of the call that waited.
#[derive(Clone, Debug, Default)]
pub struct WakeUps {
    /// All of them.
    pub count: usize,
    /// Those above [`LATE`].
    pub late: usize,
    /// The slowest.
    pub worst: Duration,
}

/// The violations of a round, and its hand-overs.
pub fn judge(
    lock: &str,
    script: &Script,
    played: &Played,
    steps: &[Step],
) -> (Vec<String>, HandOvers) {
    let mut records = played.records.clone();
    records.extend(of_the_queue(lock, steps, &grants(played)));
    records.extend(ends_of_java(lock, steps));
    records.sort_by_key(|record| record.at_ns);

    let mut found: Vec<Violation> = check_exclusion(&records);
    if script.is_fair {
        found.extend(check_fifo(&records));
    }
    found.extend(check_no_lost_waiter(&records));
    let ours: Vec<_> = records.iter().filter(|record| !is_java(&record.owner)).cloned().collect();
    found.extend(check_tokens_rise(&ours));
    let violations = found.iter().map(ToString::to_string).chain(played.problems.clone());
    (violations.collect(), wake_ups(&records, steps))
}

/// Who came and went, by what the server executed. A place is a number; an owner that is dropped and
/// comes back to its place keeps it, and one that comes back at the tail has a new one.
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
                // Its next attempt, or its Java client's next look: its place was gone either way.
                if let Some(at_ns) = left.remove(owner) {
                    record(owner, at_ns, Event::GaveUp);
                }
                // It was being given up when it got the lock, and nobody saw it.
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

/// Java is not told when its lease ends. Ours are, and have said so.
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
        let way = match (is_java(&hand_over.from), is_java(&hand_over.to)) {
            (false, true) => &mut all.rust_to_java,
            (true, false) => &mut all.java_to_rust,
            (false, false) => &mut all.rust_to_rust,
            (true, true) => &mut all.java_to_java,
        };
        let took = Duration::from_nanos(seen.at_ns - hand_over.freed_ns);
        way.add(&WakeUps { count: 1, late: usize::from(took > LATE), worst: took });
    }
    all
}

/// What stands in the keys when everybody has left.
pub async fn what_is_left(server: SocketAddr, lock: &str) -> Option<String> {
    let mut raw = Raw::connect(server);
    let (queue, scores) = (queue_key(lock), timeout_key(lock));
    let keys = ["EXISTS", lock, &queue, &scores];
    let began = Instant::now();
    while raw.call(&keys).int() > 0 {
        if began.elapsed() > EMPTY_WITHIN {
            let hold = raw.call(&["HGETALL", lock]);
            let queue = raw.call(&["LRANGE", &queue, "0", "-1"]);
            return Some(format!("left behind: hold {hold:?}, queue {queue:?}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

impl HandOvers {
    /// Adds those of another round.
    pub fn add(&mut self, other: Self) {
        self.rust_to_java.add(&other.rust_to_java);
        self.java_to_rust.add(&other.java_to_rust);
        self.rust_to_rust.add(&other.rust_to_rust);
        self.java_to_java.add(&other.java_to_java);
    }
}

impl HandOvers {
    /// The slowest that ours had a part in. What Java does to Java is not ours to judge.
    pub fn worst_with_ours(&self) -> Duration {
        [&self.rust_to_java, &self.java_to_rust, &self.rust_to_rust]
            .map(|way| way.worst)
            .into_iter()
            .max()
            .unwrap_or_default()
    }
}

impl WakeUps {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.late += other.late;
        self.worst = self.worst.max(other.worst);
    }
}

impl fmt::Display for HandOvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rust->Java {}, ", self.rust_to_java)?;
        write!(f, "Java->Rust {}, ", self.java_to_rust)?;
        write!(f, "Rust->Rust {}, Java->Java {}", self.rust_to_rust, self.java_to_java)
    }
}

impl fmt::Display for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, late, worst } = self;
        write!(f, "{count} ({late} late, worst {})", in_ms(*worst))
    }
}
