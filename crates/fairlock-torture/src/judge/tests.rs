use super::*;
use crate::bed::Kind;

const MS: u64 = 1_000_000;

fn granted(at: u64, owner: &str, token: u64) -> Note {
    asked_and_granted(at - 1, at, owner, token)
}

fn asked_and_granted(asked: u64, at: u64, owner: &str, token: u64) -> Note {
    let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
    Note::Granted { at: at * MS, asked: asked * MS, lock, owner, token }
}

fn placed(at: u64, owner: &str) -> Note {
    let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
    Note::Placed { at: at * MS, asked: (at - 1) * MS, lock, owner }
}

fn ended(at: u64, owner: &str, end: End) -> Note {
    Note::Ended { at: at * MS, lock: "fair-0".into(), owner: owner.into(), end }
}

fn fault(kind: Kind, from: u64, until: u64) -> Played {
    let recovery = Some(Duration::from_millis(until - from));
    Played { kind, took_effect: true, from: from * MS, until: until * MS, recovery }
}

fn story(notes: &[Note]) -> Story {
    let mut notes = notes.to_vec();
    notes.push(Note::Done);
    Story { notes, killed: None }
}

#[track_caller]
fn finds(notes: &[Note], faults: &[Played], wanted: &[&str]) -> Judgement {
    let found = judge(&[story(notes)], faults);
    assert_eq!(found.violations.len(), wanted.len(), "{:#?}", found.violations);
    for (violation, part) in found.violations.iter().zip(wanted) {
        assert!(violation.contains(part), "{violation}");
    }
    found
}

#[test]
fn turns_in_order_are_sound() {
    let notes = [
        granted(10, "a:1", 1),
        placed(12, "b:1"),
        placed(14, "c:1"),
        ended(20, "a:1", End::Released),
        asked_and_granted(11, 21, "b:1", 2),
        ended(22, "b:1", End::Released),
        asked_and_granted(13, 23, "c:1", 3),
        ended(24, "c:1", End::Released),
    ];
    let found = finds(&notes, &[], &[]);
    assert_eq!((found.acquisitions, found.ordered), (3, 3));
}

#[test]
fn two_holders_are_excused_by_a_loss_of_state_only() {
    let notes = [
        granted(10, "a:1", 1),
        granted(15, "b:1", 2),
        ended(20, "a:1", End::Released),
        ended(21, "b:1", End::Released),
    ];
    finds(&notes, &[], &["while a:1 held it"]);
    finds(&notes, &[fault(Kind::ConnectionsKilled, 11, 14)], &["while a:1 held it"]);
    finds(&notes, &[fault(Kind::TailLost, 16, 18)], &["while a:1 held it"]);
    assert_eq!(finds(&notes, &[fault(Kind::TailLost, 11, 14)], &[]).overlaps, 1);
}

/// A hold that was lost unnoticed ends when it was last seen valid.
#[test]
fn a_lost_hold_ends_when_it_was_last_valid() {
    let notes = [
        granted(10, "a:1", 1),
        ended(15, "a:1", End::Lost),
        granted(16, "b:1", 2),
        ended(20, "b:1", End::Released),
    ];
    finds(&notes, &[], &["without a fault that explains it"]);
    finds(&notes, &[fault(Kind::ConnectionsKilled, 9, 20)], &["without a fault"]);
    assert_eq!(finds(&notes, &[fault(Kind::Restarted, 9, 2_000)], &[]).lost, 1);
}

#[test]
fn who_asked_later_comes_later() {
    let notes = [
        granted(10, "a:1", 1),
        placed(12, "b:1"),
        ended(20, "a:1", End::Released),
        granted(21, "c:1", 2),
        ended(22, "c:1", End::Released),
        granted(23, "b:1", 3),
        ended(24, "b:1", End::Released),
    ];
    finds(&notes, &[], &["while b:1 stood"]);
    let before = fault(Kind::ConnectionsKilled, 5, 8);
    let found = finds(&notes, &[before], &[]);
    assert_eq!(found.ordered, 0, "nothing was judged");
    // Long over.
    let mut late = notes.clone();
    for note in &mut late {
        match note {
            Note::Granted { at, asked, .. } | Note::Placed { at, asked, .. } => {
                *at += 60_000 * MS;
                *asked += 60_000 * MS;
            }
            Note::Ended { at, .. } => *at += 60_000 * MS,
            _ => {}
        }
    }
    finds(&late, &[before], &["while b:1 stood"]);
}

#[test]
fn who_was_asking_at_the_same_time_may_come_first() {
    let notes = [
        granted(10, "a:1", 1),
        placed(12, "b:1"),
        ended(20, "a:1", End::Released),
        asked_and_granted(11, 21, "c:1", 2),
        ended(22, "c:1", End::Released),
        granted(23, "b:1", 3),
        ended(24, "b:1", End::Released),
    ];
    finds(&notes, &[], &[]);
}

#[test]
fn tokens_rise_whatever_happens() {
    let notes = [
        granted(10, "a:1", 5),
        ended(12, "a:1", End::Released),
        granted(15, "b:1", 4),
        ended(16, "b:1", End::Released),
    ];
    finds(&notes, &[fault(Kind::TailLost, 9, 20)], &["token 4 came after token 5"]);
}

#[test]
fn the_resource_tells_on_both() {
    let wrote = |owner: &str, token, accepted, valid| {
        let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
        Note::Wrote { at: 11 * MS, lock, owner, token, accepted, valid }
    };
    let holds = [granted(10, "a:1", 1), ended(12, "a:1", End::Released)];
    let with = |note| [&holds[..], &[note]].concat();
    finds(&with(wrote("a:1", 1, true, true)), &[], &[]);
    finds(&with(wrote("a:1", 1, false, true)), &[], &["its guard valid"]);
    assert_eq!(finds(&with(wrote("a:1", 1, false, false)), &[], &[]).fenced_off, 1);
    let both = [&holds[..], &[wrote("a:1", 1, true, true), wrote("b:1", 1, true, true)]].concat();
    finds(&both, &[fault(Kind::TailLost, 9, 20)], &["both have token 1"]);
}

#[test]
fn nobody_is_left_behind() {
    finds(&[placed(10, "a:1")], &[], &["never served"]);
    let dead =
        Story { notes: vec![placed(10, "a:1"), granted(11, "b:1", 1)], killed: Some(20 * MS) };
    let next = story(&[granted(25, "c:1", 2), ended(26, "c:1", End::Released)]);
    assert_eq!(judge(&[dead, next], &[]).violations, Vec::<String>::new());
    let late = Story { notes: vec![placed(21, "a:1")], killed: Some(20 * MS) };
    assert_eq!(judge(&[late], &[]).violations, Vec::<String>::new(), "placed as it was killed");
    let hung = Story { notes: vec![], killed: None };
    assert_eq!(judge(&[hung], &[]).violations.len(), 1);
    let odd = Note::Failed { at: 1, lock: "fair-0".into(), kind: "Protocol".into() };
    finds(&[odd], &[], &["failed with Protocol"]);
}
