//! How a wait ends: with a grant that is confirmed and becomes a hold, or with requests that are
//! taken back.

use super::asking::Retry;
use super::{ANSWER_GRACE, Acquiring, At, End, Failure, Held, Next, Outcome, Phase, Reason};
use super::{SILENCE_GRACE, Step, Stop, Wanted, Work};
use crate::client::{
    Acquisition, Hold, Lease, Mismatch, Refused, Renewed, lease::ns, valid_until_ns,
};
use crate::id::RequestId;
use crate::op::Grant;
use std::time::Duration;

/// After this many grants that were over before they could be used, an explicit or bounded lease
/// counts as too short.
const OVER_MAX: u32 = 2;

/// How long a request waits for its hold to be given back because too few replicas have it: enough
/// for a round trip to a server that answers.
const GIVE_BACK_GRACE: Duration = Duration::from_secs(1);

/// A grant whose renewal is under way, or the pause before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Confirming<E> {
    held: Held,
    ttl_ms: u64,
    /// Ends the last call as well.
    until_ns: u64,
    retry: Retry,
    pausing: bool,
    /// The error of the last call.
    last: Option<E>,
}

impl<E> Acquiring<E> {
    /// Ends the wait of this round.
    pub(super) fn leave(&mut self, at: At, end: End<E>) -> Step<E> {
        self.grace_ns = None;
        let end = match self.early.take() {
            Some((grant, base_ns)) => End::Granted(grant, base_ns),
            None => end,
        };
        if !self.has_queue() && self.is_try() {
            return self.out_of_line(at, end);
        }
        let unsubscribe = std::mem::take(&mut self.polling.subscribed);
        let held_until_ns = match &end {
            End::Granted(grant, base_ns) if unsubscribe => {
                Some(valid_until_ns(*base_ns, grant.ttl_ms))
            }
            _ => None,
        };
        self.phase = Phase::Leaving(end);
        Step::Leave { unsubscribe, held_until_ns }
    }

    /// It has left the waiters of a fair lock, which return the state of its requests. With `over`,
    /// they have handed out how the wait ends, which is, or will be, passed in.
    pub fn left_queue(&mut self, at: At, acquisition: Acquisition, over: bool) -> Step<E> {
        self.input(|it| {
            if !it.has_queue() {
                return Step::Wait;
            }
            let end = match std::mem::replace(&mut it.phase, Phase::Done) {
                Phase::Leaving(end) => end,
                phase => {
                    it.phase = phase;
                    return Step::Wait;
                }
            };
            it.acquisition = acquisition;
            if !it.in_queue {
                it.acquisition.set_in_doubt(it.copies.in_doubt());
            }
            if over && it.is_try() {
                // A store that has said "no" granted it all the same. If nobody uses that, something
                // was left behind.
                it.acquisition.set_in_doubt(true);
            }
            let early = it.early.take();
            match (end, early) {
                (End::Granted(grant, base_ns), _) => it.take(at, grant, base_ns),
                // A grant that arrives at the moment of giving up counts, unless the caller has
                // gone.
                (End::Nothing, _) if it.gone => it.give_up(None, false),
                (End::Nothing, Some((grant, base_ns))) => it.take(at, grant, base_ns),
                (End::Nothing, None) if over && !it.told => {
                    it.phase = Phase::Handed;
                    Step::Wait
                }
                (End::Nothing, None) => it.give_up_and_wait(at),
                (End::Error(reason), _) => {
                    // A request that never reached the store need not be taken back, and a shutdown
                    // need not wait for that.
                    let nothing = it.unreached && !over && !it.acquisition.is_in_doubt();
                    if nothing && !it.acquisition.has_other_requests() {
                        return it.done(Outcome::Failed(reason));
                    }
                    it.give_up(Some(reason), false)
                }
            }
        })
    }

    /// It has left the line of the waiters for a lock without a queue.
    pub fn left_line(&mut self, at: At) -> Step<E> {
        self.input(|it| match std::mem::replace(&mut it.phase, Phase::Done) {
            Phase::Leaving(end) if !it.has_queue() => it.out_of_line(at, end),
            phase => {
                it.phase = phase;
                Step::Wait
            }
        })
    }

    fn out_of_line(&mut self, at: At, end: End<E>) -> Step<E> {
        self.acquisition.set_in_doubt(self.copies.in_doubt());
        match end {
            End::Granted(grant, base_ns) => self.take(at, grant, base_ns),
            End::Nothing => self.give_up(None, false),
            End::Error(reason) => self.give_up(Some(reason), false),
        }
    }

    /// Makes a hold out of a grant. Renews it first if little of its time is left, and always if
    /// replicas must have it: the renewal goes to the server that is the primary by then.
    pub(super) fn take(&mut self, at: At, grant: Grant, base_ns: u64) -> Step<E> {
        // Also one of its doubtful requests: the store says that it has the hold now.
        if !self.acquisition.may_have(grant.request) {
            return self.give_up(None, false);
        }
        self.acquisition.granted(grant.request);
        let mut hold = self.hold(&grant, base_ns);
        let left_ms = hold.valid_until_ns().saturating_sub(at.ns) / ns(1);
        if left_ms == 0 {
            return self.too_late();
        }
        hold.granted_whole(grant.ttl_ms >= self.wanted.lease_ms);
        let held = Held { acquisition: self.acquisition.clone(), token: grant.token, hold };
        let Wanted { replicas_ms, store_timeout_ms, .. } = self.wanted;
        if replicas_ms.is_none() && left_ms >= self.enough_ms(&grant) {
            return self.held(at, held);
        }
        if let (Some(_), Some(stop)) = (replicas_ms, self.ended_before()) {
            let reason = if stop == Stop::Closed { Reason::Closed } else { Reason::NotAsked(None) };
            return self.give_back(at, held, reason);
        }
        let ttl_ms = held.hold.lease().wanted_ms(at.ns);
        // A caller with a limit waits for no longer than one call takes whose server answers.
        let call = Duration::from_millis(replicas_ms.unwrap_or_default()) + SILENCE_GRACE;
        let late_ns = self.wanted.until_ns.map(|until_ns| at.after(at.left(until_ns) + call));
        let until_ns = late_ns.unwrap_or(u64::MAX).min(at.after_ms(store_timeout_ms));
        let retry = Retry::FIRST;
        let confirming = Confirming { held, ttl_ms, until_ns, retry, pausing: true, last: None };
        self.phase = Phase::Confirming(Box::new(confirming));
        self.confirm_again()
    }

    /// How much time a grant must have left to be handed out as it is. A grant in the reply to a
    /// heartbeat may be old, and have little left from the beginning.
    fn enough_ms(&self, grant: &Grant) -> u64 {
        let Wanted { period_ms, lease_ms, .. } = self.wanted;
        grant.ttl_ms.max(period_ms.min(lease_ms)) / 3
    }

    /// As `take`, for a store that answers at once: no time has passed.
    pub(super) fn take_at_once(&mut self, grant: &Grant, base_ns: u64) -> Step<E> {
        self.acquisition.granted(grant.request);
        let (acquisition, token) = (self.acquisition.take(), grant.token);
        let mut hold = self.hold(grant, base_ns);
        hold.granted_whole(true);
        self.done(Outcome::Held(Held { acquisition, token, hold }))
    }

    fn hold(&self, grant: &Grant, base_ns: u64) -> Hold {
        let Wanted { lease_ms: ms, renewed, max_hold, may_be_cut, java_fleet, .. } = self.wanted;
        let end = if renewed { max_hold } else { Some(Duration::from_millis(ms)) };
        let base = At { ns: base_ns, connected: true };
        let lease = Lease {
            ms,
            renewed,
            end_ns: end.map(|end| base.after(end)),
            ends_by_max_hold: end.is_some() && end == max_hold,
            may_be_cut,
            java_fleet,
        };
        Hold::new(lease, valid_until_ns(base_ns, lease.uncut_ms(grant.ttl_ms)))
    }

    fn held(&mut self, at: At, mut held: Held) -> Step<E> {
        if !at.connected {
            // The grant arrived over a connection that is gone, so the hold is suspect like any
            // other.
            held.hold.suspect();
            held.hold.granted_whole(false);
        }
        self.done(Outcome::Held(held))
    }

    /// Sends the renewal, after a pause or for the first time.
    pub(super) fn confirm_again(&mut self) -> Step<E> {
        let Phase::Confirming(confirming) = &mut self.phase else { return Step::Wait };
        if !std::mem::take(&mut confirming.pausing) {
            return Step::Wait;
        }
        let (token, ttl_ms) = (confirming.held.token, confirming.ttl_ms);
        self.begin(Work::Confirm { token, ttl_ms })
    }

    /// The store has answered the renewal of this number, which was sent at `sent_ns`; `missing`:
    /// too few replicas have it. Their acknowledgement proves more than the grant, because another
    /// server may have become the primary since.
    pub fn confirmed(
        &mut self,
        at: At,
        number: u32,
        answer: Result<Renewed, Mismatch>,
        missing: Option<E>,
        sent_ns: u64,
    ) -> Step<E> {
        self.input(|it| {
            let replicated = it.is_replicated();
            let Some(mut present) = it.confirming(number) else { return Step::Wait };
            match (answer, missing) {
                (Ok(Renewed::Whole), Some(missing)) if replicated => {
                    it.give_back(at, present.held, Reason::Store(missing))
                }
                (Ok(Renewed::Whole), _) => {
                    present.held.hold.renewed(at.ns, sent_ns, present.ttl_ms);
                    if replicated && present.held.hold.valid_until_ns() <= at.ns {
                        return it.too_late();
                    }
                    present.held.hold.granted_whole(true);
                    it.held(at, present.held)
                }
                // The waiter of a fair lock returns to its place.
                (Ok(Renewed::Gone { .. }), _) if !replicated || it.has_queue() => it.too_late(),
                (Ok(Renewed::Gone { .. }), _) => {
                    it.give_back(at, present.held, Reason::GoneBeforeReplicas)
                }
                (Err(Mismatch), _) if replicated => {
                    it.give_back(at, present.held, Reason::Refused(Refused::Mismatch))
                }
                (Err(Mismatch), _) => it.too_late(),
            }
        })
    }

    pub(super) fn confirm_failed(&mut self, at: At, failure: Failure<E>) -> Step<E> {
        let replicated = self.is_replicated();
        let Some(mut it) = self.confirming(self.number) else { return Step::Wait };
        if !replicated {
            return self.too_late();
        }
        if !failure.passing {
            return self.give_back(at, it.held, Reason::Store(failure.error));
        }
        let left = at.left(it.until_ns);
        if left.is_zero() {
            return self.give_back(at, it.held, Reason::NotAsked(Some(failure.error)));
        }
        it.last = Some(failure.error);
        it.pausing = true;
        let pause = it.retry.next(left);
        self.phase = Phase::Confirming(it);
        self.begin(pause)
    }

    /// Until when a grant is confirmed.
    pub(super) fn confirms_until_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Confirming(it) => Some(it.until_ns),
            _ => None,
        }
    }

    /// Gives the grant back before it is confirmed: nobody waits for it any more, or for longer.
    pub(super) fn stop_confirming(&mut self, at: At, reason: Option<Reason<E>>) -> Step<E> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Confirming(it) => {
                let last = it.last;
                let replicated = self.is_replicated();
                let reason = reason.unwrap_or_else(|| match replicated {
                    true => Reason::NotAsked(last),
                    false => Reason::Silent { last, in_doubt: true },
                });
                self.give_back(at, it.held, reason)
            }
            phase => {
                self.phase = phase;
                Step::Wait
            }
        }
    }

    /// Takes out what is being confirmed, if the call of this number is under way.
    fn confirming(&mut self, number: u32) -> Option<Box<Confirming<E>>> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Confirming(it) if number == self.number && !it.pausing => Some(it),
            phase => {
                self.phase = phase;
                None
            }
        }
    }

    /// The next request should find the lock free, so its giver waits for that.
    fn give_back(&mut self, at: At, held: Held, reason: Reason<E>) -> Step<E> {
        self.grace_ns = Some(at.after(GIVE_BACK_GRACE));
        self.phase = Phase::GivingBack(reason);
        Step::GiveBack(Box::new(held))
    }

    /// The hold was given back.
    pub fn given_back(&mut self, _at: At) -> Step<E> {
        self.input(|it| match std::mem::replace(&mut it.phase, Phase::Done) {
            Phase::GivingBack(reason) => it.done(Outcome::Failed(reason)),
            phase => {
                it.phase = phase;
                Step::Wait
            }
        })
    }

    /// The grant was over before it could be used.
    fn too_late(&mut self) -> Step<E> {
        self.over += 1;
        // An unanswered confirmation may still have given the hold its whole lease.
        self.acquisition.set_in_doubt(true);
        if !self.has_queue() || (!self.wanted.renewed && self.over >= OVER_MAX) {
            let reason = Reason::LeaseTooShort(self.over);
            return self.give_up(Some(reason), false);
        }
        if self.wanted.shared_owner {
            // The next request of an explicit owner does not take this hold over, but waits for its
            // end.
            let ops = vec![self.acquisition.leave(true)];
            self.phase = Phase::TakingBack(Next::Round);
            return Step::TakeBack { ops, wait: false };
        }
        self.phase = Phase::Drawing;
        Step::Draw
    }

    /// A request id was drawn.
    pub fn drawn(&mut self, at: At, fresh: RequestId) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::DrawingFirst => {
                let owner = it.acquisition.owner().clone();
                let fresh = Self::new(it.wanted, owner, fresh);
                it.acquisition = fresh.acquisition;
                it.enter(at)
            }
            Phase::Drawing => {
                it.acquisition.again(fresh);
                (it.in_queue, it.told, it.early) = (false, false, None);
                it.enter(at)
            }
            _ => Step::Wait,
        })
    }

    /// No request id could be drawn.
    pub fn not_drawn(&mut self, _at: At, error: E) -> Step<E> {
        self.input(|it| match it.phase {
            Phase::DrawingFirst => it.done(Outcome::Failed(Reason::NotDrawn(error))),
            Phase::Drawing => it.give_up(Some(Reason::NotDrawn(error)), false),
            _ => Step::Wait,
        })
    }

    /// The next attempt, here or elsewhere, must not find a waiter in the queue whose caller was
    /// told "no". Whoever was in the queue until its time was up learns by the same answer that the
    /// store is there: nobody knows whether a lock is taken whose store is silent.
    pub(super) fn give_up_and_wait(&mut self, at: At) -> Step<E> {
        if self.must_hear() {
            if !at.connected {
                let unheard = self.unheard();
                return self.give_up(Some(unheard), false);
            }
            self.grace_ns = Some(at.after(SILENCE_GRACE));
            return self.give_up(None, true);
        }
        // There is no wait for a server that does not answer.
        let wait = !self.acquisition.is_in_doubt();
        self.grace_ns = wait.then(|| at.after(ANSWER_GRACE));
        self.give_up(None, wait)
    }

    /// Whether "no" takes an answer of the store at the end: its last one was about the queue.
    fn must_hear(&self) -> bool {
        self.in_queue && self.stop == Some(Stop::Late) && self.ended_before().is_none()
    }

    fn unheard(&mut self) -> Reason<E> {
        Reason::Silent { last: self.refusal.take(), in_doubt: true }
    }

    /// The end of [`give_up`](Self::give_up); `answered`: the store has answered the last of it.
    pub(super) fn gave_up(&mut self, failure: Option<Reason<E>>, answered: bool) -> Step<E> {
        let failure = match failure {
            None if !answered && self.must_hear() => Some(self.unheard()),
            failure => failure,
        };
        self.without(failure)
    }

    /// Takes all requests back, and ends. A try that was answered has left nothing behind.
    pub(super) fn give_up(&mut self, failure: Option<Reason<E>>, wait: bool) -> Step<E> {
        let ops = self.acquisition.give_up();
        if ops.is_empty() {
            return self.without(failure);
        }
        self.phase = Phase::TakingBack(Next::End(failure));
        Step::TakeBack { ops, wait }
    }

    /// The operations of [`Step::TakeBack`] are on their way, or over. `answered`: the store has
    /// answered the last of them.
    pub fn taken_back(&mut self, _at: At, answered: bool) -> Step<E> {
        self.input(|it| match std::mem::replace(&mut it.phase, Phase::Done) {
            Phase::TakingBack(Next::End(failure)) => it.gave_up(failure, answered),
            Phase::TakingBack(Next::Round) => {
                it.phase = Phase::Drawing;
                Step::Draw
            }
            phase => {
                it.phase = phase;
                Step::Wait
            }
        })
    }
}
