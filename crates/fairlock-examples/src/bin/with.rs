//! Work as a closure under a lock, which is cancelled when the lock is lost.
//! `cargo run -p fairlock-examples --bin with [-- redis://127.0.0.1/]`

use fairlock::{Client, Config, Error, ErrorKind, FencingToken, Release};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    // A short lease: a holder notices at its next renewal that its lock was taken away.
    let config = Config::from_url(&url)?.watchdog_lease(Duration::from_millis(1_500));
    let client = Client::with_config(config).await?;
    let lock = client.fair_lock("invoice:42");

    let done = lock.with(async |held| book(held.token()).await).await?;
    println!("booked {}", done.value);
    if done.release != Release::Released {
        println!("others may have held the lock before the end: {:?}", done.release);
    }

    // In a separate task, with an operator who takes the lock away.
    let begun = Arc::new(Notify::new());
    let task = tokio::spawn({
        let (lock, begun) = (lock.clone(), Arc::clone(&begun));
        let endless = move |_| async move {
            begun.notify_one();
            std::future::pending::<()>().await;
        };
        async move { lock.with(endless).await }
    });
    begun.notified().await;
    lock.force_unlock().await?;
    match task.await.expect("the task does not panic") {
        Ok(done) => println!("it ended: {done:?}"),
        Err(error) if error.kind() == ErrorKind::Lost => println!("cancelled, the lock was lost"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The protected work. It passes the token on to the resource it writes to.
async fn book(token: FencingToken) -> u32 {
    assert!(token.get() > 0);
    42
}
