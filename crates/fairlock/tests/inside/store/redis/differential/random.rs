//! Random histories. `FAIRLOCK_SEED` replays one; `FAIRLOCK_DIFF_OPS` sets the number of
//! operations.

use super::fixture::Fixture;
use super::rng::seed;
use super::run::{Seen, run};
use super::shrink::shrink;
use super::step::{Plan, Step};
use fairlock_testkit::server::Generation;
use fairlock_testkit::tier;

/// A run of this many operations reaches every outcome.
const ENOUGH: usize = 30_000;

/// Outcomes that a run of that length always reaches, by a wide margin.
const EXPECTED: [&str; 40] = [
    "answer: Announced",
    "answer: Leader",
    "message: Leader",
    "answer: Beaten",
    "answer: Buried",
    "answer: Busy",
    "answer: Forced",
    "answer: Freed",
    "answer: Granted",
    "answer: HeldBySelf",
    "answer: Inspected",
    "answer: Left",
    "answer: MORE",
    "answer: removed",
    "answer: NotHeld",
    "answer: Nothing",
    "answer: Nudged",
    "answer: Place",
    "answer: Queued",
    "answer: Released",
    "answer: Renewed",
    "answer: Stale",
    "answer: StillHeld",
    "answer: Taken",
    "answer: TooLate",
    "fault",
    "java",
    "message: Base",
    "message: Inbox",
    "message: Waiter",
    "refused: garbage",
    "refused: no lock",
    "refused: token",
    "refused: wrong type",
    "state: amnesty",
    "state: entry without record watched",
    "state: foreign head passed over",
    "state: foreign head watched",
    "state: gather",
    "state: removed",
];

fn agree(generation: Generation, default_operations: usize) {
    let Some(mut fixture) = Fixture::start(generation) else { return };
    let wanted = match std::env::var("FAIRLOCK_DIFF_OPS") {
        Ok(text) => text.parse().expect("FAIRLOCK_DIFF_OPS is a number"),
        Err(_) => default_operations,
    };
    let first = seed();
    println!("FAIRLOCK_SEED={first} on {}", generation.name());
    let mut seen = Seen::new();
    let mut operations = 0;
    let mut seed = first;
    while operations < wanted {
        let plan = Plan::draw(seed);
        fixture.long_way = seed.is_multiple_of(3);
        if let Err(mismatch) = run(&mut fixture, &plan, &mut seen) {
            let (plan, mismatch) = shrink(&mut fixture, &plan, mismatch);
            panic!(
                "FAIRLOCK_SEED={seed} on {}, {:?}\n{:#?}\n{}",
                generation.name(),
                plan.rules,
                plan.steps,
                mismatch.story
            );
        }
        operations += plan.steps.iter().filter(|step| Step::is_operation(step)).count();
        seed = seed.wrapping_add(1);
    }
    println!("{operations} operations: {seen:#?}");
    if operations < ENOUGH {
        return;
    }
    for what in EXPECTED {
        assert!(seen.contains_key(what), "never met {what}: {seen:#?}");
    }
}

#[test]
fn random_histories_agree_on_redis_7_0() {
    agree(Generation::Redis70, tier::size(15_000, 60_000));
}

#[test]
fn random_histories_agree_on_redis_6_2() {
    agree(Generation::Redis62, 8_000);
}

#[test]
fn random_histories_agree_on_valkey_9_1() {
    agree(Generation::Valkey91, 8_000);
}
