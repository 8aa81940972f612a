//! The server is up but does not serve: it is stopped, a script blocks it, or it is told to pause.

use super::fixture::{
    Fixture, HB, Held, LEASE, Place, SLACK, all_in_turn, config, eventually, measured, ms, steady,
};
use fairlock::{Client, ErrorKind, GuardState, Release};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};
use std::thread;
use std::time::{Duration, Instant};

/// A lease that is longer than any of the short stalls here, and due for renewal during one.
const LONG: Duration = Duration::from_secs(4);

/// How long the short stalls last: each hold is due for renewal, and none is lost.
const SHORT: Duration = Duration::from_millis(1_700);

/// The time after which the server answers others while a script runs.
const BUSY_AFTER_MS: &str = "50";

/// A holder and four waiters of two clients.
async fn scene(fixture: &Fixture, lease: Duration) -> ([Client; 2], Held, Vec<Place>) {
    scene_with(fixture, lease, [1, 0, 1, 0]).await
}

/// The same with these clients' waiters.
async fn scene_with(
    fixture: &Fixture,
    lease: Duration,
    waiters: [usize; 4],
) -> ([Client; 2], Held, Vec<Place>) {
    let connect = || async {
        let config = config(&fixture.server.url()).watchdog_lease(lease);
        Client::with_config(config).await.unwrap()
    };
    let clients = [connect().await, connect().await];
    let held = fixture.take(&clients[0], "job").await;
    let mut places = Vec::new();
    for n in waiters {
        places.push(fixture.enter(&clients[n], "job").await);
    }
    (clients, held, places)
}

/// The state after a stall that was shorter than the lease.
async fn nothing_was_lost(fixture: &Fixture, clients: &[Client], held: Held, places: Vec<Place>) {
    let queue: Vec<_> = places.iter().map(|place| place.owner.clone()).collect();
    held.becomes(GuardState::Held, 2 * SLACK + ms(2_000)).await;
    // A waiter that has lost its inbox counts as dead at its turn, and would return to its place.
    fixture.inboxes_are_back(clients);
    fixture.beat_again("job", clients.iter().map(Client::id));
    eventually("everybody stands where it stood", HB + SLACK, || fixture.queue("job") == queue);
    assert_eq!(held.release().await, Release::Released);
    all_in_turn(places, HB + SLACK).await;
    fixture.history.assert_sound();
}

/// A new request gets an error with the server's own words, and leaves nothing.
async fn new_ones_are_refused(fixture: &Fixture, word: &str) {
    let config = config(&fixture.server.url()).store_timeout(ms(300)).lazy_connect(true);
    let short = Client::with_config(config).await.unwrap();
    let error = short.fair_lock("other").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

/// F24, the shorter half: the server stands still (stopped, and in a command of its own) for less
/// than a lease. The guard is Suspect and then Held again; all waiters keep their places.
#[test]
fn f24_a_stall_shorter_than_the_lease() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = Fixture::start(generation) else { continue };
            let (clients, held, places) = scene(&fixture, LONG).await;
            let began = Instant::now();
            fixture.server.stop();
            held.becomes(GuardState::Suspect, ms(300) + SLACK).await;
            // This test is about time.
            tokio::time::sleep(SHORT.saturating_sub(began.elapsed())).await;
            assert_eq!(held.guard.state(), GuardState::Suspect);
            fixture.server.cont();
            nothing_was_lost(&fixture, &clients, held, places).await;

            let (clients, held, places) = scene(&fixture, LONG).await;
            let mut raw = fixture.server.client();
            let seconds = SHORT.as_secs_f64().to_string();
            raw.send(&["DEBUG", "SLEEP", &seconds]);
            held.becomes(GuardState::Suspect, ms(300) + SLACK).await;
            nothing_was_lost(&fixture, &clients, held, places).await;
        }
    });
}

/// Another program's script that does not end.
struct Endless(Option<thread::JoinHandle<Value>>);

impl Endless {
    /// Returns once the server replies that it is busy.
    fn begin(fixture: &Fixture, script: &'static str) -> Self {
        let mut raw = fixture.server.client();
        let thread = thread::spawn(move || {
            raw.send(&["EVAL", script, "0"]);
            loop {
                // Until the script is killed, or the server.
                match raw.read_within(ms(500)) {
                    Ok(None) => {}
                    Ok(Some(reply)) => return reply,
                    Err(_) => return Value::Nil,
                }
            }
        });
        eventually("the server is busy", 5 * SLACK, || {
            let asked = Raw::connect(fixture.server.addr()).try_call(&["PING"]);
            matches!(asked, Ok(Value::Error(error)) if error.starts_with("BUSY"))
        });
        Self(Some(thread))
    }

    fn end(mut self) -> Value {
        self.0.take().unwrap().join().unwrap()
    }
}

fn with_short_scripts(generation: Generation) -> Option<Fixture> {
    Fixture::with(Server::builder(generation).persist(true).arg("--lua-time-limit", BUSY_AFTER_MS))
}

/// F25: a script of another program does not end. The server refuses all calls meanwhile; calls are
/// repeated, new ones end in time with its reason, and when the script is killed everything
/// continues.
#[test]
fn f25_a_script_does_not_end_and_is_killed() {
    steady(|| async {
        for generation in Generation::few() {
            let Some(fixture) = with_short_scripts(generation) else { continue };
            let (clients, held, places) = scene(&fixture, LONG).await;
            let began = Instant::now();
            let endless = Endless::begin(&fixture, "while true do end");
            new_ones_are_refused(&fixture, "BUSY").await;
            tokio::time::sleep(SHORT.saturating_sub(began.elapsed())).await;
            assert_eq!(held.guard.state(), GuardState::Suspect, "a renewal was refused");
            assert_eq!(fixture.call(&["SCRIPT", "KILL"]), Value::Simple("OK".into()));
            let ended = endless.end();
            assert!(matches!(&ended, Value::Error(error) if error.contains("killed")), "{ended:?}");
            measured(&format!("f25 {} busy", generation.name()), began.elapsed());
            nothing_was_lost(&fixture, &clients, held, places).await;
        }
    });
}

/// F25: the script has already written, so only killing the server ends it. The guard is lost by
/// its own clock, and when the server is back the waiters are served, in order.
#[test]
fn f25_a_script_cannot_be_killed() {
    steady(|| async {
        let Some(fixture) = with_short_scripts(Generation::Redis70) else { return };
        // Of one client: the restarted server finds the lock free, and a client that reconnects later than another has
        // no inbox when its turn comes, so the other client's waiter is served before it returns to its place.
        let (_clients, held, places) = scene_with(&fixture, LEASE, [1; 4]).await;
        let write_first = "redis.call('SET', 'other', 1) while true do end";
        let endless = Endless::begin(&fixture, write_first);
        let killed = fixture.call(&["SCRIPT", "KILL"]);
        assert!(
            matches!(&killed, Value::Error(error) if error.starts_with("UNKILLABLE")),
            "{killed:?}"
        );
        let took = held.lost(LEASE + SLACK).await;
        measured("f25 unkillable: to Lost", took);
        assert!(places.iter().all(|place| !place.is_over()), "nobody gave up");
        fixture.server.kill9();
        endless.end();
        fixture.server.restart();
        let began = Instant::now();
        all_in_turn(places, LEASE + ms(2_000) + 2 * SLACK).await;
        measured("f25 unkillable: restart to all served", began.elapsed());
        fixture.history.assert_sound();
    });
}

/// F33: `CLIENT PAUSE` stops writes or everything, for less than a lease. Calls are executed late,
/// each once; the guard is at most Suspect, and nobody loses its place.
#[test]
fn f33_a_pause_shorter_than_the_lease() {
    steady(|| async {
        for generation in Generation::few() {
            for mode in ["WRITE", "ALL"] {
                let Some(fixture) = Fixture::start(generation) else { continue };
                let (clients, held, places) = scene(&fixture, LONG).await;
                let tokens_before = held.token();
                let began = Instant::now();
                fixture.call(&["CLIENT", "PAUSE", &SHORT.as_millis().to_string(), mode]);
                held.becomes(GuardState::Suspect, SHORT).await;
                measured(&format!("f33 {} {mode}: to Suspect", generation.name()), began.elapsed());
                nothing_was_lost(&fixture, &clients, held, places).await;
                assert!(began.elapsed() >= SHORT, "the pause was none");
                // One more hold works: no copy of a late call is in the queue.
                let next = fixture.take(&clients[0], "job").await;
                assert!(next.token() > tokens_before);
                assert_eq!(fixture.queue("job"), Vec::<String>::new());
                let _ = next.release().await;
            }
        }
    });
}

/// F33: the same for longer than a lease. The guard is lost by its own clock during the pause, and
/// the next waiter gets the lock only when the pause is over: keys do not expire meanwhile.
#[test]
fn f33_a_pause_longer_than_the_lease() {
    steady(|| async {
        for mode in ["WRITE", "ALL"] {
            let Some(fixture) = Fixture::redis70() else { return };
            let (_clients, held, places) = scene(&fixture, LEASE).await;
            let pause = 2 * LEASE + ms(500);
            let began = Instant::now();
            fixture.call(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), mode]);
            held.lost(LEASE + SLACK).await;
            let lost = began.elapsed();
            measured(&format!("f33 {mode}: pause to Lost"), lost);
            assert!(lost < pause, "by its own clock, while nobody answers");
            all_in_turn(places, pause + 2 * SLACK + ms(2_000)).await;
            measured(&format!("f33 {mode}: pause to all served"), began.elapsed());
            assert!(began.elapsed() >= pause);
            fixture.history.assert_sound();
        }
    });
}
