//! The yardstick of benches: a server without the library in between.

use fairlock::yardstick::Yardstick;
use fairlock::{Client, Config, ErrorKind, LockName};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::topology::{Cluster, slot};
use std::collections::BTreeSet;
use std::time::Duration;

const TIME: Duration = Duration::from_millis(50);

fn names(count: u32) -> Vec<LockName> {
    (0..count).map(|n| LockName::new(format!("bench:{n}").as_bytes()).unwrap()).collect()
}

async fn quiet(url: &str) -> Client {
    Client::with_config(Config::from_url(url).unwrap().announce(false)).await.unwrap()
}

async fn listed(client: &Client) -> usize {
    let (mut locks, mut count) = (client.locks(), 0);
    while let Some(page) = locks.next_page().await.unwrap() {
        count += page.len();
    }
    count
}

#[tokio::test]
async fn scripts_are_carried_out_and_nothing_is_left() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (client, mut raw) = (quiet(&server.url()).await, server.client());
    raw.call(&["SET", "other", "x"]);
    let yardstick = Yardstick::connect(&client, &names(9)).await.unwrap().unwrap();
    yardstick.ping().await.unwrap();
    let before = server.script_calls();
    let pairs = yardstick.pairs(TIME).await.unwrap();
    // The first calls are sent twice, because the server does not know the scripts yet.
    let calls = server.script_calls() - before;
    assert!(pairs >= 9 && calls >= 2 * pairs, "{pairs} pairs, {calls} calls");
    let keys = raw.call(&["DBSIZE"]);
    assert_eq!(keys.int(), 10, "a token for each lock");

    Yardstick::erase(&client, names(9)).await.unwrap();
    assert_eq!(raw.call(&["DBSIZE"]).int(), 1, "the other one stays");
}

/// A bench refuses to run if its lock names are in use.
#[tokio::test]
async fn a_lock_in_use_is_an_error() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let client = quiet(&server.url()).await;
    let guard = client.fair_lock("bench:1").lock().await.unwrap();
    let yardstick = Yardstick::connect(&client, &names(2)).await.unwrap().unwrap();
    let error = yardstick.pairs(TIME).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
    let _ = guard.release().await.unwrap();
    assert!(yardstick.pairs(TIME).await.unwrap() > 0);
}

#[tokio::test]
async fn every_node_of_a_cluster_takes_part() {
    let Some(cluster) = Cluster::start(Generation::Redis70) else { return };
    let client = quiet(&cluster.url()).await;
    let yardstick = Yardstick::connect(&client, &names(12)).await.unwrap().unwrap();
    yardstick.ping().await.unwrap();
    assert!(yardstick.pairs(TIME).await.unwrap() >= 12);
    let masters: BTreeSet<_> =
        names(12).iter().map(|name| cluster.master_of(slot(name.as_bytes())).unwrap()).collect();
    assert_eq!(masters.len(), 3, "of all nodes");
    let keys =
        || masters.iter().map(|node| cluster.raw(*node).call(&["DBSIZE"]).int()).sum::<i64>();
    assert_eq!(keys(), 12, "a token for each lock");
    Yardstick::erase(&client, names(12)).await.unwrap();
    assert_eq!(keys(), 0);
}

/// Stores other than servers have no round trip, and none is invented.
#[tokio::test]
async fn other_stores_have_none() {
    let dir = TempDir::new();
    let mut stores = vec!["memory:".to_owned()];
    if cfg!(feature = "sqlite") {
        stores.push(format!("sqlite:{}", dir.path().join("locks").display()));
    }
    for url in stores {
        let client = quiet(&url).await;
        assert!(Yardstick::connect(&client, &names(1)).await.unwrap().is_none(), "{url}");
        let held = client.fair_lock("bench:0").lock().await.unwrap();
        let _ = client.fair_lock("bench:1").lock().await.unwrap().release().await.unwrap();
        let _ = client.fair_lock("other").lock().await.unwrap().release().await.unwrap();
        assert_eq!(listed(&client).await, 3, "{url}");
        Yardstick::erase(&client, names(2)).await.unwrap();
        // The memory store, which ends with its client, keeps the locks; in the file, only held
        // locks stay.
        let left = if url == "memory:" { 3 } else { 2 };
        assert_eq!(listed(&client).await, left, "{url}");
        let _ = held.release().await.unwrap();
    }
}
