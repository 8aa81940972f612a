//! The checker finds what it is meant to find.

use super::*;
use crate::rounds::notes::Problem;

const JAVA: &str = "68abb9b1-b536-4682-91df-ddd2a0666c9d:32";
const LATER: &str = "68abb9b1-b536-4682-91df-ddd2a0666c9d:33";
const OURS: &str = "68abb9b1-b536-8682-91df-ddd2a0666c9d:1";
const OTHER: &str = "11111111-b536-8682-91df-ddd2a0666c9d:1";
const MS: u64 = 1_000_000;

/// When (in milliseconds), who, and what.
type Told<T> = Vec<(u64, &'static str, T)>;

fn steps(story: &[(u64, &str, What)]) -> Vec<Step> {
    let step = |&(ms, owner, what): &(u64, &str, What)| Step {
        at_ns: ms * MS,
        owner: owner.to_owned(),
        what,
    };
    story.iter().map(step).collect()
}

fn played(seen: &[(u64, &str, Event)]) -> Played {
    let record = |&(ms, owner, event): &(u64, &str, Event)| Record {
        lock: "a".to_owned(),
        owner: owner.to_owned(),
        at_ns: ms * MS,
        event,
    };
    Played { records: seen.iter().map(record).collect(), ..Played::default() }
}

const GRANTED: Event = Event::Granted { token: 1 };
const AGAIN: Event = Event::Granted { token: 2 };
const FREED: What = What::Frees { by_time: false };
const ENDED: What = What::Frees { by_time: true };

/// Ours holds, Java and another of ours wait, and all are served in order.
fn sound() -> (Told<What>, Told<Event>) {
    let story = vec![
        (0, OURS, What::Holds),
        (10, JAVA, What::Enters),
        (20, OTHER, What::Enters),
        (100, OURS, FREED),
        (110, JAVA, What::Holds),
        (200, JAVA, FREED),
        (210, OTHER, What::Holds),
        (300, OTHER, FREED),
    ];
    let seen = vec![
        (1, OURS, GRANTED),
        (99, OURS, Event::Released),
        (112, JAVA, Event::Granted { token: 0 }),
        (199, JAVA, Event::Released),
        (212, OTHER, AGAIN),
        (299, OTHER, Event::Released),
    ];
    (story, seen)
}

#[track_caller]
fn finds(order: Order, story: &[(u64, &str, What)], seen: &Played, what: &[&str]) {
    let (violations, _) = check("a", order, seen, &steps(story));
    assert_eq!(violations.len(), what.len(), "{violations:?}");
    for (violation, what) in violations.iter().zip(what) {
        assert!(violation.contains(what), "{violation:?} is not about {what:?}");
    }
}

#[test]
fn a_sound_round_has_no_violations_and_its_hand_overs_are_counted() {
    let (story, seen) = sound();
    let (violations, hand_overs) = check("a", Order::Fifo, &played(&seen), &steps(&story));
    assert_eq!(violations, Vec::<String>::new());
    let both = [&hand_overs.rust_to_java, &hand_overs.java_to_rust];
    assert_eq!(both.map(|way| (way.count, way.late)), [(1, 0), (1, 0)]);
    assert_eq!(both.map(|way| way.worst), [Duration::from_millis(12); 2]);
}

#[test]
fn two_holders_are_found() {
    let (story, mut seen) = sound();
    // Java reports its unlock only after ours was granted the lock.
    seen[3].0 = 220;
    finds(Order::Any, &story, &played(&seen), &["nobody took it away", "was granted while"]);
}

#[test]
fn one_that_is_overtaken_is_found_and_only_in_a_fair_lock() {
    let (mut story, mut seen) = sound();
    story.swap(1, 2);
    (story[1].0, story[2].0) = (10, 20);
    finds(Order::Fifo, &story, &played(&seen), &["overtook"]);
    finds(Order::FifoOfThePresent, &story, &played(&seen), &["overtook"]);
    finds(Order::Any, &story, &played(&seen), &[]);
    // A client with a wrong clock had dropped it, and it came back.
    story.insert(3, (30, OTHER, What::Leaves));
    story.insert(6, (120, OTHER, What::Returns));
    finds(Order::Fifo, &story, &played(&seen), &["overtook"]);
    finds(Order::FifoOfThePresent, &story, &played(&seen), &[]);
    // It was back in time.
    story[6] = (40, OTHER, What::Returns);
    story.swap(5, 6);
    story.swap(4, 5);
    finds(Order::FifoOfThePresent, &story, &played(&seen), &["overtook"]);
    // Killed clients are not overtaken.
    story.truncate(3);
    seen.truncate(2);
    story.extend([(100, OURS, FREED), (110, JAVA, What::Holds), (200, JAVA, FREED)]);
    seen.extend([(105, OTHER, Event::Died), (112, JAVA, GRANTED), (199, JAVA, Event::Released)]);
    finds(Order::Fifo, &story, &played(&seen), &[]);
}

#[test]
fn a_waiter_that_is_never_served_is_found() {
    let (mut story, mut seen) = sound();
    story.truncate(6);
    seen.truncate(4);
    finds(Order::Fifo, &story, &played(&seen), &["never served"]);
}

/// Seed 5335914: a reader of ours was killed while one of Java's read on, and a script removed its lease when it was over.
#[test]
fn the_hold_of_the_dead_ends_when_its_lease_is_over() {
    let (story, mut seen) = sound();
    seen[1] = (50, OURS, Event::Died);
    finds(Order::Fifo, &story, &played(&seen), &[]);
}

#[test]
fn a_hold_that_ends_before_its_time_is_found_unless_it_was_taken_away() {
    let (story, mut seen) = sound();
    seen.remove(1);
    let mut seen = played(&seen);
    let problem = |at: u64| Problem {
        what: "it is not held".to_owned(),
        owner: Some(OURS.to_owned()),
        since_ns: 0,
        at_ns: at * MS,
    };
    seen.problems = vec![problem(150)];
    finds(
        Order::Fifo,
        &story,
        &seen,
        &["nobody took it away", "was granted while", "it is not held"],
    );
    // A force at another time explains nothing.
    seen.forces = vec![Force { began_ns: 20 * MS, ended_ns: 90 * MS }];
    finds(
        Order::Fifo,
        &story,
        &seen,
        &["nobody took it away", "was granted while", "it is not held"],
    );
    seen.forces = vec![Force { began_ns: 95 * MS, ended_ns: 101 * MS }];
    finds(Order::Fifo, &story, &seen, &[]);
    // It does not excuse what went wrong before it either.
    seen.problems = vec![problem(50)];
    finds(Order::Fifo, &story, &seen, &["it is not held"]);
}

/// A force does not excuse a hold that its owner had released: one call frees one hold.
#[test]
fn a_grant_that_comes_after_the_lock_was_taken_away_is_none() {
    let story = [
        (0, JAVA, What::Holds),
        (10, OURS, What::Enters),
        (20, OTHER, What::Enters),
        (100, JAVA, FREED),
        (100, OURS, What::Holds),
        (101, OURS, FREED),
        (101, OTHER, What::Holds),
        (200, OTHER, FREED),
    ];
    let mut seen = played(&[
        (1, JAVA, GRANTED),
        (99, JAVA, Event::Released),
        (103, OURS, GRANTED),
        (103, OTHER, AGAIN),
        (150, OURS, Event::Released),
        (199, OTHER, Event::Released),
    ]);
    finds(Order::Fifo, &story, &seen, &["nobody took it away", "was granted while"]);
    seen.forces = vec![Force { began_ns: 100 * MS, ended_ns: 102 * MS }];
    finds(Order::Fifo, &story, &seen, &[]);
}

#[test]
fn a_partial_release_does_not_explain_a_free_lock() {
    let (story, mut seen) = sound();
    seen.insert(1, (2, OURS, GRANTED));
    finds(Order::Fifo, &story, &played(&seen), &["nobody took it away", "was granted while"]);
}

#[test]
fn tokens_that_fall_are_found() {
    let (story, mut seen) = sound();
    seen[0].2 = Event::Granted { token: 5 };
    finds(Order::Fifo, &story, &played(&seen), &["came after token 5"]);
}

#[test]
fn the_end_of_a_java_lease_is_no_second_holder() {
    let (mut story, mut seen) = sound();
    story[5] = (200, JAVA, ENDED);
    seen.remove(3);
    finds(Order::Fifo, &story, &played(&seen), &[]);
}

/// Ours reports the end of its lease slightly before the server does, and releases what may be
/// left.
#[test]
fn ours_gives_back_the_rest_of_a_lease_that_it_counts_as_over() {
    let (story, mut seen) = sound();
    seen[1] = (95, OURS, Event::Lost);
    finds(Order::Fifo, &story, &played(&seen), &[]);
}

/// The lock was taken away while the release was in flight: the release finds nothing.
#[test]
fn a_release_may_come_after_a_force() {
    let (story, seen) = sound();
    let mut seen = played(&seen);
    seen.problems = vec![Problem {
        what: "release gives Lost".to_owned(),
        owner: Some(OURS.to_owned()),
        since_ns: 0,
        at_ns: 101 * MS,
    }];
    finds(Order::Fifo, &story, &seen, &["release gives Lost"]);
    seen.forces = vec![Force { began_ns: 98 * MS, ended_ns: 101 * MS }];
    finds(Order::Fifo, &story, &seen, &[]);
}

/// The first of two holds was released, the second right after the lock had been taken away: both
/// within the millisecond by which the clocks may differ (seed 465302003).
#[test]
fn a_release_right_after_a_force_does_not_hide_it() {
    let (mut story, mut seen) = sound();
    story[4].0 = 100;
    seen[1] = (99, OURS, Event::Released);
    seen.insert(1, (2, OURS, GRANTED));
    let mut seen = played(&seen);
    seen.records.push(Record {
        lock: "a".to_owned(),
        owner: OURS.to_owned(),
        at_ns: 100 * MS + MS / 2,
        event: Event::Released,
    });
    seen.records[3].at_ns = 100 * MS + MS / 4;
    seen.forces = vec![Force { began_ns: 98 * MS, ended_ns: 101 * MS }];
    finds(Order::Fifo, &story, &seen, &[]);
}

/// On a busy machine, a Java call returned after its lease of 100 ms had ended (seed 921511346).
#[test]
fn java_is_told_late_of_a_lease_that_is_over() {
    let (mut story, mut seen) = sound();
    story[5] = (200, JAVA, ENDED);
    seen[2].0 = 211;
    seen[3].0 = 320;
    finds(Order::Fifo, &story, &played(&seen), &[]);
    // Ours must not do that: a guard is not handed out after its lease has ended.
    let (mut story, mut seen) = sound();
    story[7] = (300, OTHER, ENDED);
    seen[4].0 = 310;
    seen[5].0 = 320;
    story.extend([(305, JAVA, What::Holds), (330, JAVA, FREED)]);
    seen.extend([(306, JAVA, GRANTED), (329, JAVA, Event::Released)]);
    finds(Order::Any, &story, &played(&seen), &["was granted while"]);
}

/// Java's head was notified and gave up. It does not notify the next waiter, and that is not a slow
/// wake-up (seed 373533894).
#[test]
fn a_hand_over_past_java_that_gave_up_is_counted_apart() {
    let (mut story, mut seen) = sound();
    story.insert(1, (5, LATER, What::Enters));
    story.insert(5, (101, LATER, What::Leaves));
    (story[6].0, seen[2].0) = (170, 172);
    let (violations, hand_overs) = check("a", Order::Fifo, &played(&seen), &steps(&story));
    assert_eq!(violations, Vec::<String>::new());
    let counts = [&hand_overs.rust_to_java, &hand_overs.past_a_leaver].map(|way| way.count);
    assert_eq!(counts, [0, 1]);
}

/// Dropped by a client with a wrong clock, ours came back while the free lock was offered to the
/// Java head, and is placed behind it (seed 59484648). Before the lock was free, it would have had
/// to be first.
#[test]
fn ours_that_returns_to_a_lock_on_offer_is_not_overtaken() {
    let (_, seen) = sound();
    let story = [
        (0, OURS, What::Holds),
        (10, OTHER, What::Enters),
        (15, OTHER, What::Leaves),
        (20, JAVA, What::Enters),
        (100, OURS, FREED),
        (105, OTHER, What::Returns),
        (110, JAVA, What::Holds),
        (200, JAVA, FREED),
        (210, OTHER, What::Holds),
        (300, OTHER, FREED),
    ];
    finds(Order::FifoOfThePresent, &story, &played(&seen), &[]);
    finds(Order::Fifo, &story, &played(&seen), &["overtook"]);
    let mut early = story;
    early.swap(4, 5);
    (early[4].0, early[5].0) = (95, 100);
    finds(Order::FifoOfThePresent, &early, &played(&seen), &["overtook"]);
}
