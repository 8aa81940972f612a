//! The heartbeats of a lock's waiters.

use super::{About, Call, Client, Flaw, Handed, name};
use fairlock_core::client::{Due, Returned, Step};
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
        match self.waiters.due(&name(), Duration::from_millis(now), woken) {
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
            match self.waiters.step(&name()) {
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
                    let wait = self.waiters.rest(&name(), period, period / 4, 1.0);
                    self.beat_at = now + wait.as_millis() as u64;
                    return;
                }
            }
        }
    }

    /// Sends a waiter back to its place, unless its wait is over.
    fn return_to_place(&mut self, now: u64, waiter: RequestId) -> bool {
        let same = self.habits.flaw == Flaw::OldMessagesCount;
        let fresh = if same { waiter } else { self.draw() };
        let not_after = self.not_after(now);
        let Some(mut sent) = self.waiters.return_to_place(waiter, fresh, not_after) else {
            return false;
        };
        let flaw = self.habits.flaw;
        if let Some(attempt) = self.waits_as(waiter) {
            let last = attempt.drawn.last().copied();
            if sent.request == fresh {
                attempt.drawn.push(fresh);
            }
            if let Some(request) = last.filter(|_| flaw == Flaw::LeaveFormerAtOnce) {
                let (kind, owner) = (sent.kind, sent.owner.clone());
                let (bury, shared_owner) = (true, sent.shared_owner);
                self.take_back(now, Op::Leave { kind, owner, request, bury, shared_owner });
            }
        }
        if flaw == Flaw::NoOrderOnReturn {
            sent.order = None;
        }
        let share = self.waiters.share(waiter);
        self.send(now, Op::asks(sent, share), About::Return(waiter));
        true
    }

    pub(super) fn returned(&mut self, now: u64, waiter: RequestId, body: Body, sent: u64) {
        self.waiters.set_in_doubt(waiter, false);
        let returned = self.waiters.returned(&name(), waiter, body).expect("a reply to a return");
        if let Returned::InPlace(granted) = returned {
            self.hand(now, granted, sent);
        }
        self.beat_on(now);
    }

    pub(super) fn beat_failed(&mut self, now: u64) {
        let times = (Duration::from_millis(self.beat_began), Duration::from_millis(now));
        let waits = Some(Duration::from_millis(self.habits.store_timeout_ms));
        let period = Duration::from_millis(self.habits.beat_ms);
        let failed = self.waiters.failed(&name(), times, waits, period);
        self.beat_at = now + failed.wait.as_millis() as u64;
        for (_, (attempt, waiter)) in failed.over {
            self.handed.push(Handed { attempt, waiter, how: None });
            if !self.habits.slow {
                self.tell(now);
            }
        }
    }
}
