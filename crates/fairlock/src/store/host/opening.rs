//! Opening: from a path to a file of the right version in the right boot.

use super::boot::Boot;
use super::codec::Damaged;
use super::file::{self, HostFile, OpenOptions, set_value, value};
use super::folder::Folder;
use super::patience::{OTHERS_PAUSE, for_others, patiently};
use super::schema::{self, Found, Schema};
use super::users::{self, User};
use super::views::Views;
use super::{clients, codec, fault, folder, forks, parts, place};
use crate::base::clock::{Moment, lock};
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use fairlock_core::LockName;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Only one thread of this process opens a file at a time: a file that was just created is closed
/// before SQLite opens it, which would drop the locks that another thread has taken on it
/// meanwhile.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Pages of the log (4 MB) after which it is written back into the file, with two calls of `fsync`.
/// 250 to 16 000 were measured: 1 000 gives the most operations a second.
const CHECKPOINT_PAGES: u32 = 1_000;

/// Files of up to this many pages (4 MB) are checked completely when they are opened, which takes
/// some 10 ms at most.
const CHECKED_PAGES_MAX: u32 = 1_000;

/// Enough for all statements to stay prepared.
const STATEMENTS: usize = 32;

/// The year 2200. Host time never goes back, and the tokens that follow it end in the year 2255
/// (2^53 us). A wall clock that shows more is wrong, and believing it once would leave the file
/// without tokens for good.
const WALL_MAX: Duration = Duration::from_secs(7_258_118_400);

/// How many locks are freed at a time after a reboot.
const REBOOT_ROWS: u32 = 1_000;

/// A file that is ready for use.
pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    pub(super) views: Views,
    pub(super) folder: Arc<Folder>,
    pub(super) user: User,
    pub(super) schema: Schema,
    pub(super) boot: Boot,
    pub(super) epoch_us: u64,
    pub(super) in_use: File,
    pub(super) busy: Duration,
    pub(super) in_process: forks::User,
}

pub(super) fn open(
    path: &Path,
    options: &OpenOptions,
    boot: Boot,
    schema: Schema,
) -> Result<HostFile, StoreError> {
    let in_process = forks::User::new().map_err(StoreError::refused)?;
    let _one = lock(&ONE_AT_A_TIME);
    let path = place::prepare(path, options).map_err(StoreError::refused)?;
    let busy = options.busy;
    let folder = Arc::new(Folder::open(&path, options).map_err(StoreError::refused)?);
    let users::Entered { db, views, user } = users::enter(&path, options, &folder, &schema)?;
    match make_ready(&db, &path, options, &boot, &schema) {
        Ok((in_use, epoch_us)) => Ok(HostFile::new(Opened {
            db,
            path,
            views,
            folder,
            user,
            schema,
            boot,
            epoch_us,
            in_use,
            busy,
            in_process,
        })),
        Err(error) => {
            user.leave(&path, &folder, || drop(db));
            Err(error)
        }
    }
}

/// Brings the file to this version and this boot. Returns the boot's lock file and epoch.
fn make_ready(
    db: &Connection,
    path: &Path,
    options: &OpenOptions,
    boot: &Boot,
    schema: &Schema,
) -> Result<(File, u64), StoreError> {
    let busy = options.busy;
    patiently(path, busy, || set_up(db))?;
    bring(db, path, busy, schema)?;
    check_whole(db, path, busy)?;
    let in_use = place::beside(path, "-boot", options).map_err(StoreError::refused)?;
    let epoch_us = enter_boot(db, path, busy, boot, &in_use)?;
    Ok((in_use, epoch_us))
}

/// Connects SQLite to the file, if it is ours or empty, and to its log and index, which SQLite
/// creates and opens at the first read.
pub(super) fn connect_log(
    path: &Path,
    busy: Duration,
    schema: &Schema,
) -> Result<Connection, StoreError> {
    let db = connect(path).map_err(|error| fault::of(path, &error, false))?;
    if db.is_readonly("main").map_err(|error| fault::of(path, &error, false))? {
        return Err(read_only(path));
    }
    if patiently(path, busy, || schema::look(&db, path, schema))?? == Found::Empty
        || journal(&db, path, busy)? != "wal"
    {
        start_log(&db, path, busy)?;
        patiently(path, busy, || schema::look(&db, path, schema))??;
    }
    Ok(db)
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags)?;
    // We wait ourselves, in shorter steps.
    db.busy_timeout(Duration::ZERO)?;
    Ok(db)
}

fn set_up(db: &Connection) -> rusqlite::Result<()> {
    wait_for_disk(db, true)?;
    // Others who can write to the file must not make this process do more than read and write it.
    db.pragma_update(None, "trusted_schema", false)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.pragma_update(None, "cell_size_check", true)?;
    db.query_row(&format!("PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"), [], |_| Ok(()))
}

/// A crash of a process loses nothing. A power failure may lose the latest operations, but it ends the boot, which frees
/// everything anyway. The file stays intact if it is written with `wait`.
fn wait_for_disk(db: &Connection, wait: bool) -> rusqlite::Result<()> {
    db.pragma_update(None, "synchronous", if wait { "NORMAL" } else { "OFF" })
}

/// Writes the header of an empty log. SQLite would do so with the first change and wait for the disk, so that after a
/// power failure older changes in the log are not taken for newer ones. An empty log has no older changes, and since
/// the last user removes the log, each first user would pay for that wait.
///
/// What fails here fails again, and is reported, when something is written.
pub(super) fn begin_log(db: &Connection, path: &Path) -> rusqlite::Result<()> {
    let log = place::named(path, "-wal");
    let is_empty = || std::fs::metadata(&log).is_ok_and(|log| log.len() == 0);
    if !is_empty() {
        return Ok(());
    }
    let begin = || {
        wait_for_disk(db, false)?;
        file::execute(db, "BEGIN IMMEDIATE")?;
        // From here on nobody else writes.
        if is_empty() {
            schema::mark(db)?;
        }
        file::execute(db, "COMMIT")
    };
    if begin().is_err() && !db.is_autocommit() {
        let _ = file::execute(db, "ROLLBACK");
    }
    wait_for_disk(db, true)
}

/// A damaged page could hide a lock, which would then be free for everyone. Files of common size
/// are checked for what SQLite can find by itself; the rows have checksums of their own.
fn check_whole(db: &Connection, path: &Path, busy: Duration) -> Result<(), StoreError> {
    let pages: u32 =
        patiently(path, busy, || db.pragma_query_value(None, "page_count", |row| row.get(0)))?;
    if pages > CHECKED_PAGES_MAX {
        return Ok(());
    }
    let said: String =
        patiently(path, busy, || db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)))?;
    if said == "ok" { Ok(()) } else { Err(fault::damaged(path, said)) }
}

fn journal(db: &Connection, path: &Path, busy: Duration) -> Result<String, StoreError> {
    patiently(path, busy, || db.pragma_query_value(None, "journal_mode", |row| row.get(0)))
}

fn start_log(db: &Connection, path: &Path, busy: Duration) -> Result<(), StoreError> {
    let mode: String = patiently(path, busy, || {
        db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
    })?;
    if mode == "wal" {
        return Ok(());
    }
    let message = format!(
        "{}: the file system cannot share memory between processes (SQLite's WAL mode); use another \
         folder",
        path.display()
    );
    Err(StoreError::refused(Error::misuse(message)))
}

fn bring(db: &Connection, path: &Path, busy: Duration, schema: &Schema) -> Result<(), StoreError> {
    let found = patiently(path, busy, || schema::look(db, path, schema))??;
    if found == Found::Ours(schema.version) {
        return Ok(());
    }
    patiently(path, busy, || file::execute(db, "BEGIN IMMEDIATE"))?;
    let done = schema::bring(db, path, schema)
        .map_err(|error| fault::of(path, &error, false))
        .and_then(|brought| brought);
    finish(db, path, done)?;
    // Writes the tables' own pages to the file, so that a full disk cannot prevent the log from
    // being written back. If a concurrent user is in the way, that happens later.
    let _ = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    Ok(())
}

/// Commits on success, otherwise rolls back.
fn finish<T>(db: &Connection, path: &Path, done: Result<T, StoreError>) -> Result<T, StoreError> {
    let committed = done.and_then(|value| match file::execute(db, "COMMIT") {
        Ok(()) => Ok(value),
        Err(error) => Err(fault::of(path, &error, false)),
    });
    if !db.is_autocommit() {
        let _ = file::execute(db, "ROLLBACK");
    }
    committed
}

/// Makes sure that the file belongs to this boot, and returns the epoch of its host time.
///
/// Everyone who has the file open holds a shared lock on the file `in_use`. So nobody takes over a
/// file from another boot while it is in use: some containers report a boot of their own on the
/// same host, and what looks like a reboot there is none.
fn enter_boot(
    db: &Connection,
    path: &Path,
    busy: Duration,
    boot: &Boot,
    in_use: &File,
) -> Result<u64, StoreError> {
    let until = Moment::now().plus(for_others(busy));
    loop {
        let known = || {
            let known = patiently(path, busy, || known_epoch(db, boot))?;
            known.map_err(|damage| fault::damaged(path, damage.0))
        };
        if known()?.is_some() {
            if flock(in_use, FlockOperation::NonBlockingLockShared).is_ok()
                // Nobody changes the epoch from now on.
                && let Some(epoch_us) = known()?
            {
                return Ok(epoch_us);
            }
        } else if flock(in_use, FlockOperation::NonBlockingLockExclusive).is_ok()
            && !is_lived_in(path)
        {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            if wall > WALL_MAX {
                return Err(wrong_clock(path));
            }
            patiently(path, busy, || file::execute(db, "BEGIN IMMEDIATE"))?;
            let begun = begin_boot(db, boot, wall).map_err(|error| fault::of(path, &error, false));
            finish(db, path, begun)?;
            // The shared lock is taken in a second step; others may have the lock in between.
            let _ = flock(in_use, FlockOperation::Unlock);
            continue;
        }
        // The file is in use, or a client or command that does not have it open is still alive.
        // Others must not wait for this process.
        let _ = flock(in_use, FlockOperation::Unlock);
        if Moment::now() >= until {
            let boot = patiently(path, busy, || value::<String>(db, "boot"))?;
            let is_new = boot.as_deref() == Some(schema::NO_BOOT);
            return Err(if is_new { other_file(path) } else { other_boot(path) });
        }
        std::thread::sleep(OTHERS_PAUSE);
    }
}

/// Whether a client is alive, or a command that outlives it: each holds the kernel's lock on a file
/// of its own in the folder beside the store. Files left from before a restart of the machine are
/// not locked.
pub(super) fn is_lived_in(path: &Path) -> bool {
    let found = match std::fs::read_dir(place::named(path, "-clients")) {
        Ok(found) => found,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    found.filter_map(Result::ok).map(|entry| entry.path()).any(|entry| {
        entry.extension().is_some_and(|ending| ending == folder::ALIVE || ending == folder::LEFT)
            && match rustix::fs::open(&entry, flags, Mode::empty()) {
                Ok(fd) => {
                    flock(&fd, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
                }
                // It has just gone, or is not ours. Any other error, such as a lack of descriptors,
                // proves nothing.
                Err(error) => !matches!(error, Errno::NOENT | Errno::LOOP | Errno::NXIO),
            }
    })
}

/// The epoch, if the file belongs to this boot. Inner error: the entry that states it is damaged.
fn known_epoch(db: &Connection, boot: &Boot) -> rusqlite::Result<Result<Option<u64>, Damaged>> {
    let said: Option<String> = value(db, "boot")?;
    if said.as_deref() == Some(schema::NO_BOOT) {
        return Ok(Ok(None));
    }
    let said = said.unwrap_or_default();
    let read = || {
        let (id, rest) = said.split_once(' ')?;
        let epoch_us = rest.split_once(' ')?.0.parse().ok()?;
        (said_of_boot(id, epoch_us) == said).then_some((id, epoch_us))
    };
    let Some((id, epoch_us)) = read() else {
        return Ok(Err(Damaged("what it says of the machine's last start is missing or wrong")));
    };
    Ok(Ok((id == boot.id).then_some(epoch_us)))
}

/// The boot, its epoch, and a checksum: a wrong epoch would end all leases.
fn said_of_boot(id: &str, epoch_us: u64) -> String {
    let text = format!("{id} {epoch_us}");
    let sum = codec::crc32c(!0, text.as_bytes());
    format!("{text} {sum:08x}")
}

/// Frees everything that an earlier boot left, and chooses the epoch: by the wall clock, but later
/// than any time recorded in the file.
fn begin_boot(db: &Connection, boot: &Boot, wall: Duration) -> rusqlite::Result<()> {
    if known_epoch(db, boot)?.is_ok_and(|epoch| epoch.is_some()) {
        return Ok(());
    }
    let floor: i64 = value(db, "floor_us")?.unwrap_or(0);
    let change: Option<i64> = db.query_row("SELECT max(change) FROM lock", [], |row| row.get(0))?;
    let seen_us = floor.max(change.unwrap_or(0)).cast_unsigned();
    let now_us = u64::try_from(wall.as_micros()).unwrap_or(0).max(seen_us + 1);
    free_all(db, now_us)?;
    parts::clear(db)?;
    db.execute("DELETE FROM client", [])?;
    clients::forget_leases(db)?;
    set_value(db, "floor_us", now_us.cast_signed())?;
    set_value(db, "boot", said_of_boot(&boot.id, now_us.saturating_sub(boot.since_us())))
}

/// Keeps only the token of every lock. An unreadable row stays: those who want that lock get an
/// error.
fn free_all(db: &Connection, now_us: u64) -> rusqlite::Result<()> {
    let mut after = Vec::new();
    loop {
        let rows: Vec<(Vec<u8>, Vec<u8>)> = db
            .prepare_cached("SELECT name, state FROM lock WHERE name > ?1 ORDER BY name LIMIT ?2")?
            .query_map(params![after, REBOOT_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after.clone_from(last);
        for (name, state) in rows {
            let Ok(name) = LockName::new(&name) else { continue };
            let Ok(keys) = codec::decode(&name, &state) else { continue };
            let kept = file::after_reboot(&keys);
            if kept == keys {
                continue;
            }
            let (state, idle_ms) = file::row_of(&name, kept, now_us);
            let sql = "UPDATE lock SET change = ?2, idle_ms = ?3, state = ?4 WHERE name = ?1";
            let change = now_us.cast_signed();
            db.prepare_cached(sql)?.execute(params![name.as_bytes(), change, idle_ms, state])?;
        }
    }
}

#[cold]
fn wrong_clock(path: &Path) -> StoreError {
    let message = format!(
        "{}: the machine's clock shows a time after the year 2200, from which the store would take its own time \
         for good; nothing was changed. Set the clock, then try again",
        path.display()
    );
    StoreError::refused(Error::new(ErrorKind::Unavailable, message))
}

#[cold]
fn read_only(path: &Path) -> StoreError {
    let message =
        format!("{}: the file or its file system is read-only for this program", path.display());
    StoreError::refused(Error::new(ErrorKind::Denied, message))
}

/// The file is new, but has users.
#[cold]
fn other_file(path: &Path) -> StoreError {
    let message = format!(
        "{}: the file is new, but programs use one that was there before it: that was removed or replaced \
         while it was in use; locks cannot be shared with them. End them, then try again",
        path.display()
    );
    StoreError::refused(Error::new(ErrorKind::Unavailable, message))
}

#[cold]
fn other_boot(path: &Path) -> StoreError {
    let message = format!(
        "{}: the file is in use by programs that see another boot of the machine than this one, as in \
         a container with a boot_id of its own; locks cannot be shared with them by a file",
        path.display()
    );
    StoreError::refused(Error::new(ErrorKind::Unavailable, message))
}
