//! The heartbeat of the connection: every kind of silence is noticed in time, everyone who watches
//! is told, and all waiters keep their places.

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

/// Interval plus timeout of the pings in `config`: the time to notice a silence.
const FOUND: Duration = Duration::from_millis(100 + 200);

/// Long enough that no renewal comes within a test: a ping notices the silence.
const LONG: Duration = Duration::from_secs(60);

/// A way in which a connection stays open but useless.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Silence {
    /// Nothing reaches the server.
    ToServer,
    /// Nothing reaches the client.
    ToClient,
    /// Nothing passes. New connections are accepted, and are not answered either.
    Both,
    /// The peer has forgotten the open connections; new ones work.
    HalfOpen,
    /// The peer does not read: buffers fill, and a write does not finish.
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

/// Records every state of a client's connection from now on.
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

/// Sends so many requests that the unread ones fill every buffer on the way, until a write blocks.
fn fill_the_buffers(client: &Client, proxy: SocketAddr) {
    // The name is in seven keys: 28 KiB a call, and buffers on this machine take a few MiB. Not many
    // more calls than needed, because each of them is repeated after the reconnect; but so many at
    // once that the buffers are full before an unanswered ping ends the connection.
    let lock = client.fair_lock("x".repeat(4_096));
    eventually("a write waits for the other side to read", 5 * SLACK, || {
        for _ in 0..50 {
            let lock = lock.clone();
            tokio::spawn(async move { drop(lock.inspect().await) });
        }
        sockets_to(proxy).iter().any(|socket| socket.unsent > 256 * 1_024)
    });
}

/// A socket of this process.
struct Socket {
    /// Bytes that the peer has not accepted.
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

/// Five kinds of silence that end before the lease: the guard is Suspect after an unanswered ping,
/// and Held again after the reconnect; the connection watch agrees; the waiters behind the silence
/// keep their places; and no socket is left over.
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
                // This test is about time: the waiters miss their heartbeats.
                tokio::time::sleep(D + HB).await;
                assert_eq!(held.guard.state(), GuardState::Suspect);
            }
            Silence::end(&proxy);
            // A connection attempt that began during the silence may have to time out first.
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

/// Silences that do not end: the guard is lost at its deadline. A task that waits for the loss is
/// woken, and a look at the guard shows it at once.
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
            // No reply is in flight any more, so the deadline is final.
            let deadline = Instant::now() + held.guard.remaining();
            let pushed = {
                let guard = Arc::clone(&held.guard);
                tokio::spawn(async move {
                    guard.lost().await;
                    Instant::now()
                })
            };
            assert_ne!(held.guard.state(), GuardState::Lost, "{silence:?}");
            // This test is about time; a thread never sleeps too briefly.
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

/// A server that accepts connections and never replies: no call waits forever.
#[test]
fn f55_a_server_that_accepts_and_never_answers() {
    steady(|| async {
        // The kernel accepts connections for it, up to the backlog.
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
        // Nothing was sent, so nothing can have happened.
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(*client.connection().borrow(), Reconnecting);
        within("the end", SLACK, client.shutdown()).await;
    });
}

/// Only the inbox goes silent, open and useless: no guard becomes Suspect, and each hand-over takes
/// a heartbeat instead of a message. The heartbeats find the grants.
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
        // This test is about time: long enough for pings to find a silence.
        tokio::time::sleep(2 * FOUND).await;
        assert_eq!(held.guard.state(), GuardState::Held);
        let mut released = Instant::now();
        let _ = held.release().await;
        for place in places {
            let held = place.granted(HB + ms(100) + SLACK).await;
            measured("hand-over past a silent inbox", held.at - released);
            assert_eq!(held.guard.state(), GuardState::Held);
            released = Instant::now();
            let _ = held.release().await;
        }
        assert_eq!(proxy.counts().replies_black_holed, 4, "each grant was also said");
        for states in states {
            assert_eq!(*states.lock().unwrap(), [Connected]);
        }
        fixture.history.assert_sound();
    });
}

/// The connection is cut repeatedly. A watcher sees each lasting state, in turn, and `Closed` comes
/// last and stays. A reader that slept through a cut still learns that something changed.
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
            // A lasting cut: no connection is accepted until the watch has reported the loss.
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
        // The store keeps losing and finding its server; no watcher is told any more.
        proxy.cut_all();
        tokio::time::sleep(ms(300)).await;
        assert_eq!(*client.connection().borrow(), Closed);
        assert_eq!(states.lock().unwrap()[alternating.len()..], [Closed]);

        // Dropping the client without a shutdown, as well.
        let client = super::fixture::client(&proxy.url()).await;
        let mut states = client.connection();
        drop(client);
        let last = states.wait_for(|state| *state == Closed).await.map(|state| *state);
        assert_eq!(last.unwrap(), Closed);
    });
}

/// A server is away until the pauses between attempts have grown, comes back, and is briefly cut
/// off again: the second cut costs milliseconds, not the pause of the first.
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
        // This test is about time: by then pauses of 20 ms have doubled up to two seconds.
        tokio::time::sleep(ms(4_000)).await;
        let attempts = proxy.counts().connections_refused;
        println!("measured: {attempts} attempts of both connections in 4 s without a server");
        // 20, 40 ... 1280 ms take at most 2.5 s and at least half of it, then 2 s or half of it.
        assert!((2 * 6..=2 * 12).contains(&attempts), "{attempts} attempts");
        proxy.refuse(false);
        let took = held.becomes(GuardState::Held, ms(2_000) + SLACK).await;
        measured("after an outage of 4 s: to Held", took);
        // After serving for a second, the connection counts as good again.
        tokio::time::sleep(ms(1_200)).await;
        for _ in 0..3 {
            // Otherwise it may be connected again before this test looks.
            proxy.refuse(true);
            proxy.cut_all();
            held.becomes(GuardState::Suspect, SLACK).await;
            proxy.refuse(false);
            let took = held.becomes(GuardState::Held, SLACK).await;
            measured("a short cut after it: to Held", took);
            assert!(took < ms(500), "{took:?}");
        }
        assert_eq!(held.release().await, Release::Released);
    });
}
