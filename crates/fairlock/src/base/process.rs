//! The process and the thread that code runs in: whether it is a forked child, and which thread it
//! is.

use std::cell::Cell;

/// The process in which something was made.
///
/// A child of `fork()` has copies of all clients and guards, but not the threads behind them. Their
/// mutexes may be locked for ever, and their connections are shared with the parent, so the child
/// must neither use nor drop them. Process ids differ between parent and child, unless the child
/// starts a PID namespace in which it has the same id by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Returns whether this is a forked child, which has only a copy. Costs a system call, about
    /// 0.1 us.
    pub(crate) fn is_forked_child(self) -> bool {
        self != Self::here()
    }
}

thread_local! {
    /// Whether this is the background thread of a client.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as the background thread of a client.
pub(crate) fn enter_background() {
    IN_BACKGROUND.set(true);
}

/// Returns whether this thread is the background thread of a client, which cannot wait for itself.
pub(crate) fn in_background() -> bool {
    IN_BACKGROUND.get()
}

/// Returns whether this is the thread that runs `main`, as far as the platform reveals it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn is_main_thread() -> bool {
    // A thread's name cannot be trusted while the thread ends.
    false
}
