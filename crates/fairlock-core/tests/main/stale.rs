//! A Java head whose score has passed: Redisson drops it at once, though it may only have a clock that is
//! behind.

use crate::client::Flaw;
use crate::java;
use crate::lab::lab;
use crate::sim::Sim;
use crate::support::client;

/// x (client 1) holds, J waits with a clock ten minutes behind, and w (client 2) behind it.
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

/// J was dropped by the release, and w overtook it: it came back at the tail.
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

/// Any other head that listens keeps the lock free for as long as its score lasts. This one's is over:
/// its patience is not begun anew.
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
