//! The only clock of the library: time since boot, which changes of the wall clock do not affect
//! and which continues while the machine sleeps (Rust's `Instant` may stop then).
//!
//! It stops with the whole machine, when a hypervisor pauses a virtual machine or restores it from
//! a snapshot. The wall clock does not help: it stops as well until something sets it, seconds
//! later or never, and by then the program has relied on the guard. Using it would also end every
//! guard of a host whose clock is set forward for any other reason. So validity across such a pause
//! is not promised (docs/guarantees.md), and fencing tokens decide.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A measured time as messages show it, without digits that mean nothing: to the millisecond, from
/// 1 s on to the tenth of a second.
pub(crate) fn rounded(time: Duration) -> Duration {
    let step_us = if time < Duration::from_secs(1) { 1_000 } else { 100_000 };
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(us.saturating_add(step_us / 2) / step_us * step_us)
}

/// A point in time, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        #[cfg(feature = "test-util")]
        if let Some(now) = virtual_time::now() {
            return now;
        }
        Self::real_now()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn real_now() -> Self {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let since_boot = (t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_nsec as u64;
        #[cfg(feature = "_testkit")]
        #[cfg(test)]
        let since_boot =
            since_boot + suspended_tests::SLEPT_NS.load(std::sync::atomic::Ordering::Relaxed);
        Self(since_boot)
    }

    /// On Apple's systems this clock continues while the machine sleeps; the one that Rust uses
    /// does not.
    #[cfg(target_vendor = "apple")]
    fn real_now() -> Self {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Self((t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_nsec as u64)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    fn real_now() -> Self {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        Self(START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
    }

    pub(crate) fn at_nanos(since_boot: u64) -> Self {
        Self(since_boot)
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(crate) fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    pub(crate) fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms.saturating_mul(1_000_000)))
    }

    /// Time from now until this moment; zero when it has passed.
    pub(crate) fn left(self) -> Duration {
        self.since(Self::now())
    }

    /// Time from `earlier` until this moment; zero when `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// This machine's wall clock, in milliseconds since 1970.
fn wall_ms() -> u64 {
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    if let Some(wall_ms) = virtual_time::wall_ms() {
        return wall_ms;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(feature = "test-util")]
pub(crate) use virtual_time::follow as follow_tokio;
#[cfg(feature = "_testkit")]
#[cfg(test)]
pub(crate) use virtual_time::start_at;

/// Tokio's time, which tests can pause. Only the runtimes of sandboxes use it; clients elsewhere in
/// the process keep the real clock.
#[cfg(feature = "test-util")]
mod virtual_time {
    use super::Moment;
    use std::cell::Cell;
    use tokio::runtime::{Handle, Id};
    use tokio::time::Instant;

    thread_local! {
        static FOLLOWED: Cell<Option<Followed>> = const { Cell::new(None) };
    }

    #[derive(Clone, Copy)]
    struct Followed {
        runtime: Id,
        /// The same moment on both clocks.
        tokio: Instant,
        ours: Moment,
        /// What the wall clock showed at that moment, if it is not the real one.
        #[cfg(feature = "_testkit")]
        #[cfg(test)]
        wall_ms: Option<u64>,
    }

    /// Makes this thread follow tokio's time while the thread is in the current runtime.
    pub(crate) fn follow() {
        if now().is_none() {
            let (runtime, tokio) = (Handle::current().id(), Instant::now());
            FOLLOWED.set(Some(Followed {
                runtime,
                tokio,
                ours: Moment::real_now(),
                #[cfg(feature = "_testkit")]
                #[cfg(test)]
                wall_ms: None,
            }));
        }
    }

    /// Like [`follow`], but starts an hour after boot and also puts the wall clock on tokio's time:
    /// neither real clock is used any more.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn start_at(wall_ms: u64) {
        let (runtime, tokio) = (Handle::current().id(), Instant::now());
        let (ours, wall_ms) = (Moment(0).plus_ms(3_600_000), Some(wall_ms));
        FOLLOWED.set(Some(Followed { runtime, tokio, ours, wall_ms }));
    }

    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(super) fn wall_ms() -> Option<u64> {
        let now = now()?;
        let followed = FOLLOWED.get()?;
        followed.wall_ms.map(|wall_ms| wall_ms + now.since(followed.ours).as_millis() as u64)
    }

    pub(super) fn now() -> Option<Moment> {
        let followed = FOLLOWED.get()?;
        let here = Handle::try_current().ok()?;
        (here.id() == followed.runtime)
            .then(|| followed.ours.plus(Instant::now().duration_since(followed.tokio)))
    }
}

mod jump;
pub(crate) use jump::Jump;

/// The known state of a server's clock: the time in its last reply, and when that call was sent.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: Option<Reading>,
    /// The reference for jumps. It outlives a connection, because the next connection may lead to a
    /// clock that differs.
    anchor: Option<jump::Anchor>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    sent: Moment,
    server_ms: u64,
}

impl ServerClock {
    /// Notes the server's time in the reply to a call that was sent at `sent`; to be called as soon
    /// as the reply arrives. Returns a jump of the clock since earlier replies.
    pub(crate) fn note(&self, sent: Moment, server_ms: u64) -> Option<Jump> {
        let mut known = lock(&self.0);
        if known.last.is_some_and(|r| sent < r.sent) {
            return None;
        }
        known.last = Some(Reading { sent, server_ms });
        jump::judge(&mut known.anchor, sent, server_ms, Moment::now)
    }

    /// Forgets the clock: the next reply may come from another server, or from the same one after a
    /// restart.
    pub(crate) fn forget(&self) {
        lock(&self.0).last = None;
    }

    /// The server's time at `now`, to within a round trip and the difference of the clocks' rates.
    /// Before the first reply, this machine's wall clock stands in; a refusal corrects it.
    pub(crate) fn ms_at(&self, now: Moment) -> u64 {
        match lock(&self.0).last {
            Some(r) => r.server_ms + now.since(r.sent).as_millis() as u64,
            None => wall_ms(),
        }
    }

    /// The earliest local moment at which the server's clock can have shown `server_ms`, given that
    /// a message with that time arrived at `arrived`. A message sent before the last reply gives an
    /// earlier moment. For a later message, one percent of the time since that reply is subtracted,
    /// because the clocks' rates may differ.
    pub(crate) fn earliest(&self, server_ms: u64, arrived: Moment) -> Option<Moment> {
        let r = lock(&self.0).last?;
        let base = if server_ms >= r.server_ms {
            let later = server_ms - r.server_ms;
            r.sent.plus_ms(later - later / 100)
        } else {
            r.sent.minus_ms(r.server_ms - server_ms)
        };
        Some(base.min(arrived))
    }
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../tests/inside/base/clock/suspended_tests.rs"]
mod suspended_tests;

/// Locks a mutex of the library. No mutex is held across code that can panic, except for the
/// assertions of debug builds, so poisoning is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A1: a message that was delayed must not be counted from the last confirmed heartbeat.
    /// D57: a message said `4.999995753s`.
    #[test]
    fn measured_times_are_shown_without_noise() {
        for (ns, shown) in [
            (4_999_995_753, "5s"),
            (1_249_000_000, "1.2s"),
            (999_600_000, "1s"),
            (50_400_000, "50ms"),
            (0, "0ns"),
        ] {
            assert_eq!(format!("{:?}", rounded(Duration::from_nanos(ns))), shown);
        }
    }

    #[test]
    fn a_delayed_message_counts_from_its_own_server_time() {
        let clock = ServerClock::default();
        let start = Moment::now();
        clock.note(start.plus_ms(2_900), 1_002_900);
        let base = clock.earliest(1_000_000, start.plus_ms(3_000)).unwrap();
        assert_eq!(base, start);
    }

    #[test]
    fn a_message_is_never_counted_from_after_its_arrival() {
        let clock = ServerClock::default();
        let start = Moment::now();
        clock.note(start, 1_000_000);
        let arrived = start.plus_ms(50);
        assert_eq!(clock.earliest(1_900_000, arrived), Some(arrived));
        assert_eq!(clock.earliest(1_000_040, arrived), Some(start.plus_ms(40)));
    }
}
