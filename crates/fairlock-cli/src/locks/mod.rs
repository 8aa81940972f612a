//! Looking at locks, and showing them.

pub(crate) mod form;
pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod java;
pub(crate) mod look;
pub(crate) mod nested;
pub(crate) mod take_away;
pub(crate) mod text;
