//! Which locks the dead still hold or wait for.
//!
//! Only the proof of a death (`<client>.dead`) shows others that a hold is over. Invariant: the
//! proof is removed only once no lock in the file names its client any more, however long the
//! leases are.

use super::file::HostFile;
use super::parts::{self, Part, Parts};
use super::{around, codec};
use crate::store::StoreError;
use fairlock_core::{ClientId, LockName, LockState, OwnerId, SimpleValue, Snapshot, Token};
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
                let (name, state): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
                // The owners of shares have rows of their own.
                let owners = match codec::mark(&state) {
                    Some(_) => parts::owners(&file.db, &name)?,
                    None => Vec::new(),
                };
                Ok((name, state, owners))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let more = rows.len() as u64 == u64::from(limit);
        let next = rows.last().filter(|_| more).map(|(name, ..)| name.clone());
        let names = rows.into_iter().filter_map(|(name, state, owners)| {
            let name = LockName::new(&name).ok()?;
            // An unreadable lock is an error for everyone who wants it, with or without the proof.
            let lock = codec::decode(&name, &state).ok()?;
            let of_shares = owners.iter().filter_map(OwnerId::client);
            clients(&lock).chain(of_shares).any(|it| dead.contains(&it)).then_some(name)
        });
        Ok((names.collect(), next))
    }

    /// Whether the lock is held under this token.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(super) fn is_held_under(&self, name: &LockName, token: Token) -> Result<bool, StoreError> {
        let found = self.read(|file| {
            let mut statement = file.db.prepare_cached("SELECT state FROM lock WHERE name = ?1")?;
            let row = statement.query_row([name.as_bytes()], |row| {
                let state: Vec<u8> = row.get(0)?;
                let rows = match codec::mark(&state) {
                    Some(_) => parts::read(&file.db, name, i64::MIN)?,
                    None => Vec::new(),
                };
                Ok((state, rows))
            });
            row.optional()
        })?;
        let (Some((state, rows)), now_ms) = (found, self.now_us() / 1_000) else {
            return Ok(false);
        };
        let mut shares = Parts::new();
        let has_share = |part: &Part| matches!(part, Part::Holds(hold) if hold.token == token && now_ms <= hold.ends_ms);
        if parts::add(name, rows, &mut shares).is_ok() && shares.values().any(has_share) {
            return Ok(true);
        }
        let lock = codec::decode(name, &state).ok();
        Ok(lock.is_some_and(|lock| is_held_under(&lock, token, now_ms)))
    }
}

fn is_held_under(lock: &Snapshot, token: Token, now_ms: u64) -> bool {
    let lasts = |end: Option<u64>| end.is_none_or(|end| now_ms <= end);
    match &lock.value {
        Some(SimpleValue::Ours { token: of, .. }) => *of == token && lasts(lock.value_expires),
        _ => lock.token == Some(token.get()) && !lock.hold.is_empty() && lasts(lock.hold_expires),
    }
}

/// The clients that hold the lock or wait for it, or for shares of it.
pub(super) fn all_clients(lock: &LockState) -> impl Iterator<Item = ClientId> {
    let holders = lock.shares().into_iter().flat_map(|shares| shares.holds().keys());
    let of_shares = holders.chain(lock.line()).filter_map(OwnerId::client);
    clients(lock.snapshot()).chain(of_shares)
}

/// The clients that hold the lock or wait for it, as far as its own row says.
fn clients(lock: &Snapshot) -> impl Iterator<Item = ClientId> {
    around::holder(lock).into_iter().chain(lock.queue.iter().filter_map(|owner| owner.client()))
}
