//! The waiters of this client: what each waits for, and how it learns of its turn.
//!
//! Each lock with waiters has one heartbeat task. It sends heartbeats, handles their replies, and
//! brings back waiters that were dropped from the queue. Grants by message arrive through
//! [`Waiters::granted_by_message`]. Both ways end in the waiter's [`Outcome`].

use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::observe::{self, Way};
use crate::state::hold::valid_until;
use crate::store::{Scope, Topic};
use fairlock_core::client::Acquisition;
use fairlock_core::{Grant, Kind, LockName, OwnerId, RequestId};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, oneshot};

/// How a waiter's wait ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It holds the lock; the TTL counts from `base`.
    Granted { grant: Grant, base: Moment },
    /// The store cannot serve it.
    Failed(Error),
}

/// One waiter of this client on one fair lock.
pub(crate) struct Entry {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    state: Mutex<EntryState>,
}

struct EntryState {
    acquisition: Acquisition,
    /// A grant arrived in a message that could not be used, before the reply that the waiter is
    /// queued.
    look_soon: bool,
    outcome: Option<oneshot::Sender<Outcome>>,
}

impl Entry {
    /// What is known of its requests now.
    pub(crate) fn acquisition(&self) -> Acquisition {
        lock(&self.state).acquisition.clone()
    }

    fn request(&self) -> RequestId {
        lock(&self.state).acquisition.request()
    }

    pub(crate) fn set_in_doubt(&self, in_doubt: bool) {
        lock(&self.state).acquisition.set_in_doubt(in_doubt);
    }

    fn finish(&self, outcome: Outcome) {
        if let Some(waiting) = lock(&self.state).outcome.take() {
            // A waiter that goes away at this moment has nothing to release: its driver takes the
            // outcome out of the channel, or abandons the request.
            let _ = waiting.send(outcome);
        }
    }

    fn is_waiting(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }
}

/// The waiters of this client on one fair lock, by order number.
pub(crate) struct Queue {
    pub(crate) name: LockName,
    waiters: Mutex<BTreeMap<(u64, RequestId), Arc<Entry>>>,
    /// Makes the task send a heartbeat now.
    pub(crate) kick: Notify,
    /// The oldest waiter subscribes to its own channel, because a Java client holds the lock or
    /// waits.
    pub(crate) oldest_listens: AtomicBool,
    /// The server may be a different one: the next heartbeat asks about every waiter instead of
    /// only the oldest.
    pub(crate) all_in_doubt: AtomicBool,
}

impl Queue {
    /// The oldest waiters, at most `limit`.
    pub(crate) fn oldest(&self, limit: usize) -> Vec<Arc<Entry>> {
        lock(&self.waiters).values().take(limit).cloned().collect()
    }
}

/// The waiters of this client on one plain lock: one of them talks to the server at a time.
#[derive(Default)]
pub(crate) struct PlainQueue {
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) wake: Notify,
}

#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    dropped_messages: AtomicU64,
}

#[derive(Default)]
struct State {
    by_request: HashMap<RequestId, Arc<Entry>>,
    // Ordered: what is woken first must not depend on chance (`random.rs`).
    queues: BTreeMap<LockName, Arc<Queue>>,
    plain: BTreeMap<LockName, (Arc<PlainQueue>, usize)>,
}

impl Waiters {
    /// Registers a waiter before its request is sent, so that no grant can arrive too early.
    pub(crate) fn enter(
        &self,
        name: LockName,
        acquisition: Acquisition,
    ) -> (Arc<Entry>, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let (owner, request) = (acquisition.owner().clone(), acquisition.request());
        let state = EntryState { acquisition, look_soon: false, outcome: Some(sender) };
        let entry = Arc::new(Entry { name, owner, state: Mutex::new(state) });
        lock(&self.state).by_request.insert(request, Arc::clone(&entry));
        (entry, receiver)
    }

    /// Notes that the waiter is in the queue, as the server says. A queue that this returns is new,
    /// and needs a heartbeat task: see [`retire`](Self::retire).
    #[must_use]
    pub(crate) fn queued(&self, entry: &Arc<Entry>, order: u64) -> Option<Arc<Queue>> {
        let (request, look_soon) = {
            let mut state = lock(&entry.state);
            state.acquisition.queued(order);
            (state.acquisition.request(), state.look_soon)
        };
        let mut state = lock(&self.state);
        if !entry.is_waiting() {
            // Granted by message before the reply was read.
            return None;
        }
        let (queue, is_new) = match state.queues.get(&entry.name) {
            Some(queue) => (Arc::clone(queue), false),
            None => {
                let queue = Arc::new(Queue {
                    name: entry.name.clone(),
                    waiters: Mutex::default(),
                    kick: Notify::new(),
                    oldest_listens: AtomicBool::new(false),
                    all_in_doubt: AtomicBool::new(false),
                });
                state.queues.insert(entry.name.clone(), Arc::clone(&queue));
                (queue, true)
            }
        };
        lock(&queue.waiters).insert((order, request), Arc::clone(entry));
        if look_soon {
            queue.kick.notify_one();
        }
        is_new.then_some(queue)
    }

    /// Removes a waiter. Returns whether it was still waiting.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) -> bool {
        let mut state = lock(&self.state);
        self.forget(&mut state, entry);
        lock(&entry.state).outcome.take().is_some()
    }

    fn forget(&self, state: &mut State, entry: &Arc<Entry>) {
        let (request, order) = {
            let entry = lock(&entry.state);
            for request in entry.acquisition.grantable() {
                state.by_request.remove(&request);
            }
            (entry.acquisition.request(), entry.acquisition.order())
        };
        if let (Some(order), Some(queue)) = (order, state.queues.get(&entry.name)) {
            lock(&queue.waiters).remove(&(order, request));
            if queue.oldest_listens.load(Ordering::Relaxed) {
                // Another waiter may be the oldest now.
                queue.kick.notify_one();
            }
        }
    }

    /// Gives a waiter that was dropped from the queue a new request, with which it returns to its
    /// place. The last request is kept while it is unanswered. `None` if the waiter has gone.
    pub(crate) fn renew_request(
        &self,
        entry: &Arc<Entry>,
        fresh: RequestId,
    ) -> Option<Acquisition> {
        let mut all = lock(&self.state);
        let mut state = lock(&entry.state);
        let order = state.acquisition.order()?;
        state.outcome.as_ref()?;
        let former = state.acquisition.request();
        if let Some(forgotten) = state.acquisition.return_to_place(fresh) {
            all.by_request.remove(&forgotten);
        }
        if state.acquisition.request() == fresh {
            all.by_request.insert(fresh, Arc::clone(entry));
            if let Some(queue) = all.queues.get(&entry.name) {
                let mut waiters = lock(&queue.waiters);
                waiters.remove(&(order, former));
                waiters.insert((order, fresh), Arc::clone(entry));
            }
        }
        Some(state.acquisition.clone())
    }

    /// Whether this client has a waiter for the fair lock.
    pub(crate) fn is_wanted(&self, name: &LockName) -> bool {
        lock(&self.state).queues.contains_key(name)
    }

    /// Ends the heartbeats of a lock without waiters. Returns whether it has none.
    pub(crate) fn retire(&self, queue: &Arc<Queue>) -> bool {
        let mut state = lock(&self.state);
        if !lock(&queue.waiters).is_empty() {
            return false;
        }
        state.queues.remove(&queue.name);
        true
    }

    /// Handles a grant from the inbox. `base` is the earliest moment at which its server can have
    /// made it.
    pub(crate) fn granted_by_message(&self, grant: &Grant, base: Option<Moment>) {
        let Some(entry) = lock(&self.state).by_request.get(&grant.request).cloned() else {
            // Given up, already known, or forged.
            return self.note_dropped();
        };
        match base {
            // The grant is over already: this process slept through its turn, and the lock may be
            // idle because of that. A heartbeat brings the waiter back.
            Some(base) if valid_until(base, grant.ttl_ms).left().is_zero() => {
                self.note_dropped();
                lock(&entry.state).look_soon = true;
                self.kick(&entry.name);
            }
            Some(base) if entry.request() == grant.request => {
                self.grant(&entry, grant.clone(), base, Way::Message);
            }
            // Before the very first reply, the store's time is unknown and the queue may not exist.
            // A grant to a former request comes from a server that took over, or from a message
            // that was delayed while the server said that the waiter has nothing. The reply to a
            // heartbeat tells what holds now.
            _ => {
                lock(&entry.state).look_soon = true;
                self.kick(&entry.name);
            }
        }
    }

    /// Handles a grant from a reply. `base` is when that call was sent.
    pub(crate) fn granted_by_reply(&self, grant: &Grant, base: Moment) {
        let entry = lock(&self.state).by_request.get(&grant.request).cloned();
        if let Some(entry) = entry {
            self.grant(&entry, grant.clone(), base, Way::Heartbeat);
        }
    }

    fn grant(&self, entry: &Arc<Entry>, grant: Grant, base: Moment, way: Way) {
        observe::granted(Kind::Fair, way);
        self.forget(&mut lock(&self.state), entry);
        entry.finish(Outcome::Granted { grant, base });
    }

    /// Fails all waiters of `queue`, which the store cannot serve any more.
    pub(crate) fn fail(&self, queue: &Arc<Queue>, error: &Error) {
        let all: Vec<_> = lock(&queue.waiters).values().cloned().collect();
        for entry in all {
            self.forget(&mut lock(&self.state), &entry);
            entry.finish(Outcome::Failed(error.clone().by(&entry.owner)));
        }
    }

    /// Joins the waiters of a plain lock.
    pub(crate) fn enter_plain(&self, name: &LockName) -> Arc<PlainQueue> {
        let mut state = lock(&self.state);
        let (queue, users) = state.plain.entry(name.clone()).or_default();
        *users += 1;
        Arc::clone(queue)
    }

    /// Leaves the waiters of a plain lock.
    pub(crate) fn leave_plain(&self, name: &LockName) {
        let mut state = lock(&self.state);
        if let Some((_, users)) = state.plain.get_mut(name) {
            *users -= 1;
            if *users == 0 {
                state.plain.remove(name);
            }
        }
    }

    /// Handles the message `0` on a topic.
    pub(crate) fn wake(&self, topic: &Topic) {
        match topic {
            Topic::Base(name) => {
                let queue = lock(&self.state).plain.get(name).map(|(queue, _)| Arc::clone(queue));
                if let Some(queue) = queue {
                    queue.wake.notify_one();
                }
            }
            Topic::Waiter(name, _) | Topic::Inbox(name) => self.kick(name),
        }
    }

    fn kick(&self, name: &LockName) {
        let queue = lock(&self.state).queues.get(name).cloned();
        if let Some(queue) = queue {
            queue.kick.notify_one();
        }
    }

    /// After a reconnect, makes every queue look again, and ask about each of its waiters.
    pub(crate) fn check_everyone(&self, scope: &Scope) {
        for queue in lock(&self.state).queues.values().filter(|queue| scope.has(&queue.name)) {
            queue.all_in_doubt.store(true, Ordering::Relaxed);
        }
        self.check(scope);
    }

    /// Makes every queue look again.
    pub(crate) fn check(&self, scope: &Scope) {
        let state = lock(&self.state);
        for queue in state.queues.values().filter(|queue| scope.has(&queue.name)) {
            queue.kick.notify_one();
        }
        for (_, (queue, _)) in state.plain.iter().filter(|(name, _)| scope.has(name)) {
            queue.wake.notify_one();
        }
    }

    /// The number of waiters, and of locks with a queue for them.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = lock(&self.state);
        let waits = |(request, entry): &(&RequestId, &Arc<Entry>)| entry.request() == **request;
        (state.by_request.iter().filter(waits).count(), state.queues.len() + state.plain.len())
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
    use fairlock_core::{Body, Mode, Op};
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
        let (entry, outcome) = context.waiters.enter(name.clone(), acquisition);
        let reply = context.store.call(&name, &asks).await.expect("memory answers");
        let Body::Queued { order, .. } = reply.answer.body else { panic!("{reply:?}") };
        context.clock.forget();
        guard.release().await.expect("released");
        assert!(entry.is_waiting(), "granted by a message that counts from no time");
        let queue = context.waiters.queued(&entry, order).expect("a new queue");
        crate::engine::heartbeat::begin(context, queue);
        let outcome = tokio::time::timeout(Duration::from_secs(10), outcome).await;
        assert!(matches!(outcome, Ok(Ok(Outcome::Granted { .. }))), "{outcome:?}");
    }

    /// A message may have been under way while the server said that the waiter has nothing, so a
    /// grant by message to a former request is not believed. A reply is.
    #[test]
    fn former_requests_are_granted_by_replies_alone_and_bounded() {
        let waiters = Waiters::default();
        let client = fairlock_core::ClientId::from_random(1);
        let owner = OwnerId::ours(client, 1).expect("a number");
        let request = |number: u128| RequestId::from_random(number);
        let grant = |number| Grant {
            request: request(number),
            token: fairlock_core::Token::new(1).expect("a token"),
            ttl_ms: 30_000,
        };
        let mut acquisition =
            Acquisition::new(Kind::Fair, owner, Mode::Wait, 30_000, false, request(0));
        acquisition.queued(7);
        let name = LockName::new(b"job").expect("a name");
        let (entry, mut outcome) = waiters.enter(name, acquisition);
        let last = Acquisition::FORMER_MAX as u128 + 1;
        for number in 1..=last {
            assert!(waiters.renew_request(&entry, request(number)).is_some());
        }
        assert_eq!(entry.acquisition().grantable().count(), Acquisition::FORMER_MAX + 1);
        assert_eq!(
            (waiters.waiting().0, lock(&waiters.state).by_request.len()),
            (1, Acquisition::FORMER_MAX + 1)
        );
        waiters.granted_by_reply(&grant(0), Moment::now());
        waiters.granted_by_message(&grant(1), Some(Moment::now()));
        assert!(outcome.try_recv().is_err(), "one is forgotten, the other is looked after");
        waiters.granted_by_reply(&grant(1), Moment::now());
        assert!(matches!(outcome.try_recv(), Ok(Outcome::Granted { .. })));
        assert!(lock(&waiters.state).by_request.is_empty(), "nothing is left of it");
    }
}
