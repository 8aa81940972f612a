//! The process and the thread that code runs in: what changes with `fork()`, and which thread this is.

use std::cell::Cell;

/// The process in which something was made.
///
/// A child of `fork()` has copies of all clients and guards, but not the threads behind them; their
/// mutexes may be locked for ever, and their connections are the parent's as well. So there nothing
/// of them may be used, not even dropped. Process ids differ between parent and child, unless the
/// child begins a namespace of process ids in which it has the same one by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is a child that has only a copy. A system call, about 0.1 us.
    pub(crate) fn is_forked_child(self) -> bool {
        self != Self::here()
    }
}

thread_local! {
    /// Whether this is the background thread of a client.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// This thread is the background thread of a client from now on.
pub(crate) fn enter_background() {
    IN_BACKGROUND.set(true);
}

/// Whether this thread is the background thread of a client, which cannot wait for itself.
pub(crate) fn in_background() -> bool {
    IN_BACKGROUND.get()
}

/// Whether this is the thread that runs `main`, as far as that can be told.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn is_main_thread() -> bool {
    // No thread's name can be trusted while it ends.
    false
}
