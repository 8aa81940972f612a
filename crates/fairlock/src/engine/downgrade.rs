//! Turns a writer into a reader.

use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::hold::{Change, Hold};
use fairlock_core::Op;
use fairlock_core::client::{Counted, Mismatch};
use std::sync::Arc;

/// The operation that reports `change` to the store.
pub(crate) fn downgrade_op(hold: &Hold, change: Change) -> Op {
    Op::Downgrade { owner: hold.owner().clone(), token: hold.token, change: change.number }
}

/// Sends the change to the store, which lets in readers that wait.
pub(crate) async fn downgrade(
    context: &Arc<Context>,
    hold: &Arc<Hold>,
    change: Change,
) -> Result<(), Error> {
    let op = downgrade_op(hold, change);
    let until = hold.valid_until().min(context.store_deadline());
    let mut copies = Copies::default();
    let reply = send::until_answered(context, &hold.name, &op, until, &mut copies).await?;
    match Counted::of(reply.answer.body).map_err(|Mismatch| Error::mismatch())? {
        Counted::StillHeld(_) | Counted::Stale => Ok(()),
        Counted::Gone { holder } => {
            hold.lose_to(holder);
            Err(hold.lost_error())
        }
        Counted::Released => Err(Error::mismatch()),
    }
}
