//! Random histories. `FAIRLOCK_SEED` replays one; `FAIRLOCK_DIFF_OPS` sets the number of steps.

use super::super::fixture::Fixture;
use super::super::rng::seed;
use super::run::{Seen, run};
use super::step::Plan;
use fairlock_testkit::server::Generation;
use fairlock_testkit::tier;

/// A run of this many steps reaches every outcome.
const ENOUGH: usize = 30_000;

/// Outcomes that a run of that length always reaches, by a wide margin.
const EXPECTED: [&str; 31] = [
    "answer: Buried",
    "answer: Busy",
    "answer: Fates",
    "answer: Forced",
    "answer: Freed",
    "answer: Granted",
    "answer: HeldBySelf",
    "answer: Inspected",
    "answer: Left",
    "answer: NotHeld",
    "answer: Nothing",
    "answer: Nudged",
    "answer: Place",
    "answer: Queued",
    "answer: Released",
    "answer: Renewed",
    "answer: Stale",
    "answer: StillHeld",
    "answer: TooLate",
    "answer: downgraded",
    "answer: granted in a beat",
    "answer: other limit",
    "answer: removed",
    "fault",
    "message: cohort",
    "message: forced",
    "message: grant",
    "message: guests",
    "state: gather",
    "state: guest",
    "state: removed",
];

fn agree(generation: Generation, default_steps: usize) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    let wanted = match std::env::var("FAIRLOCK_DIFF_OPS") {
        Ok(text) => text.parse().expect("FAIRLOCK_DIFF_OPS is a number"),
        Err(_) => default_steps,
    };
    let mut seed = seed();
    println!("FAIRLOCK_SEED={seed} on {}", generation.name());
    let (mut seen, mut steps) = (Seen::new(), 0);
    while steps < wanted {
        let plan = Plan::draw(seed);
        fixture.long_way = seed.is_multiple_of(3);
        if let Err(failure) = run(&mut fixture, &plan, &mut seen) {
            let (plan, (_, story)) = shrink(&mut fixture, &plan, failure);
            let (kind, rules) = (plan.kind, plan.rules);
            panic!(
                "FAIRLOCK_SEED={seed} on {}, {kind:?} {rules:?}\n{:#?}\n{story}",
                generation.name(),
                plan.steps
            );
        }
        steps += plan.steps.len();
        seed = seed.wrapping_add(1);
    }
    println!("{steps} steps: {seen:#?}");
    if steps >= ENOUGH {
        for what in EXPECTED {
            assert!(seen.contains_key(what), "never met {what}: {seen:#?}");
        }
    }
}

/// The shortest failing plan that leaving out steps finds, and its difference.
fn shrink(
    fixture: &mut Fixture,
    plan: &Plan,
    mut failure: (usize, String),
) -> (Plan, (usize, String)) {
    let mut best = plan.clone();
    best.steps.truncate(failure.0 + 1);
    let mut chunk = best.steps.len().div_ceil(2);
    loop {
        let (mut removed, mut from) = (false, 0);
        while from < best.steps.len() {
            let mut trial = best.clone();
            trial.steps.drain(from..(from + chunk).min(best.steps.len()));
            match run(fixture, &trial, &mut Seen::new()) {
                Err(other) => {
                    trial.steps.truncate(other.0 + 1);
                    (best, failure, removed) = (trial, other, true);
                }
                Ok(()) => from += chunk,
            }
        }
        if chunk == 1 && !removed {
            return (best, failure);
        }
        if !removed {
            chunk = chunk.div_ceil(2);
        }
    }
}

#[test]
fn random_histories_of_shares_agree_on_redis_7_0() {
    agree(Generation::Redis70, tier::size(15_000, 60_000));
}

#[test]
fn random_histories_of_shares_agree_on_redis_6_2() {
    agree(Generation::Redis62, 8_000);
}

#[test]
fn random_histories_of_shares_agree_on_valkey_9_1() {
    agree(Generation::Valkey91, 8_000);
}
