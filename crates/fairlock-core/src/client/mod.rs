//! The client's half of the protocol, as values: what a client knows of its requests, and what follows from a
//! reply or a message. Nothing here does I/O, reads a clock or draws an id.
//!
//! Invariants, numbered as C1..C8 are for a lock:
//!
//! - K1: a request that a store may carry out, or may have carried out, is never forgotten: it is the present
//!   one, a former one, or a doubtful one, until an answered `Leave` or the end of its hold has settled it.
//! - K2: only the present request and the former ones can be granted; a grant of any other request is dropped.
//! - K3: a request is taken back once. It is buried if a copy of it is unanswered, because a late copy would
//!   otherwise take the lock for nobody.
//! - K4: every request that can be granted leads to its waiter, and no other request leads to any.
//! - K5: a wait ends once; a waiter whose wait is over is in no queue.
//! - K6: a waiter that the store says is in the queue has a place among the waiters of its lock, by
//!   that order number, until its wait is over. A lock has heartbeats while it has such waiters.

mod acquisition;
mod copies;
mod heartbeat;
mod recent;
mod replies;
mod waiters;

pub use acquisition::Acquisition;
pub use copies::Copies;
pub use heartbeat::{Due, Failed, Outlook, Returned, Step};
pub use recent::RecentReleases;
pub use replies::{Acquired, Counted, Mismatch, Refused, Renewed};
pub use waiters::{Granted, Lasts, Left, Message, Queued, Waiters};
