//! Asks the store until it answers, and again for as long as the lock is taken.

use super::{Acquiring, At, End, Failure, FailureKind, Outcome, Phase, Reason, Step, Work};
use crate::client::{Acquired, Copies, Outlook, Refused};
use crate::op::Body;
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
    woken: bool,
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
            woken: false,
            in_vain: 0,
            step: POLL_FIRST,
        }
    }
}

impl Ask {
    /// Whether the store has not answered the last copy.
    pub(super) fn is_unanswered(&self) -> bool {
        self.now != Now::Pacing
    }
}

impl<E> Acquiring<E> {
    /// Enters the waiters, or stands in line for its turn to ask.
    pub(super) fn enter(&mut self, at: At) -> Step<E> {
        self.copies = Copies::default();
        if !self.has_queue() && self.is_try() {
            return self.ask(at);
        }
        self.phase = Phase::Entering;
        if self.has_queue() {
            self.waiter = Some(self.acquisition.request());
            return Step::Enter;
        }
        self.stop = self.ended_before();
        if self.is_stopped() { self.silent(at, false) } else { Step::Turn }
    }

    /// Asks, with all the time that an unreachable store gets.
    pub(super) fn ask(&mut self, at: At) -> Step<E> {
        self.polling.asked_ns = at.ns;
        self.stop = self.stop.or_else(|| self.ended_before());
        if let Some(why) = self.stop {
            // A grant was over before it could be used, and meanwhile the wait was to end.
            let until_ns = at.after(self.grace(why));
            self.grace_ns.get_or_insert(until_ns);
        }
        self.send(Ask {
            until_ns: at.after_ms(self.wanted.store_timeout_ms),
            late: 0,
            behind_dead: 0,
            retry: Retry::FIRST,
            former_pause: GIVEN_UP_PAUSE.0,
            now: Now::Call,
        })
    }

    fn send(&mut self, ask: Ask) -> Step<E> {
        self.copies.send();
        self.phase = Phase::Asking(Ask { now: Now::Call, ..ask });
        self.begin(Work::Send { at_once: false })
    }

    /// The store has answered the copy of this number, which was sent at `sent_ns`; `more` says
    /// whether dead waiters remain.
    pub fn answered(
        &mut self,
        at: At,
        number: u32,
        (body, more): (Body, bool),
        sent_ns: u64,
    ) -> Step<E> {
        self.input(|it| match it.phase {
            _ if number != it.number => Step::Wait,
            Phase::AtOnce => match it.acquisition.acquired(body) {
                Ok(Acquired::Granted(grant)) => {
                    it.copies.answered();
                    it.take_at_once(&grant, sent_ns)
                }
                // A try stands in no queue.
                Ok(Acquired::Queued { .. }) | Err(Refused::Mismatch) => {
                    it.acquisition.set_in_doubt(true);
                    it.give_up(Some(Reason::Refused(Refused::Mismatch)), false)
                }
                // A try that was answered has left nothing behind.
                _ => {
                    it.copies.answered();
                    it.phase = Phase::DrawingFirst;
                    Step::Draw
                }
            },
            Phase::Asking(ask) if ask.now == Now::Call => {
                it.understand(at, ask, (body, more), sent_ns)
            }
            _ => Step::Wait,
        })
    }

    fn understand(
        &mut self,
        at: At,
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
                    self.send(ask)
                } else {
                    self.unreached = true;
                    self.leave(at, End::Error(Reason::TooLate))
                };
            }
            Err(refused) => {
                self.unreached = false;
                return self.leave(at, End::Error(Reason::Refused(refused)));
            }
        };
        let waits = !self.is_try() && !self.polling.once;
        match answer {
            _ if self.early.is_some() => self.silent(at, false),
            Acquired::Granted(grant) => self.leave(at, End::Granted(grant, sent_ns)),
            Acquired::Queued { order, retry_ms, foreign, length } => {
                let returning = self.acquisition.order().is_some();
                let outlook = Outlook { retry: retry_ms.map(Duration::from_millis), foreign };
                self.phase = Phase::Queueing;
                self.grace_ns = None;
                self.in_queue = true;
                let in_doubt = self.copies.in_doubt();
                Step::Queued { order, outlook, length, returning, in_doubt }
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
                self.send(ask)
            }
            _ if self.has_queue() || !waits => self.leave(at, End::Nothing),
            Acquired::Taken { ttl_ms, foreign } => {
                let period = Duration::from_millis(self.wanted.period_ms);
                self.look_again(at, ttl_ms, if foreign { None } else { Some(period) })
            }
            Acquired::FormerHold => self.look_again(at, None, Some(GIVEN_UP_PAUSE.1)),
        }
    }

    /// Asks anew after this time.
    fn pause(&mut self, ask: Ask, pause: Duration) -> Step<E> {
        self.phase = Phase::Asking(Ask { now: Now::Pacing, ..ask });
        self.begin(Work::Pause { least: pause, most: pause })
    }

    /// A lock without a queue is taken: it may be free after `ttl_ms`, or at a message, and the
    /// waiter looks after `longest` in any case. Without `longest`, its holder notifies nobody.
    fn look_again(&mut self, at: At, ttl_ms: Option<u64>, longest: Option<Duration>) -> Step<E> {
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
            return self.silent(at, false);
        }
        if !self.polling.subscribed {
            // Before it asks again, so that no release falls in between.
            self.polling.subscribed = true;
            self.phase = Phase::Listening;
            return self.begin(Work::Subscribe);
        }
        if std::mem::take(&mut self.polling.woken) {
            return self.look_now(at);
        }
        let ttl = ttl_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms.saturating_add(1)));
        self.rest(ttl.min(longest.0), ttl.min(longest.1))
    }

    /// Rests without having asked: another waiter of this client has just been granted the lock,
    /// and the subscription has lasted since before that.
    pub(super) fn rest_as_next(&mut self, at: At, held_until_ns: u64) -> Step<E> {
        self.polling.subscribed = true;
        let rest = at.left(held_until_ns).min(Duration::from_millis(self.wanted.period_ms));
        self.rest(rest, rest)
    }

    fn rest(&mut self, least: Duration, most: Duration) -> Step<E> {
        self.phase = Phase::Resting;
        self.begin(Work::Rest { least, most: most + SPREAD })
    }

    /// A message says that the lock may be free.
    fn look_now(&mut self, at: At) -> Step<E> {
        self.polling.in_vain += 1;
        let paced = At { ns: self.polling.asked_ns, ..at }.after(PACE);
        if self.polling.in_vain <= RACES || paced <= at.ns {
            return self.ask(at);
        }
        let ask = Ask {
            until_ns: 0,
            late: 0,
            behind_dead: 0,
            retry: Retry::FIRST,
            former_pause: GIVEN_UP_PAUSE.0,
            now: Now::Pacing,
        };
        self.pause(ask, at.left(paced))
    }

    /// The subscription is there.
    pub fn listened(&mut self, at: At, number: u32) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::Listening if number == it.number => it.ask(at),
            _ => Step::Wait,
        })
    }

    /// A message says that a lock without a queue may be free, or the connection is new.
    pub fn woken(&mut self, at: At) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::Resting => it.look_now(at),
            _ => {
                it.polling.woken = true;
                Step::Wait
            }
        })
    }

    /// The pause or rest of this number is over, or the store is connected.
    pub fn rested(&mut self, at: At, number: u32) -> Step<E> {
        self.input(|it| match it.phase {
            _ if number != it.number => Step::Wait,
            Phase::Asking(ask) => match ask.now {
                Now::Call => Step::Wait,
                // A server that answers "not now" is asked less and less often; one that is not
                // connected is asked as soon as it is connected.
                Now::Pausing => {
                    it.phase = Phase::Asking(Ask { now: Now::Connecting, ..ask });
                    it.begin(Work::Connection { until_ns: ask.until_ns })
                }
                Now::Connecting => it.send(ask),
                Now::Pacing => {
                    let step = it.ask(at);
                    if let Phase::Asking(new) = &mut it.phase {
                        new.former_pause = ask.former_pause;
                    }
                    step
                }
            },
            Phase::Resting => {
                it.polling.in_vain = 0;
                it.ask(at)
            }
            Phase::Confirming(_) => it.confirm_again(),
            _ => Step::Wait,
        })
    }

    /// The store cannot be asked at once now.
    pub fn not_at_once(&mut self, at: At, number: u32) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::AtOnce if number == it.number => {
                it.copies.refused();
                it.enter(at)
            }
            _ => Step::Wait,
        })
    }

    /// The call of this number failed.
    pub fn failed(&mut self, at: At, number: u32, failure: Failure<E>) -> Step<E> {
        self.input(|it| match it.phase {
            _ if number != it.number => Step::Wait,
            Phase::AtOnce => {
                if !failure.doubt {
                    it.copies.refused();
                    return it.done(Outcome::Failed(Reason::Store(failure.error)));
                }
                it.acquisition.set_in_doubt(true);
                it.give_up(Some(Reason::Store(failure.error)), false)
            }
            Phase::Asking(ask) if ask.now == Now::Call => it.call_failed(at, ask, failure),
            Phase::Listening => it.leave(at, End::Error(Reason::Store(failure.error))),
            Phase::Confirming(_) => it.confirm_failed(at, failure),
            _ => Step::Wait,
        })
    }

    fn call_failed(&mut self, at: At, mut ask: Ask, failure: Failure<E>) -> Step<E> {
        if !failure.doubt {
            self.copies.refused();
        }
        self.unreached = failure.kind == FailureKind::Unavailable;
        if !failure.passing {
            return self.leave(at, End::Error(Reason::Store(failure.error)));
        }
        let left = at.left(ask.until_ns);
        if left.is_zero() {
            let in_doubt = self.copies.in_doubt();
            let denied = failure.kind == FailureKind::Denied && !in_doubt;
            self.unreached = !denied;
            let last = failure.error;
            return self.leave(
                at,
                End::Error(match denied {
                    true => Reason::Store(last),
                    false => Reason::Unreachable { last, in_doubt },
                }),
            );
        }
        let pause = ask.retry.next(left);
        self.phase = Phase::Asking(Ask { now: Now::Pausing, ..ask });
        self.refusal = Some(failure.error);
        self.begin(pause)
    }

    /// The wait is over. If the store never answered, or refused each copy, it is not certain that
    /// the lock is taken, so that is an error; so is a store that has answered before, and is
    /// `unheard` now.
    pub(super) fn silent(&mut self, at: At, unheard: bool) -> Step<E> {
        let in_doubt = self.copies.in_doubt();
        let refusal = self.refusal.take();
        self.unreached = true;
        let answered = self.copies.answered_once() && !unheard;
        let end = if answered || self.closed || self.early.is_some() {
            End::Nothing
        } else if in_doubt || !at.connected {
            End::Error(Reason::Silent { last: refusal, in_doubt })
        } else {
            refusal.map_or(End::Nothing, |last| End::Error(Reason::Unreachable { last, in_doubt }))
        };
        self.leave(at, end)
    }
}
