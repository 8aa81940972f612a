//! Every call on a store that does not reply: from the start, from some moment on, or only late.
//! Each ends within its documented time, and silence is never mistaken for "taken" (D42, D43).

use crate::support::{Pauses, runtime, until};
use fairlock::{Client, Config, Error, ErrorKind, Guard, Kind, Lock, Release};
use fairlock_testkit::proxy::Proxy;
use fairlock_testkit::server::{Generation, Server};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CONNECT: Duration = Duration::from_millis(600);

/// For how long a client whose store replies tries to connect, on a busy machine.
const RETRY: Duration = Duration::from_secs(20);

const RESPONSE: Duration = Duration::from_millis(400);
const STORE: Duration = Duration::from_millis(1_500);

/// How long a timed wait waits, and what a silent store may add to it.
const WAIT: Duration = Duration::from_millis(300);
const WAIT_ADDS: Duration = Duration::from_millis(600);

/// Added to every bound, for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// What takes no time at all on an idle machine.
const AT_ONCE: Duration = Duration::from_millis(500);

fn settings(proxy: &Proxy) -> Config {
    let config = Config::from_url(&proxy.url()).unwrap();
    let config = config.connect_timeout(CONNECT).connect_retry(RETRY);
    config.response_timeout(RESPONSE).store_timeout(STORE)
}

/// The same with so long a store timeout that a timed wait that lasts until then is noticed.
fn patient(proxy: &Proxy) -> Config {
    settings(proxy).store_timeout(20 * STORE)
}

/// A server behind a proxy that can stop forwarding.
fn fixture() -> Option<(Server, Proxy)> {
    let server = Server::start(Generation::Redis70)?;
    let proxy = Proxy::start(server.addr());
    Some((server, proxy))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Ping,
    Lock,
    TryLock,
    TryLockFor,
    Enqueue,
    With,
    TryWithFor,
    /// [`Call::TryLockFor`] of what is no lock of one name: each has a timed wait of its own.
    ReadFor,
    WriteFor,
    PermitFor,
    PermitsFor,
    WithPermitFor,
    TogetherFor,
    LatchFor,
    Inspect,
    IsLocked,
    Remaining,
    Force,
    List,
}

const CALLS: [(Call, Duration); 19] = [
    (Call::Ping, RESPONSE),
    (Call::Lock, STORE),
    (Call::TryLock, STORE),
    (Call::TryLockFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::Enqueue, STORE),
    (Call::With, STORE),
    (Call::TryWithFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::ReadFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::WriteFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::PermitFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::PermitsFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::WithPermitFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::TogetherFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::LatchFor, WAIT.saturating_add(WAIT_ADDS)),
    (Call::Inspect, STORE),
    (Call::IsLocked, STORE),
    (Call::Remaining, STORE),
    (Call::Force, STORE),
    (Call::List, STORE),
];

async fn make(call: Call, client: &Client, lock: &Lock) -> Result<String, Error> {
    let got = |guard: Option<Guard>| format!("a guard: {}", guard.is_some());
    Ok(match call {
        Call::Ping => format!("{:?}", client.ping().await?),
        Call::Lock => got(Some(lock.lock().await?)),
        Call::TryLock => got(lock.try_lock().await?),
        Call::TryLockFor => got(lock.try_lock_for(WAIT).await?),
        Call::Enqueue => format!("{:?}", lock.enqueue().await?),
        Call::With => format!("{:?}", lock.with(async |_| ()).await?),
        Call::TryWithFor => format!("{:?}", lock.try_with_for(WAIT, async |_| ()).await?),
        Call::ReadFor => format!("{:?}", client.rw_lock("rw").try_read_for(WAIT).await?),
        Call::WriteFor => format!("{:?}", client.rw_lock("rw").try_write_for(WAIT).await?),
        Call::PermitFor => {
            format!("{:?}", client.semaphore("permits", 2).try_acquire_for(WAIT).await?)
        }
        Call::PermitsFor => {
            format!("{:?}", client.semaphore("permits", 2).try_acquire_many_for(2, WAIT).await?)
        }
        Call::WithPermitFor => {
            format!("{:?}", client.semaphore("permits", 2).try_with_for(WAIT, async |_| ()).await?)
        }
        Call::TogetherFor => {
            let both = client.multi_lock([lock.clone(), client.fair_lock("other")])?;
            format!("{:?}", both.try_lock_for(WAIT).await?)
        }
        Call::LatchFor => format!("{:?}", client.latch("latch").wait_for(WAIT).await?),
        Call::Inspect => format!("{:?}", lock.inspect().await?),
        Call::IsLocked => format!("{:?}", lock.is_locked().await?),
        Call::Remaining => format!("{:?}", lock.remaining_ttl().await?),
        Call::Force => format!("{:?}", lock.force_unlock().await?),
        Call::List => format!("{:?}", client.locks().next_page().await?),
    })
}

/// Every call fails for every kind of lock, within its time.
async fn all_are_errors(story: &'static str, proxy: &Proxy, go_silent: bool) {
    let mut clients = Vec::new();
    for (call, bound) in CALLS {
        for kind in ["fair", "plain", "simple", "owned"] {
            // `enqueue` is for fair locks, and some calls do not depend on the kind.
            let only_fair = matches!(
                call,
                Call::Ping
                    | Call::Enqueue
                    | Call::List
                    | Call::ReadFor
                    | Call::WriteFor
                    | Call::PermitFor
                    | Call::PermitsFor
                    | Call::WithPermitFor
                    | Call::TogetherFor
                    | Call::LatchFor
            );
            if only_fair && kind != "fair" {
                continue;
            }
            let config = if bound < STORE { patient(proxy) } else { settings(proxy) };
            let retry = if go_silent { RETRY } else { Duration::ZERO };
            let config = config.connect_retry(retry).lazy_connect(!go_silent);
            clients.push((call, bound, kind, Client::with_config(config).await.unwrap()));
        }
    }
    if go_silent {
        proxy.black_hole_to_client(true);
    }
    let mut calls = JoinSet::new();
    for (call, bound, kind, client) in clients {
        calls.spawn(async move {
            let lock = match kind {
                "plain" => client.plain_lock("job"),
                "simple" => client.simple_lock("job"),
                "owned" => client.fair_lock("job").owned_by(&client.owner()),
                _ => client.fair_lock("job"),
            };
            let began = Instant::now();
            let result = make(call, &client, &lock).await;
            let took = began.elapsed();
            let story = format!("{story}, {call:?}, {kind}, after {took:?}");
            let error = result.err().unwrap_or_else(|| panic!("{story}: no error"));
            let kinds = [ErrorKind::Unavailable, ErrorKind::Unknown];
            assert!(kinds.contains(&error.kind()), "{story}: {error:?}");
            assert!(took < bound + SLACK, "{story}: the bound is {bound:?}");
            if bound < STORE && call != Call::Ping {
                // What it leaves behind is given back until the store timeout.
                return;
            }
            let began = Instant::now();
            client.shutdown().await;
            assert!(began.elapsed() < STORE + SLACK, "{story}: shutdown {:?}", began.elapsed());
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

#[test]
fn a_store_that_is_silent_from_the_start() {
    let Some((_server, proxy)) = fixture() else { return };
    proxy.black_hole_to_client(true);
    runtime().block_on(async {
        let began = Instant::now();
        let config = settings(&proxy).connect_retry(Duration::ZERO);
        let error = Client::with_config(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() < CONNECT + SLACK, "{:?}", began.elapsed());
        all_are_errors("silent from the start", &proxy, false).await;
    });
}

#[test]
fn a_store_that_goes_silent() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(all_are_errors("gone silent", &proxy, true));
}

/// Every call of the API that waits for a time, where it is tried on a silent store.
const TIMED: [(&str, &str); 10] = [
    ("Latch::wait_for", "LatchFor"),
    ("Lock::try_lock_for", "TryLockFor"),
    ("Lock::try_with_for", "TryWithFor"),
    ("MultiLock::try_lock_for", "TogetherFor"),
    ("RwLock::try_read_for", "ReadFor"),
    ("RwLock::try_write_for", "WriteFor"),
    ("Semaphore::try_acquire_for", "PermitFor"),
    ("Semaphore::try_acquire_many_for", "PermitsFor"),
    ("Semaphore::try_with_for", "WithPermitFor"),
    ("Turn::wait_for", "a_turn_of_a_store_that_goes_silent"),
];

/// A timed call that is not tried here does not pass: waits for several locks and for latches lasted
/// until the store timeout.
#[test]
fn every_timed_call_is_tried_on_a_silent_store() {
    let api = include_str!("../../../docs/api.txt");
    let called = |prefix: &'static str| {
        let mut called: Vec<&str> = Vec::new();
        for line in api.lines().filter_map(|line| line.strip_prefix(prefix)) {
            let waits = line.contains("wait: Duration") || line.contains("::wait_for:");
            let is_here = prefix != "fairlock::" || !line.starts_with("blocking::");
            if is_here && waits && line.contains("Result<Option<") {
                called.extend(line.split(": ").next());
            }
        }
        called
    };
    let tried = TIMED.map(|(name, _)| name);
    assert_eq!(called("fairlock::"), tried);
    let on_threads: Vec<_> =
        tried.into_iter().filter(|name| !name.ends_with("::try_with_for")).collect();
    assert_eq!(called("fairlock::blocking::"), on_threads);
    let calls: Vec<_> = CALLS.iter().map(|(call, _)| format!("{call:?}")).collect();
    for (name, tried) in TIMED {
        let is_tried = calls.iter().any(|call| call == tried) || name == "Turn::wait_for";
        assert!(is_tried, "{name}: {tried}");
    }
}

/// The same on threads, for one call of each type.
#[cfg(feature = "blocking")]
#[test]
fn timed_calls_of_threads_on_a_store_that_goes_silent() {
    use fairlock::blocking;

    type Waits = fn(&blocking::Client) -> Result<bool, Error>;
    const WAITS: [(&str, Waits); 7] = [
        ("lock", |client| Ok(client.fair_lock("a").try_lock_for(WAIT)?.is_some())),
        ("together", |client| {
            let both = client.multi_lock([client.fair_lock("a"), client.fair_lock("b")])?;
            Ok(both.try_lock_for(WAIT)?.is_some())
        }),
        ("read", |client| Ok(client.rw_lock("rw").try_read_for(WAIT)?.is_some())),
        ("write", |client| Ok(client.rw_lock("rw").try_write_for(WAIT)?.is_some())),
        ("permit", |client| Ok(client.semaphore("p", 2).try_acquire_for(WAIT)?.is_some())),
        ("permits", |client| Ok(client.semaphore("p", 2).try_acquire_many_for(2, WAIT)?.is_some())),
        ("latch", |client| Ok(client.latch("l").wait_for(WAIT)?.is_some())),
    ];
    let Some((_server, proxy)) = fixture() else { return };
    let clients = WAITS.map(|_| blocking::Client::with_config(patient(&proxy)).unwrap());
    proxy.black_hole_to_client(true);
    std::thread::scope(|scope| {
        for ((name, waits), client) in WAITS.iter().zip(&clients) {
            scope.spawn(move || {
                let began = Instant::now();
                let error = waits(client).expect_err(name);
                let took = began.elapsed();
                let kinds = [ErrorKind::Unavailable, ErrorKind::Unknown];
                assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
                assert!(took < WAIT + WAIT_ADDS + SLACK, "{name}: {took:?}");
            });
        }
    });
}

#[test]
fn a_turn_of_a_store_that_goes_silent() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::with_config(patient(&proxy)).await.unwrap();
        let lock = client.fair_lock("job");
        let _held = lock.lock().await.unwrap();
        let mut turn = lock.enqueue().await.unwrap();
        proxy.black_hole_to_client(true);
        let began = Instant::now();
        let waited = turn.wait_for(WAIT).await;
        assert!(!waited.is_ok_and(|guard| guard.is_some()));
        assert!(began.elapsed() < WAIT + WAIT_ADDS + SLACK, "{:?}", began.elapsed());
    });
}

/// A latch was seen closed, and then the store was silent: nobody knows whether it opened in time.
#[test]
fn a_latch_on_a_store_that_goes_silent_while_it_is_waited_for() {
    let Some((server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::with_config(patient(&proxy)).await.unwrap();
        let latch = client.latch("import");
        latch.try_set(1).await.unwrap();
        let waits = 3 * WAIT;
        let began = Instant::now();
        let waiter = tokio::spawn(async move { latch.wait_for(waits).await });
        let channel = "redisson_countdownlatch__channel__{import}";
        let mut raw = server.client();
        until("it is waited for", async || raw.listeners(channel) == 1).await;
        proxy.black_hole_to_client(true);
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let took = began.elapsed();
        assert!(took >= waits && took < waits + WAIT_ADDS + SLACK, "{took:?}");
    });
}

/// The calls of guards whose locks are held when the store goes silent.
#[test]
fn guards_of_a_store_that_goes_silent() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::with_config(settings(&proxy)).await.unwrap();
        let guard = async |name: &str| client.fair_lock(name).lock().await.unwrap();
        let (enters, detaches, releases) = (guard("a").await, guard("b").await, guard("c").await);
        let simple = client.simple_lock("d").lock().await.unwrap();
        proxy.black_hole_to_client(true);
        let began = Instant::now();
        let calls = tokio::join!(
            enters.reenter(),
            detaches.detach(),
            releases.release(),
            simple.release(),
        );
        let took = began.elapsed();
        assert!(took < STORE + RESPONSE + SLACK, "{took:?}");
        assert_eq!(calls.0.unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(calls.1.unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(calls.2.unwrap(), Release::Unknown);
        assert_eq!(calls.3.unwrap(), Release::Unknown);
        assert!(enters.lost_reason().is_none(), "its lease is not over");
    });
}

/// A shutdown lasted for the store timeout to tell the store of holds that were over.
#[test]
fn a_shutdown_does_not_wait_for_leases_that_are_over() {
    for refused in [false, true] {
        let Some((_server, proxy)) = fixture() else { return };
        runtime().block_on(async {
            let config = patient(&proxy).watchdog_lease(Duration::from_millis(600));
            let client = Client::with_config(config).await.unwrap();
            let lock = async |name: &str| client.fair_lock(name).lock().await.unwrap();
            let (awaited, dropped) = (lock("a").await, lock("b").await);
            proxy.refuse(refused);
            proxy.black_hole_to_client(!refused);
            if refused {
                proxy.cut_all();
            }
            tokio::join!(awaited.lost(), dropped.lost());
            drop(dropped);
            let began = Instant::now();
            assert_eq!(awaited.release().await.unwrap(), Release::Lost);
            assert!(began.elapsed() < RESPONSE + SLACK, "{:?}", began.elapsed());
            let began = Instant::now();
            client.shutdown().await;
            // Without the bound: 30 s.
            let bound = Duration::from_secs(1) + 2 * RESPONSE + SLACK;
            assert!(began.elapsed() < bound, "{refused}: {:?}", began.elapsed());
        });
    }
}

/// The error of a wait names the server and what is wrong with it, as that of a call that does not wait.
#[test]
fn a_timed_wait_without_a_connection_says_why() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::with_config(patient(&proxy)).await.unwrap();
        proxy.refuse(true);
        proxy.cut_all();
        let place = proxy.addr().to_string();
        let named =
            async || client.ping().await.is_err_and(|error| error.to_string().contains(&place));
        until("an attempt has failed", named).await;
        for lock in [client.fair_lock("job"), client.plain_lock("job")] {
            let error = lock.try_lock_for(WAIT).await.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
            assert!(text.contains(&place), "{text}");
            assert!(!text.contains("longer"), "{text}");
        }
    });
}

/// D42: the owner holds the lock, or another of its requests is in flight, and the store does not
/// reply: the result was `None`, as if somebody else had the lock.
#[test]
fn d42_the_silence_about_an_owners_lock_is_an_error() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::with_config(settings(&proxy)).await.unwrap();
        let holds = client.owner();
        let held = client.fair_lock("held").owned_by(&holds).lock().await.unwrap();
        proxy.black_hole_to_client(true);
        let asks = client.owner();
        let asked = client.fair_lock("asked").owned_by(&asks);
        let first = tokio::spawn(async move { asked.lock().await });
        // Its request is in flight.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for (name, owner) in [("held", &holds), ("asked", &asks)] {
            let began = Instant::now();
            let result = client.fair_lock(name).owned_by(owner).try_lock_for(WAIT).await;
            let took = began.elapsed();
            let error = result.err().unwrap_or_else(|| panic!("{name}: taken for taken"));
            let kinds = [ErrorKind::Unavailable, ErrorKind::Unknown];
            assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
            assert!(took >= WAIT && took < WAIT + WAIT_ADDS + SLACK, "{name}: {took:?}");
        }
        drop(held);
        assert!(first.await.unwrap().is_err());
    });
}

/// D42: for plain and simple locks, one waiter of a client asks at a time. Another waiter whose
/// time was up before its turn to ask got `None` on a store that had not replied.
#[test]
fn d42_whoever_could_not_ask_takes_no_silence_for_taken() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::with_config(settings(&proxy)).await.unwrap();
        let other = Client::with_config(settings(&proxy)).await.unwrap();
        for kind in [Kind::Plain, Kind::Simple] {
            let lock = |client: &Client, name: &str| match kind {
                Kind::Plain => client.plain_lock(name),
                _ => client.simple_lock(name),
            };
            // Taken by another client, as the store has replied.
            let name = format!("taken {kind:?}");
            let held = lock(&other, &name).lock().await.unwrap();
            let asks = lock(&client, &name);
            let first = tokio::spawn(async move { asks.lock().await });
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(lock(&client, &name).try_lock_for(WAIT).await.unwrap().is_none(), "{name}");
            let _ = held.release().await.unwrap();
            let _ = first.await.unwrap().unwrap().release().await.unwrap();

            let name = format!("silent {kind:?}");
            proxy.black_hole_to_client(true);
            let asks = lock(&client, &name);
            let first = tokio::spawn(async move { asks.lock().await });
            tokio::time::sleep(Duration::from_millis(50)).await;
            let began = Instant::now();
            let result = lock(&client, &name).try_lock_for(WAIT).await;
            let took = began.elapsed();
            let error = result.err().unwrap_or_else(|| panic!("{name}: silence for taken"));
            let kinds = [ErrorKind::Unavailable, ErrorKind::Unknown];
            assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
            assert!(took < WAIT + WAIT_ADDS + SLACK, "{name}: {took:?}");
            proxy.black_hole_to_client(false);
            drop(first.await.unwrap());
        }
    });
}

/// D42: mere slowness caused it too.
#[test]
fn d42_an_owner_enters_its_lock_on_a_slow_store() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::connect(&proxy.url()).await.unwrap();
        let lock = client.fair_lock("job").owned_by(&client.owner());
        let held = lock.lock().await.unwrap();
        // The server knows the script afterwards, so that one reply is enough.
        drop(held.reenter().await.unwrap());
        proxy.delay_to_client(Duration::from_millis(30));
        let again = lock.try_lock_for(Duration::from_millis(5)).await.unwrap();
        assert_eq!(again.expect("it holds the lock").token(), held.token());
    });
}

/// The reverse of D42: if the store has replied that somebody else has the lock, the owner's other
/// requests get `None` without further delay.
#[test]
fn d42_a_lock_that_is_taken_is_no_error() {
    let Some((_server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::connect(&proxy.url()).await.unwrap();
        for lock in [client.fair_lock("fair"), client.plain_lock("plain")] {
            let taken = lock.lock().await.unwrap();
            let owned = lock.owned_by(&client.owner());
            let waiting = owned.clone();
            let first = tokio::spawn(async move { waiting.lock().await });
            tokio::time::sleep(WAIT).await;
            let began = Instant::now();
            assert!(owned.try_lock_for(WAIT).await.unwrap().is_none());
            println!("measured: d42 a lock that is taken: {:?}", began.elapsed());
            first.abort();
            let _ = taken.release().await.unwrap();
        }
    });
}

/// D43: dropping a client's last handle waited for a second, even in a task, when releases were in
/// flight and the server was silent: eight seconds for eight clients.
#[test]
fn d43_dropping_never_waits() {
    let Some((_server, proxy)) = fixture() else { return };
    let drop_all = |clients: Vec<(Client, Guard)>| {
        let began = Instant::now();
        for (client, guard) in clients {
            drop(guard);
            drop(client);
        }
        began.elapsed()
    };
    let open = async |proxy: &Proxy| {
        let mut clients = Vec::new();
        for _ in 0..8 {
            let client = Client::connect(&proxy.url()).await.unwrap();
            let guard = client.fair_lock(client.id().to_string()).lock().await.unwrap();
            clients.push((client, guard));
        }
        clients
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (in_a_task, elsewhere) =
        runtime.block_on(async { (open(&proxy).await, open(&proxy).await) });
    proxy.black_hole_to_client(true);
    // It took either a second each or next to nothing, apart from the time that the thread waits
    // for a processor.
    let pauses = Pauses::watch();
    let took = runtime.block_on(async { tokio::spawn(async move { drop_all(in_a_task) }).await });
    let took = took.unwrap();
    assert!(took < AT_ONCE + pauses.longest(), "in a task: {took:?}");
    // A thread's end waits for what the thread has dropped, for a second at most.
    let began = Instant::now();
    let took = std::thread::spawn(move || drop_all(elsewhere)).join().unwrap();
    assert!(took < AT_ONCE + pauses.longest(), "in a thread: {took:?}");
    assert!(began.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", began.elapsed());
}

/// What a thread drops last is released by the time the thread has ended, although the drop does
/// not wait for it.
#[test]
fn d43_the_end_of_a_thread_waits_for_what_it_dropped() {
    /// Half of the second that a thread's end waits.
    const ANSWERED_AFTER: Duration = Duration::from_millis(500);
    let Some((server, proxy)) = fixture() else { return };
    let url = proxy.url();
    let took = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (client, guard) = runtime.block_on(async {
                let client = Client::connect(&url).await.unwrap();
                let guard = client.fair_lock("job").lock().await.unwrap();
                (client, guard)
            });
            proxy.delay_to_client(ANSWERED_AFTER);
            let began = Instant::now();
            drop(guard);
            drop(client);
            began.elapsed()
        });
        thread.join().unwrap()
    });
    assert_eq!(server.client().call(&["EXISTS", "job"]).int(), 0);
    // A drop that waited for the reply would have taken at least this long.
    assert!(took < ANSWERED_AFTER, "the drop took {took:?}");
}

/// D43: a release after a shutdown. The documents promised `Closed`, but a lock that can be
/// released should be.
#[test]
fn d43_a_guard_can_be_released_after_a_shutdown() {
    let Some((server, proxy)) = fixture() else { return };
    runtime().block_on(async {
        let client = Client::connect(&proxy.url()).await.unwrap();
        let guard = client.fair_lock("job").lock().await.unwrap();
        client.shutdown().await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(server.client().call(&["EXISTS", "job"]).int(), 0);
    });
}
