//! Acquisitions on their way: what the machine asks for is done here.

use super::{About, Around, Call, Client, Eras, Flaw, Habits, Machine, acquire_of, name, ns};
use crate::support::ours;
use fairlock_core::client::acquiring::{Failure, FailureKind, Outcome, Step, Wanted, Work};
use fairlock_core::client::{AttemptId, Effect, Renewed};
use fairlock_core::{Body, Mode, Op, OwnerId, RequestId};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    number: u64,
    id: AttemptId,
    pub(crate) owner: OwnerId,
    /// The last order number that it was told.
    pub(crate) order: Option<u64>,
    /// All requests of it.
    pub(super) drawn: Vec<RequestId>,
    /// What is to be done a moment later.
    todo: Option<Step<()>>,
    /// The number of the pause before the next copy, if it waits for one.
    pause: Option<u32>,
    /// When a grant was over before it could be used.
    over_at: Option<u64>,
    /// It ends when this is answered, or its time is up.
    taken_back: Option<u64>,
    given_back: Option<u64>,
    /// Nobody waits for it.
    pub(crate) gone: bool,
    rests_on: Eras,
}

impl Attempt {
    /// A grant was over twice. The end of that hold is a moment away, and each call takes time.
    pub(crate) fn has_todo(&self, now: u64) -> bool {
        self.todo.is_some() && self.over_at != Some(now)
    }

    pub(crate) fn rests_on(&self) -> Eras {
        self.rests_on
    }

    /// Whether it waits before the next copy.
    pub(crate) fn pauses(&self) -> bool {
        self.pause.is_some()
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
        store_timeout_ms: habits.store_timeout_ms,
        period_ms: habits.beat_ms,
    }
}

/// Nothing was heard.
const UNHEARD: (Eras, Option<RequestId>) = (Eras(0, 0), None);

impl Client {
    /// Begins an attempt.
    pub(crate) fn begin(&mut self, now: u64) -> Vec<Call> {
        self.attempted += 1;
        let number = self.attempted;
        let owner = if self.habits.one_owner { 1 } else { number };
        let owner = ours(self.place as u64 + 1, owner);
        let (request, wanted) = (self.draw(), wanted(self.habits, now));
        let id = self.give(now, UNHEARD, |machine, around| {
            machine.ask(around, (name(), wanted), (owner.clone(), request), number)
        });
        self.attempts.push(Attempt {
            number,
            id,
            owner,
            order: None,
            drawn: vec![request],
            todo: None,
            pause: None,
            over_at: None,
            taken_back: None,
            given_back: None,
            gone: false,
            rests_on: Eras(0, 0),
        });
        self.wake(now, number);
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

    /// The attempt that waits under this name, which is its first request of a round.
    pub(super) fn waits_as(&mut self, waiter: RequestId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.drawn.contains(&waiter))
    }

    fn input(
        &mut self,
        now: u64,
        number: u64,
        input: impl FnOnce(&mut Machine, &mut Around, AttemptId),
    ) {
        let Some(id) = self.attempt(number).map(|attempt| attempt.id) else { return };
        let heard = self.heard_now();
        self.give(now, heard, |machine, around| input(machine, around, id));
        self.wake(now, number);
    }

    /// Carries out what an input has led to: at once, or later in a slow client.
    pub(super) fn follow(&mut self, now: u64, number: u64, effect: Effect, eras: Eras) {
        match effect {
            Effect::Granted(_) => {
                if let Some(attempt) = self.attempt(number) {
                    attempt.rests_on = eras;
                }
            }
            Effect::Queued { order, .. } => {
                if let Some(attempt) = self.attempt(number) {
                    attempt.order = Some(order);
                }
            }
            Effect::BeginHeartbeats => {
                self.beating = true;
                self.beat_at = now + self.habits.beat_ms;
            }
            Effect::Beat => self.kicked |= self.beating,
            effect if self.habits.slow => self.undone.push_back((number, effect)),
            effect => self.carry_out_one(now, number, effect),
        }
    }

    fn wake(&mut self, now: u64, number: u64) {
        self.follow(now, number, Effect::Wake, Eras(0, 0));
    }

    fn carry_out_one(&mut self, now: u64, number: u64, effect: Effect) {
        match effect {
            Effect::Wake => self.take(now, number),
            Effect::TakeBack { op, then, .. } => {
                let debt = self.take_back(now, *op);
                if then.is_none() {
                    return;
                }
                match debt {
                    // A call without a connection has failed already, and is tried again.
                    Some(debt) => {
                        if let Some(attempt) = self.attempt(number) {
                            attempt.taken_back = Some(debt);
                        }
                    }
                    None => self.input(now, number, |it, here, id| it.taken_back(here, id, false)),
                }
            }
            Effect::GiveBack { held, .. } => {
                let Some(attempt) = self.attempt(number) else { return };
                let (owner, rests_on) = (attempt.owner.clone(), attempt.rests_on);
                let drawn = attempt.drawn.clone();
                let id = self.hold(now, *held, owner, drawn, rests_on);
                let debt = self.give_back(now, id);
                if let Some(attempt) = self.attempt(number) {
                    attempt.given_back = Some(debt);
                }
            }
            effect => panic!("{effect:?} of a fair lock"),
        }
    }

    /// Takes what an attempt is to do next.
    fn take(&mut self, now: u64, number: u64) {
        let at_once = self.habits.flaw == Flaw::LeaveFormerAtOnce;
        let Some(place) = self.attempts.iter().position(|attempt| attempt.number == number) else {
            return;
        };
        let (step, _) = self.machine.take(self.attempts[place].id);
        if matches!(step, Step::Wait) {
            return;
        }
        self.attempts[place].todo = None;
        self.ends_interest(number);
        let attempt = &mut self.attempts[place];
        if !matches!(step, Step::Begin(_, Work::Nothing)) {
            (attempt.taken_back, attempt.given_back) = (None, None);
        }
        if let Step::Begin(_, Work::Send(op)) = &step {
            let acquire = acquire_of(&mut op.clone()).clone();
            let request = acquire.request;
            // A grant was over, and it asks anew.
            if !attempt.drawn.contains(&request) {
                let former = attempt.drawn.last().copied();
                attempt.drawn.push(request);
                if attempt.over_at.replace(now) == Some(now) {
                    attempt.todo = Some(step);
                    return;
                }
                if let Some(request) = former.filter(|_| at_once) {
                    let (kind, owner) = (acquire.kind, acquire.owner);
                    let (bury, shared_owner) = (true, acquire.shared_owner);
                    self.work(now, number, step);
                    self.take_back(now, Op::Leave { kind, owner, request, bury, shared_owner });
                    return;
                }
            }
        }
        self.work(now, number, step);
    }

    fn work(&mut self, now: u64, number: u64, step: Step<()>) {
        let (work, what) = match step {
            Step::Wait => return,
            Step::Done(outcome) => return self.ended(now, number, outcome),
            Step::Begin(work, what) => (work, what),
        };
        let no_order = self.habits.flaw == Flaw::NoOrderOnReturn;
        let pauses = matches!(what, Work::Pause { .. } | Work::Connection { .. });
        if let Some(attempt) = self.attempt(number) {
            attempt.pause = pauses.then_some(work);
        }
        match what {
            Work::Send(mut op) => {
                if no_order {
                    acquire_of(&mut op).order = None;
                }
                self.send(now, op, About::Ask(number, work));
            }
            Work::Confirm(op) => self.send(now, op, About::Confirm(number, work)),
            Work::Pause { .. } | Work::Connection { .. } | Work::Nothing => {}
            Work::Rest { .. } | Work::Subscribe => panic!("{what:?} for a fair lock"),
        }
    }

    /// What it was waiting for is no longer wanted.
    fn ends_interest(&mut self, number: u64) {
        self.waits.retain(
            |wait| !matches!(wait, About::Ask(of, _) | About::Confirm(of, _) if *of == number),
        );
        if let Some(attempt) = self.attempt(number) {
            attempt.pause = None;
        }
    }

    /// Carries out what is to be done, in a slow client.
    pub(crate) fn carry_out(&mut self, now: u64) -> Vec<Call> {
        if let Some((number, effect)) = self.undone.pop_front() {
            self.carry_out_one(now, number, effect);
        } else if let Some(attempt) = self.attempts.iter_mut().find(|it| it.has_todo(now)) {
            let (number, step) = (attempt.number, attempt.todo.take().expect("it was found"));
            attempt.over_at = Some(now);
            self.work(now, number, step);
        }
        self.calls()
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
            self.input(now, number, |it, here, id| it.taken_back(here, id, true));
        } else if let Some(number) = find(|attempt| attempt.given_back) {
            self.input(now, number, |it, here, id| it.given_back(here, id));
        }
    }

    pub(super) fn asked(
        &mut self,
        now: u64,
        number: u64,
        work: u32,
        answer: (Body, bool),
        sent: u64,
    ) {
        self.input(now, number, |it, here, id| it.answered(here, (id, work), answer, ns(sent)));
    }

    pub(super) fn confirmed(&mut self, now: u64, number: u64, work: u32, body: Body, sent: u64) {
        let (eras, answer) = (Eras(self.hearing, self.hearing), Renewed::of(body));
        if let Some(attempt) = self.attempt(number)
            && answer == Ok(Renewed::Whole)
        {
            attempt.rests_on = eras;
        }
        self.input(now, number, |it, here, id| {
            it.confirmed(here, (id, work), answer, None, ns(sent));
        });
    }

    pub(super) fn work_failed(&mut self, now: u64, number: u64, work: u32, doubt: bool) {
        let kind = FailureKind::Unavailable;
        let failure = Failure { error: (), doubt, passing: true, kind };
        self.input(now, number, |it, here, id| it.failed(here, (id, work), failure));
    }

    /// The pauses of attempts are over.
    pub(crate) fn rested(&mut self, now: u64) -> Vec<Call> {
        for number in self.attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>() {
            // First the pause, then the connection.
            for _ in 0..2 {
                if let Some(attempt) = self.attempt(number)
                    && let Some(work) = attempt.pause
                {
                    self.input(now, number, |it, here, id| it.rested(here, (id, work)));
                }
            }
        }
        self.calls()
    }

    /// Whether the time of this attempt is up.
    fn is_due(&self, attempt: &Attempt, now: u64) -> bool {
        self.machine.deadline_ns(attempt.id).is_some_and(|deadline_ns| deadline_ns <= ns(now))
    }

    /// Whether the time of any attempt is up.
    pub(crate) fn is_late(&self, now: u64) -> bool {
        self.attempts.iter().any(|attempt| self.is_due(attempt, now))
    }

    /// The time of attempts is up.
    pub(crate) fn late(&mut self, now: u64) -> Vec<Call> {
        let due = self.attempts.iter().filter(|attempt| self.is_due(attempt, now));
        for number in due.map(|attempt| attempt.number).collect::<Vec<_>>() {
            self.input(now, number, |it, here, id| it.time(here, id));
        }
        self.calls()
    }

    /// The user goes away.
    pub(crate) fn give_up(&mut self, now: u64) -> Vec<Call> {
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| !attempt.gone) {
            attempt.gone = true;
            let number = attempt.number;
            self.input(now, number, |it, here, id| it.gone(here, id));
        }
        self.calls()
    }
}
