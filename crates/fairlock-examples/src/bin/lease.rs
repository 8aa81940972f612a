//! How long a lock is held: renewed, fixed, bounded, or left to the store.
//! `cargo run -p fairlock-examples --bin lease [-- redis://127.0.0.1/]`

use fairlock::{Client, Config, Error, Release};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let config = Config::from_url(&url)?;
    renewed(config.clone()).await?;
    fixed(config.clone()).await?;
    bounded(config.clone()).await?;
    left_to_the_store(config).await
}

/// Work of unknown length: the lease is renewed for as long as the guard lives.
async fn renewed(config: Config) -> Result<(), Error> {
    let client = Client::with_config(config.watchdog_lease(Duration::from_secs(4))).await?;
    let guard = client.fair_lock("lease:renewed").lock().await?;
    tokio::time::sleep(Duration::from_secs(8)).await; // two leases
    println!("renewed: {:?} after two leases", guard.state());
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

/// Work that must end by a deadline: the lease is never renewed.
async fn fixed(config: Config) -> Result<(), Error> {
    let client = Client::with_config(config).await?;
    let lock = client.fair_lock("lease:fixed").lease(Duration::from_millis(300));
    let guard = lock.lock().await?;
    guard.lost().await; // the lease is over
    println!("fixed: {:?} when the lease is over", guard.state());
    drop(guard);
    Ok(())
}

/// A task that may hang: the lease is renewed up to a limit.
async fn bounded(config: Config) -> Result<(), Error> {
    let client = Client::with_config(config).await?;
    let lock = client.fair_lock("lease:bounded").max_hold(Duration::from_millis(300));
    let guard = lock.lock().await?;
    let hangs = std::future::pending::<()>();
    tokio::select! {
        () = hangs => unreachable!("it hangs"),
        () = guard.lost() => {} // the task is dropped
    }
    println!("bounded: the task was dropped, the guard is {:?}", guard.state());
    // The next waiter is served, whether or not the task releases the lock.
    let next = lock.lock().await?;
    assert!(next.token() > guard.token());
    assert_eq!(next.release().await?, Release::Released);
    Ok(())
}

/// "At most once in this time": no guard holds the lock, but it stays taken until the lease
/// ends.
async fn left_to_the_store(config: Config) -> Result<(), Error> {
    let client = Client::with_config(config).await?;
    let lock = client.fair_lock("lease:left").lease(Duration::from_secs(2));
    let detached = lock.lock().await?.detach().await?;
    assert!(lock.try_lock().await?.is_none());
    let next = lock.lock().await?; // waits for the rest
    println!("left to the store: {:?} of it left when the next one came", detached.remaining());
    assert_eq!(next.release().await?, Release::Released);
    Ok(())
}
