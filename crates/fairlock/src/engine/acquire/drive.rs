//! Carries out the steps of [`Acquiring`], and passes in their results.

use super::course::Asking;
use super::errors::{self, failure};
use crate::base::backoff::jitter;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::{heartbeat, release, send};
use crate::observe::{self, Way};
use crate::state::hold::Hold;
use crate::state::waiters::{Outcome as Told, PlainQueue};
use crate::store::{Confirmed, Reply, StoreError, Topic};
use fairlock_core::client::Renewed;
use fairlock_core::client::acquiring::{Acquiring, At, Outcome, Step, Work};
use fairlock_core::{Body, Op, RequestId, has_queue};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::task::JoinHandle;

/// An acquisition that has had an input, and the work for it.
pub(super) struct Course {
    machine: Acquiring<Error>,
    /// The step that its last input led to, until it is carried out.
    step: Step<Error>,
    /// When the last input came. Steps that take no time end at the same moment.
    at: At,
    /// The number of the work under way.
    number: u32,
    /// The request with which it is among the waiters of a fair lock.
    waiter: Option<RequestId>,
    /// Receives how the wait of that request ends, even while the request leaves.
    told: Option<(RequestId, oneshot::Receiver<Told>)>,
    /// Its place among the waiters of a lock without a queue, and its turn to ask.
    line: Option<(Arc<PlainQueue>, Option<OwnedMutexGuard<()>>)>,
    /// Whether it has had the inputs that its caller has gone, and that the client was shut down.
    knows_gone: bool,
    knows_closed: bool,
    /// The answer to its first copy, which is sent together with those of others.
    first: Option<oneshot::Receiver<Result<Reply, StoreError>>>,
}

impl Course {
    pub(super) fn new(machine: Acquiring<Error>, step: Step<Error>) -> Box<Self> {
        Box::new(Self {
            machine,
            step,
            at: At { ns: 0, connected: true },
            number: 0,
            waiter: None,
            told: None,
            line: None,
            knows_gone: false,
            knows_closed: false,
            first: None,
        })
    }

    /// The same for an acquisition whose first copy is sent together with those of others; `first`
    /// brings the reply.
    pub(super) fn answered_by(
        mut self: Box<Self>,
        first: oneshot::Receiver<Result<Reply, StoreError>>,
    ) -> Box<Self> {
        self.first = Some(first);
        self
    }
}

/// The shell around one [`Acquiring`].
pub(super) struct Driver<'a> {
    asking: &'a Asking,
    /// In an allocation of its own: together with the future it would be a large one, and
    /// allocators are slow with these.
    course: Box<Course>,
}

/// Work that takes time.
enum Doing {
    Nothing,
    Call(Op),
    Together(oneshot::Receiver<Result<Reply, StoreError>>),
    Pause(Duration),
    Rest(Duration),
    Connection(Moment),
    Subscribe,
    Confirm(Op),
    Turn,
    TakeBack(JoinHandle<bool>),
    GiveBack(JoinHandle<()>),
}

/// Its result.
enum Done {
    Reply(Result<Reply, StoreError>),
    Rested,
    Woken,
    Listened(Result<(), StoreError>),
    Confirmed(Result<Confirmed, StoreError>),
    Turn(OwnedMutexGuard<()>),
    TakenBack { answered: bool },
    GivenBack,
}

impl<'a> Driver<'a> {
    pub(super) fn new(asking: &'a Asking, mut course: Box<Course>) -> Self {
        course.at = asking.wanted.at(&asking.context);
        Self { asking, course }
    }

    /// Carries out the first step, and all that follow.
    pub(super) async fn run(&mut self) -> Result<Option<Arc<Hold>>, Error> {
        let asked = &self.asking.wanted.asked;
        observe::asked_as(asked, self.course.machine.acquisition().owner());
        let Err(outcome) = self.carry_out_all().await;
        match outcome {
            Outcome::Held(held) => {
                Ok(Some(self.asking.wanted.held(&self.asking.context, held, Moment::now())))
            }
            Outcome::None => Ok(None),
            Outcome::Failed(reason) => {
                Err(errors::error(reason, self.course.machine.acquisition().owner()))
            }
        }
    }

    /// Carries out all steps; `Err` is the outcome. No step lives across an `await`, because steps
    /// are large.
    async fn carry_out_all(&mut self) -> Result<Infallible, Outcome<Error>> {
        let mut closed = pin!(self.asking.context.closed());
        let step = std::mem::replace(&mut self.course.step, Step::Wait);
        let mut doing = self.carry_out(step)?;
        loop {
            let step = self.during(&mut doing, closed.as_mut()).await;
            doing = self.carry_out(step)?;
        }
    }

    /// Carries out this step, and those that follow at once.
    #[expect(clippy::result_large_err, reason = "a box would be an allocation for each hold")]
    fn carry_out(&mut self, mut step: Step<Error>) -> Result<Doing, Outcome<Error>> {
        let Asking { context, wanted, .. } = self.asking;
        loop {
            match step {
                Step::Done(outcome) => return Err(outcome),
                Step::Wait => return Ok(Doing::Nothing),
                Step::Begin(number, work) => {
                    self.course.number = number;
                    return Ok(self.begin(work));
                }
                Step::Turn => {
                    self.course.line = Some((context.waiters.enter_plain(&wanted.name), None));
                    return Ok(Doing::Turn);
                }
                Step::TakeBack { ops, wait } => {
                    let owed = self.course.machine.acquisition().may_be_known();
                    let take_back = |op| {
                        let reporter = wanted.reporter.clone();
                        release::take_back(context, &wanted.name, op, reporter, owed)
                    };
                    match ops.into_iter().map(take_back).last().filter(|_| wait) {
                        Some(last) => return Ok(Doing::TakeBack(last)),
                        None => step = self.course.machine.taken_back(self.course.at, false),
                    }
                }
                Step::GiveBack(held) => {
                    let hold = Arc::new(wanted.hold(context, *held));
                    return Ok(Doing::GiveBack(release::give_back(context, &hold)));
                }
                Step::Enter | Step::Queued { .. } | Step::Leave { .. } | Step::Draw => {
                    step = self.at_once(step);
                }
            }
        }
    }

    /// The moment at which an input comes.
    fn now(&mut self) -> At {
        self.course.at = self.asking.wanted.at(&self.asking.context);
        self.course.at
    }

    /// Carries out a step that takes no time.
    fn at_once(&mut self, step: Step<Error>) -> Step<Error> {
        let Asking { context, wanted, .. } = self.asking;
        let at = self.course.at;
        match step {
            Step::Enter => {
                let acquisition = self.course.machine.acquisition().clone();
                let (waiter, told) = context.waiters.enter(wanted.name.clone(), acquisition);
                (self.course.waiter, self.course.told) = (Some(waiter), Some((waiter, told)));
                self.course.machine.entered(at)
            }
            Step::Queued { order, outlook, length, returning, in_doubt } => {
                let owner = self.course.machine.acquisition().owner();
                observe::queued(&wanted.name, owner, returning, length);
                if let Some(waiter) = self.course.waiter {
                    let period = context.beat_every(&wanted.name);
                    let waiters = &context.waiters;
                    waiters.fair(|fair| fair.set_in_doubt(waiter, in_doubt));
                    let begins = waiters.queued(&wanted.name, waiter, order, outlook, period);
                    if let Some(heartbeat) = begins {
                        heartbeat::begin(context, heartbeat);
                    }
                }
                if let Some(reporter) = &wanted.reporter {
                    reporter.queued(owner);
                }
                self.course.machine.noted(at)
            }
            Step::Leave { unsubscribe, held_until_ns } => {
                if let Some(waiter) = self.course.waiter.take() {
                    let (acquisition, over) = context.waiters.leave(waiter);
                    return self.course.machine.left_queue(at, acquisition, over);
                }
                if let Some((_, turn)) = self.course.line.take() {
                    let waiters = &context.waiters;
                    if waiters.leave_plain(&wanted.name, unsubscribe, held_until_ns) {
                        context.store.unlisten(Topic::Base(wanted.name.clone()));
                    }
                    drop(turn);
                }
                self.course.machine.left_line(at)
            }
            Step::Draw => match context.new_request() {
                Ok(request) => self.course.machine.drawn(at, request),
                Err(error) => self.course.machine.not_drawn(at, error),
            },
            step => step,
        }
    }

    fn begin(&mut self, work: Work) -> Doing {
        let Asking { context, wanted, .. } = self.asking;
        let between = |least: Duration, most: Duration| least + jitter(most.saturating_sub(least));
        match work {
            Work::Send { .. } => {
                if let Some(first) = self.course.first.take() {
                    return Doing::Together(first);
                }
                if let Some(seat) = &wanted.seat {
                    seat.asks();
                }
                let timeout_ms = context.config.store_timeout.as_millis() as u64;
                let now = Moment::at_nanos(self.course.at.ns);
                let not_after_ms = context.ms_at(&wanted.name, now) + timeout_ms;
                let sure = !context.store.inbox_up();
                Doing::Call(self.course.machine.asks(sure, not_after_ms))
            }
            Work::Pause { least, most } => Doing::Pause(between(least, most)),
            Work::Rest { least, most } => Doing::Rest(between(least, most)),
            Work::Connection { until_ns } => Doing::Connection(Moment::at_nanos(until_ns)),
            Work::Subscribe => Doing::Subscribe,
            Work::Confirm { token, ttl_ms } => {
                let (acquisition, kind) = (self.course.machine.acquisition(), wanted.kind);
                let (owner, request) = (acquisition.owner().clone(), acquisition.request());
                let renew = Op::Renew { kind, owner, token, ttl_ms };
                Doing::Confirm(renew.of_hold(kind, request, context.late_ms(&wanted.name)))
            }
        }
    }

    /// Waits until there is something else to do.
    async fn during(
        &mut self,
        doing: &mut Doing,
        mut closed: Pin<&mut impl Future<Output = ()>>,
    ) -> Step<Error> {
        let asking = self.asking;
        let queue = self.course.line.as_ref().map(|(queue, _)| Arc::clone(queue));
        let mut is_done = matches!(doing, Doing::Nothing);
        let mut work = pin!(work(asking, doing, queue));
        loop {
            let deadline = self.course.machine.deadline_ns();
            let step = tokio::select! {
                biased;
                done = &mut work, if !is_done => {
                    is_done = true;
                    self.done(done)
                }
                (waiter, told) = ending(&mut self.course.told) => self.told(waiter, told),
                () = asking.gone(), if !self.course.knows_gone => {
                    self.course.knows_gone = true;
                    let at = self.now();
                    self.course.machine.gone(at)
                }
                () = closed.as_mut(), if !self.course.knows_closed => {
                    self.course.knows_closed = true;
                    let at = self.now();
                    self.course.machine.closed(at)
                }
                () = until(deadline) => {
                    let at = self.now();
                    self.course.machine.time(at)
                }
            };
            if !matches!(step, Step::Wait) {
                return step;
            }
        }
    }

    /// Handles the result of the work under way.
    fn done(&mut self, done: Done) -> Step<Error> {
        let (at, number) = (self.now(), self.course.number);
        match done {
            Done::Reply(Ok(reply)) => {
                let wanted = &self.asking.wanted;
                // A message may have brought the same grant before.
                let is_known = has_queue(wanted.kind) && self.course.told.is_none();
                if matches!(reply.answer.body, Body::HeldBySelf { .. }) && wanted.seat.is_some() {
                    // The store may have refused the release of a former hold. This request is not in the line, so no
                    // heartbeat repeats that release.
                    release::pay_debts(&self.asking.context, &wanted.name, 1);
                }
                let is_grant =
                    matches!(reply.answer.body, Body::Granted { .. } | Body::GrantedBefore(_));
                if is_grant && !is_known {
                    observe::granted(wanted.what(), Way::Request);
                }
                let sent = reply.sent.nanos();
                let step = self.course.machine.answered(
                    at,
                    number,
                    (reply.answer.body, reply.answer.more),
                    sent,
                );
                if let Some(seat) =
                    wanted.seat.as_ref().filter(|_| self.course.machine.was_answered())
                {
                    seat.is_answered();
                }
                step
            }
            Done::Reply(Err(failed)) => self.course.machine.failed(at, number, failure(failed)),
            Done::Rested => self.course.machine.rested(at, number),
            Done::Woken => self.course.machine.woken(at),
            Done::Listened(Ok(())) => self.course.machine.listened(at, number),
            Done::Listened(Err(failed)) => self.course.machine.failed(at, number, failure(failed)),
            Done::Confirmed(Ok(Confirmed { reply, missing })) => {
                let (answer, sent) = (Renewed::of(reply.answer.body), reply.sent.nanos());
                self.course.machine.confirmed(at, number, answer, missing, sent)
            }
            Done::Confirmed(Err(failed)) => self.course.machine.failed(at, number, failure(failed)),
            Done::Turn(turn) => {
                if let Some((_, its)) = &mut self.course.line {
                    *its = Some(turn);
                }
                let Asking { context, wanted, .. } = self.asking;
                let handed_down = context.waiters.inherit_plain(&wanted.name);
                self.course.machine.turn(at, handed_down)
            }
            Done::TakenBack { answered } => self.course.machine.taken_back(at, answered),
            Done::GivenBack => self.course.machine.given_back(at),
        }
    }

    /// Handles the report of a fair lock's waiters on how the wait of a request ends.
    fn told(&mut self, waiter: RequestId, told: Option<Told>) -> Step<Error> {
        self.course.told = None;
        let at = self.now();
        match told {
            Some(Told::Granted { grant, base }) => {
                self.course.machine.granted(at, waiter, grant, base.nanos())
            }
            Some(Told::Failed(error)) => self.course.machine.wait_failed(at, waiter, error),
            // The waiter had left before.
            None => Step::Wait,
        }
    }
}

/// An acquisition that has ended has left the waiters already. After a panic in code that observes
/// the client it has not: it leaves here, because nobody waits for its result.
impl Drop for Driver<'_> {
    fn drop(&mut self) {
        let Asking { context, wanted, .. } = self.asking;
        let mut acquisition = match (self.course.waiter, &self.course.line) {
            (Some(waiter), _) => context.waiters.leave(waiter).0,
            (None, Some(_)) => {
                // A panic closes the client, and with it all subscriptions.
                context.waiters.leave_plain(&wanted.name, false, None);
                self.course.machine.acquisition().clone()
            }
            (None, None) => return,
        };
        acquisition.set_in_doubt(true);
        for op in acquisition.give_up() {
            release::take_back(context, &wanted.name, op, None, true);
        }
    }
}

/// How the waiters end a wait.
fn ending(
    told: &mut Option<(RequestId, oneshot::Receiver<Told>)>,
) -> impl Future<Output = (RequestId, Option<Told>)> {
    poll_fn(|context| match told {
        Some((waiter, told)) => {
            let waiter = *waiter;
            Pin::new(told).poll(context).map(|told| (waiter, told.ok()))
        }
        None => Poll::Pending,
    })
}

pub(super) async fn until(deadline_ns: Option<u64>) {
    match deadline_ns {
        // Boxed, because most requests have no deadline.
        Some(at) => Box::pin(tokio::time::sleep(Moment::at_nanos(at).left())).await,
        None => std::future::pending().await,
    }
}

/// `queue` is the line of a waiter that is in one.
async fn work(asking: &Asking, doing: &mut Doing, queue: Option<Arc<PlainQueue>>) -> Done {
    let Asking { context, wanted, .. } = asking;
    let name = &wanted.name;
    match doing {
        Doing::Call(op) => Done::Reply(send::call(context, name, op).await),
        Doing::Together(answer) => Done::Reply(answer.await.unwrap_or_else(|_| {
            let message = "whoever sent the request has ended".to_owned();
            Err(StoreError::unavailable(message, true))
        })),
        Doing::Pause(pause) => {
            tokio::time::sleep(*pause).await;
            Done::Rested
        }
        Doing::Rest(pause) => {
            let Some(queue) = queue else { return std::future::pending().await };
            tokio::select! {
                biased;
                () = queue.wake.notified() => Done::Woken,
                () = context.store.sleep(*pause) => Done::Rested,
            }
        }
        Doing::Connection(until) => {
            let _ = tokio::time::timeout(until.left(), context.store.ready(Some(name))).await;
            Done::Rested
        }
        Doing::Subscribe => Done::Listened(context.store.listen(Topic::Base(name.clone())).await),
        Doing::Confirm(op) => Done::Confirmed(confirm(context, asking, op).await),
        Doing::Turn => {
            let Some(queue) = queue else { return std::future::pending().await };
            Done::Turn(Arc::clone(&queue.turn).lock_owned().await)
        }
        // However the task ends, it has done what it could.
        Doing::TakeBack(task) => Done::TakenBack { answered: task.await.unwrap_or_default() },
        Doing::GiveBack(task) => {
            let _ = task.await;
            Done::GivenBack
        }
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
