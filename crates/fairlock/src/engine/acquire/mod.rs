//! Acquisitions. [`Acquiring`](fairlock_core::client::acquiring::Acquiring) decides the steps; this
//! module carries them out, in a task on the client's thread. A store that answers at once grants a
//! free lock before that, in the caller's thread.

mod course;
mod delivery;
mod drive;
pub(crate) mod errors;
mod owned;
mod request;
mod together;

pub(crate) use course::{Answered, Begun, Requested, begin};
pub(crate) use delivery::Delivery;
pub(crate) use request::Request;
pub(crate) use together::begin_together;
