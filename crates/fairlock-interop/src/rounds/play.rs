//! Plays a script, and records what each player saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock::{Client, Config, Error, ErrorKind, Guard, Lock, Release, RwLock};
use fairlock_testkit::history::{Event, now_ns};

use super::notes::{Mine, Notes, Played};
use super::script::{Game, How, Script, Share, Turn, Who};
use crate::java::{Answer, Java, JavaClient, JavaLock, JavaOwner, Kind, Settings};
use crate::version::Version;

/// How long an unrenewed hold without an explicit lease lasts. Short, because a Java waiter that is
/// not notified sleeps for as long.
const WATCHDOG: Duration = Duration::from_secs(3);
/// A call without an answer by then gets none: all holds and sleeps have ended three times over.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(12);
/// See [`look`].
const LOOK_MS: u64 = 200;
/// Clients on each side, and threads of each Java client.
const CLIENTS: usize = 2;
const THREADS: usize = 10;

/// The clients that play rounds, one after another.
#[derive(Clone, Debug)]
pub struct Clients {
    server: SocketAddr,
    version: Version,
    pub(super) rust: Vec<Client>,
    pub(super) java: Vec<Vec<JavaOwner>>,
    pub(super) patience: Duration,
    looks: bool,
}

impl Clients {
    /// Several sets, for concurrent rounds; each Java client runs in one of these JVMs. Each answer
    /// is awaited for up to `patience`.
    ///
    /// # Panics
    ///
    /// If clients cannot connect.
    pub async fn several(
        server: SocketAddr,
        java: [&Java; CLIENTS],
        count: usize,
        patience: Duration,
    ) -> Vec<Self> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for java in java {
            ours.push(rust_client(server).await);
            theirs.push(java_client(server, java).await);
        }
        let mut sets = Vec::new();
        for set in 0..count {
            let mut java_owners = Vec::new();
            for client in &theirs {
                let mut owners = Vec::new();
                for thread in 0..THREADS {
                    owners.push(client.owner(&format!("s{set}t{thread}")).await);
                }
                java_owners.push(owners);
            }
            let version = java[0].version();
            let rust = ours.clone();
            let looks = version == Version::V3_16;
            sets.push(Self { server, version, rust, java: java_owners, patience, looks });
        }
        sets
    }

    /// Adds a client of ours that polls fair locks now and then; with Redisson 3.16 there is always
    /// one.
    #[must_use]
    pub fn looking(self) -> Self {
        Self { looks: true, ..self }
    }

    /// The Redisson version that plays.
    pub fn version(&self) -> Version {
        self.version
    }
}

pub(super) async fn rust_client(server: SocketAddr) -> Client {
    let url = format!("redis://{server}/");
    let config = Config::from_url(&url).expect("a URL").watchdog_lease(WATCHDOG);
    Client::with_config(config).await.expect("the server runs")
}

pub(super) async fn java_client(server: SocketAddr, java: &Java) -> JavaClient {
    let settings = Settings { watchdog: WATCHDOG, ..Settings::default() };
    java.client(server, settings).await
}

/// Plays a script, until every call has been answered or is known to get no answer.
///
/// # Panics
///
/// If a part panics.
pub async fn play(clients: &Clients, script: &Script, lock: &str) -> Played {
    let notes = Notes::new(lock, clients.patience);
    let mut parts = Vec::new();
    for part in script.parts.clone() {
        let notes = notes.clone();
        let server = clients.server;
        match part.who {
            Who::Rust { client } => {
                let client = clients.rust[client].clone();
                let game = script.game;
                parts.push(tokio::spawn(async move {
                    pause(part.begins_ms).await;
                    for turn in part.turns {
                        rust_turn(&client, game, server, turn, &notes).await;
                        pause(turn.pause_ms).await;
                    }
                }));
            }
            Who::Java { client, thread, kind } => {
                let owner = clients.java[client][thread].clone();
                let lock = lock.to_owned();
                parts.push(tokio::spawn(async move {
                    pause(part.begins_ms).await;
                    for turn in part.turns {
                        let mut lock = owner.lock(java_kind(kind, turn.share), &lock);
                        if turn.outstays {
                            // A separate object, since its short lease would otherwise apply to
                            // later calls without one.
                            lock = lock.apart();
                        }
                        let owner = turn.share.field(&owner.id);
                        java_turn(&lock, &owner, server, turn, &notes).await;
                        pause(turn.pause_ms).await;
                    }
                }));
            }
        }
    }
    let looks = clients.looks && script.game == Game::Fair;
    let looker = looks.then(|| Looker::start(clients.rust[0].clone(), &notes));
    for part in parts {
        part.await.expect("a part of the round");
    }
    if let Some(looker) = looker {
        looker.stop().await;
    }
    notes.take()
}

/// The kind of Java's lock, by what a turn asks for.
pub(super) fn java_kind(kind: Kind, share: Share) -> Kind {
    match share {
        Share::Whole => kind,
        Share::Read => Kind::Read,
        Share::Write => Kind::Write,
    }
}

/// One of our locks, as a turn asks for it.
enum Ours {
    Lock(Lock),
    Reads(RwLock),
    Writes(RwLock),
}

impl Ours {
    fn new(client: &Client, game: Game, name: &str, turn: Turn) -> Self {
        let lease = turn.lease_ms.map(Duration::from_millis);
        let lock = match (game, turn.share) {
            (_, Share::Whole) if game == Game::Plain => client.plain_lock(name),
            (_, Share::Whole) => client.fair_lock(name),
            (_, share) => {
                let mut lock = client.rw_lock(name);
                if let Some(lease) = lease {
                    lock = lock.lease(lease);
                }
                let reads = share == Share::Read;
                return if reads { Self::Reads(lock) } else { Self::Writes(lock) };
            }
        };
        Self::Lock(if let Some(lease) = lease { lock.lease(lease) } else { lock })
    }

    async fn lock(&self) -> Result<Guard, Error> {
        match self {
            Self::Lock(lock) => lock.lock().await,
            Self::Reads(lock) => lock.read().await.map(|guard| guard.into_guard()),
            Self::Writes(lock) => lock.write().await.map(|guard| guard.into_guard()),
        }
    }

    async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        match self {
            Self::Lock(lock) => lock.try_lock().await,
            Self::Reads(lock) => Ok(lock.try_read().await?.map(|guard| guard.into_guard())),
            Self::Writes(lock) => Ok(lock.try_write().await?.map(|guard| guard.into_guard())),
        }
    }

    async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        match self {
            Self::Lock(lock) => lock.try_lock_for(wait).await,
            Self::Reads(lock) => Ok(lock.try_read_for(wait).await?.map(|guard| guard.into_guard())),
            Self::Writes(lock) => {
                Ok(lock.try_write_for(wait).await?.map(|guard| guard.into_guard()))
            }
        }
    }

    /// Whether somebody held it.
    async fn force_unlock(&self) -> Result<bool, Error> {
        match self {
            Self::Lock(lock) => lock.force_unlock().await,
            Self::Reads(lock) | Self::Writes(lock) => Ok(lock.force_unlock().await? > 0),
        }
    }
}

async fn rust_turn(client: &Client, game: Game, server: SocketAddr, turn: Turn, notes: &Notes) {
    let lock = Ours::new(client, game, &notes.lock, turn);
    let since_ns = now_ns();
    let asked = tokio::time::timeout(notes.patience, async {
        match turn.how {
            How::Wait | How::WaitAsync => lock.lock().await.map(Some),
            How::Try => lock.try_lock().await,
            How::Timed { wait_ms } | How::TimedAsync { wait_ms } => {
                lock.try_lock_for(Duration::from_millis(wait_ms)).await
            }
            How::Cancelled { after_ms } => {
                let after = Duration::from_millis(after_ms);
                tokio::time::timeout(after, lock.lock()).await.map_or(Ok(None), |got| got.map(Some))
            }
            How::Force => {
                if lock.force_unlock().await? {
                    notes.forced(since_ns);
                }
                Ok(None)
            }
        }
    });
    match asked.await {
        Ok(Ok(Some(guard))) => {
            let owner = turn.share.field(&guard.owner().to_string());
            notes.waited(&owner, since_ns, now_ns());
            rust_hold(guard, server, turn, notes).await;
        }
        Ok(Ok(None)) => {}
        // The machine stood still for as long as the lease of 100 ms.
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseTooShort => {}
        Ok(Err(error)) => notes.problem(format!("ours, {turn:?}: {error}")),
        Err(_) => notes.problem(format!("ours has no answer: {turn:?}")),
    }
}

/// Holds the lock and releases it, as the turn says.
pub(super) async fn rust_hold(guard: Guard, server: SocketAddr, turn: Turn, notes: &Notes) {
    let owner = turn.share.field(&guard.owner().to_string());
    // The owner is new, so anything that happened to it happened in this turn.
    let mine = Mine { notes, owner: &owner, since_ns: 0 };
    let granted = Event::Granted { token: guard.token().get() };
    mine.record(now_ns(), granted);
    if turn.outstays {
        // It ends then, however late a busy machine lets the task notice.
        let over_ns = now_ns() + u64::try_from(guard.remaining().as_nanos()).expect("seconds");
        guard.lost().await;
        return mine.record(now_ns().min(over_ns), Event::Lost);
    }
    if turn.reenters {
        match guard.reenter().await {
            Ok(again) => {
                mine.record(now_ns(), granted);
                // The lock counts our readers once, whatever they have entered.
                mine.count_is(server, if turn.share == Share::Read { 1 } else { 2 });
                pause(turn.hold_ms).await;
                release(again, Release::StillHeld(1), mine).await;
                mine.count_is(server, 1);
            }
            Err(error) => mine.problem(format!("{owner} does not re-enter: {error}")),
        }
    } else {
        pause(turn.hold_ms).await;
    }
    release(guard, Release::Released, mine).await;
}

async fn release(guard: Guard, expected: Release, mine: Mine<'_>) {
    mine.record(now_ns(), Event::Released);
    match guard.release().await {
        Ok(release) if release == expected => {}
        other => mine.problem(format!("{}: release gives {other:?}, not {expected:?}", mine.owner)),
    }
}

/// A client of ours that polls the lock now and then. A fair waiter of Redisson 3.16 that is not
/// notified sleeps for as long as its turn was away, which is minutes, and Java notifies nobody
/// when a lease ends or a head gives up. Any request of ours notifies the head.
pub(super) struct Looker {
    ended: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Looker {
    pub(super) fn start(client: Client, notes: &Notes) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (notes, seen) = (notes.clone(), Arc::clone(&ended));
        let lock = client.fair_lock(&notes.lock);
        let task = tokio::spawn(async move {
            while !seen.load(Ordering::Relaxed) {
                pause(LOOK_MS).await;
                look(&lock, &notes).await;
            }
        });
        Self { ended, task }
    }

    pub(super) async fn stop(self) {
        self.ended.store(true, Ordering::Relaxed);
        self.task.await.expect("the one that looks");
    }
}

async fn look(lock: &Lock, notes: &Notes) {
    match lock.try_lock().await {
        Ok(Some(guard)) => {
            let owner = guard.owner().to_string();
            let mine = Mine { notes, owner: &owner, since_ns: 0 };
            let token = guard.token().get();
            mine.record(now_ns(), Event::Granted { token });
            release(guard, Release::Released, mine).await;
        }
        Ok(None) => {}
        Err(error) => notes.problem(format!("the one that looks: {error}")),
    }
}

async fn java_turn(lock: &JavaLock, owner: &str, server: SocketAddr, turn: Turn, notes: &Notes) {
    let since_ns = now_ns();
    let lease_ms = turn.lease_ms.map(|ms| i64::try_from(ms).expect("seconds"));
    let wait = |wait_ms: u64| i64::try_from(wait_ms).expect("milliseconds");
    let lease: Vec<_> = lease_ms.into_iter().collect();
    let mut call = match turn.how {
        How::Wait | How::Cancelled { .. } => lock.call("lock", &lease),
        How::WaitAsync => lock.call("lockAsync", &lease),
        How::Try => lock.try_lock(),
        How::Timed { wait_ms } => lock.try_lock_for(wait(wait_ms), lease_ms),
        How::TimedAsync { wait_ms } => lock.try_lock_for_async(wait(wait_ms), lease_ms),
        How::Force => lock.force_unlock(),
    };
    let Some(answer) = call.answer_within(notes.patience).await else {
        return notes.unanswered(owner, format!("Java's {owner} has no answer: {turn:?}"));
    };
    match answer.result.as_deref() {
        Ok("true") if matches!(turn.how, How::Force) => return notes.forced(since_ns),
        Ok("-" | "true") => notes.waited(owner, answer.began_ns, answer.ended_ns),
        Ok(_) => return notes.java_gave_up(answer.ended_ns),
        Err(error) if failed_by_itself(error) => {
            return notes.spoiled(format!("Java's {owner}, {turn:?}: {error}"));
        }
        Err(error) => return notes.problem(format!("Java's {owner}, {turn:?}: {error}")),
    }
    let mine = Mine { notes, owner, since_ns };
    java_hold(lock, answer.ended_ns, server, turn, mine).await;
}

/// An asynchronous wait that times out before it is subscribed fails instead of giving up, and its
/// entry stays in the queue. A thread of Redisson 3.16 that waits right after giving up may also
/// find its subscription cancelled by its former wait; then the entry that stays has a subscriber.
fn failed_by_itself(error: &str) -> bool {
    ["Unable to acquire subscription lock", "java.util.concurrent.CancellationException"]
        .iter()
        .any(|told| error.contains(told))
}

/// Holds the lock and releases it, as the turn says.
pub(super) async fn java_hold(
    lock: &JavaLock,
    granted_ns: u64,
    server: SocketAddr,
    turn: Turn,
    mine: Mine<'_>,
) {
    // Java's plain and fair locks have no tokens; this one is ignored.
    let granted = Event::Granted { token: 0 };
    mine.record(granted_ns, granted);
    // tryLock() takes no lease.
    if turn.outstays && !matches!(turn.how, How::Try) {
        // Its end is among the steps of the server.
        return pause(turn.hold_ms).await;
    }
    if turn.reenters {
        let lease: Vec<_> =
            turn.lease_ms.map(|ms| i64::try_from(ms).expect("seconds")).into_iter().collect();
        match lock.call("lock", &lease).answer_within(mine.notes.patience).await {
            Some(Answer { ended_ns, result: Ok(_), .. }) => mine.record(ended_ns, granted),
            other => mine.problem(format!("Java's {} does not re-enter: {other:?}", mine.owner)),
        }
        mine.count_is(server, 2);
        pause(turn.hold_ms).await;
        unlock(lock, turn, mine).await;
        mine.count_is(server, 1);
    } else {
        pause(turn.hold_ms).await;
    }
    unlock(lock, turn, mine).await;
}

async fn unlock(lock: &JavaLock, turn: Turn, mine: Mine<'_>) {
    let mut call = if turn.unlocks_async { lock.unlock_async() } else { lock.unlock() };
    match call.answer_within(mine.notes.patience).await {
        Some(answer) => {
            mine.record(answer.began_ns, Event::Released);
            if let Err(error) = answer.result {
                mine.problem(format!("Java's {} does not unlock: {error}", mine.owner));
            }
        }
        None => mine.problem(format!("Java's {} does not unlock", mine.owner)),
    }
}

pub(super) async fn pause(ms: u64) {
    // The rounds are about time.
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
