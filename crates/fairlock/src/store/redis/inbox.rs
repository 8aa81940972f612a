//! The inbox connection: this client's grants, and the topics that its waiters listen to.
//!
//! It needs no frequent pings: the next heartbeat finds a lost grant.

use super::attempt::Attempt;
use super::classify::is_permission;
use super::dial::Connection;
use super::link::made;
use super::place::{Moves, Part, Place};
use super::wire::{self, CallError, Cmd, Pipeline, Push, PushKind, Settings, Value};
use super::{keys, link, reply, rights};
use crate::base::backoff::Backoff;
use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::settings::config::Config;
use crate::store::{Boxed, Event, Events, Scope, StoreError, Topic};
use fairlock_core::ClientId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Between two pings of the idle inbox: often enough for NAT and half-open connections.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Channels that a new connection subscribes to in one round trip. Subscribing to one channel after
/// the other, a client with many plain locks and a long way to the server never finished in time.
const AT_ONCE: usize = 100;

/// The inbox connection and the task that keeps it.
pub(crate) struct Inbox {
    place: Arc<Place>,
    name: String,
    connect_timeout: Duration,
    ping_timeout: Duration,
    store_timeout: Duration,
    client_id: ClientId,
    channel: Vec<u8>,
    events: Events,
    up: AtomicBool,
    /// How many connections were made.
    made: AtomicU64,
    /// The command connection's server does not see it.
    unseen: AtomicBool,
    /// The server may be gone.
    doubted: Notify,
    /// The server is back.
    found: Notify,
    topics: Mutex<BTreeMap<Vec<u8>, Subscription>>,
    current: watch::Sender<Option<Line>>,
    attempt: Attempt,
}

/// A connection that listens.
#[derive(Clone)]
struct Line {
    conn: Connection,
    /// It is lost.
    broken: Arc<Notify>,
}

/// Why a connection is no longer relied on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is closed, or of no use.
    Lost,
    /// It does not answer, but nobody has closed it.
    Silent,
}

struct Subscription {
    topic: Topic,
    users: usize,
}

impl Inbox {
    pub(crate) fn new(
        place: Arc<Place>,
        config: &Config,
        client_id: ClientId,
        events: Events,
    ) -> Arc<Self> {
        Arc::new(Self {
            place,
            name: link::connection_name(config),
            connect_timeout: config.connect_timeout,
            ping_timeout: config.ping_timeout,
            store_timeout: config.store_timeout,
            client_id,
            channel: keys::inbox(client_id),
            events,
            up: AtomicBool::new(false),
            made: AtomicU64::new(0),
            unseen: AtomicBool::new(false),
            doubted: Notify::new(),
            found: Notify::new(),
            topics: Mutex::default(),
            current: watch::Sender::new(None),
            attempt: Attempt::beside(),
        })
    }

    /// Whether the server would find a listener, so that waiters that ask now count as alive.
    pub(crate) fn is_up(&self) -> bool {
        self.is_subscribed() && !self.unseen.load(Ordering::Acquire)
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// The number of the current connection, from 1.
    pub(super) fn number(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Notes whether the command connection's server sees it.
    pub(super) fn note_seen(&self, seen: bool) {
        self.unseen.store(!seen, Ordering::Release);
    }

    pub(super) fn channel(&self) -> &[u8] {
        &self.channel
    }

    /// Replaces the connection, which goes to the wrong server.
    pub(super) fn make_anew(&self) {
        if let Some(line) = &*self.current.borrow() {
            line.broken.notify_one();
        }
    }

    /// How many channels it listens to for waiters.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn topics(&self) -> usize {
        lock(&self.topics).len()
    }

    /// The command connection is lost: checks this one. A machine that is gone sends nothing, and
    /// until the next ping, waiters would be taken for dead when their turn comes.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// The command connection is made: if this one is missing, it must not wait for the end of a
    /// pause. Until it is made, the server takes waiters for dead although it hears from them.
    pub(crate) fn hurry(&self) {
        self.found.notify_one();
    }

    /// The result of the first attempts to connect: see [`Attempt::made`].
    pub(crate) async fn contact(&self, until: Moment) -> Result<(), Error> {
        self.attempt.made(until).await
    }

    /// Connects, subscribes, watches, reconnects, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        let mut moves = self.place.moves(Part::Follows);
        // A connection that fell silent is kept until another one listens. Without it, a server
        // that can be reached again would take waiters for dead until then; and messages may still
        // arrive on it.
        let mut silent: Option<(Line, Moment)> = None;
        loop {
            moves.forget();
            self.forget_found().await;
            match self.connect(&mut moves).await {
                Ok((line, channels)) => {
                    self.current.send_replace(Some(line.clone()));
                    self.catch_up(line.clone(), channels).await;
                    self.made.fetch_add(1, Ordering::Relaxed);
                    self.up.store(true, Ordering::Release);
                    (self.events)(Event::InboxUp(Scope::All));
                    silent = None;
                    // Last: those who wait for the first contact must find it made.
                    self.attempt.succeeded();
                    let began = Moment::now();
                    let end = self.watch(line.clone(), &mut moves).await;
                    self.up.store(false, Ordering::Release);
                    self.current.send_replace(None);
                    (self.events)(Event::InboxDown);
                    self.forget_found().await;
                    backoff.settle(Moment::now().since(began));
                    if end == End::Silent {
                        silent = Some((line, Moment::now()));
                    }
                }
                Err(failure) => {
                    self.attempt.failed(self.place.at(failure));
                    // Waiters have failed by then; and while this one is kept, the server may have
                    // no connection left for us.
                    let is_over = |since: Moment| Moment::now().since(since) >= self.store_timeout;
                    silent = silent.filter(|(_, since)| !is_over(*since));
                }
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(backoff.next()) => {}
                () = moves.next() => {}
                () = self.found.notified() => {}
            }
        }
    }

    /// An earlier notification says nothing about what comes next.
    async fn forget_found(&self) {
        let _ = tokio::time::timeout(Duration::ZERO, self.found.notified()).await;
    }

    async fn connect(
        self: &Arc<Self>,
        moves: &mut Moves,
    ) -> Result<(Line, Vec<Vec<u8>>), StoreError> {
        let broken = Arc::new(Notify::new());
        let (hear, ends) = (Arc::clone(self), Arc::clone(&broken));
        let config = Settings::default().response_timeout(self.ping_timeout).on_push(move |push| {
            hear.hear(push, &ends);
        });
        let connect = async {
            let mut conn = self.place.connect(Part::Follows, config, moves).await?;
            let channels = self.subscribe(&mut conn).await?;
            Ok((Line { conn, broken }, channels))
        };
        let connected = tokio::time::timeout(self.connect_timeout, connect).await;
        connected.map_err(|_| self.place.late())?
    }

    /// Subscribes to the channels that are wanted now, and returns them.
    async fn subscribe(&self, conn: &mut Connection) -> Result<Vec<Vec<u8>>, StoreError> {
        made(link::name_connection(conn, &self.name).await)?;
        let denied = |channel: &[u8], error: CallError| StoreError {
            doubt: false,
            ..rights::channel(channel, &error)
        };
        // Also tries the permission to unsubscribe: nobody would notice later that it is missing.
        let other = conn.clone();
        let (subscribed, unsubscribed) = tokio::join!(
            conn.subscribe(&self.channel),
            other.unsubscribe(keys::INBOX_PREFIX.as_bytes())
        );
        subscribed.map_err(|error| denied(&self.channel, error))?;
        unsubscribed.map_err(|error| denied(&self.channel, error))?;
        let wanted: Vec<Vec<u8>> = lock(&self.topics).keys().cloned().collect();
        for some in wanted.chunks(AT_ONCE) {
            let mut subscriptions = Pipeline::with_capacity(some.len());
            for channel in some {
                subscriptions.add_command(Cmd::subscription(PushKind::Subscribe, channel));
            }
            for subscribed in made(conn.call_all(&subscriptions).await)? {
                match subscribed.extract_error() {
                    // Its waiters look by themselves now and then; the others must not pay for it.
                    Err(error) if is_permission(&error) => {}
                    subscribed => drop(made(subscribed)?),
                }
            }
        }
        Ok(wanted)
    }

    /// While the new connection subscribed to `channels`, there was no connection for topics that
    /// came and went. This catches up with them; from now on there is one.
    async fn catch_up(&self, line: Line, channels: Vec<Vec<u8>>) {
        let Line { conn, broken } = line;
        let mut missing: Vec<_> = lock(&self.topics).keys().cloned().collect();
        missing.retain(|channel| !channels.contains(channel));
        let mut outcome = Ok(());
        for channel in missing {
            outcome = outcome.and(self.subscribe_if_wanted(&conn, &channel).await);
        }
        for channel in channels {
            outcome = outcome.and(self.unsubscribe_if_unwanted(&conn, &channel).await);
        }
        if outcome.is_err_and(|error| !is_permission(&error)) {
            broken.notify_one();
        }
    }

    async fn watch(&self, line: Line, moves: &mut Moves) -> End {
        let Line { conn, broken } = line;
        loop {
            tokio::select! {
                biased;
                () = broken.notified() => return End::Lost,
                () = moves.next() => return End::Lost,
                () = self.doubted.notified() => {}
                () = tokio::time::sleep(PING_INTERVAL) => {}
            }
            let ping = wire::cmd("PING");
            let answer = tokio::time::timeout(self.ping_timeout, conn.call(&ping));
            match answer.await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) if !error.is_timeout() => return End::Lost,
                _ => return End::Silent,
            }
        }
    }

    /// Called by the connection's own task for every push message, so it must not block.
    fn hear(&self, push: Push, broken: &Notify) {
        match push.kind {
            PushKind::Disconnection => broken.notify_one(),
            PushKind::Message => self.hear_message(&push.data),
            _ => {}
        }
    }

    fn hear_message(&self, data: &[Value]) {
        let arrived = Moment::now();
        let event = match data {
            [Value::BulkString(channel), Value::BulkString(payload)] => {
                if *channel == self.channel {
                    return reply::inbox_message(payload, arrived, || None, &self.events);
                } else {
                    let topic = lock(&self.topics).get(channel).map(|w| w.topic.clone());
                    topic.map_or(Event::Invalid, |topic| keys::woken(topic, payload))
                }
            }
            _ => Event::Invalid,
        };
        (self.events)(event);
    }

    /// The command is sent while `topics` is locked, so that the server gets commands in the order
    /// in which threads begin and stop to listen.
    pub(crate) fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        let channel = keys::topic(&topic);
        let subscribing = {
            let mut topics = lock(&self.topics);
            let subscription =
                topics.entry(channel.clone()).or_insert(Subscription { topic, users: 0 });
            subscription.users += 1;
            let line = if subscription.users == 1 { self.current.borrow().clone() } else { None };
            line.map(|Line { conn, broken }| (conn.subscribe(&channel), broken))
        };
        Box::pin(async move {
            let Some((subscribing, broken)) = subscribing else { return Ok(()) };
            match subscribing.await {
                Ok(()) => {}
                Err(error) if is_permission(&error) => {
                    return Err(rights::channel(&channel, &error));
                }
                // Without an answer the connection is dead, and the next one subscribes.
                Err(_) => broken.notify_one(),
            }
            Ok(())
        })
    }

    pub(crate) fn unlisten(self: &Arc<Self>, topic: Topic) {
        let channel = keys::topic(&topic);
        {
            let mut topics = lock(&self.topics);
            let Some(subscription) = topics.get_mut(&channel) else { return };
            subscription.users -= 1;
            if subscription.users > 0 {
                return;
            }
            topics.remove(&channel);
        }
        let line = self.current.borrow().clone();
        if let (Some(Line { conn, .. }), Ok(runtime)) =
            (line, tokio::runtime::Handle::try_current())
        {
            let this = Arc::clone(self);
            runtime.spawn(async move {
                // A failure means that the connection, and so the subscription, is gone.
                let _ = this.unsubscribe_if_unwanted(&conn, &channel).await;
            });
        }
    }

    /// Unsubscribes, unless somebody wants the channel again by now, and has subscribed.
    async fn unsubscribe_if_unwanted(
        &self,
        conn: &Connection,
        channel: &[u8],
    ) -> Result<(), CallError> {
        let unsubscribing = {
            let topics = lock(&self.topics);
            (!topics.contains_key(channel)).then(|| conn.unsubscribe(channel))
        };
        match unsubscribing {
            Some(unsubscribing) => unsubscribing.await,
            None => Ok(()),
        }
    }

    /// Subscribes, unless nobody wants the channel any more.
    async fn subscribe_if_wanted(
        &self,
        conn: &Connection,
        channel: &[u8],
    ) -> Result<(), CallError> {
        let subscribing = {
            let topics = lock(&self.topics);
            topics.contains_key(channel).then(|| conn.subscribe(channel))
        };
        match subscribing {
            Some(subscribing) => subscribing.await,
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("client", &self.client_id).finish_non_exhaustive()
    }
}
