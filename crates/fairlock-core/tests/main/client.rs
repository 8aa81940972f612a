//! A client of ours as a model: what it sends, and until when it believes that it holds the lock
//! (R4 for a grant by message, R5 for one by reply). Times are milliseconds of a clock that runs at
//! the server's rate.

use crate::support::{client, ours, request};
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Grant, Kind, Mode, Op, OwnerId, Payload, RequestId, Token,
};

/// A rule of the client that is broken on purpose, to verify that a test notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Flaw {
    #[default]
    None,
    /// A guard by message counts from the sending of the last confirmed call.
    MessageFromLastCall,
    /// A guard by message counts from the reading of the message.
    MessageFromArrival,
    /// A guard by reply gets the whole lease, not the TTL in the reply.
    ReplyWholeLease,
    /// A guard by message counts from its arrival, and returning to the queue does not take a
    /// new request. (Either rule alone keeps old messages out.)
    OldMessagesCount,
    /// A former request of the same owner is left as soon as there is a new one.
    LeaveFormerAtOnce,
    /// Giving up does not bury the request.
    NoBury,
    /// Giving up sends nothing.
    NoLeave,
    /// Order numbers are forgotten on return.
    NoOrderOnReturn,
    /// Each lock numbers its requests from the start.
    RequestsPerLock,
    /// Recent releases are not repeated after a failover.
    GivenBackOnce,
    /// How late a call may be executed is measured by the client's own clock.
    OwnClock,
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Habits {
    pub(crate) lease_ms: u64,
    /// How long after it was sent an acquisition may still be executed.
    pub(crate) store_timeout_ms: u64,
    /// All attempts of this client share one owner.
    pub(crate) one_owner: bool,
    /// The server's clock may differ from this client's.
    pub(crate) servers_time: bool,
    /// How many of the last calls that gave something back are sent again after a failover.
    pub(crate) given_back_again: usize,
    pub(crate) flaw: Flaw,
}

/// A call on its way to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) from: usize,
    pub(crate) op: Op,
    pub(crate) sent: u64,
    /// The attempt that was current when a heartbeat was sent.
    pub(crate) about: Option<RequestId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Asking,
    Waiting,
    Holding { token: Token, until: u64 },
}

/// The attempt by which the client's user waits or holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    /// Earlier requests of this attempt that may have left something behind or may still arrive.
    /// They are left when the attempt ends and not before: they share the owner with the present
    /// one.
    pub(crate) former: Vec<RequestId>,
    pub(crate) order: Option<u64>,
    /// Unanswered copies of the acquisition.
    pub(crate) unanswered: u8,
    pub(crate) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) place: usize,
    pub(crate) id: ClientId,
    pub(crate) habits: Habits,
    pub(crate) alive: bool,
    pub(crate) current: Option<Attempt>,
    /// Calls that are repeated until they are answered.
    pub(crate) debts: Vec<Op>,
    /// Server time in the last reply, and when the call of that reply was sent.
    pub(crate) heard: (u64, u64),
    /// The era in which the server did what the client is hearing right now.
    pub(crate) hearing: u8,
    /// The era in which the server's time was heard.
    pub(crate) heard_in: u8,
    /// The eras of the answer or message that the guard rests on, and of the clock that it counts
    /// by.
    pub(crate) rests_on: (u8, u8),
    /// Releases and leaves that were answered.
    pub(crate) lately: Vec<Op>,
    pub(crate) beats_out: u8,
    pub(crate) renewals_out: u8,
    pub(crate) last_beat: u64,
    requests: u64,
    owners: u64,
}

impl Client {
    pub(crate) fn new(place: usize, habits: Habits, now: u64) -> Self {
        Self {
            place,
            id: client(place as u64 + 1),
            habits,
            alive: true,
            current: None,
            debts: Vec::new(),
            // The reply to the connection's first command.
            heard: (now, now),
            hearing: 0,
            heard_in: 0,
            rests_on: (0, 0),
            lately: Vec::new(),
            beats_out: 0,
            renewals_out: 0,
            last_beat: now,
            requests: 0,
            owners: 0,
        }
    }

    /// A client whose request numbers start at `first`, so that they differ from those at the other
    /// lock.
    pub(crate) fn numbered_from(self, first: u64) -> Self {
        Self { requests: first, ..self }
    }

    /// The token of the guard, as long as the client believes in it.
    pub(crate) fn guard(&self, now: u64) -> Option<Token> {
        match self.current.as_ref()?.stage {
            Stage::Holding { token, until } if now < until => Some(token),
            _ => None,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.current.as_ref().is_some_and(|a| !matches!(a.stage, Stage::Holding { .. }))
    }

    /// Begins an attempt.
    pub(crate) fn start(&mut self, now: u64) -> Call {
        if !self.habits.one_owner || self.owners == 0 {
            self.owners += 1;
        }
        let owner = ours(self.place as u64 + 1, self.owners);
        self.ask(now, owner, None, Vec::new())
    }

    fn ask(
        &mut self,
        now: u64,
        owner: OwnerId,
        order: Option<u64>,
        former: Vec<RequestId>,
    ) -> Call {
        let same = self.habits.flaw == Flaw::OldMessagesCount && order.is_some();
        if !same {
            self.requests += 1;
        }
        let request = request((self.place as u64 + 1) * 1_000 + self.requests);
        let stage = Stage::Asking;
        self.current = Some(Attempt { owner, request, former, order, unanswered: 0, stage });
        self.ask_again(now)
    }

    /// Another copy of the acquisition.
    pub(crate) fn ask_again(&mut self, now: u64) -> Call {
        let habits = self.habits;
        let by_server = habits.servers_time && habits.flaw != Flaw::OwnClock;
        let servers_now = if by_server { self.heard.0 + (now - self.heard.1) } else { now };
        let attempt = self.current.as_mut().expect("an attempt to send a copy of");
        attempt.unanswered += 1;
        let op = Op::Acquire(Acquire {
            kind: Kind::Fair,
            owner: attempt.owner.clone(),
            request: attempt.request,
            lease_ms: habits.lease_ms,
            mode: Mode::Wait,
            order: attempt.order.filter(|_| habits.flaw != Flaw::NoOrderOnReturn),
            not_after_ms: servers_now + habits.store_timeout_ms,
            sure: false,
            shared_owner: habits.one_owner,
        });
        self.call(now, op)
    }

    fn call(&self, now: u64, op: Op) -> Call {
        Call { from: self.place, op, sent: now, about: None }
    }

    /// The user stops waiting.
    pub(crate) fn give_up(&mut self, now: u64) -> Vec<Call> {
        let Some(attempt) = self.current.take() else { return Vec::new() };
        if self.habits.flaw == Flaw::NoLeave {
            return Vec::new();
        }
        let mut ops = vec![self.leave_op(&attempt, attempt.request, attempt.unanswered > 0)];
        ops.extend(self.leave_former(&attempt));
        self.owe(now, ops)
    }

    fn leave_op(&self, attempt: &Attempt, request: RequestId, doubt: bool) -> Op {
        Op::Leave {
            kind: Kind::Fair,
            owner: attempt.owner.clone(),
            request,
            bury: doubt && self.habits.flaw != Flaw::NoBury,
            shared_owner: self.habits.one_owner,
        }
    }

    fn leave_former(&self, attempt: &Attempt) -> Vec<Op> {
        attempt.former.iter().map(|request| self.leave_op(attempt, *request, true)).collect()
    }

    /// What must be left when an attempt ends in any way other than by being given up.
    fn leave_doubtful(&self, attempt: &Attempt) -> Vec<Op> {
        let mut ops = self.leave_former(attempt);
        if attempt.unanswered > 0 && self.habits.flaw != Flaw::NoBury {
            ops.push(self.leave_op(attempt, attempt.request, true));
        }
        ops
    }

    fn owe(&mut self, now: u64, ops: Vec<Op>) -> Vec<Call> {
        self.debts.extend(ops.iter().cloned());
        ops.into_iter().map(|op| self.call(now, op)).collect()
    }

    /// The user releases the guard, valid or not.
    pub(crate) fn release(&mut self, now: u64) -> Vec<Call> {
        let Some(attempt) = self.current.take() else { return Vec::new() };
        let Stage::Holding { token, .. } = attempt.stage else {
            self.current = Some(attempt);
            return Vec::new();
        };
        let owner = attempt.owner.clone();
        let mut ops = vec![Op::Release { kind: Kind::Fair, owner, token, keep: 0, change: 0 }];
        // A copy of the acquisition that is still in transit would take the lock once more.
        ops.extend(self.leave_doubtful(&attempt));
        self.owe(now, ops)
    }

    /// Repeats the calls that were not answered.
    pub(crate) fn owe_again(&self, now: u64) -> Vec<Call> {
        self.debts.iter().map(|op| self.call(now, op.clone())).collect()
    }

    pub(crate) fn beat(&mut self, now: u64) -> Call {
        self.beats_out += 1;
        self.last_beat = now;
        let waiting = self.current.as_ref().filter(|a| a.stage == Stage::Waiting);
        let waiters = waiting.map(|a| a.owner.clone()).into_iter().collect();
        let about = waiting.map(|a| a.request);
        let op = Op::Beat { client: self.id, waiters };
        Call { from: self.place, op, sent: now, about }
    }

    pub(crate) fn renew(&mut self, now: u64) -> Option<Call> {
        let attempt = self.current.as_ref()?;
        let Stage::Holding { token, until } = attempt.stage else { return None };
        if now >= until {
            return None;
        }
        let owner = attempt.owner.clone();
        self.renewals_out += 1;
        Some(
            self.call(
                now,
                Op::Renew { kind: Kind::Fair, owner, token, ttl_ms: self.habits.lease_ms },
            ),
        )
    }

    /// The connection broke: calls sent on it will not be answered.
    pub(crate) fn lose_connection(&mut self) {
        self.beats_out = 0;
        self.renewals_out = 0;
    }

    /// Processes a reply; returns the calls that follow from it.
    pub(crate) fn on_reply(&mut self, call: &Call, answer: &Answer, now: u64) -> Vec<Call> {
        self.heard = (answer.now_ms, call.sent);
        self.heard_in = self.hearing;
        match &call.op {
            Op::Acquire(a) => self.on_acquire(a, &answer.body, call.sent, now),
            Op::Beat { .. } => {
                self.beats_out = self.beats_out.saturating_sub(1);
                self.on_beaten(call, &answer.body, now)
            }
            Op::Renew { token, ttl_ms, .. } => {
                self.renewals_out = self.renewals_out.saturating_sub(1);
                self.on_renewed(*token, &answer.body, call.sent + ttl_ms, now)
            }
            op => {
                self.debts.retain(|debt| debt != op);
                self.note_given_back(op);
                Vec::new()
            }
        }
    }

    fn note_given_back(&mut self, op: &Op) {
        let kept = self.habits.given_back_again;
        if kept == 0 || self.lately.contains(op) {
            return;
        }
        self.lately.push(op.clone());
        let over = self.lately.len().saturating_sub(kept);
        self.lately.drain(..over);
    }

    /// Another server answers from now on; it may lack recent releases.
    pub(crate) fn fail_over(&mut self) {
        self.lose_connection();
        if self.habits.flaw == Flaw::GivenBackOnce {
            return;
        }
        for op in std::mem::take(&mut self.lately) {
            if !self.debts.contains(&op) {
                self.debts.push(op);
            }
        }
    }

    fn on_acquire(&mut self, a: &Acquire, body: &Body, sent: u64, now: u64) -> Vec<Call> {
        let Some(attempt) = self.current.as_mut().filter(|at| at.request == a.request) else {
            return Vec::new();
        };
        if matches!(attempt.stage, Stage::Holding { .. }) {
            // Nobody waits for this reply any more, and it may report a second hold that this copy
            // got after the first was over. The copy stays counted as unanswered, so the end of the
            // guard buries it.
            return Vec::new();
        }
        attempt.unanswered = attempt.unanswered.saturating_sub(1);
        match body {
            Body::Granted { token, ttl_ms } => {
                let whole = self.habits.flaw == Flaw::ReplyWholeLease;
                let ttl_ms = if whole { a.lease_ms } else { *ttl_ms };
                self.on_granted(*token, sent + ttl_ms, now)
            }
            Body::Queued { order, .. } => {
                attempt.order = Some(*order);
                if attempt.stage == Stage::Asking {
                    attempt.stage = Stage::Waiting;
                }
                Vec::new()
            }
            Body::TooLate => Vec::new(),
            // Another copy arrived later and was queued.
            Body::HeldBySelf { .. } if attempt.stage == Stage::Waiting => Vec::new(),
            // An earlier attempt of this owner is not undone yet.
            Body::HeldBySelf { .. } => self.drop_attempt(now),
            other => panic!("{other:?} to a wanted acquisition {a:?}"),
        }
    }

    /// Ends an attempt and tells the server no more than necessary.
    fn drop_attempt(&mut self, now: u64) -> Vec<Call> {
        let Some(attempt) = self.current.take() else { return Vec::new() };
        let ops = self.leave_doubtful(&attempt);
        self.owe(now, ops)
    }

    fn on_granted(&mut self, token: Token, until: u64, now: u64) -> Vec<Call> {
        let Some(attempt) = self.current.as_mut() else { return Vec::new() };
        if now < until {
            attempt.stage = Stage::Holding { token, until };
            // Counted from the sending: the server's clock does not enter into it.
            self.rests_on = (self.hearing, self.hearing);
            return Vec::new();
        }
        self.ask_anew(now, true)
    }

    /// The attempt got the lock and lost it, or its entry is gone: makes a new request of the same
    /// owner in the old place; without a place, a new attempt.
    fn ask_anew(&mut self, now: u64, held: bool) -> Vec<Call> {
        let Some(mut attempt) = self.current.take() else { return Vec::new() };
        if held || attempt.unanswered > 0 {
            attempt.former.push(attempt.request);
        }
        let leave = self.leave_former(&attempt);
        if attempt.order.is_none() && !self.habits.one_owner {
            let mut calls = self.owe(now, leave);
            calls.push(self.start(now));
            return calls;
        }
        let at_once = self.habits.flaw == Flaw::LeaveFormerAtOnce;
        let mut calls = if at_once { self.owe(now, leave) } else { Vec::new() };
        let call = self.ask(now, attempt.owner, attempt.order, attempt.former);
        if held {
            // The end of that hold may be a moment away: the call is not sent before time moves on.
            self.current.as_mut().expect("just begun").unanswered = 0;
        } else {
            calls.push(call);
        }
        calls
    }

    fn on_beaten(&mut self, call: &Call, body: &Body, now: u64) -> Vec<Call> {
        let Body::Beaten { held, queued, .. } = body else { return Vec::new() };
        let Some(attempt) = self.current.as_ref() else { return Vec::new() };
        if let Some(Grant { request, token, ttl_ms }) = held
            && *request == attempt.request
        {
            let until = call.sent + ttl_ms;
            let news = !matches!(attempt.stage, Stage::Holding { .. });
            return if news { self.on_granted(*token, until, now) } else { Vec::new() };
        }
        // What the reply says about an earlier attempt no longer matters.
        let asked = call.about == Some(attempt.request) && attempt.stage == Stage::Waiting;
        if asked && queued.first() == Some(&false) {
            return self.ask_anew(now, false);
        }
        Vec::new()
    }

    fn on_renewed(&mut self, token: Token, body: &Body, until: u64, now: u64) -> Vec<Call> {
        let Some(attempt) = self.current.as_mut() else { return Vec::new() };
        let Stage::Holding { token: held, until: old } = &mut attempt.stage else {
            return Vec::new();
        };
        if *held != token {
            return Vec::new();
        }
        if *body != Body::Renewed {
            return self.drop_attempt(now);
        }
        if now < *old {
            *old = until.max(*old);
            self.rests_on = (self.hearing, self.hearing);
        }
        Vec::new()
    }

    /// A message came into the inbox.
    pub(crate) fn on_message(&mut self, payload: &Payload, now: u64) {
        let Payload::Grant { grant, at_ms } = payload else { return };
        let (server, sent) = self.heard;
        let flaw = self.habits.flaw;
        let Some(attempt) = self.current.as_mut().filter(|a| a.request == grant.request) else {
            return;
        };
        if matches!(attempt.stage, Stage::Holding { .. }) {
            return;
        }
        let base = match flaw {
            Flaw::MessageFromLastCall => sent,
            Flaw::MessageFromArrival | Flaw::OldMessagesCount => now,
            _ => (sent + at_ms).saturating_sub(server).min(now),
        };
        let until = base + grant.ttl_ms;
        if now < until {
            attempt.stage = Stage::Holding { token: grant.token, until };
            self.rests_on = (self.hearing, self.heard_in);
        }
    }
}
