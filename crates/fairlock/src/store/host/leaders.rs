//! The announcements of elections' leaders, in a table of their own: the rows of locks stay as they are, so programs
//! without elections can read them.

use super::fault;
use super::file::HostFile;
use super::schema;
use crate::store::StoreError;
use fairlock_core::{Answer, Effect, Leader, LockName, Op, OwnerId, Rules, Token, World};
use rusqlite::{OptionalExtension, params};

/// Made with the first announcement, so that files without elections stay as they are.
const TABLE: &str = "
    CREATE TABLE leader (
        name BLOB NOT NULL PRIMARY KEY,
        owner BLOB NOT NULL,
        token INTEGER NOT NULL,
        change INTEGER NOT NULL,
        since_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID";

impl HostFile {
    /// Carries out [`Op::Announce`].
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(super) fn announce_leader(
        &mut self,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Result<(Answer, Vec<Effect>), StoreError> {
        let (done, cached) = self.transaction(|file| {
            let mut lock = file.load(name)?;
            lock.state.set_leader(file.leader(name).map_err(|error| file.failed(&error))?);
            let now_us = file.now_us();
            let done = lock
                .state
                .apply(now_us, op, rules, world)
                .map_err(|error| fault::of_core(&file.path, name, &error))?;
            let leader = lock.state.leader().cloned();
            file.keep_leader(name, leader.as_ref(), now_us / 1_000)
                .map_err(|error| file.failed(&error))?;
            lock.state.set_leader(None);
            Ok((done, file.store(name, now_us, lock)?))
        })?;
        self.keep(name, cached);
        Ok(done)
    }

    /// The announcement of this lock.
    pub(super) fn leader(&self, name: &LockName) -> rusqlite::Result<Option<Leader>> {
        if !schema::has_table(&self.db, "leader")? {
            return Ok(None);
        }
        let sql = "SELECT owner, token, change, since_ms, expires_ms, value FROM leader
                   WHERE name = ?1";
        let number = |row: &rusqlite::Row<'_>, at| row.get::<_, i64>(at).map(i64::cast_unsigned);
        let row = self.db.prepare_cached(sql)?.query_row([name.as_bytes()], |row| {
            // A damaged announcement counts as none: the holder announces it again.
            let Some(token) = Token::new(number(row, 1)?) else { return Ok(None) };
            Ok(Some(Leader {
                owner: OwnerId::parse(&row.get::<_, Vec<u8>>(0)?),
                token,
                change: number(row, 2)?,
                since_ms: number(row, 3)?,
                expires: number(row, 4)?,
                value: row.get(5)?,
            }))
        });
        Ok(row.optional()?.flatten())
    }

    /// For tests: this announcement, or none.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn put_leader(
        &mut self,
        name: &LockName,
        leader: Option<&Leader>,
    ) -> rusqlite::Result<()> {
        if schema::has_table(&self.db, "leader")? {
            self.db.execute("DELETE FROM leader WHERE name = ?1", [name.as_bytes()])?;
        }
        self.keep_leader(name, leader, 0)
    }

    /// Writes an announcement, and removes those that are over.
    fn keep_leader(
        &self,
        name: &LockName,
        leader: Option<&Leader>,
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        let Some(leader) = leader else { return Ok(()) };
        if !schema::has_table(&self.db, "leader")? {
            self.db.execute_batch(TABLE)?;
            self.has_grown.set(true);
        }
        let sql = "DELETE FROM leader WHERE expires_ms < ?1";
        self.db.prepare_cached(sql)?.execute([now_ms.cast_signed()])?;
        let sql = "INSERT OR REPLACE INTO leader
                   (name, owner, token, change, since_ms, expires_ms, value)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let [token, change, since_ms, expires_ms] =
            [leader.token.get(), leader.change, leader.since_ms, leader.expires]
                .map(u64::cast_signed);
        let (name, owner, value) = (name.as_bytes(), leader.owner.to_bytes(), &leader.value);
        let row = params![name, owner, token, change, since_ms, expires_ms, value];
        self.db.prepare_cached(sql)?.execute(row).map(drop)
    }
}
