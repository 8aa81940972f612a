//! How a wait ends without the lock.

use super::{DeliverySender, Request};
use crate::base::clock::Moment;
use crate::engine::context::Context;
use std::time::Duration;

/// A request that is given up while its reply is under way gets this long to be answered: an
/// answered request can be taken back without a doubt. A caller whose time is up waits as long for
/// that.
pub(super) const ANSWER_GRACE: Duration = Duration::from_millis(50);

/// A wait whose time is up before the store has answered at all gets this long for an answer: a
/// slow store can then still say whether the lock is taken.
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
    /// How long to wait for a reply that is under way. An explicit owner may have had one already,
    /// and be asking again while a hold of its own ends.
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
pub(super) async fn stop(
    context: &Context,
    caller: &mut DeliverySender,
    until: Option<Moment>,
) -> Stop {
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
