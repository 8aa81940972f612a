//! The rows of one lock: reads them, unless this process knows them, and writes what has changed.

use super::file::{HostFile, SWEEP_EACH, idle_ms};
use super::parts::{self, Mark, Part, Parts, Rows};
use super::patience::patiently;
use super::{codec, fault};
use crate::store::StoreError;
use fairlock_core::{LockName, LockState, OwnerId};
use rusqlite::{OptionalExtension, params};

/// Maximum number of states kept decoded: as many locks as one process has in use at a time.
const CACHED_MAX: usize = 1_024;

/// A state and the row that it was read from, or written to.
pub(super) struct Cached {
    pub(super) change: i64,
    pub(super) bytes: Vec<u8>,
    pub(super) parts: Parts,
    pub(super) state: LockState,
}

/// A row, and the rows of its shares.
pub(super) struct Found {
    pub(super) change: i64,
    /// `None`: they are cached with the same `change`.
    read: Option<(Vec<u8>, Others)>,
}

/// What was read of a lock's shares.
enum Others {
    /// It has none.
    None,
    /// Those that the cache lacks.
    Later(Rows),
    All(Rows),
}

/// A lock as an operation found it.
pub(super) struct Loaded {
    /// The `change` of the row; `None` if there was no row.
    pub(super) change: Option<i64>,
    pub(super) bytes: Vec<u8>,
    pub(super) parts: Parts,
    pub(super) state: LockState,
}

impl HostFile {
    pub(super) fn load(&mut self, name: &LockName) -> Result<Loaded, StoreError> {
        let found = self.find(name, |_| Ok(()))?;
        self.decoded(name, found)
    }

    /// The `change` of the lock's row, and its bytes unless they are cached. `meanwhile` runs if
    /// there is a row.
    pub(super) fn find(
        &self,
        name: &LockName,
        meanwhile: impl Fn(&Self) -> rusqlite::Result<()>,
    ) -> Result<Option<Found>, StoreError> {
        let known = self.cache.get(name);
        patiently(&self.path, self.busy, || {
            let sql = "SELECT change, state FROM lock WHERE name = ?1";
            let mut statement = self.db.prepare_cached(sql)?;
            let row = statement.query_row([name.as_bytes()], |row| {
                let change: i64 = row.get(0)?;
                let read = if known.is_some_and(|known| known.change == change) {
                    None
                } else {
                    let bytes: Vec<u8> = row.get(1)?;
                    let others = self.others(name, &bytes, known)?;
                    Some((bytes, others))
                };
                meanwhile(self)?;
                Ok(Found { change, read })
            });
            row.optional()
        })
    }

    /// The rows of the shares of a lock whose own row has these bytes.
    fn others(
        &self,
        name: &LockName,
        bytes: &[u8],
        known: Option<&Cached>,
    ) -> rusqlite::Result<Others> {
        let Some(mark) = codec::mark(bytes) else { return Ok(Others::None) };
        if let Some(known) = known.filter(|known| !known.parts.is_empty()) {
            let rows = parts::read(&self.db, name, known.change)?;
            let is_new =
                |(owner, _): &&(Vec<u8>, _)| !known.parts.contains_key(&OwnerId::parse(owner));
            let together = known.parts.len() + rows.iter().filter(is_new).count();
            // All that exist are among these. If there are no more, none was removed.
            if together as u64 == mark.rows {
                return Ok(Others::Later(rows));
            }
        }
        parts::read(&self.db, name, i64::MIN).map(Others::All)
    }

    /// What was found, from the cache or decoded.
    pub(super) fn decoded(
        &mut self,
        name: &LockName,
        found: Option<Found>,
    ) -> Result<Loaded, StoreError> {
        let known = self.cache.remove(name);
        let damaged = |what: &str| {
            let mut error = fault::damaged(&self.path, format_args!("a row, {what}"));
            error.error = error.error.on(name);
            error
        };
        if found.as_ref().is_some_and(|found| found.change == i64::MAX) {
            return Err(damaged("of which no change can follow the last"));
        }
        match (found, known) {
            (None, _) => Ok(Loaded {
                change: None,
                bytes: Vec::new(),
                parts: Parts::new(),
                state: LockState::default(),
            }),
            (Some(Found { change, read: None }), Some(known)) => {
                let Cached { bytes, parts, state, .. } = known;
                Ok(Loaded { change: Some(change), bytes, parts, state })
            }
            (Some(Found { change, read }), known) => {
                let (bytes, others) = read.unwrap_or((Vec::new(), Others::None));
                let (rows, mut parts) = match others {
                    Others::None => (Rows::new(), Parts::new()),
                    Others::All(rows) => (rows, Parts::new()),
                    Others::Later(rows) => (rows, known.map(|it| it.parts).unwrap_or_default()),
                };
                let keys = codec::decode(name, &bytes);
                let state = keys.and_then(|keys| {
                    parts::add(name, rows, &mut parts)?;
                    parts::assembled(keys, &parts)
                });
                let state = state.map_err(|damage| damaged(damage.0))?;
                Ok(Loaded { change: Some(change), bytes, parts, state })
            }
        }
    }

    /// Writes the lock's row, and those of its shares that have changed, if anything has.
    pub(super) fn store(
        &mut self,
        name: &LockName,
        now_us: u64,
        lock: Loaded,
    ) -> Result<Cached, StoreError> {
        let Loaded { change, bytes: before, mut parts, state } = lock;
        let mut bytes = Vec::with_capacity(before.len());
        let mark = Mark::of(&state);
        codec::encode(name, state.snapshot(), mark, &mut bytes);
        let others = if mark.is_some() || !parts.is_empty() {
            parts::changes(&parts, &state)
        } else {
            vec![]
        };
        if let Some(change) = change
            && bytes == before
            && others.is_empty()
        {
            return Ok(Cached { change, bytes, parts, state });
        }
        // Never the same twice for one name, not even after the row was removed: time has passed by
        // then, and `change` is never behind it.
        let next = now_us.cast_signed().max(change.map_or(0, |change| change + 1));
        let idle_ms = idle_ms(&state, now_us).map(u64::cast_signed);
        let sql = match change {
            Some(_) => "UPDATE lock SET change = ?2, idle_ms = ?3, state = ?4 WHERE name = ?1",
            None => "INSERT INTO lock (name, change, idle_ms, state) VALUES (?1, ?2, ?3, ?4)",
        };
        let written = self.prepared(sql)?.execute(params![name.as_bytes(), next, idle_ms, bytes]);
        written.map_err(|error| self.failed(&error))?;
        if !others.is_empty() {
            let written = self.store_others(name, next, others, &mut parts);
            written.map_err(|error| self.failed(&error))?;
        }
        if change.is_none() && now_us.is_multiple_of(SWEEP_EACH) {
            self.sweep(now_us).map_err(|error| self.failed(&error))?;
        }
        Ok(Cached { change: next, bytes, parts, state })
    }

    fn store_others(
        &self,
        name: &LockName,
        change: i64,
        others: Vec<(OwnerId, Option<Part>)>,
        parts: &mut Parts,
    ) -> rusqlite::Result<()> {
        if parts.is_empty() {
            let is_new = parts::prepare(&self.db, name, self.has_shares.replace(true))?;
            self.has_grown.set(is_new || self.has_grown.get());
        }
        parts::write(&self.db, name, change, others, parts)
    }

    pub(super) fn keep_loaded(&mut self, name: &LockName, lock: Loaded) {
        if let Some(change) = lock.change {
            let Loaded { bytes, parts, state, .. } = lock;
            self.keep(name, Cached { change, bytes, parts, state });
        }
    }

    /// Keeps the state of a lock in use. Reading that of an idle lock is faster than finding it
    /// here.
    pub(super) fn keep(&mut self, name: &LockName, cached: Cached) {
        if cached.state.is_idle() {
            return;
        }
        if self.cache.len() >= CACHED_MAX {
            self.cache.clear();
        }
        self.cache.insert(name.clone(), cached);
    }
}
