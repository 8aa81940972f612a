//! The tables of the file, and files of other versions or other programs.
//!
//! SQLite's header contains `application_id` and, as `user_version`, the version of the schema. The
//! table `fairlock` and its key `written_by` stay in all versions, so that an older program can
//! name the newer one that wrote the file.

use super::fault;
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

/// `fair`, which the command `file` shows.
pub(super) const APPLICATION_ID: i32 = 0x6661_6972;

/// Stands in a new file in place of the boot.
pub(super) const NO_BOOT: &str = "none";

/// The tables of one version, and the migrations from older ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema {
    pub(super) version: i32,
    /// The version of fairlock that writes it.
    pub(super) written_by: &'static str,
    /// Makes the tables in an empty file.
    pub(super) create: &'static str,
    /// A version, and what brings the file from it to the next one.
    pub(super) steps: &'static [(i32, &'static str)],
}

/// Version 1, the first. `idle_ms`: when an unused lock can be forgotten; NULL while it is in use.
/// `change` rises with every write of the row.
pub(super) const CURRENT: Schema = Schema {
    version: 1,
    written_by: env!("CARGO_PKG_VERSION"),
    create: "
        CREATE TABLE fairlock (key TEXT NOT NULL PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
        CREATE TABLE lock (
            name BLOB NOT NULL PRIMARY KEY,
            change INTEGER NOT NULL,
            idle_ms INTEGER,
            state BLOB NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE client (
            id TEXT NOT NULL PRIMARY KEY,
            since_ms INTEGER NOT NULL,
            pid INTEGER NOT NULL,
            host TEXT,
            user TEXT,
            label TEXT,
            version TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;",
    steps: &[],
};

/// The result of looking at a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing is in it yet.
    Empty,
    /// Ours, of this version or of one that can be brought to it.
    Ours(i32),
}

/// Reads the header without changing anything.
///
/// # Errors
/// The file is not ours to use, or SQLite fails.
pub(super) fn look(
    db: &Connection,
    path: &Path,
    schema: &Schema,
) -> rusqlite::Result<Result<Found, StoreError>> {
    // Reads everything as of one moment: another process may be creating the tables.
    db.execute_batch("SAVEPOINT look")?;
    let found = look_once(db, path, schema);
    if found.is_err() {
        // After some errors SQLite has rolled everything back by itself, and the savepoint is gone.
        // The original error matters, not that.
        if !db.is_autocommit() {
            let _ = db.execute_batch("RELEASE look");
        }
        return found;
    }
    db.execute_batch("RELEASE look")?;
    found
}

fn look_once(
    db: &Connection,
    path: &Path,
    schema: &Schema,
) -> rusqlite::Result<Result<Found, StoreError>> {
    let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    if application == 0 && version == 0 {
        let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
        if tables == 0 {
            return Ok(Ok(Found::Empty));
        }
    }
    if application != APPLICATION_ID {
        return Ok(Err(refused(
            path,
            "this is a database of another program; nothing was changed",
        )));
    }
    let reachable = version == schema.version
        || (version < schema.version && schema.steps.iter().any(|(from, _)| *from == version));
    if !reachable {
        let by = written_by(db)?.unwrap_or_else(|| "another version".to_owned());
        let (age, remedy) = if version > schema.version {
            ("newer", "use that version or a later one")
        } else {
            ("older", "open it with a version in between first")
        };
        let message = format!(
            "the file was written by fairlock {by} and has schema {version}, {age} than what this \
             version ({}) can use, {}; nothing was changed; {remedy}",
            schema.written_by, schema.version
        );
        return Ok(Err(refused(path, &message)));
    }
    Ok(Ok(Found::Ours(version)))
}

fn written_by(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.query_row("SELECT value FROM fairlock WHERE key = 'written_by'", [], |row| row.get(0))
        .optional()
}

/// Whether the file has a table of this name: tables that were added later are made only when one
/// is needed.
pub(super) fn has_table(db: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?1";
    let mut statement = db.prepare_cached(sql)?;
    statement.query_row([name], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

/// Brings the file to this version; runs inside the caller's transaction.
///
/// # Errors
/// SQLite fails, or the file is not ours after all.
pub(super) fn bring(
    db: &Connection,
    path: &Path,
    schema: &Schema,
) -> rusqlite::Result<Result<(), StoreError>> {
    // Others may have done it meanwhile.
    let mut version = match look(db, path, schema)? {
        Err(error) => return Ok(Err(error)),
        Ok(Found::Ours(version)) if version == schema.version => return Ok(Ok(())),
        Ok(Found::Empty) => {
            db.execute_batch(schema.create)?;
            db.execute("INSERT INTO fairlock (key, value) VALUES ('boot', ?1)", [NO_BOOT])?;
            schema.version
        }
        Ok(Found::Ours(version)) => version,
    };
    while version < schema.version {
        let Some((_, sql)) = schema.steps.iter().find(|(from, _)| *from == version) else {
            return Ok(Err(fault::damaged(path, "no step leads from its schema to this one")));
        };
        db.execute_batch(sql)?;
        version += 1;
    }
    db.execute(
        "INSERT OR REPLACE INTO fairlock (key, value) VALUES ('written_by', ?1)",
        [schema.written_by],
    )?;
    mark(db)?;
    db.pragma_update(None, "user_version", schema.version)?;
    Ok(Ok(()))
}

/// Marks the file as ours, in its first page.
pub(super) fn mark(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "application_id", APPLICATION_ID)
}

fn refused(path: &Path, what: &str) -> StoreError {
    StoreError::refused(Error::new(ErrorKind::Protocol, format!("{}: {what}", path.display())))
}
