//! Processes: the guarded command and everything that it starts, signals, and the terminal.

pub(crate) mod abandoned_holds;
pub(crate) mod child;
pub(crate) mod escaped;
pub(crate) mod exec;
pub(crate) mod guardian;
mod orphans;
mod proc;
#[cfg(target_os = "linux")]
mod shared_scan;
pub(crate) mod signal;
pub(crate) mod terminal;
