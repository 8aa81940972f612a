//! `--max-run`: when a command must end whose lock is in order. Pure: times are passed in.
//!
//! The lock is renewed until the command has ended. What endangers the lock is up to `plan.rs`, whose steps come first.

use std::time::Duration;

use super::plan::Step;

/// The bound of one run of the command.
#[derive(Debug)]
pub(super) struct Limit {
    /// `None` if the run is not bounded.
    ends_at: Option<Duration>,
    grace: Duration,
    /// Set once the command was asked to end.
    kill_at: Option<Duration>,
    killed: bool,
}

impl Limit {
    /// `begun`: when the command begins, on the boot clock. The whole `grace` counts: the lock has no end of its own.
    pub(super) fn new(begun: Duration, max_run: Option<Duration>, grace: Duration) -> Self {
        let ends_at = max_run.map(|time| begun + time);
        Self { ends_at, grace, kill_at: None, killed: false }
    }

    /// The next step at `now`, if the lock lets the command run for `wait`.
    pub(super) fn step(&mut self, now: Duration, wait: Duration) -> Step {
        match (self.ends_at, self.kill_at) {
            (None, _) => Step::Wait(wait),
            (Some(_), _) if self.killed => Step::Wait(wait),
            (Some(ends_at), None) if now < ends_at => Step::Wait(wait.min(ends_at - now)),
            (Some(_), None) => {
                self.kill_at = Some(now + self.grace);
                Step::Terminate
            }
            (Some(_), Some(kill_at)) if now < kill_at => Step::Wait(wait.min(kill_at - now)),
            (Some(_), Some(_)) => {
                self.killed = true;
                Step::Kill
            }
        }
    }

    /// When all that the command has started must be dead, if it was asked to end.
    pub(super) fn kill_at(&self) -> Option<Duration> {
        self.kill_at
    }

    /// Until when the command may live, whatever its lock allows; `None` if the run is not bounded.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.kill_at.or(self.ends_at.map(|end| end + self.grace))
    }
}

#[cfg(test)]
mod tests {
    use Step::{Kill, Terminate, Wait};

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_bounded_run_is_asked_then_killed_once_each() {
        let mut limit = Limit::new(ms(1_000), Some(ms(3_000)), ms(700));
        for (now, step, deadline) in [
            (1_000, Wait(ms(500)), 4_700),
            (3_900, Wait(ms(100)), 4_700),
            // Late: the grace counts from here.
            (4_050, Terminate, 4_750),
            (4_060, Wait(ms(500)), 4_750),
            (4_700, Wait(ms(50)), 4_750),
            (4_750, Kill, 4_750),
            (4_751, Wait(ms(500)), 4_750),
        ] {
            assert_eq!(limit.step(ms(now), ms(500)), step, "at {now}");
            assert_eq!(limit.deadline(), Some(ms(deadline)), "at {now}");
        }
        assert_eq!(limit.kill_at(), Some(ms(4_750)));
    }

    #[test]
    fn a_run_without_a_bound_is_left_alone() {
        let mut limit = Limit::new(ms(1_000), None, ms(700));
        assert_eq!(limit.step(Duration::from_secs(1 << 40), ms(500)), Wait(ms(500)));
        assert_eq!((limit.kill_at(), limit.deadline()), (None, None));
    }
}
