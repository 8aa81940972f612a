//! The latch: its rules, one by one, and what waiters conclude in random histories.

use fairlock_core::{
    Acquire, Body, Channel, ClientId, CoreError, Kind, LATCH_COUNT_MAX, LATCH_NOTE_MS, LatchFate,
    LatchOp, LatchRequest, LatchSeen, LockState, Mode, Op, Opened, OwnerId, Payload, RequestId,
    Rules, SimpleValue, Snapshot, World, latch_fate,
};
use std::collections::BTreeMap;

const START_US: u64 = 1_760_000_000_000_000;

/// For how long copies of a request are sent.
const COPIES_MS: u64 = 30_000;

struct Nobody;

/// Xorshift: the same seed makes the same choices.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}

impl World for Nobody {
    fn inbox(&self, _: ClientId) -> bool {
        false
    }

    fn listening(&self, _: &OwnerId) -> bool {
        false
    }
}

struct Lab {
    state: LockState,
    now_us: u64,
    requests: u128,
    told: Vec<Payload>,
}

impl Lab {
    fn new() -> Self {
        Self { state: LockState::default(), now_us: START_US, requests: 0, told: Vec::new() }
    }

    /// One whose copies are sent for 30 s from now.
    fn request(&mut self) -> LatchRequest {
        self.requests += 1;
        let id = RequestId::from_random(self.requests);
        LatchRequest { id, not_after_ms: self.now_us / 1_000 + COPIES_MS }
    }

    /// A copy arrives too late, and nothing is done.
    fn is_late(&mut self, op: LatchOp) {
        let (rules, before) = (Rules::default(), self.state.latch().cloned());
        let value = self.state.snapshot().value.clone();
        let done = self.state.apply(self.now_us, &Op::Latch(op), &rules, &Nobody).unwrap();
        assert_eq!((done.0.body, done.1), (Body::TooLate, Vec::new()));
        assert_eq!(self.state.latch().map(|it| &it.note), before.as_ref().map(|it| &it.note));
        assert_eq!(self.state.snapshot().value, value);
    }

    fn run(&mut self, op: LatchOp) -> Result<LatchSeen, CoreError> {
        let rules = Rules::default();
        let (answer, effects) = self.state.apply(self.now_us, &Op::Latch(op), &rules, &Nobody)?;
        assert!(effects.iter().all(|effect| effect.channel == Channel::Latch));
        self.told.extend(effects.into_iter().map(|effect| effect.payload));
        let Body::Latch(seen) = answer.body else { panic!("{:?}", answer.body) };
        Ok(seen)
    }

    fn set(&mut self, count: u64) -> LatchSeen {
        let request = self.request();
        self.run(LatchOp::Set { count, request }).unwrap()
    }

    fn count_down(&mut self) -> LatchSeen {
        let request = self.request();
        self.run(LatchOp::CountDown { request }).unwrap()
    }

    fn delete(&mut self) -> LatchSeen {
        let request = self.request();
        self.run(LatchOp::Delete { request }).unwrap()
    }

    fn look(&mut self, waiting: Option<u64>) -> LatchSeen {
        self.run(LatchOp::Look { waiting }).unwrap()
    }

    /// What Redisson does to the count; it knows nothing of our note.
    fn java(&mut self, change: impl FnOnce(Option<u64>) -> Option<u64>) {
        let latch = self.state.take_latch();
        let before = match &self.state.snapshot().value {
            Some(SimpleValue::Foreign(text)) => std::str::from_utf8(text).unwrap().parse().ok(),
            _ => None,
        };
        let value = change(before).map(|n| SimpleValue::Foreign(n.to_string().into_bytes().into()));
        self.state = LockState::from_snapshot(Snapshot { value, ..Snapshot::default() });
        self.state.put_latch(latch);
    }
}

#[test]
fn a_latch_is_set_once_and_counted_down() {
    let mut lab = Lab::new();
    assert!(lab.set(2).done);
    assert!(!lab.set(5).done, "it is set");
    assert_eq!(lab.count_down().count, 1);
    let opened = lab.count_down();
    assert_eq!((opened.count, opened.opened), (0, opened.generation));
    assert!(!lab.count_down().done, "it is open");
    assert_eq!(lab.told, [Payload::One, Payload::Zero]);
    let again = lab.set(1);
    assert!(again.done && again.generation > opened.generation);
    assert_eq!(again.opened, opened.opened);
}

/// B40: the reply is lost and the same request is sent again, once or a hundred times.
#[test]
fn b40_a_request_counts_once() {
    let mut lab = Lab::new();
    let request = lab.request();
    for _ in 0..3 {
        let seen = lab.run(LatchOp::Set { count: 3, request }).unwrap();
        assert_eq!((seen.done, seen.count), (true, 3), "its own copy");
    }
    let request = lab.request();
    for _ in 0..100 {
        assert_eq!(lab.run(LatchOp::CountDown { request }).unwrap().count, 2);
    }
    lab.now_us += Rules::default().bury_ms * 1_000;
    assert_eq!(lab.run(LatchOp::CountDown { request }).unwrap().count, 2, "the last moment");
    let other = lab.request();
    assert!(lab.run(LatchOp::Delete { request: other }).unwrap().done);
    assert!(lab.set(7).done);
    assert!(lab.run(LatchOp::Delete { request: other }).unwrap().done, "as the first copy");
    assert_eq!(lab.look(None).count, 7);
    // A copy that is refused at first stays refused: it does not set the next latch.
    let late = lab.request();
    assert!(!lab.run(LatchOp::Set { count: 1, request: late }).unwrap().done);
    lab.delete();
    assert!(!lab.run(LatchOp::Set { count: 1, request: late }).unwrap().done);
    assert_eq!(lab.look(None).count, 0);
}

/// A count-down was carried out and its reply lost. Copies were sent for 30 s, the last one lay for 12 s
/// in a server that was stopped: by then the marker of 36 s was gone, and it counted again. No copy is
/// carried out after the moment until which copies are sent, and the marker lasts until then, whatever
/// clock the client took that moment from.
#[test]
fn a_copy_that_outlives_the_marker_does_not_count_again() {
    for ahead_ms in [0, 3_600_000] {
        let mut lab = Lab::new();
        lab.set(3);
        let mut request = lab.request();
        request.not_after_ms += ahead_ms;
        assert_eq!(lab.run(LatchOp::CountDown { request }).unwrap().count, 2);
        lab.now_us = (request.not_after_ms) * 1_000;
        assert_eq!(lab.run(LatchOp::CountDown { request }).unwrap().count, 2, "the last moment");
        lab.now_us += 12_000_000;
        lab.is_late(LatchOp::CountDown { request });
        lab.is_late(LatchOp::Delete { request });
        assert_eq!(lab.look(None).count, 2);
    }
}

/// The only copy of a request lay on the network until after its client had given it up. Others had set
/// the latch and counted it down; it was closed again, and nobody was left to open it.
#[test]
fn a_latch_is_not_set_by_a_request_that_was_given_up() {
    let mut lab = Lab::new();
    let request = lab.request();
    lab.set(1);
    lab.count_down();
    lab.now_us += COPIES_MS * 1_000;
    let mut last = lab.state.clone();
    lab.now_us += 1_000;
    lab.is_late(LatchOp::Set { count: 2, request });
    assert!(lab.set(1).done);
    // The last moment counts.
    std::mem::swap(&mut lab.state, &mut last);
    lab.now_us -= 1_000;
    assert!(lab.run(LatchOp::Set { count: 2, request }).unwrap().done);
}

/// Another copy gets the result of the first one: of deleting what was not there, of setting a latch that
/// others have used up and set anew since, of the last count-down.
#[test]
fn another_copy_gets_the_result_of_the_first() {
    let mut lab = Lab::new();
    let (absent, set, last) = (lab.request(), lab.request(), lab.request());
    assert!(!lab.run(LatchOp::Delete { request: absent }).unwrap().done);
    assert!(lab.run(LatchOp::Set { count: 1, request: set }).unwrap().done);
    assert_eq!(lab.run(LatchOp::CountDown { request: last }).unwrap().count, 0);
    lab.set(5);
    assert!(!lab.run(LatchOp::Delete { request: absent }).unwrap().done);
    let again = lab.run(LatchOp::Set { count: 1, request: set }).unwrap();
    assert_eq!((again.done, again.count), (true, 1));
    let again = lab.run(LatchOp::CountDown { request: last }).unwrap();
    assert_eq!((again.done, again.count), (true, 0));
    assert_eq!(lab.look(None).count, 5);
}

/// B42: the count is gone, and nothing says that it was counted down.
#[test]
fn b42_a_lost_latch_is_gone() {
    let mut lab = Lab::new();
    let generation = lab.set(2).generation;
    lab.state = LockState::default();
    let seen = lab.look(generation);
    assert_eq!(latch_fate(generation, &seen, false), LatchFate::Over(Opened::Gone));
    // A message may have been about another latch that was lost as well.
    assert_eq!(latch_fate(generation, &seen, true), LatchFate::Over(Opened::Gone));
    assert_eq!(latch_fate(None, &seen, false), LatchFate::Over(Opened::Gone), "never set");
}

#[test]
fn who_waits_for_a_former_latch_does_not_wait_for_the_next() {
    for counted in [true, false] {
        let mut lab = Lab::new();
        let former = lab.set(1).generation;
        if counted {
            lab.count_down();
        } else {
            lab.delete();
        }
        lab.set(4);
        let seen = lab.look(former);
        let opened = if counted { Opened::CountedDown } else { Opened::Gone };
        assert_eq!(latch_fate(former, &seen, false), LatchFate::Over(opened));
        assert_eq!(latch_fate(None, &seen, false), LatchFate::Closed(seen.generation.unwrap()));
    }
    // The same where Java sets the next one: our note says that the former one is open.
    let mut lab = Lab::new();
    let former = lab.set(1).generation;
    lab.count_down();
    lab.java(|_| Some(3));
    let seen = lab.look(former);
    assert_eq!(latch_fate(former, &seen, false), LatchFate::Over(Opened::CountedDown));
    assert!(seen.generation > former);
}

/// The latch that somebody waited for was deleted, or lost with the data, and the next one of the name was
/// set and counted down at once: its message was taken for the end of the former one.
#[test]
fn the_end_of_a_later_latch_is_not_taken_for_ones_own() {
    for lost in [true, false] {
        let mut lab = Lab::new();
        let former = lab.set(3).generation;
        lab.count_down();
        if lost {
            lab.state = LockState::default();
            lab.now_us += 1_000;
        } else {
            lab.delete();
        }
        lab.set(1);
        lab.count_down();
        assert_eq!(lab.told.last(), Some(&Payload::Zero));
        let seen = lab.look(former);
        assert_eq!(latch_fate(former, &seen, true), LatchFate::Over(Opened::Gone), "{lost}");
    }
    // Java counts the next one down: no note is about it.
    let mut lab = Lab::new();
    lab.set(1);
    lab.count_down();
    lab.java(|_| Some(1));
    let LatchFate::Closed(mine) = latch_fate(None, &lab.look(Some(0)), false) else {
        panic!("it is closed");
    };
    // D60: it was counted down and set anew before the next look.
    let seen = lab.look(Some(mine));
    assert_eq!(latch_fate(Some(mine), &seen, true), LatchFate::Over(Opened::CountedDown));
    assert_eq!(latch_fate(None, &seen, true), LatchFate::Closed(mine));
    lab.java(|_| None);
    let seen = lab.look(Some(mine));
    assert_eq!(latch_fate(Some(mine), &seen, true), LatchFate::Over(Opened::CountedDown));
    assert_eq!(latch_fate(Some(mine), &seen, false), LatchFate::Over(Opened::Gone));
    // Who has not seen it closed was told nothing about it.
    assert_eq!(latch_fate(None, &seen, true), LatchFate::Over(Opened::Gone));
}

/// The note is lost and the count is not: an eviction takes what has a TTL.
#[test]
fn waiters_mend_a_lost_note() {
    let mut lab = Lab::new();
    let generation = lab.set(2).generation;
    lab.state.put_latch(None);
    lab.now_us += 1_000_000;
    let seen = lab.look(generation);
    assert_eq!(latch_fate(generation, &seen, false), LatchFate::Closed(generation.unwrap()));
    // They keep it, however long they wait.
    for _ in 0..5 {
        lab.now_us += LATCH_NOTE_MS * 1_000 * 3 / 4;
        let seen = lab.look(generation);
        assert_eq!(latch_fate(generation, &seen, false), LatchFate::Closed(generation.unwrap()));
    }
    lab.count_down();
    let seen = lab.count_down();
    assert_eq!(latch_fate(generation, &seen, false), LatchFate::Over(Opened::CountedDown));
    // Nothing of ours stays for ever.
    lab.now_us += LATCH_NOTE_MS * 1_000 + 1_000;
    assert_eq!(lab.look(None), LatchSeen::default());
    assert!(lab.state.is_idle());
}

#[test]
fn what_is_no_latch_is_refused_and_no_latch_is_a_lock() {
    for text in ["", "0", "-1", "1.5", "07", "x", "9007199254740992", "12345678901234567"] {
        let mut lab = Lab::new();
        let value = Some(SimpleValue::Foreign(text.as_bytes().into()));
        let before = LockState::from_snapshot(Snapshot { value, ..Snapshot::default() });
        lab.state = before.clone();
        let request = lab.request();
        for op in [
            LatchOp::Set { count: 1, request },
            LatchOp::CountDown { request },
            LatchOp::Delete { request },
            LatchOp::Look { waiting: None },
            LatchOp::Look { waiting: Some(0) },
        ] {
            assert_eq!(lab.run(op), Err(CoreError::NotALatch), "{text}");
            assert_eq!(lab.state, before);
        }
    }
    let mut lab = Lab::new();
    assert_eq!(lab.set(LATCH_COUNT_MAX).count, LATCH_COUNT_MAX);
    let acquire = |kind| {
        Op::Acquire(Acquire {
            kind,
            owner: OwnerId::ours(ClientId::from_random(1), 1).unwrap(),
            request: RequestId::from_random(999),
            lease_ms: 1_000,
            mode: Mode::Try,
            order: None,
            not_after_ms: u64::MAX,
            sure: false,
            shared_owner: false,
        })
    };
    let (rules, now) = (Rules::default(), lab.now_us);
    let mut ask = |op| lab.state.apply(now, &op, &rules, &Nobody);
    assert_eq!(ask(acquire(Kind::Fair)).unwrap_err(), CoreError::WrongType);
    let (answer, _) = ask(acquire(Kind::Simple)).unwrap();
    assert!(matches!(answer.body, Body::Taken { foreign: true, .. }));
    assert!(matches!(ask(Op::Force { kind: Kind::Simple }), Err(CoreError::NotALock(_))));
    let mut lab = Lab::new();
    lab.state.apply(now, &acquire(Kind::Fair), &rules, &Nobody).unwrap();
    assert_eq!(lab.run(LatchOp::Look { waiting: None }), Err(CoreError::WrongType));
    lab.now_us += 1_001_000;
    assert!(lab.set(1).done, "the lock's lease is over");
}

/// Waiters of ours look at random moments; messages arrive before the next look, or are lost. Nobody is told that a latch was
/// counted down that was not, and who looks after the end learns of it.
#[test]
fn waiters_never_believe_a_latch_counted_down_that_was_not() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let mut lab = Lab::new();
        // Per generation: whether it was counted down, once it is over.
        let mut ended: BTreeMap<u64, bool> = BTreeMap::new();
        let mut present = None;
        let mut waiters: Vec<u64> = Vec::new();
        for _ in 0..60 {
            lab.now_us += 1 + rng.below(3_000_000);
            match rng.below(10) {
                0 | 1 => {
                    let seen = lab.set(1 + rng.below(3));
                    if seen.done {
                        present = seen.generation;
                    }
                }
                2..=5 => {
                    let seen = lab.count_down();
                    if seen.done && seen.count == 0 {
                        ended.insert(present.take().unwrap(), true);
                    }
                }
                6 => {
                    if lab.delete().done {
                        ended.insert(present.take().unwrap(), false);
                    }
                }
                7 => lab.state.put_latch(None),
                _ => {
                    let known = waiters.iter().max().copied().unwrap_or(0);
                    let seen = lab.look(Some(known));
                    let told = match seen.count {
                        0 => lab.told.contains(&Payload::Zero),
                        _ => lab.told.first() == Some(&Payload::Zero),
                    };
                    let heard = told && rng.below(3) > 0;
                    lab.told.clear();
                    waiters.retain(|mine| match latch_fate(Some(*mine), &seen, heard) {
                        LatchFate::Closed(generation) => generation == *mine,
                        LatchFate::Over(opened) => {
                            let was = ended.get(mine).copied();
                            assert!(
                                opened == Opened::Gone || was == Some(true),
                                "seed {seed}: {mine} is {was:?}"
                            );
                            false
                        }
                    });
                    if let LatchFate::Closed(generation) = latch_fate(None, &seen, false) {
                        if present.is_some_and(|known| known != generation) {
                            // Its note was lost: it has another number now.
                            present = Some(generation);
                        }
                        waiters.push(generation);
                    }
                }
            }
        }
    }
}
