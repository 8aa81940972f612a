//! The waiters of a client: the requests of each waiter, and how their waits end.

use super::Acquisition;
use super::heartbeat::{Outlook, Queue};
use crate::id::{LockName, OwnerId, RequestId};
use crate::op::{Acquire, Grant, Kind};
use crate::share::Share;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most waiters for which a debug build checks the invariants after each input.
#[cfg(debug_assertions)]
const CHECKED_MAX: usize = 16;

/// The waiters of a client on locks with a queue. Each carries a `T`, with which its caller is notified of the end of
/// the wait; the `T` is handed back exactly once.
///
/// A waiter is identified by the request with which it enters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiters<T> {
    pub(super) waiters: BTreeMap<RequestId, Waiter<T>>,
    /// The waiters that returned to their places, by the requests with which they did.
    returned: BTreeMap<RequestId, RequestId>,
    /// The locks with heartbeats. Ordered: what happens first must not depend on chance.
    pub(super) queues: BTreeMap<LockName, Queue>,
}

/// One waiter, from before its request is sent until it leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter<T> {
    pub(super) name: LockName,
    pub(super) acquisition: Acquisition,
    /// A grant arrived in a message that could not be used.
    look_soon: bool,
    /// `None` once the wait is over.
    pub(super) caller: Option<T>,
}

/// A wait is over: the waiter has the lock.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Granted<T> {
    /// Which of its requests was granted, and for how long.
    pub grant: Grant,
    /// The caller to notify.
    pub caller: T,
    /// The lock whose next heartbeat is due now.
    pub look: Option<LockName>,
}

/// A waiter has left.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Left<T> {
    /// The state of its requests.
    pub acquisition: Acquisition,
    /// Its caller, unless the wait was over.
    pub caller: Option<T>,
    /// The lock whose next heartbeat is due now.
    pub look: Option<LockName>,
}

/// The effect of the store's reply that a waiter is in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queued {
    /// It is the first waiter on its lock, whose heartbeats begin.
    pub begins: bool,
    /// The next heartbeat is due now.
    pub look: bool,
}

/// How long a grant that arrives in a message lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lasts {
    /// Long enough to be used.
    Still,
    /// It is over: this process slept through its turn.
    NoMore,
    /// The store's time is unknown.
    Unknown,
}

/// The effect of a grant in a message.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Message<T> {
    /// The waiter has the lock.
    Granted(Granted<T>),
    /// It cannot be used as it is: the next heartbeat of the lock of this waiter is due now.
    Look(T),
    /// The same, and the message counts as dropped.
    TooLate(T),
    /// The message is forged, or for a request that was given up or already granted.
    Dropped,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self { waiters: BTreeMap::new(), returned: BTreeMap::new(), queues: BTreeMap::new() }
    }
}

impl<T> Waiters<T> {
    /// Adds a waiter. Its request has not been sent yet, so that no grant can arrive too early.
    pub fn enter(&mut self, name: LockName, acquisition: Acquisition, caller: T) -> RequestId {
        let waiter = acquisition.request();
        let entry = Waiter { name, acquisition, look_soon: false, caller: Some(caller) };
        let other = self.waiters.insert(waiter, entry);
        debug_assert!(other.is_none(), "K4: {waiter:?} has two waiters");
        self.check();
        waiter
    }

    /// According to the store, the waiter is in the queue. Heartbeats come every `period`.
    pub fn queued(
        &mut self,
        waiter: RequestId,
        order: u64,
        outlook: Outlook,
        period: Duration,
    ) -> Queued {
        let Some(entry) = self.waiters.get_mut(&waiter) else { return Queued::default() };
        let former = entry.acquisition.order();
        entry.acquisition.queued(order);
        if entry.caller.is_none() {
            // Granted by message before the reply was read.
            return Queued::default();
        }
        let begins = !self.queues.contains_key(&entry.name);
        let queue = self.queues.entry(entry.name.clone()).or_default();
        if let Some(former) = former {
            queue.by_order.remove(&(former, waiter));
        }
        queue.by_order.insert((order, waiter));
        // The first heartbeat is early if the server expects a change before the regular one, or if
        // it must find out on which channel Java will wake this waiter.
        let expects = outlook.foreign || outlook.retry.is_some_and(|retry| retry < period);
        let look = entry.look_soon || expects;
        self.check();
        Queued { begins, look }
    }

    /// Sets whether a copy of the waiter's request is unanswered.
    pub fn set_in_doubt(&mut self, waiter: RequestId, in_doubt: bool) {
        if let Some(entry) = self.waiters.get_mut(&waiter) {
            entry.acquisition.set_in_doubt(in_doubt);
        }
    }

    /// Removes a waiter, whether or not its wait is over.
    pub fn leave(&mut self, waiter: RequestId) -> Option<Left<T>> {
        let look = self.unqueue(waiter);
        let entry = self.waiters.remove(&waiter)?;
        for request in entry.acquisition.grantable() {
            self.returned.remove(&request);
        }
        self.check();
        Some(Left { acquisition: entry.acquisition, caller: entry.caller, look })
    }

    /// A grant arrived in a message.
    pub fn message(&mut self, grant: &Grant, lasts: Lasts) -> Message<T>
    where
        T: Clone,
    {
        let Some(waiter) = self.find(grant.request) else { return Message::Dropped };
        let Some(entry) = self.waiters.get_mut(&waiter) else { return Message::Dropped };
        let Some(caller) = entry.caller.clone() else { return Message::Dropped };
        match lasts {
            Lasts::Still if entry.acquisition.request() == grant.request => {
                self.grant(waiter, grant.clone()).map_or(Message::Dropped, Message::Granted)
            }
            // The lock may be idle because of that. A heartbeat brings the waiter back.
            Lasts::NoMore => {
                entry.look_soon = true;
                Message::TooLate(caller)
            }
            // Before the very first reply, the store's time is unknown and the queue may not exist.
            // A grant to a former request comes from a server that took over, or from a message
            // that was delayed while the server said that the waiter has nothing. The reply to a
            // heartbeat tells what holds now.
            Lasts::Still | Lasts::Unknown => {
                entry.look_soon = true;
                Message::Look(caller)
            }
        }
    }

    /// The lock for which the waiter with `request` waits.
    pub fn name_of(&self, request: RequestId) -> Option<&LockName> {
        let waiter = self.find(request)?;
        self.waiters.get(&waiter).map(|entry| &entry.name)
    }

    /// A reply about the lock `name` contains a grant.
    pub(super) fn granted(&mut self, name: &LockName, grant: Grant) -> Option<Granted<T>> {
        let waiter = self.find(grant.request)?;
        if self.waiters.get(&waiter)?.name != *name {
            return None;
        }
        self.grant(waiter, grant)
    }

    fn grant(&mut self, waiter: RequestId, grant: Grant) -> Option<Granted<T>> {
        self.end(waiter).map(|(caller, look)| Granted { grant, caller, look })
    }

    /// Gives a waiter that was dropped from the queue a new request, with which it returns to its
    /// place, unless its last one may still do so. Returns what to send, or `None` if its wait is
    /// over.
    pub fn return_to_place(
        &mut self,
        waiter: RequestId,
        fresh: RequestId,
        not_after_ms: u64,
    ) -> Option<Acquire> {
        let entry = self.waiters.get_mut(&waiter).filter(|entry| entry.caller.is_some())?;
        if let Some(forgotten) = entry.acquisition.return_to_place(fresh) {
            self.returned.remove(&forgotten);
        }
        if entry.acquisition.request() == fresh {
            self.returned.insert(fresh, waiter);
        }
        entry.acquisition.set_in_doubt(true);
        let sent = entry.acquisition.acquire(true, not_after_ms);
        self.check();
        Some(sent)
    }

    /// The share that a waiter wants.
    pub fn share(&self, waiter: RequestId) -> Share {
        self.waiters.get(&waiter).map_or(Share::Whole, |entry| entry.acquisition.share())
    }

    /// The kind of a lock that has waiters: that of the oldest.
    pub fn kind(&self, name: &LockName) -> Option<Kind> {
        let (_, oldest) = self.queues.get(name)?.by_order.first()?;
        Some(self.waiters.get(oldest)?.acquisition.kind())
    }

    /// Whether a lock has heartbeats.
    pub fn is_wanted(&self, name: &LockName) -> bool {
        self.queues.contains_key(name)
    }

    /// How many waiters still wait.
    pub fn waiting(&self) -> usize {
        self.waiters.values().filter(|waiter| waiter.caller.is_some()).count()
    }

    /// The waiter that `request` can be granted to, as long as it waits (K2).
    fn find(&self, request: RequestId) -> Option<RequestId> {
        let waiter = self.returned.get(&request).copied().unwrap_or(request);
        let entry = self.waiters.get(&waiter)?;
        (entry.caller.is_some() && entry.acquisition.can_be_granted(request)).then_some(waiter)
    }

    /// Ends a wait. Returns whom to tell, and the lock whose next heartbeat is due now.
    pub(super) fn end(&mut self, waiter: RequestId) -> Option<(T, Option<LockName>)> {
        let caller = self.waiters.get_mut(&waiter)?.caller.take()?;
        let look = self.unqueue(waiter);
        self.check();
        Some((caller, look))
    }

    /// Takes a waiter out of the waiters of its lock. Returns the lock if it must be looked at now.
    fn unqueue(&mut self, waiter: RequestId) -> Option<LockName> {
        let entry = self.waiters.get(&waiter)?;
        let queue = self.queues.get_mut(&entry.name)?;
        let was_queued = queue.by_order.remove(&(entry.acquisition.order()?, waiter));
        // Another waiter may be the oldest now.
        (was_queued && queue.oldest_listens).then(|| entry.name.clone())
    }

    pub(super) fn owner(&self, waiter: RequestId) -> Option<OwnerId> {
        let entry = self.waiters.get(&waiter).filter(|entry| entry.caller.is_some())?;
        Some(entry.acquisition.owner().clone())
    }

    pub(super) fn check(&self) {
        #[cfg(debug_assertions)]
        if self.waiters.len() <= CHECKED_MAX {
            self.check_all();
        }
    }

    /// Checks K4 to K6.
    #[cfg(debug_assertions)]
    fn check_all(&self) {
        for (key, waiter) in &self.waiters {
            for request in waiter.acquisition.grantable().filter(|request| request != key) {
                assert_eq!(self.returned.get(&request), Some(key), "K4: {request:?} is not known");
            }
        }
        for (request, key) in &self.returned {
            let waiter = self.waiters.get(key);
            let known = waiter.is_some_and(|waiter| waiter.acquisition.can_be_granted(*request));
            assert!(known, "K4: {request:?} has no waiter");
        }
        for (name, queue) in &self.queues {
            for (order, key) in &queue.by_order {
                let waiter = self.waiters.get(key).expect("K5: a queue's waiter has left");
                assert!(waiter.caller.is_some(), "K5: {key:?} waits for what it has");
                assert_eq!(waiter.acquisition.order(), Some(*order), "K6: the place of {key:?}");
                assert_eq!(waiter.name, *name, "K6: {key:?} is in another queue");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClientId;
    use crate::op::{Kind, Mode, Op};

    const PERIOD: Duration = Duration::from_secs(2);

    fn request(number: usize) -> RequestId {
        RequestId::from_random(number as u128)
    }

    fn job() -> LockName {
        LockName::new(b"job").expect("a name")
    }

    fn grant(number: usize) -> Grant {
        let token = crate::rules::Token::new(1).expect("a token");
        Grant { request: request(number), token, ttl_ms: 30_000 }
    }

    /// One waiter, with request 0.
    fn one() -> Waiters<&'static str> {
        let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
        let (kind, mode) = (Kind::Fair, Mode::Wait);
        let acquisition = Acquisition::new(kind, owner, mode, 30_000, false, request(0));
        let mut waiters = Waiters::default();
        assert_eq!(waiters.enter(job(), acquisition, "told"), request(0));
        waiters
    }

    /// What the message leads to, if it is a grant.
    fn told(message: Message<&'static str>) -> Option<&'static str> {
        match message {
            Message::Granted(granted) => Some(granted.caller),
            _ => None,
        }
    }

    #[test]
    fn a_grant_by_message_ends_the_wait_once() {
        let mut waiters = one();
        assert_eq!(waiters.message(&grant(5), Lasts::Still), Message::Dropped, "forged");
        assert_eq!(told(waiters.message(&grant(0), Lasts::Still)), Some("told"));
        assert_eq!(waiters.message(&grant(0), Lasts::Still), Message::Dropped);
        assert_eq!(waiters.granted(&job(), grant(0)), None);
        // The reply that it is in the queue was overtaken.
        let queued = waiters.queued(request(0), 7, Outlook::default(), PERIOD);
        assert_eq!(queued, Queued::default());
        let left = waiters.leave(request(0)).expect("it was there");
        assert_eq!((left.caller, left.acquisition.order()), (None, Some(7)));
        assert_eq!(waiters, Waiters::default());
    }

    /// The first heartbeat looks for what a message cannot be trusted with: it counts from no time,
    /// or the grant was over before it was read.
    #[test]
    fn a_grant_that_cannot_be_used_is_looked_for_at_once() {
        for (lasts, message) in
            [(Lasts::Unknown, Message::Look("told")), (Lasts::NoMore, Message::TooLate("told"))]
        {
            let mut waiters = one();
            assert_eq!(waiters.message(&grant(0), lasts), message);
            let queued = waiters.queued(request(0), 7, Outlook::default(), PERIOD);
            assert_eq!(queued, Queued { begins: true, look: true });
        }
    }

    #[test]
    fn the_first_heartbeat_is_early_if_something_is_expected() {
        let ms = Duration::from_millis;
        for (retry, foreign, look) in [
            (None, false, false),
            (Some(ms(1_999)), false, true),
            (Some(PERIOD), false, false),
            (None, true, true),
        ] {
            let outlook = Outlook { retry, foreign };
            let queued = one().queued(request(0), 7, outlook, PERIOD);
            assert_eq!(queued, Queued { begins: true, look }, "{outlook:?}");
        }
    }

    /// A message may have been under way while the server said that the waiter has nothing, so a
    /// grant by message to a former request is not believed. A reply is.
    #[test]
    fn former_requests_are_granted_by_replies_alone_and_bounded() {
        let mut waiters = one();
        waiters.queued(request(0), 7, Outlook::default(), PERIOD);
        let last = Acquisition::FORMER_MAX + 2;
        for number in 1..=last {
            assert!(waiters.return_to_place(request(0), request(number), 0).is_some());
            waiters.set_in_doubt(request(0), false);
        }
        assert_eq!((waiters.waiting(), waiters.returned.len()), (1, last - 1));
        for forgotten in 0..=1 {
            assert_eq!(waiters.granted(&job(), grant(forgotten)), None);
        }
        assert_eq!(waiters.message(&grant(2), Lasts::Still), Message::Look("told"));
        let granted = waiters.granted(&job(), grant(2)).expect("a former request");
        assert_eq!(granted.caller, "told");
        waiters.leave(request(0));
        assert!(waiters.returned.is_empty(), "nothing is left of it");
    }

    #[test]
    fn a_request_that_is_unanswered_is_not_replaced() {
        let mut waiters = one();
        waiters.queued(request(0), 7, Outlook::default(), PERIOD);
        for _ in 0..2 {
            let sent = waiters.return_to_place(request(0), request(1), 0).expect("it waits");
            assert_eq!(sent.request, request(1));
        }
        let sent = waiters.return_to_place(request(0), request(2), 0).expect("it waits");
        assert_eq!(sent.request, request(1), "its reply is missing");
        assert_eq!(waiters.message(&grant(2), Lasts::Still), Message::Dropped);
        assert_eq!(told(waiters.message(&grant(1), Lasts::Still)), Some("told"));
    }

    /// Found by the exploration: the waiter returned to its place with two copies of a request, the
    /// second was answered, and it gave up. The first one was executed after that, because the
    /// request was not buried: the lock was granted to nobody.
    #[test]
    fn the_answer_to_one_copy_of_a_return_says_nothing_about_another() {
        let mut waiters = one();
        waiters.queued(request(0), 7, Outlook::default(), PERIOD);
        for in_doubt in [true, false] {
            let sent = waiters.return_to_place(request(0), request(1), 0).expect("it waits");
            assert_eq!(sent.request, request(1));
            waiters.set_in_doubt(request(0), in_doubt);
        }
        let mut acquisition = waiters.leave(request(0)).expect("it was there").acquisition;
        let buried =
            |op: &Op| matches!(op, Op::Leave { request: it, bury: true, .. } if *it == request(1));
        assert!(acquisition.give_up().iter().any(buried));
    }

    #[test]
    fn a_reply_about_another_lock_grants_nothing() {
        let other = LockName::new(b"other").expect("a name");
        assert_eq!(one().granted(&other, grant(0)), None);
    }
}
