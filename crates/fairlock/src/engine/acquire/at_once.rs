//! Acquisition without a wait: a store that answers at once grants a free lock in the caller's
//! task.

use super::Request;
use super::answers::give_up;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::observe;
use crate::state::hold::Hold;
use fairlock_core::client::Acquired;
use fairlock_core::{Mode, Op};
use std::sync::Arc;

/// Acquires a free lock without any task or wait, from a store in this process or in a file.
pub(crate) fn at_once(
    context: &Arc<Context>,
    wanted: &Request,
) -> Result<Option<Arc<Hold>>, Error> {
    if !context.store.is_synchronous() || wanted.seat.is_some() {
        return Ok(None);
    }
    let mut acquisition = wanted.begin(context, context.new_owner()?)?;
    let mut op = acquisition.acquire(!context.store.inbox_up(), u64::MAX);
    op.mode = Mode::Try;
    let Some(reply) = context.store.call_now(&wanted.name, &Op::Acquire(op)) else {
        return Ok(None);
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            if failure.doubt {
                acquisition.set_in_doubt(true);
                give_up(context, wanted, &mut acquisition);
            }
            return Err(failure.error.on(&wanted.name));
        }
    };
    context.note_time(&reply);
    let Ok(Acquired::Granted(grant)) = acquisition.acquired(reply.answer.body) else {
        return Ok(None);
    };
    observe::acquired_at_once(&wanted.told(), acquisition.owner());
    let hold = Arc::new(wanted.hold(context, acquisition, &grant, reply.sent));
    observe::held(&hold.told(), context.config.log_names, &wanted.asked);
    context.watchdog.watch(&hold, true);
    Ok(Some(hold))
}
