use super::super::boot::Boot;
use super::super::schema::{CURRENT, Schema};
use super::fixture::*;
use crate::ErrorKind;
use fairlock_core::{Body, Mode, Op};
use rusqlite::Connection;
use std::fs;

/// A later version as it may look one day.
const NEXT: Schema = Schema {
    version: 2,
    written_by: "9.9.9",
    create: "",
    steps: &[(1, "ALTER TABLE lock ADD COLUMN note TEXT")],
};

/// Opening must fail with `kind` and a message that contains `word`, and leave the file as it was.
#[track_caller]
fn refused(fixture: &Fixture, kind: ErrorKind, word: &str) {
    let before = fs::read(fixture.path()).unwrap();
    let error = open(&fixture.path()).err().expect("it was opened");
    assert_eq!(error.kind(), kind, "{error}");
    let said = error.to_string();
    assert!(said.contains(word) && said.contains(fixture.path().to_str().unwrap()), "{said}");
    assert!(fs::read(fixture.path()).unwrap() == before, "the file was changed");
}

#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let fixture = Fixture::new();
    for content in ["xy".to_owned(), "some text\n".repeat(2_000), "SQLite format 3\0".to_owned()] {
        fs::write(fixture.path(), content).unwrap();
        refused(&fixture, ErrorKind::Protocol, "no file of fairlock");
    }
}

/// D29: `--url sqlite:/etc/passwd` advised to move that file away.
#[test]
fn d29_a_file_of_another_program_is_not_to_be_moved() {
    let fixture = Fixture::new();
    fs::write(fixture.path(), "root:x:0:0:root:/root:/bin/sh\n".repeat(40)).unwrap();
    let said = open(&fixture.path()).err().expect("it was opened").to_string();
    assert!(said.contains("Name another file") && !said.contains("Move"), "{said}");
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    for sql in [
        "CREATE TABLE t (x)",
        "PRAGMA application_id = 77",
        "PRAGMA user_version = 1",
        "PRAGMA journal_mode = WAL; CREATE TABLE lock (name, change, idle_ms, state)",
    ] {
        let fixture = Fixture::new();
        let db = Connection::open(fixture.path()).unwrap();
        db.execute_batch(sql).unwrap();
        drop(db);
        refused(&fixture, ErrorKind::Protocol, "another program");
    }
}

/// An empty file is what a crash right after its creation leaves.
#[test]
fn an_empty_file_is_as_good_as_none() {
    let fixture = Fixture::new();
    fs::write(fixture.path(), "").unwrap();
    take(&mut fixture.open(), "job", 1);
    assert_eq!(state(&mut fixture.open(), "job").hold.len(), 1);
}

/// The migration to the next version keeps all locks. A process that still has the file open with
/// the older version is told at its next operation, before it writes anything.
#[test]
fn two_versions_on_one_file() {
    let fixture = Fixture::new();
    let mut old = fixture.open();
    let first = take(&mut old, "job", 1);
    let here = || Boot::here().unwrap();
    let mut new = open_as(&fixture.path(), here(), NEXT).unwrap();
    let Body::Inspected(seen) = body(&mut new, "job", &inspect()) else { panic!() };
    assert_eq!(seen.holder.unwrap().owner, owner(1), "the hold is kept");

    for op in [release(1, first), inspect()] {
        let error = apply(&mut old, "job", &op).unwrap_err();
        assert_eq!(error.error.kind(), ErrorKind::Protocol);
        assert!(!error.doubt && !error.passing);
        let said = error.error.to_string();
        assert!(said.contains("9.9.9") && said.contains("schema 2"), "{said}");
    }
    let before = row(&new, "job");
    let error = open(&fixture.path()).err().expect("the older version opened it");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("9.9.9") && error.to_string().contains("newer"), "{error}");
    assert_eq!(row(&new, "job"), before);

    assert_eq!(body(&mut new, "job", &release(1, first)), Body::Released);
    assert!(take(&mut new, "job", 2) > first);
    // Opened once more, there is nothing left to do.
    drop(new);
    open_as(&fixture.path(), here(), NEXT).unwrap();
}

/// A migration that fails leaves the file as it was.
#[test]
fn a_step_happens_whole_or_not_at_all() {
    let fixture = Fixture::new();
    let first = take(&mut fixture.open(), "job", 1);
    const BROKEN: &str = "ALTER TABLE lock ADD COLUMN note TEXT; ALTER TABLE nothing ADD COLUMN x";
    let schema = Schema { steps: &[(1, BROKEN)], ..NEXT };
    assert!(open_as(&fixture.path(), Boot::here().unwrap(), schema).is_err());
    let mut file = fixture.open();
    assert_eq!(body(&mut file, "job", &release(1, first)), Body::Released);
    let columns: i64 = file
        .db
        .query_row("SELECT count(*) FROM pragma_table_info('lock')", [], |r| r.get(0))
        .unwrap();
    assert_eq!(columns, 4);
}

/// From a version older than any that this one can migrate.
#[test]
fn too_old_a_version_is_refused() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let schema = Schema { version: 4, written_by: "10.0.0", create: "", steps: &[(3, "")] };
    let error = open_as(&fixture.path(), Boot::here().unwrap(), schema).err().unwrap().error;
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains(CURRENT.written_by), "{error}");
    assert!(error.to_string().contains("older"), "{error}");
}

/// A damaged row is an error for its lock, and for that lock alone; it is not overwritten.
#[test]
fn a_damaged_row_is_an_error_of_its_lock() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    take(&mut file, "other", 1);
    let (_, mut state) = row(&file, "job");
    state[9] ^= 0x10;
    let sql = "UPDATE lock SET state = ?1, change = change + 1 WHERE name = ?2";
    file.db.execute(sql, rusqlite::params![state, "job".as_bytes()]).unwrap();
    let before = row(&file, "job");
    for op in [acquire(2, Mode::Try), release(1, token), inspect()] {
        let error = apply(&mut file, "job", &op).unwrap_err();
        assert_eq!(error.error.kind(), ErrorKind::Protocol);
        assert_eq!(error.error.lock(), Some(&name("job")));
        assert!(
            error.error.to_string().contains(fixture.path().to_str().unwrap()),
            "{}",
            error.error
        );
        assert!(!error.doubt && !error.passing);
    }
    assert_eq!(row(&file, "job"), before);
    assert!(
        matches!(body(&mut file, "other", &inspect()), Body::Inspected(seen) if seen.holder.is_some())
    );
    // Not across a reboot either: a lost token could be given again.
    drop(file);
    let next = Boot { id: "another-boot".into(), ..Boot::here().unwrap() };
    let mut file = open_in(&fixture.path(), &next).unwrap();
    assert_eq!(row(&file, "job"), before);
    assert!(apply(&mut file, "job", &inspect()).is_err());
    take(&mut file, "other", 2);
}

/// The number of the row's last change cannot be followed by another: every operation panicked.
#[test]
fn a_row_with_the_last_number_of_all_is_damaged() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let token = take(&mut file, "job", 1);
    file.db.execute("UPDATE lock SET change = ?1", [i64::MAX]).unwrap();
    for op in [acquire(2, Mode::Try), release(1, token)] {
        let error = apply(&mut file, "job", &op).unwrap_err().error;
        assert_eq!((error.kind(), error.lock()), (ErrorKind::Protocol, Some(&name("job"))));
    }
    take(&mut file, "other", 1);
}

/// One flipped bit anywhere in the file: a typed error, or no effect. Never a wrong answer.
#[test]
fn flipped_bits_are_found_or_mean_nothing() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    let mut op = acquire(1, Mode::Try);
    if let Op::Acquire(acquire) = &mut op {
        // Longer than all of this takes on a busy machine, which was more than 30 s once.
        acquire.lease_ms = 3_600_000;
    }
    let Body::Granted { token, .. } = body(&mut file, "a lock that is held", &op) else { panic!() };
    let token = Some(token);
    for lock in ["b", "c"] {
        take(&mut file, lock, 1);
    }
    drop(file);
    let whole = fs::read(fixture.path()).unwrap();
    let held = b"a lock that is held";
    let named: Vec<_> = whole.windows(held.len()).enumerate().filter(|(_, w)| w == held).collect();
    let named: Vec<_> = named.into_iter().flat_map(|(at, _)| at..at + held.len()).collect();
    let (mut found, mut harmless) = (0, 0);
    // Most of the file is free space. Every byte that is not zero is a candidate, and some of the
    // others.
    let places = (0..whole.len()).filter(|at| whole[*at] != 0 || at % 509 == 0);
    for at in places.step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(fixture.path(), &bytes).unwrap();
        for beside in ["-wal", "-shm", "-boot", "-users"] {
            let _ = fs::remove_file(fixture.dir.path().join(format!("locks{beside}")));
        }
        let error = match open(&fixture.path()) {
            Err(error) => error,
            Ok(mut file) => match apply(&mut file, "a lock that is held", &inspect()) {
                Err(error) => error.error,
                Ok((answer, _)) => {
                    let Body::Inspected(seen) = answer.body else { panic!() };
                    // A lock under another name is another lock: a row does not store its former
                    // name.
                    let right = seen.token == token && seen.holder.is_some();
                    assert!(right || named.contains(&at), "byte {at} made of it {seen:?}");
                    harmless += 1;
                    continue;
                }
            },
        };
        assert!(
            matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Unavailable),
            "byte {at}: {error:?}"
        );
        found += 1;
    }
    println!("measured: {found} flipped bits were found, {harmless} meant nothing");
    assert!(found > 50 && harmless > 50, "{found} and {harmless}");
}

/// The statements that docs/host.md shows for SQLite's shell work on a file in use, opened
/// read-only.
#[test]
fn the_statements_in_the_documentation_work() {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    let info = crate::ClientInfo::here(&crate::Config::memory(), std::time::SystemTime::now());
    file.announce(client(1), &info).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/host.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("```sql\n").expect("an example");
    let (sql, _) = rest.split_once("```").unwrap();
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = Connection::open_with_flags(fixture.path(), flags).unwrap();
    let mut shown = Vec::new();
    for statement in sql.split(";\n").filter(|statement| !statement.trim().is_empty()) {
        let mut prepared = db.prepare(statement).unwrap();
        let columns = prepared.column_count();
        let mut rows = prepared.query([]).unwrap();
        let mut count = 0;
        while let Some(row) = rows.next().unwrap() {
            count += 1;
            shown.extend((0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())));
        }
        assert!(count > 0, "{statement} shows nothing");
    }
    let shown = shown.join("\n");
    for expected in ["job", CURRENT.written_by, &client(1).to_string(), "ok", "Integer(1)"] {
        let bytes = format!("{:?}", expected.as_bytes());
        assert!(shown.contains(expected) || shown.contains(&bytes), "{expected}: {shown}");
    }
    assert!(text.contains(&format!("Schema {}", CURRENT.version)));
}
