//! The watchdog: which holds there are, and when the renewal or the end of each is due.

use crate::base::clock::{Moment, lock};
use crate::state::hold::Hold;
use crate::store::Scope;
use fairlock_core::{OwnerId, RenewalPlan, Token};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../tests/inside/state/renewals/sleeping_tests.rs"]
mod sleeping_tests;

/// Most renewals under way at once in one lane, usually a connection: enough to fill a round trip,
/// few enough to bound the backlog of a stalled server.
const RENEWALS_MAX: usize = 100;

/// Most holds looked at before other tasks of the thread get their turn: well below a millisecond.
pub(crate) const LOOKS_MAX: usize = 1_000;

/// Longest sleep while there are holds. Timers stand still while the machine is suspended, but the
/// clock of leases does not; after a resume, a loss is reported within this time. The first sleep
/// after the last hold is no longer either, so that a client that takes and frees locks all the
/// time need not wake the watchdog's thread for each of them.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// When a grant by message is first renewed: its TTL is short, but a critical section that is
/// shorter than this needs no renewal at all.
const CONFIRM_AFTER_MS: u64 = 100;

#[derive(Default)]
pub(crate) struct Watchdog {
    state: Mutex<State>,
    changed: Arc<Notify>,
}

struct State {
    holds: BTreeMap<u64, Arc<Hold>>,
    /// When each hold is looked at next.
    plan: RenewalPlan,
    /// One for each lane of the store, so that a server that hangs delays only its own locks.
    lanes: BTreeMap<u64, Lane>,
    sleep: Sleep,
    /// Whether anything was planned since the watchdog last fell asleep.
    used: bool,
}

/// How long the watchdog sleeps, for callers that plan something in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// It looks at the plan before it sleeps again, or was notified to.
    Awake,
    /// Until this moment, in nanoseconds.
    Until(u64),
    Endless,
}

impl Sleep {
    /// Whether the watchdog would miss what is due at `at_ns`. A sleep that should be over is not
    /// relied upon: the machine may have been suspended, which makes the timer late by as much.
    fn misses(self, now_ns: u64, at_ns: u64) -> bool {
        match self {
            Self::Awake => false,
            Self::Until(end_ns) => at_ns < end_ns || end_ns <= now_ns,
            Self::Endless => true,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            holds: BTreeMap::new(),
            plan: RenewalPlan::default(),
            lanes: BTreeMap::new(),
            sleep: Sleep::Awake,
            used: false,
        }
    }
}

impl State {
    /// Plans a look. Returns whether the watchdog must be woken for it.
    fn plan(&mut self, id: u64, now: Moment, at: Moment) -> bool {
        self.plan.set(id, at.nanos());
        self.used = true;
        let missed = self.sleep.misses(now.nanos(), at.nanos());
        if missed {
            self.sleep = Sleep::Awake;
        }
        missed
    }

    /// How long the watchdog can sleep from now on. `None` means until it is notified: nothing is
    /// planned, nor was anything during the last sleep.
    fn fall_asleep(&mut self) -> Option<Duration> {
        let now = Moment::now();
        let used = std::mem::take(&mut self.used);
        let next = match self.plan.next_ns() {
            Some(ns) => Duration::from_nanos(ns.saturating_sub(now.nanos())),
            None if used => SLEEP_MAX,
            None => {
                self.sleep = Sleep::Endless;
                return None;
            }
        };
        let length = next.min(SLEEP_MAX);
        self.sleep = Sleep::Until(now.plus(length).nanos());
        Some(length)
    }
}

/// The renewals of one lane.
#[derive(Default)]
struct Lane {
    /// Holds whose renewal is due and has no slot yet, by the end of their validity.
    waiting: RenewalPlan,
    /// The number of renewals under way.
    slots: Arc<AtomicUsize>,
}

impl Lane {
    fn is_full(&self) -> bool {
        self.slots.load(Ordering::Acquire) >= RENEWALS_MAX
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.load(Ordering::Acquire) == 0
    }
}

/// The right to one renewal.
pub(crate) struct Slot {
    taken: Arc<AtomicUsize>,
    changed: Arc<Notify>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.taken.fetch_sub(1, Ordering::AcqRel) == RENEWALS_MAX {
            // A hold may be waiting for the slot.
            self.changed.notify_one();
        }
    }
}

impl Watchdog {
    /// Starts to watch a hold. `full` says whether it has its whole lease already.
    pub(crate) fn watch(&self, hold: &Arc<Hold>, full: bool) {
        hold.set_whole_lease(full);
        let now = Moment::now();
        let (lease, valid_until) = hold.times();
        let at = if !full {
            now.plus_ms(CONFIRM_AFTER_MS)
        } else if lease.renewed {
            now.plus_ms(lease.ms / 3)
        } else {
            valid_until
        };
        let at = at.min(valid_until);
        let mut state = lock(&self.state);
        let missed = state.plan(hold.id, now, at);
        state.holds.insert(hold.id, Arc::clone(hold));
        drop(state);
        if missed {
            self.changed.notify_one();
        }
    }

    /// Stops watching a hold, which is not renewed any more.
    pub(crate) fn forget(&self, hold: &Hold) {
        let mut state = lock(&self.state);
        state.plan.remove(hold.id);
        for lane in state.lanes.values_mut().filter(|lane| !lane.waiting.is_empty()) {
            lane.waiting.remove(hold.id);
        }
        state.holds.remove(&hold.id);
    }

    /// The holds of the lock `name` in this client.
    #[cfg(feature = "test-util")]
    pub(crate) fn holds_of(&self, name: &fairlock_core::LockName) -> Vec<Arc<Hold>> {
        lock(&self.state).holds.values().filter(|hold| hold.name == *name).cloned().collect()
    }

    /// The number of holds that are watched.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn holds(&self) -> usize {
        lock(&self.state).holds.len()
    }

    /// Makes the holds of `scope` Suspect after their connection was lost.
    pub(crate) fn suspect(&self, scope: &Scope) {
        let holds: Vec<_> = lock(&self.state).holds.values().cloned().collect();
        for hold in holds.iter().filter(|hold| scope.has(&hold.name)) {
            hold.suspect();
            // Even a hold that is never renewed must be checked when the connection is back.
            hold.set_whole_lease(false);
        }
    }

    /// Checks every hold of `scope` at once, after their connection is back.
    pub(crate) fn check(&self, scope: &Scope) {
        let now = Moment::now().nanos();
        let mut state = lock(&self.state);
        let State { holds, plan, lanes, .. } = &mut *state;
        if scope.is_all() {
            // Calls on the old connection may keep their slots until they time out. (With several
            // servers, each connection has a lane of its own.)
            lanes.values_mut().for_each(|lane| lane.slots = Arc::default());
        }
        for (id, hold) in holds.iter().filter(|(_, hold)| scope.has(&hold.name)) {
            // Even a hold that is never renewed must be confirmed anew.
            if !scope.is_all() {
                hold.set_whole_lease(false);
            }
            plan.set(*id, now);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Checks a hold that a message says was taken away by force: the store is asked at once, and
    /// its answer counts. Returns whether there is such a hold.
    pub(crate) fn check_hold(&self, owner: &OwnerId, token: Token) -> bool {
        let now = Moment::now().nanos();
        let mut state = lock(&self.state);
        let State { holds, plan, .. } = &mut *state;
        let mut found = false;
        for (id, hold) in holds {
            if hold.token == token && hold.owner() == owner {
                hold.set_forced(true);
                // Even a hold that is never renewed is checked.
                hold.set_whole_lease(false);
                plan.set(*id, now);
                found = true;
            }
        }
        drop(state);
        if found {
            self.changed.notify_one();
        }
        found
    }

    pub(crate) fn plan(&self, hold: &Hold, at: Moment) {
        let mut state = lock(&self.state);
        // A hold that was released in the meantime stays forgotten.
        if !state.holds.contains_key(&hold.id) {
            return;
        }
        let missed = state.plan(hold.id, Moment::now(), at);
        drop(state);
        if missed {
            self.changed.notify_one();
        }
    }

    pub(crate) fn take_due(&self) -> Vec<Arc<Hold>> {
        let mut state = lock(&self.state);
        let due = state.plan.take_due(Moment::now().nanos(), LOOKS_MAX);
        due.iter().filter_map(|id| state.holds.get(id).cloned()).collect()
    }

    /// Has the hold renewed as soon as there is a slot.
    pub(crate) fn want_renewal(&self, hold: &Hold, valid_until: Moment, lane: u64) {
        let mut state = lock(&self.state);
        if !state.holds.contains_key(&hold.id) {
            // The hold was forgotten since the look began.
            return;
        }
        if state.lanes.len() > 1 {
            // The hold may have been in another lane before, and some lanes are never used again.
            state.lanes.values_mut().for_each(|lane| _ = lane.waiting.remove(hold.id));
            state.lanes.retain(|_, lane| !lane.is_idle());
        }
        state.lanes.entry(lane).or_default().waiting.set(hold.id, valid_until.nanos());
    }

    /// The most urgent hold of some lane that waits for its renewal, with a slot for it.
    pub(crate) fn next_renewal(&self) -> Option<(Arc<Hold>, Slot)> {
        let mut state = lock(&self.state);
        let State { holds, lanes, .. } = &mut *state;
        let lane = lanes.values_mut().find(|lane| !lane.waiting.is_empty() && !lane.is_full())?;
        let id = lane.waiting.take_due(u64::MAX, 1).pop()?;
        lane.slots.fetch_add(1, Ordering::AcqRel);
        let slot = Slot { taken: Arc::clone(&lane.slots), changed: Arc::clone(&self.changed) };
        // Every waiting hold is in `holds`: `forget` removes it from both.
        holds.get(&id).map(|hold| (Arc::clone(hold), slot))
    }

    /// Resolves when something is due, or may be.
    pub(crate) async fn due(&self) {
        let length = lock(&self.state).fall_asleep();
        let planned = async {
            match length {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Polled first, so that a notification just before the deadline does not cause another
            // wake-up right after it.
            () = self.changed.notified() => {}
            () = planned => {}
        }
        lock(&self.state).sleep = Sleep::Awake;
    }
}
