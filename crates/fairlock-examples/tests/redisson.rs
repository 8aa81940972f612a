//! The examples of docs/redisson.md, next to a client that follows Redisson's rules.

use fairlock::{Client, Config, Error, FencingToken, Release};
use fairlock_testkit::redisson::JavaClient;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::wait;
use std::time::Duration;

async fn connect(url: &str) -> Result<Client, Error> {
    let config = Config::from_url(url)?
        .java_fleet(true) // not for every kind: see java_fleet below
        .watchdog_lease(Duration::from_secs(30)) // lockWatchdogTimeout
        .fair_wait(Duration::from_secs(300)); // fairLockWaitTimeout
    let client = Client::with_config(config).await?;
    Ok(client)
}

async fn work(_token: FencingToken) -> Result<(), Error> {
    Ok(())
}

async fn in_short(client: &Client) -> Result<(), Error> {
    // RLock lock = redisson.getFairLock("ledger");
    let lock = client.fair_lock("ledger");

    // lock.lock(); try { work(); } finally { lock.unlock(); }
    let guard = lock.lock().await?;
    work(guard.token()).await?;
    let _ = guard.release().await?; // dropping the guard releases too

    // if (lock.tryLock(5, 60, SECONDS)) try { work(); } finally { lock.unlock(); }
    let leased = lock.clone().lease(Duration::from_secs(60));
    if let Some(guard) = leased.try_lock_for(Duration::from_secs(5)).await? {
        work(guard.token()).await?;
        let _ = guard.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_queue_with_java() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let client = connect(&server.url()).await.unwrap();
    in_short(&client).await.unwrap();

    let mut java = JavaClient::new(&server, 0);
    assert_eq!(java.acquire("invoice:42", 7, 300_000, 30_000), None, "it is free");
    let lock = client.fair_lock("invoice:42");
    assert!(lock.try_lock().await.unwrap().is_none());
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!(holder.owner.to_bytes(), java.owner(7).into_bytes());
    let waits = tokio::spawn(async move { lock.lock().await });
    let waiting = client.fair_lock("invoice:42");
    let enters = async || waiting.inspect().await.unwrap().queue_len == 1;
    wait::until_async("it stands in the queue", Duration::from_secs(20), enters).await;
    assert_eq!(java.unlock("invoice:42", 7), Some(1));
    let _ = waits.await.unwrap().unwrap().release().await.unwrap();
    // A fleet's keys have no TTL.
    let ttl = server.client().call(&["PTTL", "redisson_lock_token:{invoice:42}"]);
    assert_eq!(ttl.int(), -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapped_name_is_the_name() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let client = connect(&server.url()).await.unwrap();
    // A NameMapper makes "shop:invoice:42" of Java's "invoice:42".
    let lock = client.fair_lock("shop:invoice:42");
    let mut java = JavaClient::new(&server, 0);
    assert_eq!(java.acquire("shop:invoice:42", 1, 300_000, 30_000), None);
    assert!(lock.is_locked().await.unwrap());
}

/// Of the manual. A lock of Redisson's has no such value.
#[tokio::test]
async fn a_value_that_others_can_read() -> Result<(), Error> {
    let Some(server) = Server::start(Generation::Redis70) else { return Ok(()) };
    let (client, other) = (connect(&server.url()).await?, connect(&server.url()).await?);
    // With the lock, however it was acquired:
    let guard = client.fair_lock("invoice:42").lock().await?;
    let term = client.election("invoice:42").lead(guard, "page 3 of 9").await?;
    term.proclaim("page 4 of 9").await?;

    // Without it, from anywhere:
    let holder = other.election("invoice:42").leader().await?;
    let value = holder.and_then(|holder| holder.value);
    assert_eq!(value.as_deref(), Some(&b"page 4 of 9"[..]));
    let _ = term.resign().await?;
    assert!(other.election("invoice:42").leader().await?.is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_tokens() -> Result<(), Error> {
    let Some(server) = Server::start(Generation::Redis70) else { return Ok(()) };
    let client = connect(&server.url()).await?;
    // lock.lockAsync(7); ... lock.unlockAsync(7);
    let seven = client.owner();
    let lock = client.fair_lock("invoice:42").owned_by(&seven);
    let outer = lock.lock().await?;
    let inner = lock.lock().await?; // enters, as the same owner
    assert_eq!(inner.release().await?, Release::StillHeld(1));
    assert_eq!(outer.release().await?, Release::Released);

    // Long token = redisson.getFencedLock("ledger").lockAndGetToken();
    let guard = client.plain_lock("ledger").lock().await?;
    let token = guard.token();
    let series = server.client().call(&["GET", "redisson_lock_token:{ledger}"]);
    assert_eq!(series.text(), token.to_string());
    let _ = guard.release().await?;
    Ok(())
}
