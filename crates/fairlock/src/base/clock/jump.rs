//! Detects jumps of a server's clock from its replies.
//!
//! A reply says what the server's clock showed at some moment between the sending of the call and
//! now. So the difference between that clock and this machine's lies between two bounds, however
//! late the reply was and however long this process stood still. A reply whose bounds lie wholly
//! outside those of an earlier reply shows a jump.

use super::Moment;
use std::fmt;
use std::time::Duration;

/// Smaller jumps are not reported, in ms: leases and heartbeats last for seconds.
const TOLERANCE_MS: u64 = 1_000;

/// Clocks may drift apart by one part in this many.
const RATE: u64 = 100;

/// Largest age of the reply that others are compared with, in ms, because a clock that runs a
/// little fast or slow does not jump.
const ANCHOR_MS: u64 = 10_000;

/// By how much a clock jumped, in ms; negative if it jumped back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) by_ms: i64,
}

/// What the jump means, for people.
impl fmt::Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = super::rounded(Duration::from_millis(self.by_ms.unsigned_abs()));
        if self.by_ms > 0 {
            write!(
                f,
                "the server's clock jumped forwards by {by:?}: leases ended early by as much, and a lock may have \
                 been handed on while its holder still counted on it (tokens tell the two apart)"
            )?;
        } else {
            write!(f, "the server's clock jumped back by {by:?}: leases last longer by as much")?;
        }
        f.write_str(
            "; have it slewed instead of stepped, and after a failover compare the servers' clocks",
        )
    }
}

/// Bounds of how far the server's clock was ahead of this machine's, in ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    sent_ms: u64,
    lowest: i64,
    highest: i64,
}

impl Anchor {
    /// The uncertainty: the reply may have been this late.
    fn width(&self) -> u64 {
        self.highest.abs_diff(self.lowest)
    }
}

/// Compares a reply with what is known. Calls `now` only if the difference or its age requires it.
pub(super) fn judge(
    anchor: &mut Option<Anchor>,
    sent: Moment,
    server_ms: u64,
    now: impl Fn() -> Moment,
) -> Option<Jump> {
    let sent_ms = sent.nanos() / 1_000_000;
    let highest = signed(server_ms).saturating_sub(signed(sent_ms));
    // Within the tolerance of the upper bound: neither bound can be off by more.
    if let Some(known) = anchor
        && highest.abs_diff(known.highest) <= TOLERANCE_MS
        && known.width() <= TOLERANCE_MS
        && sent_ms.saturating_sub(known.sent_ms) < ANCHOR_MS
    {
        return None;
    }
    let took = now().since(sent).as_millis();
    let lowest = highest.saturating_sub(i64::try_from(took).unwrap_or(i64::MAX));
    let found = Anchor { sent_ms, lowest, highest };
    let Some(known) = *anchor else {
        *anchor = Some(found);
        return None;
    };
    let age_ms = sent_ms.saturating_sub(known.sent_ms);
    let tolerance = signed(TOLERANCE_MS.saturating_add(age_ms / RATE));
    let jumped = lowest > known.highest.saturating_add(tolerance)
        || highest < known.lowest.saturating_sub(tolerance);
    let is_closer = found.width() < known.width();
    if jumped || is_closer || age_ms >= ANCHOR_MS {
        *anchor = Some(found);
    }
    jumped.then(|| Jump { by_ms: highest.saturating_sub(known.highest) })
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_000_000;

    /// A server whose clock is ahead by `ahead_ms`, and calls that are delayed on the way there or
    /// back.
    #[derive(Default)]
    struct Scene {
        anchor: Option<Anchor>,
        ahead_ms: u64,
    }

    impl Scene {
        fn reply(&mut self, at_ms: u64, there_ms: u64, back_ms: u64) -> Option<i64> {
            let sent_ms = START_MS + at_ms;
            let sent = Moment(sent_ms * 1_000_000);
            let server_ms = sent_ms + there_ms + self.ahead_ms;
            let now = || sent.plus_ms(there_ms + back_ms);
            judge(&mut self.anchor, sent, server_ms, now).map(|jump| jump.by_ms)
        }
    }

    fn scene() -> Scene {
        Scene { anchor: None, ahead_ms: 2_000_000 }
    }

    #[test]
    fn jumps_both_ways_are_seen_once() {
        for (by_ms, told) in [(3_600_000, true), (1_200, true), (1_000, false), (900, false)] {
            let mut scene = scene();
            assert_eq!(scene.reply(0, 0, 1), None);
            scene.ahead_ms += by_ms;
            assert_eq!(scene.reply(100, 0, 1), told.then_some(by_ms as i64), "{by_ms}");
            assert_eq!(scene.reply(200, 0, 1), None);
            scene.ahead_ms -= by_ms;
            assert_eq!(scene.reply(300, 0, 1), told.then_some(-(by_ms as i64)), "{by_ms}");
            assert_eq!(scene.reply(400, 0, 1), None);
        }
    }

    /// However late a reply is, on the way there or back, and whatever comes after it.
    #[test]
    fn delays_are_no_jumps() {
        let delays = [0, 1, 900, 1_100, 5_000, 60_000, 3_600_000];
        for there_ms in delays {
            for back_ms in delays {
                for first in [true, false] {
                    let mut scene = scene();
                    let mut at_ms = 0;
                    if !first {
                        assert_eq!(scene.reply(at_ms, 0, 1), None);
                        at_ms += 50;
                    }
                    for late in [true, false, true, true, false, false] {
                        let (there_ms, back_ms) = if late { (there_ms, back_ms) } else { (0, 1) };
                        assert_eq!(
                            scene.reply(at_ms, there_ms, back_ms),
                            None,
                            "{there_ms} {back_ms}"
                        );
                        at_ms += there_ms + back_ms + 50;
                    }
                    // A real jump is still found if one reply before it was quick.
                    scene.ahead_ms -= 60_000;
                    let seen = scene.reply(at_ms, 0, 1).unwrap();
                    assert!((-61_000..=-59_000).contains(&seen), "{there_ms} {back_ms}: {seen}");
                }
            }
        }
    }

    /// Half a percent fast, for a day, with a call a second or one an hour.
    #[test]
    fn a_clock_that_runs_fast_does_not_jump() {
        for pause_s in [1, 3_600] {
            let mut scene = scene();
            for second in (0..86_400).step_by(pause_s) {
                scene.ahead_ms = 2_000_000 + second * 5;
                assert_eq!(scene.reply(second * 1_000, 1, 1), None, "{second}");
            }
            scene.ahead_ms += 3_600_000;
            assert!(scene.reply(86_401_000, 1, 1).is_some(), "{pause_s}");
        }
    }

    #[test]
    fn the_common_reply_asks_for_no_time() {
        let mut anchor = None;
        let at = |ms| Moment(ms * 1_000_000);
        judge(&mut anchor, at(1), 1_000, || at(2));
        for ms in (2..9_000).step_by(100) {
            assert_eq!(judge(&mut anchor, at(ms), 1_000 + ms, || panic!("asked")), None);
        }
    }
}
