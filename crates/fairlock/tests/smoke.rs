//! The shortest path: two clients, three waiters, in order.

use fairlock::{Client, Config};
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};

const HEARTBEAT: Duration = Duration::from_secs(20);

async fn three_in_order(url: &str) {
    let connect = async || {
        let config = Config::from_url(url).unwrap().heartbeat(HEARTBEAT);
        Client::with_config(config).await.unwrap()
    };
    let a = connect().await;
    let b = if url == "memory:" { a.clone() } else { connect().await };
    let guard = a.fair_lock("job").lock().await.unwrap();
    assert!(b.fair_lock("job").try_lock().await.unwrap().is_none());
    let mut tokens = vec![guard.token()];
    let lock_b = b.fair_lock("job");
    let first = tokio::spawn(async move { lock_b.lock().await.unwrap() });
    let look = a.fair_lock("job");
    while look.inspect().await.unwrap().queue_len < 1 {
        tokio::task::yield_now().await;
    }
    let lock_a = a.fair_lock("job");
    let second = tokio::spawn(async move { lock_a.lock().await.unwrap() });
    while look.inspect().await.unwrap().queue_len < 2 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    let _ = guard.release().await.unwrap();
    let guard = first.await.unwrap();
    println!("{url}: hand-over {:?}", began.elapsed());
    assert!(began.elapsed() < HEARTBEAT / 2, "not woken, but at a heartbeat");
    tokens.push(guard.token());
    drop(guard);
    let guard = second.await.unwrap();
    tokens.push(guard.token());
    assert!(tokens.is_sorted());
    drop(guard);
}

#[tokio::test]
async fn memory() {
    three_in_order("memory:").await;
}

#[tokio::test]
async fn servers() {
    for generation in Generation::tested() {
        let Some(server) = Server::start(generation) else { continue };
        three_in_order(&server.url()).await;
    }
}

/// Both forms of the URL and the builder give the same locks in the same database.
#[tokio::test]
async fn a_unix_socket() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let path = server.unix_socket();
    three_in_order(&format!("unix:{}", path.display())).await;
    let url = format!("unix://{}?db=2", path.display());
    three_in_order(&url).await;
    let client = Client::with_config(Config::unix(&path).database(2)).await.unwrap();
    let guard = client.fair_lock("job").lock().await.unwrap();
    let by_url = Client::connect(&url).await.unwrap();
    assert!(by_url.fair_lock("job").is_locked().await.unwrap());
    let elsewhere = Client::connect(&server.url()).await.unwrap();
    assert!(!elsewhere.fair_lock("job").is_locked().await.unwrap());
    let _ = guard.release().await.unwrap();
}

/// `scripts/servers-report` reads what it prints.
#[test]
fn each_server_is_of_its_generation() {
    for server in Generation::tested().into_iter().filter_map(Server::start) {
        let (product, version) = server.generation().product();
        let reported = server.version();
        assert!(reported.starts_with(&format!("{product} {version}")), "{reported}");
        println!("reported: {} is {reported}", server.generation().name());
    }
}
