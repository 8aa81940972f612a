//! Turns a writer into a reader.

use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::hold::Hold;
use fairlock_core::Op;
use fairlock_core::client::{Counted, Mismatch};
use std::sync::Arc;

/// The operation that makes a writer's hold a reader's. It adopts no request, so its time does not count.
pub(crate) fn downgrade_op(hold: &Hold) -> Op {
    hold.op(Op::Downgrade { owner: hold.owner().clone(), token: hold.token }, 0)
}

/// Sends the change to the store, which lets in readers that wait.
pub(crate) async fn downgrade(context: &Arc<Context>, hold: &Arc<Hold>) -> Result<(), Error> {
    let op = downgrade_op(hold);
    let until = hold.valid_until().min(context.store_deadline());
    let mut copies = Copies::default();
    let reply = send::until_answered(context, &hold.name, &op, until, &mut copies).await?;
    match Counted::of(reply.answer.body).map_err(|Mismatch| Error::mismatch())? {
        Counted::StillHeld(_) => Ok(()),
        // Its reader has released it meanwhile, and that release came first.
        Counted::Gone { .. } if hold.has_ended() => Ok(()),
        Counted::Gone { holder } => {
            hold.lose_to(holder);
            Err(hold.lost_error())
        }
        Counted::Released | Counted::Stale => Err(Error::mismatch()),
    }
}
