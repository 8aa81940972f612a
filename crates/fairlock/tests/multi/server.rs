//! Several locks at once on a server: round trips, lost replies, and a client that dies.

use crate::support::{no_beats, poll_once, queue_is, runtime, soon, until};
use fairlock::{Client, Config, ErrorKind, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

const FOUR: [&str; 4] = ["d", "b", "a", "c"];

fn held(raw: &mut Raw) -> i64 {
    raw.call(&["EXISTS", "a", "b", "c", "d"]).int()
}

fn scripts(raw: &mut Raw) -> u64 {
    let stats = raw.call(&["INFO", "commandstats"]);
    let line = |name: &str| {
        let stats = stats.text().lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let calls = stats.split(['=', ',']).nth(1).and_then(|calls| calls.parse().ok());
        calls.unwrap_or(0)
    };
    line("cmdstat_evalsha:") + line("cmdstat_eval:")
}

async fn client(url: &str) -> Client {
    Client::with_config(no_beats(Config::from_url(url).unwrap())).await.unwrap()
}

/// No reply reaches the client, so whatever happens needs one round trip.
#[test]
fn four_free_names_cost_two_round_trips() {
    let Some(server) = Server::start(Generation::Valkey91) else { return };
    let (proxy, mut raw) = (Proxy::start(server.addr()), server.client());
    runtime().block_on(async {
        let client = client(&proxy.url()).await;
        let lock = client.multi_lock(FOUR).unwrap();
        // The server knows the scripts from now on.
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        let before = scripts(&mut raw);
        proxy.black_hole_to_client(true);
        let mut takes = Box::pin(lock.lock());
        assert!(poll_once(&mut takes).await.is_none());
        until("all are taken", async || held(&mut raw) == 4).await;
        assert_eq!(scripts(&mut raw) - before, 1);
        proxy.black_hole_to_client(false);
        let guard = soon("the reply", takes).await.unwrap();
        let before = scripts(&mut raw);
        proxy.black_hole_to_client(true);
        let mut gives = Box::pin(guard.release());
        assert!(poll_once(&mut gives).await.is_none());
        until("all are free", async || held(&mut raw) == 0).await;
        assert_eq!(scripts(&mut raw) - before, 4);
        proxy.black_hole_to_client(false);
        assert_eq!(soon("the replies", gives).await.unwrap(), Release::Released);
    });
}

/// B38: the reply to the one call is lost. Each request finds its own hold.
#[test]
fn b38_a_lost_reply_takes_nothing_twice() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (proxy, mut raw) = (Proxy::start(server.addr()), server.client());
    runtime().block_on(async {
        let client = client(&proxy.url()).await;
        let lock = client.multi_lock(FOUR).unwrap();
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        for _ in 0..10 {
            proxy.drop_replies(1);
            proxy.cut_after_reply_lost(true);
            let guard = soon("its own holds", lock.lock()).await.unwrap();
            for name in FOUR {
                let token = raw.call(&["GET", &format!("redisson_lock_token:{{{name}}}")]);
                assert_eq!(token.text(), guard.token(name).unwrap().to_string(), "{name}");
            }
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert_eq!(held(&mut raw), 0);
        }
    });
}

/// B38: the caller goes while the reply is under way.
#[test]
fn b38_what_was_taken_for_nobody_is_given_back() {
    let Some(server) = Server::start(Generation::Redis62) else { return };
    let (proxy, mut raw) = (Proxy::start(server.addr()), server.client());
    runtime().block_on(async {
        let client = client(&proxy.url()).await;
        let lock = client.multi_lock(FOUR).unwrap();
        let _ = lock.lock().await.unwrap().release().await.unwrap();
        for lost in [false, true] {
            proxy.black_hole_to_client(true);
            let mut takes = Box::pin(lock.lock());
            assert!(poll_once(&mut takes).await.is_none());
            until("all are taken", async || held(&mut raw) == 4).await;
            drop(takes);
            if lost {
                proxy.cut_all();
            }
            proxy.black_hole_to_client(false);
            until("all are free", async || held(&mut raw) == 0).await;
        }
    });
}

/// The last of them is granted by a message, and the store says nothing from then on. What follows the grant, the explicit
/// lease or the look whether the first is still held, waited for as long as that was valid: 27 s instead of 2 s.
#[test]
fn a_store_that_falls_silent_with_the_last_grant_is_not_waited_for() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    runtime().block_on(async {
        let other = Client::connect(&server.url()).await.unwrap();
        for lease in [None, Some(Duration::from_secs(20))] {
            let proxy = Proxy::start(server.addr());
            let client = client(&proxy.url()).await;
            let blocks = other.fair_lock("a").lock().await.unwrap();
            let mut lock = client.multi_lock(["b", "a"]).unwrap();
            lock = lease.map_or_else(|| lock.clone(), |lease| lock.clone().lease(lease));
            let began = Instant::now();
            let waits = tokio::spawn(async move {
                lock.try_lock_for(Duration::from_secs(2)).await.map(|guard| guard.is_some())
            });
            queue_is(&other.fair_lock("a"), 1).await;
            proxy.black_hole_to_server(true);
            let _ = blocks.release().await.unwrap();
            let error = soon("an end", waits).await.unwrap().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable), "{error}");
            // This is about time: those 2 s, half a second for an answer, and some for a machine that is busy.
            let took = began.elapsed();
            assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(15), "{took:?}");
            // What could not be given back is.
            proxy.black_hole_to_server(false);
            proxy.cut_all();
            until("both are free", async || {
                let [a, b] = ["a", "b"].map(|name| other.fair_lock(name));
                !a.is_locked().await.unwrap() && !b.is_locked().await.unwrap()
            })
            .await;
        }
    });
}

/// Whoever dies with some of them, while it waits for the others, holds nobody up for longer than a lease.
#[test]
fn a_client_that_dies_with_half_of_them_loses_them() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let proxy = Proxy::start(server.addr());
    runtime().block_on(async {
        let config = |url: &str| {
            let config = Config::from_url(url).unwrap();
            config.watchdog_lease(Duration::from_secs(2)).heartbeat(Duration::from_millis(200))
        };
        let dies = Client::with_config(config(&proxy.url())).await.unwrap();
        let lives = Client::with_config(config(&server.url())).await.unwrap();
        // The last of them in order.
        let blocks = lives.fair_lock("a").lock().await.unwrap();
        let lock = dies.multi_lock(FOUR).unwrap();
        let waits = tokio::spawn(async move { lock.lock().await.map(drop) });
        until("it waits", async || {
            lives.fair_lock("a").inspect_first(0).await.unwrap().queue_len == 1
        })
        .await;
        proxy.refuse(true);
        proxy.cut_all();
        let all = lives.multi_lock(["c", "d", "b"]).unwrap();
        let guard = soon("what the dead one held", all.lock()).await.unwrap();
        let _ = blocks.release().await.unwrap();
        let last = soon("the place of the dead one", lives.fair_lock("a").lock()).await.unwrap();
        drop((guard, last));
        waits.abort();
    });
}
