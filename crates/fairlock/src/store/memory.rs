//! The store inside one process: the core itself, and a task that hands locks over when leases end.

use super::{Boxed, Cursor, Event, Page, Reply, Store, StoreError, Taken, Topic};
use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::observe;
use crate::settings::client_info::ClientInfo;
use crate::settings::config::Config;
use crate::store::entry::LockEntry;
use fairlock_core::{
    Answer, Body, Channel, ClientId, CoreError, Effect, Kind, LockName, LockState, Model, Op,
    OwnerId, Payload, Rules, World,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Where the store delivers events: to one client, or to all of them.
pub(crate) type Sink = Box<dyn Fn(Option<ClientId>, Event) + Send + Sync>;

/// One `memory:` store. Two clients made from `memory:` have two separate stores; the clients of a
/// sandbox share one, and so do those made from the same `memory:NAME` (see `shared_memory`).
pub(crate) struct MemoryStore {
    state: Mutex<State>,
    rules: Rules,
    sink: Sink,
    /// Server time is this plus the time since boot, so changes of the wall clock do not affect it.
    epoch_us: u64,
    /// Notified when a deadline is earlier than the one the expiry task waits for.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    /// Each lock with its deadline, if it has one.
    model: Model<Option<u64>>,
    deadlines: BTreeSet<(u64, LockName)>,
    /// How many clients listen to each topic.
    listened: HashMap<Topic, usize>,
    /// The clients that announce themselves.
    clients: BTreeMap<ClientId, ClientInfo>,
    /// The kind as which each lock was last granted.
    kinds: HashMap<LockName, Kind>,
}

/// For so many locks the last kind is kept.
const KINDS_MAX: usize = 4_096;

/// Within one process, every client of ours is reachable and there are no others.
struct Inside;

impl World for Inside {
    fn inbox(&self, _: ClientId) -> bool {
        true
    }

    fn listening(&self, _: &OwnerId) -> bool {
        false
    }
}

impl MemoryStore {
    pub(crate) fn new(rules: Rules, sink: Sink) -> Arc<Self> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let epoch_us = wall.as_micros() as u64 - Moment::now().nanos() / 1_000;
        Arc::new(Self { state: Mutex::default(), rules, sink, epoch_us, sooner: Notify::new() })
    }

    /// Removes what a client announced.
    pub(super) fn forget(&self, client: ClientId) {
        lock(&self.state).clients.remove(&client);
    }

    /// Announces a new client.
    pub(crate) fn announce(&self, config: &Config, client: ClientId) {
        if config.announce {
            // To the millisecond, as in the other stores.
            let since_ms = (self.epoch_us + Moment::now().nanos() / 1_000) / 1_000;
            let info = ClientInfo::here(config, UNIX_EPOCH + Duration::from_millis(since_ms));
            lock(&self.state).clients.insert(client, info);
        }
    }

    pub(crate) fn apply(&self, name: &LockName, op: &Op) -> Result<Reply, StoreError> {
        let sent = Moment::now();
        let now_us = self.epoch_us + sent.nanos() / 1_000;
        let (mut answer, effects) =
            self.apply_at(now_us, name, op.without_kind()).map_err(refused)?;
        observe::answered(name, &answer);
        self.deliver(name, effects, sent);
        if answer.more {
            self.serve_the_rest(name);
            answer.more = false;
        }
        Ok(Reply { sent, answer, clock: None })
    }

    /// Finishes what an operation has left to do: callers that release, or try in place, never ask for the rest.
    #[cold]
    fn serve_the_rest(&self, name: &LockName) {
        loop {
            let sent = Moment::now();
            let now_us = self.epoch_us + sent.nanos() / 1_000;
            // If no token is left, the next caller gets that error.
            let Ok((answer, effects)) = self.apply_at(now_us, name, &Op::Nudge) else { return };
            observe::answered(name, &answer);
            self.deliver(name, effects, sent);
            if !answer.more {
                return;
            }
        }
    }

    // Every operation takes this path; `serve_the_rest` is a rare second caller.
    #[inline(always)]
    fn apply_at(
        &self,
        now_us: u64,
        name: &LockName,
        op: &Op,
    ) -> Result<(Answer, Vec<Effect>), CoreError> {
        self.apply_in(&mut lock(&self.state), now_us, name, op)
    }

    #[inline(always)]
    fn apply_in(
        &self,
        state: &mut State,
        now_us: u64,
        name: &LockName,
        op: &Op,
    ) -> Result<(Answer, Vec<Effect>), CoreError> {
        let deadline = |l: &LockState, known: &mut Option<u64>| {
            // A look serves nobody, so the deadline stays, even if the look found that a lease is over. Without
            // waiters, nothing needs to be done when a lease ends.
            let at = match op {
                Op::Inspect { .. } | Op::Place { .. } | Op::Leader => *known,
                _ => l.due_ms(now_us / 1_000, &self.rules),
            };
            (std::mem::replace(known, at), at)
        };
        let (answer, effects, (known, at)) =
            state.model.apply_then(now_us, name, op, &self.rules, &Inside, deadline)?;
        if known != at {
            state.move_deadline(name, known, at, &self.sooner);
        }
        Ok((answer, effects))
    }

    /// Carries out all of these acquisitions, if each of them is granted at once.
    fn apply_together(&self, asks: &[(LockName, Op)]) -> Taken {
        let sent = Moment::now();
        let now_us = self.epoch_us + sent.nanos() / 1_000;
        let mut state = lock(&self.state);
        let free = LockState::default();
        let grants = |(name, op): &(LockName, Op)| {
            let known = state.model.get(name).unwrap_or(&free);
            known.would_grant(now_us, op, &self.rules, &Inside)
        };
        if let Some(busy) = asks.iter().position(|ask| !grants(ask)) {
            return Taken::None(Some(busy));
        }
        let mut done = Vec::with_capacity(asks.len());
        for (name, op) in asks {
            // The names differ, so each operation finds the state that was checked above.
            let Ok(each) = self.apply_in(&mut state, now_us, name, op) else {
                return Taken::None(None);
            };
            done.push(each);
        }
        drop(state);
        let replies = asks.iter().zip(done).map(|((name, _), (answer, effects))| {
            observe::answered(name, &answer);
            self.deliver(name, effects, sent);
            Reply { sent, answer, clock: None }
        });
        Taken::All(replies.collect())
    }

    fn page_now(&self, after: Option<&LockName>, limit: usize) -> Page {
        let now_us = self.epoch_us + Moment::now().nanos() / 1_000;
        let mut state = lock(&self.state);
        let names = state.model.names(after, limit);
        let full = names.len() == limit;
        let next = names.last().filter(|_| full).cloned().map(Cursor::After);
        let looked_at = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let entries = names.into_iter().filter_map(|name| {
            let lock = state.model.get(&name)?;
            if lock.is_only_a_latch() {
                return None;
            }
            let is_simple = lock.snapshot().value.is_some();
            let shared = lock.shares().map(fairlock_core::Shares::kind);
            let kind = if is_simple { Kind::Simple } else { shared.unwrap_or(Kind::Fair) };
            let op = Op::Inspect { kind, limit: 0 };
            let looked = state.model.apply(now_us, &name, &op, &self.rules, &Inside);
            let Ok((Answer { body: Body::Inspected(seen), .. }, _)) = looked else { return None };
            Some(LockEntry::seen(name, kind, &seen))
        });
        Page { entries: entries.collect(), next, looked_at, ..Page::default() }
    }

    /// Delivers the effects. Called outside the mutex: the receivers take locks of their own.
    fn deliver(&self, name: &LockName, effects: Vec<Effect>, arrived: Moment) {
        for effect in effects {
            match (effect.channel, effect.payload) {
                (Channel::Inbox(to), Payload::Grant { grant, at_ms }) => {
                    (self.sink)(Some(to), Event::Granted { grant, at_ms, arrived, clock: None });
                }
                (Channel::Inbox(to), Payload::Forced { number, token }) => {
                    let Ok(owner) = OwnerId::ours(to, number) else { continue };
                    (self.sink)(Some(to), Event::Forced { owner, token });
                }
                (Channel::Base, _) => self.wake(Topic::Base(name.clone())),
                (Channel::Waiter(owner), _) => self.wake(Topic::Waiter(name.clone(), owner)),
                (Channel::Latch, Payload::Zero) => {
                    let event = Event::CountedDown(name.clone());
                    self.tell(&Topic::Latch(name.clone()), event);
                }
                (Channel::Latch, _) => self.wake(Topic::Latch(name.clone())),
                (Channel::Leader, _) => (self.sink)(None, Event::Wake(Topic::Leader(name.clone()))),
                (Channel::Inbox(_), _) => {}
            }
        }
    }

    fn wake(&self, topic: Topic) {
        let event = Event::Wake(topic.clone());
        self.tell(&topic, event);
    }

    fn tell(&self, topic: &Topic, event: Event) {
        let wanted = lock(&self.state).listened.contains_key(topic);
        if wanted {
            (self.sink)(None, event);
        }
    }

    /// Hands locks over when leases end; runs until the client is gone. Each client of a store runs it, and one of
    /// them that is left is enough: its end makes another one look.
    pub(crate) async fn run_expiry(self: Arc<Self>) {
        struct Successor<'a>(&'a Notify);
        impl Drop for Successor<'_> {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let _successor = Successor(&self.sooner);
        loop {
            let next = lock(&self.state).deadlines.first().map(|(at, _)| *at);
            let now_ms = (self.epoch_us + Moment::now().nanos() / 1_000) / 1_000;
            match next {
                Some(at) if at <= now_ms => {
                    let due = lock(&self.state).take_due(now_ms);
                    for name in due {
                        // If no token is left, the next caller gets that error.
                        let _ = self.apply(&name, &Op::Nudge);
                    }
                }
                Some(at) => {
                    let sleep = tokio::time::sleep(Duration::from_millis(at - now_ms));
                    tokio::select! {
                        biased;
                        () = sleep => {}
                        () = self.sooner.notified() => {}
                    }
                }
                None => self.sooner.notified().await,
            }
        }
    }
}

impl State {
    fn move_deadline(
        &mut self,
        name: &LockName,
        known: Option<u64>,
        at: Option<u64>,
        sooner: &Notify,
    ) {
        if let Some(old) = known {
            self.deadlines.remove(&(old, name.clone()));
        }
        if let Some(at) = at {
            let first = self.deadlines.first().is_none_or(|(earliest, _)| at < *earliest);
            self.deadlines.insert((at, name.clone()));
            if first {
                sooner.notify_one();
            }
        }
    }

    fn take_due(&mut self, now_ms: u64) -> Vec<LockName> {
        let mut due = Vec::new();
        while let Some((at, name)) = self.deadlines.first().cloned() {
            if at > now_ms {
                break;
            }
            self.deadlines.pop_first();
            if let Some(known) = self.model.note_mut(&name) {
                *known = None;
            }
            due.push(name);
        }
        due
    }
}

fn refused(error: CoreError) -> StoreError {
    let kind = match error {
        CoreError::NoSuchShare => ErrorKind::Misuse,
        _ => ErrorKind::WrongType,
    };
    StoreError::refused(Error::new(kind, error.to_string()))
}

impl Store for MemoryStore {
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>> {
        let result = self.apply(name, op);
        Box::pin(async move { result })
    }

    fn call_now(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        Some(self.apply(name, op))
    }

    fn call_together<'a>(
        &'a self,
        asks: &'a [(LockName, Op)],
    ) -> Boxed<'a, Result<Taken, StoreError>> {
        let result = self.apply_together(asks);
        Box::pin(async move { Ok(result) })
    }

    fn is_synchronous(&self) -> bool {
        true
    }

    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        *lock(&self.state).listened.entry(topic).or_default() += 1;
        Box::pin(async { Ok(()) })
    }

    fn unlisten(&self, topic: Topic) {
        let mut state = lock(&self.state);
        let Some(clients) = state.listened.get_mut(&topic) else { return };
        *clients -= 1;
        if *clients == 0 {
            state.listened.remove(&topic);
        }
    }

    fn ready<'a>(&'a self, _: Option<&'a LockName>) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    fn inbox_up(&self) -> bool {
        true
    }

    fn ping(&self) -> Boxed<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>> {
        let state = lock(&self.state);
        let known = ids.iter().filter_map(|id| Some((*id, state.clients.get(id)?.clone())));
        let known = known.collect();
        Box::pin(async { known })
    }

    fn note_kind<'a>(
        &'a self,
        name: &'a LockName,
        kind: Kind,
    ) -> Boxed<'a, Result<Option<Kind>, StoreError>> {
        let mut state = lock(&self.state);
        if state.kinds.len() >= KINDS_MAX {
            state.kinds.clear();
        }
        let before = state.kinds.insert(name.clone(), kind);
        Box::pin(async move { Ok(before) })
    }

    fn lease_differs(&self, client: ClientId) {
        if let Some(info) = lock(&self.state).clients.get_mut(&client) {
            info.lease = None;
        }
    }

    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        let after = match at {
            Cursor::After(name) => Some(name),
            _ => None,
        };
        let page = self.page_now(after.as_ref(), usize::try_from(keys).unwrap_or(usize::MAX));
        Box::pin(async move { Ok(page) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::{Acquire, Mode, RequestId};

    const START_US: u64 = 1_760_000_000_000_000;

    #[test]
    fn several_are_taken_together_or_not_at_all() {
        let store = MemoryStore::new(Rules::default(), Box::new(|_, _| {}));
        let ask = |lock: &[u8], number: u128| {
            let acquire = Op::Acquire(Acquire {
                kind: Kind::Fair,
                owner: OwnerId::ours(ClientId::from_random(number), 1).unwrap(),
                request: RequestId::from_random(number),
                lease_ms: 1_000,
                mode: Mode::Try,
                order: None,
                not_after_ms: u64::MAX,
                sure: false,
                shared_owner: false,
            });
            (LockName::new(lock).unwrap(), acquire)
        };
        let (name, op) = ask(b"b", 1);
        store.apply(&name, &op).unwrap();
        let taken = store.apply_together(&[ask(b"a", 2), ask(b"b", 2)]);
        assert!(matches!(taken, Taken::None(Some(1))), "the second is not free");
        let is_held = |name: &LockName| {
            let state = lock(&store.state);
            state.model.get(name).is_some_and(|lock| !lock.snapshot().hold.is_empty())
        };
        assert!(!is_held(&ask(b"a", 2).0));
        let taken = store.apply_together(&[ask(b"a", 2), ask(b"c", 2)]);
        assert!(matches!(taken, Taken::All(replies) if replies.len() == 2));
        assert!(is_held(&ask(b"a", 2).0) && is_held(&ask(b"c", 2).0));
    }

    /// A look right after the end of a lease found the lock free, and the store forgot that a waiter was still to be
    /// served.
    #[test]
    fn a_look_leaves_what_is_due() {
        let store = MemoryStore::new(Rules::default(), Box::new(|_, _| {}));
        let name = LockName::new(b"job").unwrap();
        for number in [1, 2] {
            let acquire = Op::Acquire(Acquire {
                kind: Kind::Fair,
                owner: OwnerId::ours(ClientId::from_random(number), 1).unwrap(),
                request: RequestId::from_random(number),
                lease_ms: 1_000,
                mode: Mode::Wait,
                order: None,
                not_after_ms: u64::MAX,
                sure: false,
                shared_owner: false,
            });
            store.apply_at(START_US, &name, &acquire).unwrap();
        }
        assert_eq!(lock(&store.state).deadlines.len(), 1);
        let look = Op::Inspect { kind: Kind::Fair, limit: 1 };
        let (answer, _) = store.apply_at(START_US + 1_001_000, &name, &look).unwrap();
        let Body::Inspected(seen) = answer.body else { panic!("{:?}", answer.body) };
        assert_eq!((seen.holder, seen.queue_len), (None, 1), "its lease is over");
        assert_eq!(lock(&store.state).deadlines.len(), 1, "the waiter is to be served");
    }
}
