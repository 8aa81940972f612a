//! Parking the calling thread until a future is ready, where that is allowed.

use super::Interrupt;
use crate::base::clock::lock;
use crate::base::error::{Error, ErrorKind};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tokio::task::coop;

/// More than the budget of any task, which is 128 in tokio. A test fails if tokio grants more.
const BUDGET_MAX: usize = 1_024;

/// Waits for `future`.
///
/// # Errors
/// Those of the future, and `Misuse` on a thread that polls a task.
pub(super) fn until_ready<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    refuse_inside_a_task()?;
    block_on(future)
}

/// Like [`until_ready`], but an interrupt ends the wait. A result that is ready wins over the
/// interrupt.
pub(super) fn until_interrupted<T>(
    interrupt: Option<&Interrupt>,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(interrupt) = interrupt else { return until_ready(future) };
    let interrupted = || Error::new(ErrorKind::Interrupted, "the wait was interrupted");
    refuse_inside_a_task()?;
    if interrupt.is_interrupted() {
        return Err(interrupted());
    }
    block_on(async {
        tokio::select! {
            biased;
            result = future => result,
            () = interrupt.requested() => Err(interrupted()),
        }
    })
}

fn refuse_inside_a_task() -> Result<(), Error> {
    if !is_inside_a_task() {
        return Ok(());
    }
    let message = "a blocking call inside of a task would stop the other tasks of its thread, and \
                   may wait for one of them; use the async API, or tokio::task::spawn_blocking";
    Err(Error::misuse(message))
}

/// Whether this thread polls a task of tokio, or the future of its `block_on`. Having a runtime is
/// not enough: the threads of `spawn_blocking` and `block_in_place` have one, and may block. But
/// only a polled future has a budget, so this function uses the budget up, and then restores it.
fn is_inside_a_task() -> bool {
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut taken = Vec::new();
    while taken.len() < BUDGET_MAX && coop::has_budget_remaining() {
        let Poll::Ready(unit) = coop::poll_proceed(&mut context) else { break };
        taken.push(unit);
    }
    let is_limited = taken.len() < BUDGET_MAX;
    // Each value restores the budget that it found when dropped, so the first one is dropped last.
    while taken.pop().is_some() {}
    is_limited
}

/// Wakes a thread. Not `std::thread::park`: its wake-ups may be the application's own, and in the
/// destructors of thread-locals the thread's handle no longer exists.
#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn park(&self) {
        let woken = lock(&self.woken);
        let mut woken = self
            .changed
            .wait_while(woken, |woken| !*woken)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *woken = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.woken) = true;
        self.changed.notify_one();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        parker.park();
    }
}
