//! A thousand waiters lose their server at once.

use super::fixture::{Fixture, LEASE, SLACK, config, eventually, key, measured, within};
use crate::support::in_real_time;
use fairlock::{Client, GuardState};
use fairlock_testkit::history::Event;
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CLIENTS: usize = 100;
const WAITERS_OF_EACH: usize = 10;
const WAITERS: usize = CLIENTS * WAITERS_OF_EACH;

const BEAT: Duration = Duration::from_secs(2);

/// Long enough for every client to be refused several times.
const AWAY: Duration = Duration::from_millis(1_500);

/// A bound for a crowd on a busy machine.
const ALL_OF_THEM: Duration = Duration::from_secs(60);

/// Commands of all kinds that the server has carried out since its start, including those within
/// scripts, but without this test's own `PUBSUB CHANNELS`.
fn commands(raw: &mut Raw) -> u64 {
    let info = raw.call(&["INFO", "commandstats"]);
    let theirs = info.text().lines().filter(|line| !line.contains("pubsub|channels"));
    let calls = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
    theirs.filter_map(calls).sum()
}

/// F62: a server with a thousand waiters (of a hundred clients) dies and comes back with its log.
/// They return spread over the pauses between attempts and not all at once, cost at most twice what
/// they cost while they wait, and are served in their old order.
#[test]
fn f62_a_thousand_waiters_reconnect() {
    in_real_time(|| async {
        let Some(fixture) = Fixture::with(Server::builder(Generation::Redis70).persist(true))
        else {
            return;
        };
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            // The usual short times are too short for a crowd.
            let config = config(&fixture.server.url())
                .heartbeat(BEAT)
                .watchdog_lease(60 * LEASE)
                .ping_interval(Duration::from_secs(5))
                .ping_timeout(Duration::from_secs(5))
                .response_timeout(Duration::from_secs(10))
                .connect_timeout(Duration::from_secs(10));
            clients.push(Client::with_config(config).await.unwrap());
        }
        let holder = fixture.take(&clients[0], "job").await;
        let mut waiters = JoinSet::new();
        for n in 0..WAITERS {
            let lock = clients[n % CLIENTS].fair_lock("job");
            let mut turn = lock.enqueue().await.unwrap();
            let history = fixture.history.clone();
            waiters.spawn(async move {
                let guard = turn.wait().await.unwrap();
                let owner = guard.owner().to_string();
                history.record("job", &owner, Event::Granted { token: guard.token().get() });
                history.record("job", &owner, Event::Released);
                let _ = guard.release().await.unwrap();
            });
        }
        let queue = fixture.queue("job");
        assert_eq!(queue.len(), WAITERS);
        for owner in &queue {
            fixture.note_place("job", owner);
        }

        let mut raw = fixture.server.client();
        let before = commands(&mut raw);
        // This test is about time: the cost of the crowd in three heartbeats.
        tokio::time::sleep(3 * BEAT).await;
        let usual = commands(&mut raw) - before;

        fixture.server.kill9();
        holder.becomes(GuardState::Suspect, 5 * SLACK).await;
        tokio::time::sleep(AWAY).await;
        fixture.server.restart();
        let began = Instant::now();
        let mut raw = fixture.server.client();
        // When each inbox came back, by its channel's first subscriber.
        let mut arrived = Vec::new();
        let mut seen = BTreeSet::new();
        eventually("all inboxes are back", ALL_OF_THEM, || {
            let channels = raw.call(&["PUBSUB", "CHANNELS", "fairlock_inbox:*"]);
            for channel in channels.array() {
                if seen.insert(channel.text().to_owned()) {
                    arrived.push(began.elapsed());
                }
            }
            arrived.len() == CLIENTS
        });
        measured("f62 the first is back", arrived[0]);
        measured("f62 half of them are back", arrived[CLIENTS / 2]);
        measured("f62 all are back", arrived[CLIENTS - 1]);
        tokio::time::sleep((3 * BEAT).saturating_sub(began.elapsed())).await;
        let (returning, took) = (commands(&mut raw), began.elapsed());
        println!(
            "measured: f62 {usual} commands in three heartbeats, {returning} while they return"
        );
        assert!(usual >= 2 * CLIENTS as u64, "{usual}: no heartbeats");
        // It was 2.5 times as many when each client had all its rights checked twice, and asked for its
        // oldest waiter before it asked for all.
        let most = (2 * usual) as f64 * took.as_secs_f64() / (3 * BEAT).as_secs_f64();
        assert!(returning as f64 <= most, "{returning} commands in {took:?}, usually {usual}");
        // By then the pauses between attempts were a second and more, and half of each pause is random.
        let spread = arrived[CLIENTS * 9 / 10] - arrived[CLIENTS / 10];
        assert!(spread > Duration::from_millis(200), "all in one instant: {spread:?}");

        assert_eq!(fixture.queue("job"), queue, "the order");
        holder.becomes(GuardState::Held, ALL_OF_THEM).await;
        let released = Instant::now();
        let _ = holder.release().await;
        within("all are served", ALL_OF_THEM, async {
            while let Some(done) = waiters.join_next().await {
                done.unwrap();
            }
        })
        .await;
        measured("f62 a thousand turns", released.elapsed());
        fixture.history.assert_sound();
        assert_eq!(fixture.call(&["EXISTS", &key("redisson_lock_queue", "job")]).int(), 0);
    });
}
