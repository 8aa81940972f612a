//! What clients announce about themselves, one row each.

use super::file::HostFile;
use crate::settings::client_info::ClientInfo;
use crate::settings::text::is_printable;
use crate::store::StoreError;
use fairlock_core::ClientId;
use rusqlite::{OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

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
            written.map(drop).map_err(|error| file.failed(&error))
        })
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
                let sql =
                    "SELECT since_ms, pid, host, user, label, version FROM client WHERE id = ?1";
                let mut statement = file.db.prepare_cached(sql)?;
                statement.query_row([id.to_string()], |row| said(row, now_ms)).optional()
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
            gone.map(drop).map_err(|error| file.failed(&error))
        })
    }
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
    };
    let texts = [&info.host, &info.user, &info.label];
    let legible = texts.into_iter().flatten().chain([&info.version]).all(|text| is_printable(text));
    Ok(legible.then_some(info))
}
