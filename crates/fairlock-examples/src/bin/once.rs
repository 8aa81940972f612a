//! A job that is done once in a period in the whole fleet, by the first process that asks.
//! `cargo run -p fairlock-examples --bin once [-- redis://127.0.0.1/]`

use fairlock::{Client, Error, FencingToken};
use std::time::{Duration, Instant};

/// How often the job may begin. For one that every host starts each hour: 50 minutes, so that clocks
/// that differ skip no run.
const ONCE_PER: Duration = Duration::from_secs(4);

/// Sends the newsletter, unless that was done in this period, or is being done. Returns whether it
/// did.
async fn send_once(client: &Client) -> Result<bool, Error> {
    let lock = client.fair_lock("newsletter").owned_by(&client.once_owner());
    let began = Instant::now();
    let Some(guard) = lock.try_lock().await? else { return Ok(false) };
    // Renewed meanwhile. If this fails, or the process dies, the next one that asks does it.
    send(guard.token()).await?;
    // Done: the lock stays held for the rest of the period, which began before the work.
    let left = ONCE_PER.saturating_sub(began.elapsed());
    guard.detach_for(left.max(Duration::from_millis(100))).await?;
    Ok(true)
}

async fn send(token: FencingToken) -> Result<(), Error> {
    assert!(token.get() > 0);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url).await?;
    println!("sent: {}", send_once(&client).await?);
    println!("sent again: {}", send_once(&client).await?);
    while client.fair_lock("newsletter").is_locked().await? {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("sent in the next period: {}", send_once(&client).await?);
    Ok(())
}
