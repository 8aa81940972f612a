//! Sends an operation until it is answered. After a lost connection or reply the same request is
//! sent again, so that many copies have one effect.

use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::store::{REFUSES_WRITES, Reply, StoreError};
pub(crate) use fairlock_core::client::Copies;
use fairlock_core::{LockName, Op};
use std::sync::Arc;

/// Sends one copy, for a caller that counts copies by itself.
pub(crate) async fn call(
    context: &Arc<Context>,
    name: &LockName,
    op: &Op,
) -> Result<Reply, StoreError> {
    let result = context.store.call(name, op).await;
    if let Ok(reply) = &result {
        context.note_reply(name, op, reply);
    }
    result
}

/// Sends one copy.
pub(crate) async fn once(
    context: &Arc<Context>,
    name: &LockName,
    op: &Op,
    copies: &mut Copies,
) -> Result<Reply, StoreError> {
    copies.send();
    let result = call(context, name, op).await;
    match &result {
        Ok(_) => copies.answered(),
        Err(failure) if !failure.doubt => copies.refused(),
        Err(_) => {}
    }
    result
}

/// Sends copies until one is answered or `until` is reached.
///
/// # Errors
/// The store's refusal, or [`ErrorKind::Unavailable`] (no copy can have had an effect), or
/// [`ErrorKind::Unknown`].
pub(crate) async fn until_answered(
    context: &Arc<Context>,
    name: &LockName,
    op: &Op,
    until: Moment,
    copies: &mut Copies,
) -> Result<Reply, Error> {
    until_answered_with(context, name, op.clone(), until, copies, |_| {}).await
}

/// As [`until_answered`]; `freshen` brings each copy up to date before it is sent.
pub(crate) async fn until_answered_with(
    context: &Arc<Context>,
    name: &LockName,
    mut op: Op,
    until: Moment,
    copies: &mut Copies,
    mut freshen: impl FnMut(&mut Op),
) -> Result<Reply, Error> {
    let mut backoff = Backoff::default();
    loop {
        freshen(&mut op);
        let failure = match once(context, name, &op, copies).await {
            Ok(reply) => return Ok(reply),
            Err(failure) => failure,
        };
        if !failure.passing {
            return Err(failure.error.on(name));
        }
        // Two copies of `Force` that are both carried out would hit two holders.
        let once_only = matches!(op, Op::Force { .. }) && copies.in_doubt();
        let left = until.left();
        if left.is_zero() || once_only {
            // A refused login is retried where the next password may be a different one, and a
            // failed TLS handshake while certificates may be exchanged.
            let denied = matches!(failure.error.kind(), ErrorKind::Denied | ErrorKind::Tls);
            return Err(match copies.in_doubt() {
                false if denied => failure.error.on(name),
                in_doubt => unreachable_in_time(in_doubt, &failure.error).on(name),
            });
        }
        // A server that answers "not now" is asked less and less often; one that is not connected
        // is asked as soon as it is connected.
        tokio::time::sleep(backoff.next().min(left)).await;
        let _ = tokio::time::timeout(until.left(), context.store.ready(Some(name))).await;
    }
}

pub(crate) fn unreachable_in_time(in_doubt: bool, last: &Error) -> Error {
    let kind = if in_doubt { ErrorKind::Unknown } else { ErrorKind::Unavailable };
    Error::new(kind, unreached("in time", last))
}

/// Why nothing was done for so long. A server that refuses writes is there, and its error says what
/// to do.
pub(crate) fn unreached(how_long: &str, last: &Error) -> String {
    let last = last.to_string();
    match last.contains(REFUSES_WRITES) {
        true => format!("the store could not be used {how_long} ({last})"),
        false => format!(
            "the store was not reachable {how_long} ({last}); check the server and the network"
        ),
    }
}
