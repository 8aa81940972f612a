//! The results of the attempts to connect.

use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::observe;
use crate::store::StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// The last failure, and the result of the very first attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    failure: watch::Sender<Option<StoreError>>,
    first: watch::Sender<Option<Result<(), Error>>>,
    /// Whether any attempt has succeeded.
    has_succeeded: AtomicBool,
    /// Whether the first failure after a success is reported; true for only one of the connections
    /// to a server.
    is_reported: bool,
}

impl Default for Attempt {
    fn default() -> Self {
        Self {
            failure: watch::Sender::new(None),
            first: watch::Sender::new(None),
            has_succeeded: AtomicBool::new(false),
            is_reported: true,
        }
    }
}

impl Attempt {
    /// The attempts of a connection beside another one; that other one reports that the server
    /// cannot be reached.
    pub(crate) fn beside() -> Self {
        Self { is_reported: false, ..Self::default() }
    }

    pub(crate) fn succeeded(&self) {
        self.has_succeeded.store(true, Ordering::Relaxed);
        self.failure.send_replace(None);
        self.note_first(Ok(()));
    }

    /// A part of the attempt has succeeded: the earlier failure is over, but there is no connection
    /// yet.
    pub(crate) fn recovered(&self) {
        self.failure.send_replace(None);
    }

    pub(crate) fn failed(&self, mut failure: StoreError) {
        // TLS has succeeded before, so a refusal may pass: certificates are renewed one file after
        // the other.
        failure.passing |=
            failure.error.kind() == ErrorKind::Tls && self.has_succeeded.load(Ordering::Relaxed);
        self.note_first(Err(failure.error.clone()));
        let error = failure.error.clone();
        let before = self.failure.send_replace(Some(failure));
        if self.is_reported && before.is_none() {
            observe::unreached(&error);
        }
    }

    /// Why the last attempt failed, while there is no connection.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.failure.borrow().clone()
    }

    /// Resolves when an attempt is refused, as the next ones will be.
    pub(crate) async fn refused(&self) {
        let refused = |failure: &Option<StoreError>| failure.as_ref().is_some_and(|f| !f.passing);
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.failure.subscribe().wait_for(refused).await;
    }

    /// Waits for the first attempt's result.
    pub(crate) async fn first(&self) -> Result<(), Error> {
        let mut first = self.first.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        match first.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Ok(()),
        }
    }

    /// Waits until an attempt has succeeded: the first one, or a later one before `until`.
    ///
    /// # Errors
    /// Why the last attempt failed, if it was refused, as the next ones will be, or if time is up.
    pub(crate) async fn made(&self, until: Moment) -> Result<(), Error> {
        let first = self.first().await;
        let Err(error) = first else { return Ok(()) };
        // Another password may be found later, but the caller must learn now that this one is
        // wrong.
        let is_told = |kind: ErrorKind| kind != ErrorKind::Unavailable;
        if until.left().is_zero() || is_told(error.kind()) {
            return Err(error);
        }
        let mut failure = self.failure.subscribe();
        let over = failure.wait_for(|failure| match failure {
            Some(failure) => !failure.passing || is_told(failure.error.kind()),
            None => self.has_succeeded.load(Ordering::Relaxed),
        });
        // The sender lives in `self`, so the wait cannot fail. However it ends, the last failure
        // has the reason.
        let _ = tokio::time::timeout(until.left(), over).await.map(|over| over.map(drop));
        match self.failure() {
            Some(failure) => Err(failure.error),
            None if self.has_succeeded.load(Ordering::Relaxed) => Ok(()),
            None => Err(error),
        }
    }

    fn note_first(&self, result: Result<(), Error>) {
        self.first.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(result);
            }
            is_first
        });
    }
}
