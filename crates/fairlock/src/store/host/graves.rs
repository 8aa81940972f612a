//! Which locks the dead still hold or wait for.
//!
//! Only the proof of a death (`<client>.dead`) shows others that a hold is over. Invariant: the
//! proof is removed only once no lock in the file names its client any more, however long the
//! leases are.

use super::file::HostFile;
use super::{around, codec};
use crate::store::StoreError;
use fairlock_core::{ClientId, LockName, SimpleValue, Snapshot, Token};
use rusqlite::{OptionalExtension, params};
use std::collections::HashSet;

/// Locks that name a dead client, and where to continue; `None` at the end.
pub(super) type Found = (Vec<LockName>, Option<Vec<u8>>);

impl HostFile {
    /// Returns the locks that name one of `dead`, out of up to `limit` locks in use, in the order
    /// of their names, starting after `after`.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(super) fn naming(
        &mut self,
        dead: &HashSet<ClientId>,
        after: &[u8],
        limit: u32,
    ) -> Result<Found, StoreError> {
        let rows = self.read(|file| {
            let sql = "SELECT name, state FROM lock WHERE name > ?1 AND idle_ms IS NULL ORDER BY name LIMIT ?2";
            let mut statement = file.db.prepare_cached(sql)?;
            let rows = statement.query_map(params![after, limit], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let more = rows.len() as u64 == u64::from(limit);
        let next = rows.last().filter(|_| more).map(|(name, _)| name.clone());
        let names = rows.into_iter().filter_map(|(name, state)| {
            let name = LockName::new(&name).ok()?;
            // An unreadable lock is an error for everyone who wants it, with or without the proof.
            let lock = codec::decode(&name, &state).ok()?;
            clients(&lock).any(|client| dead.contains(&client)).then_some(name)
        });
        Ok((names.collect(), next))
    }

    /// Whether the lock is held under this token.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(super) fn is_held_under(&self, name: &LockName, token: Token) -> Result<bool, StoreError> {
        let state: Option<Vec<u8>> = self.read(|file| {
            let mut statement = file.db.prepare_cached("SELECT state FROM lock WHERE name = ?1")?;
            statement.query_row([name.as_bytes()], |row| row.get(0)).optional()
        })?;
        let lock = state.and_then(|state| codec::decode(name, &state).ok());
        Ok(lock.is_some_and(|lock| is_held_under(&lock, token, self.now_us() / 1_000)))
    }
}

fn is_held_under(lock: &Snapshot, token: Token, now_ms: u64) -> bool {
    let lasts = |end: Option<u64>| end.is_none_or(|end| now_ms <= end);
    match &lock.value {
        Some(SimpleValue::Ours { token: of, .. }) => *of == token && lasts(lock.value_expires),
        _ => lock.token == Some(token.get()) && !lock.hold.is_empty() && lasts(lock.hold_expires),
    }
}

/// The clients that hold the lock or wait for it.
pub(super) fn clients(lock: &Snapshot) -> impl Iterator<Item = ClientId> {
    around::holder(lock).into_iter().chain(lock.queue.iter().filter_map(|owner| owner.client()))
}
