//! Jumps of the server's clock are reported; `clocks` shows what happens to locks.

use crate::support::{in_real_time, soon, until};
use fairlock::{Check, Client, Config, GuardState, Reaction};
use fairlock_testkit::server::{Generation, Server};
use std::time::Duration;

const HOUR_US: i64 = 3_600_000_000;

/// Renewals come after each third of it: none within a test.
const LEASE: Duration = Duration::from_secs(600);

/// Waits for the warning. Each reply of the server carries its time; the first one after the jump
/// need not bring the warning.
async fn told(client: &Client, word: &str) {
    let lock = client.fair_lock(client.id().to_string());
    until(word, async || {
        drop(lock.try_lock().await.unwrap());
        let warnings = client.warnings();
        warnings
            .iter()
            .any(|found| found.check() == Check::Clock && found.to_string().contains(word))
    })
    .await;
    // Only the latest warning is kept.
    assert_eq!(client.warnings().len(), 1);
}

/// F64, F65: an hour forwards and back. By default the client warns; with `Refuse` it also asks the
/// server about every guard at once, and updates it; with `Ignore` it does not look.
#[test]
fn f64_f65_a_jump_of_the_servers_clock_is_told() {
    in_real_time(|| async {
        let server = Server::builder(Generation::Redis70).clock_shim(true).start();
        let Some(server) = server else { return };
        let client = async |reaction| {
            let config = Config::from_url(&server.url()).unwrap().watchdog_lease(LEASE);
            Client::with_config(config.on_check(Check::Clock, reaction)).await.unwrap()
        };
        let (warns, refuses) = (client(Reaction::Warn).await, client(Reaction::Refuse).await);
        let ignores = client(Reaction::Ignore).await;
        let mut guards = Vec::new();
        for client in [&warns, &refuses, &ignores] {
            guards.push(client.fair_lock(format!("of {}", client.id())).lock().await.unwrap());
            assert_eq!(client.warnings(), []);
        }

        // Back: leases last longer, and a guard that is asked about is confirmed as held.
        server.clock().set_offset(-HOUR_US);
        for client in [&warns, &refuses] {
            told(client, "back by").await;
        }
        let refused = || guards[1].state();
        until("it is confirmed", async || refused() == GuardState::Held).await;

        // Forwards, beyond every lease: the guard is asked about, and lost before its next renewal.
        server.clock().set_offset(HOUR_US);
        for client in [&warns, &refuses] {
            told(client, "forwards by").await;
        }
        soon("the loss", guards[1].lost()).await;
        drop(ignores.fair_lock("other").try_lock().await.unwrap());
        assert_eq!(ignores.warnings(), []);
        for guard in [&guards[0], &guards[2]] {
            assert_eq!(guard.state(), GuardState::Held, "nobody has asked");
        }
    });
}
