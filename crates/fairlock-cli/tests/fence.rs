//! The fence in a shell: `run` takes it with psql before the work, and every transaction begins with it.

use std::process::{Command, Stdio};

use fairlock_testkit::postgres::Postgres;

use crate::fixture::{alone, fairlock, finish, run_script};

/// psql as docs/fence.md has it.
fn psql(server: &Postgres) -> Command {
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &server.url("postgres", "postgres")]);
    command
}

#[test]
fn run_takes_the_fence_and_a_former_holder_is_refused() {
    let Some(server) = Postgres::start() else { return };
    let printed = finish(fairlock(["fence-sql"]));
    printed.expect(0, "");
    for _ in 0..2 {
        let mut install = psql(&server);
        let mut install = install
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut install.stdin.take().unwrap(), printed.stdout.as_bytes())
            .unwrap();
        assert!(install.wait().unwrap().success());
    }
    assert!(
        psql(&server).args(["-c", "CREATE TABLE log (token bigint)"]).status().unwrap().success()
    );

    let database = server.url("postgres", "postgres");
    let work = |token: &str| {
        let call = format!("psql -X -q -v ON_ERROR_STOP=1 -d {database}");
        format!(
            "{call} -c \"SELECT fairlock.fairlock_take('x', {token}, 'this host')\" >/dev/null &&
             {call} -1 -c \"SELECT fairlock.fairlock_fence('x', {token})\" \
                 -c \"INSERT INTO log VALUES ({token})\" >/dev/null && echo {token}"
        )
    };
    let url = alone();
    let tokens = [(); 2].map(|()| {
        let outcome = finish(run_script(&url, &[], "x", &work("$FAIRLOCK_TOKEN")));
        outcome.expect(0, "");
        outcome.stdout.trim().to_owned()
    });
    let late = Command::new("sh").args(["-c", &work(&tokens[0])]).output().unwrap();
    let said = String::from_utf8(late.stderr).unwrap();
    assert!(!late.status.success() && said.contains("the lock 'x' was lost"), "{said}");
    let rows = psql(&server).args(["-At", "-c", "SELECT token FROM log"]).output().unwrap();
    assert_eq!(String::from_utf8(rows.stdout).unwrap().lines().collect::<Vec<_>>(), tokens);
}

#[test]
fn fence_sql_prints_a_script_for_each_database() {
    let other = finish(fairlock(["fence-sql", "--schema", "locks"]));
    other.expect(0, "");
    assert!(
        other.stdout.contains("FUNCTION \"locks\".fairlock_take(") && !other.stdout.contains('{')
    );
    let sqlite = finish(fairlock(["fence-sql", "--dialect", "sqlite"]));
    sqlite.expect(0, "");
    assert!(sqlite.stdout.starts_with("CREATE TABLE IF NOT EXISTS fairlock_fences"));
    finish(fairlock(["fence-sql", "--schema", "A"])).expect(64, "'A' cannot be the fence's schema");
    finish(fairlock(["fence-sql", "--dialect", "sqlite", "--schema", "a"]))
        .expect(64, "SQLite has no schemas");
    finish(fairlock(["fence-sql", "--dialect", "mysql"])).expect(64, "mysql");
}
