//! Ending a blocked wait from another thread.

use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// A switch that ends waits for a lock from any thread, like `Thread.interrupt()` in Java. All
/// clones are the same switch.
///
/// Pass it to a lock with [`Lock::interruptible`](super::Lock::interruptible). From
/// [`interrupt`](Self::interrupt) until [`clear`](Self::clear),
/// - every `lock`, `try_lock`, `try_lock_for` and `enqueue` that is waiting through such a lock
///   ends at once with [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted). Its waiter leaves
///   the queue, which takes half a round trip; the thread does not wait for that;
/// - every such call that starts ends in the same way, before anything is sent, even if the lock is
///   free.
///
/// Unlike in Java, the switch stays on after it has ended a wait, because several threads may wait
/// through it. A [`Turn`](super::Turn) keeps its place when its wait is interrupted. A grant that
/// arrives at the same moment is not discarded: that call returns its guard, and the next one is
/// interrupted. Guards, releases and re-entries by [`Guard::reenter`](super::Guard::reenter) are
/// not affected.
///
/// ```
/// use fairlock::ErrorKind;
/// use fairlock::blocking::{Client, Interrupt};
///
/// # fn main() -> Result<(), fairlock::Error> {
/// let client = Client::connect("memory:")?;
/// let held = client.fair_lock("job").lock()?;
/// let interrupt = Interrupt::new();
/// let waiting = std::thread::spawn({
///     let lock = client.fair_lock("job").interruptible(&interrupt);
///     move || lock.lock().map(drop)
/// });
/// interrupt.interrupt();
/// let error = waiting.join().unwrap().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Interrupted);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Interrupt {
    on: Arc<watch::Sender<bool>>,
}

impl Interrupt {
    /// Creates a switch that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns the switch on: ends the waits under way, and those that start from now on.
    pub fn interrupt(&self) {
        self.on.send_replace(true);
    }

    /// Turns the switch off: waits can start again. Returns whether it was on.
    pub fn clear(&self) -> bool {
        self.on.send_replace(false)
    }

    /// Returns whether the switch is on, so that a wait that starts now ends at once.
    pub fn is_interrupted(&self) -> bool {
        *self.on.borrow()
    }

    /// Resolves as soon as the switch is on.
    pub(super) async fn requested(&self) {
        let mut on = self.on.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = on.wait_for(|on| *on).await;
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interrupt({})", if self.is_interrupted() { "on" } else { "off" })
    }
}
