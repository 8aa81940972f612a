//! What is measured, for how long, and on which locks. Pure.

use std::time::Duration;

use fairlock::{IdError, LockName};

use super::args::Args;

/// The shortest time for one step of a round: a hundred round trips on a fast network.
const SLOT_MIN: Duration = Duration::from_millis(5);

/// The shortest window for renewals: they come every third of the lease, and a lease below a second is lost on a
/// machine that stalls.
const WINDOW_MIN: Duration = Duration::from_millis(500);

/// Locks of the raw scripts. Their pipelines are as deep as useful, so that the server is the limit, however few
/// tasks they are compared with.
const RAW_LOCKS: u32 = 128;

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Round trips to the server.
    Ping,
    /// The scripts of locks, in pipelines.
    Raw,
    /// This many tasks, each with its own lock.
    Tasks(u32),
    /// One lock with this many waiters.
    Waiters(u32),
    /// This many locks that are held and renewed.
    Held(u32),
}

impl Step {
    /// The name for people.
    pub(super) fn name(self) -> String {
        match self {
            Self::Ping => "PING".to_owned(),
            Self::Raw => "raw scripts".to_owned(),
            Self::Tasks(1) => "1 task".to_owned(),
            Self::Tasks(n) => format!("{n} tasks"),
            Self::Waiters(1) => "1 waiter".to_owned(),
            Self::Waiters(n) => format!("{n} waiters"),
            Self::Held(1) => "1 held lock".to_owned(),
            Self::Held(n) => format!("{n} held locks"),
        }
    }
}

/// All steps, and their times.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The steps that take turns in each round.
    pub(super) round: Vec<Step>,
    pub(super) rounds: u32,
    /// How long each step of a round takes.
    pub(super) slot: Duration,
    /// Steps that run once, after the rounds; the first without any lock, for comparison.
    pub(super) held: Vec<Step>,
    /// How long renewals are observed.
    pub(super) window: Duration,
    prefix: String,
}

impl Plan {
    /// `prefix`: the start of all names of locks. Without a server there is nothing to compare with.
    pub(super) fn new(asked: &Args, has_server: bool, prefix: String) -> Self {
        let mut round = Vec::new();
        if has_server {
            round.extend([Step::Ping, Step::Raw]);
        }
        round.push(Step::Tasks(1));
        if asked.tasks > 1 {
            round.push(Step::Tasks(asked.tasks));
        }
        round.extend(asked.waiters.iter().map(|n| Step::Waiters(*n)));
        let held: Vec<_> = [0].iter().chain(&asked.held).map(|n| Step::Held(*n)).collect();
        let steps = u32::try_from(round.len() + held.len()).unwrap_or(u32::MAX);
        let each = asked.time / steps;
        Self {
            round,
            rounds: asked.rounds,
            slot: (each / asked.rounds).max(SLOT_MIN),
            held,
            window: each.max(WINDOW_MIN),
            prefix,
        }
    }

    /// How long the measurements take, without their preparation.
    pub(super) fn takes(&self) -> Duration {
        let slots = u32::try_from(self.round.len()).unwrap_or(u32::MAX).saturating_mul(self.rounds);
        let windows = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        self.slot.saturating_mul(slots) + self.window.saturating_mul(windows)
    }

    /// The lease of the locks whose renewals are observed: each is renewed once, after two thirds of the window.
    pub(super) fn held_lease(&self) -> Duration {
        self.window * 2
    }

    /// All steps in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = (Option<u32>, Step)> {
        let round = move |number| self.round.iter().map(move |step| (Some(number), *step));
        (1..=self.rounds).flat_map(round).chain(self.held.iter().map(|step| (None, *step)))
    }

    /// The locks that a step uses.
    pub(super) fn names(&self, step: Step) -> Result<Vec<LockName>, IdError> {
        let prefix = &self.prefix;
        let name = |name: String| LockName::new(name.as_bytes());
        match step {
            Step::Ping => Ok(Vec::new()),
            Step::Raw => (0..RAW_LOCKS).map(|n| name(format!("{prefix}:raw:{n}"))).collect(),
            Step::Tasks(tasks) => (0..tasks).map(|n| name(format!("{prefix}:task:{n}"))).collect(),
            Step::Waiters(_) => Ok(vec![name(format!("{prefix}:turns"))?]),
            Step::Held(held) => (0..held).map(|n| name(format!("{prefix}:held:{n}"))).collect(),
        }
    }

    /// The start of the names of all locks.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Every name that any step uses, for the cleanup.
    pub(super) fn all_names(&self) -> Result<Vec<LockName>, IdError> {
        let mut all = Vec::new();
        for step in self.round.iter().chain(&self.held) {
            all.extend(self.names(*step)?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Describes the plan for people.
    pub(super) fn describe(&self) -> String {
        let names = |steps: &[Step]| steps.iter().map(|step| step.name()).collect::<Vec<_>>();
        let held = names(self.held.get(1..).unwrap_or_default());
        format!(
            "{} rounds of {}; then {}",
            self.rounds,
            names(&self.round).join(", "),
            held.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::args;
    use super::*;

    #[test]
    fn the_time_is_shared_out() {
        let plan = Plan::new(&args("--time 22s"), true, "p".into());
        assert_eq!(plan.slot, Duration::from_secs(2) / 5);
        assert_eq!(plan.window, Duration::from_secs(2));
        assert_eq!(plan.takes(), Duration::from_secs(22));
        assert_eq!(plan.steps().count(), 5 * 7 + 4);
        let short = Plan::new(&args("--time 100ms"), true, "p".into());
        assert_eq!((short.slot, short.window), (SLOT_MIN, WINDOW_MIN));
    }

    /// A lock that is not in the list would stay behind.
    #[test]
    fn every_name_is_known_and_begins_with_the_prefix() {
        let plan = Plan::new(&args("--tasks 3 --held 2,4 --waiters 7"), true, "p".into());
        let all = plan.all_names().unwrap();
        for (_, step) in plan.steps() {
            for name in plan.names(step).unwrap() {
                assert!(all.contains(&name), "{name}");
            }
        }
        assert!(all.iter().all(|name| name.as_bytes().starts_with(b"p:")));
        assert_eq!(all.len(), RAW_LOCKS as usize + 3 + 1 + 4);
    }

    #[test]
    fn without_a_server_nothing_is_compared() {
        let plan = Plan::new(&args("--tasks 1"), false, "p".into());
        assert_eq!(plan.round[..2], [Step::Tasks(1), Step::Waiters(2)]);
    }
}
