//! Re-entry: one more guard of a hold.

use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::hold::{Change, Hold};
use fairlock_core::Op;
use fairlock_core::client::{Counted, Mismatch};
use std::sync::Arc;

pub(crate) fn too_deep(hold: &Hold) -> Error {
    let message = "a lock can be entered at most 2^31 - 1 times";
    Error::misuse(message).on(&hold.name).by(hold.owner())
}

/// Reports one more guard to the store.
pub(crate) async fn enter(
    context: &Arc<Context>,
    hold: &Arc<Hold>,
    change: Change,
) -> Result<(), Error> {
    if hold.is_counted_here() {
        return Ok(());
    }
    let until = hold.valid_until().min(context.store_deadline());
    let op = Op::Reenter {
        owner: hold.owner().clone(),
        token: hold.token,
        count: change.count,
        change: change.number,
    };
    let op = hold.op(op, context.ms_at(&hold.name, until));
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
