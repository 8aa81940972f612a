//! The checkers. Each reads the records once and only knows what its own question requires.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::{Event, Record};

/// Something that must not have happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The lock it happened to.
    pub lock: String,
    /// What happened, in one sentence.
    pub what: String,
    /// The records that show it, in the order of time.
    pub evidence: Vec<Record>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {}: {}", self.lock, self.what)?;
        self.evidence.iter().try_for_each(|record| write!(f, "\n    {record}"))
    }
}

/// All checks below.
pub fn check_all(records: &[Record]) -> Vec<Violation> {
    let checks = [check_exclusion, check_fifo, check_tokens_rise, check_no_lost_waiter];
    checks.iter().flat_map(|check| check(records)).collect()
}

/// Nobody is granted a lock while another owner holds it.
pub fn check_exclusion(records: &[Record]) -> Vec<Violation> {
    /// The record of the current hold, and how often its owner has entered.
    type Hold<'a> = (&'a Record, u32);

    let mut holds: HashMap<&str, Hold<'_>> = HashMap::new();
    let mut violations = Vec::new();
    for record in in_order(records) {
        let hold = holds.get_mut(record.lock.as_str());
        let mine = hold.filter(|(granted, _)| granted.owner == record.owner);
        match (record.event, mine) {
            (Event::Granted { .. }, Some((_, entries))) => *entries += 1,
            (Event::Granted { .. }, None) => {
                if let Some((granted, _)) = holds.insert(&record.lock, (record, 1)) {
                    let what =
                        format!("{} was granted while {} held it", record.owner, granted.owner);
                    violations.push(violation(what, &[granted, record]));
                }
            }
            (Event::Released, Some((_, entries))) if *entries > 1 => *entries -= 1,
            (Event::Released | Event::Lost | Event::Died, Some(_)) => {
                holds.remove(record.lock.as_str());
            }
            _ => {}
        }
    }
    violations
}

/// Waiters are granted in the order of the server's numbers: nobody while an earlier one waits.
///
/// The number counts, not the time of its record, since a reply can be late. A grant to an owner
/// that was never queued is not judged: no number says what came before or after it.
pub fn check_fifo(records: &[Record]) -> Vec<Violation> {
    let mut waiting: HashMap<&str, BTreeMap<u64, &Record>> = HashMap::new();
    let mut numbers: HashMap<(&str, &str), Vec<u64>> = HashMap::new();
    for record in in_order(records) {
        if let Event::Enqueued { seq } = record.event {
            // A waiter that re-enters keeps its number: it is still the same place.
            if let Entry::Vacant(place) = waiting.entry(&record.lock).or_default().entry(seq) {
                place.insert(record);
                numbers.entry(key(record)).or_default().push(seq);
            }
        }
    }
    // An owner's places in the order in which it took them; each ends before the next begins.
    let mut numbers: HashMap<_, _> =
        numbers.into_iter().map(|(key, numbers)| (key, numbers.into_iter().peekable())).collect();

    let mut violations = Vec::new();
    for record in in_order(records) {
        let is_grant = match record.event {
            Event::Granted { .. } => true,
            Event::GaveUp | Event::Died => false,
            _ => continue,
        };
        let Some(mine) = numbers.get_mut(&key(record)) else { continue };
        let queue = waiting.entry(&record.lock).or_default();
        // A place taken later than this record is not the one it ends.
        let Some(seq) = mine.next_if(|seq| queue[seq].at_ns <= record.at_ns) else { continue };
        let enqueued = queue.remove(&seq);
        if let (true, Some((earlier, first))) = (is_grant, queue.first_key_value())
            && *earlier < seq
        {
            let (late, early) = (&record.owner, &first.owner);
            let what = format!("{late}, number {seq}, overtook {early}, number {earlier}");
            let mut evidence = vec![*first, record];
            evidence.extend(enqueued);
            evidence.sort_by_key(|record| record.at_ns);
            violations.push(violation(what, &evidence));
        }
    }
    violations
}

/// Every grant has a larger token than all grants of the lock before it, except a re-entry, which
/// has the token of the hold it enters.
pub fn check_tokens_rise(records: &[Record]) -> Vec<Violation> {
    /// The last token and its record, and whether that owner may still re-enter.
    struct Last<'a> {
        token: u64,
        record: &'a Record,
        entries: u32,
    }

    let mut lasts: HashMap<&str, Last<'_>> = HashMap::new();
    let mut violations = Vec::new();
    for record in in_order(records) {
        let last = lasts.get_mut(record.lock.as_str());
        match (record.event, last) {
            (Event::Granted { token }, Some(last)) => {
                let is_reentry = last.entries > 0 && last.record.owner == record.owner;
                if is_reentry && token == last.token {
                    last.entries += 1;
                    continue;
                }
                if token <= last.token {
                    let what = format!("token {token} came after token {}", last.token);
                    violations.push(violation(what, &[last.record, record]));
                }
                // The largest token so far remains the reference, or one fault would hide the next.
                let token = token.max(last.token);
                *last = Last { token, record, entries: 1 };
            }
            (Event::Granted { token }, None) => {
                lasts.insert(&record.lock, Last { token, record, entries: 1 });
            }
            (event, Some(last)) if last.record.owner == record.owner => match event {
                Event::Released => last.entries = last.entries.saturating_sub(1),
                Event::Lost | Event::Died => last.entries = 0,
                _ => {}
            },
            _ => {}
        }
    }
    violations
}

/// At the end nobody remains in the queue: each waiter was granted the lock, gave up or died.
pub fn check_no_lost_waiter(records: &[Record]) -> Vec<Violation> {
    let mut waiting: HashMap<(&str, &str), &Record> = HashMap::new();
    for record in in_order(records) {
        match record.event {
            Event::Enqueued { .. } => {
                waiting.insert(key(record), record);
            }
            Event::Granted { .. } | Event::GaveUp | Event::Died => {
                waiting.remove(&key(record));
            }
            Event::Released | Event::Lost => {}
        }
    }
    let mut lost: Vec<_> = waiting.into_values().collect();
    lost.sort_by_key(|record| record.at_ns);
    let story = |record: &&Record| {
        violation(format!("{} waits and was never served", record.owner), &[record])
    };
    lost.iter().map(story).collect()
}

fn in_order(records: &[Record]) -> impl Iterator<Item = &Record> {
    let mut records: Vec<_> = records.iter().collect();
    // Stable: records of the same nanosecond keep the order in which they were made.
    records.sort_by_key(|record| record.at_ns);
    records.into_iter()
}

fn key(record: &Record) -> (&str, &str) {
    (&record.lock, &record.owner)
}

fn violation(what: String, evidence: &[&Record]) -> Violation {
    let evidence: Vec<_> = evidence.iter().map(|&record| record.clone()).collect();
    Violation { lock: evidence[0].lock.clone(), what, evidence }
}
