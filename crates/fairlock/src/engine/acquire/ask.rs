//! Chooses, by the kind of the lock, which driver asks for it: `fair` or `plain`. Requests with an
//! explicit owner come here through `owned`, all others from `run`.

use super::{Caller, Request, fair, plain};
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::observe;
use crate::state::hold::Hold;
use fairlock_core::{Kind, OwnerId};
use std::sync::Arc;

/// Asks the store for the lock in the name of `owner`.
pub(super) async fn ask(
    context: &Arc<Context>,
    wanted: &Request,
    owner: OwnerId,
    caller: &mut Caller,
) -> Result<Option<Arc<Hold>>, Error> {
    observe::asked_as(&wanted.asked, &owner);
    match wanted.kind {
        Kind::Plain | Kind::Simple => plain::plain(context, wanted, owner, caller).await,
        _ => fair::fair(context, wanted, owner, caller).await,
    }
}
