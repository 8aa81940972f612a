//! The client's machine, behind its mutex: passes inputs in, and carries out what follows after the mutex is released.
//! Each lock with waiters in a queue has one heartbeat task.

use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::engine::acquire::Asking;
use crate::engine::context::Context;
use crate::engine::{heartbeat, release};
use crate::observe;
use crate::store::{Scope, Topic};
use fairlock_core::client::acquiring::Step;
use fairlock_core::client::{AttemptId, Client, Due, Effect, Surroundings};
use fairlock_core::{Grant, LockName, RequestId};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// The heartbeats of the waiters on one lock.
pub(crate) struct Heartbeat {
    pub(crate) name: LockName,
    /// Makes the task send a heartbeat now.
    pub(crate) kick: Notify,
}

type Acquisitions = Client<Arc<Asking>, Error>;

#[derive(Default)]
pub(crate) struct Machine {
    state: Mutex<State>,
    dropped_messages: AtomicU64,
}

#[derive(Default)]
struct State {
    acquisitions: Acquisitions,
    // Ordered: what is woken first must not depend on chance (`random.rs`).
    heartbeats: BTreeMap<LockName, Arc<Heartbeat>>,
}

impl Machine {
    /// Reads the machine.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Acquisitions) -> R) -> R {
        read(&lock(&self.state).acquisitions)
    }

    /// What the acquisition is to do next, and by when it needs to know the time.
    pub(crate) fn take(&self, id: AttemptId) -> (Step<Error>, Option<u64>) {
        lock(&self.state).acquisitions.take(id)
    }

    /// Whether this client has a waiter in the lock's queue.
    pub(crate) fn is_wanted(&self, name: &LockName) -> bool {
        self.read(|it| it.is_wanted(name))
    }

    /// Makes the lock's next heartbeat due now.
    fn kick(&self, name: &LockName) {
        let heartbeat = lock(&self.state).heartbeats.get(name).cloned();
        if let Some(heartbeat) = heartbeat {
            heartbeat.kick.notify_one();
        }
    }

    fn heartbeats(&self, scope: &Scope) -> Vec<Arc<Heartbeat>> {
        let mut all: Vec<_> = lock(&self.state).heartbeats.values().cloned().collect();
        // Outside the mutex: the scope asks the store.
        all.retain(|heartbeat| scope.has(&heartbeat.name));
        all
    }

    /// The number of waiters in queues, and of locks with waiters.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> (usize, usize) {
        self.read(Client::waiting)
    }

    pub(crate) fn note_dropped(&self) {
        self.dropped_messages.fetch_add(1, Ordering::Relaxed);
        observe::message_dropped();
    }

    /// Messages that were dropped: forged, late, or for requests that are over.
    pub(crate) fn dropped_messages(&self) -> u64 {
        self.dropped_messages.load(Ordering::Relaxed)
    }
}

/// What the machine sees of this client during one input.
pub(crate) struct Here<'a> {
    context: &'a Context,
    /// The clock is read once, if at all.
    now: OnceCell<Moment>,
}

impl<'a> Here<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, now: OnceCell::new() }
    }

    fn now(&self) -> Moment {
        *self.now.get_or_init(Moment::now)
    }
}

impl Surroundings<Error> for Here<'_> {
    fn now_ns(&self) -> u64 {
        self.now().nanos()
    }

    fn is_connected(&self, name: &LockName) -> bool {
        self.context.is_connected(name)
    }

    fn is_deaf(&self) -> bool {
        !self.context.store.inbox_up()
    }

    fn not_after_ms(&self, name: &LockName) -> u64 {
        let timeout_ms = self.context.config.store_timeout.as_millis() as u64;
        self.context.ms_at(name, self.now()) + timeout_ms
    }

    fn late_ms(&self, name: &LockName) -> u64 {
        self.context.late_ms(name)
    }

    fn beat_every(&self, name: &LockName) -> Duration {
        self.context.beat_every(name)
    }

    fn draw(&mut self) -> Result<RequestId, Error> {
        self.context.new_request()
    }
}

impl Context {
    /// Gives an input to the machine, and carries out what follows.
    pub(crate) fn give<R>(
        self: &Arc<Self>,
        input: impl FnOnce(&mut Acquisitions, &mut Here<'_>) -> R,
    ) -> R {
        let mut here = Here::new(self);
        let (result, outputs) = {
            let mut state = lock(&self.machine.state);
            let result = input(&mut state.acquisitions, &mut here);
            let outputs = state.acquisitions.outputs();
            for (asking, effect) in &outputs {
                // In here, so that nobody misses them.
                if matches!(effect, Effect::BeginHeartbeats) {
                    let name = asking.wanted.name.clone();
                    let kick = Notify::new();
                    let heartbeat = Arc::new(Heartbeat { name: name.clone(), kick });
                    state.heartbeats.insert(name, heartbeat);
                }
            }
            (result, outputs)
        };
        self.carry_out(&outputs);
        result
    }

    fn carry_out(self: &Arc<Self>, outputs: &[(Arc<Asking>, Effect)]) {
        for (asking, effect) in outputs {
            let name = &asking.wanted.name;
            match effect {
                Effect::Wake => asking.wake.notify_one(),
                Effect::BeginHeartbeats => {
                    let heartbeat = lock(&self.machine.state).heartbeats.get(name).cloned();
                    if let Some(heartbeat) = heartbeat {
                        heartbeat::begin(self, heartbeat);
                    }
                }
                Effect::Beat => self.machine.kick(name),
                Effect::Unsubscribe => self.store.unlisten(Topic::Base(name.clone())),
                Effect::TakeBack { op, owed, then } => {
                    let reporter = asking.wanted.reporter.clone();
                    let over = release::take_back(self, name, (**op).clone(), reporter, *owed);
                    if let Some(id) = *then {
                        let context = Arc::clone(self);
                        self.spawn(async move {
                            // However it ends, it has done what it could.
                            let answered = over.await.unwrap_or_default();
                            context.give(|it, here| it.taken_back(here, id, answered));
                        });
                    }
                }
                Effect::GiveBack { id, held } => {
                    let hold = Arc::new(asking.wanted.hold(self, (**held).clone()));
                    let (context, id) = (Arc::clone(self), *id);
                    let over = release::give_back(self, &hold);
                    self.spawn(async move {
                        let _ = over.await;
                        context.give(|it, here| it.given_back(here, id));
                    });
                }
                Effect::Queued { owner, .. } => {
                    if let Some(reporter) = &asking.wanted.reporter {
                        reporter.queued(owner);
                    }
                }
                Effect::Granted(_) => {}
            }
        }
        // Last, because metrics are the application's code, which may panic.
        for (asking, effect) in outputs {
            match effect {
                Effect::Queued { owner, returning, length, .. } => {
                    observe::queued(&asking.wanted.name, owner, *returning, *length);
                }
                Effect::Granted(way) => observe::granted(asking.wanted.what(), *way),
                _ => {}
            }
        }
    }

    /// A heartbeat is due. Ends the heartbeats of a lock without waiters.
    pub(crate) fn due(&self, name: &LockName, woken: bool) -> Due {
        let here = Here::new(self);
        let mut state = lock(&self.machine.state);
        let due = state.acquisitions.due(&here, name, woken);
        let over = matches!(due, Due::Over(_)).then(|| state.heartbeats.remove(name));
        drop(state);
        drop(over);
        due
    }

    /// Handles a grant from the inbox. `base` is the earliest moment at which its server can have
    /// made it.
    pub(crate) fn granted_by_message(self: &Arc<Self>, grant: &Grant, base: Option<Moment>) {
        let base_ns = base.map(Moment::nanos);
        if !self.give(|it, here| it.granted(here, grant, base_ns)) {
            self.machine.note_dropped();
        }
    }

    /// Handles a message on a topic.
    pub(crate) fn wake(self: &Arc<Self>, topic: &Topic) {
        match topic {
            Topic::Base(name) => self.give(|it, here| it.wake(here, name)),
            Topic::Waiter(name, _) | Topic::ReadWrite(name) | Topic::Inbox(name) => {
                self.machine.kick(name);
            }
            // Nobody waits there for a lock: see `state/latches.rs` and `state/observers.rs`.
            Topic::Latch(_) | Topic::Leader(_) => {}
        }
    }

    /// After a reconnect, makes every queue look again, with a heartbeat that asks about each of
    /// its waiters.
    pub(crate) fn check_everyone(self: &Arc<Self>, scope: &Scope) {
        for heartbeat in self.machine.heartbeats(scope) {
            self.give(|it, _| it.doubt_all(&heartbeat.name));
        }
        self.check(scope);
    }

    /// Makes every queue look again.
    pub(crate) fn check(self: &Arc<Self>, scope: &Scope) {
        for heartbeat in self.machine.heartbeats(scope) {
            heartbeat.kick.notify_one();
        }
        let lines = self.machine.read(Client::lines);
        for name in lines.iter().filter(|name| scope.has(name)) {
            self.give(|it, here| it.wake(here, name));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::engine::acquire::Request;
    use crate::{Client, Config};
    use fairlock_core::client::acquiring::{Outcome, Work};
    use fairlock_core::{Body, Op};

    /// An acquisition of a fair lock whose work the test does.
    pub(crate) struct Asks {
        context: Arc<Context>,
        asking: Arc<Asking>,
        work: (AttemptId, u32),
    }

    impl Asks {
        /// Begins it. Returns its first copy.
        pub(crate) fn begin(context: &Arc<Context>, name: &LockName) -> (Self, Op) {
            let asking = Asking::new(context, Request::of_fair(context, name));
            let by =
                (context.new_owner().expect("a number"), context.new_request().expect("random"));
            let what = (name.clone(), asking.wanted.wanted(context));
            let id = context.give(|it, here| it.ask(here, what, by, Arc::clone(&asking)));
            let (Step::Begin(number, Work::Send(op)), _) = context.machine.take(id) else {
                panic!("it asks")
            };
            (Self { context: Arc::clone(context), asking, work: (id, number) }, op)
        }

        /// The store has answered that copy.
        pub(crate) fn answered(&self, body: Body) {
            let (work, now) = (self.work, Moment::now().nanos());
            self.context.give(|it, here| it.answered(here, work, (body, false), now));
        }

        pub(crate) async fn is_held_within(&self, limit: Duration) -> bool {
            let ended = async {
                loop {
                    self.asking.wake.notified().await;
                    if let Step::Done(outcome) = self.context.machine.take(self.work.0).0 {
                        return matches!(outcome, Outcome::Held(_));
                    }
                }
            };
            tokio::time::timeout(limit, ended).await.unwrap_or_default()
        }
    }

    /// A message that came before the very first reply, when the store's time is unknown, kicked a
    /// queue that did not exist yet. The waiter got its lock only with the next heartbeat.
    #[tokio::test]
    async fn a_grant_before_the_first_reply_is_looked_for_at_once() {
        let seldom = Config::memory().heartbeat(Duration::from_secs(60));
        let client = Client::with_config(seldom).await.expect("memory");
        let guard = client.fair_lock("job").lock().await.expect("free");
        let (context, name) = (client.context(), guard.name().clone());
        let (asks, op) = Asks::begin(context, &name);
        let reply = context.store.call(&name, &op).await.expect("memory answers");
        context.clock.forget();
        let _ = guard.release().await.expect("released");
        assert!(
            matches!(context.machine.take(asks.work.0).0, Step::Wait),
            "it counts from no time"
        );
        asks.answered(reply.answer.body);
        assert!(asks.is_held_within(Duration::from_secs(10)).await);
    }
}
