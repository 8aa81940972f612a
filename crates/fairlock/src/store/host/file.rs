//! The open file: carries out each operation as one transaction, which reads the lock's row, runs the
//! core's state machine and writes the row. Also lists the locks, and removes rows that nobody uses.

use super::boot::Boot;
use super::folder::Folder;
use super::line::Locked;
use super::patience::{patiently, seldom};
use super::rows::{Cached, Loaded};
use super::schema::{self, Schema};
use super::turns::{Turn, Turns};
use super::users::User;
use super::views::{Apart, Views};
use super::{codec, fault, forks, opening};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use fairlock_core::{
    Answer, ClientId, Effect, LockName, LockState, Op, OwnerId, Rules, Snapshot, World,
};
use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, params};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An unused lock stays in the file for at least this many milliseconds, so that its last token can
/// be inspected and its row need not be created again.
const IDLE_KEPT_MS: u64 = 60_000;

/// One in `SWEEP_EACH` new rows, on average, triggers a sweep that examines `SWEEP_ROWS` rows for
/// idle locks. That is four examined rows for each new one, so the file has at most about a quarter
/// more rows than are in use.
pub(super) const SWEEP_EACH: u64 = 32;
const SWEEP_ROWS: u32 = 128;

/// A call that may wait for less than this long does not stand in line, but gives up if others do.
const LINE_MIN: Duration = Duration::from_millis(1);

/// How a file is used.
#[derive(Clone, Debug)]
pub(crate) struct OpenOptions {
    /// The members of the folder's group share the file; otherwise it is for one user.
    pub(crate) shared_with_group: bool,
    /// Longest wait for another process that has the file locked. Calls block their thread
    /// meanwhile.
    pub(crate) busy: Duration,
    /// Whether a missing file is created.
    pub(crate) create: bool,
}

impl OpenOptions {
    pub(super) fn file_mode(&self) -> u32 {
        if self.shared_with_group { 0o660 } else { 0o600 }
    }
}

/// One connection to the file. Calls block their thread: a transaction for at most
/// [`OpenOptions::busy`] plus the time that the disk takes.
///
/// It must be neither used nor dropped in a forked child.
pub(crate) struct HostFile {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    /// To notice that the file, its log or its index was replaced.
    views: Views,
    /// The folder of its clients, beside it.
    folder: Arc<Folder>,
    /// Whose turn it is to write, within this process.
    turns: Arc<Turns>,
    /// Held while the file is open: see [`users`](super::users).
    user: User,
    /// Whether its user has left.
    closed: bool,
    schema: Schema,
    boot: Boot,
    /// Host time when the machine was started, in microseconds since 1970.
    epoch_us: u64,
    /// Held while this boot is in use: see [`opening`].
    #[allow(dead_code, reason = "its lock counts")]
    in_use: File,
    /// Dropped after the connection.
    #[allow(dead_code, reason = "its end counts")]
    in_process: forks::User,
    pub(super) busy: Duration,
    /// Whether the log's header is taken care of: it exists, or SQLite will write it.
    has_log: bool,
    pub(super) cache: HashMap<LockName, Cached>,
    /// The table of shares is known to exist, or was made in this transaction.
    pub(super) has_shares: Cell<bool>,
    /// A table was made in this transaction. Its pages are written to the file at once, so that a full
    /// disk cannot prevent the log from being written back.
    pub(super) has_grown: Cell<bool>,
    /// The disk was full when this transaction was written.
    full: Cell<bool>,
    /// Host time, if a test has stopped it.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) stopped_us: Option<u64>,
}

/// Names of locks, and where to continue.
#[derive(Debug)]
pub(crate) struct Names {
    /// Locks that are held or waited for, or became free recently.
    pub(crate) names: Vec<LockName>,
    /// The name to continue after; `None` at the end.
    pub(crate) next: Option<LockName>,
}

impl HostFile {
    /// Opens the file; creates it if it is missing.
    ///
    /// # Errors
    /// The location cannot be trusted, the file is not a store of ours, or somebody keeps it
    /// locked. Nothing that exists is changed then.
    pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        opening::open(path, options, Boot::here()?, schema::CURRENT).map_err(|error| error.error)
    }

    pub(super) fn new(opened: opening::Opened) -> Self {
        let opening::Opened {
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
        } = opened;
        Self {
            db,
            path,
            turns: Turns::before(views.ids().file()),
            views,
            folder,
            user,
            closed: false,
            schema,
            boot,
            epoch_us,
            in_use,
            in_process,
            busy,
            has_log: false,
            cache: HashMap::new(),
            has_shares: Cell::new(false),
            has_grown: Cell::new(false),
            full: Cell::new(false),
            #[cfg(feature = "_testkit")]
            #[cfg(test)]
            stopped_us: None,
        }
    }

    /// Host time, approximately in microseconds since 1970. It is the same for all processes of the
    /// host, changes of the wall clock do not affect it, and it never goes back, not even across
    /// reboots.
    pub(crate) fn now_us(&self) -> u64 {
        #[cfg(feature = "_testkit")]
        #[cfg(test)]
        if let Some(stopped) = self.stopped_us {
            return stopped;
        }
        self.epoch_us.saturating_add(self.boot.since_us())
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the file's clients.
    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Closes the file; every call is refused until it is [opened again](Self::open_again). The
    /// last user to leave removes the log.
    pub(crate) fn close(&mut self) {
        if self.closed {
            return;
        }
        // The field needs some connection.
        let Ok(nothing) = Connection::open_in_memory() else { return };
        self.closed = true;
        let db = std::mem::replace(&mut self.db, nothing);
        self.user.leave(&self.path, &self.folder, || drop(db));
        let _ = rustix::fs::flock(&self.in_use, rustix::fs::FlockOperation::Unlock);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Opens the file again after [`close`](Self::close).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_again(&mut self, options: &OpenOptions) -> Result<(), Error> {
        let options = OpenOptions { create: false, ..options.clone() };
        *self = Self::open(&self.path, &options)?;
        Ok(())
    }

    /// Carries out `op` in one transaction. The caller must deliver the effects; there are none
    /// unless the operation was committed.
    ///
    /// # Errors
    /// The core refuses the operation ([`ErrorKind::WrongType`]), SQLite fails, or the row is
    /// damaged ([`ErrorKind::Protocol`]). Nothing is changed then, unless the error has `doubt`.
    pub(crate) fn apply(
        &mut self,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Result<(Answer, Vec<Effect>), StoreError> {
        self.apply_seeing(name, op, rules, world, |_| {})
    }

    /// Like [`apply`](Self::apply); `see` gets the lock as it was before, unless `op` grants and ends nothing.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn apply_seeing(
        &mut self,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
        see: impl FnOnce(&LockState),
    ) -> Result<(Answer, Vec<Effect>), StoreError> {
        match op {
            Op::Inspect { .. } | Op::Place { .. } | Op::Leader => {
                return self.look(name, op, rules, world);
            }
            Op::Announce(_) => return self.announce_leader(name, op, rules, world),
            _ => {}
        }
        let (done, cached) = self.transaction(|file| {
            let mut lock = file.load(name)?;
            see(&lock.state);
            let now_us = file.now_us();
            let done = lock
                .state
                .apply(now_us, op, rules, world)
                .map_err(|error| fault::of_core(&file.path, name, &error))?;
            Ok((done, file.store(name, now_us, lock)?))
        })?;
        self.keep(name, cached);
        Ok(done)
    }

    /// Answers a heartbeat that finds nothing to do ([`LockState::quiet_beat`]), without writing
    /// and without delaying writers. `None`: it must be applied.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn beat_quietly(
        &mut self,
        name: &LockName,
        (client, waiters): (ClientId, &[OwnerId]),
        rules: &Rules,
        world: &dyn World,
        kept_ms: u64,
    ) -> Result<Option<Answer>, StoreError> {
        let lock = self.peek(name)?;
        let now_us = self.now_us();
        let answer = lock.state.quiet_beat(now_us, client, waiters, rules, world, kept_ms);
        self.keep_loaded(name, lock);
        Ok(answer)
    }

    /// The lock as the last operation on this connection left it, if it was held or waited for
    /// then.
    pub(crate) fn known(&self, name: &LockName) -> Option<&LockState> {
        self.cache.get(name).map(|cached| &cached.state)
    }

    /// Sets how long calls wait from now on for another process that has the file locked.
    pub(crate) fn wait_at_most(&mut self, busy: Duration) {
        self.busy = busy;
    }

    /// Whether the file can be read.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn ping(&self) -> Result<(), StoreError> {
        self.check()
    }

    /// At most `limit` locks in the file, in the order of their names, starting after `after`.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn names(
        &mut self,
        after: Option<&LockName>,
        limit: u32,
    ) -> Result<Names, StoreError> {
        let after = after.map_or(&[][..], LockName::as_bytes);
        let rows = self.read(|file| {
            let sql = "SELECT name FROM lock WHERE name > ?1 ORDER BY name LIMIT ?2";
            let mut statement = file.db.prepare_cached(sql)?;
            let rows =
                statement.query_map(params![after, limit], |row| row.get::<_, Vec<u8>>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let more = rows.len() as u64 == u64::from(limit);
        let names = rows.iter().map(|name| LockName::new(name)).collect::<Result<Vec<_>, _>>();
        let names = names.map_err(|_| self.damaged("a lock has no legal name"))?;
        let next = names.last().filter(|_| more).cloned();
        Ok(Names { names, next })
    }

    /// Carries out an operation that changes nothing, without locking the file or writing to it.
    fn look(
        &mut self,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Result<(Answer, Vec<Effect>), StoreError> {
        let mut lock = self.peek(name)?;
        if matches!(op, Op::Leader) {
            lock.state.set_leader(self.read(|file| file.leader(name))?);
        }
        let now_us = self.now_us();
        let done = lock
            .state
            .apply(now_us, op, rules, world)
            .map_err(|error| fault::of_core(&self.path, name, &error));
        lock.state.set_leader(None);
        // The copy lacks what has expired meanwhile, which is harmless: it would expire again.
        self.keep_loaded(name, lock);
        done
    }

    /// Runs `work` in a transaction, while nobody else writes.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let turns = Arc::clone(&self.turns);
        let Some((turn, left)) = turns.wait(self.busy) else {
            return Err(fault::busy(&self.path, self.busy));
        };
        if !std::mem::replace(&mut self.has_log, true) {
            self.check_place()?;
            opening::begin_log(&self.db, &self.path).map_err(|error| self.failed(&error))?;
        }
        // Given back after the commit.
        let _place = self.begin(&turn, left)?;
        let done = self.check().and_then(|()| work(self));
        let committed = match done {
            Ok(value) => match execute(&self.db, "COMMIT") {
                Ok(()) => {
                    if self.has_grown.take() {
                        self.write_back();
                    }
                    return Ok(value);
                }
                Err(error) => Err(self.failed_in(&error, true)),
            },
            Err(error) => Err(error),
        };
        self.roll_back();
        if self.full.take() {
            // Once the whole log is written back, it starts over: the next attempt overwrites it,
            // and needs space only for new locks.
            self.write_back();
        }
        committed
    }

    /// Writes the log back to the file. If a concurrent user is in the way, that happens later.
    fn write_back(&self) {
        let _ = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Begins a transaction, within `left`. If another process has the file, this one stands in
    /// line: of many processes, only the first retries. Returns the place in the line, if it has
    /// one.
    fn begin(&mut self, turn: &Turn<'_>, left: Duration) -> Result<Option<Locked>, StoreError> {
        if !self.db.is_autocommit() {
            // A panic has left it open.
            self.roll_back();
        }
        let begin = || execute(&self.db, "BEGIN IMMEDIATE");
        match begin() {
            Ok(()) => return Ok(None),
            Err(error) if fault::is_busy(&error) => {}
            Err(error) => return Err(fault::of(&self.path, &error, false)),
        }
        let until = Moment::now().plus(left);
        let in_line = if left < LINE_MIN { Duration::ZERO } else { left / 2 };
        match turn.processes().wait(|| self.folder.open_line(), in_line) {
            Ok(place) => patiently(&self.path, until.left(), begin).map(|()| Some(place)),
            Err(Errno::WOULDBLOCK) if in_line.is_zero() => Err(fault::busy(&self.path, left)),
            // It tries anyway: a child of a killed process may have inherited the place in the
            // line, or no thread can be started.
            Err(_) => seldom(&self.path, until.left(), begin).map(|()| None),
        }
    }

    fn roll_back(&mut self) {
        self.has_shares.set(false);
        self.has_grown.set(false);
        // Some errors have already done it. The cache contains only what was committed.
        if !self.db.is_autocommit() {
            let _ = execute(&self.db, "ROLLBACK");
        }
    }

    /// Runs one statement that only reads.
    pub(super) fn read<T>(
        &self,
        work: impl Fn(&Self) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.check()?;
        patiently(&self.path, self.busy, || work(self))
    }

    /// Checks that the path still leads to this file, and that nobody has changed its schema.
    fn check(&self) -> Result<(), StoreError> {
        self.check_place()?;
        let version = patiently(&self.path, self.busy, || self.version())?;
        self.check_version(version)
    }

    fn check_place(&self) -> Result<(), StoreError> {
        if self.closed {
            return Err(StoreError::refused(Error::closed()));
        }
        self.views.look(&self.folder).map_err(|apart| self.replaced(apart))
    }

    #[cold]
    fn replaced(&self, apart: Apart) -> StoreError {
        let rest = if apart == Apart::File {
            "the file was removed or replaced while it was in use; connect again to use what is there now"
        } else {
            "this part of the file was removed or replaced while it was in use, so that its users would not \
             see each other's locks; nothing more is written. End them all, then connect again"
        };
        let message = format!("{}{}: {rest}", self.path.display(), apart.ending());
        StoreError::refused(Error::new(ErrorKind::Unavailable, message))
    }

    fn version(&self) -> rusqlite::Result<i32> {
        self.db.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
    }

    fn check_version(&self, version: i32) -> Result<(), StoreError> {
        if version != self.schema.version {
            let looked = schema::look(&self.db, &self.path, &self.schema);
            looked.map_err(|error| self.failed(&error))??;
            return Err(self.damaged("its schema was changed while it was in use"));
        }
        Ok(())
    }

    pub(super) fn prepared(&self, sql: &str) -> Result<CachedStatement<'_>, StoreError> {
        self.db.prepare_cached(sql).map_err(|error| self.failed(&error))
    }

    pub(super) fn failed(&self, error: &rusqlite::Error) -> StoreError {
        self.failed_in(error, false)
    }

    fn failed_in(&self, error: &rusqlite::Error, commit: bool) -> StoreError {
        self.full.set(error.sqlite_error_code() == Some(ErrorCode::DiskFull));
        fault::of(&self.path, error, commit)
    }

    fn damaged(&self, what: &str) -> StoreError {
        fault::damaged(&self.path, what)
    }

    /// The lock as it is in the file, for reading.
    fn peek(&mut self, name: &LockName) -> Result<Loaded, StoreError> {
        self.check_place()?;
        let version = Cell::new(None);
        // Read while the row is read, so that both belong to one transaction.
        let found = self.find(name, |file| {
            version.set(Some(file.version()?));
            Ok(())
        })?;
        match version.get() {
            Some(version) => self.check_version(version)?,
            None => self.check()?,
        }
        self.decoded(name, found)
    }

    /// The state in the row, without the cache.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn state_of(&mut self, name: &LockName) -> Result<LockState, StoreError> {
        self.cache.remove(name);
        self.peek(name).map(|lock| lock.state)
    }

    /// Makes this the lock's state.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(crate) fn put(&mut self, name: &LockName, state: &LockState) -> Result<(), StoreError> {
        self.transaction(|file| {
            let lock = file.load(name)?;
            let state = state.clone();
            file.store(name, file.now_us(), Loaded { state, ..lock }).map(drop)
        })
    }

    /// Forgets locks that have long been unused, some at a time. Each call continues where the last
    /// one ended, whichever process made it.
    pub(super) fn sweep(&self, now_us: u64) -> rusqlite::Result<()> {
        let db = &self.db;
        let cursor: Option<Vec<u8>> = value(db, "sweep")?;
        let cursor = cursor.unwrap_or_default();
        let (rows, last): (u32, Option<Vec<u8>>) = db
            .prepare_cached(
                "SELECT count(*), max(name)
                 FROM (SELECT name FROM lock WHERE name > ?1 ORDER BY name LIMIT ?2)",
            )?
            .query_row(params![cursor, SWEEP_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let last = last.unwrap_or_default();
        let before_ms = (now_us / 1_000).saturating_sub(IDLE_KEPT_MS).cast_signed();
        let gone = db
            .prepare_cached("DELETE FROM lock WHERE name > ?1 AND name <= ?2 AND idle_ms < ?3")?
            .execute(params![cursor, last, before_ms])?;
        // Starts over after the end, even if new names are added there faster than this reads them.
        set_value(db, "sweep", if rows < SWEEP_ROWS { &[][..] } else { &last })?;
        if gone > 0 {
            // Their tokens are gone with them. Time continues the series, so it must not go back.
            set_value(db, "floor_us", now_us.cast_signed())?;
        }
        Ok(())
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        self.close();
    }
}

/// When the row can be removed without losing anything, in milliseconds; `None` while the lock is
/// in use. Everything in an idle lock except its token expires, and the next token comes from the
/// time.
pub(super) fn idle_ms(state: &LockState, now_us: u64) -> Option<u64> {
    let k = state.snapshot();
    let rest = [k.state_expires, k.beats_expires, k.scores_expires, Some(now_us / 1_000)];
    let token = k.token.unwrap_or(0) / 1_000 + 1;
    state.is_idle().then(|| rest.into_iter().flatten().fold(token, u64::max))
}

/// What a lock keeps across a reboot: its token.
pub(super) fn after_reboot(keys: &Snapshot) -> Snapshot {
    Snapshot { token: keys.token, token_expires: keys.token_expires, ..Snapshot::default() }
}

pub(super) fn row_of(name: &LockName, keys: Snapshot, now_us: u64) -> (Vec<u8>, Option<i64>) {
    let mut bytes = Vec::new();
    codec::encode(name, &keys, None, &mut bytes);
    (bytes, idle_ms(&LockState::from_snapshot(keys), now_us).map(u64::cast_signed))
}

/// The value of `key` in the table `fairlock`.
pub(super) fn value<T: rusqlite::types::FromSql>(
    db: &Connection,
    key: &str,
) -> rusqlite::Result<Option<T>> {
    let mut statement = db.prepare_cached("SELECT value FROM fairlock WHERE key = ?1")?;
    statement.query_row([key], |row| row.get(0)).optional()
}

pub(super) fn set_value(
    db: &Connection,
    key: &str,
    value: impl rusqlite::ToSql,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO fairlock (key, value) VALUES (?1, ?2)
               ON CONFLICT (key) DO UPDATE SET value = ?2";
    db.prepare_cached(sql)?.execute(params![key, value]).map(drop)
}

pub(super) fn execute(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}
