//! The holds of a lock with shares, and the shares that its waiters want, as rows of their own.
//!
//! An operation changes few of them, so each owner that holds a share, or waits for one, has a row
//! in the table `share`: a thousand readers of one lock are not written again at each step. The
//! lock's own row has the rest, and a mark in place of its hold: the kind, and how many rows there
//! are. The mark is a hash and a string at once. To a program without shares the lock is thus
//! always of another kind, so it refuses every operation on the name and changes nothing.
//!
//! Invariant: as many rows as the mark says belong to the lock, each written when the lock's row had
//! the number `change` that it repeats. So a process that has the rows of an earlier `change` reads
//! only later ones; if it then has more than the mark's number, some were removed, and it reads
//! all.
//!
//! ```text
//! byte 0        the form's number, FORM
//! bytes 1..5    CRC-32C of lock, owner and body, little endian
//! body          WANTS, share; or HOLDS, share, request, token, count, number of its last change, end
//! ```

use super::codec::{Damaged, Reader, Writer, checksum_of};
use super::schema;
use fairlock_core::{
    Kind, LockName, LockState, OwnerId, Share, SharedHold, Shares, SimpleValue, Snapshot, Token,
    is_share_of,
};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

const FORM: u8 = 1;
const HEAD: usize = 5;
const WANTS: u8 = 0;
const HOLDS: u8 = 1;

/// In place of a holder: the kind.
const MARK: &[u8] = b"mode";
/// The field with the number of rows.
const ROWS: &[u8] = b"rows";
/// The string beside them.
const BESIDE: &[u8] = b"shares";

/// Made with the first lock that needs it, so that files without shares stay as they are.
const TABLE: &str = "
    CREATE TABLE share (
        name BLOB NOT NULL,
        owner BLOB NOT NULL,
        change INTEGER NOT NULL,
        state BLOB NOT NULL,
        PRIMARY KEY (name, owner)
    ) STRICT, WITHOUT ROWID";

/// The content of one owner's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It waits for a share.
    Wants(Share),
    /// It holds one.
    Holds(SharedHold),
}

/// The rows of one lock, as they are in the file.
pub(super) type Parts = BTreeMap<OwnerId, Part>;

/// The mark of a lock with shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) kind: Kind,
    pub(super) rows: u64,
}

impl Mark {
    /// The mark of this lock, if anybody holds a share of it or waits for one. Otherwise it is as if it
    /// never had any, and its name can serve every kind.
    pub(super) fn of(lock: &LockState) -> Option<Self> {
        let shares = lock.shares()?;
        let is_used = !shares.holds().is_empty() || !lock.snapshot().order.is_empty();
        is_used.then(|| Self { kind: shares.kind(), rows: rows_of(shares).len() as u64 })
    }

    /// Where the hold of other kinds is.
    pub(super) fn fields(self) -> BTreeMap<OwnerId, i64> {
        let kind = if self.kind == Kind::Semaphore { 2 } else { 1 };
        let rows = self.rows.cast_signed();
        BTreeMap::from([(OwnerId::parse(MARK), kind), (OwnerId::parse(ROWS), rows)])
    }

    /// The string beside the fields.
    pub(super) fn beside() -> SimpleValue {
        SimpleValue::Foreign(BESIDE.into())
    }

    /// The mark that these fields represent.
    pub(super) fn parse(fields: &BTreeMap<OwnerId, i64>) -> Option<Self> {
        if fields.len() != 2 {
            return None;
        }
        let kind = match fields.get(&OwnerId::parse(MARK))? {
            1 => Kind::ReadWrite,
            2 => Kind::Semaphore,
            _ => return None,
        };
        let rows = u64::try_from(*fields.get(&OwnerId::parse(ROWS))?).ok()?;
        Some(Self { kind, rows })
    }
}

/// The content of each owner's row.
fn rows_of(shares: &Shares) -> Vec<(&OwnerId, Part)> {
    let holds = shares.holds().iter().map(|(owner, hold)| (owner, Part::Holds(*hold)));
    let wants = shares.wants().iter().map(|(owner, share)| (owner, Part::Wants(*share)));
    let mut rows: Vec<_> = holds.chain(wants).collect();
    // Both are sorted, so this only merges them. Nobody is in both (G6).
    rows.sort_by_key(|(owner, _)| *owner);
    rows.dedup_by_key(|(owner, _)| *owner);
    rows
}

/// Assembles a lock from its own row and these.
pub(super) fn assembled(mut keys: Snapshot, parts: &Parts) -> Result<LockState, Damaged> {
    let Some(mark) = Mark::parse(&keys.hold) else { return Ok(LockState::from_snapshot(keys)) };
    if keys.value.take() != Some(Mark::beside()) {
        return Err(Damaged("the mark of its shares is not whole"));
    }
    if mark.rows != parts.len() as u64 {
        return Err(Damaged("some of its shares are missing"));
    }
    keys.hold.clear();
    let (mut holds, mut wants) = (BTreeMap::new(), BTreeMap::new());
    for (owner, part) in parts {
        let share = match part {
            Part::Wants(share) => wants.insert(owner.clone(), *share).unwrap_or(*share),
            Part::Holds(hold) => {
                holds.insert(owner.clone(), *hold);
                hold.share
            }
        };
        if !is_share_of(mark.kind, share) {
            return Err(Damaged("a share in it is none of its kind"));
        }
    }
    Ok(LockState::restored(keys, Some(Shares::restored(mark.kind, holds, wants))))
}

/// The rows to write, and those to remove (`None`), so that `parts` becomes what `lock` has.
pub(super) fn changes(parts: &Parts, lock: &LockState) -> Vec<(OwnerId, Option<Part>)> {
    let now = Mark::of(lock).and_then(|_| lock.shares()).map(rows_of).unwrap_or_default();
    let mut changes = Vec::new();
    let mut before = parts.iter().peekable();
    for (owner, part) in now {
        while let Some((gone, _)) = before.next_if(|(known, _)| *known < owner) {
            changes.push((gone.clone(), None));
        }
        let known = before.next_if(|(known, _)| *known == owner);
        if known.is_none_or(|(_, known)| *known != part) {
            changes.push((owner.clone(), Some(part)));
        }
    }
    changes.extend(before.map(|(gone, _)| (gone.clone(), None)));
    changes
}

/// Makes sure that the table exists and has no rows from a former use of the name. Returns whether the table is new.
pub(super) fn prepare(db: &Connection, name: &LockName, has_table: bool) -> rusqlite::Result<bool> {
    let is_new = !has_table && !schema::has_table(db, "share")?;
    if is_new {
        db.execute_batch(TABLE)?;
    }
    let mut statement = db.prepare_cached("DELETE FROM share WHERE name = ?1")?;
    statement.execute([name.as_bytes()])?;
    Ok(is_new)
}

/// Writes these changes into the file and into `parts`.
pub(super) fn write(
    db: &Connection,
    name: &LockName,
    change: i64,
    changes: Vec<(OwnerId, Option<Part>)>,
    parts: &mut Parts,
) -> rusqlite::Result<()> {
    let name_bytes = name.as_bytes();
    for (owner, part) in changes {
        let key = owner.to_bytes();
        match part {
            Some(part) => {
                let sql = "INSERT OR REPLACE INTO share (name, owner, change, state)
                           VALUES (?1, ?2, ?3, ?4)";
                let state = encode(name, &owner, &part);
                db.prepare_cached(sql)?.execute(params![name_bytes, key, change, state])?;
                parts.insert(owner, part);
            }
            None => {
                let sql = "DELETE FROM share WHERE name = ?1 AND owner = ?2";
                db.prepare_cached(sql)?.execute(params![name_bytes, key])?;
                parts.remove(&owner);
            }
        }
    }
    Ok(())
}

/// Rows as they were read.
pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of a lock that were written after its row had the number `since`.
pub(super) fn read(db: &Connection, name: &LockName, since: i64) -> rusqlite::Result<Rows> {
    let sql = "SELECT owner, state FROM share WHERE name = ?1 AND change > ?2";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement
        .query_map(params![name.as_bytes(), since], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// The owners of a lock's rows.
pub(super) fn owners(db: &Connection, name: &[u8]) -> rusqlite::Result<Vec<OwnerId>> {
    let mut statement = db.prepare_cached("SELECT owner FROM share WHERE name = ?1")?;
    let rows = statement.query_map([name], |row| row.get::<_, Vec<u8>>(0))?;
    rows.map(|owner| owner.map(|owner| OwnerId::parse(&owner))).collect()
}

/// Removes all rows, after the locks themselves were freed.
pub(super) fn clear(db: &Connection) -> rusqlite::Result<()> {
    if schema::has_table(db, "share")? {
        db.execute("DELETE FROM share", [])?;
    }
    Ok(())
}

/// Adds these rows to `parts`.
pub(super) fn add(name: &LockName, rows: Rows, parts: &mut Parts) -> Result<(), Damaged> {
    for (owner, state) in rows {
        let owner = OwnerId::parse(&owner);
        let part = decode(name, &owner, &state)?;
        parts.insert(owner, part);
    }
    Ok(())
}

pub(super) fn encode(name: &LockName, owner: &OwnerId, part: &Part) -> Vec<u8> {
    let mut out = vec![FORM, 0, 0, 0, 0];
    let mut w = Writer::new(&mut out, &[]);
    match part {
        Part::Wants(want) => {
            w.byte(WANTS);
            share(&mut w, *want);
        }
        Part::Holds(hold) => {
            w.byte(HOLDS);
            share(&mut w, hold.share);
            w.request(hold.request);
            w.number(hold.token.get());
            w.number(u64::from(hold.count));
            w.number(hold.change);
            w.number(hold.ends_ms);
        }
    }
    let sum = sum(name, owner, &out[HEAD..]);
    out[1..HEAD].copy_from_slice(&sum.to_le_bytes());
    out
}

fn sum(name: &LockName, owner: &OwnerId, body: &[u8]) -> u32 {
    let owner = owner.to_bytes();
    checksum_of(name, &[&(owner.len() as u64).to_le_bytes(), &owner, body])
}

fn share(w: &mut Writer<'_>, share: Share) {
    if let Share::Permits { n, limit } = share {
        w.byte(2);
        w.number(u64::from(n));
        w.number(u64::from(limit));
    } else {
        w.byte(u8::from(share == Share::Read));
    }
}

/// Reads what [`encode`] wrote for this owner of a share of `name`.
pub(super) fn decode(name: &LockName, owner: &OwnerId, bytes: &[u8]) -> Result<Part, Damaged> {
    let Some((head, body)) = bytes.split_at_checked(HEAD) else {
        return Err(Damaged("a share is too short"));
    };
    if head[0] != FORM {
        return Err(Damaged("the form of a share has an unknown number"));
    }
    if head[1..] != sum(name, owner, body).to_le_bytes() {
        return Err(Damaged("the checksum of a share does not match"));
    }
    let mut r = Reader::new(body);
    let tag = r.byte()?;
    let share = match r.byte()? {
        0 => Share::Whole,
        1 => Share::Read,
        2 => Share::Permits { n: r.small()?, limit: r.small()? },
        _ => return Err(Damaged("a share is none")),
    };
    let part = match tag {
        WANTS => Part::Wants(share),
        HOLDS => Part::Holds(SharedHold {
            request: r.request()?,
            share,
            token: Token::new(r.number()?).ok_or(Damaged("the token of a share is none"))?,
            count: r.small()?,
            change: r.number()?,
            ends_ms: r.number()?,
        }),
        _ => return Err(Damaged("a share neither stands in line nor is held")),
    };
    if r.is_at_end() { Ok(part) } else { Err(Damaged("something follows the end of a share")) }
}
