//! The latch, for threads.

use super::{Interrupt, wait};
use crate::base::error::Error;
use fairlock_core::Opened;
use std::time::Duration;

/// A named latch: see [`Latch`](crate::Latch) of the async API.
///
/// ```
/// # fn main() -> Result<(), fairlock::Error> {
/// use fairlock::Opened;
///
/// let client = fairlock::blocking::Client::connect("memory:")?;
/// let import = client.latch("import");
/// assert!(import.try_set(1)?);
/// assert_eq!(import.count_down()?, 0);
/// assert_eq!(import.wait()?, Opened::CountedDown);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before one of its methods is called"]
pub struct Latch {
    inner: crate::Latch,
    interrupt: Option<Interrupt>,
}

impl Latch {
    pub(super) fn new(inner: crate::Latch) -> Self {
        Self { inner, interrupt: None }
    }

    /// Lets `interrupt` end the waits of this handle.
    pub fn interruptible(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    /// Sets the count: see [`Latch::try_set`](crate::Latch::try_set).
    ///
    /// # Errors
    /// Those of the async API, and [`Misuse`](crate::ErrorKind::Misuse) on a runtime's thread.
    pub fn try_set(&self, count: u64) -> Result<bool, Error> {
        wait::until_ready(self.inner.try_set(count))
    }

    /// Counts down by one: see [`Latch::count_down`](crate::Latch::count_down).
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set).
    pub fn count_down(&self) -> Result<u64, Error> {
        wait::until_ready(self.inner.count_down())
    }

    /// Returns the count: see [`Latch::count`](crate::Latch::count).
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set).
    pub fn count(&self) -> Result<u64, Error> {
        wait::until_ready(self.inner.count())
    }

    /// Waits until the latch is open: see [`Latch::wait`](crate::Latch::wait).
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set), and [`Interrupted`](crate::ErrorKind::Interrupted).
    pub fn wait(&self) -> Result<Opened, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), self.inner.wait())
    }

    /// Waits for at most `time`: see [`Latch::wait_for`](crate::Latch::wait_for).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&self, time: Duration) -> Result<Option<Opened>, Error> {
        wait::until_interrupted(self.interrupt.as_ref(), self.inner.wait_for(time))
    }

    /// Removes the latch: see [`Latch::delete`](crate::Latch::delete).
    ///
    /// # Errors
    /// As [`try_set`](Self::try_set).
    pub fn delete(&self) -> Result<bool, Error> {
        wait::until_ready(self.inner.delete())
    }
}
