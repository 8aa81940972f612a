//! The fence in PostgreSQL through a pooler, with psycopg, and with statements that are prepared or not.

use std::process::Command;

use fairlock::fence::Refusal;
use fairlock::fence::postgres::{FENCE, TAKE};
use fairlock_testkit::postgres::PgBouncer;
use fairlock_testkit::skip;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::fence_postgres::{Fixture, connect_to, refusal, rows, token};

/// The server keeps a plan for a prepared statement after this many executions.
const PLANS: u32 = 6;

/// An unnamed statement: one round trip, which poolers send to one server connection.
async fn unnamed(db: &Client, statement: &str, number: i64) -> Result<(), tokio_postgres::Error> {
    let (name, token) = (&"log", token(number));
    let two = [(name as _, Type::TEXT), (&token as _, Type::INT8)];
    let three = [two[0].clone(), two[1].clone(), (&"test" as _, Type::TEXT)];
    let values = if statement == TAKE { &three[..] } else { &two[..] };
    db.execute_typed(statement, values).await.map(drop)
}

#[tokio::test]
async fn prepared_and_unprepared_calls_are_refused_alike() {
    let Some(fixture) = Fixture::new().await else { return };
    let (old, new) = (fixture.app().await, fixture.app().await);
    let take = old.prepare(TAKE).await.unwrap();
    let fence = old.prepare(FENCE).await.unwrap();
    old.execute(&take, &[&"log", &token(1), &"test"]).await.unwrap();
    for _ in 0..PLANS {
        old.execute(&take, &[&"log", &token(1), &"test"]).await.unwrap();
        old.execute(&fence, &[&"log", &token(1)]).await.unwrap();
        unnamed(&old, FENCE, 1).await.unwrap();
    }
    unnamed(&new, TAKE, 2).await.unwrap();
    assert_eq!(refusal(old.execute(&fence, &[&"log", &token(1)]).await), Refusal::Lost);
    assert_eq!(refusal(old.execute(&take, &[&"log", &token(1), &"test"]).await), Refusal::Lost);
    assert_eq!(refusal(unnamed(&old, FENCE, 1).await), Refusal::Lost);
    let text = format!("SELECT fairlock.fairlock_fence('log', {})", token(1));
    assert_eq!(refusal(old.batch_execute(&text).await), Refusal::Lost);
}

/// Server connections change between transactions. None keeps a setting or a lock of the fence.
#[tokio::test]
async fn a_pooler_may_change_connections_between_transactions() {
    let Some(fixture) = Fixture::new().await else { return };
    let Some(pooler) = PgBouncer::start(&fixture.server, "transaction") else { return };
    let url = pooler.url("postgres");
    let (old, new) = (connect_to(&url).await, connect_to(&url).await);
    let begin = async |db: &Client, number: i64| {
        db.batch_execute("BEGIN").await?;
        unnamed(db, FENCE, number).await?;
        db.batch_execute(&format!("INSERT INTO log (token) VALUES ({})", token(number))).await
    };
    unnamed(&old, TAKE, 1).await.unwrap();
    begin(&old, 1).await.unwrap();
    let patience = format!("SELECT fairlock.fairlock_take('log', {}, 'test', 300)", token(2));
    assert_eq!(refusal(new.batch_execute(&patience).await), Refusal::Blocked);
    old.batch_execute("COMMIT").await.unwrap();
    new.batch_execute(&patience).await.unwrap();
    begin(&new, 2).await.unwrap();
    // This one gets the other server connection.
    assert_eq!(refusal(begin(&old, 1).await), Refusal::Lost);
    old.batch_execute("ROLLBACK").await.unwrap();
    new.batch_execute("COMMIT").await.unwrap();
    let owner = fixture.connect("postgres").await;
    assert_eq!(rows(&owner).await, [1, 2]);

    let state = "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout'),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')::int, pg_backend_pid()";
    let mut connections = Vec::new();
    for db in [&old, &new] {
        db.batch_execute("BEGIN").await.unwrap();
        let row = &db.query_typed(state, &[]).await.unwrap()[0];
        assert_eq!((row.get(0), row.get(1), row.get(2)), ("0", "0", 0));
        connections.push(row.get::<_, i32>(3));
    }
    assert_ne!(connections[0], connections[1]);
}

/// A pooler that changes connections between statements refuses transactions.
#[tokio::test]
async fn a_pooler_that_changes_connections_between_statements_refuses_to_begin() {
    let Some(fixture) = Fixture::new().await else { return };
    let Some(pooler) = PgBouncer::start(&fixture.server, "statement") else { return };
    let db = connect_to(&pooler.url("postgres")).await;
    assert!(db.batch_execute("BEGIN").await.is_err());
}

/// Prints what each step is refused with, or "done".
const PSYCOPG: &str = r#"
import sys, psycopg
url, pooled = sys.argv[1], sys.argv[2] == "pooled"
TAKE = "SELECT fairlock.fairlock_take(%s, %s, %s)"
FENCE = "SELECT fairlock.fairlock_fence(%s, %s)"
WRITE = "INSERT INTO log (token) VALUES (%s)"
FIRST = 1_800_000_000_000_000

def report(step):
    try:
        step()
        print("done")
    except psycopg.Error as error:
        print(error.sqlstate)

def work(db, token, prepare):
    with db.transaction():
        db.execute(FENCE, ("log", token), prepare=prepare)
        db.execute(WRITE, (token,), prepare=prepare)

# A pooler in front may not know prepared statements.
threshold = {"prepare_threshold": None} if pooled else {}
with psycopg.connect(url, autocommit=True, **threshold) as db:
    db.execute(TAKE, ("log", FIRST + 1, "test"))
    for prepare in [False] if pooled else [False, True, None]:
        for _ in range(7):
            work(db, FIRST + 1, prepare)
    db.execute(TAKE, ("log", FIRST + 2, "test"))
    report(lambda: work(db, FIRST + 1, False))
    report(lambda: work(db, FIRST + 1, None))
    report(lambda: work(db, FIRST + 2, None))
    # An error ends the block, and rolls back.
    def fails():
        with db.transaction():
            db.execute(FENCE, ("log", FIRST + 2))
            db.execute("SELECT 1 / 0")
    report(fails)

# Without autocommit, the take begins a transaction that stays open.
with psycopg.connect(url, **threshold) as db:
    db.execute(TAKE, ("log", FIRST + 3, "test"))
    report(lambda: db.execute(FENCE, ("log", FIRST + 3)))
    db.rollback()
    db.execute(TAKE, ("log", FIRST + 3, "test"))
    db.commit()
    report(lambda: db.execute(FENCE, ("log", FIRST + 3)))
"#;

#[tokio::test]
async fn psycopg_is_fenced_with_and_without_a_pooler() {
    // Debian's package is for Debian's Python.
    let python = "/usr/bin/python3";
    let import = Command::new(python).args(["-c", "import psycopg"]).output();
    if !import.is_ok_and(|done| done.status.success()) {
        return skip("psycopg (Debian: apt-get install python3-psycopg)");
    }
    for is_pooled in [false, true] {
        let Some(fixture) = Fixture::new().await else { return };
        let pooler = is_pooled.then(|| PgBouncer::start(&fixture.server, "transaction"));
        let (url, how) = match &pooler {
            None => (fixture.server.url("app", "postgres"), "direct"),
            Some(Some(pooler)) => (pooler.url("postgres"), "pooled"),
            Some(None) => return,
        };
        let done = Command::new(python).args(["-c", PSYCOPG, &url, how]).output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(
            said.lines().collect::<Vec<_>>(),
            ["LK001", "LK001", "done", "22012", "LK004", "done"],
            "{how}: {error}"
        );
        assert!(done.status.success(), "{how}: {error}");
    }
}
