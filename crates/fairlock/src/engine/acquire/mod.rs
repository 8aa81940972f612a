//! The driver of one acquisition. It runs on the client's own runtime, so that neither a
//! cancelled future nor a blocked one leaves anything half done: when nobody waits for the
//! result any more, the driver takes the request back.

mod answers;
mod ask;
mod at_once;
mod delivery;
mod fair;
mod owned;
mod plain;
mod request;
mod stop;

pub(crate) use at_once::at_once;
pub(crate) use delivery::{Delivery, DeliverySender, Requested};
pub(crate) use request::Request;

use crate::base::error::Error;
use crate::engine::context::Context;
use crate::observe;
use crate::state::in_flight::InFlightCleanup;
use std::sync::Arc;

/// Acquires the lock for `caller`, or finds that it cannot be had. Leaves nothing behind if the
/// caller goes away.
pub(crate) async fn run(
    in_flight: InFlightCleanup,
    context: Arc<Context>,
    wanted: Request,
    mut caller: DeliverySender,
) {
    let waiting = observe::waiting(&wanted.asked, wanted.kind);
    let mut result = waiting.within(drive(&context, &wanted, &mut caller)).await;
    if context.is_closed() && matches!(result, Ok(None)) {
        result = Err(Error::closed());
    }
    waiting.ended(&wanted.told(), &result, caller.is_closed());
    let mut result = result.map_err(|error| error.on(&wanted.name));
    if let Ok(Some(delivery)) = &mut result {
        delivery.reporter = wanted.reporter.clone();
    }
    // If the caller has gone, the lock is released when the result is dropped.
    let _ = caller.send(result);
    drop(in_flight);
}

async fn drive(
    context: &Arc<Context>,
    wanted: &Request,
    caller: &mut DeliverySender,
) -> Result<Option<Delivery>, Error> {
    if let Some(seat) = &wanted.seat {
        // Boxed, like other rare paths: the task of every request is copied twice, and has room for
        // all of them.
        return Box::pin(owned::drive(context, wanted, seat, caller)).await;
    }
    let hold = ask::ask(context, wanted, context.new_owner()?, caller).await?;
    Ok(hold.map(|hold| Delivery::new(hold, context)))
}
