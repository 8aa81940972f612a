//! `memory:NAME`: one store for all clients of this process that name it, until the last of them is gone.
//!
//! Invariant: a store is found by its name as long as one of its clients exists, and by no process but the one that
//! made it: a forked child has a copy without the threads that wake its waiters.

use super::memory::MemoryStore;
use super::{Boxed, Cursor, Events, Page, Reply, Store, StoreError, Taken, Topic};
use crate::base::clock::lock;
use crate::settings::client_info::ClientInfo;
use crate::settings::config::Config;
use fairlock_core::{ClientId, Kind, LockName, Op};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

/// The stores of this process, by the process that made them and their names.
static STORES: Mutex<BTreeMap<(u32, LockName), Weak<Shared>>> = Mutex::new(BTreeMap::new());

type Clients = Arc<Mutex<HashMap<ClientId, Events>>>;

/// What the clients of one name share.
struct Shared {
    memory: Arc<MemoryStore>,
    clients: Clients,
}

/// The store of one client.
pub(crate) struct SharedMemory {
    shared: Arc<Shared>,
    client: ClientId,
}

impl SharedMemory {
    /// The store of this name, which is made if it does not exist. The rules are those of the client that makes it.
    pub(crate) fn join(name: &LockName, config: &Config, client: ClientId, events: Events) -> Self {
        let key = (std::process::id(), name.clone());
        let mut stores = lock(&STORES);
        let known = stores.get(&key).and_then(Weak::upgrade);
        let shared = known.unwrap_or_else(|| {
            stores.retain(|_, store| store.strong_count() > 0);
            let shared = Shared::new(config);
            stores.insert(key, Arc::downgrade(&shared));
            shared
        });
        drop(stores);
        lock(&shared.clients).insert(client, events);
        shared.memory.announce(config, client);
        Self { shared, client }
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryStore> {
        &self.shared.memory
    }
}

impl Shared {
    fn new(config: &Config) -> Arc<Self> {
        let clients = Clients::default();
        let members = Arc::clone(&clients);
        let sink = move |to: Option<ClientId>, event: super::Event| {
            let reached: Vec<_> = {
                let members = lock(&members);
                match to {
                    Some(client) => members.get(&client).cloned().into_iter().collect(),
                    None => members.values().cloned().collect(),
                }
            };
            reached.iter().for_each(|events| events(event.clone()));
        };
        Arc::new(Self { memory: MemoryStore::new(config.rules(), Box::new(sink)), clients })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        lock(&self.shared.clients).remove(&self.client);
        self.memory().forget(self.client);
    }
}

impl Store for SharedMemory {
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>> {
        self.memory().call(name, op)
    }

    fn call_now(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        self.memory().call_now(name, op)
    }

    fn call_together<'a>(
        &'a self,
        asks: &'a [(LockName, Op)],
    ) -> Boxed<'a, Result<Taken, StoreError>> {
        self.memory().call_together(asks)
    }

    fn is_synchronous(&self) -> bool {
        true
    }

    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        self.memory().listen(topic)
    }

    fn unlisten(&self, topic: Topic) {
        self.memory().unlisten(topic);
    }

    fn ready<'a>(&'a self, name: Option<&'a LockName>) -> Boxed<'a, ()> {
        self.memory().ready(name)
    }

    fn inbox_up(&self) -> bool {
        true
    }

    fn ping(&self) -> Boxed<'_, Result<(), StoreError>> {
        self.memory().ping()
    }

    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>> {
        self.memory().clients(ids)
    }

    fn note_kind<'a>(
        &'a self,
        name: &'a LockName,
        kind: Kind,
    ) -> Boxed<'a, Result<Option<Kind>, StoreError>> {
        self.memory().note_kind(name, kind)
    }

    fn lease_differs(&self, client: ClientId) {
        self.memory().lease_differs(client);
    }

    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        self.memory().page(at, keys)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Client, Config};
    use std::time::Duration;

    async fn client(name: &str) -> Client {
        Client::with_config(Config::shared_memory(name).expect("a name")).await.expect("memory")
    }

    #[tokio::test]
    async fn clients_of_one_name_exclude_each_other() {
        let (one, two) = (client("shared:exclude").await, client("shared:exclude").await);
        let elsewhere = client("shared:elsewhere").await;
        let guard = one.fair_lock("job").lock().await.expect("it is free");
        assert!(two.fair_lock("job").try_lock().await.expect("memory").is_none());
        assert!(elsewhere.fair_lock("job").try_lock().await.expect("memory").is_some());
        // The store outlives the client that made it, and wakes the waiters of the others.
        let lock = two.fair_lock("job");
        let next = tokio::spawn(async move { lock.lock().await });
        while two.fair_lock("job").inspect().await.expect("memory").queue_len == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let first = guard.token();
        drop(guard);
        one.shutdown().await;
        let second = next.await.expect("no panic").expect("it was released");
        assert!(second.token() > first);
    }

    /// The client that made the store ran its task for deadlines.
    #[tokio::test]
    async fn a_lease_ends_after_the_client_that_made_the_store_has_gone() {
        let one = client("shared:expiry").await;
        let two = client("shared:expiry").await;
        let lock = one.fair_lock("job").lease(Duration::from_millis(300));
        let left = lock.lock().await.expect("it is free").detach().await.expect("memory");
        one.shutdown().await;
        let soon = two.fair_lock("job").try_lock_for(Duration::from_secs(20)).await;
        assert!(soon.expect("memory").expect("the lease ended").token() > left.token());
    }

    #[tokio::test]
    async fn tokens_rise_after_the_last_client_has_gone() {
        let mut last = None;
        for _ in 0..3 {
            let client = client("shared:again").await;
            let guard = client.fair_lock("job").try_lock().await.expect("memory");
            let token = Some(guard.expect("the former store has gone").token());
            assert!(token > last);
            last = token;
            client.shutdown().await;
        }
    }
}
