//! Many clients hang at once: together they cost those behind them no more than one does.

use super::fixture::{D, Fixture, HB, LEASE, SLACK, measured, ms, steady};
use super::worker::Worker;
use fairlock::{Client, Config};
use fairlock_testkit::history::Event;
use std::time::{Duration, Instant};

/// Ten hung processes at the head: the first is granted the lock, because its heartbeat is fresh;
/// when its grant ends, the others count as dead as well.
#[test]
fn f07_ten_hung_processes_cost_one_deadline() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client = fixture.client().await;
        let took = hung(&fixture, &client, 10, HB, LEASE).await;
        measured("f07 release to grant, past 10 hung processes", took);
        assert!(took < D + HB + SLACK, "{took:?}");
    });
}

/// The same with the default times: at most D + HB, eight seconds.
#[test]
fn f07_three_hung_processes_with_default_times() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let client =
            Client::with_config(Config::from_url(&fixture.server.url()).unwrap()).await.unwrap();
        let took = hung(&fixture, &client, 3, ms(2_000), ms(30_000)).await;
        measured("f07 release to grant, past 3 hung processes, default times", took);
        assert!(took < ms(8_000) + SLACK, "{took:?}");
    });
}

async fn hung(
    fixture: &Fixture,
    client: &Client,
    n: u32,
    beat: Duration,
    lease: Duration,
) -> Duration {
    let held = fixture.take(client, "job").await;
    let start = |_| Worker::with(&fixture.server.url(), beat, lease, []);
    let mut workers: Vec<_> = (0..n).map(start).collect();
    for worker in &mut workers {
        let dead = worker.enter(fixture, "job");
        fixture.history.record("job", &dead, Event::Died);
    }
    let live = fixture.enter(client, "job").await;
    workers.iter().for_each(Worker::stop);
    let released = Instant::now();
    let _ = held.release().await;
    let held = live.granted(4 * beat + 3 * SLACK).await;
    let took = held.at - released;
    let _ = held.release().await;
    fixture.history.assert_sound();
    took
}
