//! The fence in PostgreSQL: who is excluded, at each isolation level, and what cannot be excluded.

use std::time::{Duration, Instant};

use fairlock::fence::postgres::{FENCE, TAKE, install};
use fairlock::fence::{self, Refusal};
use fairlock::{Client as Locks, FencingToken};
use fairlock_testkit::postgres::Postgres;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
use fairlock_testkit::wait;
use tokio_postgres::{Client, Error, NoTls};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

const SERIALIZATION_FAILURE: &str = "40001";

/// What happens at once happens within this.
const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn connect(server: &Postgres, user: &str) -> Client {
    connect_to(&server.url(user, "postgres")).await
}

pub(crate) async fn connect_to(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    // Ends with an error when the server ends the session, which the client reports as well.
    tokio::spawn(async move { drop(connection.await) });
    client
}

pub(crate) struct Fixture {
    pub(crate) server: Postgres,
}

impl Fixture {
    /// A database with a fence in the schema `fairlock`, and a table that only the application's role writes to.
    pub(crate) async fn new() -> Option<Self> {
        Self::with(&["fsync=off"]).await
    }

    async fn with(settings: &[&str]) -> Option<Self> {
        let fixture = Self { server: Postgres::start_with(settings)? };
        let owner = fixture.connect("postgres").await;
        owner.batch_execute(&install("fairlock").unwrap()).await.unwrap();
        let rest = "
            CREATE ROLE app LOGIN;
            GRANT USAGE ON SCHEMA fairlock TO app;
            GRANT EXECUTE ON FUNCTION fairlock.fairlock_take, fairlock.fairlock_fence TO app;
            CREATE TABLE log (id serial, token bigint);
            GRANT ALL ON log, log_id_seq TO app;";
        owner.batch_execute(rest).await.unwrap();
        Some(fixture)
    }

    pub(crate) async fn connect(&self, user: &str) -> Client {
        connect(&self.server, user).await
    }

    pub(crate) async fn app(&self) -> Client {
        self.connect("app").await
    }
}

pub(crate) fn token(number: i64) -> i64 {
    1_800_000_000_000_000 + number
}

/// Waits for a second at most.
pub(crate) async fn take(db: &Client, number: i64) -> Result<(), Error> {
    let statement = "SELECT fairlock.fairlock_take($1, $2, $3, 1000)";
    db.execute(statement, &[&"log", &token(number), &"test"]).await.map(drop)
}

pub(crate) async fn fence(db: &Client, number: i64) -> Result<(), Error> {
    db.execute(FENCE, &[&"log", &token(number)]).await.map(drop)
}

/// Begins a fenced transaction and writes a row in it.
async fn write(db: &Client, level: &str, number: i64) -> Result<(), Error> {
    db.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await?;
    fence(db, number).await?;
    db.execute("INSERT INTO log (token) VALUES ($1)", &[&token(number)]).await.map(drop)
}

async fn commit(db: &Client) {
    db.batch_execute("COMMIT").await.unwrap();
}

async fn roll_back(db: &Client) {
    db.batch_execute("ROLLBACK").await.unwrap();
}

pub(crate) async fn rows(db: &Client) -> Vec<i64> {
    let rows = db.query("SELECT token FROM log ORDER BY id", &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, i64>(0) - token(0)).collect()
}

#[track_caller]
pub(crate) fn sqlstate<T>(result: Result<T, Error>) -> String {
    let Err(error) = result else { panic!("not refused") };
    let code = error.code().unwrap_or_else(|| panic!("not of the database: {error:?}"));
    code.code().to_owned()
}

#[track_caller]
pub(crate) fn refusal<T>(result: Result<T, Error>) -> Refusal {
    let state = sqlstate(result);
    Refusal::from_sqlstate(&state).unwrap_or_else(|| panic!("not a refusal: {state}"))
}

/// Takes again and again, as a holder does while its guard is valid.
async fn take_patiently(db: &Client, number: i64) {
    let began = Instant::now();
    while let Err(error) = take(db, number).await {
        assert_eq!(refusal(Err::<(), _>(error)), Refusal::Blocked);
        assert!(began.elapsed() < SOON, "blocked without end");
    }
}

#[tokio::test]
async fn take_waits_for_the_former_holders_transaction_and_then_refuses_it() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.app().await, std::sync::Arc::new(fixture.app().await));
    for (round, level) in [0, 2, 4].into_iter().zip(LEVELS) {
        let (first, second) = (round + 1, round + 2);
        take(&old, first).await.unwrap();
        write(&old, level, first).await.unwrap();
        assert_eq!(refusal(take(&new, second).await), Refusal::Blocked, "{level}");

        let successor = std::sync::Arc::clone(&new);
        let waiting = tokio::spawn(async move { take_patiently(&successor, second).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "{level}: the transaction is still open");
        commit(&old).await;
        waiting.await.unwrap();
        write(&new, level, second).await.unwrap();
        let seen = rows(&new).await;
        assert_eq!(
            seen,
            (1..=second).collect::<Vec<_>>(),
            "{level}: all that the former holder wrote"
        );
        commit(&new).await;

        for level in LEVELS {
            assert_eq!(refusal(write(&old, level, first).await), Refusal::Lost, "{level}");
            roll_back(&old).await;
        }
        assert_eq!(refusal(take(&old, first).await), Refusal::Lost, "{level}");
    }
}

/// A snapshot that is older than the take shows the old token.
#[tokio::test]
async fn fence_in_an_older_snapshot_fails_to_serialize() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.app().await, fixture.app().await);
    for (round, level) in [0, 2].into_iter().zip(&LEVELS[1..]) {
        take(&old, round + 1).await.unwrap();
        old.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
        assert!(rows(&old).await.is_empty(), "the snapshot begins here");
        take(&new, round + 2).await.unwrap();
        assert_eq!(sqlstate(fence(&old, round + 1).await), SERIALIZATION_FAILURE, "{level}");
        roll_back(&old).await;
        assert_eq!(refusal(write(&old, level, round + 1).await), Refusal::Lost, "{level}");
        roll_back(&old).await;
    }
}

/// Why take and fence are two calls, with the same statements as one: at REPEATABLE READ the successor passes, and sees
/// nothing of what it has waited for.
#[tokio::test]
async fn take_and_fence_in_one_transaction_are_wrong_and_refused() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.connect("postgres").await, fixture.connect("postgres").await);
    let row = "CREATE TABLE merged (token bigint); INSERT INTO merged VALUES (1)";
    old.batch_execute(row).await.unwrap();
    let lock = "SELECT token FROM merged FOR SHARE; INSERT INTO log (token) VALUES (1)";
    old.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
    let merged = tokio::spawn(async move {
        new.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE merged SET token = 2")
            .await
            .unwrap();
        rows(&new).await
    });
    let owner = fixture.connect("postgres").await;
    let waits = "SELECT FROM pg_stat_activity WHERE query LIKE '%SET token = 2' AND wait_event_type = 'Lock'";
    wait::until_async("the update waits", SOON, async || {
        owner.query(waits, &[]).await.unwrap().len() == 1
    })
    .await;
    commit(&old).await;
    assert!(merged.await.unwrap().is_empty(), "it does not see the row");
    assert_eq!(rows(&old).await.len(), 1);

    let app = fixture.app().await;
    for level in LEVELS {
        app.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
        take(&app, 5).await.unwrap();
        assert_eq!(refusal(fence(&app, 5).await), Refusal::Misused, "{level}");
        roll_back(&app).await;
        // Drivers set savepoints of their own.
        app.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SAVEPOINT a")).await.unwrap();
        take(&app, 5).await.unwrap();
        app.batch_execute("RELEASE a").await.unwrap();
        assert_eq!(refusal(fence(&app, 5).await), Refusal::Misused, "{level}, in a savepoint");
        roll_back(&app).await;
    }
    take(&app, 5).await.unwrap();
    app.batch_execute("BEGIN; INSERT INTO log (token) VALUES (5)").await.unwrap();
    assert_eq!(refusal(take(&app, 6).await), Refusal::Misused);
    roll_back(&app).await;
    write(&app, LEVELS[0], 5).await.unwrap();
    assert_eq!(
        refusal(take(&app, 6).await),
        Refusal::Misused,
        "it would wait for this very transaction"
    );
    roll_back(&app).await;
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let Some(fixture) = Fixture::new().await else { return };
    let app = fixture.app().await;
    assert_eq!(refusal(fence(&app, 1).await), Refusal::NotTaken);
    take(&app, 2).await.unwrap();
    take(&app, 2).await.unwrap();
    fence(&app, 2).await.unwrap();
    assert_eq!(refusal(fence(&app, 3).await), Refusal::NotTaken);
    let lost = fence(&app, 1).await.unwrap_err();
    let said = lost.as_db_error().unwrap();
    let expected =
        format!("the lock 'log' was lost: token {} is older than {}", token(1), token(2));
    assert_eq!(
        (said.message(), said.hint()),
        (&*expected, Some("Stop this work and acquire the lock again."))
    );
    let number = FencingToken::new(u64::try_from(token(1)).unwrap()).unwrap();
    assert_eq!(fence::refused(number, said.code().code()), Some(Refusal::Lost));
    assert_eq!(fence::refused(number, "23505"), None);

    let other = app.execute(TAKE, &[&"log", &token(9), &"another"]).await;
    assert_eq!(refusal(other), Refusal::OtherStore);
    for wrong in [
        "fairlock_take('', 1, 'test')",
        "fairlock_take(NULL, 1, 'test')",
        "fairlock_take('log', 0, 'test')",
        "fairlock_take('log', NULL, 'test')",
        "fairlock_take('log', 9007199254740992, 'test')",
        "fairlock_take(repeat('x', 2001), 1, 'test')",
        "fairlock_take('log', 1, 'test', 0)",
        "fairlock_fence('log', 1, 0)",
        "fairlock_take('log', 1, NULL)",
        "fairlock_take('log', 1, '')",
        "fairlock_take('log', 1, 'test', -1)",
        "fairlock_take('log', 1, 'test', NULL)",
        "fairlock_fence('', 1)",
        "fairlock_fence(NULL, 1)",
        "fairlock_fence('log', NULL)",
        "fairlock_fence('log', 0)",
        "fairlock_fence('log', 1, NULL)",
        "fairlock_fence('log', 1, -1)",
    ] {
        let result = app.batch_execute(&format!("SELECT fairlock.{wrong}")).await;
        assert_eq!(refusal(result), Refusal::Misused, "{wrong}");
    }
    // Names are data.
    let odd = "it's \"odd\" %s \u{1f512}";
    app.execute(TAKE, &[&odd, &token(1), &odd]).await.unwrap();
    app.execute(FENCE, &[&odd, &token(1)]).await.unwrap();
}

/// A name moves to another store by an operator's hand, even while its holders work.
#[tokio::test]
async fn a_name_is_moved_to_another_store() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    take(&app, 5).await.unwrap();
    owner.execute(fence::postgres::MOVE, &[&"log", &"another"]).await.unwrap();
    assert_eq!(refusal(fence(&app, 5).await), Refusal::NotTaken);
    assert_eq!(refusal(take(&app, 5).await), Refusal::OtherStore);
    app.execute(TAKE, &[&"log", &1_i64, &"another"]).await.unwrap();
    app.execute(FENCE, &[&"log", &1_i64]).await.unwrap();
}

/// Stopped, or cut off: the server cannot tell these from a holder that is slow.
#[tokio::test]
async fn a_holder_that_is_idle_in_its_transaction_is_ended() {
    let Some(fixture) = Fixture::new().await else { return };
    let new = fixture.app().await;
    let idle = |ms: i64| format!("SELECT fairlock.fairlock_fence('log', {}, {ms})", token(1));
    for (session, limit_ms) in [("0", 700), ("'700ms'", 60_000)] {
        let old = fixture.app().await;
        let owner = fixture.connect("postgres").await;
        owner.batch_execute("TRUNCATE fairlock.fairlock_fences").await.unwrap();
        take(&old, 1).await.unwrap();
        let begin = format!(
            "SET idle_in_transaction_session_timeout = {session}; BEGIN; {}",
            idle(limit_ms)
        );
        old.batch_execute(&format!("{begin}; INSERT INTO log (token) VALUES (1)")).await.unwrap();
        take_patiently(&new, 2).await;
        let late = old.batch_execute("INSERT INTO log (token) VALUES (1); COMMIT").await;
        assert!(late.is_err(), "the session has ended");
        assert!(rows(&new).await.is_empty(), "and its transaction was rolled back");
    }
    // The limit ends with the transaction.
    let db = fixture.app().await;
    let limit = "SELECT current_setting('idle_in_transaction_session_timeout')";
    let shown = async || db.query_one(limit, &[]).await.unwrap().get::<_, String>(0);
    take(&db, 3).await.unwrap();
    write(&db, LEVELS[0], 3).await.unwrap();
    assert_eq!(shown().await, "10s");
    commit(&db).await;
    assert_eq!(shown().await, "0");
    // A take that is not committed blocks others as well.
    db.batch_execute("BEGIN").await.unwrap();
    take(&db, 4).await.unwrap();
    assert_eq!(shown().await, "10s");
    roll_back(&db).await;
}

#[tokio::test]
async fn a_holder_whose_connection_ends_blocks_nobody() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.app().await, fixture.app().await);
    take(&old, 1).await.unwrap();
    write(&old, LEVELS[0], 1).await.unwrap();
    drop(old);
    take_patiently(&new, 2).await;
    assert!(rows(&new).await.is_empty());
}

/// It counts as active, so no timeout ends it; docs/fence.md says what does.
#[tokio::test]
async fn a_copy_that_freezes_blocks_a_take_until_its_session_is_ended() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.app().await, fixture.app().await);
    take(&old, 1).await.unwrap();
    let begin = format!(
        "SET idle_in_transaction_session_timeout = 1000; SET statement_timeout = 0; BEGIN;
         SELECT fairlock.fairlock_fence('log', {}, 1000)",
        token(1)
    );
    old.batch_execute(&begin).await.unwrap();
    let frozen = old.copy_in::<_, &'static [u8]>("COPY log (token) FROM STDIN").await.unwrap();
    for _ in 0..2 {
        assert_eq!(refusal(take(&new, 2).await), Refusal::Blocked);
    }
    // The query of docs/fence.md names the session to end.
    let page = include_str!("../../../docs/fence.md");
    let query = page.split("```sql\n").find(|code| code.contains("pg_blocking_pids")).unwrap();
    let query = query.split("```").next().unwrap().to_owned();
    let owner = fixture.connect("postgres").await;
    let waiting = tokio::spawn(async move { take_patiently(&new, 2).await });
    let mut found = Vec::new();
    wait::until_async("the query finds the session", SOON, async || {
        found = owner.query(&query, &[]).await.unwrap();
        !found.is_empty()
    })
    .await;
    let blocked_by: Vec<i32> = found[0].get("blocked_by");
    owner.execute("SELECT pg_terminate_backend(unnest($1::int[]))", &[&blocked_by]).await.unwrap();
    waiting.await.unwrap();
    drop(frozen);
    assert!(rows(&owner).await.is_empty());
}

/// Nothing inside the database bounds these two; docs/fence.md says what does.
#[tokio::test]
async fn active_and_prepared_transactions_block_a_take() {
    let Some(fixture) = Fixture::with(&["fsync=off", "max_prepared_transactions=2"]).await else {
        return;
    };
    let (old, new) = (fixture.app().await, fixture.app().await);
    take(&old, 1).await.unwrap();
    let begin = format!("BEGIN; SELECT fairlock.fairlock_fence('log', {}, 1000)", token(1));
    old.batch_execute(&begin).await.unwrap();
    let busy = tokio::spawn(async move {
        old.batch_execute("SELECT pg_sleep(5)").await.unwrap();
        old.batch_execute("INSERT INTO log (token) VALUES (1); PREPARE TRANSACTION 'held'")
            .await
            .unwrap();
        old
    });
    for _ in 0..2 {
        assert_eq!(refusal(take(&new, 2).await), Refusal::Blocked, "active, not idle");
    }
    let old = busy.await.unwrap();
    drop(old);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        refusal(take(&new, 2).await),
        Refusal::Blocked,
        "prepared, whatever became of its session"
    );
    new.batch_execute("ROLLBACK PREPARED 'held'").await.unwrap();
    take(&new, 2).await.unwrap();
}

/// A failed statement aborts the transaction, which ends the fence. A savepoint must not hide that.
#[tokio::test]
async fn savepoints_keep_a_fence_only_if_it_came_before_them() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.app().await, fixture.app().await);
    take(&old, 1).await.unwrap();
    write(&old, LEVELS[0], 1).await.unwrap();
    old.batch_execute("SAVEPOINT a").await.unwrap();
    assert!(old.batch_execute("SELECT 1 / 0").await.is_err());
    old.batch_execute("ROLLBACK TO a").await.unwrap();
    assert_eq!(refusal(take(&new, 2).await), Refusal::Blocked, "still fenced");
    commit(&old).await;

    // The wrong way round: rolled back to a savepoint before the fence, nothing is fenced any more.
    old.batch_execute("BEGIN; SAVEPOINT a").await.unwrap();
    fence(&old, 1).await.unwrap();
    old.batch_execute("ROLLBACK TO a").await.unwrap();
    take(&new, 2).await.unwrap();
    roll_back(&old).await;
    assert_eq!(refusal(write(&old, LEVELS[0], 1).await), Refusal::Lost);
    assert!(
        old.batch_execute("INSERT INTO log (token) VALUES (1)").await.is_err(),
        "the transaction is aborted"
    );
    roll_back(&old).await;
}

/// With row locks alone, overlapping transactions of a former holder kept its successor waiting until they ended.
#[tokio::test]
async fn sixteen_transactions_run_side_by_side_and_do_not_starve_a_successor() {
    const EACH: u32 = 400;
    let Some(fixture) = Fixture::new().await else { return };
    let new = fixture.app().await;
    take(&new, 1).await.unwrap();
    let together = std::sync::Arc::new(tokio::sync::Barrier::new(16));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (db, together) = (fixture.app().await, std::sync::Arc::clone(&together));
        tasks.spawn(async move {
            write(&db, LEVELS[0], 1).await.unwrap();
            // Passes only if all of them are inside.
            tokio::time::timeout(SOON, together.wait()).await.expect("side by side");
            commit(&db).await;
            for done in 0..EACH {
                if let Err(error) = write(&db, LEVELS[0], 1).await {
                    assert_eq!(refusal(Err::<(), _>(error)), Refusal::Lost);
                    return done;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                commit(&db).await;
            }
            EACH
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    take_patiently(&new, 2).await;
    let done = tasks.join_all().await;
    assert!(done.iter().all(|done| *done < EACH), "the successor waited for all of them: {done:?}");
}

/// A holder whose lock was lost writes late: refused, whatever store the lock lives in.
#[tokio::test]
async fn late_writes_are_refused_with_the_tokens_of_every_store() {
    let Some(fixture) = Fixture::new().await else { return };
    let Some(redis) = Server::start(Generation::Redis70) else { return };
    let directory = TempDir::new();
    let file = format!("sqlite:{}/locks", directory.path().display());
    for url in ["memory:", &redis.url(), &file] {
        let locks = Locks::connect(url).await.unwrap();
        let (old, new) = (fixture.app().await, fixture.app().await);
        let name = format!("on {url}");
        let begin = async |db: &Client, token: FencingToken| {
            db.execute(TAKE, &[&name, &token.as_i64(), &url]).await?;
            db.batch_execute("BEGIN").await?;
            db.execute(FENCE, &[&name, &token.as_i64()]).await
        };
        for kind in ["fair", "plain", "simple"] {
            let lock = match kind {
                "fair" => locks.fair_lock("log"),
                "plain" => locks.plain_lock("log"),
                _ => locks.simple_lock("log"),
            };
            let first = lock.lock().await.unwrap();
            begin(&old, first.token()).await.unwrap();
            commit(&old).await;
            lock.force_unlock().await.unwrap();
            let second = lock.lock().await.unwrap();
            begin(&new, second.token()).await.unwrap();
            commit(&new).await;
            assert_eq!(refusal(begin(&old, first.token()).await), Refusal::Lost, "{url}, {kind}");
            let _ = second.release().await.unwrap();
        }
    }
}

/// Both guards say Held.
#[tokio::test]
async fn two_holders_after_a_server_lost_its_data_do_not_both_write() {
    let Some(fixture) = Fixture::new().await else { return };
    let Some(redis) = Server::start(Generation::Redis70) else { return };
    let (one, two) =
        (Locks::connect(&redis.url()).await.unwrap(), Locks::connect(&redis.url()).await.unwrap());
    let (old, new) = (fixture.app().await, fixture.app().await);
    let first = one.fair_lock("log").lease(Duration::from_secs(60)).lock().await.unwrap();
    let call = async |db: &Client, statement: &str, token: FencingToken| {
        let (name, token, store) = (&"log", &token.as_i64(), &"redis");
        match statement {
            TAKE => db.execute(TAKE, &[name, token, store]).await,
            _ => db.execute(FENCE, &[name, token]).await,
        }
    };
    call(&old, TAKE, first.token()).await.unwrap();
    call(&old, FENCE, first.token()).await.unwrap();
    redis.client().call(&["FLUSHALL"]);
    let second = two.fair_lock("log").lease(Duration::from_secs(60)).lock().await.unwrap();
    first.ensure_valid().unwrap();
    second.ensure_valid().unwrap();
    call(&new, TAKE, second.token()).await.unwrap();
    call(&new, FENCE, second.token()).await.unwrap();
    assert_eq!(refusal(call(&old, FENCE, first.token()).await), Refusal::Lost);
    assert_eq!(refusal(call(&old, TAKE, first.token()).await), Refusal::Lost);
}

/// A replica that becomes the primary may have missed the last take. Its holder notices, and takes again; until then its
/// predecessor can write.
#[tokio::test]
async fn a_replica_refuses_both_calls_and_a_take_lost_in_a_failover_is_noticed() {
    let Some(fixture) = Fixture::new().await else { return };
    let primary = fixture.app().await;
    take(&primary, 1).await.unwrap();
    let replica = fixture.server.replica();
    let (old, owner) = (connect(&replica, "app").await, connect(&replica, "postgres").await);
    assert_eq!(sqlstate(fence(&old, 1).await), "25006");
    assert_eq!(sqlstate(take(&old, 2).await), "25006");

    owner.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
    owner.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
    wait::until_async("the replica follows nobody", SOON, async || {
        owner.query_one(receivers, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    take(&primary, 2).await.unwrap();
    assert_eq!(refusal(fence(&primary, 1).await), Refusal::Lost);
    drop(fixture);
    owner.batch_execute("SELECT pg_promote()").await.unwrap();
    let new = connect(&replica, "app").await;
    assert_eq!(refusal(fence(&new, 2).await), Refusal::NotTaken);
    fence(&old, 1).await.unwrap();
    take(&new, 2).await.unwrap();
    fence(&new, 2).await.unwrap();
    assert_eq!(refusal(fence(&old, 1).await), Refusal::Lost);
}
