//! Times in which something was wrong, and what they excuse.

use super::ns;
use crate::nemesis::process::{self, STOPPED};
use crate::nemesis::{Effect, Kind, clocks};
use crate::pace::HEARTBEAT;
use crate::pace::UNTIL_ORDER;
use std::collections::BTreeMap;
use std::time::Duration;

/// A disturbance that is longer may outlast what a hand-over was granted for.
const SHORT: Duration = HEARTBEAT.saturating_mul(2);

/// So much of a hold's time lost to a machine that others use too may be the rest of what it was granted for:
/// that is a heartbeat at least, and the first renewal goes out after a fifth of it.
const STALLED: Duration = HEARTBEAT.checked_div(3).expect("by three");

/// A process that did not run for so long may be taken for dead a little later.
const UNHEARD: Duration = Duration::from_millis(300);

/// A time in which something was wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    from: u64,
    /// The largest number while it lasts.
    until: u64,
    /// Nothing for a process that did not run.
    kind: Option<Kind>,
}

/// What can explain a suspicion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Excuse {
    /// Nothing.
    Never,
    /// A fault that loses state.
    StateLoss,
    /// The same, or one that outlasts what a hold is granted for.
    MayLose,
    /// The same, or one that lets requests arrive late or twice.
    Repeated,
    /// Any, and the time in which order comes back.
    Disturbed,
    /// The same, but for worker processes that were killed: nobody waits for those.
    NotAKill,
    /// The same, but for all that becomes of worker processes.
    NotAWorker,
    /// Only the machine, where it took more than a moment.
    Machine,
    /// An operator who gave a key another type.
    WrongType,
    /// A server's clock that was set back: together with a loss of tokens they may fall.
    ClockMoved,
}

/// All of them.
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

    /// A thread got hardly any processor. That explains what happened, and is no reason not to judge it: on a
    /// busy machine it is always so for somebody.
    pub(super) fn starve(&mut self, from: u64, until: u64) {
        self.starved.push(Window { from, until, kind: None });
    }

    /// Whether what happened in this time is explained. The latest come first: mostly it is them.
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
                    window.kind.is_some_and(|kind| !process::KINDS.contains(&kind))
                };
                all().filter(of_others).any(|window| window.disturbs(from, until))
                    || self.machine_was_busy(from, until)
            }
            Excuse::Machine => self.machine_was_busy(from, until),
            Excuse::WrongType => {
                all().filter(meets).any(|window| matches!(window.kind, Some(Kind::LockOverwritten)))
            }
            Excuse::ClockMoved => all().any(|window| window.moves_the_clock(from, until)),
        }
    }

    fn told(&self) -> impl Iterator<Item = &Window> {
        self.faults.values().rev().chain(self.stalls.iter().rev())
    }

    /// Whether somebody had hardly a processor, or stood still for longer than a stopped worker does.
    fn machine_was_busy(&self, from: u64, until: u64) -> bool {
        let starved =
            self.starved.iter().any(|window| window.from <= until && from <= window.until);
        starved || self.stalled(from, until) > ns(STOPPED)
    }

    /// For how long something did not run in this time, all in all.
    fn stalled(&self, from: u64, until: u64) -> u64 {
        let part = |window: &Window| window.until.min(until).saturating_sub(window.from.max(from));
        self.stalls.iter().map(part).sum()
    }

    /// Whether the order of places may be disturbed in this time.
    pub(super) fn disturbed(&self, from: u64, until: u64) -> bool {
        self.told().any(|window| window.disturbs(from, until))
    }
}

impl Window {
    fn loses_state(&self) -> bool {
        self.kind.is_some_and(|kind| kind.effect() == Effect::StateLoss)
    }

    /// Whether a hold may be lost in it.
    fn may_lose(&self) -> bool {
        self.loses_state() || self.until - self.from > ns(SHORT)
    }

    fn repeats(&self) -> bool {
        matches!(self.kind, Some(Kind::RequestsLate | Kind::RequestsReplayed))
    }

    /// Also for as long after it as tokens may be ahead of the time.
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
