//! The state of a client: its holds, waiters, owners, and what is under way. None of it calls a
//! store.

pub(crate) mod hold;
pub(crate) mod in_flight;
pub(crate) mod kinds;
pub(crate) mod latches;
pub(crate) mod observers;
pub(crate) mod outcome;
pub(crate) mod renewals;
pub(crate) mod seat;
pub(crate) mod signals;
pub(crate) mod standing;
