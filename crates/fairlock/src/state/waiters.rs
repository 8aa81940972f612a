//! The waiters of this client, and how they learn how their waits end.
//!
//! Each fair lock with waiters has one heartbeat task. [`client::Waiters`] decides what a reply or
//! a message means; this module passes its decisions on, after the mutex is released.

use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::observe::{self, Way};
use crate::state::hold::valid_until;
use crate::store::{Scope, Topic};
use fairlock_core::client::{self, Acquisition, Failed, Granted, Lasts, Message, Outlook};
use fairlock_core::{Grant, LockName, RequestId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How a waiter's wait ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It holds the lock; the TTL counts from `base`.
    Granted { grant: Grant, base: Moment },
    /// The store cannot serve it.
    Failed(Error),
}

pub(crate) type Caller = oneshot::Sender<Outcome>;

/// The heartbeats of the waiters on one fair lock.
pub(crate) struct Heartbeat {
    pub(crate) name: LockName,
    /// Makes the task send a heartbeat now.
    pub(crate) kick: Notify,
}

/// The waiters of this client on one plain lock: one of them talks to the server at a time.
#[derive(Default)]
pub(crate) struct PlainQueue {
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) wake: Notify,
}

#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    dropped_messages: AtomicU64,
}

#[derive(Default)]
struct State {
    fair: client::Waiters<Caller>,
    // Ordered: what is woken first must not depend on chance (`random.rs`).
    heartbeats: BTreeMap<LockName, Arc<Heartbeat>>,
    plain: BTreeMap<LockName, Line>,
}

/// Who waits for a plain lock.
#[derive(Default)]
struct Line {
    queue: Arc<PlainQueue>,
    waiters: usize,
    /// What was handed down: a subscription to the lock's topic, and the end of the lease of the
    /// last waiter that was granted the lock.
    held_until_ns: Option<u64>,
}

impl Waiters {
    /// Gives an input to the waiters on fair locks.
    pub(crate) fn fair<R>(&self, input: impl FnOnce(&mut client::Waiters<Caller>) -> R) -> R {
        input(&mut lock(&self.state).fair)
    }

    /// Registers a waiter before its request is sent, so that no grant can arrive too early.
    pub(crate) fn enter(
        &self,
        name: LockName,
        acquisition: Acquisition,
    ) -> (RequestId, oneshot::Receiver<Outcome>) {
        let (caller, outcome) = oneshot::channel();
        (self.fair(|fair| fair.enter(name, acquisition, caller)), outcome)
    }

    /// Notes that the waiter is in the queue according to the server. If this returns a heartbeat,
    /// the caller starts it.
    #[must_use]
    pub(crate) fn queued(
        &self,
        name: &LockName,
        waiter: RequestId,
        order: u64,
        outlook: Outlook,
        period: Duration,
    ) -> Option<Arc<Heartbeat>> {
        let (begins, look) = {
            let mut state = lock(&self.state);
            let queued = state.fair.queued(waiter, order, outlook, period);
            let begins = queued.begins.then(|| {
                let new = Arc::new(Heartbeat { name: name.clone(), kick: Notify::new() });
                state.heartbeats.insert(name.clone(), Arc::clone(&new));
                new
            });
            (begins, queued.look)
        };
        if look {
            self.kick(name);
        }
        begins
    }

    /// Removes a waiter. Returns the state of its requests, and whether its wait was over: then the
    /// outcome has been sent, or is being sent by another thread.
    ///
    /// # Panics
    /// If it has left already.
    pub(crate) fn leave(&self, waiter: RequestId) -> (Acquisition, bool) {
        let left = self.fair(|fair| fair.leave(waiter)).expect("a waiter leaves once");
        if let Some(name) = left.look {
            self.kick(&name);
        }
        (left.acquisition, left.caller.is_none())
    }

    /// Whether this client has a waiter for the fair lock.
    pub(crate) fn is_wanted(&self, name: &LockName) -> bool {
        self.fair(|fair| fair.is_wanted(name))
    }

    /// A heartbeat is due. Ends the heartbeats of a lock without waiters.
    pub(crate) fn due(&self, name: &LockName, now: Moment, woken: bool) -> client::Due {
        let mut state = lock(&self.state);
        let due = state.fair.due(name, now.since_boot(), woken);
        let over = matches!(due, client::Due::Over(_)).then(|| state.heartbeats.remove(name));
        drop(state);
        drop(over);
        due
    }

    /// Handles a grant from the inbox. `base` is the earliest moment at which its server can have
    /// made it.
    pub(crate) fn granted_by_message(&self, grant: &Grant, base: Option<Moment>) {
        let lasts = match base {
            None => Lasts::Unknown,
            Some(base) if valid_until(base, grant.ttl_ms).left().is_zero() => Lasts::NoMore,
            Some(_) => Lasts::Still,
        };
        match (self.fair(|fair| fair.message(grant, lasts)), base) {
            (Message::Granted(granted), Some(base)) => self.grant(granted, base, Way::Message),
            (Message::Look(name), _) => self.kick(&name),
            (Message::TooLate(name), _) => {
                self.note_dropped();
                self.kick(&name);
            }
            (Message::Dropped | Message::Granted(_), _) => self.note_dropped(),
        }
    }

    /// Passes on a grant from a reply. `base` is when that call was sent.
    pub(crate) fn granted_by_reply(&self, granted: Option<Granted<Caller>>, base: Moment) {
        if let Some(granted) = granted {
            self.grant(granted, base, Way::Heartbeat);
        }
    }

    fn grant(&self, granted: Granted<Caller>, base: Moment, way: Way) {
        // Sent before the metrics, which are the application's code: nobody else notifies this
        // waiter. A waiter that goes away at this moment has nothing to release: its driver takes
        // the outcome out of the channel, or gives the request up.
        let what = observe::What(granted.kind, granted.share);
        let _ = granted.caller.send(Outcome::Granted { grant: granted.grant, base });
        if let Some(name) = granted.look {
            self.kick(&name);
        }
        observe::granted(what, way);
    }

    /// Passes on the end of waits after a failed heartbeat. Returns when the next one is due.
    pub(crate) fn failed(&self, failed: Failed<Caller>, error: impl FnOnce() -> Error) -> Duration {
        if !failed.over.is_empty() {
            let error = error();
            for (owner, caller) in failed.over {
                let _ = caller.send(Outcome::Failed(error.clone().by(&owner)));
            }
        }
        failed.wait
    }

    /// Joins the waiters of a plain lock.
    pub(crate) fn enter_plain(&self, name: &LockName) -> Arc<PlainQueue> {
        let mut state = lock(&self.state);
        let line = state.plain.entry(name.clone()).or_default();
        line.waiters += 1;
        Arc::clone(&line.queue)
    }

    /// What the last waiter that had the turn has handed down, with its subscription.
    pub(crate) fn inherit_plain(&self, name: &LockName) -> Option<u64> {
        lock(&self.state).plain.get_mut(name)?.held_until_ns.take()
    }

    /// Removes one waiter of a plain lock. If it is `subscribed`, holds the lock until `held_until_ns`,
    /// and others wait, the next one gets the subscription and that time. Returns whether a
    /// subscription is left that no waiter needs.
    pub(crate) fn leave_plain(
        &self,
        name: &LockName,
        subscribed: bool,
        held_until_ns: Option<u64>,
    ) -> bool {
        let mut state = lock(&self.state);
        let Some(line) = state.plain.get_mut(name) else { return subscribed };
        line.waiters -= 1;
        if line.waiters == 0 {
            // Those for whom something was handed down may have left without a turn.
            let handed_down = line.held_until_ns.is_some();
            state.plain.remove(name);
            return subscribed || handed_down;
        }
        let hands_down = subscribed && held_until_ns.is_some();
        if hands_down {
            line.held_until_ns = held_until_ns;
        }
        subscribed && !hands_down
    }

    /// Handles a message on a topic.
    pub(crate) fn wake(&self, topic: &Topic) {
        match topic {
            Topic::Base(name) => {
                let queue = lock(&self.state).plain.get(name).map(|line| Arc::clone(&line.queue));
                if let Some(queue) = queue {
                    queue.wake.notify_one();
                }
            }
            Topic::Waiter(name, _) | Topic::ReadWrite(name) | Topic::Inbox(name) => {
                self.kick(name);
            }
            // Nobody waits there for a lock: see `state/latches.rs` and `state/observers.rs`.
            Topic::Latch(_) | Topic::Leader(_) => {}
        }
    }

    fn kick(&self, name: &LockName) {
        let heartbeat = lock(&self.state).heartbeats.get(name).cloned();
        if let Some(heartbeat) = heartbeat {
            heartbeat.kick.notify_one();
        }
    }

    /// After a reconnect, makes every queue look again, with a heartbeat that asks about each of
    /// its waiters.
    pub(crate) fn check_everyone(&self, scope: &Scope) {
        for heartbeat in self.heartbeats(scope) {
            self.fair(|fair| fair.doubt_all(&heartbeat.name));
        }
        self.check(scope);
    }

    /// Makes every queue look again.
    pub(crate) fn check(&self, scope: &Scope) {
        for heartbeat in self.heartbeats(scope) {
            heartbeat.kick.notify_one();
        }
        let plain: Vec<_> = {
            let state = lock(&self.state);
            state.plain.iter().map(|(name, line)| (name.clone(), Arc::clone(&line.queue))).collect()
        };
        for (_, queue) in plain.iter().filter(|(name, _)| scope.has(name)) {
            queue.wake.notify_one();
        }
    }

    fn heartbeats(&self, scope: &Scope) -> Vec<Arc<Heartbeat>> {
        let mut all: Vec<_> = lock(&self.state).heartbeats.values().cloned().collect();
        all.retain(|heartbeat| scope.has(&heartbeat.name));
        all
    }

    /// The number of waiters, and of locks with a queue for them.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.fair.waiting(), state.heartbeats.len() + state.plain.len())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Config};
    use fairlock_core::{Body, Kind, Mode, Op};
    use std::time::Duration;

    /// A message that came before the very first reply, when the store's time is unknown, kicked a
    /// queue that did not exist yet. The waiter got its lock only with the next heartbeat.
    #[tokio::test]
    async fn a_grant_before_the_first_reply_is_looked_for_at_once() {
        let seldom = Config::memory().heartbeat(Duration::from_secs(60));
        let client = Client::with_config(seldom).await.expect("memory");
        let guard = client.fair_lock("job").lock().await.expect("free");
        let context = client.context();
        let (request, owner) = (context.new_request().expect("random"), context.new_owner());
        let (name, owner) = (guard.name().clone(), owner.expect("a number"));
        let acquisition = Acquisition::new(Kind::Fair, owner, Mode::Wait, 30_000, false, request);
        let asks = Op::Acquire(acquisition.acquire(false, u64::MAX));
        let (waiter, mut outcome) = context.waiters.enter(name.clone(), acquisition);
        let reply = context.store.call(&name, &asks).await.expect("memory answers");
        let Body::Queued { order, .. } = reply.answer.body else { panic!("{reply:?}") };
        context.clock.forget();
        let _ = guard.release().await.expect("released");
        assert!(outcome.try_recv().is_err(), "granted by a message that counts from no time");
        let (nothing, period) = (Outlook::default(), Duration::from_secs(60));
        let heartbeat = context.waiters.queued(&name, waiter, order, nothing, period);
        crate::engine::heartbeat::begin(context, heartbeat.expect("the first waiter"));
        let outcome = tokio::time::timeout(Duration::from_secs(10), outcome).await;
        assert!(matches!(outcome, Ok(Ok(Outcome::Granted { .. }))), "{outcome:?}");
    }

    /// A subscription that was handed down belongs to the line, until the next one's turn.
    #[test]
    fn what_is_handed_down_ends_with_its_line() {
        let (waiters, name) = (Waiters::default(), LockName::new(b"job").expect("a name"));
        let enter = |count| (0..count).for_each(|_| drop(waiters.enter_plain(&name)));
        enter(3);
        assert!(!waiters.leave_plain(&name, true, Some(7)), "two are behind it");
        assert_eq!(waiters.inherit_plain(&name), Some(7));
        assert_eq!(waiters.inherit_plain(&name), None, "once");
        assert!(waiters.leave_plain(&name, true, None), "it was not granted");
        assert!(waiters.leave_plain(&name, true, Some(8)), "nobody is behind it");

        enter(2);
        assert!(!waiters.leave_plain(&name, true, Some(9)));
        assert!(waiters.leave_plain(&name, false, None), "it leaves before its turn");
        enter(1);
        assert_eq!(waiters.inherit_plain(&name), None);
    }
}
