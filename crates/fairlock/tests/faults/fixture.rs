//! What these tests share: a server, clients with short times, and places in the queue whose
//! history is recorded.

use crate::support::{Pauses, block_on, unless_it_stands_still};
use fairlock::{Client, Config, Error, Guard, GuardState, Lock, Release};
use fairlock_testkit::history::{
    Event, History, check_fifo, check_no_lost_waiter, check_tokens_rise,
};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Builder, Generation, Server};
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

pub(crate) use fairlock_testkit::wait::until as eventually;

/// The heartbeat of most tests here.
pub(crate) const HB: Duration = Duration::from_millis(200);

/// A client that is silent for longer is dead.
pub(crate) const D: Duration = Duration::from_millis(600);

/// Heartbeats so far apart that what happens at once cannot have waited for one, nor for D.
pub(crate) const SELDOM: Duration = Duration::from_secs(5);

/// The watchdog lease of most tests here.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// Added to every upper bound: the machine is busy with other things as well.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

/// What has not happened by then is taken never to happen.
const NEVER_WITHIN: Duration = Duration::from_secs(15);

/// A longer stop takes more than a tenth of the 600 ms after which a client is dead here, and may
/// happen several times on the way of one message.
const PAUSE: Duration = Duration::from_millis(60);

/// Runs a test on its own thread, which may block, with a second thread for its tasks. A failure
/// proves nothing if the process stood still meanwhile, or one of its threads waited as long in all
/// for a processor: then the test runs again.
pub(crate) fn steady<F: Future<Output = ()>>(test: impl Fn() -> F) {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(1).enable_all().build().unwrap()
    };
    unless_it_stands_still(PAUSE, &Pauses::longest, &runtime, &|runtime| block_on(runtime, test()));
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Short times, so that even a test that takes ten times as long is short.
pub(crate) fn config(url: &str) -> Config {
    Config::from_url(url)
        .unwrap()
        .heartbeat(HB)
        .watchdog_lease(LEASE)
        .ping_interval(ms(100))
        .ping_timeout(ms(200))
        .response_timeout(ms(400))
        .connect_timeout(ms(500))
}

/// Checks everything but exclusion, which cannot hold when the lock itself is taken away, or when a
/// clock that jumps forward ends leases early.
pub(crate) fn assert_ordered(fixture: &Fixture) {
    let records = fixture.history.records();
    for check in [check_fifo, check_tokens_rise, check_no_lost_waiter] {
        let violations = check(&records);
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

pub(crate) async fn client(url: &str) -> Client {
    Client::with_config(config(url)).await.unwrap()
}

/// Waits for a future, with a time limit.
pub(crate) async fn within<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, work).await {
        Ok(value) => value,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// Prints a measurement; shown by `--nocapture` and with a failure.
pub(crate) fn measured(what: &str, took: Duration) {
    println!("measured: {what}: {:.1} ms", took.as_secs_f64() * 1_000.0);
}

/// A server, direct access to what it stores, and the history of the test.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) history: History,
    raw: Mutex<Raw>,
}

impl Fixture {
    pub(crate) fn start(generation: Generation) -> Option<Self> {
        Self::with(Server::builder(generation))
    }

    pub(crate) fn redis70() -> Option<Self> {
        Self::start(Generation::Redis70)
    }

    pub(crate) fn with(builder: Builder) -> Option<Self> {
        let server = builder.start()?;
        let raw = Mutex::new(server.client());
        Some(Self { server, history: History::new(), raw })
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.server.url()).await
    }

    /// A client whose heartbeats are far apart, and whose leases end late, so that they cause no
    /// early heartbeat either.
    pub(crate) async fn seldom(&self) -> Client {
        let config = config(&self.server.url()).heartbeat(SELDOM).watchdog_lease(60 * LEASE);
        Client::with_config(config).await.unwrap()
    }

    /// Runs a command past the library, on a new connection if the old one was lost.
    #[track_caller]
    pub(crate) fn call(&self, args: &[&str]) -> Value {
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(reply) = raw.try_call(args) {
            return reply;
        }
        *raw = self.server.client();
        raw.call(args)
    }

    /// How many connections are subscribed to a channel.
    #[track_caller]
    pub(crate) fn listeners(&self, channel: &str) -> i64 {
        self.call(&["PUBSUB", "NUMSUB", channel]).array()[1].int()
    }

    /// The owners in the queue of a lock, head first.
    #[track_caller]
    pub(crate) fn queue(&self, name: &str) -> Vec<String> {
        let queue = self.call(&["LRANGE", &key("redisson_lock_queue", name), "0", "-1"]);
        queue.array().iter().map(|owner| owner.text().to_owned()).collect()
    }

    /// The owner that holds a lock.
    #[track_caller]
    pub(crate) fn holder(&self, name: &str) -> Option<String> {
        let fields = self.call(&["HKEYS", name]);
        fields.array().first().map(|owner| owner.text().to_owned())
    }

    /// Waits until the client's record has no lease. A client writes so once, in the background, after its first hold
    /// with another lease than that of its settings.
    pub(crate) fn record_without_lease(&self, client: &Client) {
        let record = format!("fairlock_client:{}", client.id());
        eventually("its record has no lease", SLACK, || {
            self.call(&["HMGET", &record, "lease"]).array()[0].text() == "0"
        });
    }

    #[track_caller]
    pub(crate) fn ttl(&self, name: &str) -> Duration {
        ms(u64::try_from(self.call(&["PTTL", name]).int()).unwrap_or(0))
    }

    /// The server keeps the lock for at least as long as its guard says.
    #[track_caller]
    pub(crate) fn outlasts(&self, name: &str, remaining: impl Fn() -> Duration) {
        let asked = Instant::now();
        let (left, ttl) = (remaining(), self.ttl(name));
        assert!(left.saturating_sub(asked.elapsed()) <= ttl, "{name}: {left:?} of {ttl:?}");
    }

    /// How many scripts the server was asked for so far.
    #[track_caller]
    pub(crate) fn script_calls(&self) -> u64 {
        self.server.script_calls()
    }

    /// Takes a lock that is free or about to be.
    pub(crate) async fn take(&self, client: &Client, name: &str) -> Held {
        self.hold(client.fair_lock(name)).await
    }

    pub(crate) async fn hold(&self, lock: Lock) -> Held {
        let guard = within("the first hold", NEVER_WITHIN, lock.lock()).await.unwrap();
        Held::new(guard, &self.history)
    }

    /// Enters the queue, and waits in a task.
    pub(crate) async fn enter(&self, client: &Client, name: &str) -> Place {
        self.enter_lock(client.fair_lock(name), name).await
    }

    pub(crate) async fn enter_lock(&self, lock: Lock, name: &str) -> Place {
        let before = self.queue(name);
        let history = self.history.clone();
        let task = tokio::spawn(async move {
            let guard = lock.lock().await?;
            Ok(Held::new(guard, &history))
        });
        let owner = self.joined(name, &before);
        Place { owner, task }
    }

    /// Returns the owner that has joined the queue since `before`, and records its place.
    #[track_caller]
    pub(crate) fn joined(&self, name: &str, before: &[String]) -> String {
        let mut joined = None;
        eventually("a new waiter stands in the queue", NEVER_WITHIN, || {
            joined = self.queue(name).into_iter().find(|owner| !before.contains(owner));
            joined.is_some()
        });
        let owner = joined.unwrap();
        self.note_place(name, &owner);
        owner
    }

    /// Waits until the server has the subscription of each client's inbox: clients reconnect up to 2 s apart.
    #[track_caller]
    pub(crate) fn inboxes_are_back(&self, clients: &[Client]) {
        eventually("the inboxes are back", ms(2_000) + SLACK, || {
            clients.iter().all(|client| self.listeners(&inbox(client)) == 1)
        });
    }

    /// Waits for the next heartbeat of each of these clients, all of which wait. After an outage
    /// longer than [`D`] a waiter counts as dead at its turn until then, with or without an inbox,
    /// and would return to its place; clients reconnect up to 2 s apart.
    #[track_caller]
    pub(crate) fn beat_again<I: Display>(&self, name: &str, ids: impl IntoIterator<Item = I>) {
        let beat_of = |id: &str| self.call(&["ZSCORE", &key("fairlock_beats", name), id]);
        let clients = ids.into_iter().map(|id| id.to_string());
        let before: Vec<_> = clients.map(|id| (beat_of(&id), id)).collect();
        eventually("they beat again", 2 * HB + ms(2_000) + SLACK, || {
            before.iter().all(|(before, id)| beat_of(id) != *before)
        });
    }

    /// Waits until the server has noticed that the connections of a killed client are closed: it
    /// may read a later request first.
    #[track_caller]
    pub(crate) fn notices_the_death_of(&self, owner: &str) {
        let (client, _) = owner.split_once(':').unwrap();
        let inbox = format!("fairlock_inbox:{client}");
        eventually("the server notices the closed inbox", SLACK, || self.listeners(&inbox) == 0);
    }

    /// Records the order number of a waiter.
    #[track_caller]
    pub(crate) fn note_place(&self, name: &str, owner: &str) {
        let number = self.call(&["ZSCORE", &key("fairlock_order", name), owner]);
        let seq = number.text().parse().unwrap();
        self.history.record(name, owner, Event::Enqueued { seq });
    }
}

/// A derived key of a lock.
pub(crate) fn key(prefix: &str, name: &str) -> String {
    format!("{prefix}:{{{name}}}")
}

/// The channel of a client's grants.
pub(crate) fn inbox(client: &Client) -> String {
    format!("fairlock_inbox:{}", client.id())
}

/// A waiter of this process.
pub(crate) struct Place {
    pub(crate) owner: String,
    task: JoinHandle<Result<Held, Error>>,
}

impl Place {
    /// Waits for the grant, which must come in time.
    pub(crate) async fn granted(self, limit: Duration) -> Held {
        let what = format!("the turn of {}", self.owner);
        within(&what, limit, self.task).await.unwrap().unwrap()
    }

    /// The error that ends the wait.
    pub(crate) async fn fails(self, limit: Duration) -> Error {
        match within("the wait fails", limit, self.task).await.unwrap() {
            Ok(held) => panic!("granted: {:?}", held.guard),
            Err(error) => error,
        }
    }

    /// Stops waiting: its future is dropped.
    pub(crate) fn leaves(self, fixture: &Fixture, name: &str) {
        self.task.abort();
        fixture.history.record(name, &self.owner, Event::GaveUp);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

/// A hold whose history is recorded.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) guard: Arc<Guard>,
    pub(crate) at: Instant,
    history: History,
    name: String,
}

impl Held {
    pub(crate) fn new(guard: Guard, history: &History) -> Self {
        let at = Instant::now();
        let name = String::from_utf8_lossy(guard.name().as_bytes()).into_owned();
        let token = guard.token().get();
        history.record(&name, &guard.owner().to_string(), Event::Granted { token });
        Self { guard: Arc::new(guard), at, history: history.clone(), name }
    }

    pub(crate) fn owner(&self) -> String {
        self.guard.owner().to_string()
    }

    pub(crate) fn token(&self) -> u64 {
        self.guard.token().get()
    }

    fn record(&self, event: Event) {
        self.history.record(&self.name, &self.owner(), event);
    }

    pub(crate) async fn release(self) -> Release {
        self.record(Event::Released);
        let guard = Arc::into_inner(self.guard).expect("nobody else has this guard");
        within("the release", NEVER_WITHIN, guard.release()).await.unwrap()
    }

    /// Waits until the guard reports its loss; returns how long that took.
    pub(crate) async fn lost(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        within("the guard is told of its loss", limit, self.guard.lost()).await;
        self.record(Event::Lost);
        began.elapsed()
    }

    /// Waits until the guard is in this state.
    pub(crate) async fn becomes(&self, wanted: GuardState, limit: Duration) -> Duration {
        let began = Instant::now();
        let reached = async {
            let mut state = self.guard.state();
            while state != wanted {
                state = self.guard.state_changed(state).await;
            }
        };
        within(&format!("the guard is {wanted:?}"), limit, reached).await;
        began.elapsed()
    }
}

/// All get the lock in this order, each within `limit` after the one before, and release it.
pub(crate) async fn all_in_turn(places: Vec<Place>, limit: Duration) -> Vec<u64> {
    let mut tokens = Vec::new();
    for place in places {
        let held = place.granted(limit).await;
        tokens.push(held.token());
        let _ = held.release().await;
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    tokens
}
