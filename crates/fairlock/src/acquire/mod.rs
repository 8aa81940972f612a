//! The driver of one acquisition. It runs on the client's own runtime, so that neither a
//! cancelled future nor a blocked one leaves anything half done: when nobody waits for the
//! result any more, the driver takes the request back.

mod answers;
mod delivery;
mod fair;
mod plain;
mod stop;
mod wanted;

pub(crate) use answers::silence;
pub(crate) use delivery::{Caller, Delivery, Requested};
pub(crate) use stop::{SILENCE_GRACE, Stop, stop};
pub(crate) use wanted::Wanted;

use crate::error::Error;
use crate::hold::Hold;
use crate::observe;
use crate::owner;
use crate::reaper::Ticket;
use crate::shared::Shared;
use fairlock_core::{Kind, OwnerId};
use std::sync::Arc;

/// Gets the lock for `caller`, or finds that it cannot be had; leaves nothing behind when the
/// caller goes away.
pub(crate) async fn run(ticket: Ticket, shared: Arc<Shared>, wanted: Wanted, mut caller: Caller) {
    let waiting = observe::waiting(&wanted);
    let mut result = waiting.within(drive(&shared, &wanted, &mut caller)).await;
    if shared.is_closed() && matches!(result, Ok(None)) {
        result = Err(Error::closed());
    }
    waiting.ended(&result, caller.is_closed());
    let mut result = result.map_err(|error| error.on(&wanted.name));
    if let Ok(Some(delivery)) = &mut result {
        delivery.link = wanted.link.clone();
    }
    // What a caller that went away does not take releases itself.
    let _ = caller.send(result);
    drop(ticket);
}

async fn drive(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    caller: &mut Caller,
) -> Result<Option<Delivery>, Error> {
    if let Some(seat) = &wanted.seat {
        // Boxed, as are other ways that few go: the task of every request is copied twice, and has room for all of them.
        return Box::pin(owner::drive(shared, wanted, seat, caller)).await;
    }
    let hold = ask(shared, wanted, shared.new_owner()?, caller).await?;
    Ok(hold.map(|hold| Delivery::new(hold, shared)))
}

/// Asks the store for the lock in the name of `owner`.
pub(crate) async fn ask(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: OwnerId,
    caller: &mut Caller,
) -> Result<Option<Arc<Hold>>, Error> {
    observe::asked_as(wanted, &owner);
    match wanted.kind {
        Kind::Plain | Kind::Simple => plain::plain(shared, wanted, owner, caller).await,
        _ => fair::fair(shared, wanted, owner, caller).await,
    }
}
