//! Foundations: exit codes and failures, messages, output, durations, the clock, dates. Imports nothing above it.

pub(crate) mod clock;
pub(crate) mod duration;
pub(crate) mod exit;
pub(crate) mod line;
pub(crate) mod message;
pub(crate) mod output;
pub(crate) mod style;
pub(crate) mod url;
pub(crate) mod usage;
pub(crate) mod utc;
