//! Rounds in which clients are killed. The order of the queue, which clients die, and when, are
//! derived from the seed. All others must be served, in order.
//!
//! A live Java waiter behind a dead one would wait for minutes, because Redisson lets only the head
//! take a free lock; so the live ones behind it are ours.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_testkit::history::{Event, Record, now_ns};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::queue_key;
use fairlock_testkit::server::Server;
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};

use super::notes::{Mine, Notes, Played};
use super::play::{Looker, java_client, java_hold, pause, rust_client, rust_hold};
use super::script::{Dice, How, Turn};
use crate::java::{Call, Java, JavaClient, JavaLock, SOON};
use crate::watch::{Step, What, is_java};
use crate::worker::Worker;

/// A call without an answer by then gets none: passing a dead Java head takes 8 s, a dead holder
/// its lease, and dead waiters of ours 6 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(40);
/// The lease of the holders that die; the watchdogs of the others renew.
const DOOMED_LEASE: Duration = Duration::from_secs(2);
/// The wait time of a Java waiter that dies; it dies before it is over.
const DOOMED_WAIT_MS: i64 = 6000;
/// Releases and deaths happen within this time after all are in the queue.
const WITHIN_MS: u64 = 600;

/// A round.
#[derive(Clone, Debug)]
pub struct Deaths {
    /// The seed it is derived from.
    pub seed: u64,
    /// The first holds the lock; the others wait in this order.
    pub players: Vec<Player>,
}

/// See [`Deaths`].
#[derive(Clone, Copy, Debug)]
pub struct Player {
    /// Whether it is a Java client.
    pub is_java: bool,
    /// When it is killed, in milliseconds after all are in the queue; Java clients die together.
    pub dies_ms: Option<u64>,
    /// Whether it re-enters, if it lives long enough.
    pub reenters: bool,
    /// How long it holds the lock.
    pub hold_ms: u64,
}

impl Deaths {
    /// The round of a seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut players: Vec<Player> = Vec::new();
        let count = 4 + dice.below(8);
        for n in 0..=count {
            let after_dead_java = players.iter().any(|player| player.is_java && player.dies());
            let mut is_java = dice.below(2) == 0;
            let dies_ms = (dice.below(5) < 2).then(|| dice.below(WITHIN_MS));
            is_java &= dies_ms.is_some() || !after_dead_java;
            let hold_ms = if n == 0 { dice.below(WITHIN_MS) } else { dice.below(10) };
            let reenters = dice.below(4) == 0;
            players.push(Player { is_java, dies_ms, reenters, hold_ms });
        }
        // At least one client is left to be served.
        let last = players.last_mut().expect("four at least");
        (last.is_java, last.dies_ms) = (false, None);
        Self { seed, players }
    }

    /// The name of its lock.
    pub fn lock(&self) -> String {
        format!("deaths-{}", self.seed)
    }

    /// The number of calls in it, as far as it is known.
    pub fn calls(&self) -> usize {
        let calls = |player: &Player| match (player.dies(), player.reenters) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 4,
        };
        self.players.iter().map(calls).sum()
    }

    /// Adds what the killed clients were granted, which only the server knows.
    pub fn add_the_doomed(&self, played: &mut Played, steps: &[Step]) {
        let dead = played.dead();
        for step in steps.iter().filter(|step| dead.contains(&step.owner)) {
            let event = match step.what {
                What::Holds => Event::Granted { token: 0 },
                What::Frees { by_time: true } if !is_java(&step.owner) => Event::Lost,
                _ => continue,
            };
            let (lock, owner, at_ns) = (self.lock(), step.owner.clone(), step.at_ns);
            played.records.push(Record { lock, owner, at_ns, event });
        }
    }
}

impl Player {
    fn dies(&self) -> bool {
        self.dies_ms.is_some()
    }

    fn turn(&self) -> Turn {
        Turn {
            how: How::Wait,
            lease_ms: None,
            hold_ms: self.hold_ms,
            reenters: self.reenters,
            outstays: false,
            unlocks_async: false,
            pause_ms: 0,
        }
    }
}

/// One line for each player.
impl fmt::Display for Deaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.players.iter().try_for_each(|player| write!(f, "\n    {player:?}"))
    }
}

/// Plays the rounds of these seeds concurrently: all Java clients that die are in one JVM.
///
/// # Panics
///
/// If server, JVM or workers do not work.
pub async fn play(
    server: &Server,
    java: &Java,
    worker: &Path,
    seeds: &[u64],
) -> Vec<(Deaths, Played)> {
    let doomed = Java::start(java.version()).expect("the other one runs");
    let context = Arc::new(Context {
        url: server.url(),
        raw: server.addr(),
        worker: worker.to_owned(),
        rust: rust_client(server.addr()).await,
        java: java_client(server.addr(), java).await,
        doomed: java_client(server.addr(), &doomed).await,
        // All rounds, and the task that kills the JVM.
        all_stand: Barrier::new(seeds.len() + 1),
        java_dies: Barrier::new(seeds.len() + 1),
        java_is_dead: Barrier::new(seeds.len() + 1),
    });
    let mut rounds = JoinSet::new();
    for &seed in seeds {
        let context = Arc::clone(&context);
        rounds.spawn(async move { round(&context, Deaths::new(seed)).await });
    }
    context.all_stand.wait().await;
    pause(WITHIN_MS / 2).await;
    // Their deaths are noted before they die.
    context.java_dies.wait().await;
    doomed.kill9();
    context.java_is_dead.wait().await;
    rounds.join_all().await
}

/// State shared by the rounds of one JVM.
struct Context {
    url: String,
    raw: std::net::SocketAddr,
    worker: std::path::PathBuf,
    rust: Client,
    java: JavaClient,
    doomed: JavaClient,
    all_stand: Barrier,
    java_dies: Barrier,
    java_is_dead: Barrier,
}

async fn round(context: &Context, deaths: Deaths) -> (Deaths, Played) {
    let notes = Notes::new(&deaths.lock(), ANSWERED_WITHIN);
    let (mut living, mut workers, mut java) = (Vec::new(), Vec::new(), Vec::new());
    // The calls of the doomed JVM get no answers, and are kept until it is dead.
    let mut unanswered = Vec::new();
    let begin = Arc::new(tokio::sync::Notify::new());
    for (n, player) in deaths.players.iter().copied().enumerate() {
        let begin = (n == 0).then(|| Arc::clone(&begin));
        let thread = format!("{}-{n}", deaths.seed);
        match (player.is_java, player.dies_ms) {
            (false, None) => living.push(ours(context, player, begin, &notes).await),
            (true, None) => {
                let owner = context.java.owner(&thread).await;
                let lock = owner.fair(&notes.lock);
                let mut call = lock.lock();
                stands(context, &notes.lock, &owner.id, &mut call).await;
                living.push(javas(context, player, begin, (lock, owner.id), call, &notes));
            }
            (false, Some(dies_ms)) => {
                let lock = &notes.lock;
                let worker = Worker::start(&context.worker, &context.url, lock, DOOMED_LEASE).await;
                workers.push((worker, dies_ms));
            }
            (true, Some(_)) => {
                let owner = context.doomed.owner(&thread).await;
                let lease_ms = i64::try_from(DOOMED_LEASE.as_millis()).expect("seconds");
                let lock = owner.fair(&notes.lock);
                let mut call = lock.try_lock_for(DOOMED_WAIT_MS, Some(lease_ms));
                stands(context, &notes.lock, &owner.id, &mut call).await;
                unanswered.push(call);
                java.push(owner.id);
            }
        }
    }
    context.all_stand.wait().await;
    begin.notify_one();
    let looker = Looker::start(context.rust.clone(), &notes);
    let dying: Vec<_> = workers.into_iter().map(|worker| dies(worker, &notes)).collect();
    context.java_dies.wait().await;
    for owner in &java {
        notes.record(owner, now_ns(), Event::Died);
    }
    context.java_is_dead.wait().await;
    for task in living.into_iter().chain(dying) {
        task.await.expect("a part of the round");
    }
    looker.stop().await;
    (deaths, notes.take())
}

/// A live client of ours: it enters, and holds the lock in its turn; the first one holds it until
/// it is told to begin.
async fn ours(
    context: &Context,
    player: Player,
    begin: Option<Arc<tokio::sync::Notify>>,
    notes: &Notes,
) -> JoinHandle<()> {
    let lock = context.rust.fair_lock(&notes.lock);
    let mut turn = lock.enqueue().await.expect("a place in the queue");
    let (notes, server) = (notes.clone(), context.raw);
    tokio::spawn(async move {
        match tokio::time::timeout(notes.patience, turn.wait()).await {
            Ok(Ok(guard)) => {
                if let Some(begin) = begin {
                    begin.notified().await;
                }
                rust_hold(guard, server, player.turn(), &notes).await;
            }
            Ok(Err(error)) => notes.problem(format!("ours, {player:?}: {error}")),
            Err(_) => notes.problem(format!("ours has no answer: {player:?}")),
        }
    })
}

/// The same for a Java client.
fn javas(
    context: &Context,
    player: Player,
    begin: Option<Arc<tokio::sync::Notify>>,
    (lock, owner): (JavaLock, String),
    mut call: Call,
    notes: &Notes,
) -> JoinHandle<()> {
    let (notes, server) = (notes.clone(), context.raw);
    tokio::spawn(async move {
        let since_ns = now_ns();
        let Some(answer) = call.answer_within(notes.patience).await else {
            return notes.problem(format!("Java's {owner} has no answer"));
        };
        if let Err(error) = answer.result {
            return notes.problem(format!("Java's {owner}: {error}"));
        }
        if let Some(begin) = begin {
            begin.notified().await;
        }
        let mine = Mine { notes: &notes, owner: &owner, since_ns };
        java_hold(&lock, answer.ended_ns, server, player.turn(), mine).await;
    })
}

fn dies((worker, dies_ms): (Worker, u64), notes: &Notes) -> JoinHandle<()> {
    let notes = notes.clone();
    tokio::spawn(async move {
        pause(dies_ms).await;
        notes.record(&worker.owner, now_ns(), Event::Died);
        worker.kill9();
    })
}

/// Waits until a Java call has entered the queue or acquired the lock.
async fn stands(context: &Context, lock: &str, owner: &str, call: &mut Call) {
    let mut raw = Raw::connect(context.raw);
    let deadline = Instant::now() + SOON;
    loop {
        let queue = raw.call(&["LRANGE", &queue_key(lock), "0", "-1"]);
        let waits = queue.array().iter().any(|other| other.text() == owner);
        if waits || call.is_over() || raw.call(&["HEXISTS", lock, owner]).int() == 1 {
            return;
        }
        assert!(Instant::now() < deadline, "{owner} does not enter the queue of {lock}");
        pause(2).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_death_comes_up_and_nobody_waits_in_vain() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..500 {
            let players = Deaths::new(seed).players;
            assert_eq!(format!("{players:?}"), format!("{:?}", Deaths::new(seed).players));
            let last = players.len() - 1;
            for (n, player) in players.iter().enumerate() {
                let place = match n {
                    0 => "holds",
                    1 => "head",
                    _ if n < last => "middle",
                    _ => "tail",
                };
                seen.insert((place, player.is_java, player.dies()));
                let dead_java = |other: &Player| other.is_java && other.dies();
                let before = players[..n].iter().any(dead_java);
                assert!(!(before && player.is_java && !player.dies()), "{players:?}");
            }
        }
        for place in ["holds", "head", "middle"] {
            for is_java in [false, true] {
                for dies in [false, true] {
                    assert!(seen.contains(&(place, is_java, dies)), "{place} {is_java} {dies}");
                }
            }
        }
    }
}
