//! The example of the README: `cargo run -p fairlock-examples --bin readme`

#[tokio::main]
async fn main() -> Result<(), fairlock::Error> {
    use std::time::Duration;

    let client = fairlock::Client::connect("memory:").await?; // or "redis://127.0.0.1/"
    let lock = client.fair_lock("invoice:42");

    let guard = lock.lock().await?; // waits its turn; renewed while it lives
    assert!(guard.token().get() > 0); // hand it to what you write to
    guard.ensure_valid()?; // no I/O
    guard.release().await?; // dropping the guard releases it too

    if let Some(guard) = lock.try_lock_for(Duration::from_secs(5)).await? {
        drop(guard);
    }

    let done = lock.with(async |held| held.token()).await?; // cancelled at once when the lock is lost
    assert_eq!(done.release, fairlock::Release::Released); // the value is there in any case
    println!("done");
    Ok(())
}
