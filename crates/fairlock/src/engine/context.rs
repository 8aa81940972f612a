//! What the tasks, handles and guards of a client share.

use crate::base::clock::{Jump, Moment, ServerClock, lock};
use crate::base::error::Error;
use crate::base::process::Origin;
use crate::base::random::Requests;
use crate::engine::machine::Machine;
use crate::observe;
use crate::settings::config::Config;
use crate::settings::connection_state::ConnectionState;
use crate::settings::server_checks::{Check, Reaction, Warning};
use crate::state::in_flight::InFlight;
use crate::state::kinds::Kinds;
use crate::state::latches::Latches;
use crate::state::observers::Observers;
use crate::state::renewals::Watchdog;
use crate::state::seat::Owners;
use crate::store::{Reply, Scope, Store};
use fairlock_core::client::{Debts, Lease, RecentReleases};
use fairlock_core::{ClientId, Kind, LockName, Op, OwnerId, RequestId, Rules};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) rules: Rules,
    pub(crate) client_id: ClientId,
    pub(crate) origin: Origin,
    pub(crate) store: Arc<dyn Store>,
    /// The store is inside this process and answers at once.
    pub(crate) is_in_process: bool,
    pub(crate) clock: ServerClock,
    pub(crate) machine: Machine,
    pub(crate) kinds: Kinds,
    pub(crate) latches: Latches,
    pub(crate) observers: Observers,
    pub(crate) owners: Arc<Owners>,
    pub(crate) watchdog: Watchdog,
    pub(crate) in_flight: Arc<InFlight>,
    recent_releases: Mutex<RecentReleases>,
    debts: Mutex<Debts>,
    /// The runtime of the background thread: all work of the client happens there.
    pub(crate) runtime: Handle,
    pub(crate) connection: watch::Sender<ConnectionState>,
    /// Problems found with the connected server, or with the last one.
    pub(crate) warnings: Mutex<Vec<Warning>>,
    /// Notified when the client is shut down: for each acquisition, this costs less than a receiver
    /// of `connection`.
    closes: Notify,
    observed: observe::Connection,
    numbers: AtomicU64,
    once_owners: AtomicU64,
    /// Whether the store knows that not all holds have the lease of the settings.
    lease_differs: AtomicBool,
    requests: Requests,
    nudging: Mutex<HashSet<LockName>>,
}

impl Context {
    pub(crate) fn new(
        config: Config,
        client_id: ClientId,
        store: Arc<dyn Store>,
        runtime: Handle,
        is_in_process: bool,
    ) -> Arc<Self> {
        let rules = config.rules();
        Arc::new(Self {
            rules,
            config,
            client_id,
            origin: Origin::here(),
            store,
            is_in_process,
            clock: ServerClock::default(),
            machine: Machine::default(),
            kinds: Kinds::default(),
            latches: Latches::default(),
            observers: Observers::default(),
            owners: Arc::default(),
            watchdog: Watchdog::default(),
            in_flight: Arc::new(InFlight::new(Origin::here())),
            recent_releases: Mutex::default(),
            debts: Mutex::default(),
            runtime,
            connection: watch::Sender::new(ConnectionState::Reconnecting),
            warnings: Mutex::default(),
            closes: Notify::new(),
            observed: observe::Connection::new(),
            numbers: AtomicU64::new(1),
            once_owners: AtomicU64::new(1),
            lease_differs: AtomicBool::new(false),
            requests: Requests::default(),
            nudging: Mutex::default(),
        })
    }

    /// Whether the client's background work runs on this thread, which then cannot wait for it.
    pub(crate) fn runs_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }

    /// The interval between the heartbeats of a waiting client.
    pub(crate) fn beat_every(&self, name: &LockName) -> Duration {
        self.store.beat_every(name, self.config.heartbeat)
    }

    /// A new owner.
    pub(crate) fn new_owner(&self) -> Result<OwnerId, Error> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Ok(OwnerId::ours(self.client_id, number)?)
    }

    /// As [`new_owner`](Self::new_owner), for a lock that is [held once in a
    /// time](fairlock_core::ONCE_NUMBER_MIN).
    pub(crate) fn new_once_owner(&self) -> Result<OwnerId, Error> {
        let count = self.once_owners.fetch_add(1, Ordering::Relaxed);
        let lease_ms = u64::try_from(self.config.watchdog_lease.as_millis()).unwrap_or(u64::MAX);
        Ok(OwnerId::once(self.client_id, lease_ms, count)?)
    }

    /// A hold has this lease: if the watchdog does not renew it, without an end, for the lease of the
    /// settings, what the client announces of its lease does not apply to it.
    pub(crate) fn note_lease(&self, lease: Lease) {
        if !lease.renewed || lease.end_ns.is_some() || lease.whole() != self.config.watchdog_lease {
            self.lease_differs();
        }
    }

    /// A hold is not renewed for the lease of the settings.
    pub(crate) fn lease_differs(&self) {
        if self.config.announce && !self.lease_differs.swap(true, Ordering::Relaxed) {
            self.store.lease_differs(self.client_id);
        }
    }

    /// A new request id, which nobody can guess.
    pub(crate) fn new_request(&self) -> Result<RequestId, Error> {
        self.requests.draw()
    }

    /// Whether this is a forked child's copy, in which nothing may be touched. A store inside the
    /// process is copied as a whole, and only its background work is missing.
    pub(crate) fn is_forked_child(&self) -> bool {
        !self.is_in_process && self.origin.is_forked_child()
    }

    /// The runtime of the background thread, for a call of the application.
    ///
    /// # Errors
    /// In a forked child, which has no such thread.
    pub(crate) fn background(&self) -> Result<&Handle, Error> {
        if self.origin.is_forked_child() {
            return Err(Error::forked());
        }
        Ok(&self.runtime)
    }

    /// Checks that the client can be used.
    ///
    /// # Errors
    /// In a forked child, and after a shutdown.
    pub(crate) fn usable(&self) -> Result<(), Error> {
        // Checked first: in a forked child, the copy of a mutex may be locked for ever.
        if self.is_forked_child() {
            return Err(Error::forked());
        }
        if self.is_closed() {
            return Err(Error::closed());
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.connection.borrow() == ConnectionState::Closed
    }

    /// Marks the client as shut down, which is final.
    pub(crate) fn close(&self) {
        self.set_connection(ConnectionState::Closed);
    }

    /// Notes an operation that gave back a lock or a place: the store has answered it, or could not
    /// be reached.
    pub(crate) fn gave_back(&self, name: &LockName, op: &Op) {
        if self.store.may_fail_over() {
            let reached = self.is_connected(name);
            lock(&self.recent_releases).note(Moment::now().since_boot(), name, op, reached);
        }
    }

    /// Notes that the connection of these locks is lost, which may lead to another server.
    pub(crate) fn releases_may_be_lost(&self, scope: &Scope) {
        let now = Moment::now().since_boot();
        lock(&self.recent_releases).connection_lost(now, |name| scope.has(name));
    }

    /// Whether there is a release to repeat on the next server.
    pub(crate) fn has_recent_releases(&self) -> bool {
        lock(&self.recent_releases).is_any(Moment::now().since_boot())
    }

    /// The releases to repeat on the server to which these locks are connected now.
    pub(crate) fn releases_to_repeat(&self, scope: &Scope) -> Vec<(LockName, Op)> {
        lock(&self.recent_releases).connected(|name| scope.has(name))
    }

    /// The client's debts: requests that the store has refused to take back.
    pub(crate) fn debts(&self) -> MutexGuard<'_, Debts> {
        lock(&self.debts)
    }

    /// Resolves when the client is shut down.
    pub(crate) async fn closed(&self) {
        // Created before the look, so that no end falls in between.
        let closes = self.closes.notified();
        if !self.is_closed() {
            closes.await;
        }
    }

    /// Until when an unreachable store is tried.
    pub(crate) fn store_deadline(&self) -> Moment {
        Moment::now().plus(self.config.store_timeout)
    }

    /// Leftovers of locks that nobody has or wants.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let ((waiters, queues), holds) = (self.machine.waiting(), self.watchdog.holds());
        let counts = [
            (waiters, "waiters"),
            (queues, "queues"),
            (self.latches.watched(), "latches that are watched"),
            (holds, "holds that are watched"),
            (self.in_flight.count(), "clean-ups under way"),
            (lock(&self.nudging).len(), "locks that are nudged"),
        ];
        let there = counts.iter().filter(|(count, _)| *count > 0);
        there.map(|(count, what)| format!("{count} {what}")).collect()
    }

    /// Adds a warning until the next connection, or, in a store without a server, until the client ends.
    pub(crate) fn add_warning(&self, warning: Warning) {
        lock(&self.warnings).push(warning);
    }

    /// Replaces the findings of one check during this connection.
    pub(crate) fn note_found(&self, check: Check, found: Option<Warning>) {
        let is_new = {
            let mut warnings = lock(&self.warnings);
            let is_new = found.as_ref().is_some_and(|found| !warnings.contains(found));
            warnings.retain(|known| known.check() != check);
            warnings.extend(found.clone());
            is_new
        };
        if let Some(warning) = found.filter(|_| is_new) {
            observe::warned(&warning);
        }
    }

    /// Notes everything in the reply to `op` besides its body.
    pub(crate) fn note_reply(self: &Arc<Self>, name: &LockName, op: &Op, reply: &Reply) {
        self.note_time(reply);
        if reply.answer.more {
            self.nudge(name, op.kind().unwrap_or(Kind::Fair));
        }
    }

    /// Notes the time in a reply of a server.
    pub(crate) fn note_time(self: &Arc<Self>, reply: &Reply) {
        let clock = reply.clock.as_deref().unwrap_or(&self.clock);
        if let Some(jump) = clock.note(reply.sent, reply.answer.now_ms) {
            self.note_jump(jump, reply.clock.as_ref());
        }
    }

    /// A server's clock jumped. `clock` is given where there are several servers.
    #[cold]
    fn note_jump(self: &Arc<Self>, jump: Jump, clock: Option<&Arc<ServerClock>>) {
        let reaction = self.config.on.to(Check::Clock);
        // A store on this host uses this machine's clock.
        if reaction == Reaction::Ignore || !self.store.may_fail_over() {
            return;
        }
        if reaction == Reaction::Refuse {
            let scope = self.scope_of(clock);
            self.watchdog.suspect(&scope);
            self.watchdog.check(&scope);
            self.check_everyone(&scope);
        }
        let warning = Warning::new(Check::Clock, jump.to_string());
        {
            let mut warnings = lock(&self.warnings);
            // Only the latest is kept: a clock that keeps jumping must not fill the list.
            warnings.retain(|known| known.check() != Check::Clock);
            warnings.push(warning.clone());
        }
        observe::warned(&warning);
    }

    /// The locks on the server with this clock.
    fn scope_of(&self, clock: Option<&Arc<ServerClock>>) -> Scope {
        #[cfg(feature = "redis")]
        if let Some(clock) = clock {
            let (store, clock) = (Arc::clone(&self.store), Arc::clone(clock));
            return Scope::These(Arc::new(move |name| {
                store.clock(name).is_some_and(|its| Arc::ptr_eq(&its, &clock))
            }));
        }
        let _ = clock;
        Scope::All
    }

    /// The time by the clock of the lock's server at `now`.
    pub(crate) fn ms_at(&self, name: &LockName, now: Moment) -> u64 {
        match self.store.clock(name) {
            Some(clock) => clock.ms_at(now),
            None => self.clock.ms_at(now),
        }
    }

    /// By the clock of the lock's server, when a call that is sent now counts as unanswered.
    pub(crate) fn late_ms(&self, name: &LockName) -> u64 {
        self.ms_at(name, Moment::now().plus(self.config.response_timeout))
    }

    /// Whether the lock's server is connected.
    pub(crate) fn is_connected(&self, name: &LockName) -> bool {
        let state = || *self.connection.borrow() == ConnectionState::Connected;
        self.store.is_connected(name).unwrap_or_else(state)
    }

    /// Sets the state of the connection. `Closed` is final.
    pub(crate) fn set_connection(&self, state: ConnectionState) {
        let is_new = self.connection.send_if_modified(|current| {
            let changed = *current != ConnectionState::Closed && *current != state;
            if changed {
                *current = state;
            }
            changed
        });
        if is_new && state == ConnectionState::Closed {
            self.closes.notify_waiters();
        }
        if is_new {
            self.observed.becomes(self.client_id, &self.config.address, state);
        }
    }

    /// After a reply with MORE, sends `Nudge` until a reply has none.
    fn nudge(self: &Arc<Self>, name: &LockName, kind: Kind) {
        /// Most calls in a row. At 64 removals each, they suffice for more than a million dead
        /// waiters.
        const CALLS_MAX: u32 = 20_000;
        if !lock(&self.nudging).insert(name.clone()) {
            return;
        }
        let context = Arc::clone(self);
        let (name, op) = (name.clone(), Op::Nudge.on(kind));
        self.spawn(async move {
            for _ in 0..CALLS_MAX {
                match context.store.call(&name, &op).await {
                    Ok(reply) if reply.answer.more => {}
                    // If there was no answer, the reply to the next heartbeat says MORE again.
                    _ => break,
                }
            }
            lock(&context.nudging).remove(&name);
        });
    }
}
