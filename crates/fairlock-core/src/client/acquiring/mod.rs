//! One acquisition, of any kind and on any store, from the first copy of its request to a hold, a
//! "no" or an error.
//!
//! # How a shell drives it
//!
//! [`Acquiring::start`] and every input return one [`Step`], which the giver of that input carries
//! out, after releasing the mutex if the value stands behind one.
//!
//! - [`Step::Begin`] begins work that takes time: a call of the store, a pause, a subscription. The
//!   work has a number, which the input that ends it passes back. After `Begin`, [`Step::Leave`]
//!   and [`Step::Done`] the earlier work no longer matters: its future may be dropped, and its
//!   later results are ignored. After [`Step::Wait`] it still matters.
//! - All other steps are done at once, by the same thread, which then gives the input that the step
//!   names. So the common sequence is `start`, one call, `answered`, [`Step::Done`].
//! - No task is needed for a store that answers at once: [`Work::Send`] with `at_once` is carried
//!   out by `call_now` in the caller's thread, and `answered` says `Done` if the lock was free. The
//!   caller passes these inputs in itself. Only if another `Begin` follows does the shell need
//!   somewhere to wait: the caller's own future, or the client's thread.
//! - After each input, [`Acquiring::deadline_ns`] is when [`Acquiring::time`] is due. It is a
//!   state, not an output: the latest value counts.
//! - [`Acquiring::gone`] and [`Acquiring::closed`] come at any time and any number of times. A
//!   caller that goes away after `Done` has the hold of [`Outcome::Held`] released like a dropped
//!   guard's.
//! - Between [`Step::Enter`] and [`Step::Leave`] the requests of a fair lock are known to
//!   [`Waiters`](super::Waiters), which gives them requests to return with; `left_queue` hands them
//!   back. The result that `Waiters` hands to this waiter's caller is passed in with `granted`, or
//!   `wait_failed`, by the thread that got it, even while another thread carries out the `Leave`.
//! - The shell renews the time limit of each copy: [`Acquiring::op`] takes it.
//! - Metrics are up to the shell: it finds the grant of a reply in the body that it passes in, and
//!   gets any other grant from [`Waiters`](super::Waiters).
//! - Jitter is up to the shell: a pause is a range of times, from which it chooses one.
//!
//! Times are nanoseconds of any monotonic clock of the caller's choice.

mod asking;
mod ending;
mod owned;
mod steps;
#[cfg(test)]
mod tests;

pub use owned::{Entry, Owned, OwnedEnd, OwnedStep, Progress};
pub use steps::{At, Failure, FailureKind, Held, Outcome, Reason, Step, Wanted, Work};

use super::lease::ns;
use super::{Acquisition, Copies};
use crate::id::{OwnerId, RequestId};
use crate::op::{Acquire, Grant, Mode, Op, has_queue};
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

/// The step after requests were taken back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Next<E> {
    Round,
    End(Option<Reason<E>>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase<E> {
    New,
    /// A copy that asks whether the lock is free.
    AtOnce,
    /// It was not; the next step needs a request of its own.
    DrawingFirst,
    /// Entering the waiters of a fair lock, or waiting for the turn to ask for one without a queue.
    Entering,
    /// A copy is under way, or a pause before the next one.
    Asking(Ask),
    Listening,
    /// Until a lock without a queue may be free.
    Resting,
    /// According to the store it is in the queue, which the waiters are about to record.
    Queueing,
    Queued,
    Leaving(End<E>),
    /// The wait is over, and another thread is about to report how.
    Handed,
    Confirming(Box<Confirming<E>>),
    GivingBack(Reason<E>),
    /// The requests are being taken back.
    TakingBack(Next<E>),
    Drawing,
    Done,
}

/// One acquisition on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquiring<E> {
    wanted: Wanted,
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
    /// The request with which it entered the waiters of a fair lock last.
    waiter: Option<RequestId>,
    /// A grant that came before the reply, or from another thread while the waiter was leaving.
    early: Option<(Grant, u64)>,
    /// The waiters know its place, and whether its request is in doubt.
    in_queue: bool,
    /// Another thread has reported that the wait failed.
    told: bool,
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
    pub fn new(wanted: Wanted, owner: OwnerId, request: RequestId) -> Self {
        let (kind, mode, lease_ms) = (wanted.kind, wanted.mode, wanted.lease_ms);
        let acquisition =
            Acquisition::new(kind, owner, mode, lease_ms, wanted.shared_owner, request)
                .sharing(wanted.share);
        Self {
            wanted,
            acquisition,
            copies: Copies::default(),
            phase: Phase::New,
            number: 0,
            answered: false,
            stop: None,
            grace_ns: None,
            gone: false,
            closed: false,
            waiter: None,
            early: None,
            in_queue: false,
            told: false,
            unreached: false,
            refusal: None,
            over: 0,
            polling: Polling::default(),
        }
    }

    /// The state of its requests, for [`Step::Enter`].
    pub fn acquisition(&self) -> &Acquisition {
        &self.acquisition
    }

    /// The copy of [`Work::Send`].
    pub fn op(&self, sure: bool, not_after_ms: u64) -> Acquire {
        let mut op = self.acquisition.acquire(sure, not_after_ms);
        if matches!(self.phase, Phase::AtOnce) {
            op.mode = Mode::Try;
        }
        op
    }

    /// The operation that carries that copy.
    pub fn asks(&self, sure: bool, not_after_ms: u64) -> Op {
        Op::asks(self.op(sure, not_after_ms), self.wanted.share)
    }

    /// Whether the store has answered any request of it. Requests of the same owner that wait for
    /// its outcome rely on this.
    pub fn was_answered(&self) -> bool {
        self.answered
    }

    /// When [`time`](Self::time) is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.grace_ns.or_else(|| self.confirms_until_ns()).or_else(|| {
            self.wanted.until_ns.filter(|_| self.waits() && !self.is_stopped() && !self.is_try())
        })
    }

    /// Begins it.
    pub fn start(&mut self, at: At) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::New if it.wanted.at_once && !it.wanted.shared_owner => {
                it.phase = Phase::AtOnce;
                it.copies.send();
                it.begin(Work::Send { at_once: true })
            }
            Phase::New => it.enter(at),
            _ => Step::Wait,
        })
    }

    /// It is among the waiters, after [`Step::Enter`].
    pub fn entered(&mut self, at: At) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::Entering if it.has_queue() => it.ask(at),
            _ => Step::Wait,
        })
    }

    /// It is its turn to ask, after [`Step::Turn`]: no other waiter of this client on the lock
    /// does. If the last one whose turn it was has handed something down ([`Step::Leave`]), it is
    /// subscribed, and the lock is held until `held_until_ns`, or a message comes.
    pub fn turn(&mut self, at: At, held_until_ns: Option<u64>) -> Step<E> {
        self.input(|it| match (&it.phase, held_until_ns) {
            (Phase::Entering, None) if !it.has_queue() => it.ask(at),
            (Phase::Entering, Some(until_ns)) if !it.has_queue() => it.rest_as_next(at, until_ns),
            _ => Step::Wait,
        })
    }

    /// A grant arrived in a message, or with a heartbeat; its TTL counts from `base_ns`. The wait of
    /// `waiter` among the [`Waiters`](super::Waiters) is over, which is the request that it entered
    /// with: it may have entered anew since.
    pub fn granted(&mut self, at: At, waiter: RequestId, grant: Grant, base_ns: u64) -> Step<E> {
        self.input(|it| match it.phase {
            _ if it.waiter != Some(waiter) => Step::Wait,
            Phase::Queued => it.leave(at, End::Granted(grant, base_ns)),
            Phase::Handed => it.take(at, grant, base_ns),
            // It may come before the reply, which adds nothing to it but that it is answered.
            Phase::Asking(_) if it.has_queue() && it.early.is_none() => {
                it.early = Some((grant, base_ns));
                it.grace_ns = Some(at.after(ANSWER_GRACE));
                Step::Wait
            }
            Phase::Queueing | Phase::Leaving(_) if it.has_queue() => {
                it.early.get_or_insert((grant, base_ns));
                Step::Wait
            }
            _ => Step::Wait,
        })
    }

    /// The wait of `waiter` is over, because the store cannot serve it.
    pub fn wait_failed(&mut self, at: At, waiter: RequestId, error: E) -> Step<E> {
        self.input(|it| match it.phase {
            _ if it.waiter != Some(waiter) => Step::Wait,
            Phase::Queued | Phase::Queueing | Phase::Asking(_) if it.has_queue() => {
                it.unreached = false;
                it.leave(at, End::Error(Reason::Waiting(error)))
            }
            // It is told "no" all the same.
            Phase::Handed => it.give_up_and_wait(at),
            Phase::Leaving(_) => {
                it.told = true;
                Step::Wait
            }
            _ => Step::Wait,
        })
    }

    /// The waiters have recorded [`Step::Queued`].
    pub fn noted(&mut self, at: At) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::Queueing if it.early.is_some() || it.is_stopped() => it.leave(at, End::Nothing),
            Phase::Queueing => {
                it.phase = Phase::Queued;
                Step::Wait
            }
            _ => Step::Wait,
        })
    }

    /// Nobody waits for the result any more.
    pub fn gone(&mut self, at: At) -> Step<E> {
        self.gone = true;
        self.input(|it| it.stop(at, Stop::Gone))
    }

    /// The client was shut down.
    pub fn closed(&mut self, at: At) -> Step<E> {
        self.closed = true;
        self.input(|it| it.stop(at, Stop::Closed))
    }

    /// Time has passed.
    pub fn time(&mut self, at: At) -> Step<E> {
        self.input(|it| {
            if it.deadline_ns().is_none_or(|deadline_ns| deadline_ns > at.ns) {
                return Step::Wait;
            }
            if matches!(it.phase, Phase::Confirming(_)) {
                return it.stop_confirming(at, None);
            }
            if it.grace_ns.take().is_none() {
                return it.stop(at, Stop::Late);
            }
            match std::mem::replace(&mut it.phase, Phase::Done) {
                Phase::Asking(ask) => it.silent(at, ask.is_unanswered()),
                Phase::TakingBack(Next::End(failure)) => it.gave_up(failure, false),
                Phase::GivingBack(reason) => it.done(Outcome::Failed(reason)),
                phase => {
                    it.phase = phase;
                    Step::Wait
                }
            }
        })
    }

    /// A reason to end the wait. The first one counts.
    fn stop(&mut self, at: At, why: Stop) -> Step<E> {
        if matches!(self.phase, Phase::Confirming(_)) && self.is_replicated() {
            self.stop = Some(why);
            let closed = (why == Stop::Closed).then_some(Reason::Closed);
            return self.stop_confirming(at, closed);
        }
        if self.is_stopped() || !self.waits() {
            return Step::Wait;
        }
        self.stop = Some(why);
        let (has_queue, replied) = (self.has_queue(), self.polling.replied);
        match self.phase {
            // Another waiter of this client was asking. That one may have had no reply, and silence
            // does not mean that the lock is taken.
            Phase::Entering | Phase::Resting if !has_queue && !replied && why == Stop::Late => {
                self.polling.once = true;
                let asks = self.ask(at);
                self.grace_ns = Some(at.after(SILENCE_GRACE));
                asks
            }
            Phase::Entering if !has_queue => self.silent(at, false),
            Phase::Asking(ask)
                if has_queue || !replied || (why == Stop::Late && ask.is_unanswered()) =>
            {
                // One that is there already ends sooner.
                if self.early.is_none() {
                    self.grace_ns = Some(at.after(self.grace(why)));
                }
                Step::Wait
            }
            Phase::Asking(_) | Phase::Listening | Phase::Resting => {
                self.silent(at, why == Stop::Late && !at.connected)
            }
            Phase::Queued => self.leave(at, End::Nothing),
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
        use Phase::{Asking, Entering, Listening, Queued, Queueing, Resting};
        matches!(self.phase, Entering | Asking(_) | Listening | Resting | Queueing | Queued)
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
        Step::Done(match outcome {
            Outcome::None if self.closed => Outcome::Failed(Reason::Closed),
            outcome => outcome,
        })
    }

    /// Carries out an input, and checks K13 and K14.
    fn input(&mut self, change: impl FnOnce(&mut Self) -> Step<E>) -> Step<E> {
        let was_done = matches!(self.phase, Phase::Done);
        let step = change(self);
        debug_assert_eq!(
            matches!(step, Step::Done(_)),
            !was_done && matches!(self.phase, Phase::Done),
            "K13: it ends once"
        );
        debug_assert!(
            !matches!(step, Step::Done(_))
                || self.in_queue
                || !self.copies.in_doubt()
                || self.acquisition.is_in_doubt()
                || self.acquisition.is_doubtful(),
            "K14: a request in doubt was not buried"
        );
        step
    }
}

impl At {
    fn after(self, wait: Duration) -> u64 {
        self.ns.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
    }

    fn after_ms(self, ms: u64) -> u64 {
        self.ns.saturating_add(ns(ms))
    }

    /// The time left until `end_ns`.
    fn left(self, end_ns: u64) -> Duration {
        Duration::from_nanos(end_ns.saturating_sub(self.ns))
    }
}
