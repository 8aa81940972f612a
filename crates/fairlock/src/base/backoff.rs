//! How long to wait before the next attempt: to connect, or to find a lock free.

use crate::base::random::random_u32;
use std::time::Duration;

/// First pause: short, because one lost packet or a restarting proxy should cost little.
const FIRST: Duration = Duration::from_millis(20);

/// Longest pause: a server that has come back is found within this time.
const LONGEST: Duration = Duration::from_secs(2);

/// After a connection that lived this long, pauses start again with the first one. Long enough that
/// a client that loses every connection opens at most one a second, short enough that another loss
/// soon after an outage does not wait for the pause that the outage had reached.
const SETTLED: Duration = Duration::from_secs(1);

/// Doubling pauses with jitter, so that a thousand clients do not reconnect at the same instant.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { pause: FIRST }
    }
}

impl Backoff {
    /// Returns the next pause: between half of the current step and all of it.
    pub(crate) fn next(&mut self) -> Duration {
        let step = self.pause;
        self.pause = (step * 2).min(LONGEST);
        step / 2 + jitter(step / 2)
    }

    /// Notes that a connection lived for `lifetime`.
    pub(crate) fn settle(&mut self, lifetime: Duration) {
        if lifetime >= SETTLED {
            self.pause = FIRST;
        }
    }
}

/// Returns a random time below `most`.
pub(crate) fn jitter(most: Duration) -> Duration {
    most.mul_f64(chance())
}

/// Returns a random number from 0 to 1.
pub(crate) fn chance() -> f64 {
    // Without randomness from the system there is no jitter, but then the client would not have
    // started.
    let random = random_u32().unwrap_or(0);
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pause lies between half of its step and all of it; the steps double up to two seconds.
    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let mut all = Vec::new();
        for _ in 0..20 {
            let mut backoff = Backoff::default();
            let mut step = FIRST;
            for _ in 0..12 {
                let pause = backoff.next();
                assert!(step / 2 <= pause && pause <= step, "{pause:?} of {step:?}");
                all.push(pause);
                step = (2 * step).min(LONGEST);
            }
            assert_eq!(step, LONGEST);
        }
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 200, "only {} of 240 differ", all.len());
    }

    #[test]
    fn a_connection_that_served_starts_the_pauses_again() {
        let mut backoff = Backoff::default();
        for _ in 0..12 {
            backoff.next();
        }
        backoff.settle(Duration::from_millis(999));
        assert!(backoff.next() >= LONGEST / 2, "it was lost at once: no reason to hurry");
        backoff.settle(Duration::from_secs(1));
        assert!(backoff.next() <= FIRST);
        assert!(backoff.next() > FIRST / 2);
    }
}
