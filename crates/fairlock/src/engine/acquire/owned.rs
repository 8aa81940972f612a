//! An acquisition by an explicit owner: enters the owner's hold, or asks the store when no other
//! request of the owner does.

use super::answers::silence;
use super::ask::ask;
use super::stop::{SILENCE_GRACE, Stop, stop};
use super::{Delivery, DeliverySender, Request};
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::reenter;
use crate::observe;
use crate::state::seat::Seat;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::MutexGuard;

/// How a request proceeds.
enum Way<'a> {
    Entered(Delivery),
    /// It asks the store. `after_an_answer` says whether the request before it was answered.
    Asks {
        turn: MutexGuard<'a, ()>,
        after_an_answer: bool,
    },
    /// Another request is under way, and this one does not wait.
    Busy,
}

/// As [`run`](super::run), for an explicit owner: enters the owner's hold, or acquires one when no
/// other request of the owner is about to.
pub(crate) async fn drive(
    context: &Arc<Context>,
    wanted: &Request,
    seat: &Arc<Seat>,
    caller: &mut DeliverySender,
) -> Result<Option<Delivery>, Error> {
    let way = {
        let entering = AtomicBool::new(false);
        let mut way = pin!(find_way(context, wanted, seat, &entering));
        tokio::select! {
            biased;
            way = &mut way => way?,
            why = stop(context, caller, wanted.until) => match why {
                Stop::Late => late(context, wanted, seat, way, &entering).await?,
                _ => Way::Busy,
            },
        }
    };
    let _turn = match way {
        Way::Entered(entered) => {
            observe::asked_as(&wanted.asked, &seat.owner);
            return Ok(Some(entered));
        }
        Way::Asks { turn, .. } => turn,
        Way::Busy => return Ok(None),
    };
    let hold = ask(context, wanted, seat.owner.clone(), caller).await?;
    if let Some(hold) = &hold {
        seat.set_hold(hold);
    }
    Ok(hold.map(|hold| Delivery::new(hold, context)))
}

/// Time is up. A store that has not answered has not said that the lock is taken: it gets some more
/// time, and after that its silence is an error.
async fn late<'a>(
    context: &Arc<Context>,
    wanted: &Request,
    seat: &Seat,
    way: Pin<&mut impl Future<Output = Result<Way<'a>, Error>>>,
    entering: &AtomicBool,
) -> Result<Way<'a>, Error> {
    let entering = entering.load(Ordering::Relaxed);
    let says_something = async {
        if entering {
            // Only the answer to this re-entry counts.
            std::future::pending::<()>().await;
        }
        seat.says_something(|name| context.is_connected(name)).await;
    };
    let way = tokio::select! {
        biased;
        way = way => Some(way?),
        () = says_something => return Ok(Way::Busy),
        () = tokio::time::sleep(SILENCE_GRACE) => None,
    };
    match way {
        Some(entered @ Way::Entered(_)) => Ok(entered),
        // The re-entry was refused, or the other request is over; no time is left for a request of
        // this caller.
        Some(Way::Asks { after_an_answer, .. }) if entering || after_an_answer => Ok(Way::Busy),
        _ => Err(silence(ErrorKind::Unknown, &wanted.name).by(&seat.owner)),
    }
}

async fn find_way<'a>(
    context: &Arc<Context>,
    wanted: &Request,
    seat: &'a Arc<Seat>,
    entering: &AtomicBool,
) -> Result<Way<'a>, Error> {
    // Re-entries need no turn: each names a count, so they may arrive in any order.
    entering.store(true, Ordering::Relaxed);
    if let Some(entered) = enter_hold(context, wanted, seat).await? {
        return Ok(Way::Entered(entered));
    }
    entering.store(false, Ordering::Relaxed);
    let turn = if wanted.try_once {
        let Ok(turn) = seat.turn.try_lock() else { return Ok(Way::Busy) };
        turn
    } else {
        seat.turn.lock().await
    };
    let after_an_answer = seat.looks_first();
    // The request that had the turn before may have acquired the lock.
    entering.store(true, Ordering::Relaxed);
    Ok(match enter_hold(context, wanted, seat).await? {
        Some(entered) => Way::Entered(entered),
        None => {
            seat.has_not_asked();
            Way::Asks { turn, after_an_answer }
        }
    })
}

/// Enters the owner's hold. `None` if it has none that can be entered.
async fn enter_hold(
    context: &Arc<Context>,
    wanted: &Request,
    seat: &Seat,
) -> Result<Option<Delivery>, Error> {
    let Some(hold) = seat.hold() else { return Ok(None) };
    if hold.kind() != wanted.kind {
        let message = format!(
            "this owner holds it as a lock of kind {:?} and asks for one of kind {:?}; all users of \
             a name must use the same kind",
            hold.kind(),
            wanted.kind
        );
        return Err(Error::misuse(message).on(&hold.name).by(hold.owner()));
    }
    let Some(change) = hold.enter() else {
        return if hold.has_ended() || hold.is_being_left() {
            Ok(None)
        } else {
            Err(reenter::too_deep(&hold))
        };
    };
    // From here on, dropping `entered` takes the re-entry back.
    let entered = Delivery::new(Arc::clone(&hold), context);
    match reenter::enter(context, &hold, change).await {
        Ok(()) => Ok(Some(entered)),
        // The loss was noticed only now; treat it as if it had been known before.
        Err(error) if error.kind() == ErrorKind::Lost => Ok(None),
        Err(error) => Err(error.by(hold.owner())),
    }
}
