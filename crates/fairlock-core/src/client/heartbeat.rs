//! The heartbeats of one lock's waiters: one call keeps all of them alive and names the oldest.
//!
//! A heartbeat asks about the oldest waiter. If that waiter is missing, the heartbeat asks about
//! the following ones until it finds one in the queue, and returns those before it to their places,
//! the oldest first. If the server may be a different one, which may lack only the tail of the
//! queue, the heartbeat asks about all waiters, each once.

use super::replies::{Acquired, Mismatch, Refused};
use super::waiters::{Granted, Waiters};
use crate::id::{LockName, OwnerId, RequestId};
use crate::op::{Body, Fate, is_shared};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Most waiters that one call asks about.
const ASKED_AT_ONCE: usize = 64;

/// Shortest sustained interval between the calls of one [`Pace`]: a flood of forged messages costs at most twenty
/// calls a second.
const CLOSEST: Duration = Duration::from_millis(50);

/// Heartbeats that may follow each other immediately after a pause. The turn of a waiter behind a
/// Java client takes three: one that discovers Java and subscribes to its channel, one that looks
/// again after the subscription, and one for Java's wake-up, which may arrive right then. One more
/// is for the end of the wait.
const AT_ONCE: u32 = 4;

/// Heartbeats per period while a foreign client holds the lock or waits. Nobody notifies our
/// waiters when a Java waiter gives up just after Java's unlock has notified it, or when a Java
/// hold expires. This costs two calls a second instead of one every two seconds, for each client
/// and lock.
const BESIDE_FOREIGN: u32 = 4;

/// Largest random delay added to the end of a lease, so that the clients of a lock do not all ask
/// in the same millisecond.
const SPREAD: Duration = Duration::from_millis(60);

/// The waiters on one lock that are in its queue, and its heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    pub(super) by_order: BTreeSet<(u64, RequestId)>,
    /// A foreign client holds the lock or waits, so the oldest waiter subscribes to its own channel.
    pub(super) oldest_listens: bool,
    /// Who has subscribed to its own channel.
    listening: Option<OwnerId>,
    /// The server may be a different one: the next heartbeat asks about every waiter.
    all_in_doubt: bool,
    pace: Pace,
    /// The last heartbeat was planned for when the server expected a change.
    early: bool,
    silent_since: Option<Duration>,
    round: Option<Round>,
}

/// A heartbeat that is under way, usually one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    /// Every waiter is asked about, and this is not done yet.
    everyone: bool,
    /// The call under way asks about the oldest alone.
    oldest_alone: bool,
    /// The waiters that the call under way asks about.
    asked: Vec<RequestId>,
    /// The waiters that the next calls ask about. A snapshot instead of positions: grants remove
    /// waiters meanwhile, so the nth is soon a different one.
    next: VecDeque<RequestId>,
    /// Who returns to its place.
    missing: VecDeque<RequestId>,
    /// The state of the lock in the first reply.
    outlook: Option<Outlook>,
    /// The oldest waiter was told to subscribe. One in a heartbeat: however fast the oldest change,
    /// the next one, which is paced, comes first.
    listened: bool,
}

/// The facts that decide when the next heartbeat comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outlook {
    /// When the server expects a change.
    pub retry: Option<Duration>,
    /// Whether a foreign client holds the lock or waits.
    pub foreign: bool,
}

/// What follows when a heartbeat is due.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// It is sent after this time.
    After(Duration),
    /// Nobody waits any more: the heartbeats end, and so does the subscription of this owner.
    Over(Option<OwnerId>),
}

/// The next step of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call asks about these waiters; [`Waiters::beaten`] takes the reply.
    Ask(Vec<OwnerId>),
    /// This waiter [returns to its place](Waiters::return_to_place); [`Waiters::returned`] takes
    /// the reply.
    Return(RequestId),
    /// `owner` subscribes to its own channel, `former` no longer. Java wakes the head of the queue
    /// on that waiter's own channel; for a read-write lock it has one channel, to which the first
    /// subscribes for all of them. A heartbeat after the subscription catches up on earlier
    /// messages.
    Listen {
        /// The oldest waiter.
        owner: OwnerId,
        /// Who was the oldest before.
        former: Option<OwnerId>,
    },
    /// The heartbeat is done; [`Waiters::rest`] returns when the next one is due.
    Rest,
}

/// What the reply means to a waiter that returned to its place.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Returned<T> {
    /// The waiter is in its place, or has the lock, which ends its wait unless the wait is already
    /// over.
    InPlace(Option<Granted<T>>),
    /// The next heartbeat tries again.
    NotYet,
}

/// The effect of a heartbeat that failed.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Failed<T> {
    /// The waits that are over because of the failure.
    pub over: Vec<(OwnerId, T)>,
    /// More waits are over: the same input returns them.
    pub more: bool,
    /// When the next heartbeat is due.
    pub wait: Duration,
}

/// How many waits one input ends, so that grants on other locks need not wait for all of them.
const FAILED_MAX: usize = 1_000;

impl<T> Waiters<T> {
    /// The server of the lock may be a different one.
    pub fn doubt_all(&mut self, name: &LockName) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.all_in_doubt = true;
        }
    }

    /// A heartbeat is due: by plan, or because of `woken`. `now` counts from any moment.
    pub fn due(&mut self, name: &LockName, now: Duration, woken: bool) -> Due {
        match self.queues.get_mut(name) {
            Some(queue) if !queue.by_order.is_empty() => {
                // Being woken does not prove an expectation wrong.
                queue.early &= !woken;
                // However often it is woken, this sets the pace.
                Due::After(queue.pace.wait(now))
            }
            _ => Due::Over(self.queues.remove(name).and_then(|queue| queue.listening)),
        }
    }

    /// The next step of the heartbeat.
    pub fn step(&mut self, name: &LockName) -> Step {
        let Some(queue) = self.queues.get_mut(name) else { return Step::Rest };
        let mut round = queue.round.take().unwrap_or_else(|| queue.begin());
        let step = self.next_of(name, &mut round);
        if let Some(queue) = self.queues.get_mut(name) {
            queue.round = Some(round);
        }
        step
    }

    fn next_of(&mut self, name: &LockName, round: &mut Round) -> Step {
        // A caller that steps on without a reply makes the call again.
        round.asked.drain(..).rev().for_each(|waiter| round.next.push_front(waiter));
        let mut owners = Vec::new();
        while owners.len() < ASKED_AT_ONCE
            && let Some(waiter) = round.next.pop_front()
        {
            if let Some(owner) = self.owner(waiter) {
                round.asked.push(waiter);
                owners.push(owner);
            }
        }
        if !owners.is_empty() {
            return Step::Ask(owners);
        }
        while let Some(waiter) = round.missing.pop_front() {
            if self.owner(waiter).is_some() {
                return Step::Return(waiter);
            }
        }
        round.everyone = false;
        let Some(outlook) = round.outlook else { return Step::Rest };
        let Some(queue) = self.queues.get_mut(name) else { return Step::Rest };
        let oldest = queue.by_order.first().and_then(|(_, waiter)| self.waiters.get(waiter));
        let for_all = oldest.is_some_and(|oldest| is_shared(oldest.acquisition.kind()));
        queue.oldest_listens = outlook.foreign && !for_all;
        let Some(oldest) = oldest.map(|oldest| &oldest.acquisition) else { return Step::Rest };
        let listens = match &queue.listening {
            Some(former) => for_all || former == oldest.owner(),
            None => false,
        };
        if !outlook.foreign || round.listened || listens {
            return Step::Rest;
        }
        round.listened = true;
        let owner = oldest.owner().clone();
        let former = queue.listening.replace(owner.clone());
        Step::Listen { owner, former }
    }

    /// The reply to a call that [asks](Step::Ask). Returns who has the lock, or a share of it.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn beaten(&mut self, name: &LockName, body: Body) -> Result<Vec<Granted<T>>, Mismatch> {
        let (held, queued, retry_ms, foreign) = match body {
            Body::Beaten { held, queued, retry_ms, foreign } => {
                (Vec::from_iter(held), queued, retry_ms, foreign)
            }
            Body::Fates { fates, retry_ms, foreign } => {
                let queued = fates.iter().map(|fate| *fate == Fate::Queued).collect();
                let granted = fates.into_iter().filter_map(|fate| match fate {
                    Fate::Granted(grant) => Some(grant),
                    Fate::Queued | Fate::Unknown => None,
                });
                (granted.collect(), queued, retry_ms, foreign)
            }
            _ => return Err(Mismatch),
        };
        let granted = held.into_iter().filter_map(|grant| self.granted(name, grant)).collect();
        if let Some(queue) = self.queues.get_mut(name)
            && let Some(round) = &mut queue.round
        {
            let retry = retry_ms.map(Duration::from_millis);
            round.hear(&queued, Outlook { retry, foreign }, &queue.by_order);
        }
        Ok(granted)
    }

    /// The reply to a waiter that returned to its place.
    ///
    /// # Errors
    /// If the reply belongs to something else.
    pub fn returned(
        &mut self,
        name: &LockName,
        waiter: RequestId,
        body: Body,
    ) -> Result<Returned<T>, Mismatch> {
        // Whoever left meanwhile takes its requests back.
        let Some(entry) = self.waiters.get(&waiter) else { return Ok(Returned::NotYet) };
        match entry.acquisition.acquired(body) {
            Ok(Acquired::Granted(grant)) => Ok(Returned::InPlace(self.granted(name, grant))),
            Ok(Acquired::Queued { retry_ms, .. }) => {
                let retry = retry_ms.map(Duration::from_millis);
                let round = self.queues.get_mut(name).and_then(|queue| queue.round.as_mut());
                if let Some(outlook) = round.and_then(|round| round.outlook.as_mut()) {
                    outlook.retry = [outlook.retry, retry].into_iter().flatten().min();
                }
                Ok(Returned::InPlace(None))
            }
            Ok(Acquired::FormerHold) | Err(Refused::TooLate | Refused::Buried) => {
                Ok(Returned::NotYet)
            }
            Ok(Acquired::Taken { .. }) | Err(Refused::HeldBySelf | Refused::Mismatch) => {
                Err(Mismatch)
            }
        }
    }

    /// The subscription that a [`Step::Listen`] asked for has ended.
    pub fn listens_no_more(&mut self, name: &LockName) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.listening = None;
        }
    }

    /// The heartbeat is done. Returns when the next one is due: after `period`, or when the server
    /// expects a change. It is never earlier than `least` twice in a row, because a wrong
    /// expectation must not turn into polling. `chance` is random, from 0 to 1.
    pub fn rest(
        &mut self,
        name: &LockName,
        period: Duration,
        least: Duration,
        chance: f64,
    ) -> Duration {
        let Some(queue) = self.queues.get_mut(name) else { return period };
        queue.silent_since = None;
        let outlook = queue.round.take().and_then(|round| round.outlook).unwrap_or_default();
        let regular = if outlook.foreign { period / BESIDE_FOREIGN } else { period };
        let regular = regular.mul_f64(0.95 + chance * 0.05);
        let Some(retry) = outlook.retry.filter(|retry| *retry < regular) else {
            queue.early = false;
            return regular;
        };
        let least = if queue.early { least } else { Duration::ZERO };
        queue.early = true;
        (retry + SPREAD.mul_f64(chance)).max(least)
    }

    /// A heartbeat failed. It began at the first of `times`; the second is now. The waits are over
    /// once the store was silent for `waits`, or at once without it.
    pub fn failed(
        &mut self,
        name: &LockName,
        (began, now): (Duration, Duration),
        waits: Option<Duration>,
        period: Duration,
    ) -> Failed<T> {
        let wait = if waits.is_some() { period / 4 } else { CLOSEST };
        let (mut all, mut more) = (Vec::new(), false);
        if let Some(queue) = self.queues.get_mut(name) {
            queue.all_in_doubt |= queue.round.take().is_some_and(|round| round.everyone);
            let silent = waits.map(|waits| {
                let since = *queue.silent_since.get_or_insert(began);
                now.saturating_sub(since) >= waits
            });
            if silent != Some(false) {
                all.extend(queue.by_order.iter().take(FAILED_MAX).map(|(_, waiter)| *waiter));
                more = queue.by_order.len() > all.len();
            }
        }
        let end = |waiter| Some((self.owner(waiter)?, self.end(waiter)?.0));
        Failed { over: all.into_iter().filter_map(end).collect(), more, wait }
    }
}

impl Queue {
    fn begin(&mut self) -> Round {
        let everyone = std::mem::take(&mut self.all_in_doubt);
        let limit = if everyone { usize::MAX } else { 1 };
        let next = self.by_order.iter().take(limit).map(|(_, waiter)| *waiter).collect();
        Round { everyone, oldest_alone: !everyone, next, ..Round::default() }
    }
}

impl Round {
    fn hear(&mut self, queued: &[bool], outlook: Outlook, all: &BTreeSet<(u64, RequestId)>) {
        let asked = std::mem::take(&mut self.asked);
        if std::mem::take(&mut self.oldest_alone) {
            if queued.first() == Some(&false) {
                self.next = all.iter().map(|(_, waiter)| *waiter).collect();
            } else {
                self.outlook = Some(outlook);
            }
            return;
        }
        let looked_at = asked.iter().zip(queued);
        let looked_at = looked_at.take_while(|(_, queued)| self.everyone || !**queued);
        let missing = looked_at.filter(|(_, queued)| !**queued).map(|(waiter, _)| *waiter);
        self.missing.extend(missing);
        self.outlook.get_or_insert(outlook);
        if queued.contains(&true) && !self.everyone {
            self.next.clear();
        }
    }
}

/// Limits how closely the calls that messages cause follow each other, whatever the messages say: heartbeats,
/// renewals, and looks at latches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pace {
    /// When the next heartbeat would be sent if all earlier ones had kept their distance.
    due: Duration,
}

impl Pace {
    /// Returns how long a call that is wanted now must wait, and counts it as sent then. `now` counts from any moment.
    pub fn wait(&mut self, now: Duration) -> Duration {
        let wait = self.due.saturating_sub(CLOSEST * (AT_ONCE - 1)).saturating_sub(now);
        self.due = self.due.max(now) + CLOSEST;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Acquisition;
    use crate::id::ClientId;
    use crate::op::Grant;
    use crate::op::{Kind, Mode};
    use crate::rules::Token;

    const PERIOD: Duration = Duration::from_secs(2);

    fn request(number: u64) -> RequestId {
        RequestId::from_random(u128::from(number))
    }

    fn owner(number: u64) -> OwnerId {
        OwnerId::ours(ClientId::from_random(7), number).expect("a small number")
    }

    fn job() -> LockName {
        LockName::new(b"job").expect("a name")
    }

    fn grant(number: u64) -> Grant {
        let token = Token::new(1).expect("a token");
        Grant { request: request(number), token, ttl_ms: 30_000 }
    }

    /// The waiters 1 to `count`, in the queue in this order.
    fn queue(count: u64) -> Waiters<u64> {
        queue_of(Kind::Fair, count)
    }

    fn queue_of(kind: Kind, count: u64) -> Waiters<u64> {
        let mut waiters = Waiters::default();
        for number in 1..=count {
            let (mode, request) = (Mode::Wait, request(number));
            let acquisition = Acquisition::new(kind, owner(number), mode, 30_000, false, request);
            waiters.enter(job(), acquisition, number);
            let queued = waiters.queued(request, number, Outlook::default(), PERIOD);
            assert_eq!(queued.begins, number == 1);
        }
        waiters
    }

    fn beaten(queued: impl Into<Vec<bool>>, retry_ms: Option<u64>, foreign: bool) -> Body {
        Body::Beaten { held: None, queued: queued.into(), retry_ms, foreign }
    }

    /// Whom the next call asks about.
    fn asks(waiters: &mut Waiters<u64>) -> Vec<OwnerId> {
        match waiters.step(&job()) {
            Step::Ask(owners) => owners,
            step => panic!("{step:?} instead of a question"),
        }
    }

    /// The reply to the next call, which asks about `numbers`.
    #[track_caller]
    fn answer(
        waiters: &mut Waiters<u64>,
        numbers: impl IntoIterator<Item = u64>,
        queued: impl Into<Vec<bool>>,
    ) {
        assert_eq!(asks(waiters), numbers.into_iter().map(owner).collect::<Vec<_>>());
        assert_eq!(waiters.beaten(&job(), beaten(queued, None, false)), Ok(vec![]));
    }

    /// A waiter returns to its place as the next step.
    #[track_caller]
    fn returns(waiters: &mut Waiters<u64>, number: u64, retry_ms: Option<u64>) {
        assert_eq!(waiters.step(&job()), Step::Return(request(number)));
        let sent = waiters.return_to_place(request(number), request(100 + number), 0);
        let sent = sent.expect("it waits");
        assert_eq!((sent.order, sent.request), (Some(number), request(100 + number)));
        waiters.set_in_doubt(request(number), false);
        let in_place = Body::Queued { order: number, retry_ms, foreign: false, length: 1 };
        let returned = waiters.returned(&job(), request(number), in_place);
        assert_eq!(returned, Ok(Returned::InPlace(None)));
    }

    fn rest(waiters: &mut Waiters<u64>) -> Duration {
        assert_eq!(waiters.step(&job()), Step::Rest);
        waiters.rest(&job(), PERIOD, PERIOD / 4, 0.0)
    }

    /// Wake-ups by Java were typically 27 ms late: the heartbeat that discovers Java, the one after
    /// the subscription and the one for the wake-up had to keep 50 ms between them.
    #[test]
    fn a_few_heartbeats_follow_each_other_at_once_and_many_do_not() {
        let mut now = Duration::from_secs(3_600);
        let mut pace = Pace { due: now };
        for _ in 0..AT_ONCE {
            assert_eq!(pace.wait(now), Duration::ZERO);
        }
        for _ in 0..100 {
            let wait = pace.wait(now);
            assert_eq!(wait, CLOSEST, "a flood keeps its distance");
            now += wait;
        }
        now += CLOSEST * 100;
        for _ in 0..AT_ONCE {
            assert_eq!(pace.wait(now), Duration::ZERO, "however long the pause was");
        }
        assert_eq!(pace.wait(now), CLOSEST);
    }

    #[test]
    fn one_call_about_the_oldest_speaks_for_all() {
        let mut waiters = queue(3_000);
        answer(&mut waiters, [1], [true]);
        assert_eq!(rest(&mut waiters), PERIOD.mul_f64(0.95));
    }

    #[test]
    fn those_before_the_first_that_is_queued_return_the_oldest_first() {
        let mut waiters = queue(5);
        answer(&mut waiters, [1], [false]);
        answer(&mut waiters, 1..=5, [false, false, true, false, true]);
        returns(&mut waiters, 1, None);
        returns(&mut waiters, 2, None);
        rest(&mut waiters);
    }

    /// A server that took over may lack only the last writes: the tail of the queue.
    #[test]
    fn after_a_reconnect_everybody_is_asked_about_once() {
        let mut waiters = queue(100);
        waiters.doubt_all(&job());
        answer(&mut waiters, 1..=64, [true; 64]);
        answer(&mut waiters, 65..=100, [false; 36]);
        (65..=100).for_each(|number| returns(&mut waiters, number, None));
        rest(&mut waiters);
        answer(&mut waiters, [1], [true]);
    }

    /// Each step of a heartbeat that asks about everybody may fail; the next one asks again.
    #[test]
    fn a_failed_heartbeat_asks_about_everybody_again() {
        let mut waiters = queue(2);
        waiters.doubt_all(&job());
        let failed = |waiters: &mut Waiters<u64>| {
            let times = (Duration::ZERO, Duration::ZERO);
            let failed = waiters.failed(&job(), times, Some(PERIOD), PERIOD);
            assert_eq!(failed, Failed { over: Vec::new(), more: false, wait: PERIOD / 4 });
        };
        assert_eq!(asks(&mut waiters), [owner(1), owner(2)]);
        failed(&mut waiters);
        answer(&mut waiters, [1, 2], [true, false]);
        assert_eq!(waiters.step(&job()), Step::Return(request(2)));
        failed(&mut waiters);
        assert_eq!(asks(&mut waiters), [owner(1), owner(2)]);
        assert_eq!(waiters.beaten(&job(), beaten([true, true], None, true)), Ok(vec![]));
        let listens = Step::Listen { owner: owner(1), former: None };
        assert_eq!(waiters.step(&job()), listens, "everybody has been asked about");
        failed(&mut waiters);
        answer(&mut waiters, [1], [true]);
    }

    #[test]
    fn whose_wait_is_over_meanwhile_is_not_brought_back() {
        let mut waiters = queue(3);
        answer(&mut waiters, [1], [false]);
        answer(&mut waiters, 1..=3, [false, false, true]);
        waiters.leave(request(1));
        assert_eq!(waiters.granted(&job(), grant(2)).expect("it waits").caller, 2);
        rest(&mut waiters);
        assert_eq!(waiters.return_to_place(request(2), request(9), 0), None);
    }

    /// A process that was stopped through its turn returned to its place alone, was told to look
    /// again after 2 s, and looked with its next heartbeat.
    #[test]
    fn a_waiter_that_returned_looks_again_when_it_was_told_to() {
        let mut waiters = queue(2);
        answer(&mut waiters, [1], [false]);
        answer(&mut waiters, [1, 2], [false, false]);
        returns(&mut waiters, 1, Some(700));
        returns(&mut waiters, 2, Some(900));
        assert_eq!(rest(&mut waiters), Duration::from_millis(700));
    }

    #[test]
    fn a_reply_grants_the_lock() {
        let mut waiters = queue(2);
        assert_eq!(asks(&mut waiters), [owner(1)]);
        let held = Some(grant(1));
        let body = Body::Beaten { held, queued: vec![false], retry_ms: None, foreign: false };
        let granted = waiters.beaten(&job(), body).expect("fits").remove(0);
        assert_eq!((granted.grant, granted.caller), (grant(1), 1));
        answer(&mut waiters, [2], [false]);
        assert_eq!(waiters.step(&job()), Step::Return(request(2)));
        let sent = waiters.return_to_place(request(2), request(3), 0).expect("it waits");
        assert_eq!(sent.request, request(3));
        let Grant { token, ttl_ms, .. } = grant(3);
        match waiters.returned(&job(), request(2), Body::Granted { token, ttl_ms }) {
            Ok(Returned::InPlace(Some(granted))) => {
                assert_eq!((granted.grant, granted.caller), (grant(3), 2));
            }
            returned => panic!("{returned:?}"),
        }
        assert_eq!(waiters.due(&job(), Duration::ZERO, true), Due::Over(None));
    }

    /// Java wakes the head of the queue on that waiter's own channel.
    #[test]
    fn beside_java_the_oldest_waiter_subscribes_to_its_own_channel() {
        let mut waiters = queue(2);
        let java = |waiters: &mut Waiters<u64>| {
            let _ = asks(waiters);
            assert_eq!(waiters.beaten(&job(), beaten([true], None, true)), Ok(vec![]));
        };
        java(&mut waiters);
        let (first, second) = (owner(1), owner(2));
        let listens = Step::Listen { owner: first.clone(), former: None };
        assert_eq!(waiters.step(&job()), listens);
        assert_eq!(rest(&mut waiters), (PERIOD / BESIDE_FOREIGN).mul_f64(0.95));
        java(&mut waiters);
        rest(&mut waiters);
        let granted = waiters.granted(&job(), grant(1)).expect("it waits");
        assert_eq!(granted.look, Some(job()), "the next one is to listen soon");
        java(&mut waiters);
        let listens = Step::Listen { owner: second.clone(), former: Some(first) };
        assert_eq!(waiters.step(&job()), listens);
        let left = waiters.leave(request(2)).expect("it waits");
        assert_eq!((left.caller, left.look), (Some(2), Some(job())));
        assert_eq!(waiters.due(&job(), Duration::ZERO, true), Due::Over(Some(second)));
        assert!(!waiters.is_wanted(&job()));
    }

    /// Java has one channel for all that wait for a read-write lock.
    #[test]
    fn beside_java_the_first_waiter_for_a_share_subscribes_for_all() {
        let mut waiters = queue_of(Kind::ReadWrite, 2);
        let java = |waiters: &mut Waiters<u64>, foreign| {
            let asked = asks(waiters).len();
            let fates = vec![Fate::Queued; asked];
            let body = Body::Fates { fates, retry_ms: None, foreign };
            assert_eq!(waiters.beaten(&job(), body), Ok(vec![]));
        };
        java(&mut waiters, false);
        rest(&mut waiters);
        java(&mut waiters, true);
        assert_eq!(waiters.step(&job()), Step::Listen { owner: owner(1), former: None });
        assert_eq!(rest(&mut waiters), (PERIOD / BESIDE_FOREIGN).mul_f64(0.95));
        let left = waiters.leave(request(1)).expect("it waits");
        assert_eq!(left.look, None, "nobody else has to listen");
        java(&mut waiters, true);
        assert_eq!(waiters.step(&job()), Step::Rest);
    }

    /// Whoever subscribed may be gone when that is done. With a hand-over in each subscription, a
    /// heartbeat went on from one oldest waiter to the next, and asked about nobody meanwhile.
    #[test]
    fn a_heartbeat_subscribes_for_one_waiter() {
        let mut waiters = queue(3);
        let _ = asks(&mut waiters);
        assert_eq!(waiters.beaten(&job(), beaten([true], None, true)), Ok(vec![]));
        assert!(matches!(waiters.step(&job()), Step::Listen { former: None, .. }));
        waiters.leave(request(1)).expect("it waits");
        rest(&mut waiters);
        let _ = asks(&mut waiters);
        assert_eq!(waiters.beaten(&job(), beaten([true], None, true)), Ok(vec![]));
        let listens = Step::Listen { owner: owner(2), former: Some(owner(1)) };
        assert_eq!(waiters.step(&job()), listens);
    }

    /// Redisson's waiters behind a stale head ask without a pause.
    #[test]
    fn a_wrong_expectation_does_not_become_polling() {
        let mut waiters = queue(1);
        let mut next = |woken| {
            let _ = waiters.due(&job(), Duration::ZERO, woken);
            let _ = asks(&mut waiters);
            assert_eq!(waiters.beaten(&job(), beaten([true], Some(0), false)), Ok(vec![]));
            rest(&mut waiters)
        };
        assert_eq!(next(false), Duration::ZERO);
        assert_eq!(next(false), PERIOD / 4);
        assert_eq!(next(false), PERIOD / 4);
        assert_eq!(next(true), Duration::ZERO, "a message does not prove it wrong");
    }

    #[test]
    fn waits_are_over_when_the_store_is_silent_for_the_store_timeout() {
        let at = Duration::from_secs;
        let fail = |waiters: &mut Waiters<u64>, began, now| {
            waiters.step(&job());
            waiters.failed(&job(), (at(began), at(now)), Some(at(10)), PERIOD).over
        };
        let mut waiters = queue(2);
        assert_eq!(fail(&mut waiters, 0, 9), []);
        answer(&mut waiters, [1], [true]);
        rest(&mut waiters);
        assert_eq!(fail(&mut waiters, 20, 21), [], "it answered meanwhile");
        assert_eq!(fail(&mut waiters, 29, 29), []);
        assert_eq!(fail(&mut waiters, 30, 31), [(owner(1), 1), (owner(2), 2)]);
        assert_eq!(waiters.waiting(), 0);
        assert_eq!(waiters.due(&job(), at(31), false), Due::Over(None));
    }

    #[test]
    fn a_refusal_ends_the_waits_at_once() {
        let mut waiters = queue(1);
        let _ = asks(&mut waiters);
        assert_eq!(waiters.beaten(&job(), Body::Nudged), Err(Mismatch));
        let failed = waiters.failed(&job(), (PERIOD, PERIOD), None, PERIOD);
        assert_eq!(failed, Failed { over: vec![(owner(1), 1)], more: false, wait: CLOSEST });
    }

    #[test]
    fn a_failure_ends_a_bounded_number_of_waits_at_once() {
        let mut waiters = queue(FAILED_MAX as u64 + 1);
        let mut fails = || {
            let Failed { over, more, .. } = waiters.failed(&job(), (PERIOD, PERIOD), None, PERIOD);
            (over.len(), more)
        };
        assert_eq!((fails(), fails(), fails()), ((FAILED_MAX, true), (1, false), (0, false)));
    }
}
