//! Drives one acquisition: does the work that the client's machine asks for, and passes in what became of it.

use super::course::Asking;
use super::errors::{self, failure};
use crate::base::backoff::jitter;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::{release, send};
use crate::observe;
use crate::state::hold::Hold;
use crate::store::{Confirmed, Reply, StoreError, Topic};
use fairlock_core::client::acquiring::{Outcome, Step, Work};
use fairlock_core::client::{AttemptId, Renewed};
use fairlock_core::{Body, Op, OwnerId, RequestId};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Whoever does the work of an acquisition.
pub(super) struct Driver {
    asking: Arc<Asking>,
    id: AttemptId,
    owner: OwnerId,
    /// Of the work under way.
    number: u32,
    /// When the machine needs to know the time.
    deadline_ns: Option<u64>,
    /// Whether the machine knows that its caller has gone, and that the client was shut down.
    knows_gone: bool,
    knows_closed: bool,
    /// Work that has begun already: its first copy is sent together with those of others.
    begun: Option<Doing>,
    has_ended: bool,
}

type Answer = Result<Reply, StoreError>;

/// Work that takes time.
enum Doing {
    Nothing,
    Call(Op),
    Together(oneshot::Receiver<Answer>),
    Pause(Duration),
    Rest(Duration),
    Connection(Moment),
    Subscribe,
    Confirm(Op),
}

/// Its result.
enum Done {
    Reply(Answer),
    Rested,
    Subscribed(Result<(), StoreError>),
    Confirmed(Result<Confirmed, StoreError>),
}

impl Driver {
    /// Begins an acquisition; `request` is the first one by which `owner` asks.
    pub(super) fn begin(asking: &Arc<Asking>, owner: OwnerId, request: RequestId) -> Self {
        let Asking { context, wanted, .. } = &**asking;
        observe::asked_as(&wanted.asked, &owner);
        let what = (wanted.name.clone(), wanted.wanted(context));
        let by = (owner.clone(), request);
        let id = context.give(|it, here| it.ask(here, what, by, Arc::clone(asking)));
        Self {
            asking: Arc::clone(asking),
            id,
            owner,
            number: 0,
            deadline_ns: None,
            knows_gone: false,
            knows_closed: false,
            begun: None,
            has_ended: false,
        }
    }

    /// The first copy of a request that does not wait; `answer` brings the reply to it.
    pub(super) fn first_copy(&mut self, answer: oneshot::Receiver<Answer>) -> Option<Op> {
        let Ok(Some(Doing::Call(op))) = self.next() else { return None };
        self.begun = Some(Doing::Together(answer));
        Some(op)
    }

    /// Does all the work.
    pub(super) async fn run(&mut self) -> Result<Option<Arc<Hold>>, Error> {
        let Err(outcome) = self.work().await;
        let Asking { context, wanted, .. } = &*self.asking;
        match outcome {
            Outcome::Held(held) => Ok(Some(wanted.held(context, held, Moment::now()))),
            Outcome::None => Ok(None),
            Outcome::Failed(reason) => Err(errors::error(reason, &self.owner)),
        }
    }

    /// `Err` is the outcome. No step lives across an `await`, because steps are large.
    async fn work(&mut self) -> Result<Infallible, Outcome<Error>> {
        let asking = Arc::clone(&self.asking);
        let mut closed = pin!(asking.context.closed());
        let mut doing = match self.begun.take() {
            Some(begun) => begun,
            None => self.next()?.unwrap_or(Doing::Nothing),
        };
        loop {
            doing = self.during(doing, &asking, closed.as_mut()).await?;
        }
    }

    /// What to do next, unless the work under way goes on.
    #[expect(clippy::result_large_err, reason = "a box would be an allocation for each hold")]
    fn next(&mut self) -> Result<Option<Doing>, Outcome<Error>> {
        let (step, deadline_ns) = self.asking.context.machine.take(self.id);
        self.deadline_ns = deadline_ns;
        match step {
            Step::Wait => Ok(None),
            Step::Begin(number, work) => {
                self.number = number;
                Ok(Some(self.begin_work(work)))
            }
            Step::Done(outcome) => {
                self.has_ended = true;
                Err(outcome)
            }
        }
    }

    fn begin_work(&self, work: Work) -> Doing {
        let between = |least: Duration, most: Duration| least + jitter(most.saturating_sub(least));
        match work {
            Work::Send(op) => {
                if let Some(seat) = &self.asking.wanted.seat {
                    seat.asks();
                }
                Doing::Call(op)
            }
            Work::Confirm(op) => Doing::Confirm(op),
            Work::Pause { least, most } => Doing::Pause(between(least, most)),
            Work::Rest { least, most } => Doing::Rest(between(least, most)),
            Work::Connection { until_ns } => Doing::Connection(Moment::at_nanos(until_ns)),
            Work::Subscribe => Doing::Subscribe,
            Work::Nothing => Doing::Nothing,
        }
    }

    /// Works until there is something else to do.
    async fn during(
        &mut self,
        doing: Doing,
        asking: &Asking,
        mut closed: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Doing, Outcome<Error>> {
        let context = &asking.context;
        let id = self.id;
        let mut is_done = matches!(doing, Doing::Nothing);
        let mut work = pin!(work(asking, doing));
        loop {
            tokio::select! {
                biased;
                done = &mut work, if !is_done => {
                    is_done = true;
                    self.done(done);
                }
                () = asking.wake.notified() => {}
                () = asking.gone(), if !self.knows_gone => {
                    self.knows_gone = true;
                    context.give(|it, here| it.gone(here, id));
                }
                () = closed.as_mut(), if !self.knows_closed => {
                    self.knows_closed = true;
                    context.give(|it, here| it.closed(here, id));
                }
                () = until(self.deadline_ns) => context.give(|it, here| it.time(here, id)),
            }
            if let Some(next) = self.next()? {
                return Ok(next);
            }
        }
    }

    /// Passes in the result of the work under way.
    fn done(&self, done: Done) {
        let Asking { context, wanted, .. } = &*self.asking;
        let work = (self.id, self.number);
        match done {
            Done::Reply(Ok(reply)) => {
                if matches!(reply.answer.body, Body::HeldBySelf { .. }) && wanted.seat.is_some() {
                    // The store may have refused the release of a former hold. This request is not in the line, so no
                    // heartbeat repeats that release.
                    release::pay_debts(context, &wanted.name, 1);
                }
                let (answer, sent_ns) =
                    ((reply.answer.body, reply.answer.more), reply.sent.nanos());
                context.give(|it, here| it.answered(here, work, answer, sent_ns));
                if let Some(seat) = &wanted.seat
                    && context.machine.read(|it| it.was_answered(self.id))
                {
                    seat.is_answered();
                }
            }
            Done::Rested => context.give(|it, here| it.rested(here, work)),
            Done::Subscribed(Ok(())) => context.give(|it, here| it.subscribed(here, work)),
            Done::Confirmed(Ok(Confirmed { reply, missing })) => {
                let (answer, sent_ns) = (Renewed::of(reply.answer.body), reply.sent.nanos());
                context.give(|it, here| it.confirmed(here, work, answer, missing, sent_ns));
            }
            Done::Reply(Err(failed))
            | Done::Subscribed(Err(failed))
            | Done::Confirmed(Err(failed)) => {
                context.give(|it, here| it.failed(here, work, failure(failed)));
            }
        }
    }
}

/// After a panic in code that observes the client, or when its thread ends, nobody waits for the result.
impl Drop for Driver {
    fn drop(&mut self) {
        if !self.has_ended {
            self.asking.context.give(|it, here| it.abandon(here, self.id));
        }
    }
}

pub(super) async fn until(deadline_ns: Option<u64>) {
    match deadline_ns {
        // Boxed, because most requests have no deadline.
        Some(at) => Box::pin(tokio::time::sleep(Moment::at_nanos(at).left())).await,
        None => std::future::pending().await,
    }
}

async fn work(asking: &Asking, doing: Doing) -> Done {
    let Asking { context, wanted, .. } = asking;
    let name = &wanted.name;
    match doing {
        Doing::Call(op) => Done::Reply(send::call(context, name, &op).await),
        Doing::Together(answer) => Done::Reply(answer.await.unwrap_or_else(|_| {
            let message = "whoever sent the request has ended".to_owned();
            Err(StoreError::unavailable(message, true))
        })),
        Doing::Pause(pause) => {
            tokio::time::sleep(pause).await;
            Done::Rested
        }
        Doing::Rest(pause) => {
            context.store.sleep(pause).await;
            Done::Rested
        }
        Doing::Connection(until) => {
            let _ = tokio::time::timeout(until.left(), context.store.ready(Some(name))).await;
            Done::Rested
        }
        Doing::Subscribe => Done::Subscribed(context.store.listen(Topic::Base(name.clone())).await),
        Doing::Confirm(op) => Done::Confirmed(confirm(context, asking, &op).await),
        Doing::Nothing => std::future::pending().await,
    }
}

async fn confirm(
    context: &Arc<Context>,
    asking: &Asking,
    op: &Op,
) -> Result<Confirmed, StoreError> {
    if !context.store.is_replicated() {
        return send::call(context, &asking.wanted.name, op).await.map(Confirmed::by_the_store);
    }
    let confirmed = context.store.confirm(&asking.wanted.name, op).await?;
    context.note_reply(&asking.wanted.name, op, &confirmed.reply);
    Ok(confirmed)
}
