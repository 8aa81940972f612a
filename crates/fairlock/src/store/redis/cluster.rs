//! A Cluster: a connection to each master, and which of them serves which slot.
//!
//! Routing is kept out of the connections: a guard's time counts from when the answered copy was
//! sent, every resend must be known, and the loss of a node must immediately put the holds of that
//! node, and no others, in doubt.

use super::aside::Aside;
use super::confirm::Confirmer;
use super::dial::{self, Endpoint, Target, Tls};
use super::kept::kept;
use super::keys::{Keys, Publishing};
use super::link::Link;
use super::login::Login;
use super::place::Place;
use super::route::{self, Route};
use super::slots::{Addr, SLOTS, SlotMap, SlotSet, slot_of, tag};
use super::wire::CallError;
use crate::base::clock::{Moment, ServerClock, lock};
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::{Address, Config};
use crate::store::{Event, Events, Scope, StoreError};
use fairlock_core::{LockName, Op};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

/// How long a node without slots is kept after its last use: a slot may be moving there.
const KEPT: Duration = Duration::from_secs(10);

/// Once one node has answered, the others get this long, or as long as the first one took if that
/// is more: live nodes have answered by then. So a silent node does not block locks on other nodes.
const LATECOMERS: Duration = Duration::from_millis(500);

/// A Cluster, as this client knows it.
pub(crate) struct Cluster {
    pub(super) config: Config,
    /// One for all nodes, so that one password is asked for at a time.
    pub(super) login: Arc<Login>,
    tls: Option<Arc<Tls>>,
    /// Looks up the names of nodes.
    looks: Arc<Aside>,
    state: Mutex<State>,
    events: Events,
    /// Changes with the map, and with every connection that is made or lost.
    changed: watch::Sender<u64>,
    /// Notified at a sign that the map is out of date.
    pub(super) map_wanted: Notify,
    /// How many nodes have left.
    departed: watch::Sender<u64>,
    me: Weak<Self>,
}

struct State {
    map: Arc<SlotMap>,
    nodes: BTreeMap<Addr, Arc<Node>>,
    /// The number of the connection that serves each slot; 0: there is none.
    served: Vec<u64>,
    /// The node that is asked first for the next map, because another one named it.
    hint: Option<Addr>,
}

/// A master, or a node that is about to become one.
pub(crate) struct Node {
    pub(crate) addr: Addr,
    pub(crate) link: Arc<Link>,
    pub(crate) clock: Arc<ServerClock>,
    /// Set if replicas are waited for.
    pub(crate) confirmer: Option<Confirmer>,
    /// The number of its current connection; 0 while there is none. No two connections have the
    /// same.
    number: AtomicU64,
    used: Mutex<Moment>,
    task: JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer of a node that does not serve a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirected {
    /// The slot is there from now on.
    Moved(Addr),
    /// The slot is moving there: ask there this once.
    Ask(Addr),
}

impl Redirected {
    /// `None` for other errors, and for redirections that lead nowhere.
    pub(crate) fn read(error: &CallError, by: &Addr) -> Option<Self> {
        let place = error.redirect_node()?;
        let to = Addr::redirected(place, by)?;
        Some(if error.code() == Some("ASK") { Self::Ask(to) } else { Self::Moved(to) })
    }
}

impl Cluster {
    /// # Errors
    /// This build cannot make the connections that the settings require.
    pub(crate) fn new(config: &Config, events: Events) -> Result<Arc<Self>, Error> {
        let tls = dial::tls(config)?;
        Ok(Arc::new_cyclic(|me| Self {
            config: config.clone(),
            login: Arc::new(Login::of_servers(config)),
            tls,
            looks: route::looks(),
            state: Mutex::new(State {
                map: Arc::default(),
                nodes: BTreeMap::new(),
                served: vec![0; SLOTS],
                hint: None,
            }),
            events,
            changed: watch::Sender::new(0),
            map_wanted: Notify::new(),
            departed: watch::Sender::new(0),
            me: Weak::clone(me),
        }))
    }

    /// Notifies of changes of the map and of connections.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&lock(&self.state).map)
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.state).nodes.values().cloned().collect()
    }

    /// Any connected node.
    pub(crate) fn any(&self) -> Option<Arc<Node>> {
        lock(&self.state).nodes.values().find(|node| node.is_up()).cloned()
    }

    /// Waits for the results of the first attempts to connect to the nodes.
    ///
    /// # Errors
    /// No node is connected; one of the reasons.
    pub(crate) async fn contacted(&self) -> Result<(), Error> {
        let mut attempts = JoinSet::new();
        for node in self.nodes() {
            attempts.spawn(async move { node.link.first_contact().await });
        }
        let attempts = all_but_late(attempts, Result::is_ok).await;
        if self.any().is_some() {
            return Ok(());
        }
        attempts.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    /// Notifies of nodes that leave.
    pub(crate) fn departures(&self) -> watch::Receiver<u64> {
        self.departed.subscribe()
    }

    pub(crate) fn known(&self, addr: &Addr) -> Option<Arc<Node>> {
        lock(&self.state).nodes.get(addr).cloned()
    }

    /// The node that serves a slot.
    ///
    /// # Errors
    /// No known node serves it.
    pub(crate) fn node_of(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        let state = lock(&self.state);
        let node = state.map.owner(slot).and_then(|addr| state.nodes.get(addr));
        node.cloned().ok_or_else(|| {
            let message = format!("no master of the Cluster serves slot {slot} at present");
            StoreError::unavailable(message, false)
        })
    }

    /// Refuses what a node has answered if another one has its slot by now: a late answer of an old
    /// primary is not known to the new one.
    ///
    /// # Errors
    /// In doubt.
    pub(crate) fn still_serves(&self, slot: u16, node: &Node) -> Result<(), StoreError> {
        if lock(&self.state).map.owner(slot) == Some(&node.addr) {
            return Ok(());
        }
        let message = format!("another node than {} serves slot {slot} by now", node.addr);
        Err(StoreError::unavailable(message, true))
    }

    /// The node that another one has named, which may be new.
    pub(crate) fn node_at(&self, addr: &Addr) -> Arc<Node> {
        let mut state = lock(&self.state);
        let node = state.nodes.entry(addr.clone()).or_insert_with(|| self.start(addr));
        *lock(&node.used) = Moment::now();
        Arc::clone(node)
    }

    /// Whether connections to its nodes are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Where a node is, and how to log in to it.
    pub(super) fn endpoint(&self, addr: &Addr) -> Endpoint {
        let target = Target::Tcp(addr.host.as_ref().to_owned(), addr.port);
        let route = Route::new(Arc::clone(&self.looks), self.config.connect_timeout);
        Endpoint { target, login: Arc::clone(&self.login), tls: self.tls.clone(), route }
    }

    /// The number of the connection that serves a slot; 0: there is none.
    pub(crate) fn served(&self, slot: u16) -> u64 {
        lock(&self.state).served[usize::from(slot)]
    }

    /// Whether every slot is served by a connected node.
    pub(crate) fn is_whole(&self) -> bool {
        lock(&self.state).served.iter().all(|number| *number != 0)
    }

    /// Resolves when the slot has a connection, or the server refuses it; without a slot, when
    /// there is any connection.
    pub(crate) async fn ready(&self, slot: Option<u16>) {
        let mut changed = self.changes();
        loop {
            changed.mark_unchanged();
            let node = match slot {
                Some(slot) if self.served(slot) != 0 => return,
                Some(slot) => self.node_of(slot).ok(),
                None if self.nodes().iter().any(|node| node.is_up()) => return,
                None => self.nodes().into_iter().next(),
            };
            let refused = async {
                match &node {
                    Some(node) => node.link.refused().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // The sender lives in `self`, so the wait cannot fail.
                _ = changed.changed() => {}
                () = refused => return,
            }
        }
    }

    /// A node reported that the slot is elsewhere.
    pub(crate) fn moved(&self, slot: u16, to: &Addr) {
        let is_new = {
            let mut state = lock(&self.state);
            state.hint = Some(to.clone());
            // Of many concurrent calls, only the first brings news.
            let is_new = state.map.owner(slot) != Some(to);
            if is_new {
                let mut map = SlotMap::clone(&state.map);
                map.moved(slot, to.clone());
                state.map = Arc::new(map);
            }
            is_new
        };
        self.node_at(to);
        self.map_wanted.notify_one();
        if is_new {
            self.settle();
        }
    }

    /// Whom to ask for the map: the node that was named last, then masters, then their replicas,
    /// then the nodes that the settings name. Which of the masters comes first changes with `turn`.
    pub(super) fn sources(&self, turn: usize) -> Vec<Addr> {
        let mut state = lock(&self.state);
        let mut sources: Vec<Addr> = state.hint.take().into_iter().collect();
        let mut masters: Vec<&Arc<Node>> = state.nodes.values().collect();
        // Connected nodes answer soonest.
        masters.sort_by_key(|node| !node.is_up());
        let up = masters.iter().filter(|node| node.is_up()).count();
        if up > 0 {
            masters[..up].rotate_left(turn % up);
        }
        sources.extend(masters.iter().map(|node| node.addr.clone()));
        sources.extend(state.map.replicas.iter().cloned());
        if let Address::Cluster(seeds) = &self.config.address {
            sources.extend(seeds.iter().map(|(host, port)| Addr::new(host, *port)));
        }
        let mut seen = std::collections::BTreeSet::new();
        sources.retain(|addr| seen.insert(addr.clone()));
        sources
    }

    /// Installs a new map, and with it adds and removes nodes. Returns whether it differs from the
    /// last one.
    pub(super) fn install(&self, map: SlotMap) -> bool {
        let masters = map.masters();
        {
            let mut state = lock(&self.state);
            if *state.map == map && masters.iter().all(|addr| state.nodes.contains_key(addr)) {
                return false;
            }
            state.map = Arc::new(map);
        }
        for addr in &masters {
            self.node_at(addr);
        }
        let mut retired = Vec::new();
        lock(&self.state).nodes.retain(|addr, node| {
            let kept = masters.contains(addr) || Moment::now().since(*lock(&node.used)) < KEPT;
            if !kept {
                retired.push(Arc::clone(node));
            }
            kept
        });
        self.settle();
        if !retired.is_empty() {
            self.departed.send_modify(|count| *count += 1);
        }
        for node in retired {
            node.task.abort();
            // Without its task, a silent server would keep the calls that are under way.
            node.link.make_anew();
            if let Some(confirmer) = &node.confirmer {
                confirmer.hear(&Event::Down(Scope::All));
            }
        }
        true
    }

    fn start(&self, addr: &Addr) -> Arc<Node> {
        let place = Arc::new(Place::Fixed(self.endpoint(addr)));
        let (me, at) = (Weak::clone(&self.me), addr.clone());
        let hear: Events = Arc::new(move |event| {
            if let Some(cluster) = me.upgrade() {
                cluster.hear(&at, &event);
            }
        });
        let confirmer = Confirmer::start(&place, &self.config);
        let link = Link::new(place, &self.config, None, hear);
        Arc::new(Node {
            addr: addr.clone(),
            clock: Arc::default(),
            confirmer,
            number: AtomicU64::new(0),
            used: Mutex::new(Moment::now()),
            task: tokio::spawn(kept(Arc::clone(&link), Link::run)),
            link,
        })
    }

    /// A node's connection was made, or lost.
    fn hear(&self, addr: &Addr, event: &Event) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(node) = self.known(addr) else { return };
        if let Some(confirmer) = &node.confirmer {
            confirmer.hear(event);
        }
        match event {
            Event::Up { .. } => {
                // It may be another server by now.
                node.clock.forget();
                node.number.store(NEXT.fetch_add(1, Ordering::Relaxed), Ordering::Release);
            }
            Event::Down(_) => {
                node.number.store(0, Ordering::Release);
                // A replica may soon have its slots.
                self.map_wanted.notify_one();
            }
            // A problem of one node is a problem of the Cluster.
            Event::Checked(found) if !found.is_empty() => {
                return (self.events)(Event::Checked(found.clone()));
            }
            _ => return,
        }
        self.settle();
    }

    /// After any change, reports which locks are cut off and which are served by another connection
    /// now. All of a client's tasks share one thread, so nothing can happen between reading the
    /// state and reporting.
    fn settle(&self) {
        let (mut lost, mut found) = (SlotSet::default(), SlotSet::default());
        let whole = {
            let mut state = lock(&self.state);
            let State { map, nodes, served, .. } = &mut *state;
            let mut whole = true;
            let number = |addr: &Addr| nodes.get(addr).map_or(0, |node| node.number());
            for ((slot, served), now) in (0..).zip(served.iter_mut()).zip(map.each(number)) {
                whole &= now != 0;
                match (*served, now) {
                    (before, now) if before == now => {}
                    (_, 0) => lost.insert(slot),
                    _ => found.insert(slot),
                }
                *served = now;
            }
            whole
        };
        self.changed.send_modify(|count| *count += 1);
        if !lost.is_empty() {
            (self.events)(Event::Down(scope(lost)));
        }
        if !found.is_empty() {
            (self.events)(Event::Up { scope: scope(found), whole });
        }
    }
}

impl Node {
    fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.number() != 0
    }
}

/// The outcomes, except those that are late once there is a `good` one.
pub(super) async fn all_but_late<T: 'static>(
    mut asked: JoinSet<T>,
    good: impl Fn(&T) -> bool,
) -> Vec<T> {
    let began = Moment::now();
    let mut until: Option<Moment> = None;
    let mut outcomes = Vec::new();
    loop {
        let next = match until {
            Some(until) => {
                tokio::time::timeout(until.left(), asked.join_next()).await.unwrap_or(None)
            }
            None => asked.join_next().await,
        };
        match next {
            Some(Ok(outcome)) => {
                if until.is_none() && good(&outcome) {
                    let now = Moment::now();
                    until = Some(now.plus(now.since(began).max(LATECOMERS)));
                }
                outcomes.push(outcome);
            }
            // A task that panicked has no outcome.
            Some(Err(_)) => {}
            None => return outcomes,
        }
    }
}

/// The locks in these slots.
pub(super) fn scope(slots: SlotSet) -> Scope {
    Scope::These(Arc::new(move |name: &LockName| {
        slot_of(name).is_ok_and(|slot| slots.contains(slot))
    }))
}

/// Refuses a latch whose channel is in another slot than its count: a script could not publish there.
pub(crate) fn check_latch(
    publishing: Publishing,
    name: &LockName,
    op: &Op,
) -> Result<(), StoreError> {
    let is_latch = matches!(op, Op::Latch(_));
    if publishing == Publishing::Whole || !is_latch {
        return Ok(());
    }
    let channel = Keys::new(name).latch_channel();
    if tag(&channel) == tag(name.as_bytes()) {
        return Ok(());
    }
    let message = "this name cannot be used for a latch on a Cluster with sharded messages: Redisson adds \
                   braces to it for the latch's channel, so that the channel is in another slot than \
                   the count; use a name without braces";
    Err(StoreError::refused(Error::new(ErrorKind::Misuse, message).on(name)))
}

/// The slot of a lock.
///
/// # Errors
/// Redisson's rule for keys spreads the keys of this name over several slots: no script can use
/// them all.
pub(crate) fn slot_or_refusal(name: &LockName) -> Result<u16, StoreError> {
    slot_of(name).map_err(|why| {
        let message = format!(
            "this name cannot be used on a Cluster: it {why}, so its keys, which are named by \
             Redisson's rule, are in different slots; use a name without braces, or with a `{{tag}}`"
        );
        StoreError::refused(Error::new(ErrorKind::Misuse, message).on(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::LatchOp;

    /// Braces in a name may lead its channel to another slot than its count.
    #[test]
    fn latches_whose_channel_is_elsewhere_are_refused() {
        let op = Op::Latch(LatchOp::Look { waiting: None });
        for (name, fits) in
            [("import", true), ("a{b", true), ("{a}", false), ("a{b}c", false), ("a}b", false)]
        {
            let name = LockName::new(name.as_bytes()).unwrap();
            assert!(check_latch(Publishing::Whole, &name, &op).is_ok());
            assert!(check_latch(Publishing::Sharded, &name, &Op::Nudge).is_ok());
            let refused = check_latch(Publishing::Sharded, &name, &op);
            assert_eq!(refused.is_ok(), fits, "{name}");
            if let Err(refused) = refused {
                assert_eq!(refused.error.kind(), ErrorKind::Misuse);
                assert!(!refused.passing && !refused.doubt);
            }
        }
    }
}
