//! The client's half of the protocol, as values: the state of a client's requests, waiters and
//! holds, and the effects of a reply, a message or the time. Nothing here does I/O, reads a clock
//! or draws an id.
//!
//! Invariants, numbered as C1..C8 are for a lock:
//!
//! - K1: a request that a store may carry out, or may have carried out, is never forgotten: it is
//!   the present one, a former one, a doubtful one, or a [debt](Debts), until an answered `Leave`
//!   or the end of its hold has settled it; except the oldest of more than
//!   [`Acquisition::FORMER_MAX`] former ones or [`Debts::MAX`] debts.
//! - K2: only the present request and the former ones can be granted; a grant of any other request
//!   is dropped.
//! - K3: a request that is given up is taken back, and buried if a copy of it is unanswered, because
//!   a late copy would otherwise take the lock for nobody.
//! - K4: every request that can be granted leads to its waiter, and no other request leads to any.
//! - K5: a wait ends once; a waiter whose wait is over is in no queue.
//! - K6: a waiter that is in the queue according to the store has a place among the waiters of its
//!   lock, by that order number, until its wait is over. A lock has heartbeats while it has such
//!   waiters.
//! - K7: a hold becomes valid for longer only by a grant or an answered renewal, counted from when
//!   that was sent, less a margin; it is never valid beyond the end of its lease.
//! - K8: a hold that is lost stays lost, for the first reason that was found, and its validity does
//!   not grow.
//! - K9: while a hold is being left to the store, nobody enters it, no renewal of the watchdog
//!   begins, and nothing makes it valid beyond the requested end.
//! - K10: each change of the number of guards, or from writing to reading, has a larger number than
//!   those before it; a hold without guards never gets one again, and a reader's hold never becomes
//!   a writer's.
//! - K11: the watchdog never sleeps beyond the moment when a hold is due.
//! - K12: a hold is planned once, and waits for its renewal in one lane at most; each lane has at
//!   most [`RENEWALS_MAX`] renewals under way on one connection.
//! - K13: an acquisition ends once: with a hold, a "no" or an error.
//! - K14: when it ends, each of its requests that may still be carried out is among those of the
//!   hold, or was taken back.

pub mod acquiring;
mod acquisition;
mod at_once;
mod copies;
mod debts;
mod heartbeat;
mod hold;
mod lease;
mod lines;
mod machine;
mod patience;
mod recent;
mod release;
mod renewals;
mod replies;
mod together;
mod waiters;

pub use acquisition::Acquisition;
pub use at_once::{AtOnce, Tried};
pub use copies::Copies;
pub use debts::Debts;
pub use heartbeat::{Due, Failed, Outlook, Pace, Returned, Step};
pub use hold::{Change, GuardEnd, Hold, Look, Loss, Silence, Standing};
pub use lease::{Lease, valid_until_ns};
pub use machine::{AttemptId, Client, Effect, Surroundings, Way};
pub use recent::RecentReleases;
pub use release::{Outcome, Released};
pub use renewals::{RENEWALS_MAX, Renewals, SLEEP_MAX, Slot};
pub use replies::{Acquired, Counted, Mismatch, Refused, Renewed};
pub use together::{NotTogether, TOGETHER_MAX, Take, Together, order_of};
pub use waiters::{Granted, Lasts, Left, Message, Queued, Waiters};
