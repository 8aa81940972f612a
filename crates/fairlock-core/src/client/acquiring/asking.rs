//! Asks the store until it answers, and again for as long as the lock is taken.

use super::{Acquiring, End, Failure, FailureKind, Phase, Reason, Step, Work, after};
use crate::client::machine::{Cx, Effect};
use crate::client::{Acquired, Copies, Outlook, Refused, Way};
use crate::op::{Body, Op};
use std::time::Duration;

/// How often a request is sent while the server calls it too late, because its clock was misjudged.
const LATE_MAX: u32 = 3;

/// How often a try is sent again because the store has dead waiters left to remove. Each call removes
/// up to 64, so a free lock is found behind a thousand of them.
const TRIES_BEHIND_DEAD_MAX: u32 = 16;

/// First and longest pause before asking again for an owner whose former hold is still being given
/// up.
const GIVEN_UP_PAUSE: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// A waiter without a queue that was woken this often in a row and found the lock taken asks more
/// slowly: either others are faster, or the messages are forged.
const RACES: u32 = 8;

/// Shortest time between two attempts of such a waiter.
const PACE: Duration = Duration::from_millis(50);

/// First pause between two polls of a lock whose holder notifies nobody of its release: about half
/// of what clients that lock this way wait themselves (redis-py 100 ms).
const POLL_FIRST: Duration = Duration::from_millis(50);

/// Longest such pause. It bounds how long a released lock is idle, and determines what a waiting
/// client costs: four to eight calls a second.
const POLL_LONGEST: Duration = Duration::from_millis(250);

/// First pause after a failed call: one lost packet or a restarting proxy should cost little.
const RETRY_FIRST: Duration = Duration::from_millis(20);

/// Longest pause after a failed call: a server that is back is found within this time.
const RETRY_LONGEST: Duration = Duration::from_secs(2);

/// Added to each rest, so that the waiters of a lock do not all ask in the same millisecond.
const SPREAD: Duration = Duration::from_millis(20);

/// Growing pauses after failed calls. Each lies between half of its step and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Retry(Duration);

impl Retry {
    pub(super) const FIRST: Self = Self(RETRY_FIRST);

    /// The next pause, within what is `left`.
    pub(super) fn next(&mut self, left: Duration) -> Work {
        let step = self.0;
        self.0 = (2 * step).min(RETRY_LONGEST);
        Work::Pause { least: (step / 2).min(left), most: step.min(left) }
    }
}

/// A request on its way to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ask {
    /// Until when an unreachable store is tried.
    until_ns: u64,
    /// How often it came too late.
    late: u32,
    /// How often it was sent again because dead waiters remain.
    behind_dead: u32,
    retry: Retry,
    /// The pause before it is sent again because of a former hold of the owner.
    former_pause: Duration,
    now: Now,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Now {
    Call,
    /// After a failed call. Then it waits for the connection.
    Pausing,
    /// Then the next copy is sent.
    Connecting,
    /// Because of a former hold of the owner, or because it asks too often. Then it asks anew.
    Pacing,
}

/// How a waiter for a lock without a queue looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Polling {
    /// When it asked last.
    asked_ns: u64,
    /// According to the store, the lock is taken.
    pub(super) replied: bool,
    /// It asks once, because its time is up.
    pub(super) once: bool,
    pub(super) subscribed: bool,
    /// How often in a row it was woken and found the lock taken.
    in_vain: u32,
    /// The next pause, if nobody notifies it.
    step: Duration,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            asked_ns: 0,
            replied: false,
            once: false,
            subscribed: false,
            in_vain: 0,
            step: POLL_FIRST,
        }
    }
}

impl Ask {
    fn until(until_ns: u64) -> Self {
        Self {
            until_ns,
            late: 0,
            behind_dead: 0,
            retry: Retry::FIRST,
            former_pause: GIVEN_UP_PAUSE.0,
            now: Now::Call,
        }
    }

    /// Whether the store has not answered the last copy.
    pub(super) fn is_unanswered(&self) -> bool {
        self.now != Now::Pacing
    }
}

impl<E> Acquiring<E> {
    /// Enters the waiters and asks, or stands in line for its turn to ask.
    pub(in crate::client) fn enter(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        self.copies = Copies::default();
        (self.in_queue, self.early) = (false, None);
        if self.has_queue() {
            // Before the request is sent, so that no grant can arrive too early.
            cx.waiters.enter(cx.name.clone(), self.acquisition.clone(), cx.id);
            return self.ask(cx);
        }
        if self.is_try() {
            return self.ask(cx);
        }
        self.stop = self.ended_before();
        if self.is_stopped() {
            return self.silent(cx, false);
        }
        self.phase = Phase::InLine;
        if cx.lines.enter(cx.name, cx.id) { self.turn(cx) } else { Step::Wait }
    }

    /// It is its turn to ask: no other waiter of this client for the lock does. If the last one whose turn it was has
    /// handed its subscription down, the lock is held until a known time, or a message comes.
    pub(in crate::client) fn turn(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        if !matches!(self.phase, Phase::InLine) {
            return Step::Wait;
        }
        match cx.lines.inherit(cx.name) {
            Some(held_until_ns) => self.rest_as_next(cx, held_until_ns),
            None => self.ask(cx),
        }
    }

    /// Asks, with all the time that an unreachable store gets.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        self.polling.asked_ns = cx.now_ns();
        self.stop = self.stop.or_else(|| self.ended_before());
        if let Some(why) = self.stop {
            // A grant was over before it could be used, and meanwhile the wait was to end.
            let until_ns = cx.after(self.grace(why));
            self.grace_ns.get_or_insert(until_ns);
        }
        let until_ns = cx.after(Duration::from_millis(self.wanted.store_timeout_ms));
        self.send(cx, Ask::until(until_ns))
    }

    fn send(&mut self, cx: &mut Cx<'_, E>, ask: Ask) -> Step<E> {
        self.copies.send();
        self.phase = Phase::Asking(Ask { now: Now::Call, ..ask });
        let (sure, not_after_ms) = (cx.here.is_deaf(), cx.here.not_after_ms(cx.name));
        let op = Op::asks(self.acquisition.acquire(sure, not_after_ms), self.wanted.share);
        self.begin(Work::Send(op))
    }

    /// The store has answered the copy of this number, which was sent at `sent_ns`; `more` says
    /// whether dead waiters remain.
    pub(in crate::client) fn answered(
        &mut self,
        cx: &mut Cx<'_, E>,
        number: u32,
        answer: (Body, bool),
        sent_ns: u64,
    ) -> Step<E> {
        match self.phase {
            Phase::Asking(ask) if ask.now == Now::Call && number == self.number => {
                self.understand(cx, ask, answer, sent_ns)
            }
            _ => Step::Wait,
        }
    }

    fn understand(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut ask: Ask,
        (body, more): (Body, bool),
        sent_ns: u64,
    ) -> Step<E> {
        let answer = match self.acquisition.acquired(body) {
            Ok(Acquired::Queued { .. }) if self.is_try() => Err(Refused::Mismatch),
            answer => answer,
        };
        // A reply to something else says nothing about the request, which stays in doubt.
        if answer != Err(Refused::Mismatch) {
            self.copies.answered();
            self.answered = true;
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(Refused::TooLate) => {
                ask.late += 1;
                return if ask.late < LATE_MAX {
                    self.send(cx, ask)
                } else {
                    self.unreached = true;
                    self.leave(cx, End::Error(Reason::TooLate))
                };
            }
            Err(refused) => {
                self.unreached = false;
                return self.leave(cx, End::Error(Reason::Refused(refused)));
            }
        };
        let waits = !self.is_try() && !self.polling.once;
        match answer {
            _ if self.early.is_some() => self.silent(cx, false),
            Acquired::Granted(grant) => {
                cx.effects.push(Effect::Granted(Way::Request));
                self.leave(cx, End::Granted(grant, sent_ns))
            }
            Acquired::Queued { order, retry_ms, foreign, length } => {
                let outlook = Outlook { retry: retry_ms.map(Duration::from_millis), foreign };
                self.queued(cx, order, outlook, length)
            }
            // It is not taken over: it is about to be released, or ends with its lease.
            Acquired::FormerHold if self.has_queue() && waits && !self.is_stopped() => {
                let pause = ask.former_pause;
                ask.former_pause = (2 * pause).min(GIVEN_UP_PAUSE.1);
                self.pause(ask, pause)
            }
            // The store removes so many dead waiters in one call; behind them the lock may be free.
            Acquired::Taken { .. }
                if more && self.is_try() && ask.behind_dead < TRIES_BEHIND_DEAD_MAX =>
            {
                ask.behind_dead += 1;
                self.send(cx, ask)
            }
            _ if self.has_queue() || !waits => self.leave(cx, End::Nothing),
            Acquired::Taken { ttl_ms, foreign } => {
                let period = Duration::from_millis(self.wanted.period_ms);
                self.look_again(cx, ttl_ms, if foreign { None } else { Some(period) })
            }
            Acquired::FormerHold => self.look_again(cx, None, Some(GIVEN_UP_PAUSE.1)),
        }
    }

    /// According to the store it is in the queue. From now on the heartbeats keep it there.
    fn queued(&mut self, cx: &mut Cx<'_, E>, order: u64, outlook: Outlook, length: u64) -> Step<E> {
        let (waiter, returning) = (self.acquisition.request(), self.acquisition.order().is_some());
        let owner = self.acquisition.owner().clone();
        cx.effects.push(Effect::Queued { owner, order, returning, length });
        self.grace_ns = None;
        self.in_queue = true;
        cx.waiters.set_in_doubt(waiter, self.copies.in_doubt());
        let period = cx.here.beat_every(cx.name);
        let queued = cx.waiters.queued(waiter, order, outlook, period);
        if queued.begins {
            cx.effects.push(Effect::BeginHeartbeats);
        }
        if queued.look {
            cx.effects.push(Effect::Beat);
        }
        if self.is_stopped() {
            return self.leave(cx, End::Nothing);
        }
        self.phase = Phase::Queued;
        Step::Wait
    }

    /// Asks anew after this time.
    fn pause(&mut self, ask: Ask, pause: Duration) -> Step<E> {
        self.phase = Phase::Asking(Ask { now: Now::Pacing, ..ask });
        self.begin(Work::Pause { least: pause, most: pause })
    }

    /// A lock without a queue is taken: it may be free after `ttl_ms`, or at a message, and the
    /// waiter looks after `longest` in any case. Without `longest`, its holder notifies nobody.
    fn look_again(
        &mut self,
        cx: &mut Cx<'_, E>,
        ttl_ms: Option<u64>,
        longest: Option<Duration>,
    ) -> Step<E> {
        self.polling.replied = true;
        let longest = longest.map_or_else(
            || {
                let step = self.polling.step;
                self.polling.step = (step * 5 / 4).min(POLL_LONGEST);
                (step / 2, step)
            },
            |longest| (longest, longest),
        );
        if self.is_stopped() {
            return self.silent(cx, false);
        }
        if !self.polling.subscribed {
            // Before it asks again, so that no release falls in between.
            self.polling.subscribed = true;
            self.phase = Phase::Listening;
            return self.begin(Work::Subscribe);
        }
        let ttl = ttl_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms.saturating_add(1)));
        self.rest(cx, ttl.min(longest.0), ttl.min(longest.1))
    }

    /// Rests without having asked: another waiter of this client has just been granted the lock,
    /// and the subscription has lasted since before that.
    fn rest_as_next(&mut self, cx: &mut Cx<'_, E>, held_until_ns: u64) -> Step<E> {
        self.polling.subscribed = true;
        let rest = cx.left(held_until_ns).min(Duration::from_millis(self.wanted.period_ms));
        self.rest(cx, rest, rest)
    }

    fn rest(&mut self, cx: &mut Cx<'_, E>, least: Duration, most: Duration) -> Step<E> {
        if cx.lines.was_woken(cx.name) {
            return self.look_now(cx);
        }
        self.phase = Phase::Resting;
        self.begin(Work::Rest { least, most: most + SPREAD })
    }

    /// A message says that the lock may be free.
    fn look_now(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        self.polling.in_vain += 1;
        let paced_ns = after(self.polling.asked_ns, PACE);
        if self.polling.in_vain <= RACES || paced_ns <= cx.now_ns() {
            return self.ask(cx);
        }
        self.pause(Ask::until(0), cx.left(paced_ns))
    }

    /// The subscription is there.
    pub(in crate::client) fn listened(&mut self, cx: &mut Cx<'_, E>, number: u32) -> Step<E> {
        match self.phase {
            Phase::Listening if number == self.number => self.ask(cx),
            _ => Step::Wait,
        }
    }

    /// A message says that a lock without a queue may be free, or the connection is new.
    pub(in crate::client) fn woken(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        match self.phase {
            Phase::Resting => self.look_now(cx),
            _ => {
                cx.lines.note_woken(cx.name);
                Step::Wait
            }
        }
    }

    /// The pause or rest of this number is over, or the store is connected.
    pub(in crate::client) fn rested(&mut self, cx: &mut Cx<'_, E>, number: u32) -> Step<E> {
        match self.phase {
            _ if number != self.number => Step::Wait,
            Phase::Asking(ask) => match ask.now {
                Now::Call => Step::Wait,
                // A server that answers "not now" is asked less and less often; one that is not
                // connected is asked as soon as it is connected.
                Now::Pausing => {
                    self.phase = Phase::Asking(Ask { now: Now::Connecting, ..ask });
                    self.begin(Work::Connection { until_ns: ask.until_ns })
                }
                Now::Connecting => self.send(cx, ask),
                Now::Pacing => {
                    let step = self.ask(cx);
                    if let Phase::Asking(new) = &mut self.phase {
                        new.former_pause = ask.former_pause;
                    }
                    step
                }
            },
            Phase::Resting => {
                self.polling.in_vain = 0;
                self.ask(cx)
            }
            Phase::Confirming(_) => self.confirm_again(cx),
            _ => Step::Wait,
        }
    }

    /// The call of this number failed.
    pub(in crate::client) fn failed(
        &mut self,
        cx: &mut Cx<'_, E>,
        number: u32,
        failure: Failure<E>,
    ) -> Step<E> {
        match self.phase {
            _ if number != self.number => Step::Wait,
            Phase::Asking(ask) if ask.now == Now::Call => self.call_failed(cx, ask, failure),
            Phase::Listening => self.leave(cx, End::Error(Reason::Store(failure.error))),
            Phase::Confirming(_) => self.confirm_failed(cx, failure),
            _ => Step::Wait,
        }
    }

    fn call_failed(&mut self, cx: &mut Cx<'_, E>, mut ask: Ask, failure: Failure<E>) -> Step<E> {
        if !failure.doubt {
            self.copies.refused();
        }
        self.unreached = failure.kind == FailureKind::Unavailable;
        if !failure.passing {
            return self.leave(cx, End::Error(Reason::Store(failure.error)));
        }
        let left = cx.left(ask.until_ns);
        if left.is_zero() {
            let in_doubt = self.copies.in_doubt();
            let denied = failure.kind == FailureKind::Denied && !in_doubt;
            self.unreached = !denied;
            let last = failure.error;
            let reason = match denied {
                true => Reason::Store(last),
                false => Reason::Unreachable { last, in_doubt },
            };
            return self.leave(cx, End::Error(reason));
        }
        let pause = ask.retry.next(left);
        self.phase = Phase::Asking(Ask { now: Now::Pausing, ..ask });
        self.refusal = Some(failure.error);
        self.begin(pause)
    }

    /// The wait is over. If the store never answered, or refused each copy, it is not certain that
    /// the lock is taken, so that is an error; so is a store that has answered before, and is
    /// `unheard` now.
    pub(super) fn silent(&mut self, cx: &mut Cx<'_, E>, unheard: bool) -> Step<E> {
        let in_doubt = self.copies.in_doubt();
        let refusal = self.refusal.take();
        self.unreached = true;
        let answered = self.copies.answered_once() && !unheard;
        let end = if answered || self.closed || self.early.is_some() {
            End::Nothing
        } else if in_doubt || !cx.is_connected() {
            End::Error(Reason::Silent { last: refusal, in_doubt })
        } else {
            refusal.map_or(End::Nothing, |last| End::Error(Reason::Unreachable { last, in_doubt }))
        };
        self.leave(cx, end)
    }
}
