//! Watches the connection and a guard until its stdin ends.
//! `cargo run -p fairlock-examples --bin watch [-- redis://127.0.0.1/]`

use fairlock::{Client, Config, ConnectionState, Error, GuardState};
use std::time::Duration;
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let config = Config::from_url(&url)?.watchdog_lease(Duration::from_secs(3));
    let client = Client::with_config(config).await?;
    let guard = client.fair_lock("invoice:42").lock().await?;

    let mut connection = client.connection();
    let connection = tokio::spawn(async move {
        loop {
            let state = *connection.borrow_and_update();
            println!("connection: {state:?}");
            // The sender is dropped with the client.
            if state == ConnectionState::Closed || connection.changed().await.is_err() {
                return;
            }
        }
    });
    let guard = tokio::spawn(async move {
        let mut state = guard.state();
        loop {
            println!("guard: {state:?}");
            if state == GuardState::Lost {
                return;
            }
            state = guard.state_changed(state).await;
        }
    });

    let mut nothing = [0];
    // A closed stdin ends the program as well.
    let _ = tokio::io::stdin().read(&mut nothing).await;
    client.shutdown().await;
    connection.await.expect("the task does not panic");
    guard.abort();
    Ok(())
}
