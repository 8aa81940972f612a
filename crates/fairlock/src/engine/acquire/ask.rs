//! Chooses, by the kind of the lock, which driver asks for it: `fair` or `plain`. Requests with an
//! explicit owner come here through `owned`, all others from `run`.

use super::{DeliverySender, Request, fair, plain};
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::observe;
use crate::state::hold::Hold;
use fairlock_core::{OwnerId, has_queue};
use std::sync::Arc;

/// Asks the store for the lock in the name of `owner`.
pub(super) async fn ask(
    context: &Arc<Context>,
    wanted: &Request,
    owner: OwnerId,
    caller: &mut DeliverySender,
) -> Result<Option<Arc<Hold>>, Error> {
    observe::asked_as(&wanted.asked, &owner);
    if has_queue(wanted.kind) {
        fair::fair(context, wanted, owner, caller).await
    } else {
        plain::plain(context, wanted, owner, caller).await
    }
}
