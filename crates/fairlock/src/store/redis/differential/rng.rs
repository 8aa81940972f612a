//! A small generator of our own: the same seed gives the same run on every machine, for ever.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Xorshift64*: good enough to choose test steps, three lines long.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring runs, and the state must not be 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// 0 to `n` - 1.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True `percent` times out of a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// Where a run begins: at `FAIRLOCK_SEED`, which every failure prints, else anywhere.
pub(super) fn seed() -> u64 {
    match std::env::var("FAIRLOCK_SEED") {
        Ok(text) => text.parse().expect("FAIRLOCK_SEED is a decimal number"),
        Err(_) => RandomState::new().hash_one(0) >> 16,
    }
}
