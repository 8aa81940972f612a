//! One acquisition on the client's thread, and what happens to it when its caller goes away.

use super::delivery::Parcel;
use super::drive::{Course, Driver};
use super::{Delivery, Request, errors, owned};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::observe;
use crate::state::hold::Hold;
use crate::state::in_flight::InFlightCleanup;
use crate::state::seat::Seat;
use fairlock_core::client::acquiring::{Acquiring, At, Outcome, Step, Work};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::sync::oneshot;

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
pub(super) struct Asking {
    pub(super) context: Arc<Context>,
    pub(super) wanted: Request,
    /// Set for an explicit owner.
    pub(super) parcel: Option<Arc<Parcel>>,
    is_gone: AtomicBool,
}

impl Asking {
    pub(super) fn new(context: &Arc<Context>, wanted: Request) -> Self {
        let parcel = wanted.seat.as_ref().map(|_| Parcel::new(context, wanted.reporter.clone()));
        Self { context: Arc::clone(context), wanted, parcel, is_gone: AtomicBool::new(false) }
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
    let first = match &wanted.seat {
        // It may enter a hold of the owner instead.
        Some(seat) => First::Owned(Arc::clone(seat)),
        None => {
            let (owner, request) = (context.new_owner()?, context.new_request()?);
            let mut machine = Acquiring::new(wanted.wanted(context), owner, request);
            let (step, answered) = if context.store.is_synchronous() {
                at_once(context, &wanted, &mut machine)
            } else {
                (machine.start(wanted.at(context)), None)
            };
            match step {
                Step::Done(Outcome::Held(held)) => {
                    observe::acquired_at_once(&wanted.told(), held.acquisition.owner());
                    let at = answered.unwrap_or_else(Moment::now);
                    return Ok(Begun::Held(wanted.held(context, held, at)));
                }
                Step::Done(Outcome::Failed(reason)) => return Err(errors::unnamed(reason)),
                step => First::Asks(Course::new(machine, step)),
            }
        }
    };
    context.background()?;
    let (caller, answered) = oneshot::channel();
    let asking = Asking::new(context, wanted);
    let requested = asking.requested(answered);
    let in_flight = InFlightCleanup::new(&context.in_flight);
    // Boxed: otherwise it is copied for each layer around it.
    context.spawn(Box::pin(ask(asking, first, caller, in_flight)));
    Ok(Begun::Sent(requested))
}

/// Sends the first copy in the caller's thread, if the store can carry it out now, and returns when it was sent. Hardly
/// any time passes, so the clock is read only once.
fn at_once(
    context: &Context,
    wanted: &Request,
    machine: &mut Acquiring<Error>,
) -> (Step<Error>, Option<Moment>) {
    let number = match machine.start(At { ns: 0, connected: true }) {
        Step::Begin(number, Work::Send { at_once: true }) => number,
        step => return (step, None),
    };
    let op = machine.asks(!context.store.inbox_up(), u64::MAX);
    match context.store.call_now(&wanted.name, &op) {
        Some(Ok(reply)) => {
            context.note_time(&reply);
            let at = At { ns: reply.sent.nanos(), connected: true };
            let answer = (reply.answer.body, reply.answer.more);
            (machine.answered(at, number, answer, at.ns), Some(reply.sent))
        }
        Some(Err(failure)) => {
            (machine.failed(wanted.at(context), number, errors::failure(failure)), None)
        }
        None => (machine.not_at_once(wanted.at(context), number), None),
    }
}

/// How an acquisition continues.
pub(super) enum First {
    Asks(Box<Course>),
    Owned(Arc<Seat>),
}

async fn run(asking: &Asking, first: First) -> Answered {
    let Asking { context, wanted, .. } = asking;
    let waiting = observe::waiting(&wanted.asked, wanted.what());
    let mut result = waiting
        .within(async {
            let hold = match first {
                First::Asks(course) => Driver::new(asking, course).run().await?,
                // Boxed, because it is rare and large.
                First::Owned(seat) => return Box::pin(owned::drive(asking, &seat)).await,
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
    asking: Asking,
    first: First,
    mut caller: oneshot::Sender<Answered>,
    in_flight: InFlightCleanup,
) -> impl Future<Output = ()> {
    async move {
        let mut runs = pin!(run(&asking, first));
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
