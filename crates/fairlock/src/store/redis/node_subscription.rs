//! One node's part of the inbox: a connection on which the channels of its slots are subscribed.

use super::dial::{Connection, Endpoint};
use super::link::{self, made};
use super::shards::Shards;
use super::slots::Addr;
use super::wire::{self, CallError, Cmd, Pipeline, Push, PushKind, Settings, Value};
use crate::base::backoff::Backoff;
use crate::base::clock::{Moment, lock};
use crate::settings::config::Config;
use crate::store::StoreError;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/redis/node_subscription/tests.rs"]
mod tests;

/// Between two pings of the idle connection, as for every inbox.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// How many commands one pipeline has at most.
const AT_ONCE: usize = 100;

/// A refused channel is tried again after this time, doubled each time, unless the map shows that
/// it is elsewhere.
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct NodeSubscription {
    config: Config,
    endpoint: Endpoint,
    addr: Addr,
    shards: Weak<Shards>,
    state: Mutex<State>,
    /// There are channels to look at.
    todo: Notify,
    broken: Notify,
    stopped: AtomicBool,
    /// The number of the current connection: late messages on a former one are ignored.
    number: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Channels that may have to be subscribed or left.
    todo: BTreeSet<Vec<u8>>,
    /// As reported by the server.
    subscribed: HashSet<Vec<u8>>,
    /// Unsubscribed by us, not yet confirmed.
    leaving: HashSet<Vec<u8>>,
}

impl NodeSubscription {
    pub(super) fn start(
        config: &Config,
        endpoint: Endpoint,
        addr: Addr,
        shards: Weak<Shards>,
    ) -> Arc<Self> {
        let subscription = Arc::new(Self {
            config: config.clone(),
            endpoint,
            addr,
            shards,
            state: Mutex::default(),
            todo: Notify::new(),
            broken: Notify::new(),
            stopped: AtomicBool::new(false),
            number: AtomicU64::new(0),
        });
        // Without a runtime, the client has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(Arc::clone(&subscription).run());
        }
        subscription
    }

    /// Subscribes to the channel or leaves it, depending on whether it is wanted.
    pub(super) fn look_at(&self, channel: Vec<u8>) {
        lock(&self.state).todo.insert(channel);
        self.todo.notify_one();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.todo.notify_one();
    }

    /// Connects, subscribes, watches, reconnects, until it is stopped.
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        while !self.stopped.load(Ordering::Acquire) {
            // No channel, no connection.
            if !self.is_needed() {
                self.todo.notified().await;
                continue;
            }
            let began = Moment::now();
            if let Ok(conn) = self.connect().await {
                self.watch(conn).await;
                self.number.fetch_add(1, Ordering::AcqRel);
                let lost = std::mem::take(&mut *lock(&self.state));
                if let Some(shards) = self.shards.upgrade() {
                    shards.dropped(lost.subscribed, &self.addr);
                }
                backoff.settle(Moment::now().since(began));
            }
            if let Some(shards) = self.shards.upgrade() {
                shards.want_map();
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    fn is_needed(&self) -> bool {
        self.shards.upgrade().is_some_and(|shards| !shards.wanted_at(&self.addr).is_empty())
    }

    async fn connect(self: &Arc<Self>) -> Result<Connection, StoreError> {
        let hear = Arc::downgrade(self);
        let number = self.number.fetch_add(1, Ordering::AcqRel) + 1;
        let patience = self.config.connect_timeout;
        let config =
            Settings::default().response_timeout(self.config.ping_timeout).on_push(move |push| {
                if let Some(subscription) = hear.upgrade()
                    && subscription.number.load(Ordering::Acquire) == number
                {
                    subscription.hear(push);
                }
            });
        let connect = async {
            let mut conn = self.endpoint.connect(config).await?;
            made(link::name_connection(&mut conn, &link::connection_name(&self.config)).await)?;
            Ok(conn)
        };
        let late = |_| StoreError::unavailable("subscribing took too long".into(), false);
        tokio::time::timeout(patience, connect).await.map_err(late)?
    }

    /// Returns when the connection is dead, or not needed any more.
    async fn watch(&self, mut conn: Connection) {
        // What the last connection reported says nothing about this one.
        let _ = tokio::time::timeout(Duration::ZERO, self.broken.notified()).await;
        let Some(shards) = self.shards.upgrade() else { return };
        lock(&self.state).todo.extend(shards.wanted_at(&self.addr));
        drop(shards);
        let (mut pinged, mut retry) = (Moment::now(), RETRY);
        loop {
            let Ok(refused) = self.align(&mut conn).await else { return };
            let idle = PING_INTERVAL.saturating_sub(Moment::now().since(pinged));
            let wait = if refused.is_empty() { idle } else { retry.min(idle) };
            retry = if refused.is_empty() { RETRY } else { (retry * 2).min(PING_INTERVAL) };
            tokio::select! {
                biased;
                () = self.broken.notified() => return,
                () = self.todo.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            lock(&self.state).todo.extend(refused);
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            if Moment::now().since(pinged) >= PING_INTERVAL {
                pinged = Moment::now();
                // A connection that nobody needs is closed.
                if !self.is_needed() || conn.call(&wire::cmd("PING")).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Brings the subscriptions in line with what is wanted. Returns those that the server refuses.
    async fn align(&self, conn: &mut Connection) -> Result<Vec<Vec<u8>>, CallError> {
        let mut refused = Vec::new();
        loop {
            let Some(shards) = self.shards.upgrade() else { return Ok(refused) };
            let (mut join, mut leave) = (Vec::new(), Vec::new());
            {
                let mut state = lock(&self.state);
                while join.len() + leave.len() < AT_ONCE
                    && let Some(channel) = state.todo.pop_first()
                {
                    match (
                        shards.is_wanted(&channel, &self.addr),
                        state.subscribed.contains(&channel),
                    ) {
                        (true, false) => join.push(channel),
                        (false, true) => leave.push(channel),
                        _ => {}
                    }
                }
                state.leaving.extend(leave.iter().cloned());
            }
            if join.is_empty() && leave.is_empty() {
                return Ok(refused);
            }
            let mut commands = Pipeline::with_capacity(join.len() + leave.len());
            for (kind, channels) in
                [(PushKind::SSubscribe, &join), (PushKind::SUnsubscribe, &leave)]
            {
                for channel in channels {
                    commands.add_command(Cmd::subscription(kind, channel));
                }
            }
            // The results are in the server's messages.
            conn.call_all(&commands).await?;
            let (joined, not): (Vec<_>, Vec<_>) = {
                let state = lock(&self.state);
                join.into_iter().partition(|channel| state.subscribed.contains(channel))
            };
            shards.subscribed(&joined, &self.addr);
            if !not.is_empty() {
                shards.want_map();
                refused.extend(not);
            }
        }
    }

    /// Called by the connection's own task for every push message, so it must not block.
    fn hear(&self, push: Push) {
        let channel = match push.data.first() {
            Some(Value::BulkString(channel)) => channel,
            _ if push.kind == PushKind::Disconnection => return self.broken.notify_one(),
            _ => return,
        };
        match push.kind {
            PushKind::SMessage => {
                if let (Some(Value::BulkString(payload)), Some(shards)) =
                    (push.data.get(1), self.shards.upgrade())
                {
                    shards.heard(channel, payload, &self.addr);
                }
            }
            PushKind::SSubscribe => {
                lock(&self.state).subscribed.insert(channel.clone());
            }
            PushKind::SUnsubscribe => {
                let asked = {
                    let mut state = lock(&self.state);
                    state.subscribed.remove(channel);
                    state.leaving.remove(channel)
                };
                if !asked {
                    self.taken_away(channel);
                }
            }
            _ => {}
        }
    }

    /// The server ended the subscription: the slot has moved.
    fn taken_away(&self, channel: &[u8]) {
        if let Some(shards) = self.shards.upgrade() {
            shards.dropped([channel.to_vec()], &self.addr);
            shards.want_map();
        }
        self.look_at(channel.to_vec());
    }
}
