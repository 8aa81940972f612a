//! The work of a client: acquisitions, renewals, releases and replays, on its background thread.

pub(crate) mod acquire;
pub(crate) mod confirm;
pub(crate) mod context;
pub(crate) mod detach;
pub(crate) mod dispatch;
pub(crate) mod downgrade;
pub(crate) mod election;
pub(crate) mod heartbeat;
mod last_kind;
pub(crate) mod latch;
pub(crate) mod machine;
pub(crate) mod panics;
pub(crate) mod reenter;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod replay;
pub(crate) mod send;
pub(crate) mod start;
