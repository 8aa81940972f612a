//! Servers without free memory: what releases or keeps a share works, acquisitions are refused and leave nothing behind.
//! And keys of wrong types: a call that meets one is refused and changes nothing, another leaves the key as it was.

use super::super::fixture::Fixture;
use super::super::rng::{Rng, seed};
use super::super::run::START_US;
use super::super::wrong_type::ALL;
use super::dump::keys_of;
use super::run::{Run, Seen, heard};
use super::step::{Plan, Step};
use fairlock_core::{LockState, Op};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;
use std::collections::BTreeSet;

/// Operations under pressure, and keys replaced, on each server.
const OPERATIONS: u64 = 2_000;

/// One value of each type, and which of them is right for the keys in the order of the scripts.
const VALUES: [&[&str]; 4] =
    [&["SET", "7"], &["RPUSH", "x"], &["HSET", "f", "1"], &["ZADD", "1", "x"]];
const RIGHT: [usize; 7] = [2, 3, 2, 0, 3, 2, 3];
const NAMES: [&str; 7] = ["lock", "leases", "holds", "token", "order", "state", "beats"];

/// Plays random plans; `under` decides about each operation what is done instead of comparing it, if anything is.
fn play(
    generation: Generation,
    mut under: impl FnMut(&mut Run<'_>, &Step, &mut Rng) -> Option<Result<(), String>>,
) -> Option<Seen> {
    let mut fixture = Fixture::start(generation)?;
    // Small hashes keep the order of their fields; a hash table may change it without any write.
    fixture.raw.call(&["CONFIG", "SET", "hash-max-ziplist-value", "4096"]);
    let (mut seed, mut seen) = (seed(), Seen::new());
    println!("FAIRLOCK_SEED={seed} on {}", generation.name());
    while seen.get("under").copied().unwrap_or(0) < OPERATIONS {
        let (mut rng, plan) = (Rng::new(seed), Plan::draw(seed));
        fixture.long_way = seed.is_multiple_of(3);
        fixture.reset(START_US);
        let mut run =
            Run::new(&mut fixture, plan.kind, plan.rules.clone(), LockState::default(), &mut seen);
        for step in plan.steps {
            let is_operation = !matches!(
                step,
                Step::Time(_) | Step::Inbox { .. } | Step::Guests(_) | Step::Fault(_)
            );
            let done = (is_operation && rng.chance(40))
                .then(|| under(&mut run, &step, &mut rng))
                .flatten();
            if done.is_some() {
                run.count("under");
            }
            done.unwrap_or_else(|| run.step(&step))
                .unwrap_or_else(|story| panic!("FAIRLOCK_SEED={seed} {step:?}\n{story}"));
        }
        seed = seed.wrapping_add(1);
    }
    println!("{seen:#?}");
    Some(seen)
}

fn without_memory(generation: Generation) {
    let seen = play(generation, |run, step, _| {
        run.pressed = true;
        let done = run.step(step);
        run.pressed = false;
        Some(done)
    });
    for what in [
        "refused: memory",
        "message: grant",
        "message: cohort",
        "answer: Renewed",
        "answer: Released",
    ] {
        assert!(seen.as_ref().is_none_or(|seen| seen.contains_key(what)), "never met {what}");
    }
}

#[test]
fn shares_without_memory_on_redis_6_2() {
    without_memory(Generation::Redis62);
}

#[test]
fn shares_without_memory_on_redis_7_0() {
    without_memory(Generation::Redis70);
}

#[test]
fn shares_without_memory_on_valkey_9_1() {
    without_memory(Generation::Valkey91);
}

fn everything(run: &mut Run<'_>) -> Value {
    run.fixture.raw.call(&["EVAL", ALL, "0"])
}

/// Replaces a key by a value of a wrong type, carries out `op`, and restores the key. Whether it was refused.
fn with_wrong_type(run: &mut Run<'_>, op: &Op, at: usize, rng: &mut Rng) -> Result<bool, String> {
    // Expired content is gone before the comparison begins.
    run.adopt();
    let key = keys_of(&run.fixture.keys, run.kind)[at].clone();
    let aside = b"aside".to_vec();
    let had = run.fixture.raw.call(&[b"EXISTS".to_vec(), key.clone()]).int() == 1;
    if had {
        run.fixture.raw.call(&[b"RENAME".to_vec(), key.clone(), aside.clone()]);
    }
    let value = VALUES[(RIGHT[at] + 1 + rng.below(3) as usize) % VALUES.len()];
    let mut command = vec![value[0].as_bytes().to_vec(), key.clone()];
    command.extend(value[1..].iter().map(|word| word.as_bytes().to_vec()));
    run.fixture.raw.call(&command);
    let before = everything(run);
    let found = run.ask(op);
    let heard = heard(run.fixture);
    let after = everything(run);
    let of = |all: &Value| {
        all.array().iter().find(|it| it.array()[0] == Value::Bulk(key.clone())).cloned()
    };
    let refused = match &found {
        Err(error) if !error.contains("WRONGTYPE") => return Err(error.clone()),
        Err(_) if before != after || !heard.0.is_empty() || !heard.1.is_empty() => {
            return Err(format!("refused, but changed\n{before:?}\n{after:?}\n{heard:?}"));
        }
        Ok(_) if of(&before) != of(&after) => {
            return Err(format!("the key of a wrong type changed\n{before:?}\n{after:?}"));
        }
        found => found.is_err(),
    };
    run.fixture.raw.call(&[b"DEL".to_vec(), key.clone()]);
    if had {
        run.fixture.raw.call(&[b"RENAME".to_vec(), aside, key]);
    }
    run.forget();
    Ok(refused)
}

fn refused_without_a_trace(generation: Generation) {
    let mut refusals = BTreeSet::new();
    let seen = play(generation, |run, step, rng| {
        let op = run.resolve(step);
        let at = rng.below(7) as usize;
        Some(with_wrong_type(run, &op, at, rng).map(|refused| {
            let text = format!("{:?}", op.bare());
            let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("").to_owned();
            if refused {
                refusals.insert((name, NAMES[at]));
            }
        }))
    });
    if seen.is_none() {
        return;
    }
    for op in ["AcquireShare", "Beat", "Leave", "Nudge", "Release", "Renew"] {
        for key in NAMES {
            assert!(refusals.contains(&(op.to_owned(), key)), "{op} never met {key}: {refusals:?}");
        }
    }
}

#[test]
fn a_key_of_a_wrong_type_is_refused_by_shares_on_redis_6_2() {
    refused_without_a_trace(Generation::Redis62);
}

#[test]
fn a_key_of_a_wrong_type_is_refused_by_shares_on_redis_7_0() {
    refused_without_a_trace(Generation::Redis70);
}

#[test]
fn a_key_of_a_wrong_type_is_refused_by_shares_on_valkey_9_1() {
    refused_without_a_trace(Generation::Valkey91);
}
