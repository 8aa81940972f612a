//! Rounds in which clients are killed. The order of the queue, which clients die, and when, are
//! derived from the seed. All others must be served, in order.
//!
//! A live Java waiter behind a dead one would wait for minutes for a fair lock, because Redisson lets
//! only the head take a free lock; so the live ones behind it are ours. Of a read-write lock Java's
//! waiters stand in no line.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_testkit::history::{Event, Record, now_ns};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::redisson::{queue_key, read_write_channel};
use fairlock_testkit::server::Server;
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};

use super::latches::{Does, finish, java_does, ours_does};
use super::notes::{LatchSeen, Mine, Notes, Played};
use super::play::{Looker, java_client, java_hold, java_kind, pause, rust_client, rust_hold};
use super::script::{Dice, Game, How, Share, Turn};
use crate::java::{Call, Java, JavaClient, JavaLock, Kind, SOON};
use crate::watch::{Step, What, is_java};
use crate::worker::{Asks, Worker};

/// A call without an answer by then gets none: passing a dead Java head takes 8 s, a dead holder
/// its lease, and dead waiters of ours 6 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(40);
/// The lease of the holders that die; the watchdogs of the others renew.
const DOOMED_LEASE: Duration = Duration::from_secs(2);
/// The wait time of a Java waiter that dies; it dies before it is over.
const DOOMED_WAIT_MS: i64 = 6000;
/// What a latch is set to, and how often those who die count it down.
const LATCH_COUNT: u64 = 500;
const COUNTS_EACH_MS: u64 = 20;
/// Releases and deaths happen within this time after all are in the queue.
const WITHIN_MS: u64 = 600;

/// A round.
#[derive(Clone, Debug)]
pub struct Deaths {
    /// The seed it is derived from.
    pub seed: u64,
    /// A fair lock, a read-write lock, or a latch.
    pub game: Game,
    /// The first holds the lock; the others wait in this order.
    pub players: Vec<Player>,
}

/// See [`Deaths`].
#[derive(Clone, Copy, Debug)]
pub struct Player {
    /// Whether it is a Java client.
    pub is_java: bool,
    /// What it asks for.
    pub share: Share,
    /// When it is killed, in milliseconds after all are in the queue; Java clients die together.
    pub dies_ms: Option<u64>,
    /// Whether it re-enters, if it lives long enough.
    pub reenters: bool,
    /// How long it holds the lock.
    pub hold_ms: u64,
}

impl Deaths {
    /// The round of a seed.
    pub fn new(seed: u64, game: Game) -> Self {
        let mut dice = Dice(seed);
        let is_fair = game == Game::Fair;
        let mut players: Vec<Player> = Vec::new();
        let count = 4 + dice.below(8);
        for n in 0..=count {
            let after_dead_java = players.iter().any(|player| player.is_java && player.dies());
            let mut is_java = dice.below(2) == 0;
            let dies_ms = (dice.below(5) < 2).then(|| dice.below(WITHIN_MS));
            is_java &= dies_ms.is_some() || !after_dead_java || !is_fair;
            let hold_ms = if n == 0 { dice.below(WITHIN_MS) } else { dice.below(10) };
            let reenters = dice.below(4) == 0;
            let share = match is_fair {
                true => Share::Whole,
                false if dice.below(2) == 0 => Share::Read,
                false => Share::Write,
            };
            players.push(Player { is_java, share, dies_ms, reenters, hold_ms });
        }
        // At least one client is left to be served.
        let last = players.last_mut().expect("four at least");
        (last.is_java, last.dies_ms) = (false, None);
        Self { seed, game, players }
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
            share: self.share,
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
        write!(f, "{}", self.game.name())?;
        self.players.iter().try_for_each(|player| write!(f, "\n    {player:?}"))
    }
}

/// Plays these rounds concurrently: all Java clients that die are in one JVM.
///
/// # Panics
///
/// If server, JVM or workers do not work.
pub async fn play(
    server: &Server,
    java: &Java,
    worker: &Path,
    all: Vec<Deaths>,
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
        all_stand: Barrier::new(all.len() + 1),
        java_dies: Barrier::new(all.len() + 1),
        java_is_dead: Barrier::new(all.len() + 1),
    });
    let mut rounds = JoinSet::new();
    for deaths in all {
        let context = Arc::clone(&context);
        rounds.spawn(async move {
            match deaths.game {
                Game::Latch => latch_round(&context, deaths).await,
                _ => round(&context, deaths).await,
            }
        });
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
                let lock = owner.lock(java_kind(Kind::Fair, player.share), &notes.lock);
                let mut call = lock.lock();
                stands(context, &notes.lock, player.share, &owner.id, &mut call).await;
                let field = player.share.field(&owner.id);
                living.push(javas(context, player, begin, (lock, field), call, &notes));
            }
            (false, Some(dies_ms)) => {
                let (program, url, asks) = (&context.worker, &context.url, Asks::of(player.share));
                let lock = &notes.lock;
                let worker = Worker::asking(program, url, lock, DOOMED_LEASE, asks).await;
                workers.push((worker, player.share, dies_ms));
            }
            (true, Some(_)) => {
                let owner = context.doomed.owner(&thread).await;
                let lease_ms = i64::try_from(DOOMED_LEASE.as_millis()).expect("seconds");
                let lock = owner.lock(java_kind(Kind::Fair, player.share), &notes.lock);
                let mut call = lock.try_lock_for(DOOMED_WAIT_MS, Some(lease_ms));
                stands(context, &notes.lock, player.share, &owner.id, &mut call).await;
                unanswered.push(call);
                java.push(player.share.field(&owner.id));
            }
        }
    }
    context.all_stand.wait().await;
    begin.notify_one();
    let is_fair = deaths.game == Game::Fair;
    let looker = is_fair.then(|| Looker::start(context.rust.clone(), &notes));
    let dying: Vec<_> = workers.into_iter().map(|worker| dies(worker, &notes)).collect();
    context.java_dies.wait().await;
    for owner in &java {
        notes.record(owner, now_ns(), Event::Died);
    }
    context.java_is_dead.wait().await;
    for task in living.into_iter().chain(dying) {
        task.await.expect("a part of the round");
    }
    if let Some(looker) = looker {
        looker.stop().await;
    }
    (deaths, notes.take())
}

/// Those who die count a latch down until they do, and wait for it. The others wait; when all are dead
/// one of each side counts down what is left.
async fn latch_round(context: &Context, deaths: Deaths) -> (Deaths, Played) {
    let notes = Notes::new(&deaths.lock(), ANSWERED_WITHIN);
    let ours = context.rust.latch(&notes.lock);
    let thread = |n| format!("{}-{n}", deaths.seed);
    let last = context.java.owner(&thread(deaths.players.len())).await;
    let theirs = last.lock(Kind::Latch, &notes.lock);
    let is_set = ours.try_set(LATCH_COUNT).await.expect("the server runs");
    notes.latch(LatchSeen::new(LATCH_COUNT, [is_set, false]));
    let (mut living, mut workers, mut doomed, mut waits) = (vec![], vec![], vec![], vec![]);
    for (n, player) in deaths.players.iter().enumerate() {
        let (notes, name) = (notes.clone(), deaths.lock());
        match (player.is_java, player.dies_ms) {
            (false, None) => {
                let latch = ours.clone();
                living.push(tokio::spawn(async move {
                    ours_does(&latch, Does::Waits, &notes).await;
                }));
            }
            (true, None) => {
                let latch = context.java.owner(&thread(n)).await.lock(Kind::Latch, &name);
                living.push(tokio::spawn(async move {
                    java_does(&latch, Does::Waits, &notes).await;
                }));
            }
            (false, Some(dies_ms)) => {
                let (program, url) = (&context.worker, &context.url);
                let worker = Worker::asking(program, url, &name, DOOMED_LEASE, Asks::Latch).await;
                workers.push((worker, dies_ms));
            }
            (true, Some(_)) => {
                let waiting = context.doomed.owner(&thread(n)).await;
                waits.push(waiting.lock(Kind::Latch, &name).call("await", &[]));
                let counting = context.doomed.owner(&format!("{}-counts", thread(n))).await;
                doomed.push(counting.lock(Kind::Latch, &name));
            }
        }
    }
    context.all_stand.wait().await;
    let kill = |(worker, dies_ms): (Worker, u64)| {
        tokio::spawn(async move {
            pause(dies_ms).await;
            worker.kill9();
        })
    };
    let dying: Vec<_> = workers.into_iter().map(kill).collect();
    // Its calls are in flight when it dies, and get no answers.
    let counting = tokio::spawn(async move {
        let mut calls = Vec::new();
        while calls.len() < usize::try_from(LATCH_COUNT).expect("a few") && !doomed.is_empty() {
            pause(COUNTS_EACH_MS).await;
            calls.extend(doomed.iter().map(|latch| latch.call("countDown", &[])));
        }
    });
    context.java_dies.wait().await;
    context.java_is_dead.wait().await;
    counting.abort();
    for task in dying {
        task.await.expect("a part of the round");
    }
    finish(&ours, &theirs, &notes).await;
    for task in living {
        task.await.expect("a part of the round");
    }
    drop(waits);
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
    let shared = context.rust.rw_lock(&notes.lock);
    let turn = match player.share {
        Share::Whole => context.rust.fair_lock(&notes.lock).enqueue().await,
        Share::Read => shared.enqueue_read().await,
        Share::Write => shared.enqueue_write().await,
    };
    let mut turn = turn.expect("a place in the queue");
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

fn dies((worker, share, dies_ms): (Worker, Share, u64), notes: &Notes) -> JoinHandle<()> {
    let notes = notes.clone();
    tokio::spawn(async move {
        pause(dies_ms).await;
        notes.record(&share.field(&worker.owner), now_ns(), Event::Died);
        worker.kill9();
    })
}

/// Waits until a Java call has entered the queue or acquired the lock. Of its waiters for a
/// read-write lock only a subscription tells, which those of one client share.
async fn stands(context: &Context, lock: &str, share: Share, owner: &str, call: &mut Call) {
    let mut raw = Raw::connect(context.raw);
    let deadline = Instant::now() + SOON;
    loop {
        let waits = match share {
            Share::Whole => {
                let queue = raw.call(&["LRANGE", &queue_key(lock), "0", "-1"]);
                queue.array().iter().any(|other| other.text() == owner)
            }
            _ => raw.listeners(&read_write_channel(lock)) > 0,
        };
        let field = share.field(owner);
        if waits || call.is_over() || raw.call(&["HEXISTS", lock, &field]).int() == 1 {
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
            let players = Deaths::new(seed, Game::Fair).players;
            let again = Deaths::new(seed, Game::Fair).players;
            assert_eq!(format!("{players:?}"), format!("{again:?}"));
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
    #[test]
    fn readers_and_writers_of_both_sides_hold_and_wait_and_die() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..200 {
            let players = Deaths::new(seed, Game::ReadWrite).players;
            for (n, player) in players.iter().enumerate() {
                let reads = player.share == Share::Read;
                assert!(reads || player.share == Share::Write);
                seen.insert((n == 0, player.is_java, reads, player.dies()));
            }
        }
        assert_eq!(seen.len(), 16);
    }
}
