//! The watchdog: which holds there are, and when the renewal or the end of each is due. The order is
//! [`fairlock_core::client::Renewals`].

use crate::base::clock::{Moment, lock};
use crate::state::hold::Hold;
use crate::store::Scope;
use fairlock_core::client::{Renewals, Slot};
use fairlock_core::{OwnerId, Token};
use std::collections::VecDeque;
use std::slice;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../tests/inside/state/renewals/sleeping_tests.rs"]
mod sleeping_tests;

/// The number of early reports that are kept. A hold is watched a moment after its grant was read, so few are needed.
const EARLY_MAX: usize = 32;

#[derive(Default)]
pub(crate) struct Watchdog {
    watched: Mutex<Watched>,
    changed: Notify,
}

#[derive(Default)]
struct Watched {
    renewals: Renewals<Arc<Hold>>,
    /// Reports of force about holds that are not watched yet: such a message can arrive together with the grant.
    early: VecDeque<(OwnerId, Token)>,
}

impl Watched {
    /// Whether there was a report about this hold before it was watched.
    fn was_reported(&mut self, hold: &Hold) -> bool {
        let mut early = self.early.iter();
        let at = early.position(|(owner, token)| *token == hold.token && owner == hold.owner());
        at.and_then(|at| self.early.remove(at)).is_some()
    }

    fn report_early(&mut self, owner: &OwnerId, token: Token) {
        if self.early.len() == EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back((owner.clone(), token));
    }
}

/// The right to one renewal, until it is dropped.
pub(crate) struct SlotInUse<'a> {
    watchdog: &'a Watchdog,
    slot: Slot,
}

impl Drop for SlotInUse<'_> {
    fn drop(&mut self) {
        let wanted = lock(&self.watchdog.watched).renewals.free(self.slot);
        self.watchdog.wake(wanted);
    }
}

impl Watchdog {
    /// Starts to watch a hold.
    pub(crate) fn watch(&self, hold: &Arc<Hold>, now: Moment) {
        let at = hold.watched(now);
        let mut watched = lock(&self.watched);
        let missed = watched.renewals.watch(hold.id, Arc::clone(hold), now.nanos(), at.nanos());
        let reported = !watched.early.is_empty() && watched.was_reported(hold);
        drop(watched);
        self.wake(missed);
        if reported {
            self.reported(slice::from_ref(hold));
        }
    }

    /// Stops watching a hold, which is not renewed any more.
    pub(crate) fn forget(&self, hold: &Hold) {
        let forgotten = lock(&self.watched).renewals.forget(hold.id);
        // Not dropped before the mutex is free.
        drop(forgotten);
    }

    /// The holds of the lock `name` in this client.
    #[cfg(feature = "test-util")]
    pub(crate) fn holds_of(&self, name: &fairlock_core::LockName) -> Vec<Arc<Hold>> {
        self.holds_that(|hold| hold.name == *name)
    }

    /// The number of holds that are watched.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn holds(&self) -> usize {
        lock(&self.watched).renewals.holds().count()
    }

    /// Makes the holds of `scope` Suspect after their connection was lost.
    pub(crate) fn suspect(&self, scope: &Scope) {
        for hold in self.holds_that(|hold| scope.has(&hold.name)) {
            hold.connection_lost();
        }
    }

    /// Checks every hold of `scope` at once, after their connection is back.
    pub(crate) fn check(&self, scope: &Scope) {
        if scope.is_all() {
            // (With several servers, each connection has a lane of its own.)
            lock(&self.watched).renewals.reconnected();
        }
        let holds = self.holds_that(|hold| scope.has(&hold.name));
        if !scope.is_all() {
            holds.iter().for_each(|hold| hold.must_be_confirmed());
        }
        self.look_now(&holds);
    }

    /// Checks a hold that was taken away by force according to a message: the store is asked,
    /// at once unless there were many such messages, and only its answer counts. Returns whether there is such a hold.
    pub(crate) fn check_hold(&self, owner: &OwnerId, token: Token) -> bool {
        let mut watched = lock(&self.watched);
        let is_meant = |hold: &&Arc<Hold>| hold.token == token && hold.owner() == owner;
        let holds: Vec<_> = watched.renewals.holds().filter(is_meant).cloned().collect();
        if holds.is_empty() {
            watched.report_early(owner, token);
        }
        drop(watched);
        self.reported(&holds);
        !holds.is_empty()
    }

    /// A message says of these holds that they were taken away by force.
    fn reported(&self, holds: &[Arc<Hold>]) {
        holds.iter().for_each(|hold| hold.reported_taken());
        let now = Moment::now().nanos();
        let mut watched = lock(&self.watched);
        let missed = holds.iter().filter(|hold| watched.renewals.told(hold.id, now)).count();
        drop(watched);
        self.wake(missed > 0);
    }

    pub(crate) fn plan(&self, hold: &Hold, at: Moment) {
        let now = Moment::now().nanos();
        let missed = lock(&self.watched).renewals.plan(hold.id, now, at.nanos());
        self.wake(missed);
    }

    /// Takes the holds that are to be looked at. Returns whether more may be due.
    pub(crate) fn take_due(&self) -> (Vec<Arc<Hold>>, bool) {
        lock(&self.watched).renewals.take_due(Moment::now().nanos())
    }

    /// Has the hold renewed as soon as there is a slot.
    pub(crate) fn want_renewal(&self, hold: &Hold, valid_until_ns: u64, lane: u64) {
        lock(&self.watched).renewals.want(hold.id, valid_until_ns, lane);
    }

    /// The most urgent hold of some lane that waits for its renewal, with a slot for it.
    pub(crate) fn next_renewal(&self) -> Option<(Arc<Hold>, Slot)> {
        lock(&self.watched).renewals.next_renewal()
    }

    /// Uses a slot until the result is dropped.
    pub(crate) fn using(&self, slot: Slot) -> SlotInUse<'_> {
        SlotInUse { watchdog: self, slot }
    }

    /// Resolves when something is due, or may be.
    pub(crate) async fn due(&self) {
        let length = lock(&self.watched).renewals.fall_asleep(Moment::now().nanos());
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
        lock(&self.watched).renewals.awake();
    }

    fn holds_that(&self, are_meant: impl Fn(&Hold) -> bool) -> Vec<Arc<Hold>> {
        lock(&self.watched).renewals.holds().filter(|hold| are_meant(hold)).cloned().collect()
    }

    fn look_now(&self, holds: &[Arc<Hold>]) {
        let now = Moment::now().nanos();
        let mut watched = lock(&self.watched);
        let missed = holds.iter().filter(|hold| watched.renewals.plan(hold.id, now, now)).count();
        drop(watched);
        self.wake(missed > 0);
    }

    fn wake(&self, missed: bool) {
        if missed {
            self.changed.notify_one();
        }
    }
}
