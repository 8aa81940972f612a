//! Carries out the steps of [`Owned`]: an explicit owner's request enters the owner's hold, or asks
//! the store when no other request of the owner does.

use super::course::Asking;
use super::drive::{Driver, until};
use super::{Delivery, errors};
use crate::base::error::{Error, ErrorKind};
use crate::engine::reenter;
use crate::observe;
use crate::state::hold::Part;
use crate::state::seat::Seat;
use fairlock_core::Share;
use fairlock_core::client::acquiring::{Entry, Owned, OwnedEnd, OwnedStep};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::MutexGuard;

/// How a request proceeds.
enum Way<'a> {
    /// It has ended.
    Ends(Option<Delivery>),
    /// It asks the store, while it has the turn.
    Asks(MutexGuard<'a, ()>),
}

/// Work that takes time.
enum Doing {
    Enter,
    Turn { now: bool },
}

/// Its result.
enum Done<'a> {
    Entry(Entry<Error>, Option<Delivery>),
    /// `None` if it is another request's turn.
    Turn(Option<MutexGuard<'a, ()>>),
}

pub(super) async fn drive(
    asking: &Arc<Asking>,
    seat: &Arc<Seat>,
) -> Result<Option<Delivery>, Error> {
    let context = &asking.context;
    let _turn = match find_way(asking, seat).await? {
        Way::Ends(entered) => return Ok(entered),
        Way::Asks(turn) => turn,
    };
    let (owner, request) = (seat.owner.clone(), context.new_request()?);
    let hold = Driver::begin(asking, owner, request).run().await?;
    let Some(hold) = hold else { return Ok(None) };
    let parcel = asking.parcel.as_ref();
    let delivered = parcel.and_then(|parcel| parcel.fill(|| (Some(Arc::clone(&hold).into()), ())));
    Ok(match delivered {
        Some((delivery, ())) => {
            seat.set_hold(&hold);
            delivery
        }
        // The caller has gone: no other request may count on this hold.
        None => Some(Delivery::new(hold.into(), context)),
    })
}

async fn find_way<'a>(asking: &'a Asking, seat: &'a Arc<Seat>) -> Result<Way<'a>, Error> {
    let Asking { context, wanted, .. } = asking;
    let mut owned = Owned::new(wanted.try_once, wanted.until.map(|until| until.nanos()));
    let mut closed = pin!(context.closed());
    let (mut entered, mut its_turn) = (None, None);
    let mut step = owned.start();
    loop {
        let doing = match (step, its_turn.take()) {
            (OwnedStep::Ask, Some(turn)) => {
                seat.has_not_asked();
                return Ok(Way::Asks(turn));
            }
            (OwnedStep::Done(end), _) => {
                return match end {
                    OwnedEnd::Entered => {
                        observe::asked_as(&wanted.asked, &seat.owner);
                        Ok(Way::Ends(entered))
                    }
                    OwnedEnd::None => Ok(Way::Ends(None)),
                    OwnedEnd::Failed(error) => Err(error),
                    OwnedEnd::Silent => Err(errors::silence(true, None).by(&seat.owner)),
                };
            }
            (OwnedStep::Turn { now }, _) => Doing::Turn { now },
            (_, turn) => {
                its_turn = turn;
                Doing::Enter
            }
        };
        let mut doing = pin!(carry_out(asking, seat, doing));
        step = loop {
            // Created before the look, so that no answer falls in between.
            let answered = seat.answered();
            let others = owned.others(wanted.at(context), seat.progress());
            if !matches!(others, OwnedStep::Wait) {
                break others;
            }
            let step = tokio::select! {
                biased;
                done = &mut doing => match done {
                    Done::Entry(entry, delivery) => {
                        entered = delivery;
                        owned.entry(entry)
                    }
                    Done::Turn(None) => owned.busy(),
                    Done::Turn(turn) => {
                        its_turn = turn;
                        owned.turn(seat.looks_first())
                    }
                },
                () = asking.gone() => owned.gone(),
                () = closed.as_mut() => owned.gone(),
                () = answered => OwnedStep::Wait,
                () = until(owned.deadline_ns()) => owned.time(wanted.at(context)),
            };
            if !matches!(step, OwnedStep::Wait) {
                break step;
            }
        };
    }
}

async fn carry_out<'a>(asking: &Asking, seat: &'a Seat, doing: Doing) -> Done<'a> {
    match doing {
        Doing::Enter => match enter_hold(asking, seat).await {
            Ok(Some(entered)) => Done::Entry(Entry::Entered, Some(entered)),
            Ok(None) => Done::Entry(Entry::NoHold, None),
            Err(error) => Done::Entry(Entry::Failed(error), None),
        },
        Doing::Turn { now: true } => Done::Turn(seat.turn.try_lock().ok()),
        Doing::Turn { now: false } => Done::Turn(Some(seat.turn.lock().await)),
    }
}

/// Enters the owner's hold. `None` if it has none that can be entered.
async fn enter_hold(asking: &Asking, seat: &Seat) -> Result<Option<Delivery>, Error> {
    let Asking { context, wanted, .. } = asking;
    let Some(hold) = seat.hold() else { return Ok(None) };
    if wanted.non_reentrant {
        return Err(already_held().on(&hold.name).by(hold.owner()));
    }
    if hold.kind() != wanted.kind {
        let message = format!(
            "this owner holds it as a lock of kind {:?} and asks for one of kind {:?}; all users of \
             a name must use the same kind",
            hold.kind(),
            wanted.kind
        );
        return Err(Error::misuse(message).on(&hold.name).by(hold.owner()));
    }
    let enter = || {
        let change = hold.enter_for(wanted.share);
        let reading = hold.is_reading(wanted.share);
        let part = matches!(change, Ok(Some(_))).then(|| Part { hold: Arc::clone(&hold), reading });
        (part, change)
    };
    let Some((entered, change)) = asking.parcel.as_ref().and_then(|parcel| parcel.fill(enter))
    else {
        // The caller has gone, which ends this.
        return std::future::pending().await;
    };
    // From here on, dropping `entered` takes the re-entry back.
    let change = match change {
        Ok(change) => change,
        Err(_) if hold.has_ended() || hold.is_being_left() => return Ok(None),
        Err(has) => return Err(other_share(has).on(&hold.name).by(hold.owner())),
    };
    let Some(change) = change else {
        return if hold.has_ended() || hold.is_being_left() {
            Ok(None)
        } else {
            Err(reenter::too_deep(&hold))
        };
    };
    match reenter::enter(context, &hold, change).await {
        Ok(()) => Ok(entered),
        // The loss was noticed only now; treat it as if it had been known before.
        Err(error) if error.kind() == ErrorKind::Lost => Ok(None),
        Err(error) => Err(error.by(hold.owner())),
    }
}

/// Only a hold that has a guard in this client counts. A request whose reply was lost has no guard
/// yet: its further copies ask the store, which recognizes them.
#[cold]
fn already_held() -> Error {
    let message = "this owner holds the lock already, and asked not to enter it again \
                   (`non_reentrant`); release what it has, or pass the guard along";
    Error::new(ErrorKind::AlreadyHeld, message)
}

/// A reader must not wait to write: it would wait for itself.
#[cold]
fn other_share(has: Share) -> Error {
    Error::misuse(match has {
        Share::Permits { .. } => {
            "this owner holds another number of permits; ask for the same number, or as another \
             owner"
        }
        _ => {
            "this owner reads, and would wait for itself to write; release what it has first, or \
             begin by writing"
        }
    })
}

#[cfg(all(feature = "redis", feature = "_testkit"))]
#[cfg(test)]
mod tests {
    use crate::{Client, Error, Guard, Release};
    use fairlock_testkit::server::{Generation, Server};
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Duration;

    /// Drops a request while its re-entry is under way, and the client's thread is busy.
    async fn drop_entering(
        client: &Client,
        server: &Server,
        guard: &Guard,
        request: impl Future<Output = Result<Guard, Error>>,
    ) {
        let mut raw = server.client();
        raw.call(&["CLIENT", "PAUSE", "20000", "WRITE"]);
        let mut request = Box::pin(request);
        let polled = std::future::poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx)));
        assert!(polled.await.is_pending(), "the server is paused");
        fairlock_testkit::wait::patiently("it enters", || guard.hold_count() == 2);
        let (began, is_busy) = mpsc::channel();
        let (frees, until) = mpsc::channel::<()>();
        client.context().runtime.spawn(async move {
            began.send(()).expect("a test");
            let _ = until.recv_timeout(Duration::from_secs(20));
        });
        is_busy.recv().expect("begun");
        drop(request);
        assert_eq!(guard.hold_count(), 1, "at once");
        drop(frees);
        raw.call(&["CLIENT", "UNPAUSE"]);
    }

    /// D65: the only guard was "still held", because the client's thread had not yet noticed that the
    /// other request was dropped.
    #[tokio::test]
    async fn a_reentry_that_is_dropped_is_counted_back_at_once() {
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let client = Client::connect(&server.url()).await.expect("a server");
        let owner = client.owner();
        let rw = client.rw_lock("catalogue").owned_by(&owner);
        let pool = client.semaphore("pool", 3).owned_by(&owner);
        let fair = client.fair_lock("job").owned_by(&owner);
        for round in 0..4 {
            let request = || async {
                Ok(match round {
                    0 => fair.lock().await?,
                    1 => rw.read().await?.into_guard(),
                    2 => rw.write().await?.into_guard(),
                    _ => pool.acquire_many(2).await?.into_guard(),
                })
            };
            let guard = request().await.expect("free");
            drop_entering(&client, &server, &guard, request()).await;
            assert_eq!(guard.release().await.expect("answered"), Release::Released);
        }
    }
}
