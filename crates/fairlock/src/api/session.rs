//! The part that all handles of a client share: access to its background work, which ends with the
//! last of these handles.

use crate::base::error::Error;
use crate::base::process;
use crate::engine::context::Context;
use crate::engine::start::Started;
use crate::state::in_flight;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Session {
    context: Arc<Context>,
    /// Ends the background work when the last handle is dropped.
    _life: Arc<Life>,
}

struct Life {
    context: Arc<Context>,
    stop: Option<oneshot::Sender<()>>,
}

impl Session {
    pub(crate) fn new(started: Started) -> Self {
        let life = Life { context: Arc::clone(&started.context), stop: Some(started.stop) };
        Self { _life: Arc::new(life), context: started.context }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Sleeps on the background thread, which works even if the caller has no runtime.
    pub(crate) async fn sleep(&self, time: Duration) {
        struct Timer(tokio::task::JoinHandle<()>);
        impl Drop for Timer {
            fn drop(&mut self) {
                self.0.abort();
            }
        }
        let Ok(runtime) = self.context.background() else { return };
        let mut timer = Timer(runtime.spawn(async move {
            tokio::time::sleep(time).await;
        }));
        // This fails if the background thread is gone: there is nothing left to wait for.
        let _ = (&mut timer.0).await;
    }

    /// Runs `work` on the background thread. Once started, it continues even if the future is
    /// dropped.
    pub(crate) async fn on_background<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        // Boxed: otherwise it is copied for each layer around it.
        self.goes_on(Box::pin(work)).await
    }

    /// Like [`on_background`](Self::on_background), but begun by [`Context::first_step`].
    pub(crate) async fn begun_here<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.context.background()?;
        let mut work = Box::pin(work);
        match self.context.first_step(work.as_mut()) {
            Poll::Ready(outcome) => Ok(outcome),
            Poll::Pending => self.goes_on(work).await,
        }
    }

    async fn goes_on<T: Send + 'static>(
        &self,
        work: Pin<Box<impl Future<Output = T> + Send + 'static>>,
    ) -> Result<T, Error> {
        let (done, result) = oneshot::channel();
        self.context.background()?.spawn(async move {
            // The caller may be gone.
            let _ = done.send(work.await);
        });
        result.await.map_err(|_| Error::closed())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.context.origin.is_forked_child() {
            // The parent still uses this: its sockets are registered with its event queue, which a
            // forked child shares, so that even closing them here would affect the parent.
            std::mem::forget((Arc::clone(&self.context), self.stop.take()));
            return;
        }
        self.context.close();
        if !process::in_background() && !self.context.runs_here() {
            in_flight::ended_here(&self.context.in_flight);
        }
        if let Some(stop) = self.stop.take() {
            // The thread may have ended by itself.
            let _ = stop.send(());
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("client", &self.context.client_id).finish_non_exhaustive()
    }
}
