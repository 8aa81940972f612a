//! A key of a wrong type (F37): a call that meets it is refused with WRONGTYPE and changes nothing;
//! a call that succeeds has left the key as it was.

use super::fixture::Fixture;
use super::rng::{Rng, seed};
use super::run::{Run, START_US, Seen, owner, request};
use super::step::{Plan, Step};
use fairlock_core::{Acquire, Answer, Body, Kind, Mode, Op, Rules, Share, Snapshot, is_shared};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;
use std::collections::BTreeSet;

/// Tries on each server.
const TRIES: u64 = 6_000;

/// Every key with its TTL and content.
pub(super) const ALL: &str = "local all, names = {}, redis.call('KEYS', '*')
table.sort(names)
for _, name in ipairs(names) do
  all[#all + 1] = { name, redis.call('PTTL', name), redis.call('DUMP', name) }
end
return all";

/// Replacements for a key: one value of each type, of which the right one is left out.
const OTHERS: [&[&str]; 4] =
    [&["SET", "7"], &["RPUSH", "x"], &["HSET", "f", "1"], &["ZADD", "1", "x"]];

/// The index in [`OTHERS`] of each key's right type, in the order of the scripts.
const RIGHT: [usize; 7] = [2, 1, 3, 0, 3, 2, 3];

const NAMES: [&str; 7] = ["lock", "queue", "scores", "token", "order", "state", "beats"];

fn everything(fixture: &mut Fixture) -> Value {
    fixture.raw.call(&["EVAL", ALL, "0"])
}

/// The operation's name in the table of results.
fn name_of(op: &Op) -> String {
    let text = format!("{op:?}");
    let plain = match () {
        () if text.contains("kind: Plain") => "plain ",
        () if text.contains("kind: Simple") => "simple ",
        () => "",
    };
    let word = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
    format!("{plain}{word}")
}

/// Replaces a key by a value of a wrong type, carries out `op`, and restores the key.
fn with_wrong_type(run: &mut Run<'_>, op: &Op, at: usize, rng: &mut Rng) -> Result<bool, String> {
    const ASIDE: &str = "aside";
    // Expired content is gone before the comparison begins.
    run.adopt();
    let key = run.fixture.keys.all()[at].clone();
    let had = run.fixture.raw.call(&[b"EXISTS".as_slice(), &key]).int() == 1;
    if had {
        run.fixture.raw.call(&[b"RENAME".as_slice(), &key, ASIDE.as_bytes()]);
    }
    // The key of a simple lock is a string.
    let right = if at == 0 && op.is_simple() { 0 } else { RIGHT[at] };
    let other = (right + 1 + rng.below(3) as usize) % OTHERS.len();
    let mut command = vec![OTHERS[other][0].as_bytes(), &key];
    command.extend(OTHERS[other][1..].iter().map(|word| word.as_bytes()));
    run.fixture.raw.call(&command);

    let before = everything(run.fixture);
    let found = run.call(op);
    let heard = run.fixture.messages();
    let after = everything(run.fixture);
    let refused = match &found {
        Err(error) if !error.contains("WRONGTYPE") => return Err(error.clone()),
        Err(_) => {
            if before != after || !heard.is_empty() {
                return Err(format!("refused, but changed\n{before:?}\n{after:?}\n{heard:?}"));
            }
            true
        }
        Ok(_) => {
            let of = |all: &Value| {
                all.array().iter().find(|k| k.array()[0] == Value::Bulk(key.clone())).cloned()
            };
            if of(&before) != of(&after) {
                return Err(format!("the key of a wrong type changed: {before:?}\n{after:?}"));
            }
            false
        }
    };
    run.fixture.raw.call(&[b"DEL".as_slice(), &key]);
    if had {
        run.fixture.raw.call(&[b"RENAME".as_slice(), ASIDE.as_bytes(), &key]);
    }
    run.adopt();
    Ok(refused)
}

fn refused_without_a_trace(generation: Generation) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    // Small hashes keep the order of their fields; a hash table may change it without any write.
    let reply = fixture.raw.call(&["CONFIG", "SET", "hash-max-ziplist-value", "4096"]);
    assert_eq!(reply.text(), "OK");
    let mut seed = seed();
    println!("FAIRLOCK_SEED={seed} on {}", generation.name());
    let mut seen = Seen::new();
    let (mut refusals, mut tried) = (BTreeSet::new(), 0);
    while tried < TRIES {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(seed);
        fixture.long_way = seed.is_multiple_of(3);
        fixture.reset(START_US);
        let mut run = Run::new(&mut fixture, plan.rules.clone(), Snapshot::default(), &mut seen);
        for step in plan.steps.iter().filter(|step| !matches!(step, Step::Meddle(_))) {
            if step.is_operation() && rng.chance(60) {
                let op = run.resolve(step);
                let keys = run.core().snapshot();
                let of_another_kind =
                    if op.is_simple() { !keys.hold.is_empty() } else { keys.value.is_some() };
                if of_another_kind {
                    // Refused anyway; only one wrong type at a time.
                    continue;
                }
                tried += 1;
                // A simple lock has only two keys.
                let at = if op.is_simple() { rng.pick(&[0, 3]) } else { rng.below(7) as usize };
                match with_wrong_type(&mut run, &op, at, &mut rng) {
                    Ok(true) => drop(refusals.insert((name_of(&op), NAMES[at]))),
                    Ok(false) => {}
                    Err(story) => {
                        panic!("FAIRLOCK_SEED={seed}, wrong {}: {op:?}\n{story}", NAMES[at])
                    }
                }
            } else if let Err(story) = run.step(step) {
                panic!("FAIRLOCK_SEED={seed} {step:?}\n{story}");
            }
        }
        seed = seed.wrapping_add(1);
    }
    for op in ["Acquire", "Force", "Inspect", "Leave", "Release", "Renew"] {
        for key in ["lock", "token"] {
            let met = refusals.contains(&(format!("simple {op}"), key));
            assert!(met, "simple {op} never met {key} of a wrong type: {refusals:?}");
        }
    }
    // The operations that serve the queue meet every key. `Force` ends a hold whatever the waiters' keys are.
    for op in ["Acquire", "Beat", "Force", "Leave", "Nudge", "Release", "Renew"] {
        let keys = NAMES.into_iter().filter(|key| op != "Force" || ["lock", "token"].contains(key));
        for key in keys {
            let met = refusals.contains(&(op.to_owned(), key));
            assert!(met, "{op} never met {key} of a wrong type: {refusals:?}");
        }
    }
}

#[test]
fn a_key_of_a_wrong_type_is_refused_without_a_trace_on_redis_6_2() {
    refused_without_a_trace(Generation::Redis62);
}

#[test]
fn a_key_of_a_wrong_type_is_refused_without_a_trace_on_redis_7_0() {
    refused_without_a_trace(Generation::Redis70);
}

#[test]
fn a_key_of_a_wrong_type_is_refused_without_a_trace_on_valkey_9_1() {
    refused_without_a_trace(Generation::Valkey91);
}

/// Somebody wrote other types to the keys of waiters, which an acquisition of a free lock does not look at. The release was
/// refused then, and the lock stayed until the end of its lease; `Force` was refused as well.
#[test]
fn a_hold_ends_beside_keys_of_a_wrong_type() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let shares = [
        (Kind::Fair, Share::Whole),
        (Kind::Plain, Share::Whole),
        (Kind::ReadWrite, Share::Whole),
        (Kind::ReadWrite, Share::Read),
        (Kind::Semaphore, Share::Permits { n: 1, limit: 2 }),
    ];
    let mut released = 0;
    for (kind, share) in shares {
        // Of a share, the holders' own keys stay right.
        for at in if is_shared(kind) { 4..7 } else { 1..7 } {
            for (before, force) in [(true, false), (true, true), (false, false), (false, true)] {
                for held in [1, 2] {
                    fixture.reset(START_US);
                    fixture.long_way = (at + usize::from(force)).is_multiple_of(2);
                    let acquire = |n| Acquire {
                        kind,
                        owner: owner(n),
                        request: request(n, 1),
                        lease_ms: 30_000,
                        mode: Mode::Try,
                        order: None,
                        not_after_ms: START_US / 1_000,
                        sure: true,
                        shared_owner: false,
                    };
                    let ask = Op::asks(acquire(0), share);
                    let key = fixture.keys.parts_of(&ask)[at].concat();
                    let spoil = |fixture: &mut Fixture| {
                        fixture.raw.call(&[b"SET".as_slice(), &key, b"junk"]);
                    };
                    if before {
                        spoil(&mut fixture);
                    }
                    let mut token = None;
                    for n in 0..held {
                        let answer = fixture.call(&Rules::default(), &Op::asks(acquire(n), share));
                        if let Ok(Answer { body: Body::Granted { token: got, .. }, .. }) = answer {
                            token.get_or_insert(got);
                        }
                    }
                    // The token's key is looked at by all.
                    let Some(token) = token.filter(|_| at != 3) else { continue };
                    if !before {
                        spoil(&mut fixture);
                    }
                    let op = match force {
                        true => Op::Force { kind },
                        false => {
                            let op =
                                Op::Release { kind, owner: owner(0), token, keep: 0, change: 1 };
                            op.of_hold(kind, request(0, 1), START_US / 1_000)
                        }
                    };
                    let found = fixture.call(&Rules::default(), &op);
                    fixture.published();
                    let story =
                        format!("{kind:?} {share:?}, key {at}, held {held}, {op:?}: {found:?}");
                    let body = found.unwrap_or_else(|_| panic!("{story}")).body;
                    match force {
                        true => {
                            assert!(
                                matches!(body, Body::Forced { holder: Some(_), .. }),
                                "{story}"
                            );
                        }
                        false => assert_eq!(body, Body::Released, "{story}"),
                    }
                    assert_eq!(
                        fixture.raw.call(&[b"GET".as_slice(), &key]).text(),
                        "junk",
                        "{story}"
                    );
                    // Another one may hold a share still.
                    if force || held == 1 || share == Share::Whole {
                        assert_eq!(fixture.raw.call(&["EXISTS", "job"]).int(), 0, "{story}");
                    }
                    released += 1;
                }
            }
        }
    }
    assert!(released > 100, "{released}");
}
