//! The inbox on a Cluster with sharded messages, which go only to the nodes of a slot: a connection
//! to each node with channels, and on it the channels of the locks that this client waits for.
//!
//! When a slot moves, its listeners lose its channels: the server reports that, and they are
//! subscribed where the slot is now. After each subscription, waiters look again for what was sent
//! before it.

use super::cluster::{Cluster, scope};
use super::keys;
use super::node_subscription::NodeSubscription;
use super::reply;
use super::slots::{Addr, SlotSet, slot};
use crate::base::clock::{Moment, ServerClock, lock};
use crate::store::{Boxed, Event, Events, StoreError, Topic};
use fairlock_core::ClientId;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// The last channels of grants stay subscribed when nobody waits for them any more: a client that
/// waits again, as in a loop, needs neither a subscription nor a second look.
const IDLE_MAX: usize = 64;

/// How long a waiter waits for its subscription before it continues without: it looks again when
/// the subscription is there.
const PATIENCE: Duration = Duration::from_secs(1);

/// The channels of one client.
pub(crate) struct Shards {
    cluster: Weak<Cluster>,
    client_id: ClientId,
    events: Events,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    channels: HashMap<Vec<u8>, Channel>,
    nodes: BTreeMap<Addr, Arc<NodeSubscription>>,
    /// The channels without users, the one that was left first in front.
    idle: VecDeque<Vec<u8>>,
}

struct Channel {
    slot: u16,
    /// `None`: grants.
    topic: Option<Topic>,
    users: usize,
    /// Where it is, or should be, subscribed.
    at: Option<Addr>,
    subscribed: watch::Sender<bool>,
}

impl Shards {
    pub(crate) fn start(cluster: &Arc<Cluster>, client_id: ClientId, events: Events) -> Arc<Self> {
        let shards = Arc::new(Self {
            cluster: Arc::downgrade(cluster),
            client_id,
            events,
            state: Mutex::default(),
        });
        tokio::spawn(follow(Arc::downgrade(&shards), cluster.changes()));
        shards
    }

    /// The channel of a topic, and whether it carries grants.
    fn channel(&self, topic: &Topic) -> (Vec<u8>, bool) {
        match topic {
            Topic::Inbox(name) => (keys::sharded_inbox(name, self.client_id), true),
            topic => (keys::topic(topic), false),
        }
    }

    pub(crate) fn listen(self: &Arc<Self>, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        let (name, is_inbox) = self.channel(&topic);
        let (mut subscribed, new) = {
            let mut state = lock(&self.state);
            state.idle.retain(|idle| *idle != name);
            let new = !state.channels.contains_key(&name);
            let channel = state.channels.entry(name.clone()).or_insert_with(|| Channel {
                slot: slot(&name),
                topic: (!is_inbox).then_some(topic),
                users: 0,
                at: None,
                subscribed: watch::Sender::new(false),
            });
            channel.users += 1;
            (channel.subscribed.subscribe(), new)
        };
        if new {
            self.place(&name);
        }
        Box::pin(async move {
            // If the sender is gone, nobody listens any more.
            let _ = tokio::time::timeout(PATIENCE, subscribed.wait_for(|yes| *yes)).await;
            Ok(())
        })
    }

    pub(crate) fn unlisten(&self, topic: &Topic) {
        let (name, is_inbox) = self.channel(topic);
        let gone = {
            let mut state = lock(&self.state);
            let Some(channel) = state.channels.get_mut(&name) else { return };
            channel.users -= 1;
            if channel.users > 0 {
                return;
            }
            if is_inbox {
                state.idle.push_back(name);
                match state.idle.len() > IDLE_MAX {
                    true => state.idle.pop_front(),
                    false => None,
                }
            } else {
                Some(name)
            }
        };
        let Some(gone) = gone else { return };
        let node = {
            let mut state = lock(&self.state);
            if state.channels.get(&gone).is_some_and(|channel| channel.users > 0) {
                // Another thread has begun to listen to it meanwhile.
                return;
            }
            let channel = state.channels.remove(&gone);
            let at = channel.and_then(|channel| channel.at);
            at.and_then(|at| state.nodes.get(&at).cloned())
        };
        if let Some(node) = node {
            node.look_at(gone);
        }
    }

    /// Subscribes to a channel on the node that serves its slot now, and nowhere else.
    fn place(self: &Arc<Self>, name: &[u8]) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        let map = cluster.map();
        let looks = {
            let mut state = lock(&self.state);
            let State { channels, nodes, .. } = &mut *state;
            let Some(channel) = channels.get_mut(name) else { return };
            let at = map.owner(channel.slot).cloned();
            let before = std::mem::replace(&mut channel.at, at.clone());
            if before != at {
                channel.subscribed.send_replace(false);
            }
            let former = before.filter(|before| Some(before) != at.as_ref());
            let former = former.and_then(|former| nodes.get(&former).cloned());
            let present = at.map(|at| {
                Arc::clone(nodes.entry(at.clone()).or_insert_with(|| {
                    NodeSubscription::start(
                        &cluster.config,
                        cluster.endpoint(&at),
                        at,
                        Arc::downgrade(self),
                    )
                }))
            });
            [former, present]
        };
        for node in looks.into_iter().flatten() {
            node.look_at(name.to_vec());
        }
    }

    /// The map has changed: moves the channels that belong elsewhere now.
    fn place_all(self: &Arc<Self>) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        let map = cluster.map();
        let astray: Vec<Vec<u8>> = {
            let state = lock(&self.state);
            let astray = state.channels.iter();
            let astray =
                astray.filter(|(_, channel)| channel.at.as_ref() != map.owner(channel.slot));
            astray.map(|(name, _)| name.clone()).collect()
        };
        for name in astray {
            self.place(&name);
        }
        let retired: Vec<Arc<NodeSubscription>> = {
            let mut state = lock(&self.state);
            let State { channels, nodes, .. } = &mut *state;
            let mut retired = Vec::new();
            nodes.retain(|addr, node| {
                let kept = cluster.known(addr).is_some()
                    || channels.values().any(|channel| channel.at.as_ref() == Some(addr));
                if !kept {
                    retired.push(Arc::clone(node));
                }
                kept
            });
            retired
        };
        for node in retired {
            node.stop();
        }
    }

    /// Whether a channel should be subscribed on this node.
    pub(super) fn is_wanted(&self, name: &[u8], at: &Addr) -> bool {
        lock(&self.state).channels.get(name).is_some_and(|channel| channel.at.as_ref() == Some(at))
    }

    /// All channels that should be subscribed on this node.
    pub(super) fn wanted_at(&self, at: &Addr) -> Vec<Vec<u8>> {
        let state = lock(&self.state);
        let here = state.channels.iter().filter(|(_, channel)| channel.at.as_ref() == Some(at));
        here.map(|(name, _)| name.clone()).collect()
    }

    /// These are subscribed on this node now: their waiters look again.
    pub(super) fn subscribed(&self, names: &[Vec<u8>], at: &Addr) {
        let mut slots = SlotSet::default();
        {
            let state = lock(&self.state);
            for channel in names.iter().filter_map(|name| state.channels.get(name)) {
                if channel.at.as_ref() == Some(at) {
                    channel.subscribed.send_replace(true);
                    slots.insert(channel.slot);
                }
            }
        }
        if !slots.is_empty() {
            (self.events)(Event::InboxUp(scope(slots)));
        }
    }

    /// These are no longer subscribed on this node.
    pub(super) fn dropped(&self, names: impl IntoIterator<Item = Vec<u8>>, at: &Addr) {
        let state = lock(&self.state);
        for name in names {
            if let Some(channel) = state.channels.get(&name)
                && channel.at.as_ref() == Some(at)
            {
                channel.subscribed.send_replace(false);
            }
        }
    }

    /// The map may be out of date: the server has ended a subscription, or refuses one.
    pub(super) fn want_map(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.map_wanted.notify_one();
        }
    }

    /// A message on a channel, from this node.
    pub(super) fn heard(&self, name: &[u8], payload: &[u8], from: &Addr) {
        let arrived = Moment::now();
        let topic = lock(&self.state).channels.get(name).map(|channel| channel.topic.clone());
        let event = match topic {
            Some(None) => {
                let clock = || Some(self.clock_of(from));
                return reply::inbox_message(payload, arrived, clock, &self.events);
            }
            Some(Some(topic)) => keys::woken(topic, payload),
            None => Event::Invalid,
        };
        (self.events)(event);
    }

    /// If the node is gone, its clock has no reading, and the message only makes its waiter look.
    fn clock_of(&self, addr: &Addr) -> Arc<ServerClock> {
        let node = self.cluster.upgrade().and_then(|cluster| cluster.known(addr));
        node.map(|node| Arc::clone(&node.clock)).unwrap_or_default()
    }
}

/// Moves the channels to where their slots are, as long as the client lives.
async fn follow(shards: Weak<Shards>, mut changed: watch::Receiver<u64>) {
    while changed.changed().await.is_ok() {
        let Some(shards) = shards.upgrade() else { return };
        shards.place_all();
    }
}
