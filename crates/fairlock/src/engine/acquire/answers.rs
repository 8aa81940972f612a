//! Sends a request until it is answered, and interprets the answer.

use super::Request;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::confirm::confirmed;
use crate::engine::context::Context;
use crate::engine::release;
use crate::engine::send::{self, Copies};
use crate::observe;
use crate::state::hold::Hold;
use crate::store::Reply;
use fairlock_core::client::Acquisition;
use fairlock_core::{Acquire, Body, Grant, LockName, Op, has_queue};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often a request is sent while the server calls it too late, because its clock was misjudged.
const LATE_MAX: u32 = 3;

/// First and longest pause before asking again for an owner whose former hold is still being given
/// up.
pub(super) const GIVEN_UP_PAUSE: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// How long a request whose hold too few replicas have waits for the hold to be given back: enough
/// for a round trip to a server that answers.
const GIVE_BACK_GRACE: Duration = Duration::from_secs(1);

/// The result of a wait that is over. A store that never answered has not said that the lock is
/// taken, so its silence is an error.
pub(super) fn unanswered<T>(
    context: &Context,
    wanted: &Request,
    copies: Copies,
) -> Result<Option<T>, Error> {
    let silent =
        !copies.answered_once() && (copies.in_doubt() || !context.is_connected(&wanted.name));
    if context.is_closed() || !silent {
        return Ok(None);
    }
    let kind = if copies.in_doubt() { ErrorKind::Unknown } else { ErrorKind::Unavailable };
    Err(silence(kind, &wanted.name))
}

pub(super) fn silence(kind: ErrorKind, name: &LockName) -> Error {
    let message = "the store did not answer while this waited, so nobody knows whether the lock is \
                   free; check the server and the network, or wait for longer";
    Error::new(kind, message).on(name)
}

/// As [`answered`], but asks again while the owner still holds the lock through a request that was
/// given up, or a hold that was lost. That hold is not taken over: it is about to be released, or
/// ends with its lease.
pub(super) async fn answered_to_owner(
    context: &Arc<Context>,
    wanted: &Request,
    acquire: Acquire,
    copies: &mut Copies,
) -> Result<Reply, Error> {
    let (mut pause, longest) = GIVEN_UP_PAUSE;
    loop {
        let reply = answered(context, wanted, acquire.clone(), copies).await?;
        let given_up = matches!(reply.answer.body, Body::HeldBySelf { .. });
        if !given_up || wanted.seat.is_none() || wanted.try_once {
            return Ok(reply);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
    }
}

/// Sends a request until it is answered, at most [`LATE_MAX`] times if the server's clock was
/// misjudged.
pub(super) async fn answered(
    context: &Arc<Context>,
    wanted: &Request,
    acquire: Acquire,
    copies: &mut Copies,
) -> Result<Reply, Error> {
    let (name, seat) = (&wanted.name, wanted.seat.as_deref());
    let until = context.store_deadline();
    let op = Op::Acquire(acquire);
    seat.inspect(|seat| seat.asks());
    for _ in 0..LATE_MAX {
        let reply = send::until_answered(context, name, &op, until, copies).await?;
        seat.inspect(|seat| seat.is_answered());
        if reply.answer.body != Body::TooLate {
            return Ok(reply);
        }
    }
    let message = "the server's clock jumps, or calls arrive later than the store timeout";
    Err(Error::new(ErrorKind::Unavailable, message).on(name))
}

pub(super) fn unexpected(wanted: &Request, body: &Body) -> Error {
    let message = match body {
        Body::HeldBySelf { .. } => {
            "this owner holds the lock already through another request: was the key written by hand?"
        }
        Body::Buried => "the request was given up before it was answered",
        _ => return Error::mismatch().on(&wanted.name),
    };
    Error::new(ErrorKind::Protocol, message).on(&wanted.name)
}

/// Makes the guard's hold out of a grant. Renews it first if little of its time is left, and always
/// if replicas must have it: the renewal goes to the server that is the primary by then. `None` if
/// the grant is over.
///
/// # Errors
/// Too few replicas have it, and it was given back.
pub(super) async fn confirm(
    context: &Arc<Context>,
    wanted: &Request,
    acquisition: &Acquisition,
    grant: &Grant,
    base: Moment,
) -> Result<Option<Arc<Hold>>, Error> {
    let lease_ms = wanted.lease_ms(context);
    let hold = wanted.hold(context, acquisition.clone(), grant, base);
    let left_ms = hold.valid_until().left().as_millis() as u64;
    if left_ms == 0 {
        return Ok(None);
    }
    let hold = Arc::new(hold);
    let mut full = grant.ttl_ms >= lease_ms;
    let replicated = context.store.is_replicated();
    if replicated || left_ms < grant.ttl_ms / 3 {
        let ttl_ms = hold.wanted_ms();
        let op = hold.renewal(ttl_ms);
        let reply = if replicated {
            match replicas_have(context, &hold, &op).await {
                Ok(reply) => reply,
                Err(error) => {
                    let given_back = release::give_back(context, &hold);
                    // The next request should find the lock free.
                    let _ = tokio::time::timeout(GIVE_BACK_GRACE, given_back).await;
                    return Err(error);
                }
            }
        } else {
            match send::once(context, &wanted.name, &op, &mut Copies::default()).await {
                Ok(reply) => reply,
                Err(_) => return Ok(None),
            }
        };
        if reply.answer.body != Body::Renewed {
            return Ok(None);
        }
        hold.renewed(reply.sent, ttl_ms);
        if replicated && hold.valid_until().left().is_zero() {
            return Ok(None);
        }
        full = true;
    }
    observe::held(&hold.told(), context.config.log_names, &wanted.asked);
    if !context.is_connected(&wanted.name) {
        // The grant arrived over a connection that is gone, so the hold is suspect like any other.
        hold.suspect();
        full = false;
    }
    context.watchdog.watch(&hold, full);
    Ok(Some(hold))
}

/// Renews a new hold, and waits for replicas. Their acknowledgement says more than the grant,
/// because another server may have become the primary since.
async fn replicas_have(context: &Arc<Context>, hold: &Hold, op: &Op) -> Result<Reply, Error> {
    let confirmed = confirmed(context, &hold.name, op, context.store_deadline()).await?;
    match confirmed.missing {
        Some(missing) if confirmed.reply.answer.body == Body::Renewed => {
            Err(missing.on(&hold.name))
        }
        // The waiter of a fair lock returns to its place instead.
        _ if confirmed.reply.answer.body != Body::Renewed && !has_queue(hold.kind()) => {
            let message = "the hold was gone before replicas had it: another server has become the \
                           primary, or the lease is over; try again";
            Err(Error::new(ErrorKind::NotReplicated, message).on(&hold.name))
        }
        _ => Ok(confirmed.reply),
    }
}

/// Takes the requests of an acquisition back in the background. Returns the task that does so for
/// the present one, if there is anything to take back.
pub(super) fn give_up(
    context: &Arc<Context>,
    wanted: &Request,
    acquisition: &mut Acquisition,
) -> Option<JoinHandle<()>> {
    let all = acquisition.give_up().into_iter();
    let tasks =
        all.map(|leave| release::take_back(context, &wanted.name, leave, wanted.reporter.clone()));
    tasks.last()
}
