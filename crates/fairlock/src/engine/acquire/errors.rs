//! The errors of failed acquisitions, for their callers.

use crate::base::error::{Error, ErrorKind};
use crate::engine::send::unreachable_in_time;
use crate::store::StoreError;
use fairlock_core::OwnerId;
use fairlock_core::client::Refused;
use fairlock_core::client::acquiring::{Failure, FailureKind, Reason};

pub(super) fn failure(failure: StoreError) -> Failure<Error> {
    let kind = match failure.error.kind() {
        ErrorKind::Unavailable => FailureKind::Unavailable,
        ErrorKind::Denied | ErrorKind::Tls => FailureKind::Denied,
        _ => FailureKind::Other,
    };
    let StoreError { error, doubt, passing } = failure;
    Failure { error, doubt, passing, kind }
}

/// The error of an acquisition in the name of `owner`.
pub(super) fn error(reason: Reason<Error>, owner: &OwnerId) -> Error {
    match reason {
        // The waiters have named it.
        Reason::Waiting(_) | Reason::NotDrawn(_) | Reason::Closed => unnamed(reason),
        reason => unnamed(reason).by(owner),
    }
}

/// The same without its owner.
#[cold]
pub(super) fn unnamed(reason: Reason<Error>) -> Error {
    let (kind, message) = match reason {
        Reason::Store(error) | Reason::Waiting(error) | Reason::NotDrawn(error) => return error,
        Reason::Closed => return Error::closed(),
        Reason::Unreachable { last, in_doubt } => return unreachable_in_time(in_doubt, &last),
        Reason::Refused(refused) => return refusal(refused),
        Reason::Silent { last, in_doubt } => return silence(in_doubt, last.as_ref()),
        Reason::NotAsked(last) => {
            let last = last.map_or_else(|| "no answer".to_owned(), |last| last.to_string());
            let message = format!(
                "nobody could ask in time whether replicas have it ({last}); check the server and \
                 the network"
            );
            return Error::new(ErrorKind::NotReplicated, message);
        }
        Reason::TooLate => (
            ErrorKind::Unavailable,
            "the server's clock jumps, or calls arrive later than the store timeout",
        ),
        Reason::LeaseTooShort(1) => (
            ErrorKind::LeaseTooShort,
            "the lease was over before the lock could be used; choose a longer lease",
        ),
        Reason::LeaseTooShort(_) => (
            ErrorKind::LeaseTooShort,
            "the lease was over before the lock could be used, twice; choose a longer lease",
        ),
        Reason::GoneBeforeReplicas => (
            ErrorKind::NotReplicated,
            "the hold was gone before replicas had it: another server has become the primary, or \
             the lease is over; try again",
        ),
    };
    Error::new(kind, message)
}

/// The error of a wait during which the store did not answer. `last` is that of the last call.
pub(crate) fn silence(in_doubt: bool, last: Option<&Error>) -> Error {
    let kind = if in_doubt { ErrorKind::Unknown } else { ErrorKind::Unavailable };
    let unknown = "so nobody knows whether the lock is free; check the server and the network";
    let message = match last {
        Some(last) => format!("the store did not answer while this waited ({last}), {unknown}"),
        None => {
            format!("the store did not answer while this waited, {unknown}, or wait for longer")
        }
    };
    Error::new(kind, message)
}

fn refusal(refused: Refused) -> Error {
    let message = match refused {
        Refused::HeldBySelf => {
            "this owner holds the lock already through another request: was the key written by hand?"
        }
        Refused::Buried => "the request was given up before it was answered",
        Refused::TooLate | Refused::Mismatch => return Error::mismatch(),
    };
    Error::new(ErrorKind::Protocol, message)
}
