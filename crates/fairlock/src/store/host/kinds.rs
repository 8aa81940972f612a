//! The kind as which each lock was last granted, in a table of its own: former versions do not look at it.

use super::file::HostFile;
use super::schema;
use crate::store::StoreError;
use fairlock_core::{Kind, LockName, TOKEN_TTL_MS, kind_label, kind_of_label};
use rusqlite::{OptionalExtension, params};

/// Made with the first grant.
const TABLE: &str = "
    CREATE TABLE kind (
        name BLOB NOT NULL PRIMARY KEY,
        kind TEXT NOT NULL,
        until_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX kind_until ON kind (until_ms)";

/// A note that lasts for less than this is written again, so that most processes only read.
const RENEWED_BELOW_MS: u64 = TOKEN_TTL_MS / 4 * 3;

/// How many notes that are over a new one removes: more than one, so that they become fewer.
const REMOVED_EACH: u32 = 4;

impl HostFile {
    /// Notes the kind for a day; returns the kind that was noted before.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(super) fn note_kind(
        &mut self,
        name: &LockName,
        kind: Kind,
    ) -> Result<Option<Kind>, StoreError> {
        let now_ms = self.now_us() / 1_000;
        let known = self.read(|file| file.last_kind(name, now_ms))?;
        if known.is_some_and(|(known, left)| known == kind && left >= RENEWED_BELOW_MS) {
            return Ok(Some(kind));
        }
        self.transaction(|file| {
            let before = file.last_kind(name, now_ms);
            let before = before.map_err(|error| file.failed(&error))?;
            file.put_kind(name, kind, now_ms).map_err(|error| file.failed(&error))?;
            Ok(before.map(|(kind, _)| kind))
        })
    }

    /// The kind that is noted, and for how many milliseconds more.
    fn last_kind(&self, name: &LockName, now_ms: u64) -> rusqlite::Result<Option<(Kind, u64)>> {
        if !schema::has_table(&self.db, "kind")? {
            return Ok(None);
        }
        let sql = "SELECT kind, until_ms FROM kind WHERE name = ?1";
        let row = self.db.prepare_cached(sql)?.query_row([name.as_bytes()], |row| {
            let kind = kind_of_label(row.get::<_, String>(0)?.as_bytes());
            Ok(kind.zip(row.get::<_, i64>(1)?.cast_unsigned().checked_sub(now_ms)))
        });
        Ok(row.optional()?.flatten())
    }

    fn put_kind(&self, name: &LockName, kind: Kind, now_ms: u64) -> rusqlite::Result<()> {
        if !schema::has_table(&self.db, "kind")? {
            self.db.execute_batch(TABLE)?;
            self.has_grown.set(true);
        }
        let sql = "DELETE FROM kind WHERE name IN
                   (SELECT name FROM kind WHERE until_ms < ?1 ORDER BY until_ms LIMIT ?2)";
        self.db.prepare_cached(sql)?.execute(params![now_ms.cast_signed(), REMOVED_EACH])?;
        let sql = "INSERT OR REPLACE INTO kind (name, kind, until_ms) VALUES (?1, ?2, ?3)";
        let until_ms = (now_ms + TOKEN_TTL_MS).cast_signed();
        let row = params![name.as_bytes(), kind_label(kind), until_ms];
        self.db.prepare_cached(sql)?.execute(row).map(drop)
    }
}
