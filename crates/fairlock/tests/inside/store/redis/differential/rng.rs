//! The seed of a run; the random choices come from the test kit.

pub(super) use fairlock_testkit::rng::Rng;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The seed of a run: `FAIRLOCK_SEED`, which every failure prints. Without it a plain run always plays the same
/// histories, so that its result depends on the code alone; one with `FAIRLOCK_DIFF_OPS` plays others.
pub(super) fn seed() -> u64 {
    match std::env::var("FAIRLOCK_SEED") {
        Ok(text) => text.parse().expect("FAIRLOCK_SEED is a decimal number"),
        Err(_) if std::env::var_os("FAIRLOCK_DIFF_OPS").is_some() => {
            RandomState::new().hash_one(0) >> 16
        }
        Err(_) => 1,
    }
}
