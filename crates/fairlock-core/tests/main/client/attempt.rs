//! Acquisitions on their way: what an [`Acquiring`] asks for is done here.

use super::{About, Call, Client, Eras, Flaw, Habits, name, ns};
use crate::support::ours;
use fairlock_core::client::Renewed;
use fairlock_core::client::acquiring::{
    Acquiring, At, Failure, FailureKind, Outcome, Step, Wanted, Work,
};
use fairlock_core::{Body, Grant, Mode, Op, OwnerId, RequestId};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    number: u64,
    pub(crate) owner: OwnerId,
    it: Acquiring<()>,
    /// Among the waiters, by the request with which it entered.
    waiter: Option<RequestId>,
    /// The last order number that it was told.
    pub(crate) order: Option<u64>,
    /// All requests of it.
    pub(super) drawn: Vec<RequestId>,
    /// What is to be done, in a slow client.
    todo: Option<Step<()>>,
    work: Option<(u32, Work)>,
    /// When a grant was over before it could be used.
    over_at: Option<u64>,
    /// It ends when this is answered, or its time is up.
    taken_back: Option<u64>,
    given_back: Option<u64>,
    /// Nobody waits for it.
    pub(crate) gone: bool,
    /// A grant came before the reply.
    early: bool,
    rests_on: Eras,
}

impl Attempt {
    pub(crate) fn has_todo(&self, now: u64) -> bool {
        self.todo.is_some() && !self.must_pause(now)
    }

    /// A grant was over twice. The end of that hold is a moment away, and each call takes time.
    fn must_pause(&self, now: u64) -> bool {
        matches!(self.todo, Some(Step::Draw)) && self.over_at == Some(now)
    }

    pub(crate) fn rests_on(&self) -> Eras {
        self.rests_on
    }

    /// Whether it waits before the next copy.
    pub(crate) fn pauses(&self) -> bool {
        matches!(self.work, Some((_, Work::Pause { .. } | Work::Connection { .. })))
    }

    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.it.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= ns(now))
    }
}

fn wanted(habits: Habits, now: u64) -> Wanted {
    Wanted {
        kind: habits.kind(),
        share: habits.share.unwrap_or_default(),
        mode: Mode::Wait,
        lease_ms: habits.lease_ms,
        renewed: true,
        max_hold: None,
        until_ns: habits.patience_ms.map(|patience| ns(now + patience)),
        shared_owner: habits.one_owner,
        may_be_cut: false,
        java_fleet: false,
        replicas_ms: None,
        at_once: false,
        store_timeout_ms: habits.store_timeout_ms,
        period_ms: habits.beat_ms,
    }
}

impl Client {
    /// Begins an attempt.
    pub(crate) fn begin(&mut self, now: u64) -> Vec<Call> {
        self.attempted += 1;
        let number = self.attempted;
        let owner = if self.habits.one_owner { 1 } else { number };
        let owner = ours(self.place as u64 + 1, owner);
        let request = self.draw();
        let it = Acquiring::new(wanted(self.habits, now), owner.clone(), request);
        self.attempts.push(Attempt {
            number,
            owner,
            it,
            waiter: None,
            order: None,
            drawn: vec![request],
            todo: None,
            work: None,
            over_at: None,
            taken_back: None,
            given_back: None,
            gone: false,
            early: false,
            rests_on: Eras(0, 0),
        });
        self.input(now, number, Acquiring::start);
        self.calls()
    }

    /// Begins an attempt whose request is sent.
    pub(crate) fn start(&mut self, now: u64) -> Call {
        self.begin(now).pop().expect("a copy")
    }

    /// The present copy has no answer: sends another one.
    pub(crate) fn ask_again(&mut self, now: u64) -> Call {
        let asked = |about: &&About| matches!(about, About::Ask(..));
        if let Some(about) = self.waits.iter().find(asked).copied() {
            self.fail(now, about, true);
        }
        self.rested(now).pop().expect("another copy")
    }

    fn attempt(&mut self, number: u64) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.number == number)
    }

    /// The attempt that waits under this name.
    pub(super) fn waits_as(&mut self, waiter: RequestId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.waiter == Some(waiter))
    }

    pub(super) fn input(
        &mut self,
        now: u64,
        number: u64,
        input: impl FnOnce(&mut Acquiring<()>, At) -> Step<()>,
    ) {
        let at = self.at(now);
        let slow = self.habits.slow;
        let Some(attempt) = self.attempt(number) else { return };
        let step = input(&mut attempt.it, at);
        if !matches!(step, Step::Wait) {
            // Only what it was waiting for may be pending.
            let pending = attempt.todo.take();
            assert!(pending.is_none(), "{step:?} while {pending:?} is done");
            (attempt.taken_back, attempt.given_back) = (None, None);
        }
        if matches!(step, Step::Begin(..) | Step::Leave { .. } | Step::Done(_)) {
            self.ends_interest(number);
        }
        match step {
            Step::Wait => {}
            Step::Begin(work, what) => self.work(now, number, work, what),
            Step::Done(outcome) => self.ended(now, number, outcome),
            step if slow => self.attempt(number).expect("it was found").todo = Some(step),
            step => self.do_at_once(now, number, step),
        }
    }

    fn work(&mut self, now: u64, number: u64, work: u32, what: Work) {
        let (not_after, kind) = (self.not_after(now), self.habits.kind());
        let no_order = self.habits.flaw == Flaw::NoOrderOnReturn;
        let Some(attempt) = self.attempt(number) else { return };
        attempt.work = Some((work, what));
        match what {
            Work::Send { .. } => {
                let mut acquire = attempt.it.op(false, not_after);
                if no_order {
                    acquire.order = None;
                }
                let share = self.habits.share.unwrap_or_default();
                self.send(now, Op::asks(acquire, share), About::Ask(number, work));
            }
            Work::Confirm { token, ttl_ms } => {
                let owner = attempt.owner.clone();
                let request = attempt.it.acquisition().request();
                let op = Op::Renew { kind, owner, token, ttl_ms }.of_hold(kind, request, now);
                self.send(now, op, About::Confirm(number, work));
            }
            Work::Pause { .. } | Work::Connection { .. } => {}
            Work::Rest { .. } | Work::Subscribe => panic!("{what:?} for a fair lock"),
        }
    }

    /// What it was waiting for is no longer wanted.
    fn ends_interest(&mut self, number: u64) {
        self.waits.retain(
            |wait| !matches!(wait, About::Ask(of, _) | About::Confirm(of, _) if *of == number),
        );
        if let Some(attempt) = self.attempt(number) {
            attempt.work = None;
        }
    }

    /// Carries out what is to be done, in a slow client.
    pub(crate) fn carry_out(&mut self, now: u64) -> Vec<Call> {
        let waiting = self.attempts.iter_mut().find(|attempt| attempt.has_todo(now));
        if let Some(attempt) = waiting {
            let (number, step) = (attempt.number, attempt.todo.take().expect("it was found"));
            self.do_at_once(now, number, step);
        }
        self.calls()
    }

    fn do_at_once(&mut self, now: u64, number: u64, step: Step<()>) {
        match step {
            Step::Enter => {
                let Some(attempt) = self.attempts.iter_mut().find(|a| a.number == number) else {
                    return;
                };
                let acquisition = attempt.it.acquisition().clone();
                let caller = (number, acquisition.request());
                attempt.waiter = Some(self.waiters.enter(name(), acquisition, caller));
                attempt.early = false;
                self.input(now, number, Acquiring::entered);
            }
            Step::Queued { order, outlook, in_doubt, .. } => {
                let Some(attempt) = self.attempts.iter_mut().find(|a| a.number == number) else {
                    return;
                };
                attempt.order = Some(order);
                let waiter = attempt.waiter.expect("it has entered");
                self.waiters.set_in_doubt(waiter, in_doubt);
                let period = Duration::from_millis(self.habits.beat_ms);
                let queued = self.waiters.queued(waiter, order, outlook, period);
                if queued.begins {
                    self.beating = true;
                    self.beat_at = now + self.habits.beat_ms;
                }
                self.kicked |= queued.look;
                self.input(now, number, Acquiring::noted);
            }
            Step::Leave { .. } => {
                let waiter = self.attempt(number).and_then(|a| a.waiter).expect("it has entered");
                let left = self.waiters.leave(waiter).expect("it leaves once");
                self.kicked |= left.look.is_some() && self.beating;
                let over = left.caller.is_none();
                self.input(now, number, |it, at| it.left_queue(at, left.acquisition, over));
            }
            Step::TakeBack { ops, wait } => {
                let mut last = None;
                for op in ops {
                    last = self.take_back(now, op);
                }
                match last.filter(|_| wait) {
                    // A call without a connection has failed already, and is tried again.
                    Some(debt) => {
                        if let Some(attempt) = self.attempt(number) {
                            attempt.taken_back = Some(debt);
                        }
                    }
                    None => self.input(now, number, |it, at| it.taken_back(at, false)),
                }
            }
            Step::Draw => {
                let Some(attempt) = self.attempt(number) else { return };
                if attempt.over_at == Some(now) {
                    attempt.todo = Some(Step::Draw);
                    return;
                }
                attempt.over_at = Some(now);
                let fresh = self.draw();
                let at_once = self.habits.flaw == Flaw::LeaveFormerAtOnce;
                let Some(attempt) = self.attempt(number) else { return };
                attempt.drawn.push(fresh);
                let former = attempt.it.acquisition().leave(true);
                self.input(now, number, |it, at| it.drawn(at, fresh));
                if at_once {
                    self.take_back(now, former);
                }
            }
            Step::GiveBack(held) => {
                let Some(attempt) = self.attempt(number) else { return };
                let (owner, rests_on) = (attempt.owner.clone(), attempt.rests_on);
                let drawn = attempt.drawn.clone();
                let id = self.hold(now, *held, owner, drawn, rests_on);
                let debt = self.give_back(now, id);
                if let Some(attempt) = self.attempt(number) {
                    attempt.given_back = Some(debt);
                }
            }
            step => panic!("{step:?} of a fair lock without replicas"),
        }
    }

    fn ended(&mut self, now: u64, number: u64, outcome: Outcome<()>) {
        let place = self.attempts.iter().position(|attempt| attempt.number == number);
        let attempt = self.attempts.remove(place.expect("it was found"));
        if let Outcome::Held(held) = outcome {
            let id = self.hold(now, held, attempt.owner, attempt.drawn, attempt.rests_on);
            if attempt.gone {
                self.give_back(now, id);
            }
        }
    }

    /// What an attempt took or gave back last was answered.
    pub(super) fn was_answered(&mut self, now: u64, debt: u64) {
        let find = |is: fn(&Attempt) -> Option<u64>| {
            let waits = self.attempts.iter().find(|attempt| is(attempt) == Some(debt));
            waits.map(|attempt| attempt.number)
        };
        if let Some(number) = find(|attempt| attempt.taken_back) {
            self.input(now, number, |it, at| it.taken_back(at, true));
        } else if let Some(number) = find(|attempt| attempt.given_back) {
            self.input(now, number, Acquiring::given_back);
        }
    }

    pub(super) fn asked(
        &mut self,
        now: u64,
        number: u64,
        work: u32,
        (body, more): (Body, bool),
        sent: u64,
    ) {
        let eras = Eras(self.hearing, self.hearing);
        if let Some(attempt) = self.attempt(number)
            && matches!(body, Body::Granted { .. })
            && !attempt.early
        {
            // Counted from the sending: the server's clock does not enter into it.
            attempt.rests_on = eras;
        }
        self.input(now, number, |it, at| it.answered(at, work, (body, more), ns(sent)));
    }

    pub(super) fn confirmed(&mut self, now: u64, number: u64, work: u32, body: Body, sent: u64) {
        let (eras, answer) = (Eras(self.hearing, self.hearing), Renewed::of(body));
        if let Some(attempt) = self.attempt(number)
            && answer == Ok(Renewed::Whole)
        {
            attempt.rests_on = eras;
        }
        self.input(now, number, |it, at| it.confirmed(at, work, answer, None, ns(sent)));
    }

    pub(super) fn granted(
        &mut self,
        now: u64,
        number: u64,
        waiter: RequestId,
        grant: Grant,
        base_ns: u64,
        eras: Eras,
    ) {
        if let Some(attempt) = self.attempt(number)
            && attempt.waiter == Some(waiter)
        {
            attempt.early = true;
            attempt.rests_on = eras;
        }
        self.input(now, number, |it, at| it.granted(at, waiter, grant, base_ns));
    }

    pub(super) fn work_failed(&mut self, now: u64, number: u64, work: u32, doubt: bool) {
        let kind = FailureKind::Unavailable;
        let failure = Failure { error: (), doubt, passing: true, kind };
        self.input(now, number, |it, at| it.failed(at, work, failure));
    }

    /// The pauses of attempts are over.
    pub(crate) fn rested(&mut self, now: u64) -> Vec<Call> {
        for number in self.attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>() {
            // First the pause, then the connection.
            for _ in 0..2 {
                if let Some(attempt) = self.attempt(number)
                    && let Some((work, Work::Pause { .. } | Work::Connection { .. })) = attempt.work
                {
                    self.input(now, number, |it, at| it.rested(at, work));
                }
            }
        }
        self.calls()
    }

    /// The time of attempts is up.
    pub(crate) fn late(&mut self, now: u64) -> Vec<Call> {
        let due = self.attempts.iter().filter(|attempt| attempt.is_due(now));
        for number in due.map(|attempt| attempt.number).collect::<Vec<_>>() {
            self.input(now, number, Acquiring::time);
        }
        self.calls()
    }

    /// The user goes away.
    pub(crate) fn give_up(&mut self, now: u64) -> Vec<Call> {
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| !attempt.gone) {
            attempt.gone = true;
            let number = attempt.number;
            self.input(now, number, Acquiring::gone);
        }
        self.calls()
    }
}
