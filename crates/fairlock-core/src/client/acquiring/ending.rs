//! How a wait ends: with a grant that is confirmed and becomes a hold, or with requests that are
//! taken back.

use super::asking::Retry;
use super::{ANSWER_GRACE, Acquiring, End, Failure, Held, Outcome, Phase, Reason};
use super::{SILENCE_GRACE, Step, Stop, Wanted, Work};
use crate::client::machine::{Cx, Effect};
use crate::client::{Mismatch, Refused, Renewed, lease::ns, valid_until_ns};
use crate::op::{Grant, Op};
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
    pub(super) fn leave(&mut self, cx: &mut Cx<'_, E>, end: End<E>) -> Step<E> {
        self.grace_ns = None;
        let end = match self.early.take() {
            Some((grant, base_ns)) => End::Granted(grant, base_ns),
            None => end,
        };
        if self.has_queue() {
            return self.leave_queue(cx, end);
        }
        let held_until_ns = match &end {
            End::Granted(grant, base_ns) => Some(valid_until_ns(*base_ns, grant.ttl_ms)),
            _ => None,
        };
        self.leave_line(cx, held_until_ns);
        self.acquisition.set_in_doubt(self.copies.in_doubt());
        match end {
            End::Granted(grant, base_ns) => self.take(cx, grant, base_ns),
            End::Nothing => self.give_up(cx, None, false),
            End::Error(reason) => self.give_up(cx, Some(reason), false),
        }
    }

    /// Leaves the waiters of a fair lock, which return the state of its requests.
    fn leave_queue(&mut self, cx: &mut Cx<'_, E>, end: End<E>) -> Step<E> {
        let left = cx.waiters.leave(self.acquisition.request());
        let left = left.expect("K6: it is among the waiters until it leaves");
        if left.look.is_some() {
            cx.effects.push(Effect::Beat);
        }
        self.acquisition = left.acquisition;
        if !self.in_queue {
            self.acquisition.set_in_doubt(self.copies.in_doubt());
        }
        // The waiters have handed out how its wait ends.
        let over = left.caller.is_none();
        if over && self.is_try() {
            // A store that has said "no" granted it all the same. If nobody uses that, something
            // was left behind.
            self.acquisition.set_in_doubt(true);
        }
        match end {
            End::Granted(grant, base_ns) => self.take(cx, grant, base_ns),
            End::Nothing if self.gone => self.give_up(cx, None, false),
            End::Nothing => self.give_up_and_wait(cx),
            End::Error(reason) => {
                // A request that never reached the store need not be taken back, and a shutdown
                // need not wait for that.
                let nothing = self.unreached && !over && !self.acquisition.is_in_doubt();
                if nothing && !self.acquisition.has_other_requests() {
                    return self.done(Outcome::Failed(reason));
                }
                self.give_up(cx, Some(reason), false)
            }
        }
    }

    /// Leaves the line for a lock without a queue, which passes its turn on. Until `held_until_ns` the lease lasts of a
    /// request that was granted: the next in line need not ask before, and gets the subscription.
    pub(super) fn leave_line(&mut self, cx: &mut Cx<'_, E>, held_until_ns: Option<u64>) {
        let subscribed = std::mem::take(&mut self.polling.subscribed);
        let left = cx.lines.leave(cx.name, cx.id, subscribed, held_until_ns);
        if left.unsubscribe {
            cx.effects.push(Effect::Unsubscribe);
        }
        cx.turn = cx.turn.or(left.next);
    }

    /// Makes a hold out of a grant. Renews it first if little of its time is left, and always if
    /// replicas must have it: the renewal goes to the server that is the primary by then.
    fn take(&mut self, cx: &mut Cx<'_, E>, grant: Grant, base_ns: u64) -> Step<E> {
        // Also one of its doubtful requests: the store says that it has the hold now.
        if !self.acquisition.may_have(grant.request) {
            return self.give_up(cx, None, false);
        }
        self.acquisition.granted(grant.request);
        let mut hold = self.wanted.hold(&grant, base_ns);
        let left_ms = hold.valid_until_ns().saturating_sub(cx.now_ns()) / ns(1);
        if left_ms == 0 {
            return self.too_late(cx);
        }
        hold.granted_whole(grant.ttl_ms >= self.wanted.lease_ms);
        let held = Held { acquisition: self.acquisition.clone(), token: grant.token, hold };
        let Wanted { replicas_ms, store_timeout_ms, .. } = self.wanted;
        if replicas_ms.is_none() && left_ms >= self.enough_ms(&grant) {
            return self.held(cx, held);
        }
        if let (Some(_), Some(stop)) = (replicas_ms, self.ended_before()) {
            let reason = if stop == Stop::Closed { Reason::Closed } else { Reason::NotAsked(None) };
            return self.give_back(cx, held, reason);
        }
        let ttl_ms = held.hold.lease().wanted_ms(cx.now_ns());
        // A caller with a limit waits for no longer than one call takes whose server answers.
        let call = Duration::from_millis(replicas_ms.unwrap_or_default()) + SILENCE_GRACE;
        let late_ns = self.wanted.until_ns.map(|until_ns| cx.after(cx.left(until_ns) + call));
        let timeout_ns = cx.after(Duration::from_millis(store_timeout_ms));
        let until_ns = late_ns.unwrap_or(u64::MAX).min(timeout_ns);
        let retry = Retry::FIRST;
        let confirming = Confirming { held, ttl_ms, until_ns, retry, pausing: true, last: None };
        self.phase = Phase::Confirming(Box::new(confirming));
        self.confirm_again(cx)
    }

    /// How much time a grant must have left to be handed out as it is. A grant in the reply to a
    /// heartbeat may be old, and have little left from the beginning.
    fn enough_ms(&self, grant: &Grant) -> u64 {
        let Wanted { period_ms, lease_ms, .. } = self.wanted;
        grant.ttl_ms.max(period_ms.min(lease_ms)) / 3
    }

    fn held(&mut self, cx: &mut Cx<'_, E>, mut held: Held) -> Step<E> {
        if !cx.is_connected() {
            // The grant arrived over a connection that is gone, so the hold is suspect like any
            // other.
            held.hold.suspect();
            held.hold.granted_whole(false);
        }
        self.done(Outcome::Held(held))
    }

    /// Sends the renewal, after a pause or for the first time.
    pub(super) fn confirm_again(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        let Phase::Confirming(confirming) = &mut self.phase else { return Step::Wait };
        if !std::mem::take(&mut confirming.pausing) {
            return Step::Wait;
        }
        let (token, ttl_ms) = (confirming.held.token, confirming.ttl_ms);
        let (kind, owner) = (self.wanted.kind, self.acquisition.owner().clone());
        let renew = Op::Renew { kind, owner, token, ttl_ms };
        let late_ms = cx.here.late_ms(cx.name);
        let op = renew.of_hold(kind, self.acquisition.request(), late_ms);
        self.begin(Work::Confirm(op))
    }

    /// The store has answered the renewal of this number, which was sent at `sent_ns`; `missing`:
    /// too few replicas have it. Their acknowledgement proves more than the grant, because another
    /// server may have become the primary since.
    pub(in crate::client) fn confirmed(
        &mut self,
        cx: &mut Cx<'_, E>,
        number: u32,
        answer: Result<Renewed, Mismatch>,
        missing: Option<E>,
        sent_ns: u64,
    ) -> Step<E> {
        let replicated = self.is_replicated();
        let Some(mut present) = self.confirming(number) else { return Step::Wait };
        match (answer, missing) {
            (Ok(Renewed::Whole), Some(missing)) if replicated => {
                self.give_back(cx, present.held, Reason::Store(missing))
            }
            (Ok(Renewed::Whole), _) => {
                present.held.hold.renewed(cx.now_ns(), sent_ns, present.ttl_ms);
                if replicated && present.held.hold.valid_until_ns() <= cx.now_ns() {
                    return self.too_late(cx);
                }
                present.held.hold.granted_whole(true);
                self.held(cx, present.held)
            }
            // The waiter of a fair lock returns to its place.
            (Ok(Renewed::Gone { .. }), _) if !replicated || self.has_queue() => self.too_late(cx),
            (Ok(Renewed::Gone { .. }), _) => {
                self.give_back(cx, present.held, Reason::GoneBeforeReplicas)
            }
            (Err(Mismatch), _) if replicated => {
                self.give_back(cx, present.held, Reason::Refused(Refused::Mismatch))
            }
            (Err(Mismatch), _) => self.too_late(cx),
        }
    }

    pub(super) fn confirm_failed(&mut self, cx: &mut Cx<'_, E>, failure: Failure<E>) -> Step<E> {
        let replicated = self.is_replicated();
        let Some(mut it) = self.confirming(self.number) else { return Step::Wait };
        if !replicated {
            return self.too_late(cx);
        }
        if !failure.passing {
            return self.give_back(cx, it.held, Reason::Store(failure.error));
        }
        let left = cx.left(it.until_ns);
        if left.is_zero() {
            return self.give_back(cx, it.held, Reason::NotAsked(Some(failure.error)));
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
    pub(super) fn stop_confirming(
        &mut self,
        cx: &mut Cx<'_, E>,
        reason: Option<Reason<E>>,
    ) -> Step<E> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Confirming(it) => {
                let last = it.last;
                let replicated = self.is_replicated();
                let reason = reason.unwrap_or_else(|| match replicated {
                    true => Reason::NotAsked(last),
                    false => Reason::Silent { last, in_doubt: true },
                });
                self.give_back(cx, it.held, reason)
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
    fn give_back(&mut self, cx: &mut Cx<'_, E>, held: Held, reason: Reason<E>) -> Step<E> {
        self.grace_ns = Some(cx.after(GIVE_BACK_GRACE));
        self.phase = Phase::GivingBack(reason);
        cx.effects.push(Effect::GiveBack { id: cx.id, held: Box::new(held) });
        self.begin(Work::Nothing)
    }

    /// The hold was given back.
    pub(in crate::client) fn given_back(&mut self) -> Step<E> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::GivingBack(reason) => self.done(Outcome::Failed(reason)),
            phase => {
                self.phase = phase;
                Step::Wait
            }
        }
    }

    /// The grant was over before it could be used.
    fn too_late(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        self.over += 1;
        // An unanswered confirmation may still have given the hold its whole lease.
        self.acquisition.set_in_doubt(true);
        if !self.has_queue() || (!self.wanted.renewed && self.over >= OVER_MAX) {
            let reason = Reason::LeaseTooShort(self.over);
            return self.give_up(cx, Some(reason), false);
        }
        if self.wanted.shared_owner {
            // The next request of an explicit owner does not take this hold over, but waits for its
            // end.
            let op = Box::new(self.acquisition.leave(true));
            cx.effects.push(Effect::TakeBack { op, owed: true, then: None });
        }
        match cx.here.draw() {
            Ok(fresh) => {
                self.acquisition.again(fresh);
                self.enter(cx)
            }
            Err(error) => self.give_up(cx, Some(Reason::NotDrawn(error)), false),
        }
    }

    /// The next attempt, here or elsewhere, must not find a waiter in the queue whose caller was
    /// told "no". Whoever was in the queue until its time was up learns by the same answer that the
    /// store is there: nobody knows whether a lock is taken whose store is silent.
    fn give_up_and_wait(&mut self, cx: &mut Cx<'_, E>) -> Step<E> {
        if self.must_hear() {
            if !cx.is_connected() {
                let unheard = self.unheard();
                return self.give_up(cx, Some(unheard), false);
            }
            self.grace_ns = Some(cx.after(SILENCE_GRACE));
            return self.give_up(cx, None, true);
        }
        // There is no wait for a server that does not answer.
        let wait = !self.acquisition.is_in_doubt();
        self.grace_ns = wait.then(|| cx.after(ANSWER_GRACE));
        self.give_up(cx, None, wait)
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

    /// Takes all requests back, and ends: at once, or with `wait` when the last one is answered. A try that was
    /// answered has left nothing behind.
    fn give_up(&mut self, cx: &mut Cx<'_, E>, failure: Option<Reason<E>>, wait: bool) -> Step<E> {
        let ops = self.acquisition.give_up();
        let Some(last) = ops.len().checked_sub(1) else { return self.without(failure) };
        let owed = self.acquisition.may_be_known();
        for (place, op) in ops.into_iter().enumerate() {
            let then = (wait && place == last).then_some(cx.id);
            cx.effects.push(Effect::TakeBack { op: Box::new(op), owed, then });
        }
        if !wait {
            return self.gave_up(failure, false);
        }
        self.phase = Phase::TakingBack(failure);
        self.begin(Work::Nothing)
    }

    /// The last operation of [`give_up`](Self::give_up) has ended; `answered` says whether the store answered it.
    pub(in crate::client) fn taken_back(&mut self, answered: bool) -> Step<E> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::TakingBack(failure) => self.gave_up(failure, answered),
            phase => {
                self.phase = phase;
                Step::Wait
            }
        }
    }

    /// Ends an acquisition whose driver has gone: it leaves its queue or line. Returns the operations that take its
    /// requests back.
    pub(in crate::client) fn abandon(&mut self, cx: &mut Cx<'_, E>) -> Vec<Op> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            // Its requests are taken back already.
            Phase::TakingBack(_) | Phase::GivingBack(_) | Phase::Done => return Vec::new(),
            _ => {}
        }
        if let Some(left) = cx.waiters.leave(self.acquisition.request()) {
            self.acquisition = left.acquisition;
        }
        self.leave_line(cx, None);
        self.acquisition.set_in_doubt(true);
        self.acquisition.give_up()
    }
}
