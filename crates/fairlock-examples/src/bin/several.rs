//! Several locks at once: both, or none.
//! `cargo run -p fairlock-examples --bin several [-- redis://127.0.0.1/]`

use fairlock::{Client, Error, FencingToken};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url).await?;
    let ledger = Ledger;

    let both = client.multi_lock(["account:1", "account:2"])?;
    let guard = both.lock().await?; // both, or none
    let token = |name| guard.token(name).expect("a member");
    ledger.move_money(token("account:1"), token("account:2")).await?;
    let _ = guard.release().await?; // a late write would have been refused

    let _one = client.fair_lock("account:2").lock().await?;
    assert!(both.try_lock().await?.is_none());
    assert!(client.fair_lock("account:1").try_lock().await?.is_some());
    println!("one is taken: none of them");
    Ok(())
}

/// The resource. A real one refuses a token below the largest that it has seen for an account.
struct Ledger;

impl Ledger {
    async fn move_money(&self, from: FencingToken, to: FencingToken) -> Result<(), Error> {
        assert!(from.get() > 0 && to.get() > 0);
        println!("moved");
        Ok(())
    }
}
