//! F77: names that look like the keys of other locks. They are refused before anything is sent;
//! names that only look similar work, and leave their neighbours alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bad_input::everything;
use crate::support::{At, SOON, no_notes, run, soon, until, wait_behind};
use fairlock::{Client, ErrorKind, Lock, Release};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;

/// Keys and channels of a lock `x`, of its waiters and of clients, from fairlock and Redisson.
const OF_OTHERS: [&str; 20] = [
    "redisson_lock_queue:{x}",
    "redisson_lock_queue:x",
    "redisson_lock_queue:",
    "redisson_lock_timeout:{x}",
    "redisson_lock_timeout:{x}:1",
    "redisson_lock_token:{x}",
    "redisson_lock_token:{x",
    "redisson_unlock_latch:{x}:0123456789abcdef0123456789abcdef",
    "redisson_unlock_latch:{x}",
    "fairlock_order:{x}",
    "fairlock_order::{x}",
    "fairlock_state:{x}",
    "fairlock_beats:{x}",
    "fairlock_buried:{x}:0123456789abcdef0123456789abcdef",
    "fairlock_inbox:5f3c1a52-0f4e-8a1b-9c3d-1234567890ab",
    "fairlock_something_of_a_later_version:{x}",
    "fairlock_",
    "fairlock:client:5f3c1a52-0f4e-8a1b-9c3d-1234567890ab",
    "fairlock:client:",
    "fairlock:client:{x}",
];

/// Names that share a prefix, a suffix or a channel's name with such keys, but are not reserved.
const HARMLESS: [&str; 9] = [
    "redisson_lock__channel:{x}",
    "redisson_lock_queue",
    "redisson_lock",
    "REDISSON_LOCK_QUEUE:{x}",
    " redisson_lock_queue:{x}",
    "{x}:redisson_lock_queue",
    "fairlock",
    "fairlock:clients",
    "x:{x}",
];

fn kinds(client: &Client, name: &[u8]) -> [Lock; 3] {
    [client.fair_lock(name), client.plain_lock(name), client.simple_lock(name)]
}

/// A lock with a holder and two waiters stays as it is while each of these names is refused.
#[test]
fn f77_names_of_helper_keys_are_refused_and_change_nothing() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let lock = client.fair_lock("x");
        let guard = lock.lock().await.unwrap();
        let waiters = [wait_behind(&lock, 1).await, wait_behind(&lock, 2).await];
        let mut raw = store.raw().unwrap();
        let before = everything(&mut raw);
        for name in OF_OTHERS {
            for lock in kinds(&client, name.as_bytes()) {
                let short = Duration::from_millis(1);
                for error in [
                    lock.lock().await.unwrap_err(),
                    lock.try_lock().await.unwrap_err(),
                    lock.try_lock_for(short).await.unwrap_err(),
                    lock.inspect().await.unwrap_err(),
                    lock.is_locked().await.unwrap_err(),
                    lock.force_unlock().await.unwrap_err(),
                ] {
                    assert_eq!(error.kind(), ErrorKind::Misuse, "{name}: {error}");
                    let text = error.to_string();
                    assert!(text.contains("must not begin with `"), "{name}: {text}");
                }
            }
        }
        assert_eq!(everything(&mut raw), before);
        guard.ensure_valid().unwrap();
        let _ = guard.release().await.unwrap();
        for waiter in waiters {
            let _ = soon("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
        }
    });
}

/// The table above is written by hand; this test takes the keys that a server really holds. A key
/// that a later version adds without reserving its name fails here.
#[test]
fn f77_every_key_that_locks_leave_is_refused_as_a_name() {
    for generation in Generation::tested() {
        run(At::Server(generation), async |store| {
            let client = store.client_with(no_notes).await;
            let names = ["x", "{y}", "a{b}c", "p", "s"];
            let mut held = Vec::new();
            for name in &names[..3] {
                let lock = client.fair_lock(name);
                held.push(lock.lock().await.unwrap());
                drop(wait_behind(&lock, 1).await);
            }
            held.push(client.plain_lock("p").lock().await.unwrap());
            held.push(client.simple_lock("s").lock().await.unwrap());
            let waiting = client.plain_lock("p");
            let waiting = tokio::spawn(async move { waiting.lock().await.map(drop) });
            let mut raw = store.raw().unwrap();
            let mut base = Vec::new();
            until("the plain waiter listens", async || {
                let channels = raw.call(&["PUBSUB", "CHANNELS", "*"]);
                base = channels.array().iter().map(|name| name.text().to_owned()).collect();
                base.contains(&"redisson_lock__channel:{p}".to_owned())
            })
            .await;
            let Value::Array(keys) = raw.call(&["KEYS", "*"]) else { panic!("no list") };
            let mut refused = 0;
            for key in keys.iter().map(Value::text).filter(|key| !names.contains(key)) {
                let error = client.fair_lock(key).try_lock().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Misuse, "{key} is a name: {error}");
                refused += 1;
            }
            // Six helper keys of each fair lock with a waiter, and the tokens of the other two.
            println!("{}: {refused} keys of locks are refused", generation.name());
            assert!(refused >= 3 * 6 + 2, "{refused}");
            for channel in base.iter().filter(|name| name.starts_with("fairlock")) {
                let error = client.fair_lock(channel).try_lock().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Misuse, "{channel} is a name");
            }
            drop(held);
            soon("the plain waiter", waiting).await.unwrap().unwrap();
        });
    }
}

#[test]
fn f77_names_that_only_look_like_it_work() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let other = store.client_with(no_notes).await;
        let lock = client.fair_lock("x");
        let guard = lock.lock().await.unwrap();
        let waiter = wait_behind(&lock, 1).await;
        let mut raw = store.raw().unwrap();
        let own = ["x", "redisson_lock_queue:{x}", "redisson_lock_timeout:{x}"];
        let own_keys = |raw: &mut _| {
            let mut all = everything(raw);
            all.retain(|(key, ..)| own.contains(&key.text()));
            all
        };
        let before = own_keys(&mut raw);
        assert_eq!(before.len(), 3);
        for name in HARMLESS {
            let held = other.fair_lock(name).lock().await.unwrap();
            let next = wait_behind(&other.fair_lock(name), 1).await;
            let _ = held.release().await.unwrap();
            let _ = soon("its turn", next).await.unwrap().unwrap().release().await.unwrap();
            assert_eq!(own_keys(&mut raw), before, "{name}");
        }
        assert!(!waiter.is_finished());
        let _ = guard.release().await.unwrap();
        let _ = soon("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// `n` and `{n}` are two locks with one queue and one token series, because Redisson derives its
/// keys that way. What still holds: each lock excludes, tokens rise over both, and every request is
/// served. What does not: a grant of one lock is newer than the hold of the other, which then
/// counts as lost, while its key keeps others out until the lease ends.
#[test]
fn f77_twin_names_exclude_and_serve_everybody() {
    run(At::Server(Generation::Redis70), async |store| {
        let beat = Duration::from_millis(200);
        let fast = |config: fairlock::Config| config.heartbeat(beat).watchdog_lease(5 * beat);
        let clients = [store.client_with(fast).await, store.client_with(fast).await];
        let names = ["n", "{n}"];
        let inside = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let (served, lost) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        let began = Instant::now();
        for (which, name) in names.into_iter().enumerate() {
            for client in &clients {
                let (lock, inside) = (client.fair_lock(name), Arc::clone(&inside));
                let (served, lost) = (Arc::clone(&served), Arc::clone(&lost));
                tasks.push(tokio::spawn(async move {
                    let mut tokens = Vec::new();
                    for _ in 0..2 {
                        let guard = lock.lock().await.unwrap();
                        assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0, "two guards");
                        // The critical section.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        assert_eq!(inside[which].fetch_sub(1, Ordering::SeqCst), 1);
                        tokens.push(guard.token());
                        match guard.release().await.unwrap() {
                            Release::Released => {}
                            Release::Lost => _ = lost.fetch_add(1, Ordering::SeqCst),
                            other => panic!("{other:?}"),
                        }
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                    tokens
                }));
            }
        }
        let mut all = Vec::new();
        for task in tasks {
            let tokens = tokio::time::timeout(4 * SOON, task).await.expect("served").unwrap();
            assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
            all.extend(tokens);
        }
        let lost = lost.load(Ordering::SeqCst);
        println!("measured: 8 turns on twin names took {:?}, {lost} lost", began.elapsed());
        assert_eq!(served.load(Ordering::SeqCst), 8);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8, "one series of tokens for both, none twice");
    });
}
