//! A compact histogram of durations in steps of about a fifth.

use std::time::Duration;

/// Steps per doubling.
const STEPS: u32 = 4;

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    counts: Vec<u64>,
    all: u64,
    longest_ns: u64,
}

impl Spread {
    pub(crate) fn add(&mut self, ns: u64) {
        let step = (ns.max(1) as f64).log2() * f64::from(STEPS);
        let step = step as usize;
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.all += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// The duration below which this many per thousand lie, or the longest one.
    pub(crate) fn below(&self, of_a_thousand: u64) -> Duration {
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen * 1_000 >= self.all * of_a_thousand && seen > 0 {
                let top = 2_f64.powf((step + 1) as f64 / f64::from(STEPS));
                return Duration::from_nanos((top as u64).min(self.longest_ns));
            }
        }
        Duration::ZERO
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns)
    }
}

/// The durations of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// From a release to the next holder's guard, outside of disturbances.
    pub(crate) hand_over: Spread,
    /// The same during disturbances.
    pub(crate) hand_over_disturbed: Spread,
    /// From the request to the guard.
    pub(crate) wait: Spread,
    /// The part of it during which the lock was free, outside of disturbances: what the queue does
    /// not explain.
    pub(crate) wait_unexplained: Spread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_longest() {
        let mut spread = Spread::default();
        assert_eq!(spread.below(500), Duration::ZERO);
        for ms in 1..=1_000_u64 {
            spread.add(ms * 1_000_000);
        }
        let middle = spread.below(500).as_millis();
        assert!((500..=600).contains(&middle), "{middle}");
        assert_eq!(spread.longest(), Duration::from_secs(1));
        assert_eq!(spread.below(1_000), Duration::from_secs(1));
    }
}
