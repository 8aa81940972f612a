//! How a turn learns of the progress of its request.

use crate::base::clock::lock;
use crate::base::error::{Error, ErrorKind};
use fairlock_core::OwnerId;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The sending end, for a turn's driver and for everything that cleans up after it. Each has a
/// clone; dropping the last one signals that nothing is left to do.
pub(crate) struct TurnReporter {
    queued: Mutex<Option<oneshot::Sender<OwnerId>>>,
    failure: Mutex<Option<Error>>,
    cleaned: Option<oneshot::Sender<Result<(), Error>>>,
}

/// The turn's end of a [`TurnReporter`].
pub(crate) struct Signals {
    pub(crate) queued: oneshot::Receiver<OwnerId>,
    pub(crate) cleaned: oneshot::Receiver<Result<(), Error>>,
}

impl TurnReporter {
    pub(crate) fn new() -> (Arc<Self>, Signals) {
        let (queued, is_queued) = oneshot::channel();
        let (cleaned, is_cleaned) = oneshot::channel();
        let reporter = Self {
            queued: Mutex::new(Some(queued)),
            failure: Mutex::default(),
            cleaned: Some(cleaned),
        };
        (Arc::new(reporter), Signals { queued: is_queued, cleaned: is_cleaned })
    }

    /// Signals that the waiter is in the queue.
    pub(crate) fn queued(&self, owner: &OwnerId) {
        if let Some(queued) = lock(&self.queued).take() {
            // The turn may have gone.
            let _ = queued.send(owner.clone());
        }
    }

    /// Notes that something could not be cleaned up.
    pub(crate) fn failed(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
    }
}

impl Drop for TurnReporter {
    fn drop(&mut self) {
        let failure = lock(&self.failure).take();
        if let Some(cleaned) = self.cleaned.take() {
            // In most cases nobody waits for it.
            let _ = cleaned.send(failure.map_or(Ok(()), Err));
        }
    }
}

/// The error of a place that was given up without a confirmation.
pub(crate) fn unconfirmed() -> Error {
    let message = "the store did not confirm in time that the place was given up; it goes on in \
                   the background, and ends by itself";
    Error::new(ErrorKind::Unknown, message)
}
