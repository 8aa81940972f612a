//! Many holds of one client, and a server that hangs: every guard reports its loss in time.

use crate::faults::fixture::{Fixture, LEASE, config, eventually, measured, ms, steady, within};
use fairlock::{Client, ConnectionState, Guard, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// From a guard's deadline until its `lost()` returns, in a task of the application beside five
/// hundred others. Well below the time that one unanswered call takes.
const LATE_MAX: Duration = Duration::from_secs(1);

const HOLDS: usize = 500;

/// A client that waits for several leases before it gives up on an unanswered call or ping.
async fn patient(proxy: &Proxy, lease: Duration) -> Client {
    let config = config(&proxy.url())
        .watchdog_lease(lease)
        .response_timeout(4 * lease)
        .connect_timeout(lease)
        .ping_interval(4 * lease)
        .ping_timeout(4 * lease);
    Client::with_config(config).await.unwrap()
}

/// Many renewed holds, and one that is never renewed and ends among them.
async fn many_holds(client: &Client) -> Vec<Arc<Guard>> {
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        guards.push(Arc::new(client.fair_lock(format!("job{n}")).lock().await.unwrap()));
    }
    let fixed = client.plain_lock("fixed").lease(LEASE).lock().await.unwrap();
    guards.push(Arc::new(fixed));
    guards
}

/// The watchdog used to start the renewals of a hundred due holds and wait for all the replies
/// before it looked at anything else. While these were missing, every other hold of the client
/// learned of its loss up to a response timeout late, and the next hundred later still. Here all
/// holds are due at once, because the connection was lost and restored, and then no reply arrives.
#[test]
fn unanswered_renewals_delay_no_loss() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let lease = 3 * LEASE;
        let client = patient(&proxy, lease).await;
        let guards = many_holds(&client).await;
        let mut connection = client.connection();
        proxy.delay_to_client(ms(150));
        proxy.cut_all();
        connection.wait_for(|state| *state == ConnectionState::Reconnecting).await.unwrap();
        connection.wait_for(|state| *state == ConnectionState::Connected).await.unwrap();
        // The replies are still in transit: the proxy delays them.
        proxy.black_hole_to_client(true);
        all_lost_in_time("unanswered renewals", &guards, lease).await;
        proxy.black_hole_to_client(false);
    });
}

/// The server is frozen; every guard reports its loss in time.
#[test]
fn a_server_that_hangs_delays_no_loss() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        // Long enough that a slow machine renews all of them.
        let lease = 6 * LEASE;
        let config = config(&fixture.server.url()).watchdog_lease(lease);
        let client = Client::with_config(config.response_timeout(4 * lease)).await.unwrap();
        let guards = many_holds(&client).await;
        fixture.server.stop();
        all_lost_in_time("a frozen server", &guards, lease).await;
        fixture.server.cont();
    });
}

async fn all_lost_in_time(what: &str, guards: &[Arc<Guard>], lease: Duration) {
    // Enough time to read the replies that were already sent.
    tokio::time::sleep(ms(200)).await;
    let mut losses = JoinSet::new();
    let held = guards.iter().filter(|guard| guard.state() != GuardState::Lost);
    for guard in held {
        let valid_until = Instant::now() + guard.remaining();
        losses.spawn(loss(Arc::clone(guard), valid_until));
    }
    assert!(losses.len() >= HOLDS, "{} holds", losses.len());
    let late = within("all are lost", 2 * lease, losses.join_all()).await;
    let latest = late.into_iter().max().unwrap();
    measured(&format!("{what}: the latest of {HOLDS} losses after its deadline"), latest);
    assert!(latest < LATE_MAX, "told {latest:?} after the deadline");
}

/// How long after its deadline a guard reports the loss.
async fn loss(guard: Arc<Guard>, valid_until: Instant) -> Duration {
    guard.lost().await;
    let now = Instant::now();
    assert!(now + ms(5) >= valid_until, "lost {:?} early", valid_until - now);
    now.saturating_duration_since(valid_until)
}

/// More holds than renewals that may be in flight at once: all of them are renewed, repeatedly.
#[test]
fn five_hundred_holds_are_renewed() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        // Long enough that a slow machine renews all of them in a third of it.
        let lease = 6 * LEASE;
        let config = config(&fixture.server.url()).watchdog_lease(lease);
        let client = Client::with_config(config).await.unwrap();
        let mut guards = Vec::new();
        for n in 0..HOLDS {
            guards.push(client.fair_lock(format!("job{n}")).lock().await.unwrap());
        }
        let (mut raw, thrice) = (fixture.server.client(), 3 * HOLDS as u64);
        let before = raw.script_calls();
        let renewed = || raw.script_calls() >= before + thrice;
        eventually("each is renewed several times", 5 * lease, renewed);
        let least = guards.iter().map(Guard::remaining).min().unwrap();
        measured("500 holds after three renewals: the least that is left", least);
        assert!(guards.iter().all(|guard| guard.state() == GuardState::Held));
        assert!(least > lease / 3, "{least:?}");
    });
}

/// In other libraries the watchdog kept released holds, and went on renewing them, or renewed each
/// once more after its release.
#[test]
fn what_is_released_is_not_renewed() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
            let released = lock.lock().await.unwrap();
            assert_eq!(released.release().await.unwrap(), Release::Released);
            drop(lock.lock().await.unwrap());
            within("the drop has released it", LEASE, async {
                while lock.is_locked().await.unwrap() {}
            })
            .await;
        }
        let before = fixture.script_calls();
        // This test is about time: each renewal would have been due after a third of the lease.
        tokio::time::sleep(LEASE).await;
        assert_eq!(fixture.script_calls() - before, 0, "nobody holds or wants anything");
    });
}

/// F79: the number of renewals in flight at once on one connection. Further due renewals wait until
/// one of these is answered, so that a server that stood still, or has a hundred thousand holds of
/// one client, never receives more than this at once.
const RENEWALS_AT_ONCE: u64 = 100;

/// All holds of a client are due at the same time, and nothing that it sends arrives.
#[test]
fn f79_few_renewals_are_under_way_at_once() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let lease = 2 * LEASE;
        let client = patient(&proxy, lease).await;
        let guards = many_holds(&client).await;
        fixture.record_without_lease(&client);
        proxy.black_hole_to_server(true);
        let is_held = |guard: &Arc<Guard>| guard.state() == GuardState::Held;
        within("one is suspect", lease, async {
            while guards[..HOLDS].iter().all(is_held) {
                tokio::time::sleep(ms(1)).await;
            }
        })
        .await;
        // Before the silent connection is replaced: handshakes are requests as well.
        let sent = proxy.counts().requests_black_holed;
        println!("measured: {sent} renewals under way of {HOLDS} that were due");
        assert!(sent <= RENEWALS_AT_ONCE && sent > RENEWALS_AT_ONCE / 2, "{sent}");
        within("all are lost", 2 * lease, async {
            for guard in &guards {
                guard.lost().await;
            }
        })
        .await;
    });
}
