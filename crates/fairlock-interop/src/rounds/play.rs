//! A script is played, and everybody notes what it saw.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairlock::{Client, Config, Guard, Release};
use fairlock_testkit::history::{Event, Record, now_ns};
use fairlock_testkit::raw::Raw;

use super::script::{How, Script, Turn, Who};
use crate::java::{Java, JavaClient, JavaLock, JavaOwner, Settings};
use crate::version::Version;

/// How long a hold without a lease lasts that nobody renews. Short, since a Java waiter that nobody
/// tells sleeps for as long.
const WATCHDOG: Duration = Duration::from_secs(3);
/// Who has no answer by then has none coming: all holds and sleeps have ended three times.
const ANSWERED_WITHIN: Duration = Duration::from_secs(12);
/// See [`look`].
const LOOK_MS: u64 = 200;
/// Clients on each side, and threads of each Java client.
const CLIENTS: usize = 2;
const THREADS: usize = 10;

/// The clients that play all rounds.
#[derive(Debug)]
pub struct Stage {
    server: SocketAddr,
    version: Version,
    rust: Vec<Client>,
    java: Vec<Vec<JavaOwner>>,
}

/// What was seen in a round.
#[derive(Debug, Default)]
pub struct Played {
    /// Grants and releases, as the callers saw them.
    pub records: Vec<Record>,
    /// What went wrong on the way.
    pub problems: Vec<String>,
}

/// Where the parts write.
#[derive(Clone)]
struct Notes {
    lock: String,
    played: Arc<Mutex<Played>>,
}

impl Stage {
    /// Makes the clients.
    ///
    /// # Panics
    ///
    /// If they cannot connect.
    pub async fn new(server: SocketAddr, java: &Java) -> Self {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..CLIENTS {
            let url = format!("redis://{server}/");
            let config = Config::from_url(&url).expect("a URL").watchdog_lease(WATCHDOG);
            ours.push(Client::with_config(config).await.expect("the server runs"));
            let settings = Settings { watchdog: WATCHDOG, ..Settings::default() };
            theirs.push(owners(&java.client(server, settings).await).await);
        }
        Self { server, version: java.version(), rust: ours, java: theirs }
    }

    /// Which Redisson plays.
    pub fn version(&self) -> Version {
        self.version
    }
}

async fn owners(client: &JavaClient) -> Vec<JavaOwner> {
    let mut owners = Vec::new();
    for thread in 0..THREADS {
        owners.push(client.owner(&format!("t{thread}")).await);
    }
    owners
}

/// Plays a script; ready when every call has been answered, or is known not to be.
///
/// # Panics
///
/// If a part panics.
pub async fn play(stage: &Stage, script: &Script, lock: &str) -> Played {
    let notes = Notes { lock: lock.to_owned(), played: Arc::default() };
    let mut parts = Vec::new();
    for part in script.parts.clone() {
        let notes = notes.clone();
        let server = stage.server;
        match part.who {
            Who::Rust { client } => {
                let client = stage.rust[client].clone();
                let is_fair = script.is_fair;
                parts.push(tokio::spawn(async move {
                    pause(part.begins_ms).await;
                    for turn in part.turns {
                        rust_turn(&client, is_fair, server, turn, &notes).await;
                        pause(turn.pause_ms).await;
                    }
                }));
            }
            Who::Java { client, thread, kind } => {
                let owner = stage.java[client][thread].clone();
                let lock = owner.lock(kind, lock);
                parts.push(tokio::spawn(async move {
                    pause(part.begins_ms).await;
                    for turn in part.turns {
                        java_turn(&lock, &owner.id, server, turn, &notes).await;
                        pause(turn.pause_ms).await;
                    }
                }));
            }
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let looker = (stage.version == Version::V3_16 && script.is_fair)
        .then(|| tokio::spawn(look(stage.rust[0].clone(), notes.clone(), Arc::clone(&ended))));
    for part in parts {
        part.await.expect("a part of the round");
    }
    ended.store(true, Ordering::Relaxed);
    if let Some(looker) = looker {
        looker.await.expect("the one that looks");
    }
    let mut played = notes.played.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *played)
}

async fn rust_turn(client: &Client, is_fair: bool, server: SocketAddr, turn: Turn, notes: &Notes) {
    let name = &notes.lock;
    let mut lock = if is_fair { client.fair_lock(name) } else { client.plain_lock(name) };
    if let Some(lease_ms) = turn.lease_ms {
        lock = lock.lease(Duration::from_millis(lease_ms));
    }
    let asked = tokio::time::timeout(ANSWERED_WITHIN, async {
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
        }
    });
    let guard = match asked.await {
        Ok(Ok(Some(guard))) => guard,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => return notes.problem(format!("ours, {turn:?}: {error}")),
        Err(_) => return notes.problem(format!("ours has no answer: {turn:?}")),
    };
    let owner = guard.owner().to_string();
    let granted = Event::Granted { token: guard.token().get() };
    notes.record(&owner, now_ns(), granted);
    if turn.outstays {
        guard.lost().await;
        return notes.record(&owner, now_ns(), Event::Lost);
    }
    if turn.reenters {
        match guard.reenter().await {
            Ok(again) => {
                notes.record(&owner, now_ns(), granted);
                notes.count_is(server, &owner, 2);
                pause(turn.hold_ms).await;
                release(again, Release::StillHeld(1), &owner, notes).await;
                notes.count_is(server, &owner, 1);
            }
            Err(error) => notes.problem(format!("{owner} does not re-enter: {error}")),
        }
    } else {
        pause(turn.hold_ms).await;
    }
    release(guard, Release::Released, &owner, notes).await;
}

/// One of ours that looks at the lock now and then. A fair waiter of Redisson 3.16 that nobody tells sleeps
/// for as long as its turn was away, which is minutes, and Java tells nobody when a lease ends or a head
/// gives up. Whatever ours asks for tells the head.
async fn look(client: Client, notes: Notes, ended: Arc<AtomicBool>) {
    let lock = client.fair_lock(&notes.lock);
    while !ended.load(Ordering::Relaxed) {
        pause(LOOK_MS).await;
        match lock.try_lock().await {
            Ok(Some(guard)) => {
                let owner = guard.owner().to_string();
                let token = guard.token().get();
                notes.record(&owner, now_ns(), Event::Granted { token });
                release(guard, Release::Released, &owner, &notes).await;
            }
            Ok(None) => {}
            Err(error) => notes.problem(format!("the one that looks: {error}")),
        }
    }
}

async fn release(guard: Guard, expected: Release, owner: &str, notes: &Notes) {
    notes.record(owner, now_ns(), Event::Released);
    match guard.release().await {
        Ok(release) if release == expected => {}
        other => notes.problem(format!("{owner}: release gives {other:?}, not {expected:?}")),
    }
}

async fn java_turn(lock: &JavaLock, owner: &str, server: SocketAddr, turn: Turn, notes: &Notes) {
    let lease_ms = turn.lease_ms.map(|ms| i64::try_from(ms).expect("seconds"));
    let wait = |wait_ms: u64| i64::try_from(wait_ms).expect("milliseconds");
    let lease: Vec<_> = lease_ms.into_iter().collect();
    let mut call = match turn.how {
        How::Wait | How::Cancelled { .. } => lock.call("lock", &lease),
        How::WaitAsync => lock.call("lockAsync", &lease),
        How::Try => lock.try_lock(),
        How::Timed { wait_ms } => lock.try_lock_for(wait(wait_ms), lease_ms),
        How::TimedAsync { wait_ms } => lock.try_lock_for_async(wait(wait_ms), lease_ms),
    };
    let Some(answer) = call.answer_within(ANSWERED_WITHIN).await else {
        return notes.problem(format!("Java's {owner} has no answer: {turn:?}"));
    };
    match answer.result.as_deref() {
        Ok("-" | "true") => {}
        Ok(_) => return,
        Err(error) => return notes.problem(format!("Java's {owner}, {turn:?}: {error}")),
    }
    // Java's plain and fair locks have no tokens; nobody looks at this one.
    let granted = Event::Granted { token: 0 };
    notes.record(owner, answer.ended_ns, granted);
    // A lease is not a parameter of tryLock().
    if turn.outstays && !matches!(turn.how, How::Try) {
        // Its end is in what the server did.
        return pause(turn.hold_ms).await;
    }
    if turn.reenters {
        match lock.call("lock", &lease).answer_within(ANSWERED_WITHIN).await {
            Some(answer) => notes.record(owner, answer.ended_ns, granted),
            None => notes.problem(format!("Java's {owner} does not re-enter")),
        }
        notes.count_is(server, owner, 2);
        pause(turn.hold_ms).await;
        unlock(lock, owner, notes).await;
        notes.count_is(server, owner, 1);
    } else {
        pause(turn.hold_ms).await;
    }
    unlock(lock, owner, notes).await;
}

async fn unlock(lock: &JavaLock, owner: &str, notes: &Notes) {
    match lock.unlock().answer_within(ANSWERED_WITHIN).await {
        Some(answer) => {
            notes.record(owner, answer.began_ns, Event::Released);
            if let Err(error) = answer.result {
                notes.problem(format!("Java's {owner} does not unlock: {error}"));
            }
        }
        None => notes.problem(format!("Java's {owner} does not unlock")),
    }
}

impl Notes {
    fn record(&self, owner: &str, at_ns: u64, event: Event) {
        let (lock, owner) = (self.lock.clone(), owner.to_owned());
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        played.records.push(Record { lock, owner, at_ns, event });
    }

    fn problem(&self, what: String) {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        played.problems.push(what);
    }

    fn count_is(&self, server: SocketAddr, owner: &str, count: i64) {
        let found = Raw::connect(server).call(&["HGET", &self.lock, owner]);
        let is = if found.is_nil() { 0 } else { found.text().parse().unwrap_or(-1) };
        if is != count {
            self.problem(format!("{owner} is in {is} times, and should be in {count} times"));
        }
    }
}

async fn pause(ms: u64) {
    // Time is what these are about.
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// How often each owner was granted the lock, as it saw it.
pub(super) fn grants(played: &Played) -> HashMap<&str, usize> {
    let mut grants = HashMap::new();
    for record in &played.records {
        if matches!(record.event, Event::Granted { .. }) {
            *grants.entry(record.owner.as_str()).or_default() += 1;
        }
    }
    grants
}
