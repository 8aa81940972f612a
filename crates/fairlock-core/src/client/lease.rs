//! How long a hold lasts, and until when its client may rely on it. Times are nanoseconds of any
//! monotonic clock of the caller's choice.

use std::time::Duration;

/// By how much a renewal until the very end may miss it, besides its margin: fractions of
/// milliseconds.
const LAST_CALL_MS: u64 = 5;

/// What is left of a lock after a reader of Redisson's has renewed: the lease of its watchdog. It gives
/// the whole lock no more than that, whatever others hold.
pub(super) const CUT_TO_MS: u64 = 30_000;

pub(super) fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

/// Subtracted from every TTL before a guard relies on it: clocks differ in rate, and threads wake
/// late.
fn margin_ms(ttl_ms: u64) -> u64 {
    (ttl_ms / 100).max(10)
}

/// When a guard whose TTL is counted from `base_ns` stops being valid.
pub fn valid_until_ns(base_ns: u64, ttl_ms: u64) -> u64 {
    base_ns.saturating_add(ns(ttl_ms.saturating_sub(margin_ms(ttl_ms))))
}

/// How long a hold is to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Longest TTL that a renewal gives, in milliseconds.
    pub ms: u64,
    /// Whether the watchdog keeps renewing it.
    pub renewed: bool,
    /// Nothing renews it beyond this moment.
    pub end_ns: Option<u64>,
    /// Whether `end_ns` is the end of the longest hold.
    pub ends_by_max_hold: bool,
    /// Others may shorten its life in the store.
    pub may_be_cut: bool,
    /// Clients of Redisson are known to be among them.
    pub java_fleet: bool,
}

impl Lease {
    /// The longest TTL that a renewal gives.
    pub fn whole(self) -> Duration {
        Duration::from_millis(self.ms)
    }

    /// The TTL that a renewal asks for at `now_ns`, in milliseconds: the whole lease, or what is
    /// left until the end.
    pub fn wanted_ms(self, now_ns: u64) -> u64 {
        let left = self.end_ns.map_or(u64::MAX, |end| end.saturating_sub(now_ns) / 1_000_000);
        self.ms.min(left).max(1)
    }

    pub(super) fn capped(self, moment_ns: u64) -> u64 {
        self.end_ns.map_or(moment_ns, |end| moment_ns.min(end))
    }

    /// When a guard whose TTL is counted from `base_ns` stops being valid, never after the end. A TTL
    /// beyond the end counts as one until the end: a renewal with that TTL may follow, and end the
    /// hold then.
    pub(super) fn relied_on(self, base_ns: u64, ttl_ms: u64) -> u64 {
        let left_ms = self.end_ns.map_or(u64::MAX, |end| end.saturating_sub(base_ns) / 1_000_000);
        self.capped(valid_until_ns(base_ns, self.uncut_ms(ttl_ms).min(left_ms)))
    }

    /// How much of a TTL nobody takes away. Redisson's readers cut the lock whenever they renew, so an
    /// answer of the store is not relied on for longer than they leave it: the next answer may not come.
    pub(super) fn uncut_ms(self, ttl_ms: u64) -> u64 {
        if self.may_be_cut && self.java_fleet { ttl_ms.min(CUT_TO_MS) } else { ttl_ms }
    }

    /// Whether a hold that is valid until `valid_until_ns` has used up its lease: the last renewal
    /// before the end falls short of it by no more than its margin.
    pub(super) fn is_used_up(self, valid_until_ns: u64) -> bool {
        let short = ns(margin_ms(self.ms) + LAST_CALL_MS);
        self.end_ns.is_some_and(|end| valid_until_ns.saturating_add(short) >= end)
    }
}
