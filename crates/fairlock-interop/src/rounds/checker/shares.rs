//! What differs where several may hold a lock. An owner is its field in the lock: see
//! [`crate::watch::shares`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fairlock_testkit::history::{Event, Record, Violation, check_fifo};

use super::super::notes::Played;
use super::{CLOCKS_APART_NS, HandOvers, LATE, WakeUps, of_the_queue, way};
use crate::watch::shares::{owner_of, writes};
use crate::watch::{Step, What, is_java};

/// A writer is alone, but for what Java reads while it writes.
pub(super) fn exclusion(records: &[Record]) -> Vec<Violation> {
    let mut holds: BTreeMap<&str, (&Record, u32)> = BTreeMap::new();
    let mut violations = Vec::new();
    for record in records {
        let owner = record.owner.as_str();
        match record.event {
            Event::Granted { .. } => {
                if let Some((_, entries)) = holds.get_mut(owner) {
                    *entries += 1;
                    continue;
                }
                let excludes = |other: &str| {
                    (writes(owner) || writes(other)) && owner_of(owner) != owner_of(other)
                };
                if let Some((other, (held, _))) = holds.iter().find(|(other, _)| excludes(other)) {
                    let what = format!("{owner} was granted while {other} held it");
                    violations.push(violation(what, held, record));
                }
                holds.insert(owner, (record, 1));
            }
            Event::Released => {
                if let Some((_, entries)) = holds.get_mut(owner) {
                    *entries -= 1;
                    if *entries == 0 {
                        holds.remove(owner);
                    }
                }
            }
            Event::Lost | Event::Died => {
                holds.remove(owner);
            }
            _ => {}
        }
    }
    violations
}

/// Ours are served in the order of the line. Judged by what the server did: readers that are let in
/// together hear of it in any order.
pub(super) fn order(
    lock: &str,
    played: &Played,
    steps: &[Step],
    grants: &HashMap<&str, usize>,
) -> Vec<Violation> {
    let holds = steps.iter().filter(|step| step.what == What::Holds);
    let granted = |step: &Step| Record {
        lock: lock.to_owned(),
        owner: step.owner.clone(),
        at_ns: step.at_ns,
        event: Event::Granted { token: 0 },
    };
    let mut records: Vec<_> = holds.map(granted).collect();
    let died = played.records.iter().filter(|record| record.event == Event::Died);
    records.extend(died.cloned());
    records.extend(of_the_queue(lock, steps, grants));
    records.sort_by_key(|record| record.at_ns);
    check_fifo(&records)
}

/// A grant has a larger token than all before it. Those who read at the same time have the same.
pub(super) fn tokens(ours: &[Record]) -> Vec<Violation> {
    let mut last: Option<(&Record, u64)> = None;
    let mut violations = Vec::new();
    for record in ours {
        let Event::Granted { token } = record.event else { continue };
        if let Some((before, largest)) = last {
            let is_reentry = before.owner == record.owner;
            let reads = !writes(&before.owner) && !writes(&record.owner);
            if token < largest || token == largest && !is_reentry && !reads {
                let what = format!("token {token} came after token {largest}");
                violations.push(violation(what, before, record));
            }
            if token < largest {
                continue;
            }
        }
        last = Some((record, token));
    }
    violations
}

fn violation(what: String, first: &Record, second: &Record) -> Violation {
    Violation { lock: second.lock.clone(), what, evidence: vec![first.clone(), second.clone()] }
}

/// How fast those woke up who waited as the last hold in their way ended. The call tells that they
/// waited, because Java's waiters stand in no line.
pub(super) fn wake_ups(played: &Played, steps: &[Step]) -> HandOvers {
    let mut all = HandOvers::default();
    for wait in &played.waits {
        let (to, ended_ns) = (wait.owner.as_str(), wait.ended_ns);
        let is_grant = |step: &Step| {
            step.owner == to && step.what == What::Holds && step.at_ns <= ended_ns + CLOCKS_APART_NS
        };
        let Some(held) = steps.iter().rposition(is_grant) else { continue };
        let before = &steps[..held];
        let is_in_the_way = |step: &Step| {
            matches!(step.what, What::Frees { .. }) && (writes(to) || writes(&step.owner))
        };
        let Some(at) = before.iter().rposition(is_in_the_way) else { continue };
        let freed = &before[at];
        if freed.what == (What::Frees { by_time: true })
            || freed.at_ns < wait.began_ns + CLOCKS_APART_NS
        {
            continue;
        }
        // One of ours was let in because another had left the line.
        let leaves = |step: &Step| step.what == What::Leaves;
        if !is_java(to) && before[at..].iter().any(leaves) {
            continue;
        }
        let took = Duration::from_nanos(ended_ns.saturating_sub(freed.at_ns));
        let wake_up = WakeUps { count: 1, late: u64::from(took > LATE), worst: took };
        // Java wakes one of its waiters for a last reader. If that one gives up, no other is told.
        let gave_up = |at_ns: &u64| (freed.at_ns..ended_ns).contains(at_ns);
        if is_java(to) && took > LATE && played.given_up_ns.iter().any(gave_up) {
            all.past_a_leaver.add(&wake_up);
            continue;
        }
        way(&mut all, &freed.owner, to).add(&wake_up);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::notes::Wait;

    const JAVA: &str = "68abb9b1-b536-4682-91df-ddd2a0666c9d:32";
    const JAVA_WRITES: &str = "68abb9b1-b536-4682-91df-ddd2a0666c9d:33:write";
    const OURS: &str = "68abb9b1-b536-8682-91df-ddd2a0666c9d:1";
    const OTHER: &str = "68abb9b1-b536-8682-91df-ddd2a0666c9d:2";
    const OURS_WRITES: &str = "11111111-b536-8682-91df-ddd2a0666c9d:3:write";
    const MS: u64 = 1_000_000;

    fn records(seen: &[(&str, Event)]) -> Vec<Record> {
        let record = |(at, (owner, event)): (usize, &(&str, Event))| Record {
            lock: "a".to_owned(),
            owner: (*owner).to_owned(),
            at_ns: at as u64 * 10 * MS,
            event: *event,
        };
        seen.iter().enumerate().map(record).collect()
    }

    fn granted(token: u64) -> Event {
        Event::Granted { token }
    }

    #[track_caller]
    fn says(violations: &[Violation], what: &[&str]) {
        let told: Vec<_> = violations.iter().map(|violation| violation.what.as_str()).collect();
        assert_eq!(told.len(), what.len(), "{told:?}");
        assert!(told.iter().zip(what).all(|(told, what)| told.contains(what)), "{told:?}");
    }

    #[test]
    fn readers_overlap_and_writers_do_not() {
        let readers =
            [(JAVA, granted(0)), (OURS, granted(1)), (OURS, granted(1)), (OTHER, granted(1))];
        says(&exclusion(&records(&readers)), &[]);
        for writer in [JAVA_WRITES, OURS_WRITES] {
            let beside = [(OURS, granted(1)), (writer, granted(2))];
            says(&exclusion(&records(&beside)), &["was granted while"]);
            let beside = [(writer, granted(1)), (JAVA, granted(2))];
            says(&exclusion(&records(&beside)), &["was granted while"]);
            // One of two entries was released.
            let beside = [
                (OURS, granted(1)),
                (OURS, granted(1)),
                (OURS, Event::Released),
                (writer, granted(2)),
            ];
            says(&exclusion(&records(&beside)), &["was granted while"]);
            let after = [(OURS, granted(1)), (OURS, Event::Released), (writer, granted(2))];
            says(&exclusion(&records(&after)), &[]);
        }
    }

    #[test]
    fn tokens_are_those_of_a_time_of_reading() {
        says(&tokens(&records(&[(OURS, granted(4)), (OTHER, granted(4))])), &[]);
        says(&tokens(&records(&[(OURS, granted(4)), (OURS_WRITES, granted(4))])), &["token 4"]);
        says(&tokens(&records(&[(OURS_WRITES, granted(4)), (OURS, granted(4))])), &["token 4"]);
        says(&tokens(&records(&[(OURS, granted(5)), (OTHER, granted(4))])), &["token 4 came"]);
    }

    fn steps(story: &[(u64, &str, What)]) -> Vec<Step> {
        let step = |&(ms, owner, what): &(u64, &str, What)| Step {
            at_ns: ms * MS,
            owner: owner.to_owned(),
            what,
        };
        story.iter().map(step).collect()
    }

    #[test]
    fn ours_are_served_in_the_order_of_the_line_and_javas_are_not_judged() {
        let freed = What::Frees { by_time: false };
        let story = [
            (0, JAVA, What::Holds),
            (10, OURS_WRITES, What::Enters),
            (20, OURS, What::Enters),
            (30, JAVA, freed),
            (31, JAVA_WRITES, What::Holds),
            (40, JAVA_WRITES, freed),
            (40, OURS, What::Holds),
            (50, OURS, freed),
            (50, OURS_WRITES, What::Holds),
        ];
        let grants = HashMap::from([(OURS, 1), (OURS_WRITES, 1)]);
        let found =
            |story: &[(u64, &str, What)]| order("a", &Played::default(), &steps(story), &grants);
        says(&found(&story), &["overtook"]);
        let mut left = story.to_vec();
        left.truncate(7);
        left.insert(5, (35, OURS_WRITES, What::Leaves));
        says(&found(&left), &[]);
    }

    #[test]
    fn wake_ups_are_counted_from_the_end_of_what_was_in_the_way() {
        let freed = What::Frees { by_time: false };
        let story = steps(&[
            (0, OURS_WRITES, What::Holds),
            (40, OURS_WRITES, freed),
            (40, OTHER, What::Holds),
            (44, JAVA, What::Holds),
            (50, OTHER, freed),
            (60, JAVA, freed),
            (61, JAVA_WRITES, What::Holds),
        ]);
        let wait = |owner: &str, began: u64, ended: u64| Wait {
            owner: owner.to_owned(),
            began_ns: began * MS,
            ended_ns: ended * MS,
        };
        let waits = vec![wait(OTHER, 10, 41), wait(JAVA, 10, 45), wait(JAVA_WRITES, 10, 62)];
        let mut played = Played { waits, ..Played::default() };
        let found = wake_ups(&played, &story);
        assert_eq!((found.rust_to_rust.count, found.rust_to_rust.worst.as_millis()), (1, 1));
        assert_eq!((found.rust_to_java.count, found.rust_to_java.worst.as_millis()), (1, 5));
        assert_eq!((found.java_to_java.count, found.java_to_java.worst.as_millis()), (1, 2));
        // It asked when nothing was in its way.
        played.waits = vec![wait(JAVA, 43, 45)];
        assert_eq!(wake_ups(&played, &story).rust_to_java.count, 0);
    }
}
