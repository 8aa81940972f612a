//! How the client lists locks.

use super::super::api::Client;
use super::super::support::{SOON, Store, granted, no_beats, soon, until, wait_behind};
use fairlock::{Check, Config, ErrorKind, Kind, LockEntry, Locks, Reaction};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lists everything at the highest pace. No name may appear twice, on whatever pages.
async fn all(client: &Client) -> BTreeMap<String, LockEntry> {
    let mut locks = client.locks().keys_per_second(Locks::KEYS_PER_SECOND_MAX);
    let mut found = BTreeMap::new();
    while let Some(page) = locks.next_page().await.unwrap() {
        for entry in page {
            let again = found.insert(entry.name.to_string(), entry);
            assert!(again.is_none(), "{again:?} comes twice");
        }
    }
    // After its end the walk returns nothing more.
    assert!(locks.next_page().await.unwrap().is_none());
    found
}

pub(super) async fn held_waited_for_and_free(store: Store) {
    let client = store.client_with(no_beats).await;
    assert!(all(&client).await.is_empty());
    let (fair, plain) = (client.fair_lock("fair"), client.plain_lock("plain"));
    let guards = [
        fair.lock().await.unwrap(),
        plain.lock().await.unwrap(),
        client.simple_lock("simple").lock().await.unwrap(),
        client.fair_lock("nobody waits").lock().await.unwrap(),
    ];
    let waiters = [wait_behind(&fair, 1).await, wait_behind(&fair, 2).await];
    let _ = client.fair_lock("free").lock().await.unwrap().release().await.unwrap();
    let seen = |found: BTreeMap<String, LockEntry>| {
        let rows = found.into_iter().map(|(name, entry)| {
            assert_eq!(entry.name.to_string(), name);
            (name, entry.kind, entry.held, entry.waiting)
        });
        rows.collect::<Vec<_>>()
    };
    let row = |name: &str, kind, held, waiting| (name.to_owned(), kind, held, waiting);
    let mut found = all(&client).await;
    // A server still lists it because of its token; other stores may.
    let free = found.remove("free");
    assert!(free.is_some() || store.server().is_none());
    assert!(free.is_none_or(|free| (free.kind, free.held, free.waiting) == (None, false, 0)));
    assert_eq!(
        seen(found),
        [
            row("fair", Some(Kind::Fair), true, 2),
            row("nobody waits", None, true, 0),
            row("plain", None, true, 0),
            row("simple", Some(Kind::Simple), true, 0),
        ]
    );
    // An inspection can show less than the whole queue.
    let status = fair.inspect_first(1).await.unwrap();
    assert_eq!((status.queue.len(), status.queue_len), (1, 2));
    assert!(status.client(&status.holder.as_ref().unwrap().owner).is_some());
    assert!(fair.inspect_first(0).await.unwrap().queue.is_empty());
    assert_eq!(fair.inspect_first(usize::MAX).await.unwrap().queue.len(), 2);

    drop(guards);
    for waiter in waiters {
        let _ = granted(waiter).await.release().await.unwrap();
    }
    // Dropped guards are still being released.
    until("all are free", async || {
        let found = all(&client).await;
        assert!(store.server().is_none() || found.len() == 5);
        found.values().all(|entry| !entry.held && entry.waiting == 0 && entry.kind.is_none())
    })
    .await;
}

/// Read-write locks and semaphores are listed as what they are, with their own waiters.
pub(super) async fn shares(store: Store) {
    let client = store.client_with(no_beats).await;
    let (lock, pool) = (client.rw_lock("catalogue"), client.semaphore("pool", 3));
    let readings = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    let permits = pool.acquire_many(2).await.unwrap();
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    until("it waits", async || lock.inspect().await.unwrap().queue_len == 1).await;
    let found = all(&client).await;
    let rows = found.values().map(|it| (it.name.to_string(), it.kind, it.held, it.waiting));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            ("catalogue".to_owned(), Some(Kind::ReadWrite), true, 1),
            ("pool".to_owned(), Some(Kind::Semaphore), true, 0),
        ]
    );
    assert!(found.values().all(|entry| entry.beside.is_empty()), "{found:?}");
    drop(readings);
    drop(soon("the writer", writer).await.unwrap());
    drop(permits);
    until("both are free", async || {
        all(&client).await.values().all(|entry| !entry.held && entry.kind.is_none())
    })
    .await;
}

/// More locks than fit on a page, among keys that belong to no lock.
pub(super) async fn each_once(store: Store) {
    const LOCKS: usize = 1_234;
    let client = store.client_with(no_beats).await;
    if let Some(mut raw) = store.raw() {
        for number in 0..500 {
            raw.call(&["SET", &format!("other:{number}"), "x"]);
        }
        raw.call(&["SET", "redisson_lock_tokenless:{a}", "x"]);
        raw.call(&["ZADD", "redisson_lock_timeout:{b}", "1", "x"]);
    }
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(client.fair_lock(format!("job:{number}")).lock().await.unwrap());
    }
    if let Some(mut raw) = store.raw() {
        // Found by their queue as well as by their token, in different steps of the scan.
        for number in 0..LOCKS / 4 {
            raw.call(&["RPUSH", &format!("redisson_lock_queue:{{job:{number}}}"), "java"]);
        }
    }
    let found = all(&client).await;
    assert_eq!(found.len(), LOCKS);
    assert!(found.values().all(|entry| entry.held));
}

/// Names are bytes, and those with braces share keys.
pub(super) async fn odd_names(store: Store) {
    let client = store.client_with(no_beats).await;
    let names: [&[u8]; 12] = [
        b"\xff\x00\x1b[2J",
        b"{}",
        b"{",
        b"}",
        b"a{b}c",
        b"{{x}}",
        b"twin",
        b"{twin}",
        b"{alone}",
        b"*",
        b"redisson_lock",
        b" ",
    ];
    // Redisson's rule puts the keys of these names into different slots.
    let apart: [&[u8]; 3] = [b"{}", b"{", b"}"];
    let names = names.into_iter().filter(|name| !store.is_cluster() || !apart.contains(name));
    let names: Vec<&[u8]> = names.collect();
    let mut guards = Vec::new();
    for name in &names {
        // Twin names share a token, and the plain lock does not use the other shared keys.
        guards.push(client.plain_lock(name).lock().await.unwrap());
    }
    let found = all(&client).await;
    let mut found: Vec<_> = found.values().map(|entry| entry.name.as_bytes()).collect();
    let mut expected = names.clone();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Java's locks: one with a queue is listed, one that is only held is not. Keys of other programs
/// do no harm.
pub(super) async fn foreign_ones(store: Store) {
    const JAVA: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";
    let Some(mut raw) = store.raw() else { return };
    let client = store.client_with(no_beats).await;
    raw.call(&["HSET", "java", JAVA, "1"]);
    raw.call(&["RPUSH", "redisson_lock_queue:{java}", JAVA, "another"]);
    raw.call(&["HSET", "only held", JAVA, "1"]);
    raw.call(&["SET", "simple, theirs", "x"]);
    raw.call(&["SET", "redisson_lock_token:{odd}", "1"]);
    raw.call(&["RPUSH", "odd", "a list"]);
    raw.call(&["SET", "redisson_lock_queue:{no queue}", "1"]);
    let found = all(&client).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["java", "no queue", "odd"]);
    let java = &found["java"];
    assert_eq!((java.kind, java.held, java.waiting), (Some(Kind::Fair), true, 2));
    assert!(!found["odd"].held && !found["no queue"].held);
}

/// A user sees the locks whose keys the ACL allows; a user without the right to list gets an error.
pub(super) async fn only_what_may_be_seen(store: Store) {
    let Some(mut raw) = store.raw() else { return };
    for name in ["mine:1", "mine:2", "theirs"] {
        raw.call(&["SET", &format!("redisson_lock_token:{{{name}}}"), "1"]);
    }
    let config = |user: &str| {
        no_beats(Config::from_url(&store.url()).unwrap()).username(user).password("right")
    };
    let mut rule = vec!["ACL", "SETUSER", "ann", "on", ">right", "allchannels", "+@all", "~mine:*"];
    rule.extend(["~{mine:*", "~redisson_lock_*{mine:*", "~fairlock_*"]);
    raw.call(&rule);
    let client = Client::with_config(config("ann")).await.unwrap();
    let found = all(&client).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["mine:1", "mine:2"]);

    for command in ["-scan", "-type", "-llen"] {
        raw.call(&["ACL", "SETUSER", "bob", "reset", "on", ">right", "allchannels", "allkeys"]);
        raw.call(&["ACL", "SETUSER", "bob", "+@all", command]);
        // Locks need some of these commands too: without this, connecting would fail.
        let config = config("bob").on_check(Check::Rights, Reaction::Ignore);
        let client = Client::with_config(config).await.unwrap();
        let error = client.locks().next_page().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{command}: {error}");
    }
}

/// How often the server ran `command`.
fn calls(raw: &mut fairlock_testkit::raw::Raw, command: &str) -> u64 {
    let stats = raw.call(&["INFO", "commandstats"]);
    let line = stats.text().lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split_once(','));
    calls.map_or(0, |(calls, _)| calls.parse().unwrap())
}

/// A walk takes as long as its pace demands, in small steps, and stops when it is dropped.
pub(super) async fn the_pace_is_kept(store: Store) {
    const KEYS: u32 = 600;
    let client = store.client_with(no_beats).await;
    let Some(mut raw) = store.raw() else {
        assert_eq!(client.locks().pace().is_some(), store.is_cluster());
        return;
    };
    for number in 0..KEYS {
        raw.call(&["SET", &format!("other:{number}"), "x"]);
    }
    assert_eq!(client.locks().pace(), Some(Locks::KEYS_PER_SECOND));
    let began = Instant::now();
    let mut locks = client.locks().keys_per_second(1_000);
    let mut steps = 0;
    while let Some(page) = locks.next_page().await.unwrap() {
        assert!(page.is_empty());
        steps += 1;
    }
    let took = began.elapsed();
    // 100 keys a step; the walk need not wait after the last one. Redis may look at a few more keys
    // in a step.
    assert!((4..=u64::from(KEYS) / 50).contains(&steps), "{steps} steps");
    assert!(took >= Duration::from_millis(100) * (steps as u32 - 1), "{steps} steps in {took:?}");
    assert!(took < SOON, "{took:?}");
    assert_eq!((calls(&mut raw, "scan"), calls(&mut raw, "keys")), (steps, 0));

    // A walk that is dropped halfway stops there.
    let mut locks = client.locks().keys_per_second(Locks::KEYS_PER_SECOND_MAX / 10_000);
    locks.next_page().await.unwrap();
    drop(locks);
    // This test is about time: five steps would fit into it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(calls(&mut raw, "scan"), steps + 1);
}

pub(super) async fn a_bad_pace_is_refused(store: Store) {
    let client = store.client().await;
    for keys in [0, Locks::KEYS_PER_SECOND_MAX + 1, u32::MAX] {
        let error = client.locks().keys_per_second(keys).next_page().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert!(error.to_string().contains("1000000"), "{error}");
    }
    for keys in [1, Locks::KEYS_PER_SECOND_MAX] {
        assert!(client.locks().keys_per_second(keys).next_page().await.unwrap().is_some());
    }
}

/// If the store is gone, the walk returns an error and can go on later; after a shutdown it returns
/// an error too.
pub(super) async fn without_the_store(store: Store) {
    if let (Some(mut raw), Some(server)) = (store.raw(), store.server()) {
        let timeout = Duration::from_millis(400);
        let tune = |config: Config| config.store_timeout(timeout).response_timeout(timeout / 2);
        let client = store.client_with(tune).await;
        raw.call(&["SET", "redisson_lock_token:{a}", "1"]);
        let mut locks = client.locks();
        // Until the error is there: with a pause of fixed length, a machine that stood still longer
        // asked a server that answers.
        server.stop();
        let error = locks.next_page().await.unwrap_err();
        server.cont();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let page = loop {
            match locks.next_page().await {
                Ok(page) => break page.unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        };
        assert_eq!(page.len(), 1);
    }
    let client = store.client().await;
    let mut locks = client.locks();
    client.clone().shutdown().await;
    assert_eq!(locks.next_page().await.unwrap_err().kind(), ErrorKind::Closed);
}
