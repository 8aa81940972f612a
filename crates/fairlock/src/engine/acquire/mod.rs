//! Acquisitions. The client's machine decides the steps; this module does the work, in a task on the client's thread. A
//! store that answers at once grants a free lock before that, in the caller's thread.

mod course;
mod delivery;
mod drive;
pub(crate) mod errors;
mod owned;
mod request;
mod together;

pub(crate) use course::{Answered, Asking, Begun, Requested, begin};
pub(crate) use delivery::Delivery;
pub(crate) use request::Request;
pub(crate) use together::begin_together;
