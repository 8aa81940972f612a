//! Invalid input: each case gives a clear error that names the problem, or is ignored and counted;
//! the store's content does not change by a single byte.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::support::{At, SOON, no_notes, queue_is, run, runtime, soon, until, wait_behind};
use fairlock::{Client, Config, ConnectionState, Error, ErrorKind, Lock};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::{Generation, Server};

use ErrorKind::{Denied, Misuse, Protocol, Unavailable, WrongType};

/// A URL, and what its error says.
const URLS: [(&str, &str); 53] = [
    ("", "begins with"),
    ("redis", "begins with"),
    ("127.0.0.1:6379", "unknown scheme"),
    ("localhost", "begins with"),
    (":", "unknown scheme"),
    ("http://localhost", "unknown scheme"),
    ("REDIS://localhost", "unknown scheme"),
    ("memory://", "followed by a name"),
    ("memory:x?y", "followed by a name"),
    ("rediss://localhost?insecure=true", "`server-name`"),
    ("valkeys:localhost", "`//`"),
    ("redis://localhost?ca=/ca.pem", "encrypted"),
    ("sqlite:", "absolute"),
    ("sqlite:locks", "absolute"),
    ("sqlite://host/locks", "absolute"),
    ("sqlite:/a#b", "fragment"),
    ("sqlite:/a?shared=all", "shared=group"),
    ("sqlite:/a%zz", "percent-encoded"),
    ("redis+sentinel://localhost", "Sentinel"),
    ("redis+sentinel://h,", "host"),
    ("redis+sentinel://h:0/m", "port"),
    ("redis+sentinel://h/m%20x", "letters"),
    ("redis+sentinel://h/m/x", "database"),
    ("redis+sentinel://h/m?db=1", "sentinel-password"),
    ("redis+sentinel:h/m", "`//`"),
    ("redis+cluster://localhost/1", "Cluster"),
    ("redis:localhost", "`//`"),
    ("redis:/localhost", "`//`"),
    ("valkey:localhost", "`//`"),
    ("redis://", "no host"),
    ("redis://:6379", "no host"),
    ("redis:///0", "no host"),
    ("redis://h1,h2", "`redis+sentinel://` or `redis+cluster://`"),
    ("rediss://h1:6379,h2:6379/0", "`rediss+sentinel://` or `rediss+cluster://`"),
    ("redis-sentinel://h/m", "`redis+sentinel://`"),
    ("sentinel://h/m", "`redis+sentinel://`"),
    ("redis-cluster://h", "`redis+cluster://`"),
    ("redis://a b", "character"),
    ("redis://a\0b", "character"),
    ("redis://h:0", "port"),
    ("redis://h:65536", "port"),
    ("redis://h:-1", "port"),
    ("redis://h:+1", "port"),
    ("redis://h:", "port"),
    ("redis://h:80:80", "port"),
    ("redis://[::1", "closing"),
    ("redis://[::g]", "IPv6"),
    ("redis://[::1]x", "`:port`"),
    ("redis://h/-1", "database"),
    ("redis://h/1/2", "database"),
    ("redis://h/99999999999", "database"),
    ("redis://h#0", "fragment"),
    ("redis://h?db=1", "options"),
];

/// Like [`URLS`], but with a secret, which no error shows.
const SECRET_URLS: [(&str, &str); 8] = [
    ("redis+sentinel://u:CANARY@h", "MASTER"),
    ("redis+sentinel://h/m?sentinel-password=CANARY%", "password"),
    ("redis://u:CANARY%@h", "password"),
    ("redis://u:CANARY%zz@h", "password"),
    ("redis://u:CANARY%ff@h", "password"),
    ("redis://%C3:CANARY@h", "user name"),
    ("redis://u:CANARY@h:x", "port"),
    ("redis://u:CANARY#1@h", "fragment"),
];

const SOCKETS: [(&str, &str); 6] = [
    ("unix:", "absolute path"),
    ("unix:relative/path", "absolute path"),
    ("unix:/a%00b", "zero byte"),
    ("unix:/a%f", "socket path"),
    ("unix:/a?database=1", "`db`"),
    ("unix:/a?db=x", "database"),
];

#[test]
fn urls() {
    for (url, says) in URLS.iter().chain(&SECRET_URLS).chain(&SOCKETS) {
        let error = Config::from_url(url).err().unwrap_or_else(|| panic!("{url} is taken"));
        expect(url, &error, Misuse, says);
        assert!(!format!("{error} {error:?}").contains("CANARY"), "{error:?}");
    }
    let long = format!("redis://{}", "h".repeat(9_000));
    expect("a long URL", &Config::from_url(&long).unwrap_err(), Misuse, "8192");
}

type Setter = fn(Config) -> Config;

/// Settings out of bounds, by name.
const SETTINGS: [(&str, Setter); 23] = [
    ("connect_timeout", |c| c.connect_timeout(Duration::ZERO)),
    ("connect_timeout", |c| c.connect_timeout(Duration::MAX)),
    ("response_timeout", |c| c.response_timeout(Duration::from_millis(9))),
    ("response_timeout", |c| c.response_timeout(Duration::from_secs(3_601))),
    ("store_timeout", |c| c.store_timeout(Duration::ZERO)),
    ("store_timeout", |c| c.store_timeout(Duration::MAX)),
    ("watchdog_lease", |c| c.watchdog_lease(Duration::ZERO)),
    ("watchdog_lease", |c| c.watchdog_lease(Duration::from_millis(299))),
    ("watchdog_lease", |c| c.watchdog_lease(Duration::MAX)),
    ("heartbeat", |c| c.heartbeat(Duration::ZERO)),
    ("heartbeat", |c| c.heartbeat(Duration::from_millis(19))),
    ("heartbeat", |c| c.heartbeat(Duration::from_secs(61))),
    ("fair_wait", |c| c.fair_wait(Duration::from_millis(999))),
    ("fair_wait", |c| c.fair_wait(Duration::MAX)),
    ("ping_interval", |c| c.ping_interval(Duration::ZERO)),
    ("ping_interval", |c| c.ping_interval(Duration::MAX)),
    ("ping_timeout", |c| c.ping_timeout(Duration::ZERO)),
    ("ping_timeout", |c| c.ping_timeout(Duration::MAX)),
    ("client_name", |c| c.client_name("")),
    ("client_name", |c| c.client_name("two words")),
    ("client_name", |c| c.client_name("x".repeat(129))),
    ("database", |c| c.database(1 << 31)),
    ("database", |c| c.database(u32::MAX)),
];

#[test]
fn settings() {
    runtime().block_on(async {
        for (name, set) in SETTINGS {
            let config = set(Config::from_url("memory:").unwrap());
            let error = Client::with_config(config).await.unwrap_err();
            expect(name, &error, Misuse, name);
        }
        let config = Config::from_url("redis://127.0.0.1").unwrap().username("ann");
        let error = Client::with_config(config).await.unwrap_err();
        expect("a name alone", &error, Misuse, "password");
    });
}

/// The key that is overwritten, the command for it (`K` is the key), and what every call then
/// reports.
const FOREIGN: [(&str, &[&str], &str); 22] = [
    ("job", &["SET", "K", "x"], "`job` holds a string"),
    ("job", &["RPUSH", "K", "x"], "`job` holds a list"),
    ("job", &["SADD", "K", "x"], "`job` holds a set"),
    ("job", &["ZADD", "K", "1", "x"], "`job` holds a zset"),
    ("job", &["XADD", "K", "1-1", "a", "b"], "`job` holds a stream"),
    ("redisson_lock_queue:{job}", &["SET", "K", "x"], "`redisson_lock_queue:{job}` holds a string"),
    ("redisson_lock_queue:{job}", &["HSET", "K", "a", "b"], "holds a hash"),
    ("redisson_lock_timeout:{job}", &["SET", "K", "x"], "`redisson_lock_timeout:{job}` holds"),
    ("redisson_lock_timeout:{job}", &["RPUSH", "K", "x"], "holds a list where"),
    ("fairlock_order:{job}", &["SET", "K", "x"], "`fairlock_order:{job}` holds a string"),
    ("fairlock_state:{job}", &["SET", "K", "x"], "`fairlock_state:{job}` holds a string"),
    ("fairlock_beats:{job}", &["SET", "K", "x"], "`fairlock_beats:{job}` holds a string"),
    ("redisson_lock_token:{job}", &["RPUSH", "K", "1"], "`redisson_lock_token:{job}` holds a list"),
    ("redisson_lock_token:{job}", &["HSET", "K", "a", "1"], "holds a hash where"),
    ("redisson_lock_token:{job}", &["SET", "K", "x"], "token key"),
    ("redisson_lock_token:{job}", &["SET", "K", ""], "token key"),
    ("redisson_lock_token:{job}", &["SET", "K", "-1"], "token key"),
    ("redisson_lock_token:{job}", &["SET", "K", "1.5"], "token key"),
    ("redisson_lock_token:{job}", &["SET", "K", "1e3"], "token key"),
    ("redisson_lock_token:{job}", &["SET", "K", " 7"], "token key"),
    ("redisson_lock_token:{job}", &["SET", "K", "9007199254740992"], "2^53"),
    ("redisson_lock_token:{job}", &["SET", "K", "99999999999999999999"], "token key"),
];

#[test]
fn foreign_data_in_the_keys() {
    run(At::Server(Generation::Redis70), async |store| {
        let holder = store.client_with(no_notes).await.fair_lock("job");
        let other = store.client_with(no_notes).await.fair_lock("job");
        let mut raw = store.raw().unwrap();
        for (key, command, says) in FOREIGN {
            raw.call(&["FLUSHALL"]);
            // If the lock key is intact, somebody holds the lock, so that waiting is tried.
            let guard = if key == "job" { None } else { Some(holder.lock().await.unwrap()) };
            raw.call(&["DEL", key]);
            let command: Vec<_> =
                command.iter().map(|word| if *word == "K" { key } else { word }).collect();
            let reply = raw.call(&command);
            assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
            let before = everything(&mut raw);
            let what = format!("{key} after {command:?}");
            for error in [
                soon("an error", other.lock()).await.unwrap_err(),
                soon("an error", other.try_lock_for(SOON)).await.unwrap_err(),
            ] {
                expect(&what, &error, WrongType, says);
                assert_eq!(error.lock().unwrap().as_bytes(), b"job");
            }
            // These calls need not look at every key.
            for result in [
                other.try_lock().await.map(|guard| assert!(guard.is_none(), "{what}")),
                other.inspect().await.map(drop),
            ] {
                if let Err(error) = result {
                    expect(&what, &error, WrongType, says);
                }
            }
            assert_eq!(everything(&mut raw), before, "{what}");
            raw.call(&["DEL", key]);
            if let Some(guard) = guard {
                let _ = guard.release().await.unwrap();
            }
            let _ = soon("a lock that is whole again", other.lock())
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    });
}

/// Hold counts that none of our clients writes, and what an inspection shows.
const COUNTS: [(&str, Option<u32>); 9] = [
    ("1", Some(1)),
    ("2147483647", Some(2_147_483_647)),
    ("0", None),
    ("x", None),
    ("", None),
    ("99999999999", None),
    ("-5", None),
    ("1e400", None),
    ("nan", None),
];

/// With another program's count, nobody gets the lock. Without a valid count it is not a lock, and
/// the error says so. The content stays as it is.
#[test]
fn odd_hold_counts() {
    run(At::Server(Generation::Redis70), async |store| {
        let lock = store.client_with(no_notes).await.fair_lock("job");
        let mut raw = store.raw().unwrap();
        for (count, shown) in COUNTS {
            raw.call(&["DEL", "job"]);
            raw.call(&["HSET", "job", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51", count]);
            raw.call(&["PEXPIRE", "job", "100000"]);
            let before = everything(&mut raw);
            let (tried, seen) = (lock.try_lock().await, lock.inspect().await);
            if let Some(shown) = shown {
                assert!(tried.unwrap().is_none(), "{count:?}");
                let holder = seen.unwrap().holder.unwrap();
                assert_eq!((holder.count, holder.ours), (shown, false), "{count:?}");
            } else {
                for error in [tried.unwrap_err(), seen.unwrap_err()] {
                    expect(count, &error, WrongType, "one value is no hold count, not a lock");
                }
            }
            assert_eq!(everything(&mut raw), before, "{count:?}");
        }
    });
}

/// Application data under the name of a lock, and how the error describes it.
const NO_LOCKS: [(&[&str], &str); 4] = [
    (
        &["HSET", "job", "name", "bob", "mail", "b@x"],
        "`job` holds a hash with 2 fields, not a lock",
    ),
    (&["HSET", "job", "name", "bob"], "`job` holds a hash whose one value is no hold count"),
    // As Redisson's read-write lock.
    (&["HSET", "job", "mode", "read", "x:1", "1"], "in use for a read-write lock"),
    (&["HSET", "job", "mode", "1"], "`job` holds a hash with a field `mode`"),
];

/// D01: `run --wait 1s` on the name of an application's hash gave it a TTL of 30 s, and
/// `force_unlock` deleted it. Now every call refuses it, the hash stays, and the error says what it
/// is and what to do.
#[test]
fn d01_a_hash_of_an_application_is_no_lock() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let mut raw = store.raw().unwrap();
        for (put, says) in NO_LOCKS {
            raw.call(&["FLUSHALL"]);
            raw.call(put);
            let before = everything(&mut raw);
            for lock in [client.fair_lock("job"), client.plain_lock("job")] {
                for error in [
                    soon("an error", lock.lock()).await.unwrap_err(),
                    soon("an error", lock.try_lock_for(SOON)).await.unwrap_err(),
                    lock.try_lock().await.unwrap_err(),
                    lock.inspect().await.unwrap_err(),
                    lock.force_unlock().await.unwrap_err(),
                ] {
                    expect("job", &error, WrongType, says);
                    let words = error.to_string();
                    // What has a mode may be a lock that somebody holds.
                    let advice = if says.contains("`mode`") {
                        "and remove nothing"
                    } else if says.contains("read-write") {
                        "name that one, or use another name"
                    } else {
                        "or remove the key"
                    };
                    assert!(words.contains(advice), "{words}");
                    assert_eq!(error.lock().unwrap().as_bytes(), b"job");
                }
            }
            assert_eq!(everything(&mut raw), before, "{put:?}");
        }
    });
}

/// D01: a possible foreign hold is waited for and gets no TTL; only force removes it. A semaphore
/// is not a simple lock, not even for `force`.
#[test]
fn d01_a_hold_of_somebody_is_waited_for_and_left_alone() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let mut raw = store.raw().unwrap();
        let wait = Duration::from_millis(300);
        for lock in [client.fair_lock("job"), client.plain_lock("job"), client.simple_lock("job")] {
            raw.call(&["FLUSHALL"]);
            let simple = lock.kind() == fairlock::Kind::Simple;
            let put: &[&str] =
                if simple { &["SET", "job", "theirs"] } else { &["HSET", "job", "somebody", "1"] };
            raw.call(put);
            let before = raw.call(&["DUMP", "job"]);
            assert!(lock.try_lock().await.unwrap().is_none());
            assert!(lock.try_lock_for(wait).await.unwrap().is_none());
            let left = (raw.call(&["PTTL", "job"]).int(), raw.call(&["DUMP", "job"]));
            assert_eq!(left, (-1, before), "{put:?}");
            assert!(lock.force_unlock().await.unwrap());
            assert!(lock.try_lock().await.unwrap().is_some());
        }
        raw.call(&["FLUSHALL"]);
        raw.call(&["SET", "job", "5"]);
        let error = client.simple_lock("job").force_unlock().await.unwrap_err();
        expect("job", &error, WrongType, "`job` holds a number without a TTL");
        assert_eq!(raw.call(&["GET", "job"]).text(), "5");
    });
}

/// The list and the scores of a queue disagree while the lock is held: nobody is served out of
/// turn, and an inspection changes nothing.
#[test]
fn members_without_scores_and_scores_without_members() {
    run(At::Server(Generation::Redis70), async |store| {
        let lock = store.client_with(no_notes).await.fair_lock("job");
        let mut raw = store.raw().unwrap();
        let guard = lock.lock().await.unwrap();
        let long = "x".repeat(100_000);
        for member in ["", "java:1", "\0", "not an id", &long, &guard.owner().to_string()] {
            raw.call(&["RPUSH", "redisson_lock_queue:{job}", member]);
            raw.call(&["ZADD", "redisson_lock_timeout:{job}", "1", &format!("other {member}")]);
            let before = everything(&mut raw);
            assert!(lock.try_lock().await.unwrap().is_none());
            let status = lock.inspect().await.unwrap();
            assert_eq!(status.queue_len, status.queue.len());
            // A long one is cut.
            let shown = &member.as_bytes()[..member.len().min(256)];
            assert_eq!(status.queue.last().unwrap().owner.to_bytes(), shown);
            assert_eq!(everything(&mut raw), before, "{member:.20?}");
        }
        raw.call(&["DEL", "redisson_lock_queue:{job}", "redisson_lock_timeout:{job}"]);
        let _ = guard.release().await.unwrap();
    });
}

/// Messages that are not a grant; `R` stands for a request id that nobody has.
const MESSAGES: [&str; 22] = [
    "",
    "0",
    "g1",
    "g1 ",
    "g1 R",
    "g1 R 5 1000",
    "g1 R 5 1000 6000",
    "g1 R 5 1000 6000 ",
    "g1 R 5 1000 6000 1",
    "g1  R 5 1000 6000",
    "g2 R 5 1000 6000",
    "G1 R 5 1000 6000",
    "g1 R 0 1000 6000",
    "g1 R -5 1000 6000",
    "g1 R 9007199254740992 1000 6000",
    "g1 R 5 -1000 6000",
    "g1 R 5 1000 -6000",
    "g1 R 5 1000 0",
    "g1 R 5 1000 9007199254740991",
    "g1 R 99999999999999999999 1 1",
    "g1 RR 5 1000 6000",
    "{\"request\":\"R\"}",
];

#[test]
fn forged_messages_in_the_inbox() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let lock = client.fair_lock("job");
        let guard = lock.lock().await.unwrap();
        let waiter = wait_behind(&lock, 1).await;
        let mut raw = store.raw().unwrap();
        let inbox = format!("fairlock_inbox:{}", client.id());
        let request = "0123456789abcdef0123456789abcdef";
        let mut messages: Vec<Vec<u8>> =
            MESSAGES.iter().map(|text| text.replace('R', request).into_bytes()).collect();
        messages.push(vec![0xff; 64]);
        messages.push(vec![b'g'; 1 << 20]);
        messages.push(format!("g1 {request} 5 1000 6000\r\n").into_bytes());
        messages.push(request.to_uppercase().into_bytes());
        let before = everything(&mut raw);
        for (odd, message) in messages.iter().enumerate() {
            let heard = raw.call(&[b"PUBLISH", inbox.as_bytes(), message]).int();
            assert_eq!(heard, 1, "the inbox is open");
            until("it is counted", async || client.dropped_messages() == odd as u64 + 1).await;
        }
        assert!(!waiter.is_finished());
        guard.ensure_valid().unwrap();
        assert_eq!(everything(&mut raw), before);
        assert_eq!(*client.connection().borrow(), ConnectionState::Connected);

        // A real grant, sent again: the second time nobody waits for it.
        let mut spy = store.server().unwrap().client();
        spy.subscribe(&inbox);
        let _ = guard.release().await.unwrap();
        let (_, grant) = spy.message_within(SOON).expect("the grant");
        let next = soon("the grant", waiter).await.unwrap().unwrap();
        let odd = client.dropped_messages();
        for (more, message) in [&grant[..], &grant[..grant.len() - 1]].into_iter().enumerate() {
            raw.call(&[b"PUBLISH", inbox.as_bytes(), message]);
            until("it is counted", async || client.dropped_messages() == odd + more as u64 + 1)
                .await;
        }
        let holder = lock.inspect().await.unwrap().holder.unwrap();
        assert_eq!((&holder.owner, holder.count), (next.owner(), 1));
        let _ = next.release().await.unwrap();
    });
}

/// Anybody may publish anything on a plain lock's channel: it wakes waiters, or is counted.
#[test]
fn forged_messages_in_the_channel_of_a_lock() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let lock: Lock = client.plain_lock("job");
        let guard = lock.lock().await.unwrap();
        let own = lock.clone();
        let waiter = tokio::spawn(async move { own.lock().await.unwrap() });
        let mut raw = store.raw().unwrap();
        let channel = "redisson_lock__channel:{job}";
        until("it listens", async || raw.listeners(channel) == 1).await;
        let before = everything(&mut raw);
        let huge = "0".repeat(1 << 20);
        for (odd, message) in ["", "1", "00", "0\n", "g1", &huge].iter().enumerate() {
            raw.call(&["PUBLISH", channel, message]);
            until("it is counted", async || client.dropped_messages() == odd as u64 + 1).await;
        }
        let odd = client.dropped_messages();
        for _ in 0..1_000 {
            raw.call(&["PUBLISH", channel, "0"]);
        }
        client.ping().await.unwrap();
        assert!(!waiter.is_finished());
        assert_eq!(everything(&mut raw), before, "being woken for nothing changes nothing");
        assert_eq!(client.dropped_messages(), odd);
        let _ = guard.release().await.unwrap();
        let _ = soon("the wake-up", waiter).await.unwrap().release().await.unwrap();
    });
}

/// Anyone who can write to the server can read a request id from the keys. Still, a forged message
/// for another lock's waiter, or with a grant whose time is over, is not a grant.
#[test]
fn a_grant_that_is_over_is_no_grant() {
    run(At::Server(Generation::Redis70), async |store| {
        let client = store.client_with(no_notes).await;
        let lock = client.fair_lock("job");
        let guard = lock.lock().await.unwrap();
        let waiter = wait_behind(&lock, 1).await;
        let owner = lock.inspect().await.unwrap().queue[0].owner.to_string();
        let mut raw = store.raw().unwrap();
        let record = raw.call(&["HGET", "fairlock_state:{job}", &owner]);
        let request = record.text().split(' ').next().unwrap().to_owned();
        let inbox = format!("fairlock_inbox:{}", client.id());
        let odd = client.dropped_messages();
        raw.call(&["PUBLISH", &inbox, &format!("g1 {request} 5 1000 6000")]);
        until("it is counted", async || client.dropped_messages() == odd + 1).await;
        assert!(!waiter.is_finished());
        queue_is(&lock, 1).await;
        let _ = guard.release().await.unwrap();
        let next = soon("the real grant", waiter).await.unwrap().unwrap();
        assert!(next.token().get() > 5);
        let _ = next.release().await.unwrap();
    });
}

#[test]
fn servers_that_cannot_serve() {
    let Some(server) = Server::builder(Generation::Redis70).arg("--requirepass", "right").start()
    else {
        return;
    };
    let addr = server.addr();
    let refused = {
        // Bound and closed again: nobody listens there.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let web_addr = web.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in web.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            // Whatever the request was.
            if stream.read(&mut request).is_ok_and(|n| n > 0) {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        }
    });
    let table = [
        (format!("redis://{addr}"), Denied, "NOAUTH"),
        (format!("redis://:CANARY@{addr}"), Denied, "denies"),
        (format!("redis://nobody:CANARY@{addr}"), Denied, "denies"),
        (format!("redis://:right@{addr}/99999"), Misuse, "DB index"),
        (format!("redis://:CANARY@{refused}"), Unavailable, "refused"),
        (format!("redis://:CANARY@{web_addr}"), Protocol, "a web server answers here"),
        ("redis://:CANARY@no-such-host.invalid".to_owned(), Unavailable, "connection failed"),
        ("unix:/no/such/socket".to_owned(), Unavailable, "connection failed"),
    ];
    runtime().block_on(async {
        for (url, kind, says) in table {
            let error = soon("an error", Client::connect(&url)).await.unwrap_err();
            expect(&url, &error, kind, says);
            // The address without the login, the database and the scheme.
            let place = url.rsplit('@').next().unwrap().trim_start_matches("unix:");
            let place = place.trim_start_matches("redis://").trim_end_matches("/99999");
            expect(&url, &error, kind, place);
            assert!(!format!("{error} {error:?}").contains("CANARY"), "{error:?}");
        }
        Client::connect(&format!("redis://:right@{addr}")).await.unwrap().ping().await.unwrap();
    });
}

#[test]
fn at_least_sixty_inputs() {
    let count = URLS.len() + SECRET_URLS.len() + SOCKETS.len() + SETTINGS.len() + FOREIGN.len();
    assert!(count + COUNTS.len() + MESSAGES.len() >= 60);
}

#[track_caller]
fn expect(what: &str, error: &Error, kind: ErrorKind, says: &str) {
    assert_eq!(error.kind(), kind, "{what}: {error}");
    assert!(error.to_string().contains(says), "{what}: {error} does not say {says:?}");
}

/// Every key with its content, byte for byte, and whether it expires.
pub(crate) fn everything(raw: &mut Raw) -> Vec<(Value, Value, bool)> {
    let Value::Array(mut keys) = raw.call(&["KEYS", "*"]) else { panic!("no list") };
    let bytes = |key: &Value| match key {
        Value::Bulk(bytes) => bytes.clone(),
        other => panic!("{other:?} is no key"),
    };
    keys.sort_by_key(bytes);
    let mut all = Vec::new();
    for key in keys {
        let name = bytes(&key);
        let dump = raw.call(&[b"DUMP", &name[..]]);
        let expires = raw.call(&[b"PTTL", &name[..]]).int() >= 0;
        all.push((key, dump, expires));
    }
    all
}
