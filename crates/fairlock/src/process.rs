//! The process that a client lives in: what changes with `fork()`, and what the end of `main`, and of other
//! threads, waits for.

use crate::clock::Moment;
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a thread's end, or a client's, waits for guards that were dropped just before it:
/// releases take a round trip; a store that does not answer must not hold a program up.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// The process in which something was made.
///
/// A child of `fork()` has copies of all clients and guards, but not the threads behind them; their
/// mutexes may be locked for ever, and their connections are the parent's as well. So there nothing
/// of them may be used, not even dropped. Process ids differ between parent and child, unless the
/// child begins a namespace of process ids in which it has the same one by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

impl Home {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is a child that has only a copy. A system call, about 0.1 us.
    pub(crate) fn is_left(self) -> bool {
        self != Self::here()
    }
}

thread_local! {
    /// Whether this is the background thread of a client.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };

    /// The clients whose releases the end of this thread waits for: on the main thread all that it has
    /// used, because a client in a static is never dropped; elsewhere those that ended on it.
    static AT_END: AtEnd = const { AtEnd(RefCell::new(Vec::new())) };
}

/// This thread is the background thread of a client from now on.
pub(crate) fn enter_background() {
    IN_BACKGROUND.set(true);
}

/// Whether this thread is the background thread of a client, which cannot wait for itself.
pub(crate) fn in_background() -> bool {
    IN_BACKGROUND.get()
}

struct AtEnd(RefCell<Vec<Weak<Shared>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let until = Moment::now().plus(LAST_WORDS);
        for client in self.0.take().iter().filter_map(Weak::upgrade) {
            if !client.home.is_left() {
                client.pending.wait(until.left());
            }
        }
    }
}

/// On the main thread: from now on its end waits for what this client has under way then. If it is
/// ending already, waits now.
pub(crate) fn wait_at_end(client: &Arc<Shared>) {
    if is_main_thread() {
        wait_at_end_of_thread(client);
    }
}

/// The last handle of a client was dropped on this thread. That does not wait, but what was released just
/// before must not be lost because the program is over the next moment: the end of this thread waits.
pub(crate) fn ended_here(client: &Arc<Shared>) {
    /// Whether the destructors of thread-locals run when a thread ends, of the main thread, too.
    const END_IS_SEEN: bool = cfg!(any(
        all(target_os = "linux", target_env = "gnu"),
        target_os = "android",
        target_vendor = "apple"
    ));
    if client.pending.count() == 0 {
        return;
    }
    if END_IS_SEEN {
        wait_at_end_of_thread(client);
    } else if is_main_thread() || tokio::runtime::Handle::try_current().is_err() {
        // Then here, but not in a task.
        client.pending.wait(LAST_WORDS);
    }
}

fn wait_at_end_of_thread(client: &Arc<Shared>) {
    let noted = AT_END.try_with(|at_end| {
        let mut clients = at_end.0.borrow_mut();
        let this = Arc::downgrade(client);
        if !clients.iter().any(|known| known.ptr_eq(&this)) {
            clients.retain(|known| known.strong_count() > 0);
            clients.push(this);
        }
    });
    if noted.is_err() {
        client.pending.wait(LAST_WORDS);
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_main_thread() -> bool {
    // No thread's name can be trusted while it ends.
    false
}
