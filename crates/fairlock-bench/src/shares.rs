//! Read-write locks and semaphores on a private server, in one run beside the fair lock: hand-overs of
//! writers and of permits, a grant beside many readers, and the readers of one client behind a writer.

use crate::stats::{median, percentile, us};
use fairlock::{Client, Guard, Lock, Permit, RwLock, Semaphore, WriteGuard};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What is compared alternates so many times, because the machine is shared.
const ROUNDS: usize = 7;

/// Goals (docs/testing.md, N20 to N25): hand-overs, of the fair lock's; the server's time for a grant
/// beside many readers, of that beside few; scripts for 100 and for 1 000 readers, and of 100 the
/// server's time and the time until the last guard.
const GOAL_HANDOVERS: f64 = 0.85;
const GOAL_BESIDE: f64 = 1.15;
const GOAL_COHORTS: [(usize, &str); 2] =
    [(100, "goals: 1 script, 250 us, 2 ms"), (1_000, "goal: 8 scripts")];

/// Each grant beside readers is measured by itself, so many on each lock.
const GRANTS: usize = 1_500;
const FEW: usize = 10;
const MANY: usize = 10_000;

/// Readers asked for at once.
const AT_ONCE: usize = 64;

pub(crate) async fn report(server: &Server, span: Duration) {
    hand_overs(server, span / 4).await;
    beside_readers(server).await;
    for (readers, goals) in GOAL_COHORTS {
        cohort(server, readers, goals).await;
    }
}

/// What the server's scripts have been so far: their number, and their time in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) scripts: u64,
    pub(crate) us: u64,
}

impl Spent {
    pub(crate) fn now(raw: &mut Raw) -> Self {
        let mut spent = Self { scripts: 0, us: 0 };
        for line in raw.call(&["INFO", "commandstats"]).text().lines() {
            let Some((command, figures)) = line.split_once(':') else { continue };
            if !matches!(command, "cmdstat_eval" | "cmdstat_evalsha" | "cmdstat_fcall") {
                continue;
            }
            let of = |name: &str| {
                let found = figures.split(',').find_map(|figure| figure.strip_prefix(name));
                found.and_then(|text| text.parse::<u64>().ok()).expect("the server counts")
            };
            spent.scripts += of("calls=");
            spent.us += of("usec=");
        }
        spent
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { scripts: self.scripts - before.scripts, us: self.us - before.us }
    }
}

/// What the tasks take, turn after turn.
#[derive(Clone)]
enum Wanted {
    Fair(Lock),
    Write(RwLock),
    Permit(Semaphore),
}

impl Wanted {
    async fn acquire(&self, permits: u32) -> Guard {
        match self {
            Self::Fair(lock) => lock.lock().await,
            Self::Write(lock) => lock.write().await.map(WriteGuard::into_guard),
            Self::Permit(semaphore) => {
                semaphore.acquire_many(permits).await.map(Permit::into_guard)
            }
        }
        .unwrap()
    }

    async fn waiting(&self) -> usize {
        match self {
            Self::Fair(lock) => lock.inspect().await,
            Self::Write(lock) => lock.inspect().await,
            Self::Permit(semaphore) => semaphore.inspect().await,
        }
        .unwrap()
        .queue_len
    }
}

/// One kind of lock and its rounds.
struct Kind {
    name: String,
    tasks: usize,
    permits: u32,
    of: fn(&Client, u32) -> Wanted,
    /// The kind that it is compared with: its place.
    beside: usize,
    rounds: Vec<Turns>,
}

struct Turns {
    per_second: f64,
    scripts: f64,
    server_us: f64,
}

async fn hand_overs(server: &Server, span: Duration) {
    let kind = |name: &str, tasks, permits, beside, of: fn(&Client, u32) -> Wanted| Kind {
        name: format!("{name}, {tasks} tasks"),
        tasks,
        permits,
        of,
        beside,
        rounds: Vec::new(),
    };
    let fair = |client: &Client, _| Wanted::Fair(client.fair_lock("hand-overs of fair"));
    let write = |client: &Client, _| Wanted::Write(client.rw_lock("hand-overs of writers"));
    let permit = |client: &Client, permits| {
        Wanted::Permit(client.semaphore(format!("hand-overs of {permits}"), permits))
    };
    let mut kinds = [
        kind("fair lock", 100, 1, 0, fair),
        kind("fair lock", 2_000, 1, 1, fair),
        kind("writers alone", 100, 1, 0, write),
        kind("1 permit", 100, 1, 0, permit),
        kind("10 permits", 100, 10, 0, permit),
        kind("1000 permits", 2_000, 1_000, 1, permit),
    ];
    for _ in 0..ROUNDS {
        for kind in &mut kinds {
            let round = turns(server, kind, span).await;
            kind.rounds.push(round);
        }
    }
    for kind in &kinds {
        let beside = kinds[kind.beside].rounds.iter().map(|round| round.per_second);
        let ratios = kind.rounds.iter().zip(beside).map(|(own, fair)| own.per_second / fair);
        println!(
            "hand-overs, {}: {:.0}/s, {:.2} of the fair lock's (goal {GOAL_HANDOVERS}), {:.2} scripts and {:.1} us \
             of the server each; medians of {ROUNDS} rounds",
            kind.name,
            median(kind.rounds.iter().map(|round| round.per_second)),
            median(ratios),
            median(kind.rounds.iter().map(|round| round.scripts)),
            median(kind.rounds.iter().map(|round| round.server_us)),
        );
    }
}

/// All tasks, of two clients, stand in line; then they take turns for this long.
async fn turns(server: &Server, kind: &Kind, span: Duration) -> Turns {
    let clients = [
        Client::connect(&server.url()).await.unwrap(),
        Client::connect(&server.url()).await.unwrap(),
    ];
    let first = (kind.of)(&clients[0], kind.permits).acquire(kind.permits).await;
    let over = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..kind.tasks {
        let wanted = (kind.of)(&clients[number % 2], kind.permits);
        let (over, grants) = (Arc::clone(&over), Arc::clone(&grants));
        tasks.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let guard = wanted.acquire(1).await;
                grants.fetch_add(1, Ordering::Relaxed);
                let _ = guard.release().await.unwrap();
            }
        });
    }
    let look = (kind.of)(&clients[0], kind.permits);
    while look.waiting().await < kind.tasks {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut raw = server.client();
    let _ = first.release().await.unwrap();
    // The first permits are all granted at once.
    tokio::time::sleep(span / 4).await;
    let (before, began) = (Spent::now(&mut raw), Instant::now());
    let granted_before = grants.load(Ordering::Relaxed);
    tokio::time::sleep(span).await;
    let (granted, took) =
        ((grants.load(Ordering::Relaxed) - granted_before) as f64, began.elapsed());
    let spent = Spent::now(&mut raw).since(before);
    over.store(true, Ordering::Relaxed);
    while tasks.join_next().await.is_some() {}
    for client in clients {
        client.shutdown().await;
    }
    Turns {
        per_second: granted / took.as_secs_f64(),
        scripts: spent.scripts as f64 / granted,
        server_us: spent.us as f64 / granted,
    }
}

/// The server's time for one more reader's grant and release, on two locks in turns.
async fn beside_readers(server: &Server) {
    let (crowd, one) = (
        Client::connect(&server.url()).await.unwrap(),
        Client::connect(&server.url()).await.unwrap(),
    );
    let mut raw = server.client();
    let mut readers = Vec::new();
    let locks = [(FEW, "few"), (MANY, "many")].map(|(number, name)| (number, one.rw_lock(name)));
    for (number, name) in [(FEW, "few"), (MANY, "many")] {
        readers.extend(read(&crowd, name, number).await);
    }
    let mut took = [Vec::new(), Vec::new()];
    let mut released = [Vec::new(), Vec::new()];
    for turn in 0..2 * GRANTS {
        let which = turn % 2;
        let before = Spent::now(&mut raw);
        let guard = locks[which].1.read().await.unwrap();
        let between = Spent::now(&mut raw);
        let _ = guard.release().await.unwrap();
        let after = Spent::now(&mut raw);
        // The renewals of the others come in between now and then.
        for (list, spent) in [
            (&mut took[which], between.since(before)),
            (&mut released[which], after.since(between)),
        ] {
            if spent.scripts == 1 {
                list.push(spent.us as f64);
            }
        }
    }
    for (what, [few, many]) in [("grant", took), ("release", released)] {
        let (few, many) = (usual(few), usual(many));
        println!(
            "{what} of a reader beside {FEW}: {few:.2} us of the server; beside {MANY}: {many:.2} us, {:.2} of it (goal \
             {GOAL_BESIDE})",
            many / few
        );
    }
    drop(readers);
    crowd.shutdown().await;
    one.shutdown().await;
}

/// So many readers of one client, all of which hold.
async fn read(client: &Client, name: &str, number: usize) -> Vec<Guard> {
    let (mut tasks, mut guards) = (JoinSet::new(), Vec::new());
    for asked in 0..number {
        let lock = client.rw_lock(name);
        tasks.spawn(async move { lock.read().await.unwrap().into_guard() });
        if asked >= AT_ONCE {
            guards.push(tasks.join_next().await.unwrap().unwrap());
        }
    }
    guards.extend(tasks.join_all().await);
    guards
}

/// Readers of one client who wait behind a writer of another: from its release until the last of them
/// has its guard.
async fn cohort(server: &Server, readers: usize, goals: &str) {
    let (writes, reads) = (
        Client::connect(&server.url()).await.unwrap(),
        Client::connect(&server.url()).await.unwrap(),
    );
    let (lock, line) = (writes.rw_lock("cohort"), reads.rw_lock("cohort"));
    let mut raw = server.client();
    let (mut scripts, mut server_us, mut took) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 * ROUNDS {
        let writer = lock.write().await.unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..readers {
            let line = line.clone();
            tasks.spawn(async move {
                let guard = line.read().await.unwrap();
                (guard, Instant::now())
            });
        }
        while lock.inspect().await.unwrap().queue_len < readers {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let before = Spent::now(&mut raw);
        let began = Instant::now();
        let _ = writer.release().await.unwrap();
        let guards = tasks.join_all().await;
        let spent = Spent::now(&mut raw).since(before);
        scripts.push(spent.scripts as f64);
        server_us.push(spent.us as f64);
        took.push(guards.iter().map(|(_, granted)| *granted - began).max().unwrap());
        for (guard, _) in guards {
            let _ = guard.release().await.unwrap();
        }
    }
    let most = scripts.iter().copied().fold(0.0, f64::max);
    println!(
        "{readers} readers of one client behind a writer: {:.0} scripts (at most {most:.0}) with {:.0} us of the server, \
         all guards p50 {} ({goals}); {} times",
        median(scripts.into_iter()),
        median(server_us.into_iter()),
        us(percentile(&mut took, 50)),
        3 * ROUNDS,
    );
    writes.shutdown().await;
    reads.shutdown().await;
}

/// The mean without the slowest tenth, which were interrupted: the server counts whole microseconds.
fn usual(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.truncate(samples.len() * 9 / 10);
    samples.iter().sum::<f64>() / samples.len() as f64
}
