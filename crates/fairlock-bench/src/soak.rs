//! Many cycles of lock and release, which must leave behind no memory, descriptor, task, key,
//! channel or connection.

use crate::usage::Usage;
use fairlock::{Client, Config, Lock};
use fairlock_testkit::raw::{Raw, outlives_users};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

/// How much memory the measured cycles may cost, after the warm-up cycles.
const GROWTH_MAX_KIB: u64 = 1_024;

/// The TTL of a client's record, in milliseconds.
const RECORD_TTL_MAX_MS: i64 = 90_000;

const TASKS: u64 = 64;

/// Locks used by one task only, and locks contended by all tasks.
const OWN: u64 = 16;
const HOT: u64 = 8;

/// Everything in flight when the last cycle ends is done by then, including the registries' TTLs.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

/// Soaks both stores. Returns whether nothing was left behind.
pub(crate) fn run(cycles: u64) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut clean = runtime.block_on(soak("memory", "memory:", None, cycles));
    if let Some(server) = Server::start(Generation::Redis70) {
        let raw = Some(server.client());
        clean &= runtime.block_on(soak("Redis 7.0", &server.url(), raw, cycles));
    }
    clean
}

async fn soak(what: &str, url: &str, mut raw: Option<Raw>, cycles: u64) -> bool {
    let mut verdict = Verdict { clean: true };
    let alone = Usage::now();
    let connections = raw.as_mut().map(connections_of);
    // Registries of waiters live for as long as a request may be in flight.
    let config = Config::from_url(url).unwrap().store_timeout(Duration::from_secs(5));
    let client = Client::with_config(config).await.unwrap();
    let idle_tasks = client.background_tasks();
    // Lets buffers and tables grow to their size.
    turns(&client, cycles / 10).await;
    settle(&client, idle_tasks).await;
    let before = Usage::now();
    let began = Instant::now();
    turns(&client, cycles).await;
    let rate = cycles as f64 / began.elapsed().as_secs_f64();
    settle(&client, idle_tasks).await;
    let after = Usage::now();
    println!("{what}: {cycles} cycles, {rate:.0}/s");
    println!("  before: {before}");
    println!("  after:  {after}");
    let growth_kib = after.rss_kib.saturating_sub(before.rss_kib);
    verdict.check(
        growth_kib <= GROWTH_MAX_KIB,
        &format!("memory grew by {growth_kib} KiB, at most {GROWTH_MAX_KIB}"),
    );
    verdict.same("descriptors", before.fds, after.fds);
    verdict.same("threads", before.threads, after.threads);
    verdict.same("tasks", idle_tasks, client.background_tasks());
    let inbox = format!("fairlock_inbox:{}", client.id());
    let record = format!("fairlock_client:{}", client.id());
    if let Some(raw) = &mut raw {
        verdict.same("channels", vec![inbox], channels(raw));
        let left = other_keys(raw, &record).await;
        let what = format!("keys but tokens and the client's record: {left:?}");
        verdict.check(left.is_empty(), &what);
        let patterns = raw.call(&["PUBSUB", "NUMPAT"]).int();
        verdict.same("pattern subscriptions", 0, patterns);
    }
    drop(client);
    let end = gone(alone).await;
    verdict.same("descriptors without the client", alone.fds, end.fds);
    verdict.same("threads without the client", alone.threads, end.threads);
    if let Some(raw) = &mut raw {
        verdict.same("connections without the client", connections, Some(connections_of(raw)));
        verdict.same("channels without the client", Vec::new(), channels(raw));
        let ttl_ms = raw.call(&["PTTL", &record]).int();
        let ends = ttl_ms == -2 || (0..=RECORD_TTL_MAX_MS).contains(&ttl_ms);
        verdict.check(ends, &format!("the client's record ends in {ttl_ms} ms (-2: it is gone)"));
    }
    verdict.clean
}

struct Verdict {
    clean: bool,
}

impl Verdict {
    fn check(&mut self, good: bool, what: &str) {
        println!("  {}: {what}", if good { "ok" } else { "LEFT BEHIND" });
        self.clean &= good;
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, before: T, after: T) {
        self.check(before == after, &format!("{what}: {before:?}, then {after:?}"));
    }
}

/// Cycles of many tasks: fair and plain locks, uncontended and queued, released and dropped, and
/// waits that are given up (which do not count).
async fn turns(client: &Client, cycles: u64) {
    let each = cycles / TASKS;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                for cycle in 0..each {
                    turn(&lock(&client, task, cycle), cycle).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn lock(client: &Client, task: u64, cycle: u64) -> Lock {
    let name = match cycle % 8 {
        0 => format!("hot:{}", cycle / 8 % HOT),
        _ => format!("own:{task}:{}", cycle % OWN),
    };
    match cycle % 4 {
        1 => client.plain_lock(format!("plain:{name}")),
        _ => client.fair_lock(name),
    }
}

async fn turn(lock: &Lock, cycle: u64) {
    if cycle.is_multiple_of(64) {
        // Given up in the queue, if there is one.
        // The server may not answer in so short a time on a busy machine.
        let tried = lock.try_lock_for(Duration::from_micros(200)).await;
        assert!(tried.as_ref().err().is_none_or(|error| error.kind().is_retryable()), "{tried:?}");
    }
    let guard = lock.lock().await.unwrap();
    if cycle.is_multiple_of(16) {
        drop(guard);
    } else {
        let _ = guard.release().await.unwrap();
    }
}

/// Waits until the client is idle.
async fn settle(client: &Client, idle_tasks: usize) {
    let began = Instant::now();
    while client.background_tasks() > idle_tasks && began.elapsed() < SETTLES_WITHIN {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The resources in use once the client is gone; its thread ends shortly after it.
async fn gone(alone: Usage) -> Usage {
    let began = Instant::now();
    loop {
        let now = Usage::now();
        let settled = now.fds <= alone.fds && now.threads <= alone.threads;
        if settled || began.elapsed() > Duration::from_secs(5) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// All keys except the tokens, the kinds and the client's record, which are meant to stay; the registries of
/// waiters end by their TTLs.
async fn other_keys(raw: &mut Raw, record: &str) -> Vec<String> {
    let began = Instant::now();
    loop {
        let keys = raw.call(&["KEYS", "*"]);
        let keys = keys.array().iter().map(|key| key.text().to_owned());
        let stays = |key: &str| key == record || outlives_users(key);
        let others: Vec<_> = keys.filter(|key| !stays(key)).collect();
        if others.is_empty() || began.elapsed() > SETTLES_WITHIN {
            return others;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn channels(raw: &mut Raw) -> Vec<String> {
    let channels = raw.call(&["PUBSUB", "CHANNELS"]);
    channels.array().iter().map(|channel| channel.text().to_owned()).collect()
}

fn connections_of(raw: &mut Raw) -> usize {
    raw.call(&["CLIENT", "LIST"]).text().lines().count()
}
