//! Operations that replicas must confirm.

use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::store::{Confirmed, StoreError};
use fairlock_core::client::{Copies, Mismatch, Renewed};
use fairlock_core::{LockName, Op};
use std::sync::Arc;

/// Sends `op` until it is answered or `until` is reached, and has replicas confirm it. Too few
/// acknowledgements is a final result and is not retried.
///
/// # Errors
/// The store's refusal, or [`ErrorKind::NotReplicated`] if no server could be asked.
pub(crate) async fn confirmed(
    context: &Arc<Context>,
    name: &LockName,
    op: &Op,
    until: Moment,
) -> Result<Confirmed, Error> {
    confirmed_with(context, name, op.clone(), until, |_| {}).await
}

/// As [`confirmed`]; `freshen` brings each copy up to date before it is sent.
pub(crate) async fn confirmed_with(
    context: &Arc<Context>,
    name: &LockName,
    op: Op,
    until: Moment,
    freshen: impl FnMut(&mut Op),
) -> Result<Confirmed, Error> {
    let done = until_confirmed(context, name, op, until, &mut Copies::default(), freshen).await;
    done.map_err(|failure| match failure.passing {
        true => {
            let message = format!(
                "nobody could ask in time whether replicas have it ({}); check the server and the \
                 network",
                failure.error
            );
            Error::new(ErrorKind::NotReplicated, message).on(name)
        }
        false => failure.error.on(name),
    })
}

/// The same for an operation that perhaps no server has carried out yet: the failure is a passing
/// one if no copy was answered in time, and `copies` shows whether one may have been carried out.
pub(crate) async fn until_confirmed(
    context: &Arc<Context>,
    name: &LockName,
    mut op: Op,
    until: Moment,
    copies: &mut Copies,
    mut freshen: impl FnMut(&mut Op),
) -> Result<Confirmed, StoreError> {
    let mut backoff = Backoff::default();
    loop {
        freshen(&mut op);
        copies.send();
        let failure = match context.store.confirm(name, &op).await {
            Ok(confirmed) => {
                copies.answered();
                context.note_reply(name, &op, &confirmed.reply);
                return Ok(confirmed);
            }
            Err(failure) => failure,
        };
        if !failure.doubt {
            copies.refused();
        }
        if !failure.passing || until.left().is_zero() {
            return Err(failure);
        }
        tokio::time::sleep(backoff.next().min(until.left())).await;
    }
}

/// Sends one copy of a renewal. Returns the answer, and when the copy was sent.
pub(crate) async fn renewal(
    context: &Arc<Context>,
    name: &LockName,
    op: &Op,
) -> Result<(Renewed, Moment), Error> {
    let confirmed = if context.store.is_replicated() {
        context.store.confirm(name, op).await
    } else {
        context.store.call(name, op).await.map(Confirmed::by_the_store)
    };
    let confirmed = confirmed.map_err(|failure| failure.error)?;
    context.note_time(&confirmed.reply);
    renewed(confirmed)
}

/// The answer to a renewal, and when the renewal was sent. Where replicas must confirm, a renewal
/// that too few of them have counts as unanswered: it has no effect on a replica that becomes the
/// primary without it. If the hold is gone, the replicas do not matter.
pub(crate) fn renewed(confirmed: Confirmed) -> Result<(Renewed, Moment), Error> {
    let (reply, missing) = (confirmed.reply, confirmed.missing);
    match (Renewed::of(reply.answer.body).map_err(|Mismatch| Error::mismatch())?, missing) {
        (Renewed::Whole, Some(missing)) => Err(missing),
        (answer, _) => Ok((answer, reply.sent)),
    }
}
