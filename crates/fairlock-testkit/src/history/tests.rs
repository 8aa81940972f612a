use super::Event::{Died, Enqueued, GaveUp, Granted, Lost, Released};
use super::*;

/// A history of one lock, one record a nanosecond.
fn history(events: &[(&str, Event)]) -> Vec<Record> {
    let record = |(index, (owner, event)): (usize, &(&str, Event))| Record {
        lock: "stock".into(),
        owner: (*owner).into(),
        at_ns: index as u64,
        event: *event,
    };
    events.iter().enumerate().map(record).collect()
}

#[track_caller]
fn found(check: fn(&[Record]) -> Vec<Violation>, events: &[(&str, Event)], what: &[&str]) {
    let violations = check(&history(events));
    let stories: Vec<_> = violations.iter().map(|violation| violation.what.as_str()).collect();
    assert_eq!(stories, what);
}

#[test]
fn a_sound_history_has_no_violations() {
    let sound = history(&[
        ("a", Granted { token: 1 }),
        ("b", Enqueued { seq: 10 }),
        ("c", Enqueued { seq: 11 }),
        ("d", Enqueued { seq: 12 }),
        ("e", Enqueued { seq: 13 }),
        ("a", Granted { token: 1 }),
        ("a", Released),
        ("a", Released),
        ("b", Granted { token: 2 }),
        ("c", GaveUp),
        ("b", Lost),
        ("d", Granted { token: 5 }),
        ("d", Died),
        ("e", Granted { token: 6 }),
        ("e", Released),
        ("b", Enqueued { seq: 14 }),
        ("b", Granted { token: 7 }),
        ("b", Released),
    ]);
    assert_eq!(check_all(&sound), []);
}

#[test]
fn locks_do_not_mix() {
    let mut records = history(&[("a", Granted { token: 9 }), ("b", Granted { token: 1 })]);
    records[1].lock = "other".into();
    assert_eq!(check_all(&records), []);
}

#[test]
fn exclusion_finds_two_holders() {
    let two = [("a", Granted { token: 1 }), ("b", Granted { token: 2 })];
    found(check_exclusion, &two, &["b was granted while a held it"]);
    // Releasing a re-entry leaves the first entry.
    let after_reentry = [
        ("a", Granted { token: 1 }),
        ("a", Granted { token: 1 }),
        ("a", Released),
        ("b", Granted { token: 2 }),
    ];
    found(check_exclusion, &after_reentry, &["b was granted while a held it"]);
    // A release by an owner without a hold frees nothing.
    let foreign = [("a", Granted { token: 1 }), ("b", Released), ("b", Granted { token: 2 })];
    found(check_exclusion, &foreign, &["b was granted while a held it"]);
}

#[test]
fn fifo_finds_who_overtook_whom() {
    let overtaken = [
        ("a", Enqueued { seq: 1 }),
        ("b", Enqueued { seq: 2 }),
        ("b", Granted { token: 1 }),
        ("a", Granted { token: 2 }),
    ];
    found(check_fifo, &overtaken, &["b, number 2, overtook a, number 1"]);
    // The reply with the smaller number came late; its place was still earlier.
    let late_reply = [
        ("b", Enqueued { seq: 2 }),
        ("b", Granted { token: 1 }),
        ("a", Enqueued { seq: 1 }),
        ("a", Granted { token: 2 }),
    ];
    found(check_fifo, &late_reply, &["b, number 2, overtook a, number 1"]);
    // A waiter that gives up later was alive when it was overtaken.
    let never_served = [
        ("a", Enqueued { seq: 1 }),
        ("b", Enqueued { seq: 2 }),
        ("b", Granted { token: 1 }),
        ("a", GaveUp),
    ];
    found(check_fifo, &never_served, &["b, number 2, overtook a, number 1"]);
}

#[test]
fn fifo_knows_an_owners_places_apart() {
    let second_place = [
        ("a", Granted { token: 1 }),
        ("a", Enqueued { seq: 1 }),
        ("a", Granted { token: 2 }),
        ("b", Enqueued { seq: 2 }),
        ("a", Enqueued { seq: 3 }),
        ("a", Granted { token: 3 }),
    ];
    found(check_fifo, &second_place, &["a, number 3, overtook b, number 2"]);
}

#[test]
fn fifo_takes_a_re_entry_with_the_old_number_for_the_same_place() {
    let again = [
        ("a", Enqueued { seq: 1 }),
        ("b", Enqueued { seq: 2 }),
        ("a", Enqueued { seq: 1 }),
        ("a", Granted { token: 1 }),
        ("a", Released),
        ("b", Granted { token: 2 }),
        ("a", Granted { token: 3 }),
    ];
    found(check_fifo, &again, &[]);
}

#[test]
fn tokens_that_do_not_rise_are_found() {
    let grant = |token| Granted { token };
    let equal = [("a", grant(5)), ("a", Released), ("b", grant(5))];
    found(check_tokens_rise, &equal, &["token 5 came after token 5"]);
    let same_owner = [("a", grant(5)), ("a", Released), ("a", grant(5))];
    found(check_tokens_rise, &same_owner, &["token 5 came after token 5"]);
    // The second fault is compared with the largest token, not with the first fault's.
    let twice = [("a", grant(5)), ("b", grant(3)), ("c", grant(4))];
    let stories = ["token 3 came after token 5", "token 4 came after token 5"];
    found(check_tokens_rise, &twice, &stories);
}

#[test]
fn a_waiter_that_was_never_served_is_found() {
    let lost = [
        ("a", Enqueued { seq: 1 }),
        ("b", Enqueued { seq: 2 }),
        ("a", Granted { token: 1 }),
        ("a", Released),
    ];
    found(check_no_lost_waiter, &lost, &["b waits and was never served"]);
    // Its second wait is judged on its own.
    let again =
        [("a", Enqueued { seq: 1 }), ("a", Granted { token: 1 }), ("a", Enqueued { seq: 2 })];
    found(check_no_lost_waiter, &again, &["a waits and was never served"]);
}

#[test]
fn a_story_shows_its_evidence() {
    let records = history(&[("a", Granted { token: 1 }), ("b", Granted { token: 2 })]);
    assert_eq!(
        check_exclusion(&records)[0].to_string(),
        "lock stock: b was granted while a held it\
         \n    0.000000000 a: Granted { token: 1 }\
         \n    0.000000001 b: Granted { token: 2 }",
    );
}

#[test]
fn a_recorder_keeps_the_order_of_time_across_threads() {
    let history = History::new();
    std::thread::scope(|scope| {
        for owner in ["a", "b"] {
            let history = history.clone();
            scope.spawn(move || {
                for _ in 0..1000 {
                    history.record("stock", owner, GaveUp);
                }
            });
        }
    });
    let records = history.records();
    assert_eq!(records.len(), 2000);
    assert!(records.is_sorted_by_key(|record| record.at_ns));
    history.assert_sound();
}

#[test]
#[should_panic(expected = "1 violations:\nlock stock: b was granted while a held it")]
fn assert_sound_tells_the_story() {
    let history = History::new();
    history.record("stock", "a", Granted { token: 1 });
    history.record("stock", "b", Granted { token: 2 });
    history.assert_sound();
}
