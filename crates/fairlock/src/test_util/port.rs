//! The connection of one client to a sandbox's store, which a test can cut.

use crate::base::clock::lock;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::settings::client_info::ClientInfo;
use crate::store::memory::MemoryStore;
use crate::store::{Boxed, Cursor, Event, Page, Reply, Store, StoreError, Taken, Topic};
use fairlock_core::{ClientId, Kind, LockName, Op, Rules};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::watch;

/// What the clients of a sandbox share.
pub(super) struct Inside {
    memory: Arc<MemoryStore>,
    clients: Mutex<HashMap<ClientId, Member>>,
}

struct Member {
    context: Weak<Context>,
    port: Weak<Port>,
}

impl Inside {
    pub(super) fn new(rules: Rules) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            let sink = move |to, event| {
                if let Some(inside) = this.upgrade() {
                    inside.deliver(to, &event);
                }
            };
            Self { memory: MemoryStore::new(rules, Box::new(sink)), clients: Mutex::default() }
        })
    }

    pub(super) fn memory(&self) -> &Arc<MemoryStore> {
        &self.memory
    }

    pub(super) fn add(&self, id: ClientId, context: &Arc<Context>, port: &Arc<Port>) {
        let mut clients = lock(&self.clients);
        clients.retain(|_, member| member.context.strong_count() > 0);
        let member = Member { context: Arc::downgrade(context), port: Arc::downgrade(port) };
        clients.insert(id, member);
    }

    pub(super) fn port(&self, id: ClientId) -> Option<Arc<Port>> {
        lock(&self.clients).get(&id)?.port.upgrade()
    }

    pub(super) fn clients(&self) -> Vec<Arc<Context>> {
        lock(&self.clients).values().filter_map(|member| member.context.upgrade()).collect()
    }

    /// Delivers to one client, or to all, except those that are cut off.
    fn deliver(&self, to: Option<ClientId>, event: &Event) {
        let reached: Vec<_> = lock(&self.clients)
            .iter()
            .filter(|(id, member)| {
                let up = || member.port.upgrade().is_some_and(|port| port.is_up());
                to.is_none_or(|to| to == **id) && up()
            })
            .filter_map(|(_, member)| member.context.upgrade())
            .collect();
        for context in reached {
            context.hear(event.clone());
        }
    }
}

/// One client's connection to the store.
pub(super) struct Port {
    inside: Arc<Inside>,
    up: watch::Sender<bool>,
    refusal: Mutex<Option<ErrorKind>>,
}

impl Port {
    pub(super) fn new(inside: Arc<Inside>) -> Arc<Self> {
        Arc::new(Self { inside, up: watch::Sender::new(true), refusal: Mutex::default() })
    }

    /// Returns whether this changes anything.
    pub(super) fn set_up(&self, up: bool) -> bool {
        self.up.send_replace(up) != up
    }

    pub(super) fn refuse_next(&self, kind: ErrorKind) {
        *lock(&self.refusal) = Some(kind);
    }

    fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    fn send(&self, name: &LockName, op: &Op) -> Result<Reply, StoreError> {
        if !self.is_up() {
            return Err(cut_off());
        }
        if matches!(op, Op::Acquire(_) | Op::AcquireShare(_))
            && let Some(kind) = lock(&self.refusal).take()
        {
            return Err(StoreError::refused(Error::new(kind, "refused, as the test wanted")));
        }
        self.inside.memory.apply(name, op)
    }
}

fn cut_off() -> StoreError {
    StoreError::unavailable("the test has cut this client off".into(), false)
}

impl Store for Port {
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>> {
        Box::pin(async move { self.send(name, op) })
    }

    fn call_now(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        // While cut off, the call takes the slow path, which retries.
        self.is_up().then(|| self.send(name, op))
    }

    fn call_together<'a>(
        &'a self,
        asks: &'a [(LockName, Op)],
    ) -> Boxed<'a, Result<Taken, StoreError>> {
        // While cut off, or before a refusal, nothing is taken here: the single requests that
        // follow get the error.
        match self.is_up() && lock(&self.refusal).is_none() {
            true => self.inside.memory.call_together(asks),
            false => Box::pin(async { Ok(Taken::None(None)) }),
        }
    }

    fn is_synchronous(&self) -> bool {
        true
    }

    fn note_kind<'a>(
        &'a self,
        name: &'a LockName,
        kind: Kind,
    ) -> Boxed<'a, Result<Option<Kind>, StoreError>> {
        if self.is_up() {
            return self.inside.memory.note_kind(name, kind);
        }
        Box::pin(async { Err(cut_off()) })
    }

    fn lease_differs(&self, client: ClientId) {
        self.inside.memory.lease_differs(client);
    }

    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        self.inside.memory.listen(topic)
    }

    fn unlisten(&self, topic: Topic) {
        self.inside.memory.unlisten(topic);
    }

    fn ready<'a>(&'a self, _: Option<&'a LockName>) -> Boxed<'a, ()> {
        Box::pin(async {
            // The sender lives in `self`, so the wait cannot fail.
            let _ = self.up.subscribe().wait_for(|up| *up).await;
        })
    }

    fn inbox_up(&self) -> bool {
        self.is_up()
    }

    fn ping(&self) -> Boxed<'_, Result<(), StoreError>> {
        Box::pin(async { self.is_up().then_some(()).ok_or_else(cut_off) })
    }

    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>> {
        if self.is_up() {
            return self.inside.memory.clients(ids);
        }
        Box::pin(async { BTreeMap::new() })
    }

    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        if self.is_up() {
            return self.inside.memory.page(at, keys);
        }
        Box::pin(async { Err(cut_off()) })
    }
}
