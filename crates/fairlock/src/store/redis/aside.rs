//! Runs work that may block on a thread of its own: disks, name servers and callbacks take their
//! time, and heartbeats and renewals continue meanwhile.
//!
//! tokio's blocking pool is unsuitable: if the system has no thread left, it panics in the calling
//! task. The task that keeps a connection would then be gone for good, even when there are threads
//! again. Here it is an error.

use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// Threads for one kind of work. Their number is bounded, so that work that hangs costs these
/// threads, not one for each attempt.
pub(crate) struct Aside {
    name: &'static str,
    turns: Arc<Semaphore>,
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Failed {
    NoThread(io::Error),
    Panicked,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThread(error) => write!(f, "the system has no thread for it ({error})"),
            Self::Panicked => f.write_str("it panicked"),
        }
    }
}

impl Aside {
    pub(super) fn new(name: &'static str, at_once: usize) -> Arc<Self> {
        Arc::new(Self { name, turns: Arc::new(Semaphore::new(at_once)) })
    }

    /// Does the work when its turn comes. Work that has begun continues if the future is dropped.
    ///
    /// # Errors
    /// The work could not be done; the next attempt may get a thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failed> {
        // Never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new()
            .name(self.name.into())
            .spawn(move || {
                let done = work();
                // Before the answer, so that the next caller need not wait for the end of the
                // thread.
                drop(turn);
                // The attempt may have been given up.
                let _ = tell.send(done);
            })
            .map_err(Failed::NoThread)?;
        told.await.map_err(|_| Failed::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turn is returned even if the work panics.
    #[tokio::test]
    async fn what_panics_is_an_error_and_leaves_its_turn() {
        let aside = Aside::new("fairlock-test", 1);
        for _ in 0..3 {
            let failed = aside.run(|| panic!("on purpose")).await.map(|()| "done").unwrap_err();
            assert_eq!(failed.to_string(), "it panicked");
        }
        assert_eq!(aside.run(|| 7).await.unwrap(), 7);
    }
}
