//! The seed of a run; the random choices come from the test kit.

pub(super) use fairlock_testkit::rng::Rng;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The seed of a run: `FAIRLOCK_SEED`, which every failure prints, or a random one.
pub(super) fn seed() -> u64 {
    match std::env::var("FAIRLOCK_SEED") {
        Ok(text) => text.parse().expect("FAIRLOCK_SEED is a decimal number"),
        Err(_) => RandomState::new().hash_one(0) >> 16,
    }
}
