//! A fence admits the newest holder and no older one, even in a race.

use fairlock::fence::{Refusal, sqlite};
use fairlock::{Client, FencingToken};
use fairlock_examples::fence_redis::set_fenced;
use fairlock_examples::fence_sql::{fenced, set_balance};
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

/// Tokens of the present: microseconds since 1970.
const NOW: u64 = 1_800_000_000_000_000;

/// For an answer of the server, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rounds of a race.
const ROUNDS: u64 = 100;

fn token(number: u64) -> FencingToken {
    FencingToken::new(NOW + number).unwrap()
}

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db.execute(sqlite::INSTALL, ()).unwrap();
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, balance INTEGER, token INTEGER);
         CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, token INTEGER);",
    )
    .unwrap();
    db
}

/// Appends a line to the log. Returns whether it was admitted.
fn write(db: &mut Connection, token: FencingToken) -> bool {
    let row = (token.as_i64(),);
    let done =
        fenced(db, "log", token, |db| db.execute("INSERT INTO log (token) VALUES (?1)", row));
    done.unwrap().is_ok()
}

fn log(db: &Connection) -> Vec<u64> {
    let mut rows = db.prepare("SELECT token FROM log ORDER BY id").unwrap();
    let rows = rows.query_map((), |row| row.get::<_, i64>(0)).unwrap();
    rows.map(|row| u64::try_from(row.unwrap()).unwrap()).collect()
}

#[test]
fn sql_refuses_a_stale_holder() {
    let dir = TempDir::new();
    let mut db = open(&dir.path().join("db"));
    for (number, is_let_in) in [(2, true), (2, true), (1, false), (3, true), (2, false), (3, true)]
    {
        assert_eq!(write(&mut db, token(number)), is_let_in, "{number}");
    }
    assert_eq!(log(&db), [2, 2, 3, 3].map(|number| token(number).get()));
    // Each resource has its own fence.
    assert_eq!(fenced(&mut db, "other", token(1), |_| Ok(())), Ok(Ok(())));
    // Tokens of another store are not ordered with these.
    db.execute("UPDATE fairlock_fences SET store = 'another' WHERE name = 'other'", ()).unwrap();
    assert_eq!(fenced(&mut db, "other", token(9), |_| Ok(())), Ok(Err(Refusal::OtherStore)));
}

/// With the tokens of a real lock: the first holder loses it, the second enters it twice.
#[tokio::test]
async fn sql_refuses_whoever_lost_the_lock() {
    let dir = TempDir::new();
    let mut db = open(&dir.path().join("db"));
    for kind in ["fair", "plain", "simple"] {
        let client = Client::connect("memory:").await.unwrap();
        let lock = match kind {
            "fair" => client.fair_lock("log"),
            "plain" => client.plain_lock("log"),
            _ => client.simple_lock("log"),
        };
        let first = lock.lock().await.unwrap();
        assert!(write(&mut db, first.token()));
        assert!(lock.force_unlock().await.unwrap());
        let second = lock.lock().await.unwrap();
        // No newer holder was here yet, so it is as if it had been written before.
        assert!(write(&mut db, first.token()));
        assert!(write(&mut db, second.token()));
        assert!(!write(&mut db, first.token()), "{kind}");
        let again = second.reenter().await.unwrap();
        assert!(write(&mut db, again.token()) && write(&mut db, second.token()));
    }
    let log = log(&db);
    assert!(log.len() == 15 && log.is_sorted(), "{log:?}");
}

/// The token of failed work is not kept: nothing was done under it.
#[test]
fn sql_work_that_fails_leaves_nothing() {
    let dir = TempDir::new();
    let mut db = open(&dir.path().join("db"));
    let failed = fenced(&mut db, "log", token(9), |db| {
        db.execute("INSERT INTO log (token) VALUES (9)", ())?;
        db.execute("INSERT INTO no_such_table VALUES (1)", ())
    });
    assert!(failed.is_err());
    assert!(log(&db).is_empty());
    assert!(write(&mut db, token(1)));
}

#[test]
fn sql_refuses_a_stale_holder_by_a_column() {
    let dir = TempDir::new();
    let db = open(&dir.path().join("db"));
    db.execute("INSERT INTO account VALUES ('ann', 0, 0)", ()).unwrap();
    for (number, is_let_in) in [(2, true), (2, true), (1, false), (3, true), (2, false)] {
        let balance = i64::try_from(number).unwrap() * 100;
        assert_eq!(set_balance(&db, "ann", balance, token(number)), Ok(is_let_in), "{number}");
    }
    let balance = db.query_row("SELECT balance FROM account", (), |row| row.get::<_, i64>(0));
    assert_eq!(balance, Ok(300));
    assert_eq!(set_balance(&db, "nobody", 1, token(4)), Ok(false));
}

/// In each round, two writers with consecutive tokens race.
#[test]
fn sql_writers_race() {
    let dir = TempDir::new();
    let path = dir.path().join("db");
    let mut db = open(&path);
    let barrier = Barrier::new(2);
    let race = |mine: fn(u64) -> u64| {
        let mut db = open(&path);
        let numbers = (1..=ROUNDS).map(mine);
        numbers
            .map(|number| {
                barrier.wait();
                write(&mut db, token(number))
            })
            .collect::<Vec<_>>()
    };
    let (older, newer) = std::thread::scope(|scope| {
        let older = scope.spawn(|| race(|round| 2 * round));
        let newer = scope.spawn(|| race(|round| 2 * round + 1));
        (older.join().unwrap(), newer.join().unwrap())
    });
    assert!(newer.iter().all(|is_let_in| *is_let_in), "the newest is always let in");
    let log = log(&db);
    assert!(log.is_sorted(), "{log:?}");
    let let_in = older.iter().filter(|is_let_in| **is_let_in).count();
    assert_eq!(log.len(), let_in + newer.len());
    println!("measured: the older one was first in {let_in} of {ROUNDS} rounds");
    assert!(!write(&mut db, token(2 * ROUNDS)));
}

async fn connect(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    // By default it waits for half a second only.
    let config = redis::AsyncConnectionConfig::new();
    let config = config.set_response_timeout(Some(PATIENCE)).set_connection_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

#[tokio::test]
async fn redis_refuses_a_stale_holder() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let mut redis = connect(&server).await;
    for (number, is_let_in) in [(2, true), (2, true), (1, false), (3, true), (2, false), (3, true)]
    {
        let value = number.to_string();
        let done = set_fenced(&mut redis, "account", token(number), &[("value", &value)]).await;
        assert_eq!(done.unwrap(), is_let_in, "{number}");
    }
    // Without fields: reading first keeps older holders out.
    assert!(set_fenced(&mut redis, "account", token(4), &[]).await.unwrap());
    assert!(!set_fenced(&mut redis, "account", token(3), &[("value", "late")]).await.unwrap());
    let value = server.client().call(&["HGET", "account", "value"]);
    assert_eq!(value.text(), "3");
    // The largest possible token and the one before it, which floating point must distinguish.
    let largest = |less: u64| FencingToken::new((1 << 53) - 1 - less).unwrap();
    assert!(set_fenced(&mut redis, "account", largest(0), &[]).await.unwrap());
    assert!(!set_fenced(&mut redis, "account", largest(1), &[]).await.unwrap());
    assert!(set_fenced(&mut redis, "account", largest(0), &[]).await.unwrap());
}

#[tokio::test]
async fn redis_writers_race() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    let mut first = 0;
    for round in 1..=ROUNDS {
        let (older, newer) = (token(2 * round), token(2 * round + 1));
        let (is_old_in, is_new_in) = tokio::join!(
            set_fenced(&mut one, "account", older, &[("value", "older")]),
            set_fenced(&mut two, "account", newer, &[("value", "newer")]),
        );
        assert!(is_new_in.unwrap(), "the newest is always let in");
        first += usize::from(is_old_in.unwrap());
        let value = server.client().call(&["HGET", "account", "value"]);
        assert_eq!(value.text(), "newer");
    }
    println!("measured: the older one was first in {first} of {ROUNDS} rounds");
}
