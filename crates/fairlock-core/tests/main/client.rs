//! A client of ours: the values of `fairlock_core::client`, put together by a thin shell as the
//! engine does it. Each input returns the calls that follow from it. Times are milliseconds of a
//! clock that runs at the server's rate.

mod attempt;
mod beats;
mod ends;

use crate::support::{client, request};
use attempt::Attempt;
use ends::Debt;
pub(crate) use ends::Holding;
use fairlock_core::client::acquiring::At;
use fairlock_core::client::{Granted, Lasts, Message, RecentReleases, Renewals, Slot, Waiters};
use fairlock_core::{
    Answer, Body, ClientId, Grant, Kind, LockName, Op, OwnerId, Payload, RequestId, Share, Token,
};
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

/// What the waiters have handed out for an attempt, and by which request it waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handed {
    attempt: u64,
    waiter: RequestId,
    /// The grant, and the nanosecond from which its TTL counts. `None`: the store is silent.
    how: Option<(Grant, u64, Eras)>,
}

impl Handed {
    pub(crate) fn eras(&self) -> Option<Eras> {
        self.how.as_ref().map(|(_, _, eras)| *eras)
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
    /// Whom nobody has told yet, in a slow client.
    pub(crate) handed: Vec<Handed>,
    pub(crate) waiters: Waiters<(u64, RequestId)>,
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
            handed: Vec::new(),
            waiters: Waiters::default(),
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

    fn at(&self, now: u64) -> At {
        At { ns: ns(now), connected: self.connected }
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
                self.waiters.set_in_doubt(waiter, doubt);
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
                let granted = self.waiters.beaten(&name(), body).expect("a reply to a heartbeat");
                granted.into_iter().for_each(|granted| self.hand(now, Some(granted), call.sent));
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
        let valid_until = |base| fairlock_core::client::valid_until_ns(base, grant.ttl_ms);
        let lasts = match base {
            None => Lasts::Unknown,
            Some(base) if valid_until(base) <= ns(now) => Lasts::NoMore,
            Some(_) => Lasts::Still,
        };
        match (self.waiters.message(grant, lasts), base) {
            (Message::Granted(granted), Some(base)) => {
                let eras = Eras(self.hearing, self.heard_in);
                self.hand_out(now, granted, base, eras);
            }
            (Message::Look(_) | Message::TooLate(_), _) => self.kicked |= self.beating,
            (Message::Dropped | Message::Granted(_), _) => {}
        }
    }

    /// A reply contains a grant.
    fn hand(&mut self, now: u64, granted: Option<Granted<(u64, RequestId)>>, sent: u64) {
        if let Some(granted) = granted {
            self.hand_out(now, granted, ns(sent), Eras(self.hearing, self.hearing));
        }
    }

    fn hand_out(&mut self, now: u64, granted: Granted<(u64, RequestId)>, base_ns: u64, eras: Eras) {
        let (attempt, waiter) = granted.caller;
        self.kicked |= granted.look.is_some();
        self.handed.push(Handed { attempt, waiter, how: Some((granted.grant, base_ns, eras)) });
        if !self.habits.slow {
            self.tell(now);
        }
    }

    /// Tells an attempt what the waiters have handed out for it.
    pub(crate) fn hand_over(&mut self, now: u64) -> Vec<Call> {
        self.tell(now);
        self.calls()
    }

    fn tell(&mut self, now: u64) {
        let Handed { attempt, waiter, how } = self.handed.remove(0);
        match how {
            Some((grant, base_ns, eras)) => {
                self.granted(now, attempt, waiter, grant, base_ns, eras);
            }
            None => self.input(now, attempt, |it, at| it.wait_failed(at, waiter, ())),
        }
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
        self.attempts.iter().any(|attempt| attempt.has_todo(now))
    }

    /// No call is under way, and nothing is owed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waits.is_empty() && self.debts.is_empty() && self.handed.is_empty()
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
        self.waiters.doubt_all(&name());
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
        let free = self.waiters == Waiters::default()
            && self.listening.is_none()
            && !self.beating
            && self.attempts.is_empty()
            && self.held.is_empty()
            && self.renewals.holds().next().is_none()
            && self.is_quiet();
        if free { Ok(()) } else { Err(format!("K1: something remains: {self:#?}")) }
    }
}
