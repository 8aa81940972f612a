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

mod acquisition;
mod copies;
mod recent;
mod replies;

pub use acquisition::Acquisition;
pub use copies::Copies;
pub use recent::RecentReleases;
pub use replies::{Acquired, Counted, Mismatch, Refused, Renewed};
