//! Every kind of error and every outcome of a release, each provoked through the public API. An
//! error names the lock, the owner that asked, the current holder if that is known, and what to do.

use super::fixture::{Fixture, HB, LEASE, SLACK, client, config, eventually, ms, steady, within};
use fairlock::{Check, Client, Error, ErrorKind, Lock, Reaction, Release};
use fairlock_testkit::proxy::Proxy;
use std::io::{Read, Write};
use std::time::Duration;

/// All kinds; a new kind must be provoked below.
const KINDS: [ErrorKind; 9] = [
    ErrorKind::Misuse,
    ErrorKind::Denied,
    ErrorKind::Unavailable,
    ErrorKind::Unknown,
    ErrorKind::Lost,
    ErrorKind::LeaseTooShort,
    ErrorKind::WrongType,
    ErrorKind::Protocol,
    ErrorKind::Closed,
];

/// What an error must contain besides its kind.
#[derive(Default)]
struct Says<'a> {
    /// The lock's name; every error of a lock has one.
    lock: &'a str,
    /// Whether it names the owner that asked, where the call had one.
    owner: bool,
    /// The current holder.
    holder: Option<&'a str>,
    /// What happened, and what to do.
    words: &'a [&'a str],
}

#[derive(Default)]
struct Table {
    seen: Vec<ErrorKind>,
}

impl Table {
    #[track_caller]
    fn is(&mut self, kind: ErrorKind, error: &Error, says: &Says<'_>) {
        let text = error.to_string();
        println!("{kind:?}: {text}");
        assert_eq!(error.kind(), kind, "{text}");
        assert_eq!(error.lock().map(|name| name.as_bytes()), Some(says.lock.as_bytes()), "{text}");
        assert!(text.starts_with(&format!("lock `{}`: ", says.lock)), "{text}");
        assert_eq!(error.owner().is_some(), says.owner, "{text}");
        if let Some(owner) = error.owner() {
            assert!(owner.is_ours() && text.contains(&format!("asked as {owner}")), "{text}");
        }
        assert_eq!(error.holder().map(ToString::to_string).as_deref(), says.holder, "{text}");
        if let Some(holder) = says.holder {
            assert!(text.contains(&format!("held by {holder}")), "{text}");
        }
        for word in says.words {
            assert!(text.contains(word), "{word:?} is missing: {text}");
        }
        assert!(format!("{error:?}").starts_with(&format!("{kind:?}(")), "{error:?}");
        self.seen.push(kind);
    }
}

async fn fails(lock: &Lock) -> Error {
    let what = format!("an error of {:?}", lock.kind());
    within(&what, 5 * SLACK, lock.lock()).await.expect_err("no guard")
}

fn locks(client: &Client, name: &str) -> [Lock; 2] {
    [client.fair_lock(name), client.plain_lock(name)]
}

#[test]
fn p8_every_kind_of_error() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let mut table = Table::default();
        let url = fixture.server.url();
        let client = client(&url).await;
        let at = |lock| Says { lock, ..Says::default() };

        for lock in locks(&client, "job") {
            let error = fails(&lock.lease(ms(1))).await;
            table.is(ErrorKind::Misuse, &error, &Says { words: &["1ms", "between"], ..at("job") });
        }

        fixture.call(&[
            "ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha",
        ]);
        let weak = config(&url).username("weak").password("pw");
        let weak = weak.on_check(Check::Rights, Reaction::Ignore);
        let weak = Client::with_config(weak).await.unwrap();
        for lock in locks(&weak, "job") {
            let words = &["denies access", "permission"][..];
            let says = Says { owner: true, words, ..at("job") };
            table.is(ErrorKind::Denied, &fails(&lock).await, &says);
            let error = lock.inspect().await.unwrap_err();
            table.is(ErrorKind::Denied, &error, &Says { words, ..at("job") });
        }

        fixture.call(&["SET", "text", "x"]);
        fixture.call(&["SET", "redisson_lock_token:{series}", "x"]);
        for lock in locks(&client, "text") {
            let words = &["`text` holds a string", "another name"][..];
            let says = Says { owner: true, words, ..at("text") };
            table.is(ErrorKind::WrongType, &fails(&lock).await, &says);
        }
        for lock in locks(&client, "series") {
            let says = Says { owner: true, words: &["token key", "another name"], ..at("series") };
            table.is(ErrorKind::WrongType, &fails(&lock).await, &says);
        }

        // Another program listens there.
        let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = web.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in web.incoming().map_while(Result::ok) {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 1_024]);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        let lazy = config(&format!("redis://{place}")).lazy_connect(true);
        let lost = Client::with_config(lazy).await.unwrap();
        for lock in locks(&lost, "job") {
            let words = &[&place[..], "Redis or Valkey"][..];
            let says = Says { owner: true, words, ..at("job") };
            table.is(ErrorKind::Protocol, &fails(&lock).await, &says);
        }

        for (name, lock) in ["fair", "plain"]
            .into_iter()
            .zip([client.fair_lock("fair"), client.plain_lock("plain")])
        {
            let guard = lock.lock().await.unwrap();
            // Not by force, because the holder would learn of that at once.
            assert_eq!(fixture.server.client().call(&["DEL", name]).int(), 1);
            let other = lock.lock().await.unwrap();
            let (owner, holder) = (guard.owner().clone(), other.owner().to_string());
            let error = guard.reenter().await.unwrap_err();
            assert_eq!(error.owner(), Some(&owner));
            let words = &["lost", "undo or check"][..];
            let says = Says { lock: name, owner: true, holder: Some(&holder), words };
            table.is(ErrorKind::Lost, &error, &says);
            table.is(ErrorKind::Lost, &guard.ensure_valid().unwrap_err(), &says);
            table.is(ErrorKind::Lost, &guard.reenter().await.unwrap_err(), &says);
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
            let _ = other.release().await.unwrap();
        }

        let gone = super::fixture::client(&url).await;
        let (lock, guard) = (gone.fair_lock("job"), gone.fair_lock("held").lock().await.unwrap());
        gone.clone().shutdown().await;
        let words = &["shut down", "new client"][..];
        table.is(ErrorKind::Closed, &fails(&lock).await, &Says { words, ..at("job") });
        for error in [
            lock.try_lock().await.unwrap_err(),
            lock.try_lock_for(ms(1)).await.unwrap_err(),
            lock.inspect().await.unwrap_err(),
            lock.force_unlock().await.unwrap_err(),
        ] {
            table.is(ErrorKind::Closed, &error, &Says { words, ..at("job") });
        }
        let says = Says { owner: true, words, ..at("held") };
        table.is(ErrorKind::Closed, &guard.reenter().await.unwrap_err(), &says);

        network(&fixture, &mut table).await;
        for kind in KINDS {
            assert!(table.seen.contains(&kind), "{kind:?} was not provoked");
        }
        println!("measured: {} errors of {} kinds", table.seen.len(), KINDS.len());
    });
}

/// The kinds that need a broken network.
async fn network(fixture: &Fixture, table: &mut Table) {
    let proxy = Proxy::start(fixture.server.addr());
    let client = Client::with_config(config(&proxy.url()).store_timeout(ms(700))).await.unwrap();
    let at = |lock| Says { lock, ..Says::default() };
    let check = "check the server and the network";

    // Replies come so late that an explicit lease is over, every time.
    proxy.delay_to_client(ms(150));
    let lock = client.fair_lock("short").lease(ms(100));
    let says = Says { owner: true, words: &["lease", "longer"], ..at("short") };
    table.is(ErrorKind::LeaseTooShort, &fails(&lock).await, &says);
    let lock = client.plain_lock("short plain").lease(ms(100));
    let says = Says { owner: true, words: &["lease", "longer"], ..at("short plain") };
    table.is(ErrorKind::LeaseTooShort, &fails(&lock).await, &says);
    proxy.delay_to_client(ms(0));

    // Requests arrive, replies do not.
    for lock in locks(&client, "unknown") {
        proxy.black_hole_to_client(true);
        let says = Says { owner: true, words: &[check], ..at("unknown") };
        table.is(ErrorKind::Unknown, &fails(&lock).await, &says);
        proxy.black_hole_to_client(false);
        eventually("it is taken back", LEASE + 3 * SLACK, || fixture.holder("unknown").is_none());
        within("the connection", 3 * SLACK, lock.inspect()).await.unwrap();
    }

    // Nothing arrives any more: neither new calls nor those of a waiter.
    let held = fixture.take(&super::fixture::client(&fixture.server.url()).await, "queue").await;
    let waits = client.fair_lock("queue");
    let waits = tokio::spawn(async move { waits.lock().await.map(drop) });
    fixture.joined("queue", &[]);
    // A heartbeat is sent once the client knows that it waits.
    let scripts = proxy.counts().scripts;
    proxy.wait_until(|counts| counts.scripts > scripts);
    proxy.refuse(true);
    proxy.cut_all();
    eventually("the cut is noticed", SLACK, || {
        *client.connection().borrow() == fairlock::ConnectionState::Reconnecting
    });
    for lock in locks(&client, "job") {
        let says = Says { owner: true, words: &[check], ..at("job") };
        table.is(ErrorKind::Unavailable, &fails(&lock).await, &says);
        let error = lock.inspect().await.unwrap_err();
        table.is(ErrorKind::Unavailable, &error, &Says { words: &[check], ..at("job") });
    }
    let error = within("the wait fails", 5 * SLACK, waits).await.unwrap().unwrap_err();
    let says = Says { owner: true, words: &["while waiting", check], ..at("queue") };
    table.is(ErrorKind::Unavailable, &error, &says);
    let _ = held.release().await;
}

/// F82, a client that connects lazily: the first call finds that the server refuses it, and reports
/// that at once. It used to wait for a connection that could not come, for the store timeout, and
/// then reported an unreachable server.
#[test]
fn f82_a_lazy_client_that_is_refused_says_so_at_once() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        fixture.call(&["CONFIG", "SET", "requirepass", "right"]);
        let url = format!("redis://:wrong@{}", fixture.server.addr());
        for attempt in 0..3 {
            let client = Client::with_config(config(&url).lazy_connect(true)).await.unwrap();
            for lock in locks(&client, "job") {
                let began = std::time::Instant::now();
                let error = fails(&lock).await;
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
                super::fixture::measured(
                    &format!("f82 {attempt} {:?}", lock.kind()),
                    began.elapsed(),
                );
                assert!(began.elapsed() < SLACK);
            }
        }
    });
}

/// Errors of `connect` have no lock; they name the server instead.
#[test]
fn p8_errors_of_connect_name_the_server() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        fixture.call(&["CONFIG", "SET", "requirepass", "right"]);
        let addr = fixture.server.addr().to_string();
        let refused = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        };
        for (url, kind, place, words) in [
            (format!("redis://{addr}"), ErrorKind::Denied, &addr, "password"),
            (format!("redis://:no@{addr}"), ErrorKind::Denied, &addr, "password"),
            (format!("redis://{refused}"), ErrorKind::Unavailable, &refused, "refused"),
        ] {
            let error = Client::connect(&url).await.unwrap_err();
            println!("{kind:?}: {error}");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.lock().is_none() && error.owner().is_none() && error.holder().is_none());
            let text = error.to_string();
            assert!(text.contains(place) && text.contains(words), "{text}");
        }
    });
}

/// A release that found no server within the store timeout was repeated on the next connection for
/// fair locks only. A plain or simple lock stayed held for the rest of its lease, maybe for hours.
#[test]
fn a_release_that_found_no_server_is_repeated_on_the_next_connection() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let config = config(&proxy.url()).store_timeout(ms(500));
        let client = Client::with_config(config).await.unwrap();
        let [fair, plain] = locks(&client, "hash");
        for (name, lock) in
            [("hash", fair), ("hash", plain), ("string", client.simple_lock("string"))]
        {
            let kind = lock.kind();
            let guard = lock.lease(Duration::from_secs(3_600)).lock().await.unwrap();
            proxy.refuse(true);
            proxy.cut_all();
            let outcome = within("an outcome", 2 * SLACK, guard.release()).await.unwrap();
            assert_eq!(outcome, Release::Unknown, "{kind:?}");
            assert_eq!(fixture.call(&["EXISTS", name]).int(), 1, "{kind:?}");
            proxy.refuse(false);
            let exists = || fixture.call(&["EXISTS", name]).int();
            eventually("the lock is free", 2 * SLACK, || exists() == 0);
        }
    });
}

/// Every outcome of a release, on fair and plain locks.
#[test]
fn p8_every_outcome_of_a_release() {
    steady(|| async {
        let Some(fixture) = Fixture::redis70() else { return };
        let proxy = Proxy::start(fixture.server.addr());
        let client = client(&proxy.url()).await;
        for lock in locks(&client, "job") {
            let kind = lock.kind();
            // Inner guards first: some remain, then none.
            let outer = lock.lock().await.unwrap();
            let (inner, third) = (outer.reenter().await.unwrap(), outer.reenter().await.unwrap());
            assert_eq!(third.release().await.unwrap(), Release::StillHeld(2), "{kind:?}");
            assert_eq!(inner.release().await.unwrap(), Release::StillHeld(1), "{kind:?}");
            assert_eq!(fixture.call(&["HVALS", "job"]).array()[0].text(), "1");
            assert_eq!(outer.release().await.unwrap(), Release::Released, "{kind:?}");
            assert_eq!(fixture.holder("job"), None);

            // The reply is lost: the copy finds the lock free, and recognizes its own release.
            let guard = lock.lock().await.unwrap();
            // The first renewal is done.
            eventually("it is renewed", SLACK, || fixture.ttl("job") > LEASE / 2);
            proxy.cut_after_reply_lost(true);
            proxy.drop_replies(1);
            assert_eq!(guard.release().await.unwrap(), Release::Released, "{kind:?}");
            assert_eq!(
                proxy.counts().replies_dropped,
                1 + u64::from(kind == fairlock::Kind::Plain)
            );

            // Taken away: reported as lost.
            let guard = lock.lock().await.unwrap();
            assert_eq!(fixture.call(&["DEL", "job"]).int(), 1);
            assert_eq!(guard.release().await.unwrap(), Release::Lost, "{kind:?}");

            // No reply until the deadline: unknown. The server has carried it out.
            let guard = lock.lock().await.unwrap();
            proxy.black_hole_to_client(true);
            let outcome = within("an outcome", LEASE + 2 * SLACK, guard.release()).await.unwrap();
            assert_eq!(outcome, Release::Unknown, "{kind:?}");
            proxy.black_hole_to_client(false);
            eventually("the lock is free", LEASE + SLACK, || fixture.holder("job").is_none());
            within("the connection", 3 * SLACK, lock.inspect()).await.unwrap();

            // The deadline came before the release: lost, without a reply.
            let guard = lock.lock().await.unwrap();
            proxy.black_hole_to_server(true);
            within("the loss", LEASE + SLACK, guard.lost()).await;
            let outcome = within("an outcome", HB + SLACK, guard.release()).await.unwrap();
            assert_eq!(outcome, Release::Lost, "{kind:?}");
            proxy.black_hole_to_server(false);
            within("the connection", 3 * SLACK, lock.inspect()).await.unwrap();
        }
        // A guard that outlives its client's shutdown can still be released.
        let guard = client.fair_lock("last").lock().await.unwrap();
        client.clone().shutdown().await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(fixture.holder("last"), None);
    });
}
