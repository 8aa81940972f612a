//! Whether a guard protects: what is known of its hold, in one atomic, and a notification of
//! changes. Most holds are over before anybody listens, so creating and dropping one costs nothing.

use crate::base::lost_reason::LostReason;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Whether a guard still protects. These three states are all there are, in this order of trust, so
/// a `match` may be exhaustive. Held and Suspect guards are valid, Lost ones are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

#[derive(Default)]
pub(crate) struct Standing {
    known: AtomicU8,
    changed: Notify,
}

impl Standing {
    pub(crate) fn known(&self) -> GuardState {
        match self.known.load(Ordering::Acquire) {
            HELD => GuardState::Held,
            SUSPECT => GuardState::Suspect,
            _ => GuardState::Lost,
        }
    }

    /// Why it is lost, if it is.
    pub(crate) fn reason(&self) -> Option<LostReason> {
        LostReason::of_code(self.known.load(Ordering::Acquire).checked_sub(LOST)?)
    }

    /// Becomes Lost for good, for the first reason that is found. Returns whether that is new.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        let lost = LOST + reason.code();
        let once = |known| (known < LOST).then_some(lost);
        let lost = self.known.fetch_update(Ordering::AcqRel, Ordering::Relaxed, once);
        self.tell(lost.is_ok())
    }

    /// Becomes Suspect if it was Held. Returns whether it was.
    pub(crate) fn suspect(&self) -> bool {
        self.turn(HELD, SUSPECT)
    }

    /// Becomes Held again if it was Suspect.
    pub(crate) fn trust(&self) -> bool {
        self.turn(SUSPECT, HELD)
    }

    /// Resolves at the next change from now on, polled or not.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn turn(&self, from: u8, to: u8) -> bool {
        let turned = self.known.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        self.tell(turned.is_ok())
    }

    fn tell(&self, is_new: bool) -> bool {
        if is_new {
            self.changed.notify_waiters();
        }
        is_new
    }
}
