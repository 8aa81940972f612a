//! Tries again while somebody else has the file locked.

use super::fault;
use crate::base::clock::Moment;
use crate::store::StoreError;
use std::path::Path;
use std::time::Duration;

/// First and longest pause between attempts. A transaction takes some 30 us.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Longest pause of a process that has no place in the [line](super::line): many may do the same.
const CROWD_PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long opening waits for others that come at the same time, leave or die, if it would wait for `busy` for a locked
/// file. On a disk that a backup keeps busy, each of their steps may take seconds.
pub(super) fn for_others(busy: Duration) -> Duration {
    busy.clamp(Duration::from_secs(2), Duration::from_secs(10))
}

/// Between two looks at those others.
pub(super) const OTHERS_PAUSE: Duration = Duration::from_millis(5);

/// Retries while others have the file locked, for `busy` at most.
pub(super) fn patiently<T>(
    path: &Path,
    busy: Duration,
    work: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    retry(path, busy, PAUSE_MAX, work)
}

/// As [`patiently`], for one of a crowd.
pub(super) fn seldom<T>(
    path: &Path,
    busy: Duration,
    work: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    retry(path, busy, CROWD_PAUSE_MAX, work)
}

fn retry<T>(
    path: &Path,
    busy: Duration,
    pause_max: Duration,
    mut work: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let mut until = None;
    let mut pause = PAUSE_MIN;
    loop {
        match work() {
            Ok(done) => return Ok(done),
            Err(error) if fault::is_busy(&error) => {
                let now = Moment::now();
                if now >= *until.get_or_insert_with(|| now.plus(busy)) {
                    return Err(fault::busy(path, busy));
                }
                std::thread::sleep(pause);
                pause = (pause * 3 / 2).min(pause_max);
            }
            Err(error) => return Err(fault::of(path, &error, false)),
        }
    }
}
