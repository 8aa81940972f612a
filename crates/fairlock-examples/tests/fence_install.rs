//! Installing the fence in PostgreSQL: whose it is, and who may do what.

use fairlock::fence::Refusal;
use fairlock::fence::postgres::{TAKE, install};

use crate::fence_postgres::{Fixture, fence, refusal, sqlstate, take, token};

#[tokio::test]
async fn only_the_owner_can_change_tokens() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    take(&app, 1).await.unwrap();
    for denied in [
        "SELECT * FROM fairlock.fairlock_fences",
        "UPDATE fairlock.fairlock_fences SET token = 9",
        "DELETE FROM fairlock.fairlock_fences",
        "INSERT INTO fairlock.fairlock_fences VALUES ('a', 1, 'b')",
        "TRUNCATE fairlock.fairlock_fences",
        "DROP FUNCTION fairlock.fairlock_take",
        "CREATE FUNCTION fairlock.evil() RETURNS void LANGUAGE sql AS ''",
    ] {
        assert_eq!(sqlstate(app.batch_execute(denied).await), "42501", "{denied}");
    }
    owner
        .batch_execute("CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA fairlock TO stranger")
        .await
        .unwrap();
    let stranger = fixture.connect("stranger").await;
    assert_eq!(sqlstate(take(&stranger, 2).await), "42501");
    assert_eq!(sqlstate(fence(&stranger, 1).await), "42501");
}

/// Functions, operators and types of others are not used with the owner's rights: all that share a name with one in the
/// functions fail.
#[tokio::test]
async fn the_search_path_is_not_used() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    owner.batch_execute("CREATE SCHEMA evil AUTHORIZATION app").await.unwrap();
    let evil = r"
        CREATE TEMPORARY TABLE fairlock_fences (name text, token bigint, store text);
        CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false);
        CREATE DOMAIN evil.xid8 AS pg_catalog.xid8 CHECK (false);
        DO $do$
        DECLARE
            o record;
            fails text := $$LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil''; END'$$;
        BEGIN
            FOR o IN SELECT oprname, 'evil.fails_' || oid AS fails, oprleft::regtype AS l, oprright::regtype AS r,
                    oprresult::regtype AS gives
                FROM pg_operator
                WHERE oprname IN ('=', '<>', '<', '>', '<=', '>=', '*', '||') AND oprkind = 'b' AND oprcode <> 0
                    AND 0 = ALL (SELECT count(*) FROM pg_type t WHERE t.oid IN (oprleft, oprright) AND typtype = 'p')
            LOOP
                EXECUTE format('CREATE FUNCTION %s(%s, %s) RETURNS %s %s', o.fails, o.l, o.r, o.gives, fails);
                EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %s)',
                    o.oprname, o.l, o.r, o.fails);
            END LOOP;
            FOR o IN SELECT DISTINCT format('%I(%s) RETURNS %s', p.proname, pg_get_function_identity_arguments(p.oid),
                    p.prorettype::regtype) AS signature
                FROM pg_proc f, regexp_matches(f.prosrc, '\w+(?=\()', 'g') AS called, pg_proc p
                WHERE f.pronamespace = 'fairlock'::regnamespace AND p.proname = called[1]
                    AND p.pronamespace = 'pg_catalog'::regnamespace
            LOOP
                EXECUTE format('CREATE FUNCTION evil.%s %s', o.signature, fails);
            END LOOP;
        END $do$;
        ";
    app.batch_execute(evil).await.unwrap();
    for role in [&app, &owner] {
        role.batch_execute("SET search_path = evil, pg_temp, pg_catalog").await.unwrap();
        let error = role.batch_execute("SELECT octet_length('a'), 1 < 2").await.unwrap_err();
        assert_eq!(error.as_db_error().unwrap().message(), "evil", "the functions are found");
    }
    owner.batch_execute(&install("fairlock").unwrap()).await.unwrap();

    take(&app, 1).await.unwrap();
    take(&app, 2).await.unwrap();
    fence(&app, 2).await.unwrap();
    app.batch_execute("SET idle_in_transaction_session_timeout = '1min'").await.unwrap();
    fence(&app, 2).await.unwrap();
    assert_eq!(refusal(take(&app, 1).await), Refusal::Lost);
    assert_eq!(refusal(fence(&app, 1).await), Refusal::Lost);
    assert_eq!(refusal(fence(&app, 3).await), Refusal::NotTaken);
    assert_eq!(refusal(fence(&app, -token(0)).await), Refusal::Misused);
    app.batch_execute("BEGIN").await.unwrap();
    take(&app, 3).await.unwrap();
    assert_eq!(refusal(fence(&app, 3).await), Refusal::Misused);
}

#[tokio::test]
async fn the_script_is_run_again_and_replaces_no_newer_one() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    take(&app, 5).await.unwrap();
    owner.batch_execute(&install("fairlock").unwrap()).await.unwrap();
    assert_eq!(refusal(take(&app, 4).await), Refusal::Lost, "tokens and rights stay");
    owner.batch_execute(&install("fence_of_2").unwrap()).await.unwrap();
    assert_eq!(
        sqlstate(app.execute("SELECT fence_of_2.fairlock_fence('log', 1)", &[]).await),
        "42501"
    );

    let newer = "CREATE OR REPLACE FUNCTION fairlock.fairlock_fence_version() RETURNS integer
        LANGUAGE sql IMMUTABLE AS 'SELECT 2'";
    owner.batch_execute(newer).await.unwrap();
    let refused = owner.batch_execute(&install("fairlock").unwrap()).await.unwrap_err();
    let said = refused.as_db_error().unwrap().message();
    assert_eq!(
        said,
        "schema fairlock has version 2 of the fence, and this script would install version 1"
    );
    for bad in ["", "pg_a", "1a", "a b", "a'b", "Upper", "a;b", "a\"", "\u{e4}", &"a".repeat(64)] {
        assert!(install(bad).is_err(), "{bad}");
    }
}

/// What others left in the schema would run with the installer's rights, and let them change tokens.
#[tokio::test]
async fn the_script_trusts_nothing_of_another_role() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    owner.batch_execute("GRANT CREATE ON DATABASE postgres TO app; CREATE SCHEMA ours; GRANT ALL ON SCHEMA ours TO app")
        .await
        .unwrap();
    let version = "fairlock_fence_version() RETURNS integer LANGUAGE sql AS 'SELECT 0'";
    let table = "fairlock_fences (name text PRIMARY KEY, token bigint, store text)";
    let theirs = format!("CREATE SCHEMA theirs; CREATE FUNCTION ours.{version}");
    app.batch_execute(&theirs).await.unwrap();
    let refused = async |schema: &str, expected: &str| {
        let error = owner.batch_execute(&install(schema).unwrap()).await.unwrap_err();
        assert_eq!(error.as_db_error().unwrap().message(), expected);
    };
    let strange = async |schema: &str, what: &str| {
        let expected =
            format!("in the schema {schema}, {what} belongs to another role than postgres");
        refused(schema, &expected).await;
    };
    strange("theirs", "the schema").await;
    strange("ours", "the function fairlock_fence_version").await;
    app.batch_execute("DROP FUNCTION ours.fairlock_fence_version()").await.unwrap();
    app.batch_execute(&format!("CREATE TABLE ours.{table}")).await.unwrap();
    strange("ours", "the table fairlock_fences").await;
    app.batch_execute("DROP TABLE ours.fairlock_fences").await.unwrap();
    // It could add a function that fits a call better than ours.
    refused("ours", "app has the privilege CREATE on the schema ours").await;
    owner.batch_execute("REVOKE CREATE ON SCHEMA ours FROM app").await.unwrap();

    // Rights that everything new is granted.
    let defaults = "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, PUBLIC;
        ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO app";
    owner.batch_execute(defaults).await.unwrap();
    owner.batch_execute(&install("ours").unwrap()).await.unwrap();
    let denied = async |what: &str| {
        assert_eq!(sqlstate(app.batch_execute(what).await), "42501", "{what}");
    };
    denied("UPDATE ours.fairlock_fences SET token = 1").await;
    denied("SELECT ours.fairlock_take('a', 1, 'b')").await;
    denied("SELECT ours.fairlock_fence('a', 1)").await;

    // Rights that were granted after the first time: those on the functions stay, unless they are new.
    let granted = "GRANT UPDATE (token) ON ours.fairlock_fences TO app;
        GRANT EXECUTE ON FUNCTION ours.fairlock_take TO app; DROP FUNCTION ours.fairlock_fence";
    owner.batch_execute(granted).await.unwrap();
    owner.batch_execute(&install("ours").unwrap()).await.unwrap();
    app.batch_execute("SELECT ours.fairlock_take('a', 1, 'b')").await.unwrap();
    denied("SELECT ours.fairlock_fence('a', 1)").await;
    denied("UPDATE ours.fairlock_fences SET token = 1").await;
    // A backup that was restored without privileges.
    owner
        .batch_execute("UPDATE pg_proc SET proacl = NULL WHERE proname = 'fairlock_fence'")
        .await
        .unwrap();
    owner.batch_execute(&install("ours").unwrap()).await.unwrap();
    denied("SELECT ours.fairlock_fence('a', 1)").await;
    // Quoted, words of the language are names as others.
    owner.batch_execute(&install("user").unwrap()).await.unwrap();
}

/// Whoever was allowed to do so for a moment could have left these, which would run with the installer's rights.
#[tokio::test]
async fn the_script_refuses_a_table_with_triggers_rules_or_row_security() {
    let Some(fixture) = Fixture::new().await else { return };
    let owner = fixture.connect("postgres").await;
    let function = "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN RETURN NULL; END'";
    owner.batch_execute(function).await.unwrap();
    let table = "fairlock.fairlock_fences";
    let trigger =
        "BEFORE INSERT ON fairlock.fairlock_fences FOR EACH ROW EXECUTE FUNCTION public.nothing()";
    for (create, drop, what) in [
        (
            format!("CREATE TRIGGER evil {trigger}"),
            format!("DROP TRIGGER evil ON {table}"),
            "the trigger evil",
        ),
        (
            format!("CREATE RULE evil AS ON DELETE TO {table} DO INSTEAD NOTHING"),
            format!("DROP RULE evil ON {table}"),
            "the rule evil",
        ),
        (
            format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"),
            format!("ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"),
            "row security",
        ),
    ] {
        owner.batch_execute(&create).await.unwrap();
        let error = owner.batch_execute(&install("fairlock").unwrap()).await.unwrap_err();
        let expected = format!("the table {table} has {what}, which the fence does not allow");
        assert_eq!(error.as_db_error().unwrap().message(), expected);
        owner.batch_execute(&drop).await.unwrap();
        owner.batch_execute(&install("fairlock").unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn the_installer_needs_no_more_than_a_schema() {
    let Some(fixture) = Fixture::new().await else { return };
    let owner = fixture.connect("postgres").await;
    let role = "CREATE ROLE installer LOGIN; GRANT CREATE ON DATABASE postgres TO installer";
    owner.batch_execute(role).await.unwrap();
    let installer = fixture.connect("installer").await;
    for _ in 0..2 {
        installer.batch_execute(&install("theirs").unwrap()).await.unwrap();
    }
    let app = fixture.app().await;
    let grant = "GRANT USAGE ON SCHEMA theirs TO app;
        GRANT EXECUTE ON FUNCTION theirs.fairlock_take, theirs.fairlock_fence TO app";
    installer.batch_execute(grant).await.unwrap();
    app.batch_execute("SELECT theirs.fairlock_take('a', 1, 'b')").await.unwrap();
    app.batch_execute("SELECT theirs.fairlock_fence('a', 1)").await.unwrap();
}

/// At a higher level, the checks would not see what was created since the snapshot.
#[tokio::test]
async fn the_script_is_refused_with_an_older_snapshot() {
    let Some(fixture) = Fixture::new().await else { return };
    let owner = fixture.connect("postgres").await;
    for level in ["repeatable read", "serializable"] {
        owner.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
        let error = owner.batch_execute(&install("fairlock").unwrap()).await.unwrap_err();
        let expected = format!("the fence cannot be installed at the isolation level {level}");
        assert_eq!(error.as_db_error().unwrap().message(), expected);
        owner.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// A take that changes no row fails, whatever the reason.
#[tokio::test]
async fn a_take_that_writes_nothing_fails() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    let swallow = "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER swallow BEFORE INSERT ON fairlock.fairlock_fences
            FOR EACH ROW EXECUTE FUNCTION public.nothing()";
    owner.batch_execute(swallow).await.unwrap();
    assert_eq!(sqlstate(take(&app, 1).await), "40001");
}

/// A name with a collation of its own is compared byte by byte, and locks what the same name without one does. So is a
/// store.
#[tokio::test]
async fn the_collation_of_a_name_is_not_used() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    let ignores_case = "CREATE COLLATION ignores_case
        (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    owner.batch_execute(ignores_case).await.unwrap();
    take(&app, 1).await.unwrap();
    for collation in ["\"POSIX\"", "ignores_case"] {
        let call = |function: &str, name: &str, more: &str| {
            format!("SELECT fairlock.{function}('{name}' COLLATE {collation}, {}{more})", token(1))
        };
        app.batch_execute(&call("fairlock_take", "log", ", 'test'")).await.unwrap();
        app.batch_execute(&call("fairlock_fence", "log", "")).await.unwrap();
        let other = app.batch_execute(&call("fairlock_fence", "LOG", "")).await;
        assert_eq!(refusal(other), Refusal::NotTaken);
        let store = format!(
            "SELECT fairlock.fairlock_take('log', {}, 'TEST' COLLATE {collation})",
            token(2)
        );
        assert_eq!(refusal(app.batch_execute(&store).await), Refusal::OtherStore);
        app.batch_execute("BEGIN").await.unwrap();
        app.batch_execute(&call("fairlock_fence", "log", "")).await.unwrap();
        let locks = "SELECT DISTINCT classid, objid FROM pg_locks WHERE locktype = 'advisory'";
        let other = fixture.app().await;
        other.batch_execute("BEGIN").await.unwrap();
        fence(&other, 1).await.unwrap();
        assert_eq!(owner.query(locks, &[]).await.unwrap().len(), 1);
        app.batch_execute("ROLLBACK").await.unwrap();
        let later = format!(
            "SELECT fairlock.fairlock_take('log' COLLATE {collation}, {}, 'test', 300)",
            token(2)
        );
        assert_eq!(refusal(app.batch_execute(&later).await), Refusal::Blocked);
    }
}

/// The table of the manual's former example is adopted with its tokens, by the statement in docs/fence.md.
#[tokio::test]
async fn the_table_of_the_former_manual_is_adopted() {
    let Some(fixture) = Fixture::new().await else { return };
    let (app, owner) = (fixture.app().await, fixture.connect("postgres").await);
    let former = "CREATE TABLE fence (name TEXT PRIMARY KEY, token BIGINT NOT NULL)";
    owner.batch_execute(former).await.unwrap();
    owner.execute("INSERT INTO fence VALUES ('log', $1)", &[&token(5)]).await.unwrap();
    let adopt = "INSERT INTO fairlock.fairlock_fences SELECT name, token, 'production' FROM fence;";
    assert!(include_str!("../../../docs/fence.md").contains(adopt));
    owner.batch_execute(adopt).await.unwrap();
    assert_eq!(refusal(fence(&app, 4).await), Refusal::Lost);
    fence(&app, 5).await.unwrap();
    let take = async |number: i64, store: &str| {
        app.execute(TAKE, &[&"log", &token(number), &store]).await.map(drop)
    };
    assert_eq!(refusal(take(4, "production").await), Refusal::Lost);
    assert_eq!(refusal(take(6, "another").await), Refusal::OtherStore);
    take(6, "production").await.unwrap();
    assert_eq!(refusal(fence(&app, 5).await), Refusal::Lost);
    fence(&app, 6).await.unwrap();
}
