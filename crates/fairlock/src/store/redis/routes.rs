//! The store on a Cluster: each call goes to the node that serves its lock's slot, and follows the
//! slot if it has moved.

use super::attempt::Attempt;
use super::cluster::{Cluster, Node, Redirected, check_latch, slot_or_refusal};
use super::dial::Connection;
use super::exchange::Call;
use super::inbox::Inbox;
use super::keys::{self, Publishing};
use super::place::Place;
use super::record::{self, Record};
use super::shards::Shards;
use super::slots::slot;
use super::together::Together;
use super::walk::Walk;
use super::wire::{self, CallError, Cmd, Value};
use super::{link, mapper, scan};
use crate::base::backoff::Backoff;
use crate::base::clock::{Moment, ServerClock};
use crate::base::error::{Error, ErrorKind};
use crate::settings::client_info::ClientInfo;
use crate::settings::config::Config;
use crate::settings::replicas::Replicas;
use crate::store::{
    Boxed, Confirmed, Cursor, Event, Events, Page, Reply, StoreError, Taken, Topic,
};
use fairlock_core::{ClientId, LockName, Op, Rules};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;

/// How often a call is sent at most: to the node of its slot, to the one that this node names, and
/// to the one that the slot is moving to from there.
const SENT_MAX: usize = 3;

/// How long a call waits for the connection to a node that another one has just named. After that
/// its caller tries again, as after any loss.
const NEW_NODE: Duration = Duration::from_secs(1);

/// The connections to the nodes of a Cluster.
pub(crate) struct Routes {
    cluster: Arc<Cluster>,
    client_id: ClientId,
    rules: Rules,
    record: Option<Arc<Record>>,
    events: Events,
    /// The attempts to get the map and the way of publishing.
    attempt: Attempt,
    /// How messages are received; unknown until the masters were asked.
    subscriptions: OnceLock<Subscriptions>,
}

enum Subscriptions {
    /// Everything on one connection to any node: messages go to the whole Cluster.
    Whole(Arc<Inbox>),
    /// On the node of each slot.
    Shards(Arc<Shards>),
}

impl Routes {
    pub(crate) fn start(
        config: &Config,
        client_id: ClientId,
        record: Option<Arc<Record>>,
        events: Events,
    ) -> Result<Arc<Self>, Error> {
        let routes = Arc::new(Self {
            cluster: Cluster::new(config, Arc::clone(&events))?,
            client_id,
            rules: config.rules(),
            record,
            events,
            attempt: Attempt::beside(),
            subscriptions: OnceLock::new(),
        });
        tokio::spawn(Arc::clone(&routes).keep_map());
        tokio::spawn(Arc::clone(&routes).listen_somehow());
        if routes.record.is_some() {
            tokio::spawn(Arc::clone(&routes).keep_record());
        }
        Ok(routes)
    }

    async fn keep_map(self: Arc<Self>) {
        let cluster = Arc::clone(&self.cluster);
        let told = move |result: Result<(), StoreError>| match result {
            // Not the first contact yet: the nodes come first.
            Ok(()) => self.attempt.recovered(),
            Err(failure) => self.attempt.failed(failure),
        };
        mapper::keep(cluster, told).await;
    }

    /// Finds out, once, how messages are published, and starts receiving them.
    async fn listen_somehow(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        let mut changed = self.cluster.changes();
        while self.cluster.nodes().is_empty() {
            // The sender lives in the Cluster, so the wait cannot fail.
            let _ = changed.changed().await;
        }
        loop {
            let unreached = self.cluster.contacted().await.err();
            match mapper::is_sharded(&self.cluster).await {
                Ok(true) => match mapper::try_to_listen(&self.cluster, self.client_id).await {
                    Ok(()) => {
                        let _ = self.subscriptions.set(self.shards());
                        break self.attempt.succeeded();
                    }
                    Err(failure) => self.attempt.failed(failure),
                },
                Ok(false) => {
                    let _ = self.subscriptions.set(self.inbox());
                    break self.attempt.succeeded();
                }
                Err(failure) => self.attempt.failed(match unreached {
                    Some(error) if failure.passing => StoreError { error, ..failure },
                    _ => failure,
                }),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    fn shards(&self) -> Subscriptions {
        let events = Arc::clone(&self.events);
        Subscriptions::Shards(Shards::start(&self.cluster, self.client_id, events))
    }

    fn inbox(&self) -> Subscriptions {
        let place = Arc::new(Place::Anywhere(Arc::downgrade(&self.cluster)));
        let (events, cluster) = (Arc::clone(&self.events), Arc::clone(&self.cluster));
        let hear: Events = Arc::new(move |event| {
            events(match event {
                // The node that sent it is unknown, so it is judged by the clock that leaves the
                // least time.
                Event::Granted { grant, at_ms, arrived, .. } => {
                    let clock = Some(slowest(&cluster, at_ms, arrived));
                    Event::Granted { grant, at_ms, arrived, clock }
                }
                event => event,
            });
        });
        let inbox = Inbox::new(place, &self.cluster.config, self.client_id, hear);
        tokio::spawn(Arc::clone(&inbox).run());
        Subscriptions::Whole(inbox)
    }

    /// Returns as soon as one node is connected, at the first attempt or at a later one before `until`;
    /// otherwise the error of the first attempt. Locks on other nodes wait for theirs.
    pub(crate) async fn contact(&self, until: Moment) -> Result<(), Error> {
        self.attempt.made(until).await?;
        if self.cluster.any().is_none()
            && let Err(error) = self.cluster.contacted().await
        {
            let _ = tokio::time::timeout(until.left(), self.cluster.ready(None)).await;
            self.cluster.any().ok_or(error)?;
        }
        match self.subscriptions.get() {
            Some(Subscriptions::Whole(inbox)) => inbox.contact(until).await,
            _ => Ok(()),
        }
    }

    /// How messages are published, once that is known.
    fn publishing(&self) -> Result<Publishing, StoreError> {
        match self.subscriptions.get() {
            Some(Subscriptions::Whole(_)) => Ok(Publishing::Whole),
            Some(Subscriptions::Shards(_)) => Ok(Publishing::Sharded),
            None => Err(self.not_connected()),
        }
    }

    /// The connection to the node that serves the lock's slot.
    pub(crate) fn link_of(&self, name: &LockName) -> Result<Arc<link::Link>, StoreError> {
        Ok(Arc::clone(&self.cluster.node_of(slot_or_refusal(name)?)?.link))
    }

    fn not_connected(&self) -> StoreError {
        let known = self.attempt.failure();
        known.unwrap_or_else(|| StoreError::unavailable("not connected yet".into(), false))
    }

    fn failure_of(&self, node: &Node) -> StoreError {
        self.cluster.map_wanted.notify_one();
        let failure = node.link.not_connected();
        StoreError { error: failure.error.at(node.addr.to_string()), ..failure }
    }

    pub(crate) async fn call(&self, name: &LockName, op: &Op) -> Result<Reply, StoreError> {
        let slot = slot_or_refusal(name)?;
        let publishing = self.publishing()?;
        check_latch(publishing, name, op)?;
        let call = Call { rules: &self.rules, publishing, name, op };
        let mut node = self.cluster.node_of(slot).inspect_err(|_| {
            self.cluster.map_wanted.notify_one();
        })?;
        let mut asking = false;
        for _ in 0..SENT_MAX {
            let Some(mut conn) = node.link.connection() else { return Err(self.failure_of(&node)) };
            let (sent, result) = call.send(&mut conn, asking).await;
            let error = match result {
                Ok(reply) => {
                    node.link.note_answer();
                    if !asking {
                        self.cluster.still_serves(slot, &node)?;
                    }
                    let answer = call.read(reply)?;
                    let clock = Some(Arc::clone(&node.clock));
                    return Ok(Reply { sent, answer, clock });
                }
                Err(error) => error,
            };
            node.link.note_failure(&error);
            (node, asking) = match Redirected::read(&error, &node.addr) {
                Some(Redirected::Moved(to)) => {
                    self.cluster.moved(slot, &to);
                    (self.cluster.node_at(&to), false)
                }
                Some(Redirected::Ask(to)) => (self.cluster.node_at(&to), true),
                None => return Err(self.failed(&call, &mut conn, &error).await),
            };
            let _ = tokio::time::timeout(NEW_NODE, node.link.ready()).await;
        }
        // Nodes that only named others have carried out nothing.
        let message = format!("the nodes of the Cluster do not agree on who serves slot {slot}");
        Err(StoreError::unavailable(message, false))
    }

    /// Takes all of these locks, which are in one slot, or none. It does not follow a slot that moves.
    pub(crate) async fn call_together(&self, asks: &[(LockName, Op)]) -> Result<Taken, StoreError> {
        let Some((name, _)) = asks.first() else { return Ok(Taken::None(None)) };
        let Ok(slot) = slot_or_refusal(name) else { return Ok(Taken::None(None)) };
        let Ok(node) = self.cluster.node_of(slot) else { return Ok(Taken::None(None)) };
        let together = Together { rules: &self.rules, publishing: self.publishing()?, asks };
        let taken = together.send(&node.link, Some(Arc::clone(&node.clock))).await?;
        if matches!(taken, Taken::All(_)) {
            self.cluster.still_serves(slot, &node)?;
        }
        Ok(taken)
    }

    pub(crate) fn is_replicated(&self) -> bool {
        self.cluster.config.replicas != Replicas::None
    }

    /// Like [`call`](Self::call), with a wait for the replicas of the node that serves the lock's
    /// slot. It does not follow a slot that moves: the next attempt goes where the slot is by then.
    pub(crate) async fn confirm(&self, name: &LockName, op: &Op) -> Result<Confirmed, StoreError> {
        let slot = slot_or_refusal(name)?;
        let publishing = self.publishing()?;
        check_latch(publishing, name, op)?;
        let confirmed = match self.cluster.node_of(slot) {
            Ok(node) => match &node.confirmer {
                Some(confirmer) => {
                    let clock = Some(Arc::clone(&node.clock));
                    let confirmed = confirmer.confirm(name, op, publishing).await;
                    confirmed.and_then(|confirmed| {
                        self.cluster.still_serves(slot, &node)?;
                        let reply = Reply { clock, ..confirmed.reply };
                        Ok(Confirmed { reply, ..confirmed })
                    })
                }
                None => self.call(name, op).await.map(Confirmed::by_the_store),
            },
            Err(failure) => Err(failure),
        };
        confirmed.inspect_err(|failure| {
            if failure.passing {
                self.cluster.map_wanted.notify_one();
            }
        })
    }

    async fn failed(
        &self,
        call: &Call<'_>,
        conn: &mut Connection,
        error: &CallError,
    ) -> StoreError {
        // Boxed, because it is rare and large.
        let failure = Box::pin(call.failed(conn, error)).await;
        if failure.passing {
            // A node that cannot serve the slot may no longer be the one that has it.
            self.cluster.map_wanted.notify_one();
        }
        failure
    }

    pub(crate) fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        match self.subscriptions.get() {
            Some(Subscriptions::Whole(inbox)) => inbox.listen(topic),
            Some(Subscriptions::Shards(shards)) => shards.listen(topic),
            // A waiter listens only after an answer, and calls are answered only once this is
            // known.
            None => Box::pin(async { Ok(()) }),
        }
    }

    pub(crate) fn unlisten(&self, topic: Topic) {
        match self.subscriptions.get() {
            Some(Subscriptions::Whole(inbox)) => inbox.unlisten(topic),
            Some(Subscriptions::Shards(shards)) => shards.unlisten(&topic),
            None => {}
        }
    }

    pub(crate) fn has_per_lock_inbox(&self) -> bool {
        matches!(self.subscriptions.get(), Some(Subscriptions::Shards(_)))
    }

    pub(crate) async fn ready(&self, name: Option<&LockName>) {
        // A name that cannot be used is refused at once.
        let slot = match name.map(slot_or_refusal) {
            Some(Err(_)) => return,
            Some(Ok(slot)) => Some(slot),
            None => None,
        };
        tokio::select! {
            biased;
            () = self.attempt.refused() => {}
            () = self.cluster.ready(slot) => {}
        }
    }

    pub(crate) fn is_connected(&self, name: &LockName) -> bool {
        self.lane(name) != 0
    }

    pub(crate) fn hurry(&self, name: &LockName, since: Moment, longest: Duration) {
        let node = slot_or_refusal(name).and_then(|slot| self.cluster.node_of(slot));
        if let Ok(node) = node {
            node.link.hurry(since, longest);
        }
    }

    /// The connection that serves the lock.
    pub(crate) fn lane(&self, name: &LockName) -> u64 {
        slot_or_refusal(name).map_or(0, |slot| self.cluster.served(slot))
    }

    pub(crate) fn clock(&self, name: &LockName) -> Option<Arc<ServerClock>> {
        let node = self.cluster.node_of(slot_or_refusal(name).ok()?).ok()?;
        Some(Arc::clone(&node.clock))
    }

    /// A round trip to every master, concurrently.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.publishing()?;
        let mut pings = JoinSet::new();
        for node in self.cluster.nodes() {
            if node.link.connection().is_none() {
                // Nobody has waited for the first attempts of all nodes, and this one may be under
                // way.
                let patience = self.cluster.config.response_timeout;
                let _ = tokio::time::timeout(patience, node.link.first_contact()).await;
            }
            let Some(conn) = node.link.connection() else { return Err(self.failure_of(&node)) };
            pings.spawn(async move {
                let reply = conn.call(&wire::cmd("PING")).await;
                reply.and_then(Value::extract_error)
            });
        }
        while let Some(pinged) = pings.join_next().await {
            // A task that panicked has no answer.
            let pinged = pinged.map_err(|_| self.not_connected())?;
            pinged.map_err(|error| super::classify::classify(&error))?;
        }
        match self.cluster.is_whole() {
            true => Ok(()),
            false => {
                let message = "some slots of the Cluster are served by nobody".to_owned();
                Err(StoreError::unavailable(message, false))
            }
        }
    }

    /// The records of clients, each read from the node that has it.
    pub(crate) async fn clients(&self, ids: &[ClientId]) -> BTreeMap<ClientId, ClientInfo> {
        let mut by_node: BTreeMap<_, (Arc<Node>, Vec<ClientId>)> = BTreeMap::new();
        for id in ids {
            let Ok(node) = self.cluster.node_of(slot(&keys::client(*id))) else { continue };
            let addr = node.addr.clone();
            by_node.entry(addr).or_insert_with(|| (node, Vec::new())).1.push(*id);
        }
        let mut known = BTreeMap::new();
        for (node, ids) in by_node.into_values() {
            let Some(conn) = node.link.connection() else { continue };
            let asked = conn.call_all(&record::read(&ids)).await;
            // Without an answer they are unknown, like clients without a record.
            let replies = asked.unwrap_or_default();
            let read = ids.iter().zip(replies);
            known.extend(read.filter_map(|(id, reply)| Some((*id, record::decode(reply)?))));
        }
        known
    }

    /// The next step of a listing: all masters, one after the other, unreachable ones last.
    pub(crate) async fn page(&self, at: Cursor, keys: u32) -> Result<Page, StoreError> {
        let walk = match at {
            Cursor::Walk(walk) => Some(*walk),
            _ => None,
        };
        let map = self.cluster.map();
        let Some(walk) = walk.or_else(|| Walk::begin(&map)) else {
            return Err(self.not_connected());
        };
        let on = |walk: Option<Walk>| walk.map(|walk| Cursor::Walk(Box::new(walk)));
        let nothing = |walk: Option<Walk>| Page { next: on(walk), looked_at: 1, ..Page::default() };
        let node = match &walk.node {
            Some(addr) => match self.cluster.known(addr) {
                Some(node) => Some(node),
                // The node has left. Those that have its slots now are searched from the start.
                None => return Ok(nothing(walk.over(&map))),
            },
            None => None,
        };
        let connected = node.and_then(|node| node.link.connection().map(|conn| (node, conn)));
        let Some((node, mut conn)) = connected else {
            return self.unreached(walk).await.map(|walk| nothing(Some(walk)));
        };
        let page = scan::page(&mut conn, walk.from, keys, true).await;
        match &page {
            Ok(_) => node.link.note_answer(),
            Err(scan::Failed::Call(error)) => node.link.note_failure(error),
            Err(scan::Failed::Reply(_)) => {}
        }
        let (page, from) = page.map_err(scan::Failed::into_store_error)?;
        let next = if from == 0 { walk.over(&map) } else { Some(walk.at(from)) };
        Ok(Page { next: on(next), ..page })
    }

    /// The node to search is not connected, or there is none. After all others, it gets the time
    /// for a connection; a replica may take over meanwhile.
    async fn unreached(&self, walk: Walk) -> Result<Walk, StoreError> {
        self.cluster.map_wanted.notify_one();
        let mut changed = self.cluster.changes();
        let is_back = || {
            let node = walk.node.as_ref().and_then(|addr| self.cluster.known(addr));
            node.is_some_and(|node| node.is_up())
        };
        let is_last = walk.clone().later(&self.cluster.map()).is_none();
        let patience = if is_last { self.cluster.config.connect_timeout } else { NEW_NODE };
        let found = tokio::time::timeout(patience, async {
            loop {
                changed.mark_unchanged();
                let next = walk.clone().later(&self.cluster.map()).filter(|_| is_last);
                if let Some(walk) = next.or_else(|| is_back().then(|| walk.clone())) {
                    return walk;
                }
                // The sender lives in the Cluster, so the wait cannot fail.
                let _ = changed.changed().await;
            }
        });
        if let Ok(walk) = found.await {
            return Ok(walk);
        }
        let slots = walk.missing();
        let node = walk.node.as_ref().and_then(|addr| self.cluster.known(addr));
        walk.later(&self.cluster.map()).ok_or_else(|| {
            let why = match node {
                Some(node) => self.failure_of(&node).error,
                None => Error::new(ErrorKind::Unavailable, "no master serves them at present"),
            };
            // All others were searched, so only these slots are unknown.
            StoreError {
                passing: false,
                ..StoreError::unavailable(
                    format!(
                        "the locks in these slots of the Cluster are not known: {slots} ({why})"
                    ),
                    false,
                )
            }
        })
    }

    /// Keeps the client's record from expiring, forever: on the node of its slot, even if that
    /// changes.
    async fn keep_record(self: Arc<Self>) {
        let Some(record) = self.record.clone() else { return };
        let slot = slot(record.key());
        let mut changed = self.cluster.changes();
        let mut written_by = 0;
        loop {
            changed.mark_unchanged();
            let by = self.cluster.served(slot);
            if by != 0 && by != written_by {
                written_by = by;
                self.write_record(&record, slot).await;
            }
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                // It is time to write it again.
                () = record.changed() => written_by = 0,
                () = tokio::time::sleep(record::REFRESH) => written_by = 0,
            }
        }
    }

    /// Ignores failures: locks work without the record.
    async fn write_record(&self, record: &Record, slot: u16) {
        let Ok(node) = self.cluster.node_of(slot) else { return };
        let Some(mut conn) = node.link.connection() else { return };
        if record.connected()
            && let Ok(time) = conn.call(&wire::cmd("TIME")).await
        {
            record.note_time(time);
        }
        if let Err(error) = link::announce(&mut conn, record).await {
            node.link.note_failure(&error);
        }
    }

    pub(crate) async fn farewell(&self, remove: Cmd) {
        let Some(record) = &self.record else { return };
        let Ok(node) = self.cluster.node_of(slot(record.key())) else { return };
        if let Some(conn) = node.link.connection() {
            // A record that stays ends with its TTL.
            let _ = conn.call(&remove).await;
        }
    }
}

/// Of the clocks of all nodes, the one by which a message with this time was sent earliest.
fn slowest(cluster: &Cluster, at_ms: u64, arrived: Moment) -> Arc<ServerClock> {
    let clocks = cluster.nodes().into_iter().map(|node| Arc::clone(&node.clock));
    let known = clocks.filter_map(|clock| Some((clock.earliest(at_ms, arrived)?, clock)));
    known.min_by_key(|(base, _)| *base).map(|(_, clock)| clock).unwrap_or_default()
}
