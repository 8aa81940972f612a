//! One run: a world, clients with applications, faults, and what must be true in the end.

use super::actors::{Actor, LOCKS};
use super::faults::{self, Wish};
use super::oracle::{Counts, LEASE_MAX};
use super::world::{self, START_MS, State, World};
use crate::base::clock::{self, lock as locked};
use crate::base::random::{random_bits, seeded};
use crate::engine::context::Context;
use crate::engine::renew;
use crate::engine::start::Started;
use crate::store::redis::RedisStore;
use crate::store::{Event, Events};
use crate::{Client, Config, Leader};
use fairlock_core::{ClientId, LockName};
use fairlock_testkit::rng::Rng;
use std::collections::BTreeMap;
use std::panic;
use std::sync::{Arc, Mutex, Once, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// After the end of all faults: a lease, the step back of the clock, reconnecting, and everybody's
/// turn.
const ALL_END_WITHIN: Duration = Duration::from_secs(600);

/// After the end of the last application: releases that are repeated until the lease is over.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

/// The election that is observed all along: the fair lock of that name.
const LED: &str = "orders";

/// After the end of the last application: the leases of those that crashed, and reconnecting.
const LED_WITHIN: Duration = Duration::from_secs(120);

/// Reconnecting, if that is still under way, and an observer's look.
const SEEN_WITHIN: Duration = Duration::from_secs(18);

/// The longest that a client's shutdown takes.
const SHUT_DOWN_WITHIN: Duration = Duration::from_secs(40);

/// Clients of a run, including those started after a crash.
const CLIENTS_MAX: usize = 6;

pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) violations: Vec<String>,
    pub(super) counts: Counts,
    pub(super) hash: u64,
    pub(super) lines: Option<Vec<String>>,
}

thread_local! {
    static PANICS: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A panic in a client's task must not go unnoticed.
fn notice_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = PANICS.try_with(|panics| panics.borrow_mut().push(info.to_string()));
            before(info);
        }));
    });
    PANICS.take();
}

/// A runtime of one thread, whose time advances when everybody waits.
pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

pub(super) fn play(seed: u64, replay: bool) -> Report {
    notice_panics();
    seeded::set(Some(seed));
    let runtime = runtime();
    let (world, mut violations) = runtime.block_on(async {
        clock::start_at(START_MS);
        let world = World::begin(seed, replay);
        let mut run = Run::new(Arc::clone(&world), seed);
        run.play().await;
        (world, std::mem::take(&mut run.violations))
    });
    drop(runtime);
    World::end();
    seeded::set(None);
    violations.extend(PANICS.take());
    world.with(|state| {
        violations.append(&mut state.oracle.violations);
        Report {
            seed,
            violations,
            counts: state.oracle.counts,
            hash: state.oracle.hash(),
            lines: state.oracle.lines.take(),
        }
    })
}

struct Run {
    world: Arc<World>,
    rng: Rng,
    clients: BTreeMap<usize, Living>,
    actors: JoinSet<()>,
    violations: Vec<String>,
    /// How many clients were started.
    started: usize,
}

struct Living {
    client: Client,
    store: Arc<RedisStore>,
    sight: Sight,
}

impl Run {
    fn new(world: Arc<World>, seed: u64) -> Self {
        Self {
            world,
            rng: Rng::new(seed ^ 0x5eed),
            clients: BTreeMap::new(),
            actors: JoinSet::new(),
            violations: Vec::new(),
            started: 0,
        }
    }

    async fn play(&mut self) {
        let observer = {
            let world = Arc::clone(&self.world);
            tokio::spawn(async move {
                loop {
                    sleep(Duration::from_millis(500)).await;
                    world.with(State::look);
                }
            })
        };
        for _ in 0..self.rng.between(2, 4) {
            self.start_client();
        }
        let rounds = self.rng.between(3, 9);
        for _ in 0..rounds {
            sleep(Duration::from_millis(self.rng.below(4_000))).await;
            self.strike().await;
        }
        faults::heal(&self.world);
        self.finish().await;
        observer.abort();
    }

    /// One fault, or two at the same time.
    async fn strike(&mut self) {
        let world = Arc::clone(&self.world);
        let (one, two) = (self.rng.pick(&faults::KINDS), self.rng.pick(&faults::KINDS));
        let mut of_one = Rng::new(self.rng.below(u64::MAX));
        let mut of_two = Rng::new(self.rng.below(u64::MAX));
        let both = self.rng.chance(30);
        let first = faults::strike(&world, one, &mut of_one);
        let second = async {
            if !both || one == two {
                return Wish::Nothing;
            }
            sleep(Duration::from_millis(of_two.below(500))).await;
            faults::strike(&world, two, &mut of_two).await
        };
        let (first, second) = tokio::join!(biased; first, second);
        for wish in [first, second] {
            let Wish::Buried(peer) = wish else { continue };
            self.bury(peer);
            if self.rng.chance(60) && self.started < CLIENTS_MAX {
                self.start_client();
            }
        }
    }

    fn start_client(&mut self) {
        let id = ClientId::from_random(random_bits().expect("seeded"));
        let peer = self.world.add_client(id);
        self.started += 1;
        // The usual lease, or one that is renewed before a fault is over.
        let lease = self.rng.pick(&[LEASE_MAX, Duration::from_secs(9)]);
        let config = Config::tcp(world::host(peer), 6379).label("simulated").watchdog_lease(lease);
        let (client, store) = start(config, id);
        let owner = client.owner();
        for _ in 0..self.rng.between(1, 4) {
            let actor = Actor {
                world: Arc::clone(&self.world),
                peer,
                client: client.clone(),
                rng: Rng::new(self.rng.below(u64::MAX)),
                owner: owner.clone(),
            };
            let task = self.actors.spawn(actor.run(self.rng.between(2, 6)));
            self.world.with(|state| state.peers[peer].tasks.push(task));
        }
        let sight = Sight::begin(client.clone());
        self.world.with(|state| state.peers[peer].tasks.push(sight.task.abort_handle()));
        self.clients.insert(peer, Living { client, store, sight });
    }

    /// The client has crashed and its tasks were ended. Nothing that its connections still send
    /// arrives.
    fn bury(&mut self, peer: usize) {
        self.clients.remove(&peer);
    }

    async fn finish(&mut self) {
        let until = Instant::now() + ALL_END_WITHIN;
        while let Ok(Some(ended)) = tokio::time::timeout_at(until, self.actors.join_next()).await {
            if let Err(error) = ended
                && !error.is_cancelled()
            {
                self.violations.push(format!("an application's task: {error}"));
            }
        }
        if !self.actors.is_empty() {
            let left = self.actors.len();
            self.world.with(|state| {
                state.oracle.violation(format!("{left} futures do not end"));
            });
            return;
        }
        if !self.world.with(|state| state.oracle.tokens_may_fall()) {
            self.all_see_the_last_leader().await;
        }
        for living in self.clients.values() {
            living.sight.task.abort();
        }
        let until = Instant::now() + CLEAN_WITHIN;
        loop {
            let left = self.leftovers();
            if left.is_empty() {
                break;
            }
            if Instant::now() >= until {
                self.world.with(|state| {
                    left.into_iter().for_each(|what| state.oracle.violation(what));
                });
                return;
            }
            sleep(Duration::from_millis(250)).await;
        }
        for (peer, living) in std::mem::take(&mut self.clients) {
            drop(living.store);
            if timeout(SHUT_DOWN_WITHIN, living.client.shutdown()).await.is_err() {
                self.violations.push(format!("client {peer} does not shut down"));
            }
        }
    }

    /// After all faults somebody leads, and whoever has observed all along shows it in time, although no message says so.
    async fn all_see_the_last_leader(&mut self) {
        let Some((peer, living)) = self.clients.iter().next() else { return };
        let (lock, election) = (living.client.fair_lock(LED), living.client.election(LED));
        let led = timeout(LED_WITHIN, async {
            loop {
                if let Ok(guard) = lock.lock().await {
                    let hold = guard.hold();
                    self.world.with(|state| state.took(*peer, &hold));
                    self.swallow(true);
                    if let Ok(term) = election.lead(guard, "last").await {
                        break (hold, term);
                    }
                    self.world.with(|state| state.oracle.gave_back(&hold));
                }
                // The last fault may still be felt.
                sleep(Duration::from_millis(500)).await;
            }
        });
        let Ok((hold, term)) = led.await else {
            return self.violations.push(format!("{LED}: nobody can lead"));
        };
        sleep(SEEN_WITHIN).await;
        self.swallow(false);
        for (peer, living) in &self.clients {
            let seen = living.sight.seen();
            let is_it = seen.as_ref().is_some_and(|leader| {
                leader.term == term.token() && leader.value.as_deref() == Some(&b"last"[..])
            });
            if !is_it {
                let what =
                    format!("{LED}: client {peer} shows {seen:?}, and {} leads", term.token());
                self.violations.push(what);
            }
        }
        self.world.with(|state| state.oracle.gave_back(&hold));
        drop(term);
    }

    /// Whether messages get lost.
    fn swallow(&self, on: bool) {
        self.world.with(|state| state.peers.iter_mut().for_each(|it| it.swallow_messages = on));
    }

    /// What must not be left when nobody holds or wants a lock.
    fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        let ids: Vec<_> = self.clients.values().map(|living| living.client.id()).collect();
        let ours =
            |owner: &fairlock_core::OwnerId| owner.client().is_some_and(|id| ids.contains(&id));
        for (peer, living) in &self.clients {
            let context = living.client.context();
            for what in context.leftovers().into_iter().chain(living.store.leftovers()) {
                left.push(format!("client {peer} has left {what}"));
            }
        }
        self.world.with(|state| {
            let now_us = state.now_us();
            for (name, _, _) in LOCKS {
                let name = LockName::new(name.as_bytes()).expect("a name");
                let Some(lock) = state.server.model.get(&name) else { continue };
                let keys = lock.snapshot();
                let waiting = lock.line().filter(|owner| ours(owner)).count();
                let held = state.server.is_held(&name, now_us);
                let shares = lock.shares().into_iter().flat_map(|shares| shares.holds().keys());
                let holder = keys.hold.keys().chain(keys.scores.keys()).chain(shares);
                let ours = holder.filter(|owner| ours(owner)).count();
                if waiting > 0 || held && ours > 0 {
                    left.push(format!("{name}: {waiting} of the living wait, held: {held}"));
                }
            }
            for peer in self.clients.keys() {
                let conns = state.server.conns.values().filter(|conn| conn.peer == *peer);
                let channels: usize = conns.map(|conn| conn.channels()).sum();
                if channels != 1 {
                    left.push(format!("client {peer} has {channels} subscriptions"));
                }
            }
        });
        left
    }
}

/// Observes an election for as long as its client lives.
struct Sight {
    seen: Arc<Mutex<Option<Leader>>>,
    task: JoinHandle<()>,
}

impl Sight {
    fn begin(client: Client) -> Self {
        let seen = Arc::new(Mutex::new(None));
        let shows = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut observer = loop {
                match client.election(LED).observe().await {
                    Ok(observer) => break observer,
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            };
            loop {
                match observer.changed().await {
                    Ok(leader) => *locked(&shows) = leader,
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
        });
        Self { seen, task }
    }

    fn seen(&self) -> Option<Leader> {
        locked(&self.seen).clone()
    }
}

/// A client whose work runs on the runtime of the run instead of a thread of its own.
pub(super) fn start(config: Config, id: ClientId) -> (Client, Arc<RedisStore>) {
    let slot: Arc<OnceLock<Weak<Context>>> = Arc::default();
    let hear = Arc::clone(&slot);
    let events: Events = Arc::new(move |event: Event| {
        if let Some(context) = hear.get().and_then(Weak::upgrade) {
            context.hear(event);
        }
    });
    let store = RedisStore::start(&config, id, events).expect("an address");
    let runtime = tokio::runtime::Handle::current();
    let context = Context::new(config, id, Arc::clone(&store) as _, runtime, false);
    let _ = slot.set(Arc::downgrade(&context));
    let work = tokio::spawn(renew::run(Arc::clone(&context)));
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(async move {
        // An error means that the last handle is gone, which amounts to the same.
        let _ = stopped.await;
        work.abort();
    });
    (Client::new(Started { context, stop }), store)
}
