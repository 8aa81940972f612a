//! When the command is asked to end, and when it is killed. Pure: times are passed in.
//!
//! There are two rules. A lock in doubt, or under a lease that is not renewed, is over at its local
//! deadline, so the command is asked to end one grace earlier and is dead at the deadline. A lock that the
//! server reports as lost is over now, so the command is asked at once and is dead one grace later.

use std::time::Duration;

use fairlock::GuardState;

/// Longest time between two looks at the guard. Timers stand still while the machine sleeps, leases do not;
/// after waking up, the command may run for this long before this process notices. It is also how often the
/// guardian learns of a renewal, the first of which may be due within 2 s. For a short lease it is a fraction
/// of the lease: the guardian ends the command if it does not learn of a renewal in time.
const TICK: Duration = Duration::from_millis(500);

/// Least number of looks in a lease, which has three renewals.
const LOOKS_IN_A_LEASE: u32 = 6;

/// Part of the remaining time after which a held lock is looked at again, if that is less than [`TICK`]. So the guardian
/// learns of a renewal before the deadline that it replaces, however late the renewal is.
const LAST_LOOKS: u32 = 4;

/// Least time between two looks.
const SHORTEST: Duration = Duration::from_millis(1);

/// For how long the store may leave a hold without its whole lease. A hand-over gives a few seconds, and the
/// holder asks for the rest at once.
const WHOLE_WITHIN: Duration = Duration::from_secs(1);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing; look again after this time at the latest.
    Wait(Duration),
    /// Ask the command to end.
    Terminate,
    /// Kill it.
    Kill,
}

/// Decides the steps for one run of the command.
#[derive(Debug)]
pub(super) struct Plan {
    /// At most a third of the lease.
    grace: Duration,
    /// What the lock had when it was last granted or renewed: after a hand-over a few seconds of its lease.
    had: Duration,
    /// At most [`TICK`].
    tick: Duration,
    /// If the lease is not renewed, a held lock has a deadline, too: after this moment. Before, what it has
    /// may be what a hand-over gave.
    fixed_from: Option<Duration>,
    /// The command is left alone, whatever happens.
    hands_off: bool,
    /// Local deadline at the last look, on the boot clock.
    deadline: Duration,
    /// When that look was.
    looked: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Asked to end. Final even if the lock recovers: the command may have partly shut down.
    Ending {
        kill_at: Duration,
    },
    Killed {
        at: Duration,
    },
}

impl Plan {
    /// `grace` as requested; at most a third of the lease is used, and of what the lock has. If the lease is not
    /// renewed, `fixed_at` is when the lock was acquired.
    pub(super) fn new(
        grace: Duration,
        lease: Duration,
        fixed_at: Option<Duration>,
        hands_off: bool,
    ) -> Self {
        Self {
            grace: grace.min(lease / 3),
            had: lease,
            tick: TICK.min(lease / LOOKS_IN_A_LEASE),
            fixed_from: fixed_at.map(|at| at + WHOLE_WITHIN.min(lease / 3)),
            hands_off,
            deadline: Duration::MAX,
            looked: Duration::ZERO,
            phase: Phase::Running,
        }
    }

    /// The next step at `now`, with the guard in this state and this long before its deadline.
    pub(super) fn step(&mut self, now: Duration, state: GuardState, remaining: Duration) -> Step {
        if self.hands_off {
            return Step::Wait(self.tick);
        }
        match self.phase {
            Phase::Running => self.step_running(now, state, remaining),
            Phase::Ending { kill_at } if now >= kill_at => self.kill(now),
            Phase::Ending { kill_at } => Step::Wait(self.tick.min(kill_at - now)),
            Phase::Killed { .. } => Step::Wait(self.tick),
        }
    }

    /// Until when the command may live, as known now; `None` if it is left alone.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let deadline = self.kill_at().unwrap_or(self.deadline);
        (!self.hands_off && deadline != Duration::MAX).then_some(deadline)
    }

    /// How long a lock in doubt with this much left lets the command live; `None` if it is left alone.
    pub(super) fn left(&self, remaining: Duration) -> Option<Duration> {
        (!self.hands_off).then(|| remaining.saturating_sub(self.last_part()))
    }

    /// Notes that somebody else has killed the command because of the lock.
    pub(super) fn killed(&mut self, now: Duration) {
        if self.kill_at().is_none() {
            self.phase = Phase::Killed { at: now };
        }
    }

    /// When the rest of the group must be dead, if the command was asked to end.
    pub(super) fn kill_at(&self) -> Option<Duration> {
        match self.phase {
            Phase::Running => None,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killed { at } => Some(at),
        }
    }

    /// Time between asking and killing if there is no deadline.
    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    fn step_running(&mut self, now: Duration, state: GuardState, remaining: Duration) -> Step {
        if state == GuardState::Lost {
            // Past the deadline, for example after a sleep, the command has already run without the lock.
            if now >= self.deadline {
                return self.kill(now);
            }
            return self.terminate(now + self.grace);
        }
        self.look(now, remaining);
        if state == GuardState::Held && self.fixed_from.is_none()
            || self.is_early(now, state, remaining)
        {
            return Step::Wait(self.tick.min((remaining / LAST_LOOKS).max(SHORTEST)));
        }
        if remaining.is_zero() {
            self.kill(now)
        } else if remaining <= self.last_part() {
            self.terminate(self.deadline)
        } else {
            Step::Wait(self.tick.min(remaining - self.last_part()))
        }
    }

    /// Notes what the lock has at `now`.
    pub(super) fn look(&mut self, now: Duration, remaining: Duration) {
        let deadline = now + remaining;
        // A look that took its time puts the deadline a little earlier, which makes the next one no renewal.
        if self.deadline == Duration::MAX || deadline > self.deadline + self.tick {
            self.had = remaining;
        } else if self.fixed_from.is_none()
            && now > self.looked + 2 * self.tick
            && remaining + self.tick < self.last_part()
        {
            // This process stood still when it was to ask the command to end. A renewal was as impossible as that, and
            // may come now.
            self.had = remaining;
        }
        (self.deadline, self.looked) = (deadline, now);
    }

    /// How long before its deadline a lock in doubt ends the command. Right after a hand-over the whole grace may be
    /// most of what the lock has, and a connection that is lost for a moment would end the command.
    fn last_part(&self) -> Duration {
        self.grace.min(self.had / 3)
    }

    /// Whether it may still be told that the lock has its whole lease, and would have to end otherwise.
    pub(super) fn is_early(&self, now: Duration, state: GuardState, remaining: Duration) -> bool {
        state == GuardState::Held
            && self.fixed_from.is_some_and(|from| now < from)
            && !remaining.is_zero()
            && remaining <= self.grace
    }

    fn terminate(&mut self, kill_at: Duration) -> Step {
        self.phase = Phase::Ending { kill_at };
        Step::Terminate
    }

    fn kill(&mut self, now: Duration) -> Step {
        self.phase = Phase::Killed { at: now };
        Step::Kill
    }
}

#[cfg(test)]
mod tests {
    use GuardState::{Held, Lost, Suspect};
    use Step::{Kill, Terminate, Wait};

    use super::*;

    /// Feeds (now, state, remaining), in milliseconds, to a plan.
    fn check(mut plan: Plan, steps: &[(u64, GuardState, u64, Step)]) -> Plan {
        for &(now, state, remaining, step) in steps {
            assert_eq!(plan.step(ms(now), state, ms(remaining)), step, "at {now} {plan:?}");
        }
        plan
    }

    fn renewed() -> Plan {
        Plan::new(ms(5_000), ms(30_000), None, false)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_held_lock_is_left_alone() {
        let plan = check(
            renewed(),
            &[
                (0, Held, 6_000, Wait(TICK)),
                (900, Held, 100, Wait(TICK)),
                (1_900, Held, 0, Wait(TICK)),
            ],
        );
        assert_eq!(plan.kill_at(), None);
    }

    /// A renewed lease of 300 ms: the guardian, which only learns of renewals at these looks, ended the command.
    #[test]
    fn d26_a_short_lease_is_looked_at_more_often() {
        let plan = Plan::new(ms(5_000), ms(300), None, false);
        check(plan, &[(0, Held, 300, Wait(ms(50))), (50, Held, 250, Wait(ms(50)))]);
    }

    /// D49: a pause that ended just before the lease did, and whose renewal came in time, ended the command: the guardian
    /// learned of the renewal up to half a second later.
    #[test]
    fn held_lock_near_its_deadline_is_looked_at_before_it() {
        let plan =
            check(renewed(), &[(0, Held, 30_000, Wait(TICK)), (29_800, Held, 200, Wait(ms(50)))]);
        let plan =
            check(plan, &[(29_990, Held, 10, Wait(ms(10) / 4)), (29_999, Held, 1, Wait(ms(1)))]);
        assert_eq!(plan.deadline(), Some(ms(30_000)));
        let plan = check(plan, &[(29_999, Held, 30_000, Wait(TICK))]);
        assert_eq!(plan.deadline(), Some(ms(59_999)));
    }

    /// D49: the connection was lost in the pause as well. The next one may bring the renewal.
    #[test]
    fn doubt_after_a_pause_ends_the_command_only_in_its_last_part() {
        let woken = [(0, Held, 30_000, Wait(TICK)), (29_100, Suspect, 900, Wait(TICK))];
        check(check(renewed(), &woken), &[(29_600, Held, 30_000, Wait(TICK))]);
        let plan = check(check(renewed(), &woken), &[(29_600, Suspect, 400, Wait(ms(100)))]);
        let plan = check(plan, &[(29_700, Suspect, 300, Terminate)]);
        assert_eq!(plan.kill_at(), Some(ms(30_000)));
    }

    #[test]
    fn doubt_ends_the_command_before_the_deadline() {
        let plan = check(
            renewed(),
            &[
                (0, Suspect, 20_000, Wait(TICK)),
                (14_700, Suspect, 5_300, Wait(ms(300))),
                (15_000, Suspect, 5_000, Terminate),
                (15_001, Suspect, 4_999, Wait(TICK)),
                (19_500, Suspect, 500, Wait(ms(500))),
                (20_000, Lost, 0, Kill),
                (20_001, Lost, 0, Wait(TICK)),
            ],
        );
        assert_eq!(plan.kill_at(), Some(ms(20_000)));
    }

    #[test]
    fn doubt_that_passes_ends_nothing() {
        let plan =
            check(renewed(), &[(0, Suspect, 9_000, Wait(TICK)), (3_900, Held, 30_000, Wait(TICK))]);
        assert_eq!(plan.kill_at(), None);
    }

    /// A hand-over gives 6 s at most, of which the grace was most: a connection that was lost for
    /// milliseconds ended the command at its start.
    #[test]
    fn doubt_right_after_a_hand_over_may_pass() {
        let before = [(0, Suspect, 4_800, Wait(TICK)), (500, Suspect, 4_300, Wait(TICK))];
        let renewed_again = [(700, Held, 30_000, Wait(TICK)), (25_700, Suspect, 5_000, Terminate)];
        let plan = check(check(renewed(), &before), &renewed_again);
        assert_eq!(plan.kill_at(), Some(ms(30_700)));
        // It does not begin if most of that is over.
        let mut plan = renewed();
        plan.look(ms(0), ms(6_000));
        check(plan, &[(4_100, Suspect, 1_900, Terminate)]);
        // It ends in time if nothing comes: with a third of what it had.
        let plan = check(check(renewed(), &before), &[(3_200, Suspect, 1_600, Terminate)]);
        assert_eq!(plan.kill_at(), Some(ms(4_800)));
        // A deadline that is a little later is no renewal.
        let late = [(3_000, Suspect, 1_900, Wait(ms(300))), (3_300, Suspect, 1_600, Terminate)];
        check(check(renewed(), &before), &late);
    }

    /// A command that was asked to end cannot continue.
    #[test]
    fn ending_is_final() {
        let steps = [
            (0, Held, 15_000, Wait(TICK)),
            (10_100, Suspect, 4_900, Terminate),
            (12_000, Held, 30_000, Wait(TICK)),
        ];
        let plan = check(renewed(), &steps);
        assert_eq!(plan.kill_at(), Some(ms(15_000)));
    }

    #[test]
    fn the_servers_word_ends_it_at_once() {
        check(
            renewed(),
            &[
                (0, Held, 30_000, Wait(TICK)),
                (500, Lost, 0, Terminate),
                (501, Lost, 0, Wait(TICK)),
                (5_500, Lost, 0, Kill),
            ],
        );
    }

    /// While the machine slept, nobody could ask the command to end in time.
    #[test]
    fn waking_up_after_the_deadline_kills() {
        check(renewed(), &[(0, Held, 30_000, Wait(TICK)), (3_600_000, Lost, 0, Kill)]);
    }

    #[test]
    fn a_fixed_lease_ends_the_command_in_time() {
        let plan = Plan::new(ms(5_000), ms(3_000), Some(ms(0)), false);
        check(
            plan,
            &[
                (0, Held, 3_000, Wait(TICK)),
                (1_500, Held, 1_490, Wait(ms(490))),
                // A third of the lease instead of the requested five seconds.
                (1_990, Held, 1_000, Terminate),
                (2_990, Held, 0, Kill),
            ],
        );
    }

    /// After a hand-over, a lock with a lease of a minute had a few seconds at first, less than the grace. The
    /// command was ended, or did not begin and went to the end of the queue.
    #[test]
    fn a_fixed_lease_may_come_a_moment_after_the_grant() {
        let fixed = || Plan::new(ms(5_000), ms(60_000), Some(ms(0)), false);
        assert!(fixed().is_early(ms(10), Held, ms(4_000)));
        let told = [(10, Held, 4_000, Wait(TICK)), (510, Held, 59_000, Wait(TICK))];
        assert_eq!(check(fixed(), &told).kill_at(), None);
        check(fixed(), &[(10, Held, 300, Wait(ms(75))), (310, Held, 0, Kill)]);
        let never_told = [(999, Held, 4_000, Wait(TICK)), (3_666, Held, 1_333, Terminate)];
        check(fixed(), &never_told);
        check(fixed(), &[(10, Suspect, 4_000, Wait(TICK)), (2_677, Suspect, 1_333, Terminate)]);
    }

    #[test]
    fn no_grace_kills_at_the_deadline() {
        let plan = Plan::new(ms(0), ms(3_000), Some(ms(0)), false);
        check(plan, &[(2_500, Held, 500, Wait(ms(500))), (3_000, Held, 0, Kill)]);
    }

    #[test]
    fn hands_off_means_never() {
        let plan = Plan::new(ms(5_000), ms(3_000), Some(ms(0)), true);
        let plan = check(plan, &[(0, Suspect, 1, Wait(TICK)), (10, Lost, 0, Wait(TICK))]);
        assert_eq!(plan.kill_at(), None);
    }
}
