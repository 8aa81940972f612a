//! Scripts and connections are lost repeatedly while many take turns.

use super::fixture::{Fixture, HB, Held, SLACK, all_in_turn, measured, ms, steady, within};
use fairlock::Client;
use fairlock_testkit::history::{check_exclusion, check_no_lost_waiter, check_tokens_rise};
use fairlock_testkit::server::Generation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Runs `fault` every `period` until it is dropped.
pub(super) struct Storm {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Storm {
    pub(super) fn start(
        fixture: &Fixture,
        period: Duration,
        fault: &'static [&'static str],
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let mut raw = fixture.server.client();
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            while !ended.load(Ordering::SeqCst) {
                raw.call(fault);
                count += 1;
                std::thread::sleep(period);
            }
            count
        });
        Self { over, thread: Some(thread) }
    }

    pub(super) fn end(mut self) -> u64 {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// How long each of these storms lasts.
const STORM: Duration = Duration::from_millis(1_500);

/// On a busy machine it lasts until there were as many turns.
pub(super) const TURNS_MIN: u64 = 101;

/// Six tasks take turns until the storm is over, and increment a counter that only the lock
/// protects.
async fn count(fixture: &Arc<Fixture>, clients: &[Client]) -> u64 {
    let counter = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + STORM;
    let mut all = JoinSet::new();
    for n in 0..6 {
        let (fixture, client) = (Arc::clone(fixture), clients[n % clients.len()].clone());
        let counter = Arc::clone(&counter);
        all.spawn(async move {
            let mut turns = 0;
            while Instant::now() < until || counter.load(Ordering::SeqCst) < TURNS_MIN {
                let guard = client.fair_lock("job").lock().await.unwrap();
                let held = Held::new(guard, &fixture.history);
                let seen = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                held.guard.ensure_valid().unwrap();
                counter.store(seen + 1, Ordering::SeqCst);
                let _ = held.release().await;
                turns += 1;
            }
            turns
        });
    }
    let done = async {
        let mut total = 0;
        while let Some(turns) = all.join_next().await {
            total += turns.unwrap();
        }
        total
    };
    let total = within("everybody's last turn", STORM + 30 * SLACK, done).await;
    assert_eq!(counter.load(Ordering::SeqCst), total);
    let records = fixture.history.records();
    for check in [check_exclusion, check_tokens_rise, check_no_lost_waiter] {
        let violations = check(&records);
        assert!(violations.is_empty(), "{violations:#?}");
    }
    total
}

/// The server forgets all scripts every two milliseconds: no caller notices.
#[test]
fn f26_script_flush_under_load() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation).map(Arc::new) else { continue };
            let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
            let storm = Storm::start(&fixture, ms(2), &["SCRIPT", "FLUSH"]);
            let turns = count(&fixture, &clients).await;
            let flushes = storm.end();
            println!("measured: f26 {}: {turns} turns, {flushes} times", generation.name());
            assert!(flushes > 20 && turns > 100, "{flushes} {turns}");
        }
    });
}

/// Connections of one type are killed every 150 ms while many take turns.
fn killed_under_load(what: &str, kill: &'static [&'static str]) {
    steady(|| async {
        let Some(fixture) = Fixture::redis70().map(Arc::new) else { return };
        let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
        let storm = Storm::start(&fixture, ms(150), kill);
        let turns = count(&fixture, &clients).await;
        let kills = storm.end();
        println!("measured: f31: {turns} turns, {what} killed {kills} times");
        assert!(kills > 3 && turns > 10, "{kills} {turns}");
    });
}

/// A lost message costs up to a heartbeat, and nothing else.
#[test]
fn f31_inboxes_are_killed_under_load() {
    killed_under_load("inboxes", &["CLIENT", "KILL", "TYPE", "pubsub"]);
}

/// Requests are sent again, and take effect once.
#[test]
fn f31_command_connections_are_killed_under_load() {
    killed_under_load("command connections", &["CLIENT", "KILL", "TYPE", "normal"]);
}

/// a16: all inboxes are lost at once, while the lock is held. When they are back, the waiters are
/// served in their old order, whichever came back first.
#[test]
fn a16_all_inboxes_are_killed_while_waiting() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
        let held = fixture.take(&clients[0], "job").await;
        let mut places = Vec::new();
        for n in 0..9 {
            places.push(fixture.enter(&clients[n % 3], "job").await);
        }
        fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        fixture.inboxes_are_back(&clients);
        let began = Instant::now();
        let _ = held.release().await;
        all_in_turn(places, SLACK).await;
        measured("a16 nine turns after all inboxes were killed", began.elapsed());
        fixture.history.assert_sound();
    });
}

/// a16: the lock is released at the very moment when all inboxes are lost. Every client counts as
/// dead then, and returns within a heartbeat; no waiter is lost.
#[test]
fn a16_all_inboxes_are_killed_at_the_release() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
        let held = fixture.take(&clients[0], "job").await;
        let mut turns = JoinSet::new();
        for n in 0..9 {
            let place = fixture.enter(&clients[n % 3], "job").await;
            turns.spawn(async move { place.granted(4 * HB + 5 * SLACK).await.release().await });
        }
        let began = Instant::now();
        fixture.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let _ = held.release().await;
        while let Some(outcome) = turns.join_next().await {
            assert_eq!(outcome.unwrap(), fairlock::Release::Released);
        }
        measured("a16 nine turns, inboxes killed at the release", began.elapsed());
        // Nine turns that each waited for a silence to be noticed would take longer.
        assert!(began.elapsed() < 4 * HB + 3 * SLACK);
        let records = fixture.history.records();
        for check in [check_exclusion, check_tokens_rise, check_no_lost_waiter] {
            let violations = check(&records);
            assert!(violations.is_empty(), "{violations:#?}");
        }
        let overtaken = fairlock_testkit::history::check_fifo(&records).len();
        println!("a16: {overtaken} grants out of order while inboxes were gone");
    });
}
