//! A store file in a folder of its own, and operations on it.

use super::super::boot::Boot;
use super::super::schema::{self, Schema};
use super::super::{HostFile, OpenOptions, opening};
use crate::store::StoreError;
use fairlock_core::{
    Acquire, Answer, Body, ClientId, Effect, Kind, LockName, Mode, Op, OwnerId, RequestId, Rules,
    Share, ShareAcquire, Snapshot, Token, World,
};
use fairlock_testkit::tempdir::TempDir;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long tests wait for a locked file. Others have it locked for seconds when the disk is busy.
pub(super) const BUSY: Duration = Duration::from_secs(60);

/// No lease ends while a busy machine stands still.
pub(super) const LEASE_MS: u64 = 600_000;

/// A world in which everybody listens.
#[derive(Debug)]
pub(super) struct Everybody;

impl World for Everybody {
    fn inbox(&self, _: ClientId) -> bool {
        true
    }

    fn listening(&self, _: &OwnerId) -> bool {
        true
    }
}

pub(super) struct Fixture {
    pub(super) dir: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self { dir: TempDir::new() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("locks")
    }

    pub(super) fn open(&self) -> HostFile {
        open(&self.path()).unwrap()
    }
}

pub(super) fn options() -> OpenOptions {
    OpenOptions { shared_with_group: false, busy: BUSY, create: true }
}

/// For what is refused only after others were waited for.
pub(super) fn open_hastily(path: &Path) -> Result<HostFile, crate::Error> {
    HostFile::open(path, &OpenOptions { busy: Duration::from_secs(2), ..options() })
}

pub(super) fn open(path: &Path) -> Result<HostFile, crate::Error> {
    HostFile::open(path, &options())
}

/// Opens it as another version of the program would, or after another boot of the machine.
pub(super) fn open_as(path: &Path, boot: Boot, schema: Schema) -> Result<HostFile, StoreError> {
    opening::open(path, &options(), boot, schema)
}

pub(super) fn open_in(path: &Path, boot: &Boot) -> Result<HostFile, StoreError> {
    open_as(path, boot.clone(), schema::CURRENT)
}

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text.as_bytes()).unwrap()
}

pub(super) fn client(number: u64) -> ClientId {
    ClientId::from_random(u128::from(number + 1) << 96)
}

/// Owner `number`; each has a client of its own.
pub(super) fn owner(number: u64) -> OwnerId {
    OwnerId::ours(client(number), 1).unwrap()
}

pub(super) fn request(number: u64) -> RequestId {
    RequestId::from_random(u128::from(number))
}

pub(super) fn acquire(number: u64, mode: Mode) -> Op {
    Op::Acquire(Acquire {
        kind: Kind::Fair,
        owner: owner(number),
        request: request(number),
        lease_ms: LEASE_MS,
        mode,
        order: None,
        not_after_ms: u64::MAX,
        sure: true,
        shared_owner: false,
    })
}

/// Asks for a share of a read-write lock, or of a semaphore.
pub(super) fn ask(number: u64, share: Share, mode: Mode) -> Op {
    let Op::Acquire(mut acquire) = acquire(number, mode) else { unreachable!() };
    acquire.kind =
        if matches!(share, Share::Permits { .. }) { Kind::Semaphore } else { Kind::ReadWrite };
    Op::AcquireShare(Box::new(ShareAcquire { acquire, share }))
}

pub(super) fn release(number: u64, token: Token) -> Op {
    Op::Release { kind: Kind::Fair, owner: owner(number), token, keep: 0, change: 0 }
}

pub(super) fn inspect() -> Op {
    Op::Inspect { kind: Kind::Fair, limit: 100 }
}

pub(super) fn apply(
    file: &mut HostFile,
    lock: &str,
    op: &Op,
) -> Result<(Answer, Vec<Effect>), StoreError> {
    file.apply(&name(lock), op, &Rules::default(), &Everybody)
}

pub(super) fn body(file: &mut HostFile, lock: &str, op: &Op) -> Body {
    apply(file, lock, op).unwrap().0.body
}

/// Takes the free lock.
pub(super) fn take(file: &mut HostFile, lock: &str, number: u64) -> Token {
    match body(file, lock, &acquire(number, Mode::Try)) {
        Body::Granted { token, .. } => token,
        other => panic!("{lock}: {other:?}"),
    }
}

/// The stored state of a lock.
pub(super) fn state(file: &mut HostFile, lock: &str) -> Snapshot {
    file.state_of(&name(lock)).unwrap().snapshot().clone()
}

/// A lock's raw row.
pub(super) fn row(file: &HostFile, lock: &str) -> (i64, Vec<u8>) {
    let sql = "SELECT change, state FROM lock WHERE name = ?1";
    file.db.query_row(sql, [lock.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}
