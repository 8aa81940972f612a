//! The laboratory for the attacks: a [`Sim`] at real scale (heartbeat 2 s, D 6 s, leases 30 s) and
//! a method for each usual sequence. Steps that a test does not make one by one happen at once and
//! without loss.

use crate::client::{Call, Flaw, Habits};
use crate::sim::Sim;
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Kind, Mode, Op, OwnerId, Rules, Snapshot, Token,
};
use std::rc::Rc;

pub(crate) const T0: u64 = 1_760_000_000_000;
pub(crate) const LEASE: u64 = 30_000;

pub(crate) fn lab(clients: usize, flaw: Flaw) -> Sim {
    let habits = Habits { lease_ms: LEASE, store_timeout_ms: 30_000, flaw, ..Habits::default() };
    Sim::new(Rules::default(), &vec![habits; clients], T0)
}

impl Sim {
    /// A call that is executed and answered at once.
    pub(crate) fn call(&mut self, call: Call) -> Answer {
        self.calls.push(call);
        let answer = self.execute(self.calls.len() - 1);
        self.hear(self.replies.len() - 1);
        answer
    }

    /// A call that is executed, but whose reply is lost.
    pub(crate) fn call_unheard(&mut self, call: Call) -> Answer {
        self.calls.push(call);
        let answer = self.execute(self.calls.len() - 1);
        self.replies.pop();
        answer
    }

    pub(crate) fn start(&mut self, i: usize) -> Body {
        let call = self.clients[i].start(self.now);
        self.call(call).body
    }

    pub(crate) fn beat(&mut self, i: usize) -> Body {
        let call = self.clients[i].beat(self.now);
        self.call(call).body
    }

    pub(crate) fn release(&mut self, i: usize) {
        for call in self.clients[i].release(self.now) {
            self.call(call);
        }
    }

    pub(crate) fn give_up(&mut self, i: usize) {
        for call in self.clients[i].give_up(self.now) {
            self.call(call);
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
        self.run(&Call { from: 0, op, sent: self.now, about: None })
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
