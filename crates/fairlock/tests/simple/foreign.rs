//! Foreign clients that use the same string in the common way: `SET key value NX PX` and
//! compare-and-delete.

use crate::faults::fixture::{Fixture, SLACK, client, config, measured, ms, steady, within};
use fairlock::{Client, ErrorKind, Lock, Release};
use fairlock_testkit::resp::Value;
use std::time::{Duration, Instant};

/// The longest pause between two looks at a foreign holder, including jitter.
const POLL: Duration = ms(270);

/// Compare-and-delete, as in every tutorial.
const LET_GO: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// The content of a key.
fn text_of(fixture: &Fixture, key: &str) -> Option<String> {
    match fixture.call(&["GET", key]) {
        Value::Nil => None,
        value => Some(value.text().to_owned()),
    }
}

#[test]
fn each_keeps_the_other_out() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let lock = fixture.client().await.simple_lock("job");
        assert_eq!(fixture.call(&["SET", "job", "theirs", "NX", "PX", "60000"]).text(), "OK");
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.try_lock_for(ms(300)).await.unwrap().is_none());
        assert_eq!(fixture.call(&["EVAL", LET_GO, "1", "job", "theirs"]).int(), 1);
        let guard = lock.try_lock().await.unwrap().expect("it is free");
        assert!(fixture.call(&["SET", "job", "theirs", "NX", "PX", "60000"]).is_nil());
        assert_eq!(fixture.call(&["EVAL", LET_GO, "1", "job", "theirs"]).int(), 0, "not theirs");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(text_of(&fixture, "job"), None);
    });
}

/// The value's format is part of the protocol: operators and other clients see it.
#[test]
fn our_value_names_owner_request_and_token() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let lock = fixture.client().await.simple_lock("job");
        let guard = lock.lock().await.unwrap();
        let value = text_of(&fixture, "job").expect("a value");
        let parts: Vec<_> = value.rsplitn(3, ':').collect();
        assert_eq!(
            (parts[2], parts[0]),
            (guard.owner().to_string().as_str(), guard.token().to_string().as_str(),)
        );
        assert!(parts[1].len() == 32 && parts[1].bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(fixture.call(&["PTTL", "job"]).int() > 0);
        let _ = guard.release().await.unwrap();
    });
}

/// The cost of an uncontended lock: one call to acquire it, one to release it.
#[test]
fn a_free_lock_takes_two_calls() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let lock = fixture.client().await.simple_lock("job").lease(Duration::from_secs(60));
        // The first calls load the scripts.
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        let before = fixture.script_calls();
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        assert_eq!(fixture.script_calls() - before, 2);
    });
}

/// The next heartbeat comes after any test has ended, however slow the machine.
async fn without_heartbeats(fixture: &Fixture) -> Client {
    let minute = Duration::from_secs(60);
    let config = config(&fixture.server.url()).heartbeat(minute).watchdog_lease(5 * minute);
    Client::with_config(config).await.unwrap()
}

/// A foreign client sends no message when it releases, so waiters look; and they know when its TTL
/// ends.
#[test]
fn a_waiter_finds_the_lock_free() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let lock = without_heartbeats(&fixture).await.simple_lock("job");
        fixture.call(&["SET", "job", "theirs"]);
        let task = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await.unwrap() }
        });
        // Long enough for the pauses to reach their maximum.
        tokio::time::sleep(ms(1_500)).await;
        let freed = Instant::now();
        fixture.call(&["DEL", "job"]);
        let guard = within("the next look", POLL + SLACK, task).await.unwrap();
        measured("simple: foreign DEL to grant", freed.elapsed());
        let _ = guard.release().await.unwrap();

        fixture.call(&["SET", "job", "theirs", "PX", "400"]);
        let began = Instant::now();
        let guard = within("the end of its TTL", SLACK, lock.lock()).await.unwrap();
        measured("simple: foreign TTL of 400 ms to grant", began.elapsed());
        assert!(began.elapsed() >= ms(400), "{:?}", began.elapsed());
        let _ = guard.release().await.unwrap();
    });
}

/// Script calls per second while `waiters` of one client wait.
async fn calls_while_waiting(fixture: &Fixture, client: &Client, waiters: usize) -> f64 {
    let lock = client.simple_lock("job");
    let wait = |lock: Lock| tokio::spawn(async move { lock.lock().await.map(drop) });
    let tasks: Vec<_> = (0..waiters).map(|_| wait(lock.clone())).collect();
    tokio::time::sleep(ms(1_500)).await;
    let (before, began) = (fixture.script_calls(), Instant::now());
    tokio::time::sleep(ms(3_000)).await;
    let rate = (fixture.script_calls() - before) as f64 / began.elapsed().as_secs_f64();
    for task in tasks {
        task.abort();
    }
    rate
}

/// The cost of waiting: one of a client's waiters asks for all of them, every 125 to 250 ms behind
/// a foreign holder, and once per heartbeat (here a minute) behind one of ours.
#[test]
fn waiting_is_bounded() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let waiting = without_heartbeats(&fixture).await;
        fixture.call(&["SET", "job", "theirs", "PX", "600000"]);
        let rate = calls_while_waiting(&fixture, &waiting, 10).await;
        println!("measured: simple: 10 waiters behind a foreign holder: {rate:.1} calls/s");
        assert!((1.0..9.0).contains(&rate), "{rate}");
        fixture.call(&["DEL", "job"]);

        let holder = fixture.client().await;
        let lease = Duration::from_secs(600);
        let guard = holder.simple_lock("job").lease(lease).lock().await.unwrap();
        let rate = calls_while_waiting(&fixture, &waiting, 10).await;
        println!("measured: simple: 10 waiters behind a holder of ours: {rate:.1} calls/s");
        assert!(rate < 0.5, "{rate}");
        let _ = guard.release().await.unwrap();
    });
}

/// The string may contain anything. It is shown, never parsed, and never changed: neither by
/// waiting for it nor by a late release of ours.
#[test]
fn any_value_is_borne() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let lock = client(&fixture.server.url()).await.simple_lock("job");
        let ours = "01234567-89ab-8def-8123-456789abcdef:7";
        let near = format!("{ours}:0123456789abcdef0123456789ABCDEF:5");
        let long = "x".repeat(1_000_000);
        let raw = b"\xff\x00\r\n\x1b[31m".as_slice();
        for value in
            [b"".as_slice(), b"theirs", raw, ours.as_bytes(), near.as_bytes(), long.as_bytes()]
        {
            let mut direct = fixture.server.client();
            direct.call(&[b"SET".as_slice(), b"job", value]);
            assert!(lock.try_lock_for(ms(120)).await.unwrap().is_none());
            let status = lock.inspect().await.unwrap();
            let holder = status.holder.expect("a holder");
            assert_eq!(holder.owner.to_bytes(), &value[..value.len().min(256)]);
            assert!(!holder.owner.to_string().contains(['\x1b', '\n', '\0']), "escaped");
            assert_eq!((holder.count, status.ttl), (1, None));
            // A missing TTL is a deliberate choice: it is redis-py's default.
            assert_eq!(fixture.call(&["PTTL", "job"]).int(), -1);
            assert_eq!(direct.call(&[b"GET".as_slice(), b"job"]), Value::Bulk(value.to_vec()));
            assert!(lock.force_unlock().await.unwrap());
            assert!(lock.try_lock().await.unwrap().is_some());
        }
    });
}

/// A name that is a fair or plain lock, or not a lock at all, is refused; the error names the key.
#[test]
fn another_type_is_named() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let lock = client.simple_lock("job");
        for (put, found) in [
            (&["HSET", "job", "f", "1"][..], "a hash"),
            (&["RPUSH", "job", "x"], "a list"),
            (&["ZADD", "job", "1", "x"], "a zset"),
        ] {
            fixture.call(put);
            let error = lock.lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.to_string().contains(&format!("`job` holds {found}")), "{error}");
            assert_eq!(fixture.call(&["KEYS", "*job*"]).array().len(), 1, "nothing is written");
            fixture.call(&["DEL", "job"]);
        }
        fixture.call(&["SET", "job", "theirs"]);
        for lock in [client.fair_lock("job"), client.plain_lock("job")] {
            let error = lock.lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.to_string().contains("`job` holds a string"), "{error}");
            assert_eq!(fixture.call(&["KEYS", "*job*"]).array().len(), 1, "nothing is written");
        }
    });
}
