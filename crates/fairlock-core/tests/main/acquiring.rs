//! Random sequences of inputs on acquisitions of all kinds, and on the waiters that they share:
//! copies that are lost, carried out late, or answered with anything; grants by message, calls that
//! fail, callers that go away, and inputs that nobody asked for.
//!
//! A record kept outside says of each request what a store may know of it. In the end every
//! acquisition is driven to its end, which must come, and come once (K13); whatever a store may
//! still know or carry out must be in the hold, or taken back (K14).
//!
//! `FAIRLOCK_CASES=n` plays n other cases and prints the seed; `FAIRLOCK_SEED=n` repeats them.

use crate::support::{ours, play_cases, request};
use fairlock_core::client::acquiring::{
    Acquiring, At, Failure, FailureKind, Held, Outcome, Step, Wanted, Work,
};
use fairlock_core::client::{Lasts, Message, Mismatch, Renewed, Returned, Waiters};
use fairlock_core::{Body, Grant, Kind, LockName, Mode, Op, RequestId, Token};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const CASES: u32 = 4_000;
const ACTS_MAX: usize = 80;
const LEASE_MS: u64 = 30_000;

/// What to do, with which acquisition, and how. Numbers are taken modulo what there is.
type Act = (u8, u8, u16);

type Checked<T = ()> = Result<T, String>;

fn ensure(yes: bool, what: impl FnOnce() -> String) -> Checked {
    if yes { Ok(()) } else { Err(what()) }
}

/// What a store may know of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// How many copies are under way, or nobody knows what became of them.
    copies: u32,
    /// It is in the queue, or has the lock.
    effect: bool,
}

/// Whose wait is over, and how: with a grant that counts from a moment, or an error.
type Handed = (RequestId, Result<(Grant, u64), u8>);

#[derive(Debug)]
struct One {
    it: Acquiring<u8>,
    kind: Kind,
    waiter: Option<RequestId>,
    /// The waiters know its place.
    queued: bool,
    /// What the waiters have handed out and nobody has passed in yet.
    handed: Option<Handed>,
    /// The step that is being carried out at once.
    todo: Option<Step<u8>>,
    work: Option<(u32, Work)>,
    known: BTreeMap<RequestId, Known>,
    /// What was taken back, and whether it was buried.
    taken_back: BTreeMap<RequestId, bool>,
    returns: u32,
    ended: Option<Option<Held>>,
    /// The wait has a limit, or its caller or client has gone.
    may_end_without: bool,
}

struct Play {
    waiters: Waiters<(usize, RequestId)>,
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
        at_once: bit(9),
        store_timeout_ms: 3_000,
        period_ms: 2_000,
    }
}

impl One {
    fn take_back<'a>(&mut self, ops: impl IntoIterator<Item = &'a Op>) -> Checked {
        for op in ops {
            let Op::Leave { request, bury, .. } = op else { return Err(format!("{op:?}")) };
            *self.taken_back.entry(*request).or_default() |= bury;
        }
        Ok(())
    }

    fn leaves(&mut self) -> Option<RequestId> {
        self.queued = false;
        self.waiter.take()
    }
}

impl Play {
    fn at(&self, how: u16) -> At {
        At { ns: self.now_ms * 1_000_000, connected: how % 8 != 7 }
    }

    fn draw(&mut self) -> RequestId {
        self.drawn += 1;
        request(self.drawn)
    }

    fn begin(&mut self, how: u16) -> Checked {
        let (first, wanted) = (self.draw(), wanted(how));
        let owner = ours(7, self.drawn);
        let one = One {
            it: Acquiring::new(wanted, owner, first),
            kind: wanted.kind,
            waiter: None,
            queued: false,
            handed: None,
            todo: None,
            work: None,
            known: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            returns: 0,
            ended: None,
            may_end_without: wanted.until_ns.is_some() || wanted.mode == Mode::Try,
        };
        self.all.push(one);
        let at = self.at(how);
        self.input(self.all.len() - 1, |it| it.start(at))
    }

    fn input(
        &mut self,
        which: usize,
        input: impl FnOnce(&mut Acquiring<u8>) -> Step<u8>,
    ) -> Checked {
        let one = &mut self.all[which];
        let step = input(&mut one.it);
        if !matches!(step, Step::Wait) {
            // It no longer stands in line, or waits for what is given back.
            one.todo.take_if(|todo| {
                matches!(todo, Step::Turn | Step::TakeBack { wait: true, .. } | Step::GiveBack(_))
            });
            ensure(one.ended.is_none(), || format!("K13: {step:?} after the end"))?;
            ensure(one.todo.is_none(), || format!("{step:?} while {:?} is done", one.todo))?;
        }
        match step {
            Step::Wait => {}
            Step::Begin(number, work) => {
                if matches!(work, Work::Send { .. }) {
                    let op = one.it.op(true, 0);
                    one.known.entry(op.request).or_default().copies += 1;
                }
                one.work = Some((number, work));
            }
            Step::Done(outcome) => {
                one.work = None;
                ensure(one.may_end_without || !matches!(outcome, Outcome::None), || {
                    format!("K13: a wait without a limit ends with nothing: {:?}", one.it)
                })?;
                one.ended = Some(match outcome {
                    Outcome::Held(held) => Some(held),
                    Outcome::None | Outcome::Failed(_) => None,
                });
            }
            step => {
                if matches!(step, Step::Leave { .. }) {
                    one.work = None;
                }
                match &step {
                    Step::TakeBack { ops, .. } => one.take_back(ops)?,
                    Step::GiveBack(held) => {
                        one.take_back([&held.acquisition.leave(true)])?;
                        one.take_back(&held.acquisition.doubtful().collect::<Vec<_>>())?;
                    }
                    _ => {}
                }
                one.todo = Some(step);
            }
        }
        Ok(())
    }

    /// Carries out what is to be done at once.
    fn carry_out(&mut self, which: usize, how: u16) -> Checked {
        let at = self.at(how);
        let Some(step) = self.all[which].todo.take() else { return Ok(()) };
        match step {
            Step::Enter => {
                let acquisition = self.all[which].it.acquisition().clone();
                let waiter = {
                    let caller = (which, acquisition.request());
                    self.waiters.enter(name(), acquisition, caller)
                };
                self.all[which].waiter = Some(waiter);
                self.input(which, |it| it.entered(at))
            }
            Step::Turn => {
                // It stands in line until its turn comes.
                let waits = how.is_multiple_of(2);
                self.all[which].todo = waits.then_some(Step::Turn);
                let handed_down = (how & 8 != 0).then_some(at.ns + u64::from(how) * 100_000);
                if waits { Ok(()) } else { self.input(which, |it| it.turn(at, handed_down)) }
            }
            Step::Queued { order, outlook, in_doubt, .. } => {
                let waiter = self.all[which].waiter.expect("it entered");
                self.waiters.set_in_doubt(waiter, in_doubt);
                self.all[which].queued = true;
                let _ = self.waiters.queued(waiter, order, outlook, Duration::from_secs(2));
                self.input(which, |it| it.noted(at))
            }
            Step::Leave { .. } => match self.all[which].leaves() {
                Some(waiter) => {
                    let left = self.waiters.leave(waiter).expect("it is there");
                    let over = left.caller.is_none();
                    self.input(which, |it| it.left_queue(at, left.acquisition, over))
                }
                None => self.input(which, |it| it.left_line(at)),
            },
            Step::TakeBack { .. } => self.input(which, |it| it.taken_back(at, true)),
            Step::GiveBack(_) => self.input(which, |it| it.given_back(at)),
            Step::Draw if how % 9 == 8 => self.input(which, |it| it.not_drawn(at, 1)),
            Step::Draw => {
                let fresh = self.draw();
                self.input(which, |it| it.drawn(at, fresh))
            }
            step => Err(format!("{step:?} is not done at once")),
        }
    }

    /// The reply to a copy, or its failure.
    fn reply(&mut self, which: usize, number: u32, how: u16) -> Checked {
        let (at, base_ns) = (self.at(how), (self.now_ms - u64::from(how % 3)) * 1_000_000);
        let one = &mut self.all[which];
        let op = one.it.op(true, 0);
        one.known.entry(op.request).or_default();
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
                return self.input(which, |it| it.failed(at, number, failure));
            }
        };
        let (fair, waits) = (one.kind == Kind::Fair, op.mode == Mode::Wait);
        let understood = match &body {
            Body::Renewed => false,
            Body::Queued { .. } => fair && waits,
            Body::Taken { .. } => !fair,
            Body::GrantedBefore(grant) => one.it.acquisition().may_have(grant.request),
            _ => true,
        };
        // No store says so to a request that waits in a queue.
        one.may_end_without |= fair && waits && matches!(body, Body::Busy { .. });
        let known = one.known.entry(op.request).or_default();
        known.copies -= u32::from(understood);
        // What became of a request whose reply says something else is unknown.
        let granted = matches!(body, Body::Granted { .. } | Body::Queued { .. });
        known.effect |= granted || !understood;
        self.input(which, |it| it.answered(at, number, (body, how & 1 == 1), base_ns))
    }

    /// What is under way ends.
    fn work(&mut self, which: usize, how: u16) -> Checked {
        let at = self.at(how);
        let Some((number, work)) = self.all[which].work.take() else { return Ok(()) };
        match work {
            Work::Send { at_once: true } if how % 5 == 4 => {
                let one = &mut self.all[which];
                let request = one.it.op(true, 0).request;
                one.known.entry(request).or_default().copies -= 1;
                self.input(which, |it| it.not_at_once(at, number))
            }
            Work::Send { .. } => self.reply(which, number, how),
            Work::Pause { .. } | Work::Rest { .. } | Work::Connection { .. } => {
                self.input(which, |it| it.rested(at, number))
            }
            Work::Subscribe if how % 9 == 8 => self.fail(which, number, how),
            Work::Subscribe => self.input(which, |it| it.listened(at, number)),
            Work::Confirm { .. } => {
                let answer = match how % 8 {
                    0..=2 => Ok(Renewed::Whole),
                    3 | 4 => Ok(Renewed::Gone { holder: None }),
                    5 => Err(Mismatch),
                    _ => return self.fail(which, number, how),
                };
                let missing = (how / 8 % 3 == 2).then_some(3);
                self.input(which, |it| it.confirmed(at, number, answer, missing, at.ns))
            }
        }
    }

    fn fail(&mut self, which: usize, number: u32, how: u16) -> Checked {
        let (at, doubt, passing) = (self.at(how), how & 16 != 0, how & 32 != 0);
        let failure = Failure { error: 4, doubt, passing, kind: FailureKind::Unavailable };
        self.input(which, |it| it.failed(at, number, failure))
    }

    fn message(&mut self, which: usize, how: u16) {
        let one = &self.all[which];
        let all: Vec<_> = one.known.keys().copied().collect();
        if one.kind != Kind::Fair || all.is_empty() {
            return;
        }
        let request = all[usize::from(how) % all.len()];
        let ttl_ms = if how & 64 == 0 { LEASE_MS } else { 20 };
        let grant = Grant { request, token: token(), ttl_ms };
        // Whatever is granted was carried out.
        if let Message::Granted(granted) = self.waiters.message(&grant, Lasts::Still) {
            let (which, waiter) = granted.caller;
            let one = &mut self.all[which];
            one.known.entry(request).or_default().effect = true;
            one.handed = Some((waiter, Ok((grant, self.now_ms * 1_000_000))));
        }
    }

    /// A heartbeat brings a waiter back to its place.
    fn comes_back(&mut self, which: usize, how: u16) {
        let one = &self.all[which];
        let Some(waiter) = one.waiter.filter(|_| one.returns < 3) else { return };
        // Only a waiter that is in the queue is asked about.
        if !one.queued {
            return;
        }
        let fresh = self.draw();
        let Some(sent) = self.waiters.return_to_place(waiter, fresh, 0) else { return };
        let one = &mut self.all[which];
        one.returns += 1;
        let known = one.known.entry(sent.request).or_default();
        known.copies += 1;
        known.effect = true;
        let body = match how % 3 {
            0 => Body::Granted { token: token(), ttl_ms: LEASE_MS },
            1 => Body::Queued { order: 7, retry_ms: None, foreign: false, length: 1 },
            _ => return,
        };
        if let Ok(Returned::InPlace(granted)) = self.waiters.returned(&name(), waiter, body) {
            known.copies -= 1;
            self.waiters.set_in_doubt(waiter, known.copies > 0);
            if let Some(granted) = granted {
                one.handed = Some((waiter, Ok((granted.grant, self.now_ms * 1_000_000))));
            }
        }
    }

    fn hand(&mut self, which: usize, how: u16) -> Checked {
        let at = self.at(how);
        match self.all[which].handed.take() {
            Some((waiter, Ok((grant, base_ns)))) => {
                self.input(which, |it| it.granted(at, waiter, grant, base_ns))
            }
            Some((waiter, Err(error))) => self.input(which, |it| it.wait_failed(at, waiter, error)),
            None => Ok(()),
        }
    }

    fn waits_fail(&mut self) {
        let now = Duration::from_millis(self.now_ms);
        let failed = self.waiters.failed(&name(), (now, now), None, Duration::from_secs(2));
        for (_, (which, waiter)) in failed.over {
            self.all[which].handed = Some((waiter, Err(5)));
        }
    }

    /// An input that nobody asked for.
    fn stray(&mut self, which: usize, how: u16) -> Checked {
        let (at, number) = (self.at(how), u32::from(how / 16 % 8));
        let work = self.all[which].work.map(|(number, _)| number);
        let todo = self.all[which].todo.is_some();
        // What is being done at once is answered by whoever does it.
        let number = if work == Some(number) { number + 100 } else { number };
        let body = Body::Granted { token: token(), ttl_ms: LEASE_MS };
        let before = self.all[which].it.clone();
        match how % 8 {
            0 => self.input(which, |it| it.answered(at, number, (body, false), at.ns))?,
            1 => self.input(which, |it| it.rested(at, number))?,
            2 => self.input(which, |it| it.listened(at, number))?,
            3 => self.fail(which, number, how)?,
            4 if !todo => self.input(which, |it| it.drawn(at, request(9_999)))?,
            5 if !todo => self.input(which, |it| it.entered(at))?,
            6 if !todo => self.input(which, |it| it.left_line(at))?,
            7 if !todo => self.input(which, |it| it.noted(at))?,
            _ => {}
        }
        ensure(work.is_none() || before == self.all[which].it, || "a stray input counts".into())
    }

    fn act(&mut self, (what, which, how): Act) -> Checked {
        if what % 16 == 0 && self.all.len() < 3 {
            return self.begin(how);
        }
        if self.all.is_empty() {
            return Ok(());
        }
        let which = usize::from(which) % self.all.len();
        let at = self.at(how);
        match what % 16 {
            1..=4 => self.carry_out(which, how),
            5..=7 => self.work(which, how),
            8 => self.hand(which, how),
            9 => {
                self.message(which, how);
                Ok(())
            }
            10 => {
                self.comes_back(which, how);
                Ok(())
            }
            11 => {
                self.now_ms += u64::from(how % 1_000);
                let at = self.at(how);
                (0..self.all.len()).try_for_each(|which| self.input(which, |it| it.time(at)))
            }
            12 if how % 4 <= 1 => {
                self.all[which].may_end_without = true;
                self.input(which, |it| if how % 4 == 0 { it.gone(at) } else { it.closed(at) })
            }
            13 => self.input(which, |it| it.woken(at)),
            14 if how % 4 == 0 => {
                self.waits_fail();
                Ok(())
            }
            15 => self.stray(which, how),
            _ => Ok(()),
        }
    }

    /// Drives every acquisition to its end.
    fn finish(&mut self) -> Checked {
        for which in 0..self.all.len() {
            let at = self.at(0);
            self.all[which].may_end_without = true;
            self.input(which, |it| it.gone(at))?;
            let mut inputs = 0;
            while self.all[which].ended.is_none() {
                inputs += 1;
                let state = &self.all[which].it;
                ensure(inputs < 200, || format!("K13: it never ends: {state:?}"))?;
                self.carry_out(which, 1)?;
                self.hand(which, 0)?;
                // Calls fail for good, and pauses end.
                match self.all[which].work {
                    Some((number, Work::Send { .. } | Work::Confirm { .. } | Work::Subscribe)) => {
                        self.all[which].work = None;
                        self.fail(which, number, 16)?;
                    }
                    _ => self.work(which, 0)?,
                }
                if let Some(deadline_ns) = self.all[which].it.deadline_ns() {
                    self.now_ms = self.now_ms.max(deadline_ns.div_ceil(1_000_000));
                    let at = self.at(0);
                    self.input(which, |it| it.time(at))?;
                }
            }
            self.nothing_remains(which)?;
        }
        // The next heartbeat is the last one.
        let _ = self.waiters.due(&name(), Duration::from_millis(self.now_ms), true);
        ensure(self.waiters == Waiters::default(), || format!("{:?} remain", self.waiters))
    }

    /// K14.
    fn nothing_remains(&self, which: usize) -> Checked {
        let one = &self.all[which];
        let held = one.ended.as_ref().and_then(Option::as_ref);
        ensure(one.it.deadline_ns().is_none(), || "a deadline remains".into())?;
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
    let mut play = Play { waiters: Waiters::default(), all: Vec::new(), now_ms: 100, drawn: 0 };
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
