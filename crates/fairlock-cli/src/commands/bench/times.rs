//! A histogram of durations, with some thousand buckets.

use std::time::Duration;

/// Buckets for each doubling: the error is less than 0.4 %.
const STEPS: u64 = 128;

/// Measured durations. The size does not depend on their number, so a bench may run for any time.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        let at = bucket(nanos(time));
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.count += 1;
        self.max = self.max.max(time);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.max)
    }

    /// The time below which `percent` of all durations are; `None` if there are none.
    pub(super) fn percentile(&self, percent: u64) -> Option<Duration> {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let at = self.buckets.iter().position(|in_it| {
            seen += in_it;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(middle(at)).min(self.max))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The bucket of a time. The first ones are a nanosecond wide; from there on each doubling has the same number.
fn bucket(nanos: u64) -> usize {
    let doublings = u64::from((nanos / STEPS).checked_ilog2().map_or(0, |log| log + 1));
    let at = match doublings {
        0 => nanos,
        _ => doublings * STEPS + (nanos >> (doublings - 1)) - STEPS,
    };
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn middle(bucket: usize) -> u64 {
    let at = bucket as u64;
    match at / STEPS {
        0 => at,
        doublings => ((at % STEPS + STEPS) << (doublings - 1)) + ((1 << (doublings - 1)) / 2),
    }
}

/// The median: the middle number, or the mean of the two in the middle.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(f64::midpoint(sorted[low], sorted[high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_precise() {
        let mut last = 0;
        for nanos in (0..100_000).chain((17..63).map(|log| (1 << log) + (1 << (log - 3)))) {
            let at = bucket(nanos);
            assert!(at >= last, "{nanos}");
            last = at;
            let off = middle(at).abs_diff(nanos);
            assert!(off as f64 <= nanos as f64 * 0.004, "{nanos}: {}", middle(at));
        }
    }

    #[test]
    fn percentiles() {
        let mut times = Times::default();
        assert_eq!((times.percentile(50), times.max()), (None, None));
        for ms in 1..=100 {
            let mut one = Times::default();
            one.add(Duration::from_millis(ms));
            times.merge(&one);
        }
        for (percent, ms) in [(50, 50.0), (99, 99.0), (100, 100.0)] {
            let seen = times.percentile(percent).unwrap().as_secs_f64() * 1e3;
            assert!((seen / ms - 1.0).abs() < 0.004, "{percent}: {seen}");
        }
        assert_eq!((times.count(), times.max()), (100, Some(Duration::from_millis(100))));
    }

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
