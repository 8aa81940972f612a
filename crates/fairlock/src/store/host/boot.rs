//! Host time: an epoch for each boot, kept in the file, plus the time since boot. Changes of the
//! wall clock do not affect it, and all processes agree on it.

use crate::base::error::{Error, ErrorKind};
use std::fs;
use std::io;

/// Where Linux publishes the id of the boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The initial time namespace, in which clocks are not shifted.
const FIRST_TIME_NAMESPACE: &str = "time:[4026531834]";

/// One boot of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Boot {
    /// Its id.
    pub(super) id: String,
    /// What this process's time namespace adds to the time since boot, in nanoseconds.
    pub(super) shift_ns: i128,
}

impl Boot {
    /// The current boot.
    ///
    /// # Errors
    /// The system does not identify its boots, or hides the shift of its clock.
    pub(super) fn here() -> Result<Self, Error> {
        let id = fs::read_to_string(BOOT_ID).map_err(|error| {
            no_boot(&format!("{BOOT_ID} cannot be read ({error}); is /proc mounted?"))
        })?;
        let id = id.trim().to_owned();
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(no_boot(&format!("{BOOT_ID} names no boot")));
        }
        Ok(Self { id, shift_ns: namespace_shift()? })
    }

    /// Microseconds since this boot began, suspended time included; the same in all namespaces.
    pub(super) fn since_us(&self) -> u64 {
        let shown = since_boot_ns();
        u64::try_from((shown - self.shift_ns) / 1_000).unwrap_or(0)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot_ns() -> i128 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec)
}

/// Never called: `Boot::here` fails first.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot_ns() -> i128 {
    0
}

/// What is added to the time since boot for this process. The kernel reports it for the namespace
/// of the process's children, which is the process's own unless it has just left that.
fn namespace_shift() -> Result<i128, Error> {
    let own = match fs::read_link("/proc/self/ns/time") {
        Ok(own) => own,
        // Before Linux 5.6, and in kernels built without them, there are no time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(no_boot(&format!("/proc/self/ns/time: {error}"))),
    };
    if own.as_os_str() == FIRST_TIME_NAMESPACE {
        return Ok(0);
    }
    let children = fs::read_link("/proc/self/ns/time_for_children");
    if children.is_ok_and(|children| children == own) {
        let offsets = fs::read_to_string("/proc/self/timens_offsets")
            .map_err(|error| no_boot(&format!("/proc/self/timens_offsets: {error}")))?;
        if let Some(shift) = boottime_offset(&offsets) {
            return Ok(shift);
        }
    }
    Err(no_boot("this process has left its time namespace, whose clock differs by an unknown time"))
}

/// The line `boottime <seconds> <nanoseconds>`.
fn boottime_offset(offsets: &str) -> Option<i128> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut words = line.split_whitespace();
    let (seconds, nanos) = (words.next()?.parse::<i64>().ok()?, words.next()?.parse::<i64>().ok()?);
    words.next().is_none().then(|| i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

fn no_boot(why: &str) -> Error {
    let message = format!(
        "the host store needs to know when the machine was started, which Linux tells and other \
         systems do not: {why}. Use a server, `redis://`"
    );
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_time_namespace_are_read() {
        let shown = "monotonic           0         0\nboottime      -86400 500000000\n";
        assert_eq!(boottime_offset(shown), Some(-86_400_000_000_000 + 500_000_000));
        assert_eq!(boottime_offset("monotonic 0 0\n"), None);
        assert_eq!(boottime_offset("boottime 1\n"), None);
        assert_eq!(boottime_offset("boottime x 0\n"), None);
    }
}
