//! The seed of a run; the random choices come from the test kit.

pub(super) use fairlock_testkit::rng::Rng;
use fairlock_testkit::rng::first_seed;

/// The seed of a run: `FAIRLOCK_SEED`, which every failure prints. Without it a plain run always plays the same
/// histories, so that its result depends on the code alone; one with `FAIRLOCK_DIFF_OPS` plays others.
pub(super) fn seed() -> u64 {
    let given = std::env::var("FAIRLOCK_SEED").ok();
    let given = given.map(|text| text.parse().expect("FAIRLOCK_SEED is a decimal number"));
    first_seed(given, std::env::var_os("FAIRLOCK_DIFF_OPS").is_some())
}
