//! A Java head whose score has passed: Redisson drops it at once, although its clock may merely be
//! behind.

use crate::client::Flaw;
use crate::java;
use crate::lab::{lab, wanted};
use crate::sim::Sim;
use crate::support::{Ears, client, ours};
use fairlock_core::{Acquire, LockState, Op, Rules, Snapshot, Watch};

/// x (client 1) holds the lock, J waits with a clock ten minutes behind, and w (client 2) waits
/// behind J.
fn behind_a_slow_clock() -> Sim {
    let mut sim = lab(2, Flaw::None);
    sim.java.ahead = -600_000;
    sim.start(0);
    assert!(matches!(sim.java_acquires(), java::Reply::Sleep(_)));
    let score = sim.keys().scores[&sim.java.id];
    assert!(score < i64::try_from(sim.now).unwrap(), "it has passed");
    sim.start(1);
    sim
}

/// The release used to drop J, so w overtook it: J came back at the tail.
#[test]
fn one_that_listens_is_told_and_keeps_its_turn() {
    let mut sim = behind_a_slow_clock();
    sim.subscribe_java(true);
    sim.release(0);
    assert_eq!((sim.java.told, sim.holder()), (1, None));
    for _ in 0..7 {
        sim.pass(1_000);
        sim.beat(1);
        assert_eq!(sim.holder(), None);
    }
    assert_eq!(sim.java.told, 8, "it is told again, once in a second");
    assert_eq!(sim.java_acquires(), java::Reply::Acquired);
    assert_eq!(sim.check(), Ok(()));
}

/// Any other head that listens keeps the lock free for as long as its score lasts. This one's score
/// is over: its patience does not start anew.
#[test]
fn one_that_listens_and_does_not_come_is_dropped_in_time() {
    let mut sim = behind_a_slow_clock();
    sim.subscribe_java(true);
    sim.release(0);
    sim.pass_beating(8_000, &[1]);
    sim.beat(1);
    assert_eq!(sim.holding_client(), Some(client(2)));
    assert!(!sim.keys().queue.contains(&sim.java.id));
    assert_eq!(sim.check(), Ok(()));
}

#[test]
fn one_that_nobody_hears_is_dropped_at_once() {
    let mut sim = behind_a_slow_clock();
    sim.release(0);
    assert_eq!(sim.holding_client(), Some(client(2)));
    assert!(!sim.keys().queue.contains(&sim.java.id));
}

/// A Java thread was offered the lock, took it, released it and entered anew. One of our waiters,
/// dropped meanwhile by a Java clock that is ahead, was put behind that entry as if it were on
/// offer, and was overtaken: found by random rounds beside Redisson.
#[test]
fn a_new_entry_of_one_that_was_offered_the_lock_is_not_on_offer() {
    const NOW_MS: u64 = 1_700_000_000_000;
    let j = crate::support::java(1);
    let entered = |score: i64| {
        let watch = Watch { id: j.clone(), score: 500, since: NOW_MS - 90, pinged: NOW_MS - 90 };
        let mut keys = Snapshot {
            hold: [(ours(1, 1), 1)].into(),
            hold_expires: Some(NOW_MS + 30_000),
            queue: [j.clone()].into(),
            scores: [(j.clone(), score)].into(),
            state_expires: Some(NOW_MS + 60_000),
            ..Snapshot::default()
        };
        keys.record.watch = Some(watch);
        // Not a loss of everything: a removal is on record.
        keys.record.removed = Some(NOW_MS - 50);
        let mut lock = LockState::from_snapshot(keys);
        let order = Some((NOW_MS - 1_000) * 1_000);
        let back = Acquire { order, sure: true, ..wanted(&ours(2, 1), 7, NOW_MS) };
        let back = Op::Acquire(back);
        lock.apply(NOW_MS * 1_000, &back, &Rules::default(), &Ears::default()).unwrap();
        lock.snapshot().queue.iter().position(|member| *member == ours(2, 1))
    };
    assert_eq!(entered(500), Some(1), "the entry that was offered it is before ours");
    assert_eq!(entered(600), Some(0), "a later one is not");
}
