//! Locks as the commands look at them and show them.

pub(crate) mod form;
pub(crate) mod look;
pub(crate) mod text;
