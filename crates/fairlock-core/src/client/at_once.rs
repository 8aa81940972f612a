//! The first copy of a request, on a store that answers in the caller's thread. It takes a free lock and leaves nothing
//! behind otherwise, so it is no part of the [`Client`](super::Client): a pair of lock and release in this process takes
//! neither a task nor a waiter.

use super::Acquisition;
use super::acquiring::{Failure, Held, Reason, Wanted};
use super::replies::{Acquired, Refused};
use crate::id::{OwnerId, RequestId};
use crate::op::{Body, Mode, Op};

/// A request that is made once, in the caller's thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AtOnce {
    wanted: Wanted,
    acquisition: Acquisition,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each hold")]
pub enum Tried<E> {
    /// It has the lock.
    Held(Held),
    /// Somebody else has it. A new request may wait for it.
    Taken,
    /// An error. These operations take the request back.
    Failed(Reason<E>, Vec<Op>),
}

impl AtOnce {
    /// The request by which `owner` asks.
    pub fn new(wanted: Wanted, owner: OwnerId, request: RequestId) -> Self {
        Self { wanted, acquisition: wanted.acquisition(owner, request) }
    }

    /// The copy to send. `sure`: messages do not arrive now.
    pub fn op(&self, sure: bool) -> Op {
        let mut acquire = self.acquisition.acquire(sure, u64::MAX);
        acquire.mode = Mode::Try;
        Op::asks(acquire, self.wanted.share)
    }

    /// The store has answered the copy, which was sent at `sent_ns`. Hardly any time has passed since.
    pub fn answered<E>(mut self, body: Body, sent_ns: u64) -> Tried<E> {
        match self.acquisition.acquired(body) {
            Ok(Acquired::Granted(grant)) => {
                self.acquisition.granted(grant.request);
                let (acquisition, token) = (self.acquisition.take(), grant.token);
                let mut hold = self.wanted.hold(&grant, sent_ns);
                hold.granted_whole(true);
                Tried::Held(Held { acquisition, token, hold })
            }
            // A try stands in no queue.
            Ok(Acquired::Queued { .. }) | Err(Refused::Mismatch) => {
                self.in_doubt(Reason::Refused(Refused::Mismatch))
            }
            // A try that was answered has left nothing behind.
            _ => Tried::Taken,
        }
    }

    /// The call failed.
    pub fn failed<E>(self, failure: Failure<E>) -> Tried<E> {
        let reason = Reason::Store(failure.error);
        if failure.doubt { self.in_doubt(reason) } else { Tried::Failed(reason, Vec::new()) }
    }

    fn in_doubt<E>(mut self, reason: Reason<E>) -> Tried<E> {
        self.acquisition.set_in_doubt(true);
        Tried::Failed(reason, self.acquisition.give_up())
    }
}
