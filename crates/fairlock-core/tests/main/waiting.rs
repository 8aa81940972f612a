//! Random sequences of inputs on the waiters of a client, hostile ones included: replies that
//! belong to nothing, forged messages, calls that fail at any point.
//!
//! `FAIRLOCK_CASES=n` plays n other cases and prints the seed; `FAIRLOCK_SEED=n` repeats them.

use crate::support::{ours, play_cases, request};
use fairlock_core::client::{Acquisition, Due, Granted, Lasts, Message, Outlook, Returned, Step};
use fairlock_core::client::{Mismatch, Waiters};
use fairlock_core::{Body, Grant, Kind, LockName, Mode, OwnerId, RequestId, Token};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CASES: u32 = 1_000;
const ACTS_MAX: usize = 120;
const PERIOD: Duration = Duration::from_secs(2);
const LEAST: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(10);
const LOCKS: [&[u8]; 2] = [b"a", b"b"];

/// Waiters and requests are chosen by number among those that there are or were.
#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Enter(usize),
    Queued(usize, u64, Option<u64>, bool),
    InDoubt(usize, bool),
    Leave(usize),
    Message(usize, Lasts),
    DoubtAll(usize),
    /// The next step of a heartbeat, or the reply to its call that is under way.
    Beat(usize, Reply),
    /// That call fails.
    Fail(usize, bool),
    /// A reply that nobody asked for.
    Stray(usize, usize, Reply),
}

#[derive(Clone, Debug)]
struct Reply {
    held: Option<usize>,
    queued: Vec<bool>,
    retry: Option<u64>,
    foreign: bool,
    /// To a waiter that returns to its place.
    body: u8,
}

fn replies() -> impl Strategy<Value = Reply> {
    let held = prop_oneof![3 => Just(None), 1 => (0..40_usize).prop_map(Some)];
    let queued = prop_oneof![
        4 => prop::collection::vec(any::<bool>(), 0..6),
        3 => Just(vec![false; 6]),
        2 => Just(vec![true; 6])
    ];
    let retry = prop_oneof![Just(None), (0..5_000_u64).prop_map(Some)];
    (held, queued, retry, any::<bool>(), 0..7_u8).prop_map(
        |(held, queued, retry, foreign, body)| Reply { held, queued, retry, foreign, body },
    )
}

fn acts() -> impl Strategy<Value = Act> {
    let (lock, who) = (|| 0..LOCKS.len(), || 0..20_usize);
    let lasts = prop_oneof![Just(Lasts::Still), Just(Lasts::NoMore), Just(Lasts::Unknown)];
    let retry = prop_oneof![Just(None), (0..5_000_u64).prop_map(Some)];
    prop_oneof![
        1 => (0..8_000_u64).prop_map(Act::Pass),
        3 => lock().prop_map(Act::Enter),
        3 => (who(), 1..99_u64, retry, any::<bool>())
            .prop_map(|(who, order, retry, foreign)| Act::Queued(who, order, retry, foreign)),
        1 => (who(), any::<bool>()).prop_map(|(who, yes)| Act::InDoubt(who, yes)),
        1 => who().prop_map(Act::Leave),
        1 => (0..40_usize, lasts).prop_map(|(which, lasts)| Act::Message(which, lasts)),
        1 => lock().prop_map(Act::DoubtAll),
        9 => (lock(), replies()).prop_map(|(lock, reply)| Act::Beat(lock, reply)),
        1 => (lock(), any::<bool>()).prop_map(|(lock, passing)| Act::Fail(lock, passing)),
        1 => (lock(), who(), replies()).prop_map(|(lock, who, reply)| Act::Stray(lock, who, reply)),
    ]
}

type Checked<T = ()> = Result<T, String>;

fn ensure(yes: bool, what: impl FnOnce() -> String) -> Checked {
    if yes { Ok(()) } else { Err(what()) }
}

/// What is known of a waiter from outside.
struct Known {
    waiter: RequestId,
    lock: usize,
    owner: OwnerId,
    requests: BTreeSet<RequestId>,
    order: Option<u64>,
    left: bool,
    told: bool,
}

#[derive(Default)]
struct Play {
    waiters: Waiters<usize>,
    all: Vec<Known>,
    requests: Vec<RequestId>,
    now: Duration,
    /// Who must be asked about by the next heartbeat that does not fail.
    doubted: BTreeMap<usize, BTreeSet<usize>>,
    silent_since: BTreeMap<usize, Duration>,
    rounds: BTreeMap<usize, Round>,
    /// A waiter was told of another place, so that the order of a round means nothing.
    moved: bool,
}

/// A heartbeat that is under way.
#[derive(Default)]
struct Round {
    began: Duration,
    call: Option<Step>,
    doubted: BTreeSet<usize>,
    asked: BTreeSet<usize>,
}

fn lock(number: usize) -> LockName {
    LockName::new(LOCKS[number]).unwrap()
}

impl Play {
    fn fresh(&mut self) -> RequestId {
        let fresh = request(self.requests.len() as u64 + 1);
        self.requests.push(fresh);
        fresh
    }

    /// A grant of one of the requests that were ever made, or of none of them.
    fn grant(&self, which: usize) -> Grant {
        let request = self.requests.get(which).copied().unwrap_or_else(|| request(1_000_000));
        Grant { request, token: Token::new(1).unwrap(), ttl_ms: 30_000 }
    }

    /// A wait ends once, and only with a grant of a request of its waiter.
    fn told(&mut self, who: usize, by: Option<RequestId>) -> Checked {
        let known = &mut self.all[who];
        ensure(!known.told, || format!("waiter {who} is told twice"))?;
        ensure(!known.left, || format!("waiter {who} is told after it has left"))?;
        ensure(by.is_none_or(|by| known.requests.contains(&by)), || {
            format!("waiter {who} gets what {by:?} was granted")
        })?;
        known.told = true;
        Ok(())
    }

    fn ended(&mut self, granted: Option<Granted<usize>>) -> Checked {
        granted.map_or(Ok(()), |granted| self.told(granted.caller, Some(granted.grant.request)))
    }

    fn queue(&self, of: usize) -> BTreeSet<usize> {
        let queued = |known: &Known| known.lock == of && known.order.is_some();
        let waits = |known: &Known| queued(known) && !known.told && !known.left;
        (0..self.all.len()).filter(|who| waits(&self.all[*who])).collect()
    }

    fn leave(&mut self, who: usize) -> Checked {
        let left = self.waiters.leave(self.all[who].waiter);
        let known = &mut self.all[who];
        let Some(left) = left else {
            return ensure(known.left, || format!("waiter {who} cannot leave"));
        };
        ensure(!known.left, || format!("waiter {who} leaves twice"))?;
        known.left = true;
        ensure(left.caller.is_none() == known.told, || format!("{left:?} of waiter {who}"))?;
        ensure(left.caller.is_none_or(|caller| caller == who), || format!("{left:?}"))
    }

    fn act(&mut self, act: &Act) -> Checked {
        match act {
            Act::Pass(ms) => self.now += Duration::from_millis(*ms),
            Act::Enter(of) => {
                let (request, number) = (self.fresh(), self.all.len() as u64 + 1);
                let (owner, mode) = (ours(1, number), Mode::Wait);
                let acquisition =
                    Acquisition::new(Kind::Fair, owner.clone(), mode, 30_000, false, request);
                let waiter = self.waiters.enter(lock(*of), acquisition, self.all.len());
                let requests = BTreeSet::from([request]);
                let (lock, order) = (*of, None);
                let (left, told) = (false, false);
                self.all.push(Known { waiter, lock, owner, requests, order, left, told });
            }
            Act::Queued(who, order, retry, foreign) => {
                let Some(known) = self.all.get_mut(*who) else { return Ok(()) };
                let retry = retry.map(Duration::from_millis);
                let outlook = Outlook { retry, foreign: *foreign };
                let queued = self.waiters.queued(known.waiter, *order, outlook, PERIOD);
                if !known.left && !known.told {
                    self.moved |= known.order.replace(*order).is_some();
                    let soon = *foreign || retry.is_some_and(|retry| retry < PERIOD);
                    ensure(queued.look || !soon, || "nobody looks soon".to_owned())?;
                }
            }
            Act::InDoubt(who, in_doubt) => {
                if let Some(known) = self.all.get(*who) {
                    self.waiters.set_in_doubt(known.waiter, *in_doubt);
                }
            }
            Act::Leave(who) if *who < self.all.len() => self.leave(*who)?,
            Act::Leave(_) => {}
            Act::Message(which, lasts) => {
                if let Message::Granted(granted) = self.waiters.message(&self.grant(*which), *lasts)
                {
                    ensure(*lasts == Lasts::Still, || format!("granted, but {lasts:?}"))?;
                    self.ended(Some(granted))?;
                }
            }
            Act::DoubtAll(of) => {
                self.waiters.doubt_all(&lock(*of));
                let queue = self.queue(*of);
                self.doubted.entry(*of).or_default().extend(queue);
            }
            Act::Beat(of, reply) => self.beat(*of, reply)?,
            Act::Fail(of, passing) => {
                if self.rounds.get(of).is_some_and(|round| round.call.is_some()) {
                    self.fail(*of, *passing)?;
                }
            }
            Act::Stray(of, who, reply) => {
                let beaten = self.waiters.beaten(&lock(*of), self.beaten(reply));
                self.beat_heard(beaten)?;
                if let Some(known) = self.all.get(*who) {
                    let returned = self.waiters.returned(&lock(*of), known.waiter, back(reply));
                    self.back(returned)?;
                }
            }
        }
        Ok(())
    }

    fn beat_heard(&mut self, beaten: Result<Vec<Granted<usize>>, Mismatch>) -> Checked {
        let granted = beaten.map_err(|error| format!("{error:?}"))?;
        ensure(granted.len() <= 1, || format!("a lock is held once: {granted:?}"))?;
        self.ended(granted.into_iter().next())
    }

    fn beaten(&self, reply: &Reply) -> Body {
        Body::Beaten {
            held: reply.held.map(|which| self.grant(which)),
            queued: reply.queued.clone(),
            retry_ms: reply.retry,
            foreign: reply.foreign,
        }
    }

    fn back(&mut self, returned: Result<Returned<usize>, Mismatch>) -> Checked<bool> {
        match returned {
            Ok(Returned::InPlace(ended)) => self.ended(ended).map(|()| true),
            Ok(Returned::NotYet) => Ok(true),
            Err(Mismatch) => Ok(false),
        }
    }

    fn beat(&mut self, of: usize, reply: &Reply) -> Checked {
        let name = lock(of);
        if !self.rounds.contains_key(&of) {
            if let Due::Over(_) = self.waiters.due(&name, self.now, reply.foreign) {
                return ensure(self.queue(of).is_empty(), || "heartbeats end early".to_owned());
            }
            let doubted = self.doubted.remove(&of).unwrap_or_default();
            let round = Round { began: self.now, doubted, ..Round::default() };
            self.rounds.insert(of, round);
        }
        let call = self.rounds.get_mut(&of).and_then(|round| round.call.take());
        match call {
            Some(Step::Ask(_)) => {
                let beaten = self.waiters.beaten(&name, self.beaten(reply));
                self.beat_heard(beaten)
            }
            Some(Step::Return(waiter)) => {
                self.waiters.set_in_doubt(waiter, reply.foreign);
                let returned = self.waiters.returned(&name, waiter, back(reply));
                if self.back(returned)? { Ok(()) } else { self.fail(of, false) }
            }
            _ => self.step(of),
        }
    }

    fn step(&mut self, of: usize) -> Checked {
        let name = lock(of);
        let step = self.waiters.step(&name);
        match &step {
            Step::Ask(owners) => {
                let asked = self.asked(of, owners)?;
                self.rounds.entry(of).or_default().asked.extend(asked);
            }
            Step::Return(waiter) => {
                let fresh = self.fresh();
                let Some(sent) = self.waiters.return_to_place(*waiter, fresh, 0) else {
                    return Err(format!("{waiter:?} cannot return"));
                };
                let mine = self.all.iter_mut().find(|known| known.waiter == *waiter).unwrap();
                ensure(sent.order == mine.order, || format!("{sent:?}: another place"))?;
                mine.requests.insert(sent.request);
            }
            Step::Listen { owner, former } => {
                return ensure(former.as_ref() != Some(owner), || format!("{owner}, twice"));
            }
            Step::Rest => {
                let wait = self.waiters.rest(&name, PERIOD, LEAST, 0.5);
                ensure(wait <= PERIOD, || format!("the next one comes after {wait:?}"))?;
                self.silent_since.remove(&of);
                let round = self.rounds.remove(&of).unwrap_or_default();
                let doubted = &round.doubted & &self.queue(of);
                return ensure(doubted.is_subset(&round.asked), || {
                    format!("of {doubted:?} only {:?} were asked about", round.asked)
                });
            }
        }
        self.rounds.entry(of).or_default().call = Some(step);
        Ok(())
    }

    /// Whom a call asks about: waiters of this lock that wait, each once, the oldest first.
    fn asked(&self, of: usize, owners: &[OwnerId]) -> Checked<Vec<usize>> {
        let who = |owner: &OwnerId| self.all.iter().position(|known| known.owner == *owner);
        let asked: Vec<_> = owners.iter().filter_map(who).collect();
        let queue = self.queue(of);
        let orders: Vec<_> = asked.iter().map(|who| self.all[*who].order).collect();
        let in_order = self.moved || orders.is_sorted();
        let right = asked.iter().all(|who| queue.contains(who)) && in_order;
        let each_once = asked.iter().collect::<BTreeSet<_>>().len() == owners.len();
        ensure(right && each_once, || format!("asks about {asked:?} of {queue:?}"))?;
        Ok(asked)
    }

    fn fail(&mut self, of: usize, passing: bool) -> Checked {
        let Some(round) = self.rounds.remove(&of) else { return Ok(()) };
        let waits = passing.then_some(TIMEOUT);
        let failed = self.waiters.failed(&lock(of), (round.began, self.now), waits, PERIOD);
        self.doubted.entry(of).or_default().extend(round.doubted);
        let silent = passing.then(|| *self.silent_since.entry(of).or_insert(round.began));
        let over = silent.is_none_or(|since| self.now - since >= TIMEOUT);
        let expected = if over { self.queue(of) } else { BTreeSet::new() };
        let ended: BTreeSet<_> = failed.over.iter().map(|(_, who)| *who).collect();
        for who in &ended {
            self.told(*who, None)?;
        }
        ensure(ended == expected, || {
            format!("{ended:?} fail, silent since {silent:?}, now {:?}", self.now)
        })
    }

    /// Everybody leaves. Nothing remains.
    fn finish(mut self) -> Checked {
        for who in 0..self.all.len() {
            self.leave(who)?;
        }
        for of in 0..LOCKS.len() {
            let due = self.waiters.due(&lock(of), self.now, false);
            ensure(matches!(due, Due::Over(_)), || format!("{due:?} for nobody"))?;
        }
        ensure(self.waiters == Waiters::default(), || format!("{:?} remains", self.waiters))
    }
}

/// The reply to a waiter that returns to its place.
fn back(reply: &Reply) -> Body {
    match reply.body {
        0 => Body::Granted { token: Token::new(1).unwrap(), ttl_ms: 30_000 },
        1 | 2 => {
            let (retry_ms, foreign) = (reply.retry, reply.foreign);
            Body::Queued { order: 1, retry_ms, foreign, length: 1 }
        }
        3 => Body::TooLate,
        4 => Body::Buried,
        _ => Body::Nudged,
    }
}

fn play(case: &[Act]) -> Checked {
    let mut play = Play::default();
    for (place, act) in case.iter().enumerate() {
        play.act(act).map_err(|what| format!("act {place}: {what}"))?;
    }
    play.finish()
}

#[test]
fn random_inputs_end_every_wait_once_and_leave_nothing() {
    let strategy = prop::collection::vec(acts(), 1..ACTS_MAX);
    play_cases(CASES, &strategy, |acts| play(acts), |acts| format!("{acts:#?}"));
}
