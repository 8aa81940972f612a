//! Latches: the scripts and the core in random histories, with copies of requests that arrive late, what
//! Redisson does to the count, lost notes and content of others.

use super::fixture::Fixture;
use super::rng::{Rng, seed};
use super::run::START_US;
use crate::store::Topic;
use crate::store::redis::keys;
use fairlock_core::{
    Answer, Body, Channel, Effect, LATCH_COUNT_MAX, Latch, LatchCounted, LatchNote, LatchOp,
    LatchRequest, LockName, LockState, Op, Payload, RequestId, Rules, SimpleValue, Snapshot,
};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;
use std::collections::{BTreeMap, BTreeSet};

const HISTORIES: u64 = 60;
const STEPS: u64 = 60;

/// What is stored: the count's text and TTL, and the rest.
type Stored = (Option<Vec<u8>>, Option<u64>, Option<Latch>);

fn text(fixture: &mut Fixture, command: &[&[u8]]) -> Option<Vec<u8>> {
    match fixture.raw.call(command) {
        Value::Bulk(bytes) => Some(bytes),
        Value::Nil => None,
        other => panic!("{other:?}"),
    }
}

/// The end of a key, if it has one.
fn end_of(fixture: &mut Fixture, key: &[u8]) -> Option<u64> {
    let left = fixture.raw.call(&[b"PTTL", key]).int();
    (left >= 0).then(|| fixture.now_us() / 1_000 + left as u64)
}

fn note_key(fixture: &Fixture) -> Vec<u8> {
    let op = Op::Latch(LatchOp::Look { waiting: None });
    fixture.keys.parts_of(&op)[1].concat()
}

fn on_server(fixture: &mut Fixture, requests: &BTreeSet<RequestId>) -> Stored {
    let (name, key) = (fixture.name.clone(), note_key(fixture));
    let value = text(fixture, &[b"GET", name.as_bytes()]);
    let expires = end_of(fixture, name.as_bytes());
    let note = end_of(fixture, &key).map(|expires| {
        let mut field = |field: &[u8]| {
            let found = text(fixture, &[b"HGET", &key, field]);
            found.map(|found| String::from_utf8(found).expect("digits"))
        };
        let generation = field(b"generation").expect("a note has one").parse().unwrap();
        let opened = field(b"opened").map(|opened| opened.parse().unwrap());
        LatchNote { generation, opened, expires }
    });
    let mut counted = BTreeMap::new();
    for request in requests {
        let op = Op::Latch(LatchOp::Look { waiting: None });
        let marker = fixture.keys.request_parts(&op, &request.to_text()).concat();
        if let Some(until) = end_of(fixture, &marker) {
            let result = text(fixture, &[b"GET", &marker]).expect("a marker");
            let result = String::from_utf8(result).expect("digits");
            let (done, count) = result.split_once(' ').expect("two numbers");
            let (done, count) = (done == "1", count.parse().unwrap());
            counted.insert(*request, LatchCounted { until, done, count });
        }
    }
    let latch = Latch { note, counted };
    (value, expires, (latch != Latch::default()).then_some(latch))
}

fn in_core(core: &mut LockState, now_us: u64) -> Stored {
    // The server has dropped what is over; the core does that with the next operation.
    let look = Op::Latch(LatchOp::Look { waiting: None });
    let _ = core.apply(now_us, &look, &Rules::default(), &super::fixture::Present::default());
    let keys = core.snapshot();
    let value = keys.value.as_ref().map(SimpleValue::to_bytes);
    (value, keys.value_expires, core.latch().cloned())
}

fn published(fixture: &mut Fixture) -> Vec<Effect> {
    let channel = keys::topic(&Topic::Latch(fixture.name.clone()));
    let told = fixture.published().into_iter().map(|(on, payload)| {
        assert_eq!(on.as_bytes(), channel);
        let payload = match payload.as_slice() {
            b"0" => Payload::Zero,
            b"1" => Payload::One,
            other => panic!("{other:?}"),
        };
        Effect { channel: Channel::Latch, payload }
    });
    told.collect()
}

fn play(fixture: &mut Fixture, rng: &mut Rng, seen: &mut BTreeSet<String>) {
    let rules = Rules::default();
    fixture.reset(START_US);
    let mut core = LockState::default();
    let mut requests: BTreeSet<RequestId> = BTreeSet::new();
    let mut sent: Vec<LatchOp> = Vec::new();
    let mut generations = vec![0];
    for _ in 0..STEPS {
        let pause = match rng.below(12) {
            0 => 90_000_000_000,
            1 => 36_000_000,
            _ => rng.below(5_000_000),
        };
        let now_us = fixture.now_us() + pause;
        fixture.set_now(now_us);
        let mut new = || {
            let id = RequestId::from_random(u128::from(rng.below(u64::MAX)) << 40);
            requests.insert(id);
            // Of a client whose clock is right, ahead, or behind.
            let left_ms = rng.pick(&[30_000, 30_000, 30_000, 60_000, 0, 2_000]);
            LatchRequest { id, not_after_ms: now_us / 1_000 + left_ms }
        };
        let request = new();
        let op = match rng.below(14) {
            0..=2 => LatchOp::Set { count: rng.pick(&[1, 2, 3, LATCH_COUNT_MAX]), request },
            3..=6 => LatchOp::CountDown { request },
            7 => LatchOp::Delete { request },
            8 => LatchOp::Look { waiting: None },
            9 | 10 => LatchOp::Look { waiting: Some(rng.pick(&generations)) },
            11 if !sent.is_empty() => rng.pick(&sent),
            12 => {
                // Redisson, or an operator, changes the count; or the note is lost.
                let name = fixture.name.clone();
                let mut keys = Snapshot::default();
                if rng.chance(30) {
                    let note = note_key(fixture);
                    fixture.raw.call(&[b"DEL", note.as_slice()]);
                    let mut latch = core.take_latch();
                    if let Some(latch) = &mut latch {
                        latch.note = None;
                    }
                    core.put_latch(latch.filter(|latch| !latch.counted.is_empty()));
                    continue;
                }
                let foreign =
                    rng.pick(&[None, Some("1"), Some("4"), Some("x"), Some("0"), Some("")]);
                match foreign {
                    None => fixture.raw.call(&[b"DEL", name.as_bytes()]),
                    Some(value) => {
                        keys.value = Some(SimpleValue::Foreign(value.as_bytes().into()));
                        fixture.raw.call(&[b"SET", name.as_bytes(), value.as_bytes()])
                    }
                };
                if keys.value.is_some() && rng.chance(30) {
                    keys.value_expires = Some(now_us / 1_000 + 4_000);
                    fixture.raw.call(&[b"PEXPIRE".as_slice(), name.as_bytes(), b"4000"]);
                }
                let latch = core.take_latch();
                core = LockState::from_snapshot(keys);
                core.put_latch(latch);
                continue;
            }
            _ => LatchOp::CountDown { request },
        };
        sent.push(op.clone());
        let op = Op::Latch(op);
        let ours = core.apply(now_us, &op, &rules, &super::fixture::Present::default());
        let theirs = fixture.call(&rules, &op);
        let told = published(fixture);
        match (ours, theirs) {
            (Ok((answer, effects)), Ok(reply)) => {
                assert_eq!(reply, answer, "{op:?}");
                assert_eq!(told, effects, "{op:?}");
                note(&answer, &mut generations, seen);
            }
            (Err(error), Err(reply)) => {
                assert!(reply.contains("FAIRLOCK_KIND"), "{reply} for {error}");
                assert_eq!(told, []);
                seen.insert("refused".into());
            }
            other => panic!("{op:?}: {other:?}"),
        }
        assert_eq!(on_server(fixture, &requests), in_core(&mut core, now_us), "{op:?}");
    }
}

fn note(answer: &Answer, generations: &mut Vec<u64>, seen: &mut BTreeSet<String>) {
    let latch = match &answer.body {
        Body::Latch(latch) => latch,
        Body::TooLate => {
            seen.insert("late".into());
            return;
        }
        other => panic!("{other:?}"),
    };
    generations.extend(latch.generation);
    let count = if latch.count == 0 { "open" } else { "closed" };
    let is_noted = latch.opened.is_some() && latch.opened == latch.generation;
    seen.insert(format!("done {}, {count}, noted {is_noted}", latch.done));
}

#[test]
fn latches_agree_with_the_core() {
    for generation in Generation::few() {
        let Some(mut fixture) = Fixture::start(generation) else { continue };
        let (first, mut seen) = (seed(), BTreeSet::new());
        println!("FAIRLOCK_SEED={first}");
        for history in 0..HISTORIES {
            play(&mut fixture, &mut Rng::new(first.wrapping_add(history)), &mut seen);
        }
        assert!(seen.len() >= 9 && seen.contains("late"), "what a run must produce: {seen:?}");
    }
}

fn request(n: u128) -> LatchRequest {
    let not_after_ms = START_US / 1_000 + 30_000;
    LatchRequest { id: RequestId::from_random(n << 40), not_after_ms }
}

/// A key of a wrong type is refused, and nothing is changed.
#[test]
fn latches_of_a_wrong_type_are_refused() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let request = request(1);
    let ops = [
        LatchOp::Set { count: 1, request },
        LatchOp::CountDown { request },
        LatchOp::Delete { request },
        LatchOp::Look { waiting: None },
        LatchOp::Look { waiting: Some(0) },
    ];
    fixture.reset(START_US);
    for (at, write) in [
        (0, &["HSET", "f", "1"][..]),
        (0, &["RPUSH", "x"]),
        (1, &["SET", "7"]),
        (1, &["RPUSH", "x"]),
    ] {
        for op in &ops {
            fixture.raw.call(&["FLUSHALL"]);
            let key = if at == 0 { fixture.name.as_bytes().to_vec() } else { note_key(&fixture) };
            let mut command = vec![write[0].as_bytes().to_vec(), key];
            command.extend(write[1..].iter().map(|word| word.as_bytes().to_vec()));
            fixture.raw.call(&command);
            let before = fixture.raw.call(&["EVAL", super::wrong_type::ALL, "0"]);
            let refused = fixture.call(&Rules::default(), &Op::Latch(op.clone())).unwrap_err();
            assert!(refused.contains("WRONGTYPE"), "{refused}");
            assert_eq!(fixture.raw.call(&["EVAL", super::wrong_type::ALL, "0"]), before);
        }
    }
}

/// Without free memory a latch is not set; what lets others go on works.
#[test]
fn a_latch_opens_without_free_memory() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    fixture.reset(START_US);
    let rules = Rules::default();
    let call = |fixture: &mut Fixture, op| fixture.call(&rules, &Op::Latch(op));
    call(&mut fixture, LatchOp::Set { count: 2, request: request(1) }).unwrap();
    // The text of each script is known by then.
    call(&mut fixture, LatchOp::CountDown { request: request(2) }).unwrap();
    call(&mut fixture, LatchOp::Look { waiting: Some(0) }).unwrap();
    let name = LockName::new(b"job").unwrap();
    assert_eq!(fixture.name, name);
    let note = note_key(&fixture);
    fixture.raw.call(&[b"DEL", note.as_slice()]);
    fixture.raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = call(&mut fixture, LatchOp::Set { count: 2, request: request(3) });
    assert!(refused.is_ok(), "it is set already: {refused:?}");
    call(&mut fixture, LatchOp::Look { waiting: Some(0) }).expect("waiters look");
    let opened = call(&mut fixture, LatchOp::CountDown { request: request(4) });
    assert!(opened.is_ok(), "{opened:?}");
    let refused = call(&mut fixture, LatchOp::Set { count: 2, request: request(5) }).unwrap_err();
    assert!(refused.contains("OOM"), "{refused}");
    call(&mut fixture, LatchOp::Delete { request: request(6) }).expect("there is nothing left");
}
