//! The heartbeat of the connection: every kind of silence is found in time, everybody who watches is
//! told, and whoever stood in the queue still stands there afterwards.

use super::fixture::{
    D, Fixture, HB, LEASE, SLACK, all_in_turn, client, config, eventually, key, measured, ms,
    steady, within,
};
use fairlock::{Client, ConnectionState, ErrorKind, GuardState, Release};
use fairlock_testkit::proxy::Proxy;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ConnectionState::{Closed, Connected, Reconnecting};

/// Interval and timeout of the pings in `config`: what finds a silence.
const FOUND: Duration = Duration::from_millis(100 + 200);

/// So long that no renewal comes within a test: what finds the silence is a ping.
const LONG: Duration = Duration::from_secs(60);

/// One way in which a connection stays open and is of no use.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Silence {
    /// Nothing reaches the server.
    ToServer,
    /// Nothing reaches the client.
    ToClient,
    /// Nothing passes. New connections are accepted, and are not answered either.
    Both,
    /// The other side has forgotten the open connections; new ones work.
    HalfOpen,
    /// The other side does not read: buffers fill, and a write does not finish.
    Unread,
}

const SILENCES: [Silence; 5] =
    [Silence::ToServer, Silence::ToClient, Silence::Both, Silence::HalfOpen, Silence::Unread];

impl Silence {
    fn begin(self, proxy: &Proxy) {
        match self {
            Self::ToServer => proxy.black_hole_to_server(true),
            Self::ToClient => proxy.black_hole_to_client(true),
            Self::Both => {
                proxy.black_hole_to_server(true);
                proxy.black_hole_to_client(true);
            }
            Self::HalfOpen => proxy.silence_open(),
            Self::Unread => proxy.stop_reading(true),
        }
    }

    fn end(proxy: &Proxy) {
        proxy.black_hole_to_server(false);
        proxy.black_hole_to_client(false);
        proxy.stop_reading(false);
    }
}

/// Every state that a client's connection has from now on.
fn recorded(client: &Client) -> Arc<Mutex<Vec<ConnectionState>>> {
    let mut states = client.connection();
    let seen = Arc::new(Mutex::new(vec![*states.borrow_and_update()]));
    let record = Arc::clone(&seen);
    tokio::spawn(async move {
        while states.changed().await.is_ok() {
            record.lock().unwrap().push(*states.borrow_and_update());
        }
    });
    seen
}

/// Asks so much that what is not read fills every buffer on the way, until a write waits.
fn fill_the_buffers(client: &Client, proxy: SocketAddr) {
    // The name is in seven keys: 28 KiB a call, and buffers on this machine take a few MiB. No more
    // than needed: each of them is asked again after the reconnect.
    let lock = client.fair_lock("x".repeat(4_096));
    eventually("a write waits for the other side to read", 5 * SLACK, || {
        for _ in 0..10 {
            let lock = lock.clone();
            tokio::spawn(async move { drop(lock.inspect().await) });
        }
        sockets_to(proxy).iter().any(|socket| socket.unsent > 256 * 1_024)
    });
}

/// A socket of this process.
struct Socket {
    /// Bytes that the other side has not taken.
    unsent: u64,
}

/// The sockets of this machine that are connected to `addr` and belong to a process.
fn sockets_to(addr: SocketAddr) -> Vec<Socket> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let wanted = format!(":{:04X}", addr.port());
    let socket = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let (unsent, _) = fields[4].split_once(':')?;
        let is_owned = fields[9] != "0";
        (fields[2].ends_with(&wanted) && is_owned)
            .then(|| Socket { unsent: u64::from_str_radix(unsent, 16).unwrap() })
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Waits until the client's heartbeats reach the server again.
fn beats_again(fixture: &Fixture, client: &Client) {
    let (beats, id) = (key("fairlock_beats", "job"), client.id().to_string());
    let before = fixture.call(&["ZSCORE", &beats, &id]);
    eventually("it beats again", 2 * HB + SLACK, || {
        fixture.call(&["ZSCORE", &beats, &id]) != before
    });
}

/// Five kinds of silence that end before the lease: the holder is in doubt after a ping without an
/// answer, and certain again after the reconnect; the watch tells the same; the waiters behind the
/// silence stand where they stood; and no socket is left over.
#[test]
fn f55_every_silence_is_found_and_gets_over() {
    steady(|| async {
        for silence in SILENCES {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let config = config(&proxy.url()).watchdog_lease(LONG);
            let silent = Client::with_config(config).await.unwrap();
            let other = fixture.client().await;
            let held = fixture.take(&silent, "job").await;
            let mut places = Vec::new();
            for n in 0..4 {
                places.push(fixture.enter([&silent, &other][n % 2], "job").await);
            }
            let queue = fixture.queue("job");
            let states = recorded(&silent);
            let began = Instant::now();
            silence.begin(&proxy);
            if silence == Silence::Unread {
                fill_the_buffers(&silent, proxy.addr());
            }
            held.becomes(GuardState::Suspect, FOUND + SLACK).await;
            measured(&format!("{silence:?} to Suspect"), began.elapsed());
            held.guard.ensure_valid().unwrap();
            if silence != Silence::HalfOpen {
                assert_eq!(*silent.connection().borrow(), Reconnecting);
                // Time is what this is about: the waiters' heartbeats are missed.
                tokio::time::sleep(D + HB).await;
                assert_eq!(held.guard.state(), GuardState::Suspect);
            }
            Silence::end(&proxy);
            // A connection that was begun in the silence may have to time out first.
            let took = held.becomes(GuardState::Held, ms(500) + SLACK).await;
            measured(&format!("{silence:?} healed to Held"), took);
            assert_eq!(*silent.connection().borrow(), Connected);
            assert_eq!(fixture.queue("job"), queue, "{silence:?}");
            eventually("no socket is left over", SLACK, || sockets_to(proxy.addr()).len() == 2);

            beats_again(&fixture, &silent);
            assert_eq!(held.release().await, Release::Released);
            all_in_turn(places, HB + SLACK).await;
            silent.shutdown().await;
            eventually("the end is told", SLACK, || states.lock().unwrap().last() == Some(&Closed));
            assert_eq!(
                *states.lock().unwrap(),
                [Connected, Reconnecting, Connected, Closed],
                "{silence:?}"
            );
            fixture.history.assert_sound();
        }
    });
}

/// Silences that do not end: the guard is lost at its deadline, by itself for whoever waits for
/// that, and at once for whoever looks.
#[test]
fn f51_f55_the_deadline_is_kept_in_every_silence() {
    steady(|| async {
        for silence in SILENCES.into_iter().filter(|silence| *silence != Silence::HalfOpen) {
            let Some(fixture) = Fixture::redis70() else { return };
            let proxy = Proxy::start(fixture.server.addr());
            let silent = client(&proxy.url()).await;
            let held = fixture.take(&silent, "job").await;
            silence.begin(&proxy);
            held.becomes(GuardState::Suspect, LEASE).await;
            // No answer is under way any more, so this is the deadline.
            let deadline = Instant::now() + held.guard.remaining();
            let pushed = {
                let guard = Arc::clone(&held.guard);
                tokio::spawn(async move {
                    guard.lost().await;
                    Instant::now()
                })
            };
            assert_ne!(held.guard.state(), GuardState::Lost, "{silence:?}");
            // Time is what this is about; a thread's sleep is never too short.
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()) + ms(1));
            assert_eq!(held.guard.state(), GuardState::Lost, "{silence:?}");
            assert_eq!(held.guard.ensure_valid().unwrap_err().kind(), ErrorKind::Lost);
            assert_eq!(held.guard.remaining(), Duration::ZERO);
            let pushed = within("the loss is told", SLACK, pushed).await.unwrap();
            assert!(pushed + ms(2) >= deadline, "before its time");
            let late = pushed.saturating_duration_since(deadline);
            measured(&format!("{silence:?}: told after the deadline"), late);
            assert!(
                fixture.holder("job").is_none() || fixture.ttl("job") < ms(50),
                "far too early"
            );
            held.lost(ms(1)).await;
            assert_eq!(held.release().await, Release::Lost);
        }
    });
}

/// A server that accepts connections and never says a word: nothing waits for ever.
#[test]
fn f55_a_server_that_accepts_and_never_answers() {
    steady(|| async {
        // The system accepts for it, as many as fit into the backlog.
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", mute.local_addr().unwrap());
        let began = Instant::now();
        let error = Client::with_config(config(&url)).await.unwrap_err();
        measured("mute server: connect", began.elapsed());
        assert!(began.elapsed() < ms(500) + SLACK);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&mute.local_addr().unwrap().to_string()), "{error}");

        let lazy = config(&url).lazy_connect(true).store_timeout(ms(700));
        let client = Client::with_config(lazy).await.unwrap();
        let began = Instant::now();
        let error =
            within("an error", 3 * SLACK, client.fair_lock("job").lock()).await.unwrap_err();
        measured("mute server: lock with a store timeout of 700 ms", began.elapsed());
        // Nothing was sent, so nothing can have come of it.
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(*client.connection().borrow(), Reconnecting);
        within("the end", SLACK, client.shutdown()).await;
    });
}

/// The inbox alone goes silent, open and useless: nobody is in doubt, and each hand-over takes a
/// heartbeat instead of a message. The grants are what the heartbeat finds.
#[test]
fn f58_a_silent_inbox_costs_heartbeats_and_no_grant() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let clients = [client(&proxy.url()).await, client(&proxy.url()).await];
        let states = clients.each_ref().map(recorded);
        let held = fixture.take(&clients[0], "job").await;
        let mut places = Vec::new();
        for n in 0..4 {
            places.push(fixture.enter(&clients[(n + 1) % 2], "job").await);
        }
        proxy.silence_inboxes();
        // Time is what this is about: long enough for pings to find what they would find.
        tokio::time::sleep(2 * FOUND).await;
        assert_eq!(held.guard.state(), GuardState::Held);
        let mut released = Instant::now();
        held.release().await;
        for place in places {
            let held = place.granted(HB + ms(100) + SLACK).await;
            measured("hand-over past a silent inbox", held.at - released);
            assert_eq!(held.guard.state(), GuardState::Held);
            released = Instant::now();
            held.release().await;
        }
        assert_eq!(proxy.counts().replies_black_holed, 4, "each grant was also said");
        for states in states {
            assert_eq!(*states.lock().unwrap(), [Connected]);
        }
        fixture.history.assert_sound();
    });
}

/// The connection is cut again and again. Whoever watches sees each state that lasts, in turn, and
/// `Closed` comes last and stays. A reader that slept through a cut is told that something was.
#[test]
fn the_connection_watch_through_twenty_cuts() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = client(&proxy.url()).await;
        let states = recorded(&client);
        let mut sleepy = client.connection();
        sleepy.borrow_and_update();
        for cut in 1..=20 {
            // One that lasts: nobody is let in until the watch has told.
            proxy.refuse(true);
            proxy.cut_all();
            eventually("the loss is told", SLACK, || states.lock().unwrap().len() == 2 * cut);
            proxy.refuse(false);
            eventually("the return is told", 2 * SLACK + ms(1_000), || {
                states.lock().unwrap().len() == 2 * cut + 1
            });
        }
        assert!(sleepy.has_changed().unwrap());
        assert_eq!(*sleepy.borrow_and_update(), Connected);
        let alternating: Vec<_> =
            (0..41).map(|n| if n % 2 == 0 { Connected } else { Reconnecting }).collect();
        assert_eq!(*states.lock().unwrap(), alternating);

        client.clone().shutdown().await;
        let last = sleepy.wait_for(|state| *state == Closed).await.map(|state| *state);
        assert_eq!(last.unwrap(), Closed);
        // The store goes on losing and finding its server; nobody is told any more.
        proxy.cut_all();
        tokio::time::sleep(ms(300)).await;
        assert_eq!(*client.connection().borrow(), Closed);
        assert_eq!(states.lock().unwrap()[alternating.len()..], [Closed]);

        // The end without a word, as well.
        let client = super::fixture::client(&proxy.url()).await;
        let mut states = client.connection();
        drop(client);
        let last = states.wait_for(|state| *state == Closed).await.map(|state| *state);
        assert_eq!(last.unwrap(), Closed);
    });
}

/// A server is away for so long that the pauses between attempts have grown, comes back, and is cut
/// off once more, shortly: that second cut costs milliseconds, not the pause of the first.
#[test]
fn f54_a_second_short_cut_is_short() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let config = config(&proxy.url()).watchdog_lease(LONG);
        let client = Client::with_config(config).await.unwrap();
        let held = fixture.take(&client, "job").await;
        proxy.refuse(true);
        proxy.cut_all();
        held.becomes(GuardState::Suspect, SLACK).await;
        // Time is what this is about: pauses of 20 ms, doubled, come to two seconds by then.
        tokio::time::sleep(ms(4_000)).await;
        let attempts = proxy.counts().connections_refused;
        println!("measured: {attempts} attempts of both connections in 4 s without a server");
        // 20, 40 ... 1280 ms make 2.5 s at most and half of it at least, then 2 s or half of it.
        assert!((2 * 6..=2 * 12).contains(&attempts), "{attempts} attempts");
        proxy.refuse(false);
        let took = held.becomes(GuardState::Held, ms(2_000) + SLACK).await;
        measured("after an outage of 4 s: to Held", took);
        // It served for a second: a good connection, with nothing wrong any more.
        tokio::time::sleep(ms(1_200)).await;
        for _ in 0..3 {
            let began = Instant::now();
            proxy.cut_all();
            held.becomes(GuardState::Suspect, SLACK).await;
            held.becomes(GuardState::Held, SLACK).await;
            measured("a short cut after it: to Held", began.elapsed());
            assert!(began.elapsed() < ms(500), "{:?}", began.elapsed());
        }
        assert_eq!(held.release().await, Release::Released);
    });
}
