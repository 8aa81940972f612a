//! The seed of a run; its choices are the test kit's.

pub(super) use fairlock_testkit::rng::Rng;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Where a run begins: at `FAIRLOCK_SEED`, which every failure prints, else anywhere.
pub(super) fn seed() -> u64 {
    match std::env::var("FAIRLOCK_SEED") {
        Ok(text) => text.parse().expect("FAIRLOCK_SEED is a decimal number"),
        Err(_) => RandomState::new().hash_one(0) >> 16,
    }
}
