//! The clocks jump: the client's wall clock, on which nothing depends, and the server's, which ends
//! leases early but costs nobody a place.

use super::fixture::{
    D, Fixture, HB, LEASE, SLACK, all_in_turn, assert_ordered, eventually, key, measured, ms,
    steady,
};
use super::worker::Worker;
use fairlock::{Client, GuardState, Release};
use fairlock_testkit::clock::ClockHandle;
use fairlock_testkit::history::Event;
use fairlock_testkit::redisson::{DEFAULT_WAIT_MS, JavaClient, WATCHDOG_LEASE_MS};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;

fn shimmed(generation: Generation) -> Option<Fixture> {
    Fixture::with(Server::builder(generation).clock_shim(true))
}

/// The wall clock of a client is a day off, and jumps by two days while the client holds and while
/// it waits: nothing happens.
#[test]
fn f63_the_clients_wall_clock_jumps() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let dir = TempDir::new();
        let Some(clock) = ClockHandle::new(dir.path()) else { return };
        let client = fixture.client().await;
        for (name, from, to) in [("east", 24, -24), ("west", -24, 24)] {
            clock.set_offset(from * HOUR_US);
            let mut worker = Worker::with(&fixture.server.url(), HB, LEASE, clock.environment());
            let line = worker.take(&fixture, name);
            assert!(clock.reads() > 0, "the worker's clock is not ours");
            let next = fixture.enter(&client, name).await;
            clock.set_offset(to * HOUR_US);
            // Longer than the lease: the hold has been renewed since.
            tokio::time::sleep(LEASE + LEASE / 2).await;
            assert_eq!(
                worker.hear("state", ms(0)).map(|line| line.words),
                None,
                "no loss, no doubt"
            );
            assert!(!next.is_over() && fixture.ttl(name) > ms(0) && fixture.ttl(name) <= LEASE);
            fixture.history.record(name, line.owner(), Event::Released);
            worker.order("release 0");
            assert_eq!(worker.expect("released", SLACK).words[2], "Released");

            let held = next.granted(SLACK).await;
            let frozen = worker.enter(&fixture, name);
            let last = fixture.enter(&client, name).await;
            clock.set_offset(from * HOUR_US);
            let _ = held.release().await;
            let line = worker.granted(&fixture, name, SLACK);
            assert_eq!(line.owner(), frozen);
            fixture.history.record(name, line.owner(), Event::Released);
            worker.order("release 0");
            let _ = last.granted(SLACK).await.release().await;
        }
        fixture.history.assert_sound();
    });
}

/// The server's clock jumps forward, by ten seconds and by an hour: beyond every lease. The holder
/// learns of the loss at its next renewal; no waiter is taken for dead, and their order stays.
#[test]
fn f64_the_servers_clock_jumps_forward() {
    steady(|| async {
        for (generation, seconds) in
            [(Generation::Redis62, 10), (Generation::Redis70, 3_600), (Generation::Valkey91, 3_600)]
        {
            let Some(fixture) = shimmed(generation) else { continue };
            let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
            let held = fixture.take(&clients[0], "job").await;
            let mut places = Vec::new();
            for n in [1, 2, 1, 0] {
                places.push(fixture.enter(&clients[n], "job").await);
            }
            fixture.server.clock().set_offset(seconds * SECOND_US);
            let began = Instant::now();
            let took = held.lost(LEASE / 3 + SLACK).await;
            measured(&format!("f64 {} +{seconds} s to Lost", generation.name()), took);
            assert_eq!(held.release().await, Release::Lost);
            all_in_turn(places, D + 2 * HB + SLACK).await;
            let name = generation.name();
            measured(&format!("f64 {name} +{seconds} s to all served"), began.elapsed());
            assert_ordered(&fixture);
        }
    });
}

/// a11: the server's clock jumps beyond D, and the release is read before any heartbeat. By age
/// every client in the queue is dead then; but since no client has been heard, age proves nothing.
#[test]
fn a11_the_release_comes_first_after_a_jump() {
    steady(|| async {
        let Some(fixture) = shimmed(Generation::Redis70) else { return };
        let clients = [fixture.seldom().await, fixture.seldom().await];
        let lock = clients[0].fair_lock("job").lease(60 * LEASE);
        let held = fixture.hold(lock).await;
        let mut places = Vec::new();
        for n in [1, 0, 1] {
            places.push(fixture.enter(&clients[n], "job").await);
        }
        // Four heartbeats: a client counts as dead after three.
        fixture.server.clock().set_offset(20 * SECOND_US);
        assert_eq!(held.release().await, Release::Released);
        let began = Instant::now();
        all_in_turn(places, ms(300) + SLACK).await;
        measured("a11 three turns after a jump", began.elapsed());
        fixture.history.assert_sound();
    });
}

/// The server's clock jumps back by an hour. The next renewal corrects the lease, waiters live and
/// keep their order, and tokens keep rising.
#[test]
fn f65_the_servers_clock_jumps_back() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = shimmed(generation) else { continue };
            let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
            let held = fixture.take(&clients[0], "job").await;
            let mut places = Vec::new();
            for n in [1, 2, 1, 0] {
                places.push(fixture.enter(&clients[n], "job").await);
            }
            fixture.server.clock().set_offset(-HOUR_US);
            let fixed = eventually("the lease is right again", LEASE / 3 + SLACK, || {
                fixture.ttl("job") <= LEASE
            });
            measured(&format!("f65 {} -1 h to a right lease", generation.name()), fixed);
            places.push(fixture.enter(&clients[2], "job").await);
            assert_eq!(held.guard.state(), GuardState::Held);
            assert_eq!(held.release().await, Release::Released);
            let began = Instant::now();
            all_in_turn(places, D + HB + SLACK).await;
            measured(&format!("f65 {} -1 h to all served", generation.name()), began.elapsed());
            fixture.history.assert_sound();
        }
    });
}

/// The server's clock runs one percent too fast, or too slow. The margin covers it: when the next
/// waiter gets a lock whose lease has run out by the server's clock, the previous guard is already
/// lost by its own clock. Renewed holds stay held, and waiters live.
#[test]
fn f67_the_servers_clock_runs_fast_or_slow() {
    /// One percent of it is more than the minimum margin of ten milliseconds.
    const FIXED: Duration = Duration::from_secs(4);
    steady(|| async {
        for generation in Generation::few() {
            for ppm in [10_000, -10_000] {
                let Some(fixture) = shimmed(generation) else { continue };
                fixture.server.clock().set_rate(ppm);
                let (one, two) = (fixture.client().await, fixture.client().await);
                let renewed = fixture.take(&one, "renewed").await;
                let waiter = fixture.enter(&two, "renewed").await;
                let fixed = fixture.hold(one.fair_lock("fixed").lease(FIXED)).await;
                let next = fixture.enter(&two, "fixed").await;
                let began = Instant::now();
                let next = next.granted(FIXED + HB + SLACK).await;
                // The state follows the guard's own clock, whenever its task runs.
                assert_eq!(fixed.guard.state(), GuardState::Lost, "both are valid");
                let name = generation.name();
                measured(&format!("f67 {name} {ppm:+} ppm: a lease of 4 s"), began.elapsed());
                fixture.history.record("fixed", &fixed.owner(), Event::Lost);
                assert!(next.token() > fixed.token());
                assert_eq!(next.release().await, Release::Released);
                assert_eq!(fixed.release().await, Release::Lost);

                assert_eq!(renewed.guard.state(), GuardState::Held);
                assert!(!waiter.is_over());
                assert_eq!(renewed.release().await, Release::Released);
                let _ = waiter.granted(HB + SLACK).await.release().await;
                assert_ordered(&fixture);
            }
        }
    });
}

/// Three waiters of two clients wait behind a hold of more than eleven minutes, longer than the
/// five minutes that Redisson gives a waiter; then a Java client arrives, with the server's time.
/// It takes none of them for stale except perhaps the youngest, which nobody vouches for until it
/// is the oldest of its client; that one returns to its place.
#[test]
fn three_waiters_behind_an_eleven_minute_hold() {
    steady(|| async {
        // Shorter than the TTL of our own keys without a heartbeat.
        const STEP_S: i64 = 50;
        const STEPS: i64 = 14;
        let Some(fixture) = shimmed(Generation::Redis70) else { return };
        let (holder, one, two) =
            (fixture.client().await, fixture.client().await, fixture.client().await);
        let lock = holder.fair_lock("job").lease(3_600 * LEASE);
        let held = fixture.hold(lock).await;
        let places = [
            fixture.enter(&one, "job").await,
            fixture.enter(&two, "job").await,
            fixture.enter(&two, "job").await,
        ];
        let queue = fixture.queue("job");
        for step in 1..=STEPS {
            fixture.server.clock().set_offset(step * STEP_S * SECOND_US);
            let due = real_ms() + step * STEP_S * 1_000;
            for client in [&one, &two] {
                eventually("both have said that they live", HB + SLACK, || {
                    beat(&fixture, client) >= due
                });
            }
            assert_eq!(fixture.queue("job"), queue, "after {} s", step * STEP_S);
        }

        let mut java = JavaClient::new(&fixture.server, STEPS * STEP_S * 1_000);
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
        let _subscription = java.subscribe("job", 1);
        assert_eq!(fixture.queue("job")[..3], queue[..], "Java dropped one of ours");
        let _ = held.release().await;
        let [first, second, third] = places;
        let _ = first.granted(SLACK).await.release().await;
        let held = second.granted(SLACK).await;
        // A second Java client arrives at the moment when the third waiter first becomes the head.
        assert!(java.acquire("job", 2, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_some());
        let back = eventually("the third is at the head", HB + SLACK, || {
            fixture.queue("job").first() == Some(&third.owner)
        });
        measured("the third waiter is back at the head", back);
        let _ = held.release().await;
        let _ = third.granted(HB + SLACK).await.release().await;
        assert_eq!(fixture.queue("job"), [java.owner(1), java.owner(2)]);
        assert!(java.acquire("job", 1, DEFAULT_WAIT_MS, WATCHDOG_LEASE_MS).is_none());
        assert_eq!(java.unlock("job", 1), Some(1));
        fixture.history.assert_sound();
    });
}

/// The last heartbeat of a client, in milliseconds of the server's clock.
fn beat(fixture: &Fixture, client: &Client) -> i64 {
    let score = fixture.call(&["ZSCORE", &key("fairlock_beats", "job"), &client.id().to_string()]);
    if score.is_nil() { 0 } else { score.text().parse().unwrap() }
}

fn real_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
