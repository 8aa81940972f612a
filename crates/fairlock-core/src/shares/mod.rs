//! Locks that several may hold at once: read-write locks and semaphores.
//!
//! There is one line, in order of arrival. Each waiter wants a [`Share`], and each holder has one, with a lease of its
//! own. Every operation ends by serving the line from its head for as long as the head's share
//! fits, so adjacent readers are granted together. Places, records and heartbeats of the waiters,
//! and the judgement of dead ones, work as for a fair lock.
//!
//! Invariants, checked after every operation in debug builds (`invariant.rs`):
//!
//! - G1 Nobody holds anything beside a Whole, and the permits in use are within the largest limit of their holders.
//! - G2 The head of the line does not fit, or is not known to be alive, unless the reply says MORE or a pause runs.
//! - G3 Nobody is granted before a living waiter with a smaller number.
//! - G4 Holds, leases and the permits in use agree, and so do places, records and wants.
//! - G5 Tokens never fall, are below 2^53, and are equal only among those who read at the same time.
//! - G6 A holder does not wait.
//! - G8 Our own keys have a TTL, and every hold has an end.
//!
//! (G7 and G9 are about a server beside Redisson.)

mod guests;
#[cfg(debug_assertions)]
mod invariant;
mod line;
mod look;
mod next;
mod operations;
mod quiet;
