//! Whether a guard protects: the state of its hold, in atomics, and a notification of changes. Most
//! holds are over before anybody listens, so creating and dropping one costs nothing.

use crate::base::lost_reason::LostReason;
use fairlock_core::client::{Hold, Standing as Known};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Whether a guard still protects. There will be no other states than these three, in descending
/// order of trust, so a `match` may be exhaustive. Held and Suspect guards are valid, Lost ones are
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum GuardState {
    /// The lock is held, according to the last renewal and this machine's clock.
    Held,
    /// A renewal failed or is overdue, or the connection was lost. The validity has not run out.
    Suspect,
    /// The lock is no longer held. This state is final.
    Lost,
}

const HELD: u8 = 0;
const SUSPECT: u8 = 1;
/// Lost, with the reason's code added.
const LOST: u8 = 2;

impl GuardState {
    fn of_code(known: u8) -> Self {
        match known {
            HELD => Self::Held,
            SUSPECT => Self::Suspect,
            _ => Self::Lost,
        }
    }
}

/// Lock-free, so that reading a guard's state never waits. Written while the hold's mutex is held.
pub(crate) struct Standing {
    known: AtomicU8,
    valid_until_ns: AtomicU64,
    changed: Notify,
}

impl Standing {
    pub(crate) fn new(hold: &Hold) -> Self {
        Self {
            known: AtomicU8::new(HELD),
            valid_until_ns: AtomicU64::new(hold.valid_until_ns()),
            changed: Notify::new(),
        }
    }

    pub(crate) fn known(&self) -> GuardState {
        GuardState::of_code(self.known.load(Ordering::Acquire))
    }

    pub(crate) fn valid_until_ns(&self) -> u64 {
        self.valid_until_ns.load(Ordering::Acquire)
    }

    /// Why it is lost, if it is.
    pub(crate) fn reason(&self) -> Option<LostReason> {
        LostReason::of_code(self.known.load(Ordering::Acquire).checked_sub(LOST)?)
    }

    /// Shows the state of the hold, whose mutex is held. Returns its state if that is new:
    /// [`tell`](Self::tell) is called as soon as the mutex is free.
    pub(crate) fn show(&self, hold: &Hold) -> Option<GuardState> {
        let known = match hold.standing() {
            Known::Held => HELD,
            Known::Suspect => SUSPECT,
            Known::Lost(loss) => LOST + LostReason::of(loss).code(),
        };
        self.valid_until_ns.store(hold.valid_until_ns(), Ordering::Release);
        if self.known.load(Ordering::Relaxed) == known {
            return None;
        }
        self.known.store(known, Ordering::Release);
        Some(GuardState::of_code(known))
    }

    /// Wakes those who wait for a change.
    pub(crate) fn tell(&self) {
        self.changed.notify_waiters();
    }

    /// Resolves at the next change from now on, polled or not.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.changed.notified()
    }
}
