//! Every metric of docs/observability.md is provoked, and none is missing there.

use super::recorder::{begin, count, described, gauge, raised, samples, seen};
use super::{alone, runtime, until};
use fairlock::{Client, Config, ErrorKind, GuardState, Lock, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const FAIR: (&str, &str) = ("kind", "fair");

/// Kinds, as labels.
const KINDS: [&str; 6] = ["fair", "plain", "simple", "read", "write", "semaphore"];

/// Error classes, as labels.
const ERRORS: [&str; 9] = [
    "misuse",
    "denied",
    "unavailable",
    "unknown",
    "lost",
    "lease_too_short",
    "wrong_type",
    "protocol",
    "closed",
];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(url: &str, tune: impl FnOnce(Config) -> Config) -> Client {
    Client::with_config(tune(Config::from_url(url).unwrap())).await.unwrap()
}

async fn connect(url: &str) -> Client {
    client(url, |config| config).await
}

/// Waits until a loss is counted: guards learn of it a moment earlier.
async fn lost(cause: &'static str) {
    let counted = move || count("fairlock_lost_total", &[FAIR, ("cause", cause)]) == 1.0;
    until("the loss is counted", counted).await;
}

/// Starts to wait, and returns once the waiter is queued.
async fn wait_behind(lock: &Lock) -> tokio::task::JoinHandle<fairlock::Guard> {
    let before = samples("fairlock_queue_length_at_join", &[]).len();
    let own = lock.clone();
    let task = tokio::spawn(async move { own.lock().await.unwrap() });
    let joined = move || samples("fairlock_queue_length_at_join", &[]).len() == before + 1;
    until("it stands in the queue", joined).await;
    task
}

/// One after the other, so that each has exact figures; after each, all gauges are back at zero:
/// nothing is left behind.
#[test]
fn every_metric_is_provoked_and_documented() {
    let _alone = alone();
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(async {
        macro_rules! play {
            ($($scenario:ident),* $(,)?) => {$(
                begin();
                println!("scenario {}", stringify!($scenario));
                $scenario(&server).await;
                until("every gauge is back at zero", || raised().is_empty()).await;
            )*};
        }
        play!(
            a_hand_over,
            inside_one_process,
            every_kind,
            shares,
            ends_of_a_wait,
            renewals,
            a_taken_lock,
            an_explicit_lease,
            a_detached_lock,
            the_store_is_away,
            a_dead_waiter,
            a_waiter_that_was_dropped,
            an_odd_message,
            a_server_that_evicts,
            a_lost_message,
            a_refused_fence,
        );
    });
    compare_with_the_table();
}

async fn a_hand_over(server: &Server) {
    let (a, b) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = a.fair_lock("x").lock().await.unwrap();
    assert_eq!(gauge("fairlock_connections", &[("state", "connected")]), 2.0);
    let waiter = wait_behind(&b.fair_lock("x")).await;
    let second = wait_behind(&a.fair_lock("x")).await;
    assert_eq!(samples("fairlock_queue_length_at_join", &[]), [1.0, 2.0]);
    assert_eq!(gauge("fairlock_waiters", &[FAIR]), 2.0);
    assert_eq!(gauge("fairlock_holds", &[FAIR]), 1.0);
    tokio::time::sleep(ms(30)).await; // so long it is held and waited for
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().release().await.unwrap();
    let _ = second.await.unwrap().release().await.unwrap();

    assert_eq!(count("fairlock_grants_total", &[FAIR, ("by", "request")]), 1.0);
    assert_eq!(count("fairlock_grants_total", &[FAIR, ("by", "message")]), 2.0);
    let granted = [FAIR, ("outcome", "granted")];
    assert_eq!(count("fairlock_acquisitions_total", &granted), 3.0);
    let waits = samples("fairlock_wait_seconds", &granted);
    assert_eq!(waits.len(), 3);
    assert!(waits[1] >= 0.03 && waits.iter().all(|wait| *wait < 10.0), "{waits:?}");
    let held = samples("fairlock_hold_seconds", &[FAIR]);
    assert_eq!(held.len(), 3);
    assert!(held[0] >= 0.03 && held.iter().all(|held| *held < 10.0), "{held:?}");
    assert_eq!(count("fairlock_releases_total", &[FAIR, ("outcome", "released")]), 3.0);
}

async fn a_refused_fence(_: &Server) {
    let token = fairlock::FencingToken::new(7).unwrap();
    for (sqlstate, reason) in [
        ("LK001", "lost"),
        ("LK002", "not_taken"),
        ("LK003", "other_store"),
        ("LK004", "misused"),
        ("55P03", "blocked"),
    ] {
        assert!(fairlock::fence::refused(token, sqlstate).is_some());
        assert_eq!(count("fairlock_fence_refusals_total", &[("reason", reason)]), 1.0);
    }
    assert_eq!(fairlock::fence::refused(token, "40001"), None);
}

/// The memory store takes shorter paths, which count too.
async fn inside_one_process(_: &Server) {
    let client = connect("memory:").await;
    let lock = client.fair_lock("x");
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&lock).await;
    assert_eq!(gauge("fairlock_holds", &[FAIR]), 1.0);
    drop(guard);
    drop(waiter.await.unwrap());
    assert_eq!(count("fairlock_grants_total", &[FAIR, ("by", "request")]), 1.0);
    assert_eq!(count("fairlock_grants_total", &[FAIR, ("by", "message")]), 1.0);
    assert_eq!(count("fairlock_acquisitions_total", &[FAIR, ("outcome", "granted")]), 2.0);
    assert_eq!(samples("fairlock_hold_seconds", &[FAIR]).len(), 2);
    assert_eq!(count("fairlock_releases_total", &[FAIR, ("outcome", "released")]), 2.0);
}

async fn every_kind(server: &Server) {
    let client = connect(&server.url()).await;
    let kinds = [("plain", client.plain_lock("p")), ("simple", client.simple_lock("s"))];
    for (kind, lock) in kinds {
        let kind = ("kind", kind);
        let guard = lock.lock().await.unwrap();
        assert_eq!(gauge("fairlock_holds", &[kind]), 1.0);
        assert_eq!(count("fairlock_grants_total", &[kind, ("by", "request")]), 1.0);
        let inner = guard.reenter().await.unwrap();
        assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
        assert_eq!(count("fairlock_releases_total", &[kind, ("outcome", "still_held")]), 1.0);
        let _ = guard.release().await.unwrap();
        assert_eq!(count("fairlock_acquisitions_total", &[kind, ("outcome", "granted")]), 1.0);
        assert_eq!(samples("fairlock_hold_seconds", &[kind]).len(), 1);
        assert_eq!(count("fairlock_releases_total", &[kind, ("outcome", "released")]), 1.0);
    }
}

/// A reader and a writer have labels of their own, and a limit that differs is counted.
async fn shares(_: &Server) {
    let client = connect("memory:").await;
    let rw = client.rw_lock("rw");
    let held = |kind| gauge("fairlock_holds", &[("kind", kind)]);
    let reading = rw.read().await.unwrap();
    assert_eq!((held("read"), held("write")), (1.0, 0.0));
    let _ = reading.release().await.unwrap();
    let _ = rw.write().await.unwrap().release().await.unwrap();
    let released =
        |kind| count("fairlock_releases_total", &[("kind", kind), ("outcome", "released")]);
    assert_eq!((released("read"), released("write")), (1.0, 1.0));

    let differ = || count("fairlock_other_limits_total", &[]);
    let (three, four) = (client.semaphore("pool", 3), client.semaphore("pool", 4));
    let first = three.acquire().await.unwrap();
    let second = three.acquire().await.unwrap();
    assert_eq!((held("semaphore"), differ()), (2.0, 0.0));
    let other = four.acquire().await.unwrap();
    assert_eq!(differ(), 1.0);
    // A try that is refused may be repeated, and counts nothing; a request that waits counts once.
    assert!(three.try_acquire().await.unwrap().is_none());
    assert_eq!(differ(), 1.0);
    assert!(three.try_acquire_for(ms(20)).await.unwrap().is_none());
    assert_eq!(differ(), 2.0);
    let _ = other.release().await.unwrap();
    let third = three.acquire().await.unwrap();
    assert_eq!(differ(), 2.0);
    for permit in [first, second, third] {
        let _ = permit.release().await.unwrap();
    }
}

async fn ends_of_a_wait(server: &Server) {
    let client = connect(&server.url()).await;
    let lock = client.fair_lock("x");
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(ms(20)).await.unwrap().is_none());
    assert!(tokio::time::timeout(ms(20), lock.lock()).await.is_err());
    server.client().call(&["SET", "wrong", "type"]);
    let error = client.fair_lock("wrong").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    let ended = |outcome| count("fairlock_acquisitions_total", &[FAIR, ("outcome", outcome)]);
    until("the cancelled wait has ended", move || ended("cancelled") == 1.0).await;
    for outcome in ["granted", "busy", "timed_out", "cancelled", "wrong_type"] {
        assert_eq!(ended(outcome), 1.0, "{outcome}");
    }
    let waits = |class| samples("fairlock_wait_seconds", &[FAIR, ("outcome", class)]).len();
    assert_eq!((waits("granted"), waits("gave_up"), waits("failed")), (1, 3, 1));

    let inner = guard.reenter().await.unwrap();
    assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1));
    let _ = guard.release().await.unwrap();
    assert_eq!(count("fairlock_releases_total", &[FAIR, ("outcome", "still_held")]), 1.0);
    assert_eq!(samples("fairlock_hold_seconds", &[FAIR]).len(), 1);
}

async fn renewals(server: &Server) {
    let client = client(&server.url(), |config| config.watchdog_lease(ms(3_000))).await;
    let guard = client.fair_lock("x").lock().await.unwrap();
    until("three renewals", || count("fairlock_renewals_total", &[]) >= 3.0).await;
    let _ = guard.release().await.unwrap();
    let margins = samples("fairlock_renewal_margin_seconds", &[]);
    assert_eq!(margins.len() as f64, count("fairlock_renewals_total", &[]));
    // About two thirds of the lease; a slow machine makes it less, never more.
    assert!(margins.iter().all(|left| *left > 0.0 && *left < 2.0), "{margins:?}");
    assert!(margins.iter().any(|left| *left > 1.0), "{margins:?}");
    assert_eq!(count("fairlock_renewals_missed_total", &[]), 0.0);
    assert_eq!(count("fairlock_suspect_total", &[FAIR]), 0.0);
}

async fn a_taken_lock(server: &Server) {
    let client = client(&server.url(), |config| config.watchdog_lease(ms(3_000))).await;
    let guard = client.fair_lock("x").lock().await.unwrap();
    assert!(client.fair_lock("x").force_unlock().await.unwrap());
    guard.lost().await;
    lost("taken").await;
    until("it is not held", || gauge("fairlock_holds", &[FAIR]) == 0.0).await;
    assert_eq!(guard.release().await.unwrap(), Release::Lost);
    assert_eq!(count("fairlock_releases_total", &[FAIR, ("outcome", "lost")]), 1.0);
    assert_eq!(count("fairlock_lost_total", &[FAIR, ("cause", "taken")]), 1.0);
    assert_eq!(samples("fairlock_hold_seconds", &[FAIR]).len(), 1);
}

async fn an_explicit_lease(server: &Server) {
    let client = connect(&server.url()).await;
    let guard = client.fair_lock("x").lease(ms(200)).lock().await.unwrap();
    guard.lost().await;
    lost("expired").await;
    assert_eq!(count("fairlock_renewals_total", &[]), 0.0);
    until("its time is taken", || !samples("fairlock_hold_seconds", &[FAIR]).is_empty()).await;
    let held = samples("fairlock_hold_seconds", &[FAIR]);
    assert!(held.len() == 1 && held[0] > 0.1 && held[0] < 10.0, "{held:?}");
}

/// Nobody owns it any more: no release and no loss is counted, and it does not count as held.
async fn a_detached_lock(server: &Server) {
    let client = client(&server.url(), |config| config.watchdog_lease(ms(3_000))).await;
    let guard = client.fair_lock("detached").lock().await.unwrap();
    drop(guard.detach().await.unwrap());
    until("it is not held", || gauge("fairlock_holds", &[FAIR]) == 0.0).await;
    assert_eq!(samples("fairlock_hold_seconds", &[FAIR]).len(), 1);
    assert_eq!(count("fairlock_lost_total", &[FAIR, ("cause", "expired")]), 0.0);
}

async fn the_store_is_away(server: &Server) {
    let proxy = Proxy::start(server.addr());
    let tune = |config: Config| {
        config.watchdog_lease(ms(8_000)).ping_interval(ms(50)).store_timeout(ms(2_000))
    };
    let client = client(&proxy.url(), tune).await;
    let renewed = client.fair_lock("renewed").lock().await.unwrap();
    let long = client.fair_lock("long").lease(Duration::from_secs(60)).lock().await.unwrap();
    proxy.refuse(true);
    proxy.cut_all();
    let away = || gauge("fairlock_connections", &[("state", "reconnecting")]) == 1.0;
    until("the loss of the connection is seen", away).await;
    until("both are suspect", || count("fairlock_suspect_total", &[FAIR]) == 2.0).await;
    assert_eq!(renewed.state(), GuardState::Suspect);
    until("a renewal is missed", || count("fairlock_renewals_missed_total", &[]) >= 1.0).await;
    let error = client.fair_lock("other").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(count("fairlock_acquisitions_total", &[FAIR, ("outcome", "unavailable")]), 1.0);
    assert_eq!(long.release().await.unwrap(), Release::Unknown);
    assert_eq!(count("fairlock_releases_total", &[FAIR, ("outcome", "unknown")]), 1.0);
    renewed.lost().await;
    lost("expired").await;

    assert_eq!(count("fairlock_reconnects_total", &[]), 0.0);
    proxy.refuse(false);
    until("it is connected again", || count("fairlock_reconnects_total", &[]) == 1.0).await;
    assert_eq!(gauge("fairlock_connections", &[("state", "connected")]), 1.0);
    assert_eq!(gauge("fairlock_connections", &[("state", "reconnecting")]), 0.0);
}

/// The entry of a dead client: nobody is subscribed to its inbox.
async fn a_dead_waiter(server: &Server) {
    let client = connect(&server.url()).await;
    let guard = client.fair_lock("dead").lock().await.unwrap();
    let dead = "00000000-0000-8000-8000-000000000001:7";
    let mut raw = server.client();
    raw.call(&["RPUSH", "redisson_lock_queue:{dead}", dead]);
    raw.call(&["ZADD", "redisson_lock_timeout:{dead}", "99999999999999", dead]);
    raw.call(&["ZADD", "fairlock_order:{dead}", "1", dead]);
    raw.call(&["HSET", "fairlock_state:{dead}", dead, &format!("{} 30000 0", "0".repeat(32))]);
    let _ = guard.release().await.unwrap();
    assert_eq!(count("fairlock_dead_waiters_removed_total", &[]), 1.0);
}

/// A Java client whose clock is ahead removes a live waiter from the queue.
async fn a_waiter_that_was_dropped(server: &Server) {
    let client = client(&server.url(), |config| config.heartbeat(ms(300))).await;
    let lock = client.fair_lock("dropped");
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&lock).await;
    let mut raw = server.client();
    raw.call(&["DEL", "redisson_lock_queue:{dropped}", "redisson_lock_timeout:{dropped}"]);
    until("it is back", || count("fairlock_returned_to_place_total", &[]) == 1.0).await;
    assert_eq!(lock.inspect().await.unwrap().queue_len, 1);
    assert_eq!(samples("fairlock_queue_length_at_join", &[]).len(), 1);
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().release().await.unwrap();
}

async fn an_odd_message(server: &Server) {
    let client = connect(&server.url()).await;
    let inbox = format!("fairlock_inbox:{}", client.id());
    server.client().call(&["PUBLISH", &inbox, "forged"]);
    until("it is counted", || count("fairlock_odd_messages_total", &[]) == 1.0).await;
    assert_eq!(client.dropped_messages(), 1);
}

/// Reported once, however often it is found.
async fn a_server_that_evicts(server: &Server) {
    let mut raw = server.client();
    raw.call(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "volatile-lru"]);
    let client = connect(&server.url()).await;
    assert_eq!(count("fairlock_warnings_total", &[("check", "eviction")]), 1.0);
    raw.call(&["CLIENT", "KILL", "TYPE", "normal"]);
    until("it is connected again", || count("fairlock_reconnects_total", &[]) == 1.0).await;
    assert_eq!(client.warnings().len(), 1);
    assert_eq!(count("fairlock_warnings_total", &[("check", "eviction")]), 1.0);
    raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
}

async fn a_lost_message(server: &Server) {
    let proxy = Proxy::start(server.addr());
    let near = connect(&server.url()).await;
    let far = client(&proxy.url(), |config| config.heartbeat(ms(300))).await;
    let guard = near.fair_lock("far").lock().await.unwrap();
    let waiter = wait_behind(&far.fair_lock("far")).await;
    proxy.swallow_pushes(true);
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().release().await.unwrap();
    assert_eq!(count("fairlock_grants_total", &[FAIR, ("by", "heartbeat")]), 1.0);
}

/// One row of the table in the documentation.
pub(super) struct Row {
    pub(super) shape: String,
    unit: String,
    meaning: String,
    pub(super) labels: BTreeSet<String>,
    /// The values of the last label, if the row lists them.
    pub(super) values: BTreeSet<String>,
    /// The values may also be error classes.
    errors: bool,
}

pub(super) fn rows() -> BTreeMap<String, Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observability.md");
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, shape, unit, labels, meaning, _] = cells[..] else { return None };
        let name = name.strip_prefix("`fairlock_")?.strip_suffix('`')?;
        let (keys, values) = labels.split_once(':').unwrap_or((labels, ""));
        let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((
            format!("fairlock_{name}"),
            Row {
                shape: shape.into(),
                unit: unit.into(),
                meaning: meaning.into(),
                labels: quoted(keys),
                values: quoted(values),
                errors: values.contains("the error's class"),
            },
        ))
    };
    text.lines().filter_map(row).collect()
}

fn compare_with_the_table() {
    let rows = rows();
    let told = described();
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<_>>();
    assert!(rows.len() >= 18, "the table cannot be read");
    assert_eq!(names(rows.keys().collect()), names(told.keys().collect()));
    for (name, row) in &rows {
        let (shape, unit, meaning) = &told[name];
        assert_eq!((*shape, *unit, meaning), (&*row.shape, &*row.unit, &row.meaning), "{name}");
    }
    let mut last_values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let seen = seen();
    for (name, labels) in &seen {
        let Some(row) = rows.get(name) else { panic!("{name} is not described") };
        assert_eq!(names(labels.keys().collect()), row.labels, "{name}");
        if let Some(kind) = labels.get("kind") {
            assert!(KINDS.contains(&kind.as_str()), "{name}: {kind}");
        }
        // The names of kinds and checks are listed elsewhere.
        let mut others =
            labels.iter().filter(|(key, _)| !["kind", "check"].contains(&key.as_str()));
        let value = others.next().map(|(_, value)| value.clone());
        last_values.entry(name).or_default().extend(value);
    }
    for (name, row) in &rows {
        let Some(values) = last_values.get(name.as_str()) else { panic!("{name} had no value") };
        let missing: Vec<_> = row.values.difference(values).collect();
        assert!(missing.is_empty(), "{name}: nothing provoked {missing:?}");
        for value in values.difference(&row.values) {
            assert!(row.errors && ERRORS.contains(&value.as_str()), "{name}: {value}");
        }
    }
}
