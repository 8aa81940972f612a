//! Sends a request until it is answered, and interprets the answer.

use super::Request;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::confirm;
use crate::engine::context::Context;
use crate::engine::release;
use crate::engine::send::{self, Copies};
use crate::observe;
use crate::state::hold::Hold;
use fairlock_core::client::{Acquired, Acquisition, Refused, Renewed};
use fairlock_core::{Grant, LockName, Op, has_queue};
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
    acquisition: &Acquisition,
    copies: &mut Copies,
) -> Result<(Acquired, Moment), Error> {
    let (mut pause, longest) = GIVEN_UP_PAUSE;
    loop {
        let reply = answered(context, wanted, acquisition, copies).await?;
        if reply.0 != Acquired::FormerHold || wanted.try_once {
            return Ok(reply);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
    }
}

/// Sends the present request until it is answered, at most [`LATE_MAX`] times if the server's clock
/// was misjudged. Returns the answer, and when the copy that it answers was sent.
///
/// # Errors
/// The store's refusal or silence, and an answer that cannot be true.
pub(super) async fn answered(
    context: &Arc<Context>,
    wanted: &Request,
    acquisition: &Acquisition,
    copies: &mut Copies,
) -> Result<(Acquired, Moment), Error> {
    let (name, seat) = (&wanted.name, wanted.seat.as_deref());
    let until = context.store_deadline();
    let op = Op::Acquire(acquisition.acquire(!context.store.inbox_up(), u64::MAX));
    seat.inspect(|seat| seat.asks());
    for _ in 0..LATE_MAX {
        let reply = send::until_answered(context, name, &op, until, copies).await?;
        seat.inspect(|seat| seat.is_answered());
        match acquisition.acquired(reply.answer.body) {
            Ok(answer) => return Ok((answer, reply.sent)),
            Err(Refused::TooLate) => {}
            Err(refused) => return Err(refusal(refused).on(name)),
        }
    }
    let message = "the server's clock jumps, or calls arrive later than the store timeout";
    Err(Error::new(ErrorKind::Unavailable, message).on(name))
}

#[cold]
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
        let renewed = if replicated {
            match replicas_have(context, &hold, &op).await {
                Ok(sent) => sent,
                Err(error) => {
                    let given_back = release::give_back(context, &hold);
                    // The next request should find the lock free.
                    let _ = tokio::time::timeout(GIVE_BACK_GRACE, given_back).await;
                    return Err(error);
                }
            }
        } else {
            let reply = send::once(context, &wanted.name, &op, &mut Copies::default()).await;
            let renewed = reply.map(|reply| (Renewed::of(reply.answer.body), reply.sent));
            renewed.ok().and_then(|(it, sent)| (it == Ok(Renewed::Whole)).then_some(sent))
        };
        let Some(sent) = renewed else { return Ok(None) };
        hold.renewed(sent, ttl_ms);
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
/// because another server may have become the primary since. `None` if the hold of a fair lock is
/// gone, whose waiter returns to its place.
///
/// # Errors
/// Too few have it, or the hold of a lock without a queue is gone.
async fn replicas_have(
    context: &Arc<Context>,
    hold: &Hold,
    op: &Op,
) -> Result<Option<Moment>, Error> {
    let until = context.store_deadline();
    let confirmed = confirm::confirmed(context, &hold.name, op, until).await?;
    match confirm::renewed(confirmed).map_err(|error| error.on(&hold.name))? {
        (Renewed::Whole, sent) => Ok(Some(sent)),
        (Renewed::Gone { .. }, _) if has_queue(hold.kind()) => Ok(None),
        (Renewed::Gone { .. }, _) => {
            let message = "the hold was gone before replicas had it: another server has become the \
                           primary, or the lease is over; try again";
            Err(Error::new(ErrorKind::NotReplicated, message).on(&hold.name))
        }
    }
}

/// Takes the requests of an acquisition back in the background. Returns the task of the last one:
/// the present one, unless that has left nothing behind.
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
