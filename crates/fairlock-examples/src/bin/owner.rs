//! Re-entering a held lock.
//! `cargo run -p fairlock-examples --bin owner [-- redis://127.0.0.1/]`

use fairlock::{Client, Error, ErrorKind, Lock, Release};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url).await?;

    // With the guard at hand:
    let guard = client.fair_lock("invoice:42").lock().await?;
    let second = guard.reenter().await?;
    assert_eq!(second.token(), guard.token());
    println!("reenter: held {} times", guard.hold_count());
    assert_eq!(second.release().await?, Release::StillHeld(1));
    assert_eq!(guard.release().await?, Release::Released);

    // Without it: whoever asks as the same owner enters.
    let owner = client.owner();
    let lock = client.fair_lock("invoice:42").owned_by(&owner);
    let guard = lock.lock().await?;
    below(&lock).await?;
    // Any other request waits, even from another handle in the same task.
    assert!(client.fair_lock("invoice:42").try_lock().await?.is_none());
    assert_eq!(guard.release().await?, Release::Released);

    // Where a second entry is a mistake, it is an error.
    let lock = client.fair_lock("invoice:42").owned_by(&client.owner()).non_reentrant();
    let guard = lock.lock().await?;
    let refused = lock.lock().await.expect_err("it has the lock");
    assert_eq!(refused.kind(), ErrorKind::AlreadyHeld);
    println!("non_reentrant: held {} times", guard.hold_count());
    assert_eq!(guard.release().await?, Release::Released);
    Ok(())
}

async fn below(lock: &Lock) -> Result<(), Error> {
    let guard = lock.lock().await?; // would wait for itself without an owner
    println!("owner: held {} times", guard.hold_count());
    assert_eq!(guard.release().await?, Release::StillHeld(1));
    Ok(())
}
