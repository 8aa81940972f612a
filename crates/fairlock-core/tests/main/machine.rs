//! Random sequences of inputs on the machine of a client with acquisitions of all kinds: copies that are lost, carried
//! out late, or answered with anything; grants by message, calls that fail, callers that go away, drivers that end, steps
//! that are taken late, and inputs that nobody asked for.
//!
//! A record kept outside says of each request what a store may know of it. In the end every acquisition is driven to its
//! end, which must come, and come once (K13); whatever a store may still know or carry out must be in the hold, or taken
//! back (K14).
//!
//! `FAIRLOCK_CASES=n` plays n other cases and prints the seed; `FAIRLOCK_SEED=n` repeats them.

use crate::support::{ours, play_cases, request};
use fairlock_core::client::acquiring::{Failure, FailureKind, Held, Outcome, Step, Wanted, Work};
use fairlock_core::client::{AttemptId, Client, Effect, Mismatch, Renewed, Surroundings};
use fairlock_core::{Body, Grant, Kind, LockName, Mode, Op, RequestId, Token};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const CASES: u32 = 4_000;
const ACTS_MAX: usize = 80;
const LEASE_MS: u64 = 30_000;
const PERIOD: Duration = Duration::from_secs(2);

/// What to do, with which acquisition, and how. Numbers are taken modulo what there is.
type Act = (u8, u8, u16);

type Checked<T = ()> = Result<T, String>;

fn ensure(yes: bool, what: impl FnOnce() -> String) -> Checked {
    if yes { Ok(()) } else { Err(what()) }
}

struct Around {
    ms: u64,
    connected: bool,
    drawn: u64,
    randomness: bool,
}

impl Surroundings<u8> for Around {
    fn now_ns(&self) -> u64 {
        self.ms * 1_000_000
    }

    fn is_connected(&self, _: &LockName) -> bool {
        self.connected
    }

    fn is_deaf(&self) -> bool {
        true
    }

    fn not_after_ms(&self, _: &LockName) -> u64 {
        0
    }

    fn late_ms(&self, _: &LockName) -> u64 {
        0
    }

    fn beat_every(&self, _: &LockName) -> Duration {
        PERIOD
    }

    fn draw(&mut self) -> Result<RequestId, u8> {
        self.drawn += 1;
        if self.randomness { Ok(request(self.drawn)) } else { Err(1) }
    }
}

/// What a store may know of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// How many copies are under way, or nobody knows what became of them.
    copies: u32,
    /// It is in the queue, or has the lock.
    effect: bool,
}

#[derive(Debug)]
struct One {
    id: AttemptId,
    kind: Kind,
    work: Option<(u32, Work)>,
    /// The last request that was sent, and whether it is in the queue.
    asked: Option<RequestId>,
    queued: bool,
    known: BTreeMap<RequestId, Known>,
    /// What was taken back, and whether it was buried.
    taken_back: BTreeMap<RequestId, bool>,
    /// It waits for the end of that, or of a give-back.
    waits_for_taking: bool,
    waits_for_giving: bool,
    returns: u32,
    ended: Option<Option<Held>>,
    /// The wait has a limit, or its caller or client has gone.
    may_end_without: bool,
}

struct Play {
    client: Client<usize, u8>,
    all: Vec<One>,
    now_ms: u64,
    drawn: u64,
}

fn name() -> LockName {
    LockName::new(b"job").expect("a name")
}

fn token() -> Token {
    Token::new(5).expect("a token")
}

fn wanted(how: u16) -> Wanted {
    let bit = |bit: u16| how & (1 << bit) != 0;
    let kind = [Kind::Fair, Kind::Fair, Kind::Plain, Kind::Simple][usize::from(how % 4)];
    Wanted {
        kind,
        share: fairlock_core::Share::Whole,
        mode: if bit(2) && bit(3) { Mode::Try } else { Mode::Wait },
        lease_ms: LEASE_MS,
        renewed: bit(4),
        max_hold: bit(5).then_some(Duration::from_secs(60)),
        until_ns: bit(6).then_some(2_000_000_000),
        shared_owner: bit(7),
        may_be_cut: false,
        java_fleet: false,
        replicas_ms: bit(8).then_some(1_000),
        store_timeout_ms: 3_000,
        period_ms: 2_000,
    }
}

impl One {
    fn note_taken_back<'a>(&mut self, ops: impl IntoIterator<Item = &'a Op>) -> Checked {
        for op in ops {
            let Op::Leave { request, bury, .. } = op else { return Err(format!("{op:?}")) };
            *self.taken_back.entry(*request).or_default() |= bury;
        }
        Ok(())
    }

    fn follow(&mut self, effect: Effect) -> Checked {
        match effect {
            Effect::TakeBack { op, then, .. } => {
                self.waits_for_taking |= then.is_some();
                self.note_taken_back([&*op])?;
            }
            Effect::GiveBack { held, .. } => {
                self.waits_for_giving = true;
                self.note_taken_back([&held.acquisition.leave(true)])?;
                self.note_taken_back(&held.acquisition.doubtful().collect::<Vec<_>>())?;
            }
            Effect::Queued { .. } => self.queued = true,
            _ => {}
        }
        Ok(())
    }
}

impl Play {
    fn begin(&mut self, how: u16) -> Checked {
        self.drawn += 1;
        let (first, wanted, number) = (request(self.drawn), wanted(how), self.all.len());
        let owner = ours(7, self.drawn);
        let id = self.give(how, |client, around| {
            client.ask(around, (name(), wanted), (owner, first), number)
        });
        self.all.push(One {
            id,
            kind: wanted.kind,
            work: None,
            asked: None,
            queued: false,
            known: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            waits_for_taking: false,
            waits_for_giving: false,
            returns: 0,
            ended: None,
            may_end_without: wanted.until_ns.is_some() || wanted.mode == Mode::Try,
        });
        self.follow()?;
        self.take(number)
    }

    fn give<R>(
        &mut self,
        how: u16,
        input: impl FnOnce(&mut Client<usize, u8>, &mut Around) -> R,
    ) -> R {
        let (connected, randomness) = (how % 8 != 7, how % 9 != 8);
        let (ms, drawn) = (self.now_ms, self.drawn);
        let mut around = Around { ms, connected, drawn, randomness };
        let result = input(&mut self.client, &mut around);
        self.drawn = around.drawn;
        result
    }

    fn follow(&mut self) -> Checked {
        for (which, effect) in self.client.outputs() {
            self.all[which].follow(effect)?;
        }
        Ok(())
    }

    /// An input about one acquisition. What it does next may be taken later.
    fn input(
        &mut self,
        which: usize,
        how: u16,
        input: impl FnOnce(&mut Client<usize, u8>, &mut Around, AttemptId),
    ) -> Checked {
        let id = self.all[which].id;
        self.give(how, |client, around| input(client, around, id));
        self.follow()?;
        if how & 2 == 0 { self.take(which) } else { Ok(()) }
    }

    /// Takes what the acquisition does next.
    fn take(&mut self, which: usize) -> Checked {
        let one = &mut self.all[which];
        let (step, _) = self.client.take(one.id);
        ensure(one.ended.is_none() || matches!(step, Step::Wait), || {
            format!("K13: {step:?} after the end")
        })?;
        match step {
            Step::Wait => {}
            Step::Begin(number, work) => {
                if let Work::Send(Op::Acquire(sent)) = &work {
                    one.known.entry(sent.request).or_default().copies += 1;
                    one.queued &= one.asked == Some(sent.request);
                    one.asked = Some(sent.request);
                }
                one.work = Some((number, work));
            }
            Step::Done(outcome) => {
                one.work = None;
                ensure(one.may_end_without || !matches!(outcome, Outcome::None), || {
                    format!("K13: a wait without a limit ends with nothing: {one:?}")
                })?;
                one.ended = Some(match outcome {
                    Outcome::Held(held) => Some(held),
                    Outcome::None | Outcome::Failed(_) => None,
                });
            }
        }
        Ok(())
    }

    /// The reply to a copy, or its failure.
    fn reply(&mut self, which: usize, number: u32, op: &Op, how: u16) -> Checked {
        let base_ns = (self.now_ms - u64::from(how % 3)) * 1_000_000;
        let Op::Acquire(op) = op else { return Err(format!("{op:?}")) };
        let one = &mut self.all[which];
        let ttl_ms = if how & 64 == 0 { LEASE_MS } else { u64::from(how % 40) };
        let body = match how / 128 % 16 {
            0..=2 => Body::Granted { token: token(), ttl_ms },
            // By any request that was sent, or another one.
            3 => {
                let sent = one.known.keys().nth(usize::from(how) % (one.known.len() + 1));
                let request = sent.copied().unwrap_or_else(|| request(9_999));
                Body::GrantedBefore(Grant { request, token: token(), ttl_ms })
            }
            4..=6 => Body::Queued { order: 7, retry_ms: None, foreign: false, length: 1 },
            7 => Body::Busy { ttl_ms: Some(5) },
            8 => Body::Taken { ttl_ms: None, foreign: true },
            9 => Body::HeldBySelf { count: 1 },
            10 => Body::TooLate,
            11 => Body::Buried,
            12 => Body::Renewed,
            kind => {
                let (doubt, passing) = (kind != 13, kind != 15);
                let known = one.known.entry(op.request).or_default();
                known.effect |= doubt;
                known.copies -= u32::from(!doubt);
                let kinds = [FailureKind::Unavailable, FailureKind::Denied, FailureKind::Other];
                let kind = kinds[usize::from(how % 3)];
                let failure = Failure { error: 2, doubt, passing, kind };
                return self
                    .input(which, how, |it, around, id| it.failed(around, (id, number), failure));
            }
        };
        let (fair, waits) = (one.kind == Kind::Fair, op.mode == Mode::Wait);
        let understood = match &body {
            Body::Renewed => false,
            Body::Queued { .. } => fair && waits,
            Body::Taken { .. } => !fair,
            Body::GrantedBefore(grant) => one.known.contains_key(&grant.request),
            _ => true,
        };
        // No store says so to a request that waits in a queue.
        one.may_end_without |= fair && waits && matches!(body, Body::Busy { .. });
        let known = one.known.entry(op.request).or_default();
        known.copies -= u32::from(understood);
        // What became of a request whose reply says something else is unknown.
        let granted = matches!(body, Body::Granted { .. } | Body::Queued { .. });
        known.effect |= granted || !understood;
        let answer = (body, how & 1 == 1);
        self.input(which, how, |it, around, id| {
            it.answered(around, (id, number), answer, base_ns);
        })
    }

    /// What is under way ends.
    fn work(&mut self, which: usize, how: u16) -> Checked {
        let one = &mut self.all[which];
        if one.waits_for_taking && how & 4 == 0 {
            one.waits_for_taking = false;
            return self.input(which, how, |it, around, id| it.taken_back(around, id, true));
        }
        if one.waits_for_giving && how & 4 == 0 {
            one.waits_for_giving = false;
            return self.input(which, how, |it, around, id| it.given_back(around, id));
        }
        let Some((number, work)) = one.work.take() else { return self.take(which) };
        match work {
            Work::Send(op) => self.reply(which, number, &op, how),
            Work::Nothing => Ok(()),
            Work::Pause { .. } | Work::Rest { .. } | Work::Connection { .. } => {
                self.input(which, how, |it, around, id| it.rested(around, (id, number)))
            }
            Work::Subscribe if how % 9 == 8 => self.fail(which, number, how),
            Work::Subscribe => {
                self.input(which, how, |it, around, id| it.subscribed(around, (id, number)))
            }
            Work::Confirm(_) => {
                let answer = match how % 8 {
                    0..=2 => Ok(Renewed::Whole),
                    3 | 4 => Ok(Renewed::Gone { holder: None }),
                    5 => Err(Mismatch),
                    _ => return self.fail(which, number, how),
                };
                let (missing, now) = ((how / 8 % 3 == 2).then_some(3), self.now_ms * 1_000_000);
                self.input(which, how, |it, around, id| {
                    it.confirmed(around, (id, number), answer, missing, now);
                })
            }
        }
    }

    fn fail(&mut self, which: usize, number: u32, how: u16) -> Checked {
        let (doubt, passing) = (how & 16 != 0, how & 32 != 0);
        let failure = Failure { error: 4, doubt, passing, kind: FailureKind::Unavailable };
        self.input(which, how, |it, around, id| it.failed(around, (id, number), failure))
    }

    fn message(&mut self, which: usize, how: u16) -> Checked {
        let one = &self.all[which];
        let all: Vec<_> = one.known.keys().copied().collect();
        if one.kind != Kind::Fair || all.is_empty() {
            return Ok(());
        }
        let request = all[usize::from(how) % all.len()];
        let ttl_ms = if how & 64 == 0 { LEASE_MS } else { 20 };
        let grant = Grant { request, token: token(), ttl_ms };
        let now_ns = self.now_ms * 1_000_000;
        // Whatever is granted was carried out.
        if self.give(how, |it, around| it.granted(around, &grant, Some(now_ns))) {
            self.all[which].known.entry(request).or_default().effect = true;
        }
        self.follow()
    }

    /// A heartbeat brings a waiter back to its place.
    fn comes_back(&mut self, which: usize, how: u16) -> Checked {
        let one = &self.all[which];
        // Only a waiter that is in the queue is asked about.
        let Some(waiter) = one.asked.filter(|_| one.queued && one.returns < 3) else {
            return Ok(());
        };
        let sent = self.give(how, |it, around| it.return_to_place(around, &name(), waiter));
        let Ok(Some(Op::Acquire(sent))) = sent else { return Ok(()) };
        let one = &mut self.all[which];
        one.returns += 1;
        let known = one.known.entry(sent.request).or_default();
        known.copies += 1;
        known.effect = true;
        let body = match how % 3 {
            0 => Body::Granted { token: token(), ttl_ms: LEASE_MS },
            1 => Body::Queued { order: 7, retry_ms: None, foreign: false, length: 1 },
            _ => return Ok(()),
        };
        known.copies -= 1;
        let in_doubt = known.copies > 0;
        let now_ns = self.now_ms * 1_000_000;
        let returned = self.give(how, |it, around| {
            it.set_in_doubt(waiter, in_doubt);
            it.returned(around, &name(), waiter, body, now_ns)
        });
        returned.map_err(|error| format!("{error:?}"))?;
        self.follow()
    }

    /// An input that nobody asked for.
    fn stray(&mut self, which: usize, how: u16) -> Checked {
        let number = (self.all[which].id, u32::from(how / 16) + 1_000_000);
        let body = Body::Granted { token: token(), ttl_ms: LEASE_MS };
        let failure = Failure { error: 4, doubt: true, passing: true, kind: FailureKind::Other };
        let before = self.client.clone();
        self.give(how, |it, around| match how % 5 {
            0 => it.answered(around, number, (body, false), 0),
            1 => it.rested(around, number),
            2 => it.subscribed(around, number),
            3 => it.confirmed(around, number, Ok(Renewed::Whole), None, 0),
            _ => it.failed(around, number, failure),
        });
        ensure(before == self.client, || "a stray input counts".into())
    }

    fn abandon(&mut self, which: usize, how: u16) -> Checked {
        let one = &mut self.all[which];
        if one.ended.is_some() {
            return Ok(());
        }
        (one.ended, one.work) = (Some(None), None);
        let id = one.id;
        self.give(how, |it, around| it.abandon(around, id));
        self.follow()
    }

    fn act(&mut self, (what, which, how): Act) -> Checked {
        if what % 16 == 0 && self.all.len() < 3 {
            return self.begin(how);
        }
        if self.all.is_empty() {
            return Ok(());
        }
        let which = usize::from(which) % self.all.len();
        match what % 16 {
            1..=3 => self.take(which),
            4..=8 => self.work(which, how),
            9 => self.message(which, how),
            10 => self.comes_back(which, how),
            11 => {
                self.now_ms += u64::from(how % 1_000);
                (0..self.all.len()).try_for_each(|which| {
                    self.input(which, how, |it, around, id| it.time(around, id))
                })
            }
            12 if how % 4 <= 1 => {
                self.all[which].may_end_without = true;
                self.input(which, how, |it, around, id| match how % 4 {
                    0 => it.gone(around, id),
                    _ => it.closed(around, id),
                })
            }
            13 => {
                self.give(how, |it, around| it.wake(around, &name()));
                self.follow()
            }
            14 if how % 4 == 0 => {
                let began = (&name(), self.now_ms * 1_000_000);
                self.give(how, |it, around| it.beat_failed(around, began, None, PERIOD, |_| 5));
                self.follow()
            }
            15 if how % 16 == 0 => self.abandon(which, how),
            15 => self.stray(which, how),
            _ => Ok(()),
        }
    }

    /// Drives every acquisition to its end.
    fn finish(&mut self) -> Checked {
        for which in 0..self.all.len() {
            self.all[which].may_end_without = true;
            self.input(which, 0, |it, around, id| it.gone(around, id))?;
            let mut inputs = 0;
            while self.all[which].ended.is_none() {
                inputs += 1;
                let one = &self.all[which];
                ensure(inputs < 200, || format!("K13: it never ends: {one:?} {:?}", self.client))?;
                // Calls fail for good, and pauses end.
                match &one.work {
                    Some((number, Work::Send(_) | Work::Confirm(_) | Work::Subscribe)) => {
                        let number = *number;
                        self.all[which].work = None;
                        self.fail(which, number, 16)?;
                    }
                    _ => self.work(which, 0)?,
                }
                if let Some(deadline_ns) = self.client.deadline_ns(self.all[which].id) {
                    self.now_ms = self.now_ms.max(deadline_ns.div_ceil(1_000_000));
                    self.input(which, 0, |it, around, id| it.time(around, id))?;
                }
                self.take(which)?;
            }
            self.nothing_remains(which)?;
        }
        // The next heartbeat is the last one.
        self.give(0, |it, around| it.due(around, &name(), true));
        ensure(self.client.is_idle(), || format!("{:?} remains", self.client))
    }

    /// K14.
    fn nothing_remains(&self, which: usize) -> Checked {
        let one = &self.all[which];
        let held = one.ended.as_ref().and_then(Option::as_ref);
        let doubtful: Vec<_> = held.iter().flat_map(|held| held.acquisition.doubtful()).collect();
        for (request, known) in &one.known {
            let buried = one.taken_back.get(request) == Some(&true)
                || doubtful
                    .iter()
                    .any(|op| matches!(op, Op::Leave { request: it, .. } if it == request));
            let present = held.is_some_and(|held| held.acquisition.request() == *request);
            let settled = buried || present || one.taken_back.contains_key(request);
            ensure(buried || known.copies == 0, || {
                format!("K14: {request:?} is in doubt and not buried: {one:?}")
            })?;
            ensure(settled || !known.effect, || {
                format!("K14: {request:?} may have an effect and is forgotten: {one:?}")
            })?;
        }
        Ok(())
    }
}

fn play(case: &[Act]) -> Checked {
    let mut play = Play { client: Client::default(), all: Vec::new(), now_ms: 100, drawn: 0 };
    for (place, act) in case.iter().enumerate() {
        play.act(*act).map_err(|what| format!("act {place}: {what}"))?;
    }
    play.finish()
}

#[test]
fn random_inputs_end_every_acquisition_once_and_nothing_remains() {
    let first = (Just(0_u8), any::<u8>(), any::<u16>());
    let acts = prop::collection::vec((1..17_u8, any::<u8>(), any::<u16>()), 1..ACTS_MAX);
    let acts = (first, acts).prop_map(|(first, mut acts)| {
        acts.insert(0, first);
        acts
    });
    play_cases(CASES, &acts, |case| play(case), |case| format!("{case:#?}"));
}
