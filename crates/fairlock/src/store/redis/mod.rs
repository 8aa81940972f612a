//! The store on one Redis or Valkey server, on the one that Sentinels name, or on a Cluster.
//!
//! There are two connections, one for commands and one for the inbox, so that a slow reader of
//! messages never kills commands and a blocked command never delays a grant. If replicas are waited
//! for, there is a third one. Each has a task that connects, watches and reconnects it. On a
//! Cluster each node has its own, except that without sharded messages one inbox serves the whole
//! Cluster; `routes.rs` finds the way.

mod aside;
mod attempt;
mod classify;
mod cluster;
mod confirm;
mod dial;
#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/redis/differential/mod.rs"]
mod differential;
mod exchange;
#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/redis/flood.rs"]
mod flood;
#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/redis/fuzz.rs"]
mod fuzz;
mod handshake;
mod inbox;
mod kept;
mod keys;
mod link;
mod login;
mod mapper;
mod node_subscription;
mod place;
mod record;
mod reply;
mod rights;
mod route;
mod routes;
mod scan;
mod script;
mod sentinels;
mod shards;
mod sight;
#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/redis/simulation/mod.rs"]
mod simulation;
mod slots;
mod tapped;
#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/redis/tests.rs"]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod walk;
mod wire;

use super::{
    Boxed, Confirmed, Cursor, Event, Events, Page, Reply, Store, StoreError, Taken, Topic,
};
use crate::base::clock::{Moment, ServerClock};
use crate::base::error::Error;
use crate::settings::client_info::ClientInfo;
use crate::settings::config::{Address, Config};
use classify::classify;
use confirm::Confirmer;
use exchange::Call;
use fairlock_core::{ClientId, Kind, LockName, Op, Rules};
use inbox::Inbox;
use kept::kept;
use keys::Publishing;
use link::Link;
use place::Place;
use record::Record;
use routes::Routes;
use sight::Sight;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};
use together::Together;
use tokio::sync::Notify;
use wire::{Cmd, Value};

pub(crate) use walk::Walk;

/// Between two looks at an ongoing failover, which takes a second or two.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A store on a Redis or Valkey server, or on a Cluster.
pub(crate) struct RedisStore {
    to: To,
    /// What this client announces about itself, unless the settings disable that.
    record: Option<Arc<Record>>,
}

enum To {
    One(One),
    Cluster(Arc<Routes>),
}

/// The connections to one server.
struct One {
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    sight: Arc<Sight>,
    /// Set if replicas are waited for.
    confirmer: Option<Arc<Confirmer>>,
    rules: Rules,
}

impl RedisStore {
    /// Makes the store. Its tasks start on the current runtime and end with it.
    ///
    /// # Errors
    /// The settings name no server that this build can connect to.
    pub(crate) fn start(
        config: &Config,
        client: ClientId,
        events: Events,
    ) -> Result<Arc<Self>, Error> {
        let record = config.announce.then(|| {
            // `since` comes from the server's clock.
            let info = ClientInfo::here(config, UNIX_EPOCH);
            Arc::new(Record::new(client, info))
        });
        let to = match &config.address {
            Address::Cluster(_) => {
                To::Cluster(Routes::start(config, client, record.clone(), events)?)
            }
            _ => To::One(One::start(config, client, record.clone(), events)?),
        };
        Ok(Arc::new(Self { to, record }))
    }

    /// The result of the first attempt to make both connections, and of further ones until `until`.
    pub(crate) async fn contact(&self, until: Moment) -> Result<(), Error> {
        match &self.to {
            To::One(one) => {
                one.link.contact(until).await?;
                one.inbox.contact(until).await?;
                one.sight.look().await
            }
            To::Cluster(routes) => routes.contact(until).await,
        }
    }

    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    fn leftovers(&self) -> Option<String> {
        let To::One(one) = &self.to else { panic!("a Cluster has many") };
        let topics = one.inbox.topics();
        (topics > 0).then(|| format!("{topics} channels that it listens to"))
    }

    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    fn link(&self) -> &Arc<Link> {
        match &self.to {
            To::One(one) => &one.link,
            To::Cluster(_) => panic!("a Cluster has many"),
        }
    }
}

impl One {
    fn start(
        config: &Config,
        client: ClientId,
        record: Option<Arc<Record>>,
        events: Events,
    ) -> Result<Self, Error> {
        let place = Place::new(config)?;
        let changed = Arc::new(Notify::new());
        let (tell, listened) = (Arc::clone(&events), Arc::clone(&changed));
        let hear: Events = Arc::new(move |event| {
            if matches!(event, Event::InboxUp(_)) {
                listened.notify_one();
            }
            tell(event);
        });
        let inbox = Inbox::new(Arc::clone(&place), config, client, hear);
        let (other, tell, made) = (Arc::clone(&inbox), Arc::clone(&events), Arc::clone(&changed));
        let confirmer = Confirmer::start(&place, config).map(Arc::new);
        let confirms = confirmer.as_ref().map(Arc::downgrade);
        let hear: Events = Arc::new(move |event| {
            if let Some(confirmer) = confirms.as_ref().and_then(Weak::upgrade) {
                confirmer.hear(&event);
            }
            match event {
                Event::Down(_) => other.doubt(),
                Event::Up { .. } => {
                    other.hurry();
                    made.notify_one();
                }
                _ => {}
            }
            tell(event);
        });
        let link = Link::new(Arc::clone(&place), config, record.clone(), hear);
        let sight = Sight::new(&link, &inbox, config, Arc::clone(&events), changed);
        tokio::spawn(kept(Arc::clone(&link), Link::run));
        tokio::spawn(kept(Arc::clone(&inbox), Inbox::run));
        tokio::spawn(kept(Arc::clone(&place), move |place| place.watch(Arc::clone(&events))));
        tokio::spawn(kept(Arc::clone(&sight), Sight::keep));
        if let Some(record) = record {
            tokio::spawn(kept(Arc::clone(&link), move |link| {
                link::keep_record(link, Arc::clone(&record), record::REFRESH)
            }));
        }
        Ok(Self { link, inbox, sight, confirmer, rules: config.rules() })
    }

    async fn call(&self, name: &LockName, op: &Op) -> Result<Reply, StoreError> {
        let Some(mut conn) = self.link.connection() else {
            return Err(self.link.not_connected());
        };
        let call = Call { rules: &self.rules, publishing: Publishing::Whole, name, op };
        let (sent, result) = call.send(&mut conn, false).await;
        match result {
            Ok(reply) => {
                let answer = call.read(reply)?;
                self.link.note_answer();
                Ok(Reply { sent, answer, clock: None })
            }
            Err(error) => {
                // Boxed, because it is rare and large.
                let failure = Box::pin(call.failed(&mut conn, &error)).await;
                self.link.note_failure(&error);
                Err(failure)
            }
        }
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let Some(conn) = self.link.connection() else {
            return Err(self.link.not_connected());
        };
        let reply = conn.call(&wire::cmd("PING")).await;
        reply.and_then(Value::extract_error).map(drop).map_err(|error| classify(&error))
    }

    async fn clients(&self, ids: &[ClientId]) -> BTreeMap<ClientId, ClientInfo> {
        let Some(conn) = self.link.connection() else { return BTreeMap::new() };
        let asked = conn.call_all(&record::read(ids)).await;
        // Without an answer they are unknown, like clients without a record.
        let replies = asked.unwrap_or_default();
        let known = ids.iter().zip(replies);
        known.filter_map(|(id, reply)| Some((*id, record::decode(reply)?))).collect()
    }

    async fn page(&self, at: Cursor, keys: u32) -> Result<Page, StoreError> {
        let Some(mut conn) = self.link.connection() else {
            return Err(self.link.not_connected());
        };
        let from = match at {
            Cursor::Scan(from) => from,
            _ => 0,
        };
        let page = scan::page(&mut conn, from, keys, false).await;
        match &page {
            Ok(_) => self.link.note_answer(),
            Err(scan::Failed::Call(error)) => self.link.note_failure(error),
            Err(scan::Failed::Reply(_)) => {}
        }
        let (page, next) = page.map_err(scan::Failed::into_store_error)?;
        Ok(Page { next: (next != 0).then_some(Cursor::Scan(next)), ..page })
    }

    async fn follow(&self, until: Moment) {
        let from = self.link.leads_to();
        while self.link.is_moving(from.as_ref()).await && !until.left().is_zero() {
            tokio::time::sleep(LOOK_AGAIN.min(until.left())).await;
        }
    }

    async fn farewell(&self, remove: Cmd) {
        if let Some(conn) = self.link.connection() {
            // A record that stays ends with its TTL.
            let _ = conn.call(&remove).await;
        }
    }
}

impl Store for RedisStore {
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>> {
        match &self.to {
            To::One(one) => Box::pin(one.call(name, op)),
            To::Cluster(routes) => Box::pin(routes.call(name, op)),
        }
    }

    fn call_together<'a>(
        &'a self,
        asks: &'a [(LockName, Op)],
    ) -> Boxed<'a, Result<Taken, StoreError>> {
        match &self.to {
            To::One(one) => {
                let together = Together { rules: &one.rules, publishing: Publishing::Whole, asks };
                Box::pin(together.send(&one.link, None))
            }
            To::Cluster(routes) => Box::pin(routes.call_together(asks)),
        }
    }

    fn step_of(&self, name: &LockName) -> u16 {
        match &self.to {
            To::One(_) => 0,
            To::Cluster(_) => slots::slot(name.as_bytes()),
        }
    }

    fn has_redisson(&self) -> bool {
        true
    }

    fn may_fail_over(&self) -> bool {
        true
    }

    fn follow(&self, until: Moment) -> Boxed<'_, ()> {
        match &self.to {
            To::One(one) => Box::pin(one.follow(until)),
            // A node that is ordered to fail over lets its replica catch up first.
            To::Cluster(_) => Box::pin(async {}),
        }
    }

    fn is_replicated(&self) -> bool {
        match &self.to {
            To::One(one) => one.confirmer.is_some(),
            To::Cluster(routes) => routes.is_replicated(),
        }
    }

    fn confirm<'a>(
        &'a self,
        name: &'a LockName,
        op: &'a Op,
    ) -> Boxed<'a, Result<Confirmed, StoreError>> {
        Box::pin(async move {
            match &self.to {
                To::One(One { confirmer: Some(confirmer), .. }) => {
                    confirmer.confirm(name, op, Publishing::Whole).await
                }
                To::One(one) => one.call(name, op).await.map(Confirmed::by_the_store),
                To::Cluster(routes) => routes.confirm(name, op).await,
            }
        })
    }

    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        match &self.to {
            To::One(one) => one.inbox.listen(topic),
            To::Cluster(routes) => routes.listen(topic),
        }
    }

    fn unlisten(&self, topic: Topic) {
        match &self.to {
            To::One(one) => one.inbox.unlisten(topic),
            To::Cluster(routes) => routes.unlisten(topic),
        }
    }

    fn ready<'a>(&'a self, name: Option<&'a LockName>) -> Boxed<'a, ()> {
        match &self.to {
            To::One(one) => Box::pin(one.link.ready()),
            To::Cluster(routes) => Box::pin(routes.ready(name)),
        }
    }

    fn is_connected(&self, name: &LockName) -> Option<bool> {
        match &self.to {
            To::One(_) => None,
            To::Cluster(routes) => Some(routes.is_connected(name)),
        }
    }

    fn hurry(&self, name: &LockName, since: Moment, longest: Duration) {
        match &self.to {
            To::One(one) => one.link.hurry(since, longest),
            To::Cluster(routes) => routes.hurry(name, since, longest),
        }
    }

    fn lane(&self, name: &LockName) -> u64 {
        match &self.to {
            To::One(_) => 0,
            To::Cluster(routes) => routes.lane(name),
        }
    }

    fn clock(&self, name: &LockName) -> Option<Arc<ServerClock>> {
        match &self.to {
            To::One(_) => None,
            To::Cluster(routes) => routes.clock(name),
        }
    }

    fn has_per_lock_inbox(&self) -> bool {
        match &self.to {
            To::One(_) => false,
            To::Cluster(routes) => routes.has_per_lock_inbox(),
        }
    }

    fn inbox_up(&self) -> bool {
        match &self.to {
            To::One(one) => one.inbox.is_up(),
            // Nobody checks for listeners there.
            To::Cluster(_) => false,
        }
    }

    fn ping(&self) -> Boxed<'_, Result<(), StoreError>> {
        match &self.to {
            To::One(one) => Box::pin(one.ping()),
            To::Cluster(routes) => Box::pin(routes.ping()),
        }
    }

    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>> {
        match &self.to {
            To::One(one) => Box::pin(one.clients(ids)),
            To::Cluster(routes) => Box::pin(routes.clients(ids)),
        }
    }

    fn is_searched(&self) -> bool {
        true
    }

    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        match &self.to {
            To::One(one) => Box::pin(one.page(at, keys)),
            To::Cluster(routes) => Box::pin(routes.page(at, keys)),
        }
    }

    fn note_kind<'a>(
        &'a self,
        name: &'a LockName,
        kind: Kind,
    ) -> Boxed<'a, Result<Option<Kind>, StoreError>> {
        Box::pin(async move {
            let link = match &self.to {
                To::One(one) => Arc::clone(&one.link),
                To::Cluster(routes) => routes.link_of(name)?,
            };
            link.note_kind(name, kind).await
        })
    }

    fn lease_differs(&self, _: ClientId) {
        if let Some(record) = &self.record {
            record.drop_lease();
        }
    }

    fn farewell(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let Some(remove) = self.record.as_ref().and_then(|record| record.remove()) else {
                return;
            };
            match &self.to {
                To::One(one) => one.farewell(remove).await,
                To::Cluster(routes) => routes.farewell(remove).await,
            }
        })
    }
}
