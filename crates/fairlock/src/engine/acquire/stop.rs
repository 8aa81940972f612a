//! The end of a wait without the lock.

use super::{Caller, Request};
use crate::base::clock::Moment;
use crate::engine::context::Context;
use std::time::Duration;

/// A request that is given up while its reply is under way gets this long to be answered: then
/// it can be taken back without a doubt. A caller that hears "not in time" waits as long for that.
pub(super) const ANSWER_GRACE: Duration = Duration::from_millis(50);

/// A wait whose time is up before the store has said anything at all gets this long for an answer: a
/// store that is slow then still tells whether the lock is taken.
pub(super) const SILENCE_GRACE: Duration = Duration::from_millis(500);

/// Why a wait ends without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nobody waits for the result any more.
    Gone,
    /// Time is up.
    Late,
    /// The client was shut down.
    Closed,
}

impl Stop {
    /// How long a reply that is under way is waited for. An explicit owner may have had one, and ask
    /// again while a hold of its own ends.
    pub(super) fn grace(self, wanted: &Request) -> Duration {
        match self {
            Self::Late if wanted.seat.as_ref().is_none_or(|seat| !seat.was_answered()) => {
                SILENCE_GRACE
            }
            _ => ANSWER_GRACE,
        }
    }
}

/// Resolves when the wait ends without the lock.
pub(super) async fn stop(context: &Context, caller: &mut Caller, until: Option<Moment>) -> Stop {
    let deadline = async {
        match until {
            Some(until) => tokio::time::sleep(until.left()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = caller.closed() => Stop::Gone,
        () = deadline => Stop::Late,
        () = context.closed() => Stop::Closed,
    }
}
