//! Waiting for a lock: not at all, for a limited time, or while doing something else.
//! `cargo run -p fairlock-examples --bin wait [-- redis://127.0.0.1/]`

use fairlock::{Client, Error, Release};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url).await?;
    let lock = client.fair_lock("invoice:42");
    let held = lock.lock().await?;

    match lock.try_lock().await? {
        Some(_guard) => println!("free"),
        None => println!("try_lock: taken"),
    }

    match lock.try_lock_for(Duration::from_millis(200)).await? {
        Some(_guard) => println!("in time"),
        None => println!("try_lock_for: not in time"),
    }

    // The place in the queue is kept, whatever the loop does.
    let mut turn = lock.enqueue().await?;
    let mut behind = lock.enqueue().await?;
    println!(
        "enqueue: {} before us, {} before the next",
        turn.position().await?,
        behind.position().await?
    );
    let mut held = Some(held);
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let guard = loop {
        tokio::select! {
            guard = turn.wait() => break guard?,
            _ = ticks.tick() => drop(held.take()), // other work; here it frees the lock
        }
    };
    println!("turn: it is ours");

    // Another wait for the same lock, cancelled halfway: it leaves the queue at once.
    let given_up = tokio::time::timeout(Duration::from_millis(50), lock.lock()).await;
    assert!(given_up.is_err());
    behind.leave().await?; // ready when the place is given up
    println!("given up");
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}
