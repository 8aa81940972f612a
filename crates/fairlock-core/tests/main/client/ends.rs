//! Holds, their renewals and their ends, and what is repeated until it is answered.

use super::{About, Call, Client, Eras, Flaw, name, ns};
use fairlock_core::client::acquiring::Held;
use fairlock_core::client::{
    Acquisition, Counted, GuardEnd, Hold, Look, Released, Renewals, Renewed, Slot, Standing,
};
use fairlock_core::{Body, Op, OwnerId, RequestId, Token};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    /// What tells the holds of a client apart: the token, or a larger one if another hold has that. Readers at the same
    /// time have one token, so an owner that reads again may have that of its former hold.
    id: Token,
    pub(crate) owner: OwnerId,
    pub(crate) token: Token,
    pub(crate) hold: Hold,
    pub(crate) rests_on: Eras,
    pub(super) drawn: Vec<RequestId>,
    acquisition: Acquisition,
    /// When the watchdog looks at it, in nanoseconds.
    pub(crate) watched: Option<u64>,
    /// The user has the guard.
    pub(crate) has_guard: bool,
    was_lost: bool,
}

impl Holding {
    /// What a guard reads.
    pub(crate) fn is_valid(&self, now: u64) -> bool {
        !self.is_lost() && ns(now) < self.hold.valid_until_ns()
    }

    fn is_lost(&self) -> bool {
        matches!(self.hold.standing(), Standing::Lost(_))
    }

    pub(super) fn plan(&mut self, renewals: &mut Renewals<Token>, now_ns: u64, at_ns: u64) {
        self.watched = Some(at_ns);
        let missed = renewals.plan(self.id.get(), now_ns, at_ns);
        assert!(!missed, "the watchdog is awake");
    }

    fn note_loss(&mut self) {
        assert!(self.is_lost() || !self.was_lost, "K8: {self:?} was lost");
        self.was_lost = self.is_lost();
    }
}

/// What is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// The release of this hold.
    Release(Token, Released),
    /// The hold of a writer becomes a reader's.
    Downgrade(Token),
    /// A request that is taken back.
    Leave,
    /// What another server may lack.
    Replay,
}

/// Something that is repeated until it is answered. (The engine gives that up after a while; then
/// the TTL ends what the server knows.)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Debt {
    id: u64,
    op: Op,
    what: What,
    /// A copy failed, and the next one is not sent yet.
    pub(crate) unsent: bool,
    resent: bool,
}

impl Client {
    pub(super) fn hold(
        &mut self,
        now: u64,
        held: Held,
        owner: OwnerId,
        drawn: Vec<RequestId>,
        rests_on: Eras,
    ) -> Token {
        let Held { acquisition, token, mut hold } = held;
        let at_ns = hold.watched(ns(now));
        let mut id = token;
        while self.holding(id).is_some() {
            id = Token::new(id.get() + 1).expect("a token");
        }
        let missed = self.renewals.watch(id.get(), id, ns(now), at_ns);
        assert!(!missed, "the watchdog is awake");
        let (watched, has_guard, was_lost) = (Some(at_ns), true, false);
        self.held.push(Holding {
            id,
            owner,
            token,
            hold,
            rests_on,
            drawn,
            acquisition,
            watched,
            has_guard,
            was_lost,
        });
        id
    }

    fn holding(&mut self, id: Token) -> Option<&mut Holding> {
        self.held.iter_mut().find(|held| held.id == id)
    }

    /// Whether the watchdog has something to do.
    pub(crate) fn must_watch(&self, now: u64) -> bool {
        self.held.iter().any(|held| held.watched.is_some_and(|at_ns| at_ns <= ns(now)))
    }

    /// The watchdog looks at what is due.
    pub(crate) fn watch(&mut self, now: u64) -> Vec<Call> {
        for id in self.renewals.take_due(ns(now)).0 {
            let Some(held) = self.held.iter_mut().find(|held| held.id == id) else {
                continue;
            };
            match held.hold.look(ns(now)) {
                None => {
                    held.watched = None;
                    self.renewals.forget(id.get());
                }
                Some(Look { valid_until_ns, next_ns, renew, .. }) => {
                    held.plan(&mut self.renewals, ns(now), next_ns);
                    if renew {
                        self.renewals.want(id.get(), valid_until_ns, 0);
                    }
                }
            }
            held.note_loss();
        }
        while let Some((id, slot)) = self.renewals.next_renewal() {
            let kind = self.habits.kind();
            let held = self.holding(id).expect("a hold that is watched");
            let ttl_ms = held.hold.begin_renewal(ns(now)).expect("it is not being left");
            let (owner, token) = (held.owner.clone(), held.token);
            let request = held.acquisition.request();
            let op = Op::Renew { kind, owner, token, ttl_ms }.of_hold(kind, request, now);
            self.send(now, op, About::Renew(id, ttl_ms, slot));
        }
        self.calls()
    }

    /// `said`: the reply, the TTL that was asked for, and when.
    pub(super) fn renewal_over(
        &mut self,
        now: u64,
        id: Token,
        slot: Slot,
        said: Option<(Body, u64, u64)>,
    ) {
        let (eras, fails_over) = (Eras(self.hearing, self.hearing), self.habits.fails_over);
        let held = self.holding(id).expect("a hold lasts as long as its renewal");
        let mut leave = None;
        let next = match said {
            None => Some(held.hold.unanswered(ns(now))),
            Some((body, ttl_ms, sent)) => match Renewed::of(body).expect("a reply to a renewal") {
                Renewed::Whole => {
                    let next = held.hold.renewed(ns(now), ns(sent), ttl_ms);
                    if next.is_some() {
                        held.rests_on = eras;
                    }
                    next
                }
                Renewed::Gone { holder } => {
                    leave = fails_over.then(|| held.acquisition.leave(false));
                    held.hold.gone(ns(now), holder);
                    None
                }
            },
        };
        held.note_loss();
        held.hold.renewal_over();
        let watched = held.watched.is_some();
        match next.filter(|_| watched) {
            Some(at_ns) => {
                let held = self.held.iter_mut().find(|held| held.id == id).expect("as above");
                held.plan(&mut self.renewals, ns(now), at_ns);
            }
            None => {
                self.holding(id).expect("as above").watched = None;
                self.renewals.forget(id.get());
            }
        }
        let _ = self.renewals.free(slot);
        if let Some(op) = leave {
            self.take_back(now, op);
        }
        self.forget_ended();
    }

    /// The user releases the guard, valid or not.
    pub(crate) fn release(&mut self, now: u64) -> Vec<Call> {
        self.give_back_any(now);
        self.calls()
    }

    fn give_back_any(&mut self, now: u64) {
        if let Some(held) = self.held.iter().find(|held| held.has_guard) {
            self.give_back(now, held.id);
        }
    }

    /// Returns the number of what is owed.
    pub(super) fn give_back(&mut self, now: u64, id: Token) -> u64 {
        let held = self.holding(id).expect("it has a guard");
        held.has_guard = false;
        held.watched = None;
        let was_lost = matches!(held.hold.time(ns(now)), Standing::Lost(_));
        let GuardEnd { change, unattended, .. } = held.hold.leave(false);
        assert!(unattended, "there was one guard");
        let (owner, token) = (held.owner.clone(), held.token);
        let (valid_until_ns, request) = (held.hold.valid_until_ns(), held.acquisition.request());
        self.renewals.forget(id.get());
        let (kind, keep, change_number) = (self.habits.kind(), change.count, change.number);
        let op = Op::Release { kind, owner, token, keep, change: change_number };
        let op = op.of_hold(kind, request, now);
        let sent = Released { change, was_lost, resent: false, valid_until_ns };
        self.debt(now, op, What::Release(id, sent))
    }

    /// Repeats this until it is answered. Returns its number.
    fn debt(&mut self, now: u64, op: Op, what: What) -> u64 {
        let used = |id: &u64| self.debts.iter().any(|debt| debt.id == *id);
        let id = (0..).find(|id| !used(id)).expect("some number is free");
        let (unsent, resent) = (false, false);
        self.debts.push(Debt { id, op: op.clone(), what, unsent, resent });
        self.send(now, op, About::Debt(id));
        id
    }

    /// Tells another server of a release.
    pub(super) fn replay(&mut self, now: u64, op: Op) {
        self.debt(now, op, What::Replay);
    }

    /// Takes a request back. `None` if a flaw keeps it from that.
    pub(super) fn take_back(&mut self, now: u64, mut op: Op) -> Option<u64> {
        if self.habits.flaw == Flaw::NoLeave {
            return None;
        }
        if let Op::Leave { bury, .. } = &mut op {
            *bury &= self.habits.flaw != Flaw::NoBury;
        }
        Some(self.debt(now, op, What::Leave))
    }

    pub(super) fn debt_failed(&mut self, id: u64, doubt: bool) {
        if let Some(debt) = self.debts.iter_mut().find(|debt| debt.id == id) {
            debt.unsent = true;
            debt.resent |= doubt;
        }
    }

    /// Repeats what was not answered.
    pub(crate) fn owe_again(&mut self, now: u64) -> Vec<Call> {
        let now_sent: Vec<_> =
            self.debts.iter().filter(|d| d.unsent).map(|d| (d.id, d.op.clone())).collect();
        for (id, op) in if self.connected { now_sent } else { Vec::new() } {
            let debt = self.debts.iter_mut().find(|debt| debt.id == id);
            debt.expect("it was found").unsent = false;
            self.send(now, op, About::Debt(id));
        }
        self.calls()
    }

    pub(super) fn debt_answered(&mut self, now: u64, id: u64, said: Body) {
        let Some(place) = self.debts.iter().position(|debt| debt.id == id) else { return };
        let debt = self.debts.remove(place);
        match debt.what {
            What::Release(id, sent) => {
                let sent = Released { resent: debt.resent, ..sent };
                self.released(now, id, sent, said);
            }
            What::Leave => self.note_given_back(now, &debt.op),
            What::Downgrade(id) => self.downgraded(now, id, said),
            What::Replay => {}
        }
        self.was_answered(now, id);
    }

    /// The user reads from now on.
    pub(crate) fn downgrade(&mut self, now: u64) -> Vec<Call> {
        if let Some(held) = self.held.iter_mut().find(|held| held.has_guard)
            && held.hold.begin_reading().is_some()
        {
            let (owner, token, id) = (held.owner.clone(), held.token, held.id);
            let (kind, request) = (self.habits.kind(), held.acquisition.request());
            let op = Op::Downgrade { owner, token }.of_hold(kind, request, now);
            self.debt(now, op, What::Downgrade(id));
        }
        self.calls()
    }

    fn downgraded(&mut self, now: u64, id: Token, said: Body) {
        let said = Counted::of(said).expect("a reply to a change");
        if let (Counted::Gone { holder }, Some(held)) = (said, self.holding(id)) {
            held.hold.gone(ns(now), holder);
            held.note_loss();
        }
        self.forget_ended();
    }

    fn released(&mut self, now: u64, id: Token, sent: Released, said: Body) {
        let said = Counted::of(said).expect("a reply to a release");
        let (flaw, fails_over) = (self.habits.flaw, self.habits.fails_over);
        let held = self.holding(id).expect("a hold lasts as long as its release");
        let leave = held.acquisition.leave(false);
        let doubtful: Vec<_> = held.acquisition.doubtful().collect();
        if let Err(holder) = sent.outcome(Some(said.clone())) {
            held.hold.released_when_gone(ns(now), sent, holder);
        }
        held.note_loss();
        match said {
            Counted::Released => self.note_given_back(now, &leave),
            _ if fails_over => drop(self.take_back(now, leave)),
            _ => {}
        }
        for op in doubtful.into_iter().filter(|_| flaw != Flaw::NoBury) {
            self.take_back(now, op);
        }
        self.forget_ended();
    }

    fn forget_ended(&mut self) {
        let debts = &self.debts;
        self.held.retain(|held| {
            let of = |what| matches!(what, What::Release(id, _) if id == held.id);
            let owed = debts.iter().any(|debt| of(debt.what));
            held.has_guard || owed || held.hold.is_being_renewed()
        });
    }

    fn note_given_back(&mut self, now: u64, op: &Op) {
        if self.habits.fails_over {
            self.recent.note(Duration::from_millis(now), &name(), op, self.connected);
        }
    }
}
