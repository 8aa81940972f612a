//! Heartbeats that are answered without being applied.

use crate::lab::{T0, wanted};
use crate::support::{Ears, client, java, ours};
use fairlock_core::{
    Answer, Body, Kind, LockState, Op, REGISTRY_TTL_MS, Rules, SILENT_REGISTRY_TTL_MS, Snapshot,
};

/// The TTL that the registry must have left.
const KEPT_MS: u64 = REGISTRY_TTL_MS;

/// Damages a queue in one way.
type Wear = fn(&mut Snapshot);

/// One of the TTLs.
type Ttl = fn(&mut Snapshot) -> &mut Option<u64>;

fn rules() -> Rules {
    Rules { ages: false, ..Rules::default() }
}

/// The first one holds the lock, and three wait.
fn queue() -> LockState {
    let mut lock = LockState::default();
    for number in 1..=4 {
        let op = Op::Acquire(wanted(&ours(number, 1), number, T0));
        lock.apply(T0 * 1_000 + number, &op, &rules(), &Ears::default()).unwrap();
    }
    lock
}

fn quiet(lock: &LockState, now_ms: u64, rules: &Rules, ears: &Ears, who: u64) -> Option<Answer> {
    lock.quiet_beat(now_ms * 1_000, client(who), &[ours(who, 1)], rules, ears, KEPT_MS)
}

/// The state without what a heartbeat may leave unwritten.
fn without_times(lock: &LockState) -> Snapshot {
    let mut facts = lock.snapshot().clone();
    facts.beats.clear();
    for at in [
        &mut facts.queue_expires,
        &mut facts.scores_expires,
        &mut facts.order_expires,
        &mut facts.state_expires,
        &mut facts.beats_expires,
    ] {
        *at = None;
    }
    // Only Java reads scores, and no waiter is dead by age at these times.
    facts.scores.values_mut().for_each(|score| *score = 0);
    (facts.record.amnesty, facts.record.silence) = (None, None);
    facts
}

#[test]
fn a_quiet_answer_is_what_applying_gives_and_nothing_but_times_changes() {
    let ears = Ears::default();
    for who in 1..=4 {
        for later_ms in [1, 2_000, 10_000, 29_999] {
            let mut lock = queue();
            let now_ms = T0 + later_ms;
            let Some(answer) = quiet(&lock, now_ms, &rules(), &ears, who) else {
                // The holder does not wait.
                assert_eq!(who, 1, "after {later_ms} ms");
                continue;
            };
            let before = without_times(&lock);
            let op = Op::Beat { client: client(who), waiters: vec![ours(who, 1)] };
            let (applied, effects) = lock.apply(now_ms * 1_000, &op, &rules(), &ears).unwrap();
            assert_eq!((answer, effects), (applied, Vec::new()), "{who} after {later_ms} ms");
            assert_eq!(without_times(&lock), before, "{who} after {later_ms} ms");
        }
    }
}

#[test]
fn a_heartbeat_with_something_to_do_is_not_quiet() {
    let now_ms = T0 + 1_000;
    let ears = Ears::default();
    assert!(quiet(&queue(), now_ms, &rules(), &ears, 2).is_some());
    assert!(quiet(&queue(), now_ms, &Rules::default(), &ears, 2).is_none(), "ages count");
    assert!(quiet(&queue(), now_ms, &rules(), &ears, 9).is_none(), "it does not stand there");
    assert!(quiet(&queue(), T0 + 30_001, &rules(), &ears, 2).is_none(), "the lease is over");
    let dead = Ears { gone: [client(1)].into(), ..Ears::default() };
    assert!(quiet(&queue(), now_ms, &rules(), &dead, 2).is_none(), "the holder is gone");

    let wear: [(&str, Wear); 8] = [
        ("it is free", |facts| facts.hold.clear()),
        ("its hold has no end", |facts| facts.hold_expires = None),
        ("Java holds it", |facts| facts.hold = [(java(7), 1)].into()),
        ("Java waits", |facts| {
            facts.queue.push_back(java(7));
            facts.scores.insert(java(7), (T0 + 300_000).cast_signed());
        }),
        ("scores and list differ", |facts| facts.scores.retain(|owner, _| *owner != ours(4, 1))),
        ("the order is lost", |facts| facts.order.clear()),
        ("the token is over", |facts| facts.token_expires = Some(T0)),
        ("no token is left", |facts| facts.token = Some(fairlock_core::TOKEN_LIMIT)),
    ];
    for (what, wear) in wear {
        let mut facts = queue().snapshot().clone();
        wear(&mut facts);
        let lock = LockState::from_snapshot(facts);
        assert!(quiet(&lock, now_ms, &rules(), &ears, 2).is_none(), "{what}");
    }
}

/// Each TTL that waiting rests on is renewed in time by a heartbeat that is applied.
#[test]
fn the_registry_is_kept() {
    let expiring: [(&str, Ttl); 5] = [
        ("queue", |facts| &mut facts.queue_expires),
        ("scores", |facts| &mut facts.scores_expires),
        ("order", |facts| &mut facts.order_expires),
        ("state", |facts| &mut facts.state_expires),
        ("beats", |facts| &mut facts.beats_expires),
    ];
    let (now_ms, ears) = (T0 + 1_000, Ears::default());
    for (what, at) in expiring {
        for (left_ms, is_quiet) in [(KEPT_MS, true), (KEPT_MS - 1, false)] {
            let mut facts = queue().snapshot().clone();
            *at(&mut facts) = Some(now_ms + left_ms);
            let mut lock = LockState::from_snapshot(facts);
            let answer = quiet(&lock, now_ms, &rules(), &ears, 2);
            assert_eq!(answer.is_some(), is_quiet, "{what}: {left_ms} ms");
            let op = Op::Beat { client: client(2), waiters: vec![ours(2, 1)] };
            lock.apply(now_ms * 1_000, &op, &rules(), &ears).unwrap();
            let kept = at(&mut lock.snapshot().clone()).unwrap() - now_ms;
            assert!(kept >= SILENT_REGISTRY_TTL_MS, "{what}: {kept} ms");
        }
    }
}

/// Where the age of heartbeats does not count, it does not make a waiter look dead either.
#[test]
fn inspection_shows_who_is_gone_and_not_who_was_silent() {
    let (lock, now_ms) = (queue(), T0 + 50_000_000);
    let ears = Ears { gone: [client(3)].into(), ..Ears::default() };
    let mut facts = lock.snapshot().clone();
    for at in [&mut facts.queue_expires, &mut facts.scores_expires, &mut facts.order_expires] {
        *at = Some(now_ms + 1);
    }
    (facts.hold_expires, facts.state_expires) = (Some(now_ms + 1), Some(now_ms + 1));
    facts.beats_expires = Some(now_ms + 1);
    let mut lock = LockState::from_snapshot(facts);
    let op = Op::Inspect { kind: Kind::Fair, limit: 9 };
    let (answer, _) = lock.apply(now_ms * 1_000, &op, &rules(), &ears).unwrap();
    let Body::Inspected(seen) = answer.body else { panic!("{answer:?}") };
    let ages: Vec<_> = seen.queue.iter().map(|waiter| waiter.beat_age_ms).collect();
    assert_eq!(ages, [Some(0), None, Some(0)]);
}
