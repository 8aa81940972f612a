//! The clock that leases are judged by on this side.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since boot, including the time the machine was asleep: leases run out while it sleeps, and
/// timers of the runtime do not see that.
pub(crate) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    read(clock)
}

/// What all threads of this process have used of the processors.
pub(crate) fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither part is ever negative for these clocks.
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(secs, nanos)
}
