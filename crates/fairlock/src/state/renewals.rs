//! The watchdog: which holds there are, and when something of each is due: its renewal, or its end.

use crate::base::clock::{Moment, lock};
use crate::state::hold::Hold;
use crate::store::Scope;
use fairlock_core::{OwnerId, RenewalPlan, Token};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

#[cfg(all(test, feature = "_testkit"))]
#[path = "../../tests/inside/state/renewals/sleeping_tests.rs"]
mod sleeping_tests;

/// Renewals under way at once by one way, as a rule a connection: enough to fill a round trip, few enough to bound
/// what a stalled server has to work off.
const RENEWALS_MAX: usize = 100;

/// Holds looked at in one go, before other tasks of the thread have their turn: well below a
/// millisecond.
pub(crate) const LOOKS_MAX: usize = 1_000;

/// Longest sleep while there are holds: timers stand still while the machine is suspended, the time
/// that leases are counted in does not. After waking up, a loss is told within this time. It sleeps
/// no longer than this after the last hold either, so that a client that takes and frees locks all
/// the time finds it about to look anyway, and need not wake its thread for each of them.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The first renewal after a grant by message: its TTL is short, and a critical section that is
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
    /// By the ways of the store, so that a server which hangs holds up its own locks alone.
    lanes: BTreeMap<u64, Lane>,
    sleep: Sleep,
    /// Whether anything was planned since it fell asleep for the last time.
    used: bool,
}

/// How long the watchdog sleeps, as far as those must know who plan something meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// It looks at the plan before it sleeps again, or was told to.
    Awake,
    /// Until this moment, in nanoseconds.
    Until(u64),
    Endless,
}

impl Sleep {
    /// Whether it would miss what is due at `at_ns`. A sleep that should be over is not relied upon:
    /// the machine may have been suspended, and the timer be late by as much.
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
    /// Plans a look, and says whether the watchdog must be woken for it.
    fn plan(&mut self, id: u64, now: Moment, at: Moment) -> bool {
        self.plan.set(id, at.nanos());
        self.used = true;
        let missed = self.sleep.misses(now.nanos(), at.nanos());
        if missed {
            self.sleep = Sleep::Awake;
        }
        missed
    }

    /// How long it can sleep from now on. With nothing planned only if nothing was for a while.
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

/// The renewals that go by one way.
#[derive(Default)]
struct Lane {
    /// Due, without a slot yet; by the end of their validity.
    waiting: RenewalPlan,
    /// How many are under way.
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
            // Somebody may have waited for it.
            self.changed.notify_one();
        }
    }
}

impl Watchdog {
    /// Takes care of a hold from now on. `full` says whether it has its whole lease already.
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

    /// The hold was released: from now on it is not renewed.
    pub(crate) fn forget(&self, hold: &Hold) {
        let mut state = lock(&self.state);
        state.plan.remove(hold.id);
        for lane in state.lanes.values_mut().filter(|lane| !lane.waiting.is_empty()) {
            lane.waiting.remove(hold.id);
        }
        state.holds.remove(&hold.id);
    }

    /// Who holds the lock `name`, of this client.
    #[cfg(feature = "test-util")]
    pub(crate) fn holds_of(&self, name: &fairlock_core::LockName) -> Vec<Arc<Hold>> {
        lock(&self.state).holds.values().filter(|hold| hold.name == *name).cloned().collect()
    }

    /// How many holds it cares for.
    #[cfg(all(test, feature = "_testkit"))]
    pub(crate) fn holds(&self) -> usize {
        lock(&self.state).holds.len()
    }

    /// The connection is lost: nobody knows what the server says now.
    pub(crate) fn suspect(&self, scope: &Scope) {
        let holds: Vec<_> = lock(&self.state).holds.values().cloned().collect();
        for hold in holds.iter().filter(|hold| scope.has(&hold.name)) {
            hold.suspect();
            // Even one that is never renewed has to be looked at when the connection is back.
            hold.set_whole_lease(false);
        }
    }

    /// The connection is back: every hold is checked at once.
    pub(crate) fn check(&self, scope: &Scope) {
        let now = Moment::now().nanos();
        let mut state = lock(&self.state);
        let State { holds, plan, lanes, .. } = &mut *state;
        if scope.is_all() {
            // Calls on the old connection may hold their slots until they time out. (Of several
            // servers each connection is another way.)
            lanes.values_mut().for_each(|lane| lane.slots = Arc::default());
        }
        for (id, hold) in holds.iter().filter(|(_, hold)| scope.has(&hold.name)) {
            // What was not renewed by a former grant of time has to be known anew.
            if !scope.is_all() {
                hold.set_whole_lease(false);
            }
            plan.set(*id, now);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Somebody says that this hold was taken away by force: the store is asked at once, and what it says counts.
    /// Says whether there is such a hold.
    pub(crate) fn check_hold(&self, owner: &OwnerId, token: Token) -> bool {
        let now = Moment::now().nanos();
        let mut state = lock(&self.state);
        let State { holds, plan, .. } = &mut *state;
        let mut found = false;
        for (id, hold) in holds {
            if hold.token == token && hold.owner == *owner {
                hold.set_forced(true);
                // Even one that is never renewed.
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
        // A hold that was released meanwhile stays forgotten.
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

    /// Has it renewed as soon as there is a slot.
    pub(crate) fn want_renewal(&self, hold: &Hold, valid_until: Moment, lane: u64) {
        let mut state = lock(&self.state);
        if !state.holds.contains_key(&hold.id) {
            // Forgotten since the look began.
            return;
        }
        if state.lanes.len() > 1 {
            // It may have come by another way before; and ways are left for ever.
            state.lanes.values_mut().for_each(|lane| _ = lane.waiting.remove(hold.id));
            state.lanes.retain(|_, lane| !lane.is_idle());
        }
        state.lanes.entry(lane).or_default().waiting.set(hold.id, valid_until.nanos());
    }

    /// The most urgent hold of some way that waits for its renewal, with a slot for it.
    pub(crate) fn next_renewal(&self) -> Option<(Arc<Hold>, Slot)> {
        let mut state = lock(&self.state);
        let State { holds, lanes, .. } = &mut *state;
        let lane = lanes.values_mut().find(|lane| !lane.waiting.is_empty() && !lane.is_full())?;
        let id = lane.waiting.take_due(u64::MAX, 1).pop()?;
        lane.slots.fetch_add(1, Ordering::AcqRel);
        let slot = Slot { taken: Arc::clone(&lane.slots), changed: Arc::clone(&self.changed) };
        // Whatever waits is held: `forget` takes it out of both.
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
            // First, so that what came just before the date does not wake it once more right after.
            () = self.changed.notified() => {}
            () = planned => {}
        }
        lock(&self.state).sleep = Sleep::Awake;
    }
}
