//! Percentiles and medians.

use std::time::Duration;

/// The `percent`th percentile of `samples`, which are sorted in place.
pub(crate) fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    assert!(!samples.is_empty(), "nothing was measured");
    samples.sort_unstable();
    samples[(samples.len() - 1) * percent / 100]
}

/// Microseconds with one decimal.
pub(crate) fn us(duration: Duration) -> String {
    format!("{:.1} us", duration.as_secs_f64() * 1e6)
}

/// The ratio of `part` to `whole`.
pub(crate) fn ratio(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64()
}

/// The middle one of `values`.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
