//! The commands, one module each, with their options. None imports another.

pub(crate) mod demo;
pub(crate) mod fence_sql;
pub(crate) mod latch;
pub(crate) mod leader;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod run;
pub(crate) mod status;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod unlock;
pub(crate) mod wait;
pub(crate) mod watch;
