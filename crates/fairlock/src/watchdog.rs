//! The watchdog: one task a client renews every hold in time, and tells the guards when it
//! cannot.

use crate::clock::{Moment, lock};
use crate::hold::{GuardState, Hold};
use crate::shared::Shared;
use fairlock_core::{Body, RenewalPlan};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Renewals under way at once: enough to fill a round trip, few enough to bound what a stalled
/// server has to work off.
const BATCH: usize = 100;

/// The first renewal after a grant by message: its TTL is short, and a critical section that is
/// shorter than this needs no renewal at all.
const CONFIRM_AFTER_MS: u64 = 100;

/// Pause before a failed renewal is tried again.
const RETRY_MS: u64 = 500;

#[derive(Default)]
pub(crate) struct Watchdog {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    plan: RenewalPlan,
    holds: HashMap<u64, Arc<Hold>>,
}

impl Watchdog {
    /// Takes care of a hold from now on. `full` says whether it has its whole lease already.
    pub(crate) fn watch(&self, hold: &Arc<Hold>, full: bool) {
        hold.set_whole_lease(full);
        let now = Moment::now();
        let at = if !full {
            now.plus_ms(CONFIRM_AFTER_MS)
        } else if hold.lease.renewed {
            now.plus_ms(hold.lease.ms / 3)
        } else {
            hold.valid_until()
        };
        let at = at.min(hold.valid_until());
        let mut state = lock(&self.state);
        let first = state.plan.next_ns().is_none_or(|next| at.nanos() < next);
        state.plan.set(hold.id, at.nanos());
        state.holds.insert(hold.id, Arc::clone(hold));
        drop(state);
        if first {
            self.changed.notify_one();
        }
    }

    /// The hold was released: from now on it is not renewed.
    pub(crate) fn forget(&self, hold: &Hold) {
        let mut state = lock(&self.state);
        state.plan.remove(hold.id);
        state.holds.remove(&hold.id);
    }

    /// The connection is lost: nobody knows what the server says now.
    pub(crate) fn suspect_all(&self) {
        for hold in lock(&self.state).holds.values() {
            hold.suspect();
            // Even one that is never renewed has to be looked at when the connection is back.
            hold.set_whole_lease(false);
        }
    }

    /// The connection is back: every hold is checked at once.
    pub(crate) fn check_all(&self) {
        let now = Moment::now().nanos();
        let mut state = lock(&self.state);
        let ids: Vec<u64> = state.holds.keys().copied().collect();
        for id in ids {
            state.plan.set(id, now);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn plan(&self, hold: &Hold, at: Moment) {
        let mut state = lock(&self.state);
        // A hold that was released meanwhile stays forgotten.
        if !state.holds.contains_key(&hold.id) {
            return;
        }
        let first = state.plan.next_ns().is_none_or(|next| at.nanos() < next);
        state.plan.set(hold.id, at.nanos());
        drop(state);
        if first {
            // The watchdog sleeps for as long as the plan was when it last looked.
            self.changed.notify_one();
        }
    }

    fn take_due(&self) -> Vec<Arc<Hold>> {
        let mut state = lock(&self.state);
        let due = state.plan.take_due(Moment::now().nanos(), BATCH);
        due.iter().filter_map(|id| state.holds.get(id).cloned()).collect()
    }
}

/// The watchdog's task; runs until the client is gone.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let due = shared.watchdog.take_due();
        if due.is_empty() {
            let next = lock(&shared.watchdog.state).plan.next_ns();
            let sleep =
                next.map(|ns| Duration::from_nanos(ns.saturating_sub(Moment::now().nanos())));
            match sleep {
                Some(sleep) => tokio::select! {
                    () = tokio::time::sleep(sleep) => {}
                    () = shared.watchdog.changed.notified() => {}
                },
                None => shared.watchdog.changed.notified().await,
            }
            continue;
        }
        // Each on its own: one slow or broken key does not hold up the others.
        let started: Vec<_> =
            due.into_iter().map(|hold| tokio::spawn(tend(Arc::clone(&shared), hold))).collect();
        if started.len() == BATCH {
            for task in started {
                // A renewal that panicked would be a bug; its hold ends at its deadline.
                let _ = task.await;
            }
        }
    }
}

/// Renews one hold, or notes that it is over, and plans what comes next.
async fn tend(shared: Arc<Shared>, hold: Arc<Hold>) {
    let valid_until = hold.valid_until();
    if hold.state() == GuardState::Lost {
        return lost(&shared, &hold);
    }
    if !hold.lease.renewed && hold.has_whole_lease() {
        // Only its end is left to come.
        return shared.watchdog.plan(&hold, valid_until);
    }
    // The deadline comes first, whatever the store does: another task would be late.
    shared.watchdog.plan(&hold, valid_until);
    if shared.is_closed() {
        return;
    }
    let ttl_ms = hold.lease.wanted_ms();
    let op = hold.renewal(ttl_ms);
    let now = Moment::now();
    match shared.store.call(&hold.name, &op).await {
        Ok(reply) => {
            shared.clock.note(reply.sent, reply.answer.now_ms);
            match reply.answer.body {
                Body::Renewed => {
                    hold.renewed(reply.sent, ttl_ms);
                    hold.set_whole_lease(true);
                    if hold.state() == GuardState::Lost {
                        return lost(&shared, &hold);
                    }
                    let until = hold.valid_until();
                    let at =
                        if hold.lease.renewed { now.plus_ms(hold.lease.ms / 3) } else { until };
                    shared.watchdog.plan(&hold, at.min(until));
                }
                _ => lost(&shared, &hold),
            }
        }
        Err(_) => {
            hold.suspect();
            let left = valid_until.left().as_millis() as u64;
            // Near the end try more often: at least four more times.
            let pause = RETRY_MS.min(left / 4).max(10);
            shared.watchdog.plan(&hold, Moment::now().plus_ms(pause).min(valid_until));
        }
    }
}

fn lost(shared: &Arc<Shared>, hold: &Arc<Hold>) {
    hold.lose();
    shared.watchdog.forget(hold);
}
