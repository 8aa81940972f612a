//! The machine of a client: everything that its acquisitions, waiters and lines know, as one value.
//!
//! Inputs are calls of the client's methods; outputs are collected until [`Client::outputs`] takes them, and are carried
//! out after the mutex around the value is released, in any order. What an acquisition is to do next is not an output but
//! a state: whoever drives it takes it with [`Client::take`], after each input of its own and after each
//! [`Effect::Wake`].

use super::acquiring::{Acquiring, Failure, Held, Outcome, Step, Wanted};
use super::heartbeat::{Due, Returned, Step as Beat};
use super::lease::valid_until_ns;
use super::lines::Lines;
use super::waiters::{Granted, Lasts, Message, Waiters};
use super::{Mismatch, Renewed};
use crate::id::{LockName, OwnerId, RequestId};
use crate::op::{Body, Grant, Kind, Op};
use std::collections::BTreeMap;
use std::time::Duration;

/// One acquisition of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub(super) u64);

/// What a client needs to know of the world around it during an input. None of this may wait, or give an input.
pub trait Surroundings<E> {
    /// Now, in nanoseconds of the clock by which all times of the client count.
    fn now_ns(&self) -> u64;
    /// Whether the lock's server is connected.
    fn is_connected(&self, name: &LockName) -> bool;
    /// Whether messages to this client's inbox do not arrive now.
    fn is_deaf(&self) -> bool;
    /// Until when a copy that is sent now may be carried out, by the clock of the lock's server.
    fn not_after_ms(&self, name: &LockName) -> u64;
    /// By that clock, when a call that is sent now counts as unanswered.
    fn late_ms(&self, name: &LockName) -> u64;
    /// The time between the heartbeats of the lock's waiters.
    fn beat_every(&self, name: &LockName) -> Duration;
    /// A new request id, which nobody can guess.
    ///
    /// # Errors
    /// There is no randomness.
    fn draw(&mut self) -> Result<RequestId, E>;
}

/// How a grant arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The reply to the request itself.
    Request,
    /// A message in the inbox: the lock was handed over when it became free.
    Message,
    /// The reply to a heartbeat, because no message arrived.
    Heartbeat,
}

/// What an input leads to, beside the next step of an acquisition. It concerns the acquisition's lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// An input of somebody else concerned this acquisition: [`Client::take`] what it does next.
    Wake,
    /// According to the store it stands in the queue.
    Queued {
        /// Who waits.
        owner: OwnerId,
        /// Its order number.
        order: u64,
        /// It was in the queue before.
        returning: bool,
        /// How many wait, itself included.
        length: u64,
    },
    /// A grant has reached it.
    Granted(Way),
    /// It is the first waiter on its lock, whose heartbeats begin.
    BeginHeartbeats,
    /// The next heartbeat is due now.
    Beat,
    /// No waiter needs the subscription to the lock's topic any more.
    Unsubscribe,
    /// Have this sent until it is answered, in the background, beginning at once.
    TakeBack {
        /// The operation.
        op: Box<Op>,
        /// The store may have what it takes back: if it refuses, it is tried again later.
        owed: bool,
        /// Somebody waits for it: call [`Client::taken_back`] when it is over.
        then: Option<AttemptId>,
    },
    /// Give this hold back in the background, with all requests that led to it, beginning at once, and call
    /// [`Client::given_back`] when that is over.
    GiveBack {
        /// The acquisition that waits for it.
        id: AttemptId,
        /// The hold.
        held: Box<Held>,
    },
}

/// What an acquisition works with during one input.
pub(super) struct Cx<'a, E> {
    pub(super) id: AttemptId,
    pub(super) name: &'a LockName,
    pub(super) here: &'a mut dyn Surroundings<E>,
    pub(super) waiters: &'a mut Waiters<AttemptId>,
    pub(super) lines: &'a mut Lines,
    pub(super) effects: &'a mut Vec<Effect>,
    /// Whose turn it is now to ask for a lock without a queue.
    pub(super) turn: Option<AttemptId>,
}

impl<E> Cx<'_, E> {
    pub(super) fn now_ns(&self) -> u64 {
        self.here.now_ns()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.here.is_connected(self.name)
    }

    pub(super) fn after(&self, wait: Duration) -> u64 {
        super::acquiring::after(self.now_ns(), wait)
    }

    /// The time left until `end_ns`.
    pub(super) fn left(&self, end_ns: u64) -> Duration {
        Duration::from_nanos(end_ns.saturating_sub(self.now_ns()))
    }
}

/// The acquisitions of a client. Each carries a `T`, which stands for its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client<T, E> {
    /// Boxed, because they are large. Ordered: what happens first must not depend on chance.
    attempts: BTreeMap<AttemptId, Box<Attempt<T, E>>>,
    /// The number of the last one.
    last: u64,
    waiters: Waiters<AttemptId>,
    lines: Lines,
    effects: Vec<Effect>,
    outputs: Vec<(T, Effect)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt<T, E> {
    name: LockName,
    caller: T,
    it: Acquiring<E>,
    /// Until it is taken.
    next: Step<E>,
}

impl<T, E> Default for Client<T, E> {
    fn default() -> Self {
        Self {
            attempts: BTreeMap::new(),
            last: 0,
            waiters: Waiters::default(),
            lines: Lines::default(),
            effects: Vec::new(),
            outputs: Vec::new(),
        }
    }
}

/// Acquisitions. Inputs about one that has ended, or about work that is over, are ignored.
impl<T: Clone, E> Client<T, E> {
    /// What the inputs have led to since the last call.
    pub fn outputs(&mut self) -> Vec<(T, Effect)> {
        std::mem::take(&mut self.outputs)
    }

    /// Begins to ask for the lock `name`; `request` is the first one by which `owner` asks.
    pub fn ask(
        &mut self,
        here: &mut dyn Surroundings<E>,
        (name, wanted): (LockName, Wanted),
        (owner, request): (OwnerId, RequestId),
        caller: T,
    ) -> AttemptId {
        self.last += 1;
        let id = AttemptId(self.last);
        let it = Acquiring::new(wanted, owner, request);
        self.attempts.insert(id, Box::new(Attempt { name, caller, it, next: Step::Wait }));
        self.give(here, id, Acquiring::enter);
        id
    }

    /// What the acquisition is to do next, and when [`time`](Self::time) is due. An acquisition that is
    /// [done](Step::Done) is forgotten.
    pub fn take(&mut self, id: AttemptId) -> (Step<E>, Option<u64>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return (Step::Wait, None) };
        let next = std::mem::replace(&mut attempt.next, Step::Wait);
        let deadline_ns = attempt.it.deadline_ns();
        if matches!(next, Step::Done(_)) {
            self.attempts.remove(&id);
        }
        (next, deadline_ns)
    }

    /// When [`time`](Self::time) is due.
    pub fn deadline_ns(&self, id: AttemptId) -> Option<u64> {
        self.attempts.get(&id)?.it.deadline_ns()
    }

    /// Whether the store has answered any request of it. Requests of the same owner that wait for its outcome rely on
    /// this.
    pub fn was_answered(&self, id: AttemptId) -> bool {
        self.attempts.get(&id).is_some_and(|attempt| attempt.it.was_answered())
    }

    /// The store has answered the copy of this number, which was sent at `sent_ns`. The answer says whether dead waiters
    /// remain.
    pub fn answered(
        &mut self,
        here: &mut dyn Surroundings<E>,
        (id, number): (AttemptId, u32),
        answer: (Body, bool),
        sent_ns: u64,
    ) {
        self.give(here, id, |it, cx| it.answered(cx, number, answer, sent_ns));
    }

    /// The store has answered the renewal of this number, which was sent at `sent_ns`; `missing`: too few replicas have
    /// it.
    pub fn confirmed(
        &mut self,
        here: &mut dyn Surroundings<E>,
        (id, number): (AttemptId, u32),
        answer: Result<Renewed, Mismatch>,
        missing: Option<E>,
        sent_ns: u64,
    ) {
        self.give(here, id, |it, cx| it.confirmed(cx, number, answer, missing, sent_ns));
    }

    /// The call or subscription of this number failed.
    pub fn failed(
        &mut self,
        here: &mut dyn Surroundings<E>,
        (id, number): (AttemptId, u32),
        failure: Failure<E>,
    ) {
        self.give(here, id, |it, cx| it.failed(cx, number, failure));
    }

    /// The pause or rest of this number is over, or the store is connected.
    pub fn rested(&mut self, here: &mut dyn Surroundings<E>, (id, number): (AttemptId, u32)) {
        self.give(here, id, |it, cx| it.rested(cx, number));
    }

    /// The subscription of this number is there.
    pub fn subscribed(&mut self, here: &mut dyn Surroundings<E>, (id, number): (AttemptId, u32)) {
        self.give(here, id, |it, cx| it.listened(cx, number));
    }

    /// What [`Effect::TakeBack`] sent is over; `answered`: by an answer of the store.
    pub fn taken_back(&mut self, here: &mut dyn Surroundings<E>, id: AttemptId, answered: bool) {
        self.give_and_wake(here, id, |it, _| it.taken_back(answered));
    }

    /// What [`Effect::GiveBack`] began is over.
    pub fn given_back(&mut self, here: &mut dyn Surroundings<E>, id: AttemptId) {
        self.give_and_wake(here, id, |it, _| it.given_back());
    }

    /// Nobody waits for the result any more.
    pub fn gone(&mut self, here: &mut dyn Surroundings<E>, id: AttemptId) {
        self.give(here, id, Acquiring::gone);
    }

    /// The client was shut down.
    pub fn closed(&mut self, here: &mut dyn Surroundings<E>, id: AttemptId) {
        self.give(here, id, Acquiring::closed);
    }

    /// Time has passed.
    pub fn time(&mut self, here: &mut dyn Surroundings<E>, id: AttemptId) {
        self.give(here, id, Acquiring::time);
    }

    /// Whoever drove the acquisition has ended before it. Its requests are taken back.
    pub fn abandon(&mut self, here: &mut dyn Surroundings<E>, id: AttemptId) {
        let mut ops = Vec::new();
        self.give(here, id, |it, cx| {
            ops = it.abandon(cx);
            Step::Wait
        });
        let Some(attempt) = self.attempts.remove(&id) else { return };
        if let Step::Done(Outcome::Held(held)) = attempt.next {
            ops.push(held.acquisition.leave(true));
            ops.extend(held.acquisition.doubtful());
        }
        let take_back = |op| {
            (attempt.caller.clone(), Effect::TakeBack { op: Box::new(op), owed: true, then: None })
        };
        self.outputs.extend(ops.into_iter().map(take_back));
    }

    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty()
            && self.waiters == Waiters::default()
            && self.lines == Lines::default()
    }

    fn give(
        &mut self,
        here: &mut dyn Surroundings<E>,
        id: AttemptId,
        input: impl FnOnce(&mut Acquiring<E>, &mut Cx<'_, E>) -> Step<E>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let mut cx = Cx {
            id,
            name: &attempt.name,
            here: &mut *here,
            waiters: &mut self.waiters,
            lines: &mut self.lines,
            effects: &mut self.effects,
            turn: None,
        };
        let step = input(&mut attempt.it, &mut cx);
        let turn = cx.turn;
        debug_assert!(
            matches!(step, Step::Wait) || !matches!(attempt.next, Step::Done(_)),
            "K13: it ends once"
        );
        if !matches!(step, Step::Wait) {
            attempt.next = step;
        }
        let caller = &attempt.caller;
        self.outputs.extend(self.effects.drain(..).map(|effect| (caller.clone(), effect)));
        if let Some(next) = turn {
            self.give_and_wake(here, next, Acquiring::turn);
        }
    }

    /// Gives an input that is not from whoever drives the acquisition.
    fn give_and_wake(
        &mut self,
        here: &mut dyn Surroundings<E>,
        id: AttemptId,
        input: impl FnOnce(&mut Acquiring<E>, &mut Cx<'_, E>) -> Step<E>,
    ) {
        self.give(here, id, input);
        self.tell(id, Effect::Wake);
    }

    fn tell(&mut self, id: AttemptId, effect: Effect) {
        if let Some(attempt) = self.attempts.get(&id) {
            self.outputs.push((attempt.caller.clone(), effect));
        }
    }
}

/// Messages, and the heartbeats of the waiters.
impl<T: Clone, E> Client<T, E> {
    /// A grant arrived in a message. Its TTL counts from `base_ns`; `None`: the store's time is unknown. Returns whether
    /// the message was of any use: it is not if it is forged, too late, or for a request that is over.
    pub fn granted(
        &mut self,
        here: &mut dyn Surroundings<E>,
        grant: &Grant,
        base_ns: Option<u64>,
    ) -> bool {
        let lasts = match base_ns {
            None => Lasts::Unknown,
            Some(base_ns) if valid_until_ns(base_ns, grant.ttl_ms) <= here.now_ns() => {
                Lasts::NoMore
            }
            Some(_) => Lasts::Still,
        };
        match (self.waiters.message(grant, lasts), base_ns) {
            (Message::Granted(granted), Some(base_ns)) => {
                self.hand_over(here, granted, base_ns, Way::Message);
                true
            }
            (Message::Look(id), _) => {
                self.tell(id, Effect::Beat);
                true
            }
            (Message::TooLate(id), _) => {
                self.tell(id, Effect::Beat);
                false
            }
            (Message::Dropped | Message::Granted(_), _) => false,
        }
    }

    /// A message says that the lock, which has no queue, may be free, or the connection is new.
    pub fn wake(&mut self, here: &mut dyn Surroundings<E>, name: &LockName) {
        if let Some(first) = self.lines.first(name) {
            self.give_and_wake(here, first, Acquiring::woken);
        }
    }

    /// The locks without a queue for which somebody waits.
    pub fn lines(&self) -> Vec<LockName> {
        self.lines.names().cloned().collect()
    }

    /// The lock for which the waiter with `request` waits.
    pub fn name_of(&self, request: RequestId) -> Option<&LockName> {
        self.waiters.name_of(request)
    }

    /// Whether the lock has heartbeats.
    pub fn is_wanted(&self, name: &LockName) -> bool {
        self.waiters.is_wanted(name)
    }

    /// The kind of a lock that has heartbeats: that of its oldest waiter.
    pub fn kind(&self, name: &LockName) -> Option<Kind> {
        self.waiters.kind(name)
    }

    /// How many waiters still wait in queues, and how many locks have waiters.
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiters.waiting(), self.waiters.queues.len() + self.lines.names().count())
    }

    /// The server of the lock may be a different one.
    pub fn doubt_all(&mut self, name: &LockName) {
        self.waiters.doubt_all(name);
    }

    /// A heartbeat is due: by plan, or because of `woken`.
    pub fn due(&mut self, here: &dyn Surroundings<E>, name: &LockName, woken: bool) -> Due {
        self.waiters.due(name, Duration::from_nanos(here.now_ns()), woken)
    }

    /// The next step of the heartbeat.
    pub fn beat(&mut self, name: &LockName) -> Beat {
        self.waiters.step(name)
    }

    /// The reply to a call that [asks](Beat::Ask), which was sent at `sent_ns`.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn beaten(
        &mut self,
        here: &mut dyn Surroundings<E>,
        name: &LockName,
        body: Body,
        sent_ns: u64,
    ) -> Result<(), Mismatch> {
        for granted in self.waiters.beaten(name, body)? {
            self.hand_over(here, granted, sent_ns, Way::Heartbeat);
        }
        Ok(())
    }

    /// Gives a waiter that was dropped from the queue a new request, with which it returns to its place, unless its last
    /// one may still do so. Returns what to send, or `None` if its wait is over. Until
    /// [`set_in_doubt`](Self::set_in_doubt), the copy counts as unanswered.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn return_to_place(
        &mut self,
        here: &mut dyn Surroundings<E>,
        name: &LockName,
        waiter: RequestId,
    ) -> Result<Option<Op>, E> {
        let (fresh, not_after_ms) = (here.draw()?, here.not_after_ms(name));
        let share = self.waiters.share(waiter);
        let sent = self.waiters.return_to_place(waiter, fresh, not_after_ms);
        Ok(sent.map(|sent| Op::asks(sent, share)))
    }

    /// Sets whether the copy by which a waiter returns is unanswered.
    pub fn set_in_doubt(&mut self, waiter: RequestId, in_doubt: bool) {
        self.waiters.set_in_doubt(waiter, in_doubt);
    }

    /// The reply to a waiter that returned to its place, by a copy that was sent at `sent_ns`. Returns whether it is
    /// there; otherwise the next heartbeat tries again.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn returned(
        &mut self,
        here: &mut dyn Surroundings<E>,
        name: &LockName,
        waiter: RequestId,
        body: Body,
        sent_ns: u64,
    ) -> Result<bool, Mismatch> {
        Ok(match self.waiters.returned(name, waiter, body)? {
            Returned::InPlace(granted) => {
                if let Some(granted) = granted {
                    self.hand_over(here, granted, sent_ns, Way::Heartbeat);
                }
                true
            }
            Returned::NotYet => false,
        })
    }

    /// The subscription that a [`Beat::Listen`] asked for has ended.
    pub fn listens_no_more(&mut self, name: &LockName) {
        self.waiters.listens_no_more(name);
    }

    /// The heartbeat is done. Returns when the next one is due: see the constants of the heartbeats. `chance` is random,
    /// from 0 to 1.
    pub fn rest(
        &mut self,
        name: &LockName,
        period: Duration,
        least: Duration,
        chance: f64,
    ) -> Duration {
        self.waiters.rest(name, period, least, chance)
    }

    /// A heartbeat that began at `began_ns` failed. The waits are over once the store was silent for `waits`, or at once
    /// without it; they fail with `error`. Returns when the next one is due, and whether more waits are over: then the
    /// same input ends them.
    pub fn beat_failed(
        &mut self,
        here: &mut dyn Surroundings<E>,
        (name, began_ns): (&LockName, u64),
        waits: Option<Duration>,
        period: Duration,
        error: impl Fn(&OwnerId) -> E,
    ) -> (Duration, bool) {
        let times = (Duration::from_nanos(began_ns), Duration::from_nanos(here.now_ns()));
        let failed = self.waiters.failed(name, times, waits, period);
        for (owner, id) in failed.over {
            let error = error(&owner);
            self.give_and_wake(here, id, |it, cx| it.wait_failed(cx, error));
        }
        (failed.wait, failed.more)
    }

    /// Hands a grant to the acquisition that waits for it.
    fn hand_over(
        &mut self,
        here: &mut dyn Surroundings<E>,
        granted: Granted<AttemptId>,
        base_ns: u64,
        way: Way,
    ) {
        let Granted { grant, caller: id, look, .. } = granted;
        self.give_and_wake(here, id, |it, cx| {
            if look.is_some() {
                cx.effects.push(Effect::Beat);
            }
            cx.effects.push(Effect::Granted(way));
            it.granted(cx, grant, base_ns)
        });
    }
}
