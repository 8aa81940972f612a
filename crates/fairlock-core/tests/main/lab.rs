//! The laboratory for the attacks: a [`Sim`] at real scale (heartbeat 2 s, D 6 s, leases 30 s) and
//! a method for each usual sequence. Steps that a test does not make one by one happen at once and
//! without loss.

use crate::client::{About, Call, Client, Flaw, Habits};
use crate::sim::Sim;
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Kind, Mode, Op, OwnerId, Rules, Snapshot, Token,
};
use std::rc::Rc;

pub(crate) const T0: u64 = 1_760_000_000_000;
pub(crate) const LEASE: u64 = 30_000;

pub(crate) fn lab(clients: usize, flaw: Flaw) -> Sim {
    let (lease_ms, store_timeout_ms, beat_ms) = (LEASE, 30_000, 2_000);
    let habits = Habits { lease_ms, store_timeout_ms, beat_ms, flaw, ..Habits::default() };
    Sim::new(Rules::default(), &vec![habits; clients], T0)
}

impl Sim {
    /// A call that is executed and answered at once.
    pub(crate) fn call(&mut self, call: Call) -> Answer {
        self.calls.push(call);
        let awaited = self.replies.len();
        let answer = self.execute(self.calls.len() - 1);
        if self.replies.len() > awaited {
            self.hear(awaited);
        }
        answer
    }

    /// A call that is executed, but whose reply is lost.
    pub(crate) fn call_unheard(&mut self, call: Call) -> Answer {
        self.calls.push(call);
        let awaited = self.replies.len();
        let answer = self.execute(self.calls.len() - 1);
        self.replies.truncate(awaited);
        answer
    }

    pub(crate) fn start(&mut self, i: usize) -> Body {
        let now = self.now;
        let call = self.clients[i].start(now);
        self.call(call).body
    }

    /// A heartbeat, also of a client without waiters.
    pub(crate) fn beat(&mut self, i: usize) -> Body {
        let client = self.clients[i].id;
        let nobody = Op::Beat { client, waiters: Vec::new() };
        let calls =
            if self.clients[i].may_beat() { self.clients[i].beat(self.now) } else { vec![] };
        match calls.into_iter().next() {
            Some(call) => self.call(call).body,
            None => self.op(nobody).body,
        }
    }

    pub(crate) fn release(&mut self, i: usize) {
        self.input(i, Client::release);
        self.hear_all();
    }

    /// The user goes away, and a reply that is under way is not waited for any longer.
    pub(crate) fn give_up(&mut self, i: usize) {
        self.input(i, Client::give_up);
        self.hear_all();
        if !self.clients[i].attempts.is_empty() {
            self.now += 50;
            self.input(i, Client::late);
            self.hear_all();
        }
    }

    /// Reads all messages.
    pub(crate) fn read_all(&mut self) {
        while !self.messages.is_empty() {
            self.read(0);
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += ms;
    }

    /// Lets time pass while these clients send heartbeats.
    pub(crate) fn pass_beating(&mut self, ms: u64, beating: &[usize]) {
        let end = self.now + ms;
        while self.now < end {
            self.now = end.min(self.now + self.rules.beat_ms);
            for i in beating {
                self.beat(*i);
            }
        }
    }

    /// Applies an operation without any client.
    pub(crate) fn op(&mut self, op: Op) -> Answer {
        self.run(&Call { from: 0, op, sent: self.now, about: About::Nobody })
    }

    pub(crate) fn keys(&self) -> &Snapshot {
        self.lock.snapshot()
    }

    pub(crate) fn holder(&self) -> Option<&OwnerId> {
        let held = self.keys().hold_expires.is_none_or(|at| self.now <= at);
        self.keys().hold.keys().next().filter(|_| held)
    }

    pub(crate) fn holding_client(&self) -> Option<ClientId> {
        self.holder().and_then(OwnerId::client)
    }

    pub(crate) fn token(&self) -> Token {
        Token::new(self.keys().token.unwrap()).unwrap()
    }

    pub(crate) fn deafen(&mut self, client: ClientId, deaf: bool) {
        let ears = Rc::make_mut(&mut self.ears);
        if deaf {
            ears.deaf.insert(client);
        } else {
            ears.deaf.remove(&client);
        }
    }

    /// Changes the keys as an operator, a restart or an eviction does.
    pub(crate) fn tamper(&mut self, change: impl FnOnce(&mut Snapshot)) {
        let mut keys = self.keys().clone();
        change(&mut keys);
        crate::java::empty_keys_go(&mut keys);
        self.lock = Rc::new(fairlock_core::LockState::from_snapshot(keys));
    }
}

/// An acquisition that waits.
pub(crate) fn wanted(owner: &OwnerId, number: u64, now: u64) -> Acquire {
    Acquire {
        kind: Kind::Fair,
        owner: owner.clone(),
        request: crate::support::request(number),
        lease_ms: LEASE,
        mode: Mode::Wait,
        order: None,
        not_after_ms: now + 30_000,
        sure: false,
        shared_owner: false,
    }
}
