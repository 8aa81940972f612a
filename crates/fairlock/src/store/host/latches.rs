//! The records of latches besides their counts, which are in the rows of locks, so that nobody
//! takes a lock of the same name. They have a table of their own, which is made when the first
//! latch needs it: files without latches stay as they are, and older versions can use the file.

use super::codec::{Damaged, Reader, Writer, checksum};
use super::fault;
use super::file::HostFile;
use super::schema;
use crate::store::StoreError;
use fairlock_core::{Answer, Effect, Latch, LatchCounted, LatchNote, LockName, Op, Rules, World};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeMap;

/// Number of the encoding below.
const FORM: u8 = 1;

/// Bytes before the body: the form's number, and the checksum of name and body.
const HEAD: usize = 5;

/// How many rows that have outlived their TTL a new one removes: more than one, so that they become
/// fewer.
const REMOVED_EACH: u32 = 4;

const TABLE: &str = "
    CREATE TABLE latch (
        name BLOB NOT NULL PRIMARY KEY,
        until_ms INTEGER NOT NULL,
        state BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX latch_until ON latch (until_ms)";

impl HostFile {
    /// Carries out an operation on a latch in one transaction, as [`apply`](Self::apply) does on a
    /// lock.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(super) fn apply_latch(
        &mut self,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Result<(Answer, Vec<Effect>), StoreError> {
        let (done, cached) = self.transaction(|file| {
            let mut lock = file.load(name)?;
            let before = file.latch(name)?;
            lock.state.put_latch(before.clone());
            let now_us = file.now_us();
            let done = lock
                .state
                .apply(now_us, op, rules, world)
                .map_err(|error| fault::of_core(&file.path, name, &error))?;
            let latch = lock.state.take_latch();
            if latch != before {
                file.store_latch(name, latch, now_us / 1_000)?;
            }
            let is_unused = lock.state.is_idle() && lock.state.snapshot().token.is_none();
            if !is_unused {
                return Ok((done, Some(file.store(name, now_us, lock)?)));
            }
            if lock.change.is_some() {
                let sql = "DELETE FROM lock WHERE name = ?1";
                let removed = file.prepared(sql)?.execute(params![name.as_bytes()]);
                removed.map_err(|error| file.failed(&error))?;
            }
            Ok((done, None))
        })?;
        if let Some(cached) = cached {
            self.keep(name, cached);
        }
        Ok(done)
    }

    fn latch(&self, name: &LockName) -> Result<Option<Latch>, StoreError> {
        let find = || {
            if !schema::has_table(&self.db, "latch")? {
                return Ok(None);
            }
            let sql = "SELECT state FROM latch WHERE name = ?1";
            let mut statement = self.db.prepare_cached(sql)?;
            statement.query_row([name.as_bytes()], |row| row.get::<_, Vec<u8>>(0)).optional()
        };
        let found = find().map_err(|error| self.failed(&error))?;
        let latch = found.map(|bytes| decode(name, &bytes)).transpose();
        latch.map_err(|damage| {
            let mut error = fault::damaged(&self.path, format_args!("a latch, {}", damage.0));
            error.error = error.error.on(name);
            error
        })
    }

    fn store_latch(
        &self,
        name: &LockName,
        latch: Option<Latch>,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        self.written(name, latch, now_ms).map_err(|error| self.failed(&error))
    }

    fn written(&self, name: &LockName, latch: Option<Latch>, now_ms: u64) -> rusqlite::Result<()> {
        let Some(latch) = latch else {
            let mut statement = self.db.prepare_cached("DELETE FROM latch WHERE name = ?1")?;
            return statement.execute([name.as_bytes()]).map(drop);
        };
        if !schema::has_table(&self.db, "latch")? {
            self.db.execute_batch(TABLE)?;
            self.has_grown.set(true);
        }
        let ends = latch
            .note
            .iter()
            .map(|note| note.expires)
            .chain(latch.counted.values().map(|it| it.until));
        let until_ms = ends.fold(now_ms, u64::max).cast_signed();
        let sql = "INSERT OR REPLACE INTO latch (name, until_ms, state) VALUES (?1, ?2, ?3)";
        let state = encode(name, &latch);
        self.db.prepare_cached(sql)?.execute(params![name.as_bytes(), until_ms, state])?;
        let sql = "DELETE FROM latch WHERE name IN
                   (SELECT name FROM latch WHERE until_ms < ?1 ORDER BY until_ms LIMIT ?2)";
        let mut statement = self.db.prepare_cached(sql)?;
        statement.execute(params![now_ms.cast_signed(), REMOVED_EACH]).map(drop)
    }
}

/// Which fields of a note follow.
mod bit {
    pub(super) const NOTE: u8 = 1;
    pub(super) const OPENED: u8 = 1 << 1;
}

fn encode(name: &LockName, latch: &Latch) -> Vec<u8> {
    let mut out = vec![FORM, 0, 0, 0, 0];
    let mut w = Writer::new(&mut out, &[]);
    match &latch.note {
        None => w.byte(0),
        Some(note) => {
            w.byte(bit::NOTE | note.opened.map_or(0, |_| bit::OPENED));
            w.number(note.generation);
            w.number(note.expires);
            if let Some(opened) = note.opened {
                w.number(opened);
            }
        }
    }
    for (request, counted) in &latch.counted {
        w.request(*request);
        w.number(counted.until);
        w.byte(u8::from(counted.done));
        w.number(counted.count);
    }
    let sum = checksum(name, &out[HEAD..]);
    out[1..HEAD].copy_from_slice(&sum.to_le_bytes());
    out
}

fn decode(name: &LockName, bytes: &[u8]) -> Result<Latch, Damaged> {
    let Some((head, body)) = bytes.split_at_checked(HEAD) else {
        return Err(Damaged("it is too short"));
    };
    if head[0] != FORM {
        return Err(Damaged("its form has an unknown number"));
    }
    if head[1..] != checksum(name, body).to_le_bytes() {
        return Err(Damaged("its checksum does not match"));
    }
    let mut r = Reader::new(body);
    let has = r.byte()?;
    let note = match has & bit::NOTE {
        0 if has == 0 => None,
        0 => return Err(Damaged("its note has no beginning")),
        _ if has > (bit::NOTE | bit::OPENED) => {
            return Err(Damaged("it has an unknown field"));
        }
        _ => {
            let (generation, expires) = (r.number()?, r.number()?);
            let opened = if has & bit::OPENED == 0 { None } else { Some(r.number()?) };
            Some(LatchNote { generation, opened, expires })
        }
    };
    let mut counted = BTreeMap::new();
    while !r.is_at_end() {
        let request = r.request()?;
        if counted.last_key_value().is_some_and(|(last, _)| *last >= request) {
            return Err(Damaged("its requests are no list of requests"));
        }
        let (until, done) = (r.number()?, r.byte()?);
        if done > 1 {
            return Err(Damaged("a result is neither yes nor no"));
        }
        counted.insert(request, LatchCounted { until, done: done == 1, count: r.number()? });
    }
    Ok(Latch { note, counted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::RequestId;

    #[test]
    fn every_latch_is_read_as_it_was_written_and_damage_is_found() {
        let name = LockName::new(b"import").unwrap();
        let request = RequestId::from_random;
        let note = |opened| Some(LatchNote { generation: 7, opened, expires: 1_760_000_000_000 });
        let result = |until, done, count| LatchCounted { until, done, count };
        let counted = BTreeMap::from([
            (request(3), result(5, true, 0)),
            (request(4), result(u64::MAX, false, u64::MAX)),
        ]);
        for latch in [
            Latch::default(),
            Latch { note: None, counted: counted.clone() },
            Latch { note: note(None), counted: counted.clone() },
            Latch { note: note(Some(7)), counted: BTreeMap::new() },
            Latch { note: note(Some(6)), counted },
        ] {
            let bytes = encode(&name, &latch);
            assert_eq!(decode(&name, &bytes), Ok(latch));
            assert!(decode(&LockName::new(b"other").unwrap(), &bytes).is_err());
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(decode(&name, &damaged).is_err());
                assert!(decode(&name, &bytes[..at]).is_err());
            }
        }
    }
}
