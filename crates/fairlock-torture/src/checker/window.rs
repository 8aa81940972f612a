//! Intervals in which something was wrong, and what they excuse.

use super::ns;
use crate::nemesis::process::{self, STOPPED};
use crate::nemesis::{Effect, Kind, clocks};
use crate::pace::HEARTBEAT;
use crate::pace::UNTIL_ORDER;
use std::collections::BTreeMap;
use std::time::Duration;

/// A longer disturbance may outlast the grant of a hand-over.
const SHORT: Duration = HEARTBEAT.saturating_mul(2);

/// A shared machine that stalls a hold for this long may use up all that is left of its grant: a
/// grant lasts at least a heartbeat, and the first renewal is sent after a fifth of it.
const STALLED: Duration = HEARTBEAT.checked_div(3).expect("by three");

/// A process that did not run for this long may be judged dead shortly after.
const UNHEARD: Duration = Duration::from_millis(300);

/// An interval in which something was wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    from: u64,
    /// `u64::MAX` while it lasts.
    until: u64,
    /// `None` for a process that did not run.
    kind: Option<Kind>,
}

/// What can explain a suspicion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Excuse {
    /// Nothing.
    Never,
    /// A fault that loses state.
    StateLoss,
    /// The same, or a fault that outlasts the grant of a hold.
    MayLose,
    /// The same, or a fault that delivers requests late or twice.
    Repeated,
    /// Any fault, and the time after it until order is restored.
    Disturbed,
    /// The same, except killed workers: nothing waits for those.
    NotAKill,
    /// The same, except all faults of worker processes.
    NotAWorker,
    /// Only the machine, if it stalled for more than a moment.
    Machine,
    /// An operator who changed the type of a key.
    WrongType,
    /// A server's clock that was set back: if tokens are lost too, they may fall.
    ClockMoved,
    /// The same, or a failover, which may bring back who read some time before.
    TokenReturned,
}

/// All intervals of a run.
#[derive(Debug, Default)]
pub(super) struct Windows {
    faults: BTreeMap<usize, Window>,
    stalls: Vec<Window>,
    starved: Vec<Window>,
}

impl Windows {
    pub(super) fn begin(&mut self, id: usize, kind: Kind, from: u64) {
        self.faults.insert(id, Window { from, until: u64::MAX, kind: Some(kind) });
    }

    pub(super) fn end(&mut self, id: usize, until: u64) {
        if let Some(window) = self.faults.get_mut(&id) {
            window.until = until;
        }
    }

    pub(super) fn stall(&mut self, from: u64, until: u64) {
        self.stalls.push(Window { from, until, kind: None });
    }

    /// A thread got hardly any processor time. That excuses what happened but does not suspend the
    /// checks: on a busy machine some thread is always starved.
    pub(super) fn starve(&mut self, from: u64, until: u64) {
        self.starved.push(Window { from, until, kind: None });
    }

    /// Whether what happened in this interval is explained. The latest windows are checked first:
    /// most often it is one of them.
    pub(super) fn excuse(&self, excuse: Excuse, from: u64, until: u64) -> bool {
        let all = || self.told().chain(self.starved.iter().rev());
        let meets = |window: &&Window| window.from <= until && from <= window.until;
        match excuse {
            Excuse::Never => false,
            Excuse::StateLoss => all().filter(meets).any(Window::loses_state),
            Excuse::MayLose => {
                all().filter(meets).any(Window::may_lose) || self.stalled(from, until) > ns(STALLED)
            }
            Excuse::Repeated => {
                all().filter(meets).any(|window| window.may_lose() || window.repeats())
            }
            Excuse::Disturbed => all().any(|window| window.disturbs(from, until)),
            Excuse::NotAKill => all().any(|window| {
                window.kind != Some(Kind::WorkerKilled) && window.disturbs(from, until)
            }),
            Excuse::NotAWorker => {
                let of_others = |window: &&Window| {
                    window.kind.is_some_and(|kind| !process::is_of_a_worker(kind))
                };
                all().filter(of_others).any(|window| window.disturbs(from, until))
                    || self.machine_was_busy(from, until)
            }
            Excuse::Machine => self.machine_was_busy(from, until),
            Excuse::WrongType => {
                all().filter(meets).any(|window| matches!(window.kind, Some(Kind::LockOverwritten)))
            }
            Excuse::ClockMoved => all().any(|window| window.moves_the_clock(from, until)),
            Excuse::TokenReturned => {
                all().any(|window| window.moves_the_clock(from, until))
                    || all().filter(meets).any(Window::fails_over)
            }
        }
    }

    fn told(&self) -> impl Iterator<Item = &Window> {
        self.faults.values().rev().chain(self.stalls.iter().rev())
    }

    /// Whether a thread was starved, or something stalled for longer than a stopped worker does.
    fn machine_was_busy(&self, from: u64, until: u64) -> bool {
        let starved =
            self.starved.iter().any(|window| window.from <= until && from <= window.until);
        starved || self.stalled(from, until) > ns(STOPPED)
    }

    /// The total stall time within this interval.
    fn stalled(&self, from: u64, until: u64) -> u64 {
        let part = |window: &Window| window.until.min(until).saturating_sub(window.from.max(from));
        self.stalls.iter().map(part).sum()
    }

    /// Whether the order of places may be disturbed in this interval.
    pub(super) fn disturbed(&self, from: u64, until: u64) -> bool {
        self.told().any(|window| window.disturbs(from, until))
    }
}

impl Window {
    fn loses_state(&self) -> bool {
        self.kind.is_some_and(|kind| kind.effect() == Effect::StateLoss)
    }

    fn fails_over(&self) -> bool {
        self.kind.is_some_and(Kind::is_failover) && self.loses_state()
    }

    /// Whether a hold may be lost in this window.
    fn may_lose(&self) -> bool {
        self.loses_state() || self.until - self.from > ns(SHORT)
    }

    fn repeats(&self) -> bool {
        matches!(self.kind, Some(Kind::RequestsLate | Kind::RequestsReplayed))
    }

    /// The window includes the time after it for which tokens may be ahead of the clock.
    fn moves_the_clock(&self, from: u64, until: u64) -> bool {
        let moved = matches!(self.kind, Some(Kind::ClockForward | Kind::ClockBackward));
        let ahead = clocks::FORWARD_US.unsigned_abs() * 1_000;
        moved && self.from <= until && from <= self.until.saturating_add(ahead)
    }

    fn disturbs(&self, from: u64, until: u64) -> bool {
        let felt = self.kind.is_some() || self.until - self.from > ns(UNHEARD);
        felt && self.from <= until && from <= self.until.saturating_add(ns(UNTIL_ORDER))
    }
}
