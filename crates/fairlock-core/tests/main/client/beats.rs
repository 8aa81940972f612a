//! The heartbeats of a lock's waiters.

use super::{About, Call, Client, Eras, Flaw, acquire_of, name, ns};
use fairlock_core::client::{Due, Step};
use fairlock_core::{Body, Op, RequestId};
use std::time::Duration;

impl Client {
    /// Whether a heartbeat may begin.
    pub(crate) fn may_beat(&self) -> bool {
        self.beating && !self.waits.iter().any(|a| matches!(a, About::Beat | About::Return(_)))
    }

    /// Whether one is due by plan, or wanted at once.
    pub(crate) fn must_beat(&self, now: u64) -> bool {
        self.may_beat() && (self.kicked || self.beat_at <= now)
    }

    /// A heartbeat begins.
    pub(crate) fn beat(&mut self, now: u64) -> Vec<Call> {
        let woken = std::mem::take(&mut self.kicked);
        let nothing = (Eras(0, 0), None);
        match self.give(now, nothing, |machine, around| machine.due(around, &name(), woken)) {
            Due::After(_) => {
                self.beat_began = now;
                self.beat_on(now);
            }
            Due::Over(listening) => {
                assert_eq!(listening, self.listening.take(), "K1: a subscription");
                self.beating = false;
            }
        }
        self.calls()
    }

    pub(super) fn beat_on(&mut self, now: u64) {
        loop {
            match self.machine.beat(&name()) {
                Step::Ask(waiters) => {
                    let op = Op::Beat { client: self.id, waiters };
                    return self.send(now, op, About::Beat);
                }
                Step::Return(waiter) => {
                    if self.return_to_place(now, waiter) {
                        return;
                    }
                }
                Step::Listen { owner, former } => {
                    assert_eq!(former, self.listening, "one subscription");
                    self.listening = Some(owner);
                    self.kicked = true;
                }
                Step::Rest => {
                    let period = Duration::from_millis(self.habits.beat_ms);
                    let wait = self.machine.rest(&name(), period, period / 4, 1.0);
                    self.beat_at = now + wait.as_millis() as u64;
                    return;
                }
            }
        }
    }

    /// Sends a waiter back to its place, unless its wait is over.
    fn return_to_place(&mut self, now: u64, waiter: RequestId) -> bool {
        let same = (self.habits.flaw == Flaw::OldMessagesCount).then_some(waiter);
        let drew = self.requests;
        let sent = self.give(now, (Eras(0, 0), same), |machine, around| {
            machine.return_to_place(around, &name(), waiter).expect("numbers do not run out")
        });
        let fresh = crate::support::request((self.place as u64 + 1) * 1_000 + drew + 1);
        let Some(mut sent) = sent else { return false };
        let flaw = self.habits.flaw;
        let acquire = acquire_of(&mut sent);
        if flaw == Flaw::NoOrderOnReturn {
            acquire.order = None;
        }
        let acquire = acquire.clone();
        if let Some(attempt) = self.waits_as(waiter) {
            let last = attempt.drawn.last().copied();
            if acquire.request == fresh {
                attempt.drawn.push(fresh);
            }
            if let Some(request) = last.filter(|_| flaw == Flaw::LeaveFormerAtOnce) {
                let (kind, owner) = (acquire.kind, acquire.owner);
                let (bury, shared_owner) = (true, acquire.shared_owner);
                self.take_back(now, Op::Leave { kind, owner, request, bury, shared_owner });
            }
        }
        self.send(now, sent, About::Return(waiter));
        true
    }

    pub(super) fn returned(&mut self, now: u64, waiter: RequestId, body: Body, sent: u64) {
        self.machine.set_in_doubt(waiter, false);
        let heard = self.heard_now();
        let returned = self.give(now, heard, |machine, around| {
            machine.returned(around, &name(), waiter, body, ns(sent))
        });
        returned.expect("a reply to a return");
        self.beat_on(now);
    }

    pub(super) fn beat_failed(&mut self, now: u64) {
        let waits = Some(Duration::from_millis(self.habits.store_timeout_ms));
        let period = Duration::from_millis(self.habits.beat_ms);
        let began = ns(self.beat_began);
        let (wait, _) = self.give(now, (Eras(0, 0), None), |machine, around| {
            machine.beat_failed(around, (&name(), began), waits, period, |_| ())
        });
        self.beat_at = now + wait.as_millis() as u64;
    }
}
