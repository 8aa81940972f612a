//! A link that carries a byte at a time.

use super::fixture::{Fixture, all_in_turn, eventually, measured};
use crate::support::in_real_time;
use fairlock::{Client, Config, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::Generation;
use std::time::{Duration, Instant};

/// A script's request has some 500 bytes, and several of them share a connection.
const TURN: Duration = Duration::from_secs(20);

/// Connects with the default times.
async fn connect(url: &str) -> Client {
    Client::with_config(Config::from_url(url).unwrap()).await.unwrap()
}

/// F61: every byte travels alone, a millisecond after the one before, in both directions. Requests
/// and replies are torn at each byte; everything works as on a fast link, only slower, and no
/// client on the slow link is taken for dead.
#[test]
fn f61_byte_by_byte() {
    in_real_time(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let proxy = Proxy::start(fixture.server.addr());
            let (slow, fast) = (connect(&proxy.url()).await, connect(&fixture.server.url()).await);
            // The scripts' texts, 19 000 bytes each, are sent before: this link is too slow for them.
            for client in [&fast, &slow] {
                let held = fixture.take(client, "warm").await;
                let place = fixture.enter(&fast, "warm").await;
                let _ = held.release().await;
                let _ = place.granted(TURN).await.release().await;
            }
            renewed_once(&fixture).await;
            proxy.byte_by_byte(Some(Duration::from_millis(1)));
            let began = Instant::now();
            let held = fixture.take(&slow, "job").await;
            measured(&format!("f61 {} an uncontended lock", generation.name()), began.elapsed());
            let mut places = Vec::new();
            for client in [&fast, &slow, &slow, &fast] {
                places.push(fixture.enter(client, "job").await);
            }
            let before = proxy.counts().single_bytes;
            eventually("heartbeats and pings were carried", TURN, || {
                proxy.counts().single_bytes > before + 2_000
            });
            assert_eq!(held.guard.state(), GuardState::Held);
            let began = Instant::now();
            assert_eq!(held.release().await, Release::Released);
            all_in_turn(places, TURN).await;
            measured(&format!("f61 {} four turns", generation.name()), began.elapsed());
            let counts = proxy.counts();
            assert_eq!(counts.connections, 2, "no connection was given up");
            fixture.history.assert_sound();
        }
    });
}

async fn renewed_once(fixture: &Fixture) {
    let brief = fixture.client().await;
    let held = fixture.take(&brief, "renewed").await;
    let mut left = fixture.ttl("renewed");
    eventually("a renewal", TURN, || {
        let before = std::mem::replace(&mut left, fixture.ttl("renewed"));
        left > before
    });
    let _ = held.release().await;
}
