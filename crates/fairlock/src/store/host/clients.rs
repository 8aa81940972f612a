//! What clients announce about themselves, one row each.

use super::file::HostFile;
use crate::settings::client_info::ClientInfo;
use crate::settings::text::is_printable;
use crate::store::StoreError;
use fairlock_core::ClientId;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// What the keys of leases in the table `fairlock` begin with; a client's id follows.
const LEASE: &str = "lease:";

impl HostFile {
    /// Announces a client, or announces it again.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(crate) fn announce(
        &mut self,
        client: ClientId,
        info: &ClientInfo,
    ) -> Result<(), StoreError> {
        self.transaction(|file| {
            let since_ms = (file.now_us() / 1_000).cast_signed();
            let sql = "INSERT INTO client (id, since_ms, pid, host, user, label, version)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO UPDATE SET pid = ?3, host = ?4, user = ?5, label = ?6, version = ?7";
            let written = file.prepared(sql)?.execute(params![
                client.to_string(),
                since_ms,
                info.pid,
                info.host,
                info.user,
                info.label,
                info.version
            ]);
            written.map_err(|error| file.failed(&error))?;
            file.put_lease(client, info.lease)
        })
    }

    /// From now on, the client says no lease.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(crate) fn drop_lease(&mut self, client: ClientId) -> Result<(), StoreError> {
        self.transaction(|file| file.put_lease(client, None))
    }

    /// The lease is a row of the table `fairlock`, so that former versions can use the file. A row
    /// that a former version's clean-up leaves behind is removed after the next boot.
    fn put_lease(&self, client: ClientId, lease: Option<Duration>) -> Result<(), StoreError> {
        let key = lease_key(client);
        let written = match lease.and_then(|lease| i64::try_from(lease.as_millis()).ok()) {
            Some(ms) => self
                .prepared("INSERT OR REPLACE INTO fairlock (key, value) VALUES (?1, ?2)")?
                .execute(params![key, ms]),
            None => self.prepared("DELETE FROM fairlock WHERE key = ?1")?.execute([key]),
        };
        written.map(drop).map_err(|error| self.failed(&error))
    }

    /// What these clients announced. Clients without a legible announcement are left out.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(crate) fn clients(
        &mut self,
        ids: &[ClientId],
    ) -> Result<BTreeMap<ClientId, ClientInfo>, StoreError> {
        let now_ms = self.now_us() / 1_000;
        let mut known = BTreeMap::new();
        for id in ids {
            let found = self.read(|file| {
                let sql = "SELECT since_ms, pid, host, user, label, version, fairlock.value
                     FROM client LEFT JOIN fairlock ON key = ?2 WHERE id = ?1";
                let mut statement = file.db.prepare_cached(sql)?;
                let key = [id.to_string(), lease_key(*id)];
                statement.query_row(key, |row| said(row, now_ms)).optional()
            })?;
            if let Some(info) = found.flatten() {
                known.insert(*id, info);
            }
        }
        Ok(known)
    }

    /// The ids of clients that have announced themselves and not ended properly, in order, starting
    /// after `after`.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(crate) fn announced(
        &mut self,
        after: Option<ClientId>,
        limit: u32,
    ) -> Result<Vec<ClientId>, StoreError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        self.read(|file| {
            let sql = "SELECT id FROM client WHERE id > ?1 ORDER BY id LIMIT ?2";
            let mut statement = file.db.prepare_cached(sql)?;
            let rows = statement.query_map(params![after, limit], |row| row.get::<_, String>(0))?;
            let ids = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(ids.iter().filter_map(|id| ClientId::parse(id.as_bytes())).collect())
        })
    }

    /// Removes the announcement of a client that has ended.
    ///
    /// # Errors
    /// As [`HostFile::apply`].
    pub(crate) fn farewell(&mut self, client: ClientId) -> Result<(), StoreError> {
        self.transaction(|file| {
            let gone =
                file.prepared("DELETE FROM client WHERE id = ?1")?.execute([client.to_string()]);
            gone.map_err(|error| file.failed(&error))?;
            file.put_lease(client, None)
        })
    }
}

/// Forgets the leases of all clients.
pub(super) fn forget_leases(db: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM fairlock WHERE substr(key, 1, 6) = ?1";
    db.execute(sql, [LEASE]).map(drop)
}

fn lease_key(client: ClientId) -> String {
    format!("{LEASE}{client}")
}

/// The contents of a row, if all of it is printable.
fn said(row: &Row<'_>, now_ms: u64) -> rusqlite::Result<Option<ClientInfo>> {
    let age = now_ms.saturating_sub(row.get::<_, i64>(0)?.cast_unsigned());
    let info = ClientInfo {
        // Host time may differ from the wall clock by now.
        since: SystemTime::now()
            .checked_sub(Duration::from_millis(age))
            .unwrap_or(SystemTime::UNIX_EPOCH),
        pid: row.get(1)?,
        host: row.get(2)?,
        user: row.get(3)?,
        label: row.get(4)?,
        version: row.get(5)?,
        lease: row
            .get::<_, Option<i64>>(6)?
            .and_then(|ms| u64::try_from(ms).ok())
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis),
    };
    let texts = [&info.host, &info.user, &info.label];
    let legible = texts.into_iter().flatten().chain([&info.version]).all(|text| is_printable(text));
    Ok(legible.then_some(info))
}
