//! The foundation: time, errors, randomness, processes.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod concurrent;
pub(crate) mod error;
pub(crate) mod host_port;
pub(crate) mod lost_reason;
pub(crate) mod process;
pub(crate) mod random;
