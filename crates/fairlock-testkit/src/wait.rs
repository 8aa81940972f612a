//! Waiting for a condition, with a bound, instead of sleeping for as long as it might take.
//!
//! The bound is a time if a test asserts it, or if it is far longer than needed. [`patiently`] and
//! [`in_naps`] count naps instead, so that a machine that is loaded, or stalled for a while, fails
//! no test. They suit the end of another process.

use std::fmt::Display;
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks that cost next to nothing.
const LOOK: Duration = Duration::from_millis(1);

/// A nap, and the maximum number of naps: 40 s.
const NAP: Duration = Duration::from_millis(5);
const NAPS_MAX: u32 = 8_000;

/// Calls `look` until it finds something, with pauses of `every`; `None` if it does not within that
/// time.
pub fn look<T>(
    within: Duration,
    every: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let began = Instant::now();
    loop {
        // Before the look: this thread may stand still between the two.
        let is_last = began.elapsed() >= within;
        if let Some(found) = look() {
            return Some(found);
        }
        if is_last {
            return None;
        }
        thread::sleep(every);
    }
}

/// Whether the condition becomes true within that time.
pub fn holds(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    look(within, LOOK, || condition().then_some(())).is_some()
}

/// Waits until the condition holds; returns how long that took.
///
/// # Panics
///
/// If it does not within that time; the message says `what`.
#[track_caller]
pub fn until(what: impl Display, within: Duration, condition: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    assert!(holds(within, condition), "not within {within:?}: {what}");
    began.elapsed()
}

/// As [`until`], for tasks.
///
/// # Panics
///
/// If the condition does not hold within that time; the message names `what`, and where it was
/// waited for.
#[track_caller]
pub fn until_async(
    what: impl Display,
    within: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = Duration> {
    let (began, location) = (Instant::now(), Location::caller());
    async move {
        loop {
            let is_last = began.elapsed() >= within;
            if condition().await {
                return began.elapsed();
            }
            assert!(!is_last, "not within {within:?}: {what} ({location})");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What `look` finds, if it does within 40 s of naps.
pub fn in_naps<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..NAPS_MAX {
        let found = look();
        if found.is_some() {
            return found;
        }
        thread::sleep(NAP);
    }
    None
}

/// Waits until the condition holds.
///
/// # Panics
///
/// If it does not within 40 s of naps; the message says `what`.
#[track_caller]
pub fn patiently(what: impl Display, mut condition: impl FnMut() -> bool) {
    assert!(in_naps(|| condition().then_some(())).is_some(), "still not so: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_found_and_what_does_not_is_not() {
        let mut looks = 0;
        let found = look(Duration::from_secs(60), Duration::ZERO, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, Some(3));
        // There is one look at least.
        assert!(holds(Duration::ZERO, || true));
        assert!(!holds(Duration::ZERO, || false));
        let mut naps = 0;
        patiently("three naps", || {
            naps += 1;
            naps == 3
        });
        assert_eq!(naps, 3);
    }

    #[test]
    #[should_panic(expected = "not within 2ms: it comes")]
    fn a_wait_ends_with_its_bound() {
        until("it comes", Duration::from_millis(2), || false);
    }

    #[test]
    #[should_panic(expected = "not within 2ms: it comes (")]
    fn a_tasks_wait_ends_with_its_bound() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let wait = until_async("it comes", Duration::from_millis(2), async || false);
        runtime.expect("a runtime").block_on(wait);
    }
}
