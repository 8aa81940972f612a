//! A client of ours: the machine of `fairlock_core::client`, in a thin shell that does what the engine does. Each input
//! returns the calls that follow from it. Times are milliseconds of a clock that runs at the server's rate.

mod attempt;
mod beats;
mod ends;

use crate::support::{client, request};
use attempt::Attempt;
use ends::Debt;
pub(crate) use ends::Holding;
use fairlock_core::client::{self, Effect, RecentReleases, Renewals, Slot, Surroundings};
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Grant, Kind, LockName, Op, OwnerId, Payload, RequestId, Share,
    Token,
};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

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
    pub(crate) beat_ms: u64,
    /// How long a caller waits, if not for ever.
    pub(crate) patience_ms: Option<u64>,
    /// All attempts of this client share one owner.
    pub(crate) one_owner: bool,
    /// The server's clock may differ from this client's.
    pub(crate) servers_time: bool,
    /// A server that lacks the last writes may take over.
    pub(crate) fails_over: bool,
    /// What follows from an input is carried out later, so that other inputs come in between.
    pub(crate) slow: bool,
    pub(crate) flaw: Flaw,
    /// What it asks for, of a lock that several may hold.
    pub(crate) share: Option<Share>,
}

impl Habits {
    pub(crate) fn kind(&self) -> Kind {
        match self.share {
            None => Kind::Fair,
            Some(Share::Permits { .. }) => Kind::Semaphore,
            Some(_) => Kind::ReadWrite,
        }
    }
}

/// What waits for the reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// Nothing any more.
    Nobody,
    /// A copy of the acquisition of this attempt; the work has this number.
    Ask(u64, u32),
    /// The renewal of a grant that is about to end.
    Confirm(u64, u32),
    Beat,
    /// The return of this waiter to its place.
    Return(RequestId),
    /// A renewal of the hold with this id, with this TTL.
    Renew(Token, u64, Slot),
    /// Something that is repeated until it is answered.
    Debt(u64),
}

/// A call on its way to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) from: usize,
    pub(crate) op: Op,
    pub(crate) sent: u64,
    pub(crate) about: About,
}

/// The eras of the answer or message that a guard rests on, and of the clock that it counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eras(pub(crate) u8, pub(crate) u8);

impl Hash for Eras {
    /// What they mean depends on the faults since then.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The machine's surroundings during one input.
pub(crate) struct Around {
    now: u64,
    connected: bool,
    not_after: u64,
    beat_ms: u64,
    /// The number of the last request, and what a flaw puts in the place of the next.
    requests: u64,
    instead: Option<RequestId>,
}

impl Surroundings<()> for Around {
    fn now_ns(&self) -> u64 {
        ns(self.now)
    }

    fn is_connected(&self, _: &LockName) -> bool {
        self.connected
    }

    fn is_deaf(&self) -> bool {
        false
    }

    fn not_after_ms(&self, _: &LockName) -> u64 {
        self.not_after
    }

    fn late_ms(&self, _: &LockName) -> u64 {
        self.now
    }

    fn beat_every(&self, _: &LockName) -> Duration {
        Duration::from_millis(self.beat_ms)
    }

    fn draw(&mut self) -> Result<RequestId, ()> {
        if let Some(instead) = self.instead {
            return Ok(instead);
        }
        self.requests += 1;
        Ok(request(self.requests))
    }
}

pub(crate) type Machine = client::Client<u64, ()>;

/// What an operation asks for.
pub(crate) fn acquire_of(op: &mut Op) -> &mut Acquire {
    match op {
        Op::Acquire(acquire) => acquire,
        Op::AcquireShare(ask) => &mut ask.acquire,
        op => panic!("{op:?} asks for nothing"),
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) place: usize,
    pub(crate) id: ClientId,
    pub(crate) habits: Habits,
    pub(crate) alive: bool,
    pub(crate) connected: bool,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) held: Vec<Holding>,
    pub(crate) debts: Vec<Debt>,
    /// The calls whose replies are awaited.
    pub(crate) waits: Vec<About>,
    /// What an input has led to and is not done yet, in a slow client.
    pub(crate) undone: VecDeque<(u64, Effect)>,
    pub(crate) machine: Machine,
    pub(crate) renewals: Renewals<Token>,
    pub(crate) recent: RecentReleases,
    /// Server time in the last reply, and when the call of that reply was sent.
    pub(crate) heard: Option<(u64, u64)>,
    /// The era in which the server did what the client is hearing right now.
    pub(crate) hearing: u8,
    /// The era in which the server's time was heard.
    pub(crate) heard_in: u8,
    /// Whether the heartbeats of the lock run.
    pub(crate) beating: bool,
    /// A heartbeat is wanted at once.
    pub(crate) kicked: bool,
    /// When the next one is due otherwise.
    pub(crate) beat_at: u64,
    beat_began: u64,
    /// Which of its waiters has subscribed to its own channel.
    pub(crate) listening: Option<OwnerId>,
    requests: u64,
    attempted: u64,
    out: Vec<Call>,
}

/// Shared until it changes, so that situations are cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Rc<Client>);

impl From<Client> for Shared {
    fn from(client: Client) -> Self {
        Self(Rc::new(client))
    }
}

impl Deref for Shared {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Client {
        Rc::make_mut(&mut self.0)
    }
}

pub(crate) fn name() -> LockName {
    thread_local!(static JOB: LockName = LockName::new(b"job").expect("a name"));
    JOB.with(Clone::clone)
}

pub(crate) fn ns(ms: u64) -> u64 {
    ms * 1_000_000
}

impl Client {
    pub(crate) fn new(place: usize, habits: Habits, now: u64) -> Self {
        Self {
            place,
            id: client(place as u64 + 1),
            habits,
            alive: true,
            connected: true,
            attempts: Vec::new(),
            held: Vec::new(),
            debts: Vec::new(),
            waits: Vec::new(),
            undone: VecDeque::new(),
            machine: Machine::default(),
            renewals: Renewals::default(),
            recent: RecentReleases::default(),
            // The reply to the connection's first command.
            heard: Some((now, now)),
            hearing: 0,
            heard_in: 0,
            beating: false,
            kicked: false,
            beat_at: now,
            beat_began: now,
            listening: None,
            requests: 0,
            attempted: 0,
            out: Vec::new(),
        }
    }

    /// Its request numbers start at `first`, so that they differ from those at the other lock.
    pub(crate) fn number_from(&mut self, first: u64) {
        self.requests = first;
    }

    /// Gives an input to the machine, and carries out what follows, which rests on what happened in these eras. `instead`
    /// takes the place of a new request.
    fn give<R>(
        &mut self,
        now: u64,
        (eras, instead): (Eras, Option<RequestId>),
        input: impl FnOnce(&mut Machine, &mut Around) -> R,
    ) -> R {
        let first = (self.place as u64 + 1) * 1_000;
        let mut around = Around {
            now,
            connected: self.connected,
            not_after: self.not_after(now),
            beat_ms: self.habits.beat_ms,
            requests: first + self.requests,
            instead,
        };
        let result = input(&mut self.machine, &mut around);
        self.requests = around.requests - first;
        for (attempt, effect) in self.machine.outputs() {
            self.follow(now, attempt, effect, eras);
        }
        result
    }

    /// The era of what the client is hearing.
    fn heard_now(&self) -> (Eras, Option<RequestId>) {
        (Eras(self.hearing, self.hearing), None)
    }

    /// The calls that follow from an input.
    fn calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.out)
    }

    fn draw(&mut self) -> RequestId {
        self.requests += 1;
        request((self.place as u64 + 1) * 1_000 + self.requests)
    }

    /// The time limit of an acquisition that is sent now.
    fn not_after(&self, now: u64) -> u64 {
        let by_server = self.habits.servers_time && self.habits.flaw != Flaw::OwnClock;
        let (server, sent) = self.heard.filter(|_| by_server).unwrap_or((now, now));
        server + (now - sent) + self.habits.store_timeout_ms
    }

    fn send(&mut self, now: u64, op: Op, about: About) {
        if !self.connected {
            self.waits.push(about);
            return self.call_fails(now, about, false);
        }
        self.waits.push(about);
        self.out.push(Call { from: self.place, op, sent: now, about });
    }

    /// A call has no answer; `doubt` says whether it may be carried out all the same.
    pub(crate) fn fail(&mut self, now: u64, about: About, doubt: bool) -> Vec<Call> {
        self.call_fails(now, about, doubt);
        self.calls()
    }

    fn call_fails(&mut self, now: u64, about: About, doubt: bool) {
        let Some(place) = self.waits.iter().position(|wait| *wait == about) else { return };
        self.waits.remove(place);
        match about {
            About::Nobody => {}
            About::Ask(attempt, number) | About::Confirm(attempt, number) => {
                self.work_failed(now, attempt, number, doubt);
            }
            About::Beat => self.beat_failed(now),
            About::Return(waiter) => {
                self.machine.set_in_doubt(waiter, doubt);
                self.beat_failed(now);
            }
            About::Renew(id, _, slot) => self.renewal_over(now, id, slot, None),
            About::Debt(id) => self.debt_failed(id, doubt),
        }
    }

    /// Processes a reply; returns the calls that follow from it.
    pub(crate) fn on_reply(&mut self, call: &Call, answer: &Answer, now: u64) -> Vec<Call> {
        let Some(place) = self.waits.iter().position(|wait| *wait == call.about) else {
            return Vec::new();
        };
        self.waits.remove(place);
        self.heard = Some((answer.now_ms, call.sent));
        self.heard_in = self.hearing;
        let body = answer.body.clone();
        match call.about {
            About::Nobody => {}
            About::Ask(attempt, number) => {
                let body = self.flawed(&call.op, body);
                self.asked(now, attempt, number, (body, answer.more), call.sent);
            }
            About::Confirm(attempt, number) => {
                self.confirmed(now, attempt, number, body, call.sent);
            }
            About::Beat => {
                let heard = self.heard_now();
                let beaten = self.give(now, heard, |machine, around| {
                    machine.beaten(around, &name(), body, ns(call.sent))
                });
                beaten.expect("a reply to a heartbeat");
                self.beat_on(now);
            }
            About::Return(waiter) => self.returned(now, waiter, body, call.sent),
            About::Renew(id, ttl_ms, slot) => {
                self.renewal_over(now, id, slot, Some((body, ttl_ms, call.sent)));
            }
            About::Debt(id) => self.debt_answered(now, id, body),
        }
        self.calls()
    }

    fn flawed(&self, op: &Op, body: Body) -> Body {
        match (op, body) {
            (Op::Acquire(a), Body::Granted { token, .. })
                if self.habits.flaw == Flaw::ReplyWholeLease =>
            {
                Body::Granted { token, ttl_ms: a.lease_ms }
            }
            (_, body) => body,
        }
    }

    /// A message came into the inbox.
    pub(crate) fn on_message(&mut self, payload: &Payload, now: u64) -> Vec<Call> {
        match payload {
            Payload::Grant { grant, at_ms } => self.granted_by_message(now, grant, *at_ms),
            Payload::Zero | Payload::One => self.kicked |= self.beating,
            Payload::Forced { .. } | Payload::Leader { .. } | Payload::Guests { .. } => {}
        }
        self.calls()
    }

    fn granted_by_message(&mut self, now: u64, grant: &Grant, at_ms: u64) {
        let base = match (self.habits.flaw, self.heard) {
            (Flaw::MessageFromLastCall, Some((_, sent))) => Some(ns(sent)),
            (Flaw::MessageFromArrival | Flaw::OldMessagesCount, _) => Some(ns(now)),
            (_, Some((server, sent))) => {
                // One percent less, for the clocks' rates.
                let later = at_ms.saturating_sub(server);
                let base = ns(sent + later) - ns(later) / 100 - ns(server.saturating_sub(at_ms));
                Some(base.min(ns(now)))
            }
            (_, None) => None,
        };
        let heard = (Eras(self.hearing, self.heard_in), None);
        self.give(now, heard, |machine, around| machine.granted(around, grant, base));
    }

    /// The token of the guard, as long as it reads valid.
    pub(crate) fn guard(&self, now: u64) -> Option<Token> {
        let held = self.held.iter().find(|held| held.has_guard && held.is_valid(now))?;
        Some(held.token)
    }

    /// Who has the guard, and what it rests on.
    pub(crate) fn guarding(&self) -> Option<&Holding> {
        self.held.iter().find(|held| held.has_guard)
    }

    /// The attempt for which somebody waits.
    pub(crate) fn current(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| !attempt.gone)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.current().is_some()
    }

    /// Whether the owner's request is one of an attempt or a hold.
    pub(crate) fn wants(&self, owner: &OwnerId, request: Option<RequestId>) -> bool {
        let drew = |all: &[RequestId]| request.is_none_or(|request| all.contains(&request));
        self.attempts.iter().any(|a| a.owner == *owner && drew(&a.drawn))
            || self.held.iter().any(|h| h.has_guard && h.owner == *owner && drew(&h.drawn))
    }

    /// Whether a slow client has something to do at once.
    pub(crate) fn has_todo(&self, now: u64) -> bool {
        !self.undone.is_empty() || self.attempts.iter().any(|attempt| attempt.has_todo(now))
    }

    /// No call is under way, and nothing is owed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waits.is_empty() && self.debts.is_empty() && self.undone.is_empty()
    }

    /// The connection is lost: no call on it will be answered.
    pub(crate) fn disconnect(&mut self, now: u64) -> Vec<Call> {
        self.connected = false;
        for about in std::mem::take(&mut self.waits) {
            self.waits.push(about);
            self.call_fails(now, about, true);
        }
        for held in &mut self.held {
            held.hold.connection_lost(ns(now));
        }
        self.recent.connection_lost(Duration::from_millis(now), |_| true);
        self.calls()
    }

    /// There is a new connection, perhaps to another server.
    pub(crate) fn connect(&mut self, now: u64) -> Vec<Call> {
        self.connected = true;
        self.heard = None;
        self.renewals.reconnected();
        for held in &mut self.held {
            if held.watched.is_some() {
                held.plan(&mut self.renewals, ns(now), ns(now));
            }
        }
        self.machine.doubt_all(&name());
        self.kicked |= self.beating;
        let again = self.recent.connected(|_| true);
        if self.habits.flaw != Flaw::GivenBackOnce {
            for (_, op) in again {
                self.replay(now, op);
            }
        }
        self.calls()
    }

    /// What remains of a client for which nobody waits or holds.
    pub(crate) fn leftovers(&self) -> Result<(), String> {
        let free = self.machine.is_idle()
            && self.listening.is_none()
            && !self.beating
            && self.attempts.is_empty()
            && self.held.is_empty()
            && self.renewals.holds().next().is_none()
            && self.is_quiet();
        if free { Ok(()) } else { Err(format!("K1: something remains: {self:#?}")) }
    }
}
