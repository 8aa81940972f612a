//! The local clock by which leases are judged.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since boot, including the time the machine was asleep: leases expire while it sleeps, and the
/// runtime's timers do not count that time.
pub(crate) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    // Neither part is ever negative for these clocks.
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(secs, nanos)
}
