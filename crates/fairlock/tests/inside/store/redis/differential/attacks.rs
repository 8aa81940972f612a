//! Interleavings that broke drafts of the protocol, as far as the keys show them.

use super::fixture::Fixture;
use super::run::{Run, START_US, Seen, owner};
use super::step::{JavaAct, Named, Place, Step, Who};
use fairlock_core::{Kind, Mode, Rules, Snapshot};
use fairlock_testkit::server::Generation;

const JAVA_WAITS: JavaAct = JavaAct::Acquire { wait_ms: 300_000, lease_ms: 30_000 };

fn acquire(owner: u64, place: Place) -> Step {
    Step::acquire(owner, Mode::Wait, place, true)
}

fn leave(owner: u64) -> Step {
    let who = Who::Owner(owner);
    Step::Leave { kind: Kind::Fair, who, request: 0, bury: false, shared: false }
}

const RELEASE: Step =
    Step::Release { kind: Kind::Fair, who: Who::Holder, token: Named::Last, keep: 0, change: 1 };

/// Plays the steps on both sides and returns what is stored afterwards.
#[track_caller]
fn after(fixture: &mut Fixture, steps: &[Step]) -> Snapshot {
    fixture.reset(START_US);
    let mut seen = Seen::new();
    let mut run = Run::new(fixture, Rules::default(), Snapshot::default(), &mut seen);
    for step in steps {
        run.step(step).unwrap_or_else(|story| panic!("{step:?}: {story}"));
    }
    run.core().snapshot().clone()
}

/// A6: a waiter that left stayed listed with the score 0. A Java client computed its own score from
/// that tail, which gave a time in 1970, and was dropped without a message. Leaving now removes the
/// entry at once.
#[test]
fn a06_who_leaves_is_nobodys_tail() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let java = Step::Java { waiter: 0, act: JAVA_WAITS };
    let keys =
        after(&mut fixture, &[acquire(0, Place::New), acquire(1, Place::New), leave(1), java]);
    assert_eq!(keys.queue.len(), 1, "{keys:#?}");
    let score = *keys.scores.values().next().expect("Java's score");
    // What remains of the hold plus Java's own allowance, as if nobody had waited.
    assert_eq!(score, (START_US / 1_000 + 30_000 + 300_000) as i64);
    assert_eq!(keys.scores.len(), 1);
}

/// A7: an owner that came back while its old entry was still listed overtook others, or stood twice
/// with one score, which blocks Java for ever. An owner has one entry, whatever it sends.
#[test]
fn a07_an_owner_stands_once_and_keeps_its_place() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let keys = after(
        &mut fixture,
        &[
            acquire(0, Place::New),
            acquire(1, Place::New),
            Step::Java { waiter: 0, act: JAVA_WAITS },
            acquire(2, Place::New),
            acquire(1, Place::New),
            acquire(1, Place::Old),
            acquire(1, Place::Ago(9_000_000)),
            leave(2),
            acquire(2, Place::Old),
            acquire(2, Place::New),
        ],
    );
    assert_eq!(keys.queue.len(), 3, "{keys:#?}");
    assert_eq!(keys.queue[0], owner(1), "{keys:#?}");
    assert!(keys.queue.iter().all(|member| keys.scores.contains_key(member)));
    assert_eq!(keys.scores.len(), 3);
}

/// A21: a Java queue inherits a TTL that we once set on the shared queue keys and vanishes a day
/// later; list and set may also expire separately. The two keys have a TTL only while no foreign
/// waiter is queued, and always the same one.
#[test]
fn a21_a_java_waiter_makes_the_queue_keys_persistent() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let start = [acquire(0, Place::New), acquire(1, Place::New)];
    let ours = after(&mut fixture, &start);
    assert_eq!(ours.queue_expires, Some(START_US / 1_000 + 86_400_000));
    assert_eq!(ours.scores_expires, ours.queue_expires);
    let mut steps = start.to_vec();
    steps.push(Step::Java { waiter: 0, act: JAVA_WAITS });
    for meets in [Step::Beat { client: 1, waiters: vec![1] }, acquire(2, Place::New)] {
        let mut steps = steps.clone();
        steps.push(meets);
        let mixed = after(&mut fixture, &steps);
        assert_eq!((mixed.queue_expires, mixed.scores_expires), (None, None), "{mixed:#?}");
    }
}

/// A22: Java's INCR keeps the TTL that our grant gave the token key, so its series restarts at 1
/// when the key expires. A grant beside a Java waiter makes the key persistent, and it stays
/// persistent. The series also rises above what Java wrote, even when the clock is set back.
#[test]
fn a22_a_token_series_beside_java_never_ends() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let alone = after(&mut fixture, &[acquire(0, Place::New)]);
    assert_eq!(alone.token_expires, Some(START_US / 1_000 + 86_400_000));
    let mut steps = vec![
        acquire(0, Place::New),
        acquire(1, Place::New),
        Step::Java { waiter: 0, act: JAVA_WAITS },
        RELEASE,
    ];
    let beside = after(&mut fixture, &steps);
    assert_eq!(beside.hold.keys().next(), Some(&owner(1)), "{beside:#?}");
    assert_eq!(beside.token_expires, None, "{beside:#?}");
    steps.extend([
        Step::Java { waiter: 0, act: JavaAct::Leave { wait_ms: 300_000 } },
        Step::Meddle(super::step::Fault::TokenAhead(1)),
        Step::Time(-3_600_000_000),
        RELEASE,
        acquire(2, Place::New),
    ]);
    let later = after(&mut fixture, &steps);
    assert_eq!(later.token_expires, None, "{later:#?}");
    assert_eq!(later.token, beside.token.map(|token| token + 2), "{later:#?}");
}
