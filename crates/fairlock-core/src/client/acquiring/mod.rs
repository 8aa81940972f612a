//! One acquisition, of any kind, from the first copy of its request to a hold, a "no" or an error.
//!
//! An `Acquiring` is a part of a [`Client`](super::Client), which gives it inputs. Each input may lead to one [`Step`]:
//! work that takes time, or the end. The work has a number, which the input that ends it passes back; results of earlier
//! work are ignored. Everything else happens within the input: the acquisition enters and leaves the
//! [`Waiters`](super::Waiters) and the lines, and what others have to do is an [`Effect`](super::Effect).
//!
//! Times are nanoseconds of any monotonic clock of the caller's choice.

mod asking;
mod ending;
mod owned;
mod steps;
#[cfg(test)]
mod tests;

pub use owned::{Entry, Owned, OwnedEnd, OwnedStep, Progress};
pub(super) use steps::after;
pub use steps::{At, Failure, FailureKind, Held, Outcome, Reason, Step, Wanted, Work};

use super::machine::Cx;
use super::{Acquisition, Copies};
use crate::id::{OwnerId, RequestId};
use crate::op::{Grant, Mode, has_queue};
use asking::{Ask, Polling};
use ending::Confirming;
use std::time::Duration;

/// How long a request that is given up while its reply is under way may still be answered: an
/// answered request can be taken back with certainty. A caller whose time is up waits for that
/// long.
const ANSWER_GRACE: Duration = Duration::from_millis(50);

/// How much longer a wait lasts whose time is up before the store has answered at all: a slow store
/// can then still answer whether the lock is taken.
pub const SILENCE_GRACE: Duration = Duration::from_millis(500);

/// Why a wait ends without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stop {
    /// Nobody waits for the result any more.
    Gone,
    /// Time is up.
    Late,
    /// The client was shut down.
    Closed,
}

/// How the wait of one round ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum End<E> {
    Granted(Grant, u64),
    Nothing,
    Error(Reason<E>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase<E> {
    /// Behind other waiters of this client for a lock without a queue.
    InLine,
    /// A copy is under way, or a pause before the next one.
    Asking(Ask),
    Listening,
    /// Until a lock without a queue may be free.
    Resting,
    /// According to the store it is in the queue.
    Queued,
    Confirming(Box<Confirming<E>>),
    GivingBack(Reason<E>),
    /// The requests are being taken back.
    TakingBack(Option<Reason<E>>),
    Done,
}

/// One acquisition on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquiring<E> {
    wanted: Wanted,
    /// The state of its requests. While it is among the waiters of a fair lock, these have a copy that changes.
    acquisition: Acquisition,
    copies: Copies,
    phase: Phase<E>,
    /// Of the last work.
    number: u32,
    /// The store has answered a copy of any request.
    answered: bool,
    /// Why the wait is to end, and until when it still lasts.
    stop: Option<Stop>,
    /// Until when it waits for an answer, or for the end of a give-back.
    grace_ns: Option<u64>,
    gone: bool,
    closed: bool,
    /// A grant that came before the reply.
    early: Option<(Grant, u64)>,
    /// The waiters know its place, and whether its request is in doubt.
    in_queue: bool,
    /// According to the last error, the store was not reached, or did nothing.
    unreached: bool,
    /// The last error after which the same request was sent again.
    refusal: Option<E>,
    /// Grants that were over before they could be used.
    over: u32,
    polling: Polling,
}

impl<E> Acquiring<E> {
    /// `request` is the first one by which `owner` asks.
    pub(super) fn new(wanted: Wanted, owner: OwnerId, request: RequestId) -> Self {
        Self {
            wanted,
            acquisition: wanted.acquisition(owner, request),
            copies: Copies::default(),
            phase: Phase::InLine,
            number: 0,
            answered: false,
            stop: None,
            grace_ns: None,
            gone: false,
            closed: false,
            early: None,
            in_queue: false,
            unreached: false,
            refusal: None,
            over: 0,
            polling: Polling::default(),
        }
    }

    /// Whether the store has answered any request of it. Requests of the same owner that wait for
    /// its outcome rely on this.
    pub(super) fn was_answered(&self) -> bool {
        self.answered
    }

    /// When [`time`](Self::time) is due.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.grace_ns.or_else(|| self.confirms_until_ns()).or_else(|| {
            self.wanted.until_ns.filter(|_| self.waits() && !self.is_stopped() && !self.is_try())
        })
    }

    /// A grant arrived in a message, or with a heartbeat; its TTL counts from `base_ns`. Its wait among the waiters is
    /// over.
    pub(super) fn granted(&mut self, cx: &mut Cx<'_, E>, grant: Grant, base_ns: u64) -> Step<E> {
        match self.phase {
            Phase::Queued => self.leave(cx, End::Granted(grant, base_ns)),
            // It may come before the reply, which adds nothing to it but that it is answered.
            Phase::Asking(_) if self.has_queue() && self.early.is_none() => {
                self.early = Some((grant, base_ns));
                self.grace_ns = Some(cx.after(ANSWER_GRACE));
                Step::Wait
            }
            _ => Step::Wait,
        }
    }

    /// The store cannot serve the waiter, so its wait ends with this error.
    pub(super) fn wait_failed(&mut self, cx: &mut Cx<'_, E>, error: E) -> Step<E> {
        match self.phase {
            Phase::Queued | Phase::Asking(_) if self.has_queue() => {
                self.unreached = false;
                self.leave(cx, End::Error(Reason::Waiting(error)))
            }
            _ => Step::Wait,
        }
    }

    /// Nobody waits for the result any more.
    pub(super) fn gone(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        self.gone = true;
        self.stop(cx, Stop::Gone)
    }

    /// The client was shut down.
    pub(super) fn closed(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        self.closed = true;
        self.stop(cx, Stop::Closed)
    }

    /// Time has passed.
    pub(super) fn time(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        if self.deadline_ns().is_none_or(|deadline_ns| deadline_ns > cx.now_ns()) {
            return Step::Wait;
        }
        if matches!(self.phase, Phase::Confirming(_)) {
            return self.stop_confirming(cx, None);
        }
        if self.grace_ns.take().is_none() {
            return self.stop(cx, Stop::Late);
        }
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Asking(ask) => {
                self.phase = Phase::Asking(ask);
                self.silent(cx, ask.is_unanswered())
            }
            Phase::TakingBack(failure) => self.gave_up(failure, false),
            Phase::GivingBack(reason) => self.done(Outcome::Failed(reason)),
            phase => {
                self.phase = phase;
                Step::Wait
            }
        }
    }

    /// A reason to end the wait. The first one counts.
    fn stop(&mut self, cx: &mut Cx<'_, E>, why: Stop) -> Step<E> {
        if matches!(self.phase, Phase::Confirming(_)) && self.is_replicated() {
            self.stop = Some(why);
            let closed = (why == Stop::Closed).then_some(Reason::Closed);
            return self.stop_confirming(cx, closed);
        }
        if self.is_stopped() || !self.waits() {
            return Step::Wait;
        }
        self.stop = Some(why);
        let (has_queue, replied) = (self.has_queue(), self.polling.replied);
        match self.phase {
            // Another waiter of this client was asking. That one may have had no reply, and silence
            // does not mean that the lock is taken.
            Phase::InLine | Phase::Resting if !replied && why == Stop::Late => {
                if matches!(self.phase, Phase::InLine) {
                    self.leave_line(cx, None);
                }
                self.polling.once = true;
                let asks = self.ask(cx);
                self.grace_ns = Some(cx.after(SILENCE_GRACE));
                asks
            }
            Phase::InLine => self.silent(cx, false),
            Phase::Asking(ask)
                if has_queue || !replied || (why == Stop::Late && ask.is_unanswered()) =>
            {
                // One that is there already ends sooner.
                if self.early.is_none() {
                    self.grace_ns = Some(cx.after(self.grace(why)));
                }
                Step::Wait
            }
            Phase::Asking(_) | Phase::Listening | Phase::Resting => {
                let unheard = why == Stop::Late && !cx.is_connected();
                self.silent(cx, unheard)
            }
            Phase::Queued => self.leave(cx, End::Nothing),
            _ => Step::Wait,
        }
    }

    /// How long to wait for a reply that is under way. An explicit owner may have had one already,
    /// and be about to ask again while a hold of its own ends.
    fn grace(&self, why: Stop) -> Duration {
        let asks = matches!(&self.phase, Phase::Asking(ask) if ask.is_unanswered());
        let answered = self.wanted.shared_owner && self.answered && !asks;
        if why == Stop::Late && !answered { SILENCE_GRACE } else { ANSWER_GRACE }
    }

    /// Whether the end of the caller's time, or the caller's going, still makes a difference. A
    /// grant that only needs a renewal gets it in any case.
    fn waits(&self) -> bool {
        use Phase::{Asking, InLine, Listening, Queued, Resting};
        matches!(self.phase, InLine | Asking(_) | Listening | Resting | Queued)
    }

    /// A reason to end the wait that came when there was none to end.
    fn ended_before(&self) -> Option<Stop> {
        match (self.gone, self.closed) {
            (true, _) => Some(Stop::Gone),
            (false, true) => Some(Stop::Closed),
            (false, false) => None,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    fn is_replicated(&self) -> bool {
        self.wanted.replicas_ms.is_some()
    }

    fn has_queue(&self) -> bool {
        has_queue(self.wanted.kind)
    }

    fn is_try(&self) -> bool {
        self.wanted.mode == Mode::Try
    }

    fn begin(&mut self, work: Work) -> Step<E> {
        self.number = self.number.wrapping_add(1);
        Step::Begin(self.number, work)
    }

    /// Ends without a hold.
    fn without(&mut self, failure: Option<Reason<E>>) -> Step<E> {
        self.done(failure.map_or(Outcome::None, Outcome::Failed))
    }

    fn done(&mut self, outcome: Outcome<E>) -> Step<E> {
        self.phase = Phase::Done;
        self.grace_ns = None;
        debug_assert!(
            self.in_queue
                || !self.copies.in_doubt()
                || self.acquisition.is_in_doubt()
                || self.acquisition.is_doubtful(),
            "K14: a request in doubt was not buried"
        );
        Step::Done(match outcome {
            Outcome::None if self.closed => Outcome::Failed(Reason::Closed),
            outcome => outcome,
        })
    }
}
