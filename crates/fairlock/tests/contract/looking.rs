//! What an inspection of a lock shows: places, times, owners and clients.

use super::super::api::Client;
use super::super::support::{Store, granted, no_beats, until, wait_behind};
use fairlock::Config;
use fairlock_testkit::raw::Raw;
use std::time::Duration;

/// Java's id of a thread, and bytes that are no text: both foreign.
const FOREIGN: [&[u8]; 2] = [b"5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", b"\xff\x1b[31m\n"];

pub(super) async fn places_and_times(store: Store) {
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let lock = clients[0].fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..3 {
        waiters.push(wait_behind(&clients[number % 2].fair_lock("job"), number + 1).await);
    }
    let first = lock.inspect().await.unwrap();
    let held_since = first.holder.as_ref().unwrap().since.unwrap();
    let since: Vec<_> = first.queue.iter().map(|waiter| waiter.since.unwrap()).collect();
    assert!(since.is_sorted() && held_since <= since[0] && since[2] <= first.at, "{first:?}");
    assert_eq!(first.queue.iter().map(|waiter| waiter.place).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(first.queue.iter().all(|waiter| waiter.ours && waiter.alive == Some(true)));

    // This test is about time: ages grow, and the points in time stay the same.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let _ = guard.release().await.unwrap();
    let mut waiters = waiters.into_iter();
    let next = granted(waiters.next().unwrap()).await;
    let second = lock.inspect().await.unwrap();
    assert!(second.at >= first.at + Duration::from_millis(30), "{second:?}");
    let holder = second.holder.unwrap();
    assert_eq!(holder.owner, *next.owner());
    let held_since = holder.since.unwrap();
    assert!(held_since > first.at && held_since <= second.at, "{holder:?}");
    let seen: Vec<_> = second.queue.iter().map(|w| (w.place, w.since.unwrap())).collect();
    assert_eq!(seen, [(1, since[1]), (2, since[2])]);

    drop(next);
    for waiter in waiters {
        drop(granted(waiter).await);
    }
}

/// Foreign clients have a place and an id. What is unknown about them is not made up.
pub(super) async fn foreign_waiters(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client_with(no_beats).await;
    let lock = client.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let ours = wait_behind(&lock, 1).await;
    for id in FOREIGN {
        let score = b"9000000000000";
        raw.call(&[b"RPUSH".as_slice(), b"redisson_lock_queue:{job}", id]);
        raw.call(&[b"ZADD".as_slice(), b"redisson_lock_timeout:{job}", score, id]);
    }
    let status = lock.inspect().await.unwrap();
    let seen: Vec<_> = status.queue.iter().map(|w| (w.place, w.ours, w.alive)).collect();
    assert_eq!(seen, [(1, true, Some(true)), (2, false, None), (3, false, None)]);
    for (waiter, id) in status.queue[1..].iter().zip(FOREIGN) {
        assert_eq!((waiter.owner.to_bytes().as_slice(), waiter.since), (id, None));
        assert!(waiter.owner.to_string().chars().all(|c| c.is_ascii_graphic() || c == ' '));
    }

    // A Java thread holds the lock: its count is shown, the start of its hold is unknown.
    drop(ours);
    raw.call(&["DEL", "job"]);
    raw.call(&[b"HSET".as_slice(), b"job", FOREIGN[0], b"2"]);
    let holder = lock.inspect().await.unwrap().holder.unwrap();
    assert_eq!((holder.count, holder.ours, holder.since), (2, false, None));
    drop(guard);
}

/// The key of a client's record.
fn record_of(client: &Client) -> String {
    format!("fairlock_client:{}", client.id())
}

fn records(raw: &mut Raw) -> usize {
    raw.call(&["KEYS", "fairlock_client:*"]).array().len()
}

pub(super) async fn clients_are_named(store: Store) {
    let label = "nightly, the café run";
    let first = store.client_with(|config| no_beats(config).label(label)).await;
    let second = store.client_with(no_beats).await;
    let lock = first.fair_lock("job");
    assert!(lock.inspect().await.unwrap().clients.is_empty(), "nobody holds or waits");
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&second.fair_lock("job"), 1).await;
    let status = lock.inspect().await.unwrap();
    let holder = status.client(&status.holder.as_ref().unwrap().owner).unwrap();
    assert_eq!(holder.label.as_deref(), Some(label));
    assert_eq!(
        (holder.pid, holder.version.as_str()),
        (std::process::id(), env!("CARGO_PKG_VERSION"))
    );
    assert!(holder.host.is_some() && holder.user.is_some(), "{holder:?}");
    assert!(holder.since <= status.holder.as_ref().unwrap().since.unwrap(), "{status:?}");
    let next = status.client(&status.queue[0].owner).unwrap();
    if !store.is_memory() {
        assert_eq!((status.clients.len(), next.label.as_deref()), (2, None));
        assert_eq!((&next.host, &next.user, next.pid), (&holder.host, &holder.user, holder.pid));
    } else {
        assert_eq!((status.clients.len(), next), (1, holder));
    }
    let _ = guard.release().await.unwrap();
    drop(granted(waiter).await);
}

/// A client says which lease it renews as long as that is true of all its holds. Others could take
/// any other hold for one whose renewal is overdue.
pub(super) async fn a_client_says_its_lease_while_all_its_holds_have_it(store: Store) {
    let lease = Duration::from_secs(20);
    let watcher = store.client_with(no_beats).await;
    for what in ["renewed", "fixed", "longest", "detached"] {
        // In memory it is the same client, which says nothing after the second round.
        let client = store.client_with(|config| no_beats(config).watchdog_lease(lease)).await;
        let (lock, look) = (client.fair_lock(what), watcher.fair_lock(what));
        let says = async || {
            let status = look.inspect().await.unwrap();
            let holder = status.holder.as_ref().unwrap();
            assert_eq!(status.renewal_overdue(holder), None, "{what}");
            status.client(&holder.owner).unwrap().lease
        };
        let renewed = lock.lock().await.unwrap();
        if !store.is_memory() {
            assert_eq!(says().await, Some(lease), "{what}");
        } else if matches!(what, "renewed" | "fixed") {
            assert!(says().await.is_some(), "{what}");
        }
        let other = client.fair_lock("other");
        let short = Duration::from_secs(3);
        match what {
            "renewed" => {
                let _ = renewed.release().await.unwrap();
                continue;
            }
            "fixed" => other.lease(short).lock().await.unwrap().release().await.map(drop),
            "longest" => other.max_hold(short).lock().await.unwrap().release().await.map(drop),
            _ => other.lock().await.unwrap().detach_for(short).await.map(drop),
        }
        .unwrap();
        until("the client says no lease", async || says().await.is_none()).await;
        let _ = renewed.release().await.unwrap();
    }
}

/// A client that does not announce itself writes no record, and locks like any other.
pub(super) async fn a_silent_client_is_unknown(store: Store) {
    let client = store.client_with(|config| config.label("secret").announce(false)).await;
    let lock = client.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let status = lock.inspect().await.unwrap();
    assert_eq!(status.holder.unwrap().owner, *guard.owner());
    assert!(status.clients.is_empty(), "{:?}", status.clients);
    if let Some(mut raw) = store.raw() {
        assert_eq!(records(&mut raw), 0);
    }
    let _ = guard.release().await.unwrap();
}

/// The record belongs to the client: it has a TTL, is written again after a reconnect, and is
/// deleted when the client ends, by shutdown or with the last handle.
pub(super) async fn a_record_lives_as_long_as_its_client(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client().await;
    let key = record_of(&client);
    let ttl_ms = raw.call(&["PTTL", &key]).int();
    assert!((60_000..=90_000).contains(&ttl_ms), "{ttl_ms}");
    raw.call(&["FLUSHALL"]);
    raw.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until("the record is back", async || records(&mut raw) == 1).await;
    until("so is the connection", async || client.ping().await.is_ok()).await;
    let clone = client.clone();
    client.shutdown().await;
    assert_eq!(records(&mut raw), 0, "shutdown removes it");
    drop(clone);

    let client = store.client().await;
    let guard = client.fair_lock("job").lock().await.unwrap();
    assert_eq!(records(&mut raw), 1);
    drop(client);
    assert_eq!(records(&mut raw), 1, "the guard is a handle too");
    drop(guard);
    until("the record is gone", async || records(&mut raw) == 0).await;
}

/// Anyone who can write to the store can write anything into a record. The client is unknown then,
/// and inspecting the lock still works.
pub(super) async fn odd_records_are_unknown(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    let lock = client.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&other.fair_lock("job"), 1).await;
    let key = record_of(&client);
    let long = "x".repeat(10_000);
    let fields: [(&str, &[u8]); 9] = [
        ("host", long.as_bytes()),
        ("label", b"\x1b]0;title\x07"),
        ("label", "\u{202e}gpj".as_bytes()),
        ("user", b"\xff\xfe"),
        ("version", b""),
        ("pid", b"-1"),
        ("pid", b"99999999999"),
        ("since", b"yesterday"),
        ("since", b"99999999999999999999"),
    ];
    for (field, value) in fields {
        let had = raw.call(&["HGET", &key, field]);
        raw.call(&[b"HSET".as_slice(), key.as_bytes(), field.as_bytes(), value]);
        let status = lock.inspect().await.unwrap();
        assert_eq!(status.holder.as_ref().unwrap().owner, *guard.owner());
        let known: Vec<_> = status.clients.keys().copied().collect();
        assert_eq!(known, [other.id()], "{field}: {}", value.escape_ascii());
        match had {
            fairlock_testkit::resp::Value::Bulk(bytes) => {
                raw.call(&[b"HSET".as_slice(), key.as_bytes(), field.as_bytes(), &bytes]);
            }
            _ => drop(raw.call(&["HDEL", &key, field])),
        }
        assert_eq!(lock.inspect().await.unwrap().clients.len(), 2, "{field} is mended");
    }
    // Fields that no client writes are ignored.
    raw.call(&["HSET", &key, "motto", &long]);
    assert_eq!(lock.inspect().await.unwrap().clients.len(), 2);
    for odd in [
        &["SET", key.as_str(), "7"][..],
        &["RPUSH", key.as_str(), "x"],
        &["ZADD", key.as_str(), "1", "x"],
        &["HSET", key.as_str(), "motto", "x"],
    ] {
        raw.call(&["DEL", &key]);
        raw.call(odd);
        let known: Vec<_> = lock.inspect().await.unwrap().clients.into_keys().collect();
        assert_eq!(known, [other.id()], "{odd:?}");
    }
    let _ = guard.release().await.unwrap();
    drop(granted(waiter).await);
}

/// The server allows only the keys of locks: locks work, and clients are unknown.
pub(super) async fn records_may_be_denied(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    let mut rule = vec!["ACL", "SETUSER", "ann", "on", ">right", "allchannels", "+@all"];
    let keys = ["~job", "~redisson_lock_*", "~fairlock_order*", "~fairlock_state*"];
    let replicas = store.url().contains("replicas=").then_some("~fairlock_replicated*");
    rule.extend(keys.into_iter().chain(["~fairlock_beats*", "~fairlock_buried*"]).chain(replicas));
    raw.call(&rule);
    let config =
        || no_beats(Config::from_url(&store.url()).unwrap()).username("ann").password("right");
    let client = Client::with_config(config()).await.unwrap();
    let other = Client::with_config(config()).await.unwrap();
    let lock = client.fair_lock("job");
    let guard = lock.lock().await.unwrap();
    let waiter = wait_behind(&other.fair_lock("job"), 1).await;
    let status = lock.inspect().await.unwrap();
    assert_eq!((status.queue_len, status.clients.len()), (1, 0));
    assert_eq!(records(&mut raw), 0);
    let _ = guard.release().await.unwrap();
    drop(granted(waiter).await);
    client.shutdown().await;
}
