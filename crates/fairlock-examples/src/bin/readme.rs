//! The example of the README: `cargo run -p fairlock-examples --bin readme`

use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), fairlock::Error> {
    let client = fairlock::Client::connect("memory:").await?; // or "redis://127.0.0.1/"
    let lock = client.fair_lock("invoice:42");
    let guard = lock.lock().await?; // waits its turn; renewed in the background
    assert!(guard.token().get() > 0); // the fencing token: pass it to what you write to
    guard.ensure_valid()?; // still held? Costs no I/O
    if guard.release().await? == fairlock::Release::Lost {
        eprintln!("another client may have worked at the same time: check what was written");
    }
    let again = lock.try_lock_for(Duration::from_secs(5)).await?; // None after 5 s
    drop(again); // releases it, too
    let done = lock.with(async |held| held.token()).await?; // cancelled when the lock is lost
    assert_eq!(done.release, fairlock::Release::Released);
    println!("done");
    Ok(())
}
