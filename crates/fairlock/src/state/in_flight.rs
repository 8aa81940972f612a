//! Clean-ups that are under way. A shutdown waits for them, and so does the end of `main` and of
//! other threads.

use crate::base::clock::{Moment, lock};
use crate::base::process::{Origin, is_main_thread};
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

/// How long the end of a thread or of a client waits for guards that were dropped just before it.
/// Releases take a round trip; a store that does not answer must not hold up a program.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// How many clean-ups are under way, and a way to wait for them.
pub(crate) struct InFlight {
    /// The process in which they are under way, as opposed to a forked child.
    origin: Origin,
    count: Mutex<usize>,
    done: Condvar,
}

impl InFlight {
    pub(crate) fn new(origin: Origin) -> Self {
        Self { origin, count: Mutex::default(), done: Condvar::new() }
    }

    /// Blocks until none is under way, at most for `limit`. Returns whether none is.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let count = lock(&self.count);
        let (count, _) = self
            .done
            .wait_timeout_while(count, limit, |count| *count > 0)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *count == 0
    }

    /// As [`wait`](Self::wait), in a task.
    pub(crate) async fn settled(&self, until: Moment) {
        /// A clean-up takes at least a round trip.
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        while self.count() > 0 && !until.left().is_zero() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) fn count(&self) -> usize {
        *lock(&self.count)
    }
}

/// Counts one clean-up for as long as it lives.
pub(crate) struct InFlightCleanup(Arc<InFlight>);

impl InFlightCleanup {
    pub(crate) fn new(in_flight: &Arc<InFlight>) -> Self {
        *lock(&in_flight.count) += 1;
        Self(Arc::clone(in_flight))
    }
}

impl Drop for InFlightCleanup {
    fn drop(&mut self) {
        let mut count = lock(&self.0.count);
        *count -= 1;
        if *count == 0 {
            self.0.done.notify_all();
        }
    }
}

thread_local! {
    /// The clients whose releases the end of this thread waits for: on the main thread, all clients
    /// that it has used, because a client in a static is never dropped; on other threads, those
    /// that ended there.
    static AT_END: AtEnd = const { AtEnd(RefCell::new(Vec::new())) };
}

struct AtEnd(RefCell<Vec<Weak<InFlight>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let until = Moment::now().plus(LAST_WORDS);
        for client in self.0.take().iter().filter_map(Weak::upgrade) {
            if !client.origin.is_forked_child() {
                client.wait(until.left());
            }
        }
    }
}

/// If this is the main thread, makes its end wait for the releases that this client then has under
/// way. If the thread is ending already, waits now.
pub(crate) fn wait_at_end(client: &Arc<InFlight>) {
    if is_main_thread() {
        wait_at_end_of_thread(client);
    }
}

/// Notes that the last handle of a client was dropped on this thread. The drop does not wait, but a
/// release just before it must not be lost if the program ends the next moment, so the end of this
/// thread waits.
pub(crate) fn ended_here(client: &Arc<InFlight>) {
    /// Whether destructors of thread-locals run at the end of a thread, including the main thread.
    const END_IS_SEEN: bool = cfg!(any(
        all(target_os = "linux", target_env = "gnu"),
        target_os = "android",
        target_vendor = "apple"
    ));
    if client.count() == 0 {
        return;
    }
    if END_IS_SEEN {
        wait_at_end_of_thread(client);
    } else if is_main_thread() || tokio::runtime::Handle::try_current().is_err() {
        // Otherwise wait here, but never in a task.
        client.wait(LAST_WORDS);
    }
}

fn wait_at_end_of_thread(client: &Arc<InFlight>) {
    let noted = AT_END.try_with(|at_end| {
        let mut clients = at_end.0.borrow_mut();
        let this = Arc::downgrade(client);
        if !clients.iter().any(|known| known.ptr_eq(&this)) {
            clients.retain(|known| known.strong_count() > 0);
            clients.push(this);
        }
    });
    if noted.is_err() {
        client.wait(LAST_WORDS);
    }
}
