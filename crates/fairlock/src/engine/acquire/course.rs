//! One acquisition on the client's thread, and what happens to it when its caller goes away.

use super::delivery::Parcel;
use super::drive::Driver;
use super::{Delivery, Request, errors, owned};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::release;
use crate::observe;
use crate::state::hold::Hold;
use crate::state::in_flight::InFlightCleanup;
use fairlock_core::client::{AtOnce, Tried};
use fairlock_core::{OwnerId, RequestId};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::sync::{Notify, oneshot};

pub(crate) type Answered = Result<Option<Delivery>, Error>;

/// Receives the result of an acquisition on the client's thread. Dropping it gives the request up.
pub(crate) struct Requested {
    answered: oneshot::Receiver<Answered>,
    /// Of a request of an explicit owner, until it is answered.
    parcel: Option<Arc<Parcel>>,
}

impl Requested {
    /// The result, if there is one.
    pub(crate) fn try_recv(&mut self) -> Result<Answered, oneshot::error::TryRecvError> {
        self.answered.try_recv().inspect(|_| self.parcel = None)
    }
}

impl Future for Requested {
    type Output = Result<Answered, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let answered = Pin::new(&mut self.answered).poll(cx);
        if answered.is_ready() {
            // From here on, the delivery has what is in it.
            self.parcel = None;
        }
        answered
    }
}

impl Drop for Requested {
    fn drop(&mut self) {
        if let Some(parcel) = &self.parcel {
            parcel.refuse();
        }
    }
}

/// A request for a lock that has begun.
pub(crate) enum Begun {
    /// A store that answers at once has granted it.
    Held(Arc<Hold>),
    Sent(Requested),
}

/// The request, and whether anybody still waits for its result.
pub(crate) struct Asking {
    pub(super) context: Arc<Context>,
    pub(crate) wanted: Request,
    /// Set for an explicit owner.
    pub(super) parcel: Option<Arc<Parcel>>,
    is_gone: AtomicBool,
    /// The client's machine has something to do for whoever drives it.
    pub(crate) wake: Notify,
}

impl Asking {
    pub(crate) fn new(context: &Arc<Context>, wanted: Request) -> Arc<Self> {
        let parcel = wanted.seat.as_ref().map(|_| Parcel::new(context, wanted.reporter.clone()));
        let (context, is_gone) = (Arc::clone(context), AtomicBool::new(false));
        Arc::new(Self { context, wanted, parcel, is_gone, wake: Notify::new() })
    }

    /// What the caller has of it.
    pub(super) fn requested(&self, answered: oneshot::Receiver<Answered>) -> Requested {
        Requested { answered, parcel: self.parcel.clone() }
    }

    /// Resolves when nobody waits for the result any more. The task that sets `is_gone` polls this
    /// next.
    pub(super) async fn gone(&self) {
        poll_fn(|_| if self.is_gone() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// Begins to ask for the lock. A store in this process or in a file grants a free lock at once, in
/// the caller's thread.
pub(crate) fn begin(context: &Arc<Context>, wanted: Request) -> Result<Begun, Error> {
    let by = match &wanted.seat {
        // It may enter a hold of the owner instead.
        Some(_) => None,
        None => {
            let (owner, request) = (context.new_owner()?, context.new_request()?);
            match at_once(context, &wanted, &owner, request)? {
                AtOnceEnd::Held(hold) => return Ok(Begun::Held(hold)),
                AtOnceEnd::Taken => Some((owner, context.new_request()?)),
                AtOnceEnd::NotAsked => Some((owner, request)),
            }
        }
    };
    context.background()?;
    let (caller, answered) = oneshot::channel();
    let asking = Asking::new(context, wanted);
    let requested = asking.requested(answered);
    let in_flight = InFlightCleanup::new(&context.in_flight);
    let driver = by.map(|(owner, request)| Driver::begin(&asking, owner, request));
    // Boxed: otherwise it is copied for each layer around it.
    context.spawn(Box::pin(ask(asking, driver, caller, in_flight)));
    Ok(Begun::Sent(requested))
}

/// What became of the first copy in the caller's thread.
enum AtOnceEnd {
    Held(Arc<Hold>),
    Taken,
    /// The store cannot carry it out now.
    NotAsked,
}

/// Sends the first copy in the caller's thread, if the store can carry it out now. Hardly any time passes, so the clock
/// is read only once.
fn at_once(
    context: &Arc<Context>,
    wanted: &Request,
    owner: &OwnerId,
    request: RequestId,
) -> Result<AtOnceEnd, Error> {
    if !context.store.is_synchronous() {
        return Ok(AtOnceEnd::NotAsked);
    }
    let it = AtOnce::new(wanted.wanted(context), owner.clone(), request);
    let op = it.op(!context.store.inbox_up());
    let Some(reply) = context.store.call_now(&wanted.name, &op) else {
        return Ok(AtOnceEnd::NotAsked);
    };
    let (tried, at) = match reply {
        Ok(reply) => {
            context.note_time(&reply);
            (it.answered(reply.answer.body, reply.sent.nanos()), reply.sent)
        }
        Err(failure) => (it.failed(errors::failure(failure)), Moment::now()),
    };
    match tried {
        Tried::Held(held) => {
            observe::acquired_at_once(&wanted.told(), owner);
            Ok(AtOnceEnd::Held(wanted.held(context, held, at)))
        }
        Tried::Taken => Ok(AtOnceEnd::Taken),
        Tried::Failed(reason, ops) => {
            for op in ops {
                release::take_back(context, &wanted.name, op, wanted.reporter.clone(), true);
            }
            Err(errors::error(reason, owner))
        }
    }
}

/// Without a driver, the request of an explicit owner is yet to find its way.
async fn run(asking: &Arc<Asking>, driver: Option<Driver>) -> Answered {
    let Asking { context, wanted, .. } = &**asking;
    let waiting = observe::waiting(&wanted.asked, wanted.what());
    let mut result = waiting
        .within(async {
            let hold = match (driver, &wanted.seat) {
                (Some(mut driver), _) => driver.run().await?,
                // Boxed, because it is rare and large.
                (None, Some(seat)) => return Box::pin(owned::drive(asking, seat)).await,
                (None, None) => None,
            };
            Ok(hold.map(|hold| Delivery::new(hold.into(), context)))
        })
        .await;
    if context.is_closed() && matches!(result, Ok(None)) {
        result = Err(Error::closed());
    }
    waiting.ended(&wanted.told(), &result, asking.is_gone());
    if let Ok(Some(delivery)) = &mut result {
        delivery.reporter = wanted.reporter.clone();
    }
    result.map_err(|error| error.on(&wanted.name))
}

/// Asks on the client's thread, whether or not the caller polls, until there is a result or, if the
/// caller has gone, until nothing is left of the request.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
pub(super) fn ask(
    asking: Arc<Asking>,
    driver: Option<Driver>,
    mut caller: oneshot::Sender<Answered>,
    in_flight: InFlightCleanup,
) -> impl Future<Output = ()> {
    async move {
        let mut runs = pin!(run(&asking, driver));
        let answered = tokio::select! {
            biased;
            answered = &mut runs => answered,
            () = caller.closed() => {
                asking.is_gone.store(true, Ordering::Relaxed);
                runs.await
            }
        };
        // If the caller has gone, the lock is released when the result is dropped.
        let _ = caller.send(answered);
        drop(in_flight);
    }
}
