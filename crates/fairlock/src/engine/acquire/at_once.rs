//! Acquisition without a wait: a store that answers at once grants a free lock in the caller's
//! task.

use super::Request;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::release::{self, Abandoned};
use crate::observe;
use crate::state::hold::Hold;
use fairlock_core::{Body, Grant, Mode, Op, OwnerId, RequestId};
use std::sync::Arc;

/// Acquires a free lock without any task or wait, from a store in this process or in a file.
pub(crate) fn at_once(
    context: &Arc<Context>,
    wanted: &Request,
) -> Result<Option<Arc<Hold>>, Error> {
    if !context.store.is_synchronous() || wanted.seat.is_some() {
        return Ok(None);
    }
    let owner = context.new_owner()?;
    let request = context.new_request()?;
    let mut op = wanted.op(context, &owner, request);
    op.mode = Mode::Try;
    let Some(reply) = context.store.call_now(&wanted.name, &Op::Acquire(op)) else {
        return Ok(None);
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            if failure.doubt {
                release::abandon(context, unanswered(wanted, owner, request));
            }
            return Err(failure.error.on(&wanted.name));
        }
    };
    context.note_time(&reply);
    let Body::Granted { token, ttl_ms } = reply.answer.body else { return Ok(None) };
    let grant = Grant { request, token, ttl_ms };
    observe::acquired_at_once(&wanted.told(), &owner);
    let hold = Arc::new(wanted.hold(context, owner, &grant, reply.sent, Vec::new()));
    observe::held(&hold.told(), context.config.log_names, &wanted.asked);
    context.watchdog.watch(&hold, true);
    Ok(Some(hold))
}

/// A request that should have been answered at once, and was not.
fn unanswered(wanted: &Request, owner: OwnerId, request: RequestId) -> Abandoned {
    Abandoned {
        name: wanted.name.clone(),
        kind: wanted.kind,
        owner,
        request,
        doubt: true,
        shared_owner: false,
        reporter: None,
    }
}
