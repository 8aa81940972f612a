//! The types that users hold: clients, locks, guards. Nothing here decides what the protocol does
//! next.

pub(crate) mod client;
pub(crate) mod detached;
pub(crate) mod election;
pub(crate) mod guard;
pub(crate) mod latch;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod member;
pub(crate) mod multi_guard;
pub(crate) mod multi_lock;
pub(crate) mod observer;
pub(crate) mod owner;
pub(crate) mod release_ticket;
pub(crate) mod rw_lock;
pub(crate) mod scoped;
pub(crate) mod semaphore;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod turn;
