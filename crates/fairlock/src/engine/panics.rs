//! A panic in the client's background work, in our code or in code that observes the client, closes
//! it. Otherwise a waiter whose heartbeats ended that way would wait for ever, and the renewals of
//! a hold would end silently.

use crate::engine::context::Context;
use crate::store::Scope;
use std::borrow::Borrow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// With more clean-ups than this under way, the background thread begins the next ones.
const FIRST_STEPS_MAX: usize = 4;

impl Context {
    /// Begins work in the background.
    pub(crate) fn spawn<W>(self: &Arc<Self>, work: W) -> JoinHandle<W::Output>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        let context = Arc::clone(self);
        self.runtime.spawn(async move {
            let _closes = ClosesOnPanic::new(context);
            work.await
        })
    }

    /// Does the first step of a clean-up that continues in the background: its first call leaves
    /// from this thread, without waiting for the other one to wake up. If many are under way, the
    /// background thread is awake, sends them together, and must not wait for this thread. Work
    /// that panics here panics again in the background, where the panic is handled.
    ///
    /// For callers that await the outcome, not for drops: these happen where no runtime can be
    /// entered, and their callers wait for nothing.
    pub(crate) fn first_step<W: Future>(&self, work: Pin<&mut W>) -> Poll<W::Output> {
        // In the destructor of a thread-local that outlives tokio's.
        let is_ending = Handle::try_current().is_err_and(|it| it.is_thread_local_destroyed());
        if is_ending || std::thread::panicking() || self.in_flight.count() > FIRST_STEPS_MAX {
            return Poll::Pending;
        }
        let step = AssertUnwindSafe(|| {
            let _inside = self.runtime.enter();
            work.poll(&mut task::Context::from_waker(Waker::noop()))
        });
        std::panic::catch_unwind(step).unwrap_or(Poll::Pending)
    }

    /// Closes the client if it is dropped by a panic.
    pub(crate) fn closes_on_panic(self: &Arc<Self>) -> impl Drop {
        ClosesOnPanic::new(self)
    }

    /// Runs `work`. If it panics, the client is closed, but the calling task continues.
    pub(crate) fn survive(self: &Arc<Self>, work: impl FnOnce()) {
        let closes = self.closes_on_panic();
        // The client is closed then, so the state that a panic leaves behind is not used.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let _closes = closes;
            work();
        }));
    }
}

/// Closes the client if it is dropped by a panic.
struct ClosesOnPanic<C: Borrow<Arc<Context>>> {
    context: C,
    /// The thread was panicking before: a guard is dropped by the panic of the application.
    unwinds: bool,
}

impl<C: Borrow<Arc<Context>>> ClosesOnPanic<C> {
    fn new(context: C) -> Self {
        Self { context, unwinds: std::thread::panicking() }
    }
}

impl<C: Borrow<Arc<Context>>> Drop for ClosesOnPanic<C> {
    fn drop(&mut self) {
        if self.unwinds || !std::thread::panicking() {
            return;
        }
        // In tasks of their own: code that observes the client may panic again, which would end the
        // process here.
        let context = self.context.borrow();
        let (closes, doubts) = (Arc::clone(context), Arc::clone(context));
        closes.runtime.clone().spawn(async move { closes.close() });
        doubts.runtime.clone().spawn(async move { doubts.watchdog.suspect(&Scope::All) });
    }
}

#[cfg(test)]
mod tests {
    use crate::{Client, Config, ErrorKind, GuardState};
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(20);

    async fn client() -> Client {
        let config = Config::memory().watchdog_lease(Duration::from_millis(1_500));
        Client::with_config(config).await.expect("memory")
    }

    #[tokio::test]
    async fn a_panic_in_the_background_closes_the_client() {
        let client = client().await;
        let (lock, other) = (client.fair_lock("job"), client.fair_lock("job"));
        let guard = lock.lock().await.expect("free");
        let waiter = tokio::spawn(async move { other.lock().await.map(drop) });
        while client.context().machine.waiting() == (0, 0) {
            tokio::task::yield_now().await;
        }
        let panics = client.context().spawn(async { panic!("on purpose") });
        assert!(panics.await.is_err_and(|ended| ended.is_panic()));
        let waited = timeout(SOON, waiter).await.expect("told").expect("no panic of its own");
        assert_eq!(waited.expect_err("nobody serves it").kind(), ErrorKind::Closed);
        assert_eq!(lock.try_lock().await.expect_err("closed").kind(), ErrorKind::Closed);
        timeout(SOON, guard.lost()).await.expect("at the end of its lease");
    }

    #[tokio::test]
    async fn a_panic_at_the_first_step_spares_the_caller() {
        let client = client().await;
        let mut work = Box::pin(async { panic!("on purpose") });
        assert!(client.context().first_step(work.as_mut()).is_pending());
        assert!(client.context().spawn(work).await.is_err_and(|ended| ended.is_panic()));
        timeout(SOON, client.context().closed()).await.expect("closed");
    }

    /// Metrics are the application's code. Here the client's tasks run on this thread, and its
    /// recorder is theirs.
    #[cfg(all(feature = "metrics", feature = "test-util"))]
    #[test]
    fn a_panic_of_a_recorder_leaves_no_waiter() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        metrics::with_local_recorder(&Panics::AtCounters, || {
            runtime.block_on(async {
                let sandbox = crate::test_util::Sandbox::new();
                let client = sandbox.client();
                let owned = client.fair_lock("job").owned_by(&client.owner());
                let asks = timeout(SOON, owned.lock()).await.expect("told");
                assert_eq!(asks.expect_err("a grant is counted").kind(), ErrorKind::Closed);
                assert_eq!(client.context().machine.waiting(), (0, 0));
                timeout(SOON, client.context().closed()).await.expect("closed");
            });
        });
    }

    /// If a recorder panicked while a guard was being dropped, the hold was renewed for ever.
    #[cfg(feature = "metrics")]
    #[tokio::test]
    async fn a_panic_of_a_recorder_while_a_guard_is_dropped_leaves_no_renewed_hold() {
        let client = client().await;
        let guard = client.fair_lock("job").lock().await.expect("free");
        let hold = guard.hold();
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            metrics::with_local_recorder(&Panics::AtGauges, || drop(guard));
        }));
        assert!(dropped.is_err(), "what was held is counted");
        timeout(SOON, client.context().closed()).await.expect("closed");
        let over = async {
            while !hold.remaining().is_zero() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, over).await.expect("it is not renewed");
    }

    /// The watchdog continues, so that guards learn of their end.
    #[tokio::test]
    async fn a_panic_while_a_hold_is_looked_at_ends_no_task() {
        let client = client().await;
        let guard = client.fair_lock("job").lock().await.expect("free");
        client.context().survive(|| panic!("on purpose"));
        let state = timeout(SOON, guard.state_changed(GuardState::Held)).await;
        assert_eq!(state, Ok(GuardState::Suspect));
        timeout(SOON, guard.lost()).await.expect("at the end of its lease");
    }

    #[cfg(feature = "metrics")]
    #[derive(PartialEq)]
    enum Panics {
        AtCounters,
        AtGauges,
    }

    #[cfg(feature = "metrics")]
    impl metrics::Recorder for Panics {
        fn describe_counter(
            &self,
            _: metrics::KeyName,
            _: Option<metrics::Unit>,
            _: metrics::SharedString,
        ) {
        }
        fn describe_gauge(
            &self,
            _: metrics::KeyName,
            _: Option<metrics::Unit>,
            _: metrics::SharedString,
        ) {
        }
        fn describe_histogram(
            &self,
            _: metrics::KeyName,
            _: Option<metrics::Unit>,
            _: metrics::SharedString,
        ) {
        }
        fn register_counter(
            &self,
            _: &metrics::Key,
            _: &metrics::Metadata<'_>,
        ) -> metrics::Counter {
            assert!(*self != Self::AtCounters, "on purpose");
            metrics::Counter::noop()
        }
        fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
            assert!(*self != Self::AtGauges, "on purpose");
            metrics::Gauge::noop()
        }
        fn register_histogram(
            &self,
            _: &metrics::Key,
            _: &metrics::Metadata<'_>,
        ) -> metrics::Histogram {
            metrics::Histogram::noop()
        }
    }
}
