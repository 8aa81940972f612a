//! A small generator of our own: the same seed makes the same choices, forever.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The first seed of a run: the given one, or 1, so that the result depends on the code alone, or any
/// if `others` are wanted.
pub fn first_seed(given: Option<u64>, others: bool) -> u64 {
    given.unwrap_or_else(|| if others { RandomState::new().hash_one(0) >> 16 } else { 1 })
}

/// Xorshift64*: good enough to choose test steps, three lines long.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
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
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True `percent` times out of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// `low` to `high` - 1.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// A random element.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Shuffles the elements.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            let at = self.below(last as u64 + 1) as usize;
            all.swap(at, last);
        }
    }
}
