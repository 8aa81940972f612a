//! The file and what SQLite keeps beside it, and whether their names still lead to them.

use super::folder::Folder;
use super::place;
use crate::store::StoreError;
use rustix::fs::Stat;
use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bound for one tick of the kernel's clock for file times, which takes some milliseconds. Only
/// within a tick can a name in the folder be added or removed without changing the folder's times.
const TICK: Duration = Duration::from_millis(100);

/// The same for file systems that record times to the second, or to two seconds.
const COARSE_TICK: Duration = Duration::from_millis(2_100);

/// Which of the three files is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apart {
    File,
    Log,
    Index,
    /// Unknown: `FILE-users` is just changing.
    Users,
}

impl Apart {
    /// The ending of its name.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::File => "",
            Self::Log => "-wal",
            Self::Index => "-shm",
            Self::Users => "-users",
        }
    }
}

const ALL: [Apart; 3] = [Apart::File, Apart::Log, Apart::Index];

/// Device and inode number of file, log and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids([(u64, u64); 3]);

impl Ids {
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    pub(super) fn new(ids: [(u64, u64); 3]) -> Self {
        Self(ids)
    }

    /// The file's.
    pub(super) fn file(&self) -> (u64, u64) {
        self.0[0]
    }

    /// The first of the three whose name leads elsewhere, or nowhere.
    pub(super) fn apart(&self, path: &Path) -> Option<Apart> {
        let at = |what: &Apart| id_at(&place::named(path, what.ending()));
        ALL.into_iter().zip(self.0).find_map(|(what, id)| (at(&what) != Some(id)).then_some(what))
    }

    /// The first of the three in which `other` differs.
    pub(super) fn differs(&self, other: Self) -> Option<Apart> {
        let mut pairs = ALL.into_iter().zip(self.0.into_iter().zip(other.0));
        pairs.find_map(|(what, (one, other))| (one != other).then_some(what))
    }

    /// The log or the index, if it is missing although the file exists.
    pub(super) fn missing(path: &Path) -> Option<Apart> {
        let is_there = |what: Apart| id_at(&place::named(path, what.ending())).is_some();
        if !is_there(Apart::File) {
            return None;
        }
        [Apart::Log, Apart::Index].into_iter().find(|what| !is_there(*what))
    }

    /// Whether log and index were removed.
    pub(super) fn gone(path: &Path) -> bool {
        [Apart::Log, Apart::Index]
            .iter()
            .all(|what| id_at(&place::named(path, what.ending())).is_none())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("fairlock 1 ")?.split(' ').map(|word| {
            let (device, number) = word.split_once(':')?;
            Some((device.parse().ok()?, number.parse().ok()?))
        });
        let ids = Self([words.next()??, words.next()??, words.next()??]);
        (ids.to_string() == text).then_some(ids)
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fairlock 1")?;
        self.0.iter().try_for_each(|(device, number)| write!(f, " {device}:{number}"))
    }
}

/// The files that a user has open.
#[derive(Debug)]
pub(super) struct Views {
    path: PathBuf,
    folder: PathBuf,
    ids: Ids,
    /// The folder as it was when the names were last looked up; `None`: they must be looked up
    /// again.
    seen: Cell<Option<Stamp>>,
}

/// A folder at a moment. While it stays the same, no name in it was added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    id: (u64, u64),
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Views {
    /// What the names lead to now. SQLite has just opened these files.
    pub(super) fn of(path: &Path) -> Result<Self, StoreError> {
        let id = |what: Apart| {
            let name = place::named(path, what.ending());
            rustix::fs::lstat(&name)
                .map(|at| id(&at))
                .map_err(|error| StoreError::refused(place::io_error(&name, &error.into())))
        };
        let ids = Ids([id(Apart::File)?, id(Apart::Log)?, id(Apart::Index)?]);
        let folder = path.parent().unwrap_or(path).to_owned();
        Ok(Self { path: path.to_owned(), folder, ids, seen: Cell::new(None) })
    }

    pub(super) fn ids(&self) -> Ids {
        self.ids
    }

    /// Checks that the names still lead to the open files. Usually that takes one look at the
    /// folder, whose times change when a name is added or removed. If only the clients' folder was
    /// removed or replaced, it is mended: losing its contents costs nothing but time.
    pub(super) fn look(&self, clients: &Folder) -> Result<(), Apart> {
        let now = stamp(&self.folder);
        if now.is_some() && now == self.seen.get() {
            return Ok(());
        }
        self.look_up(now, clients)
    }

    #[cold]
    fn look_up(&self, folder: Option<Stamp>, clients: &Folder) -> Result<(), Apart> {
        // The folder was read before the names, so the next look finds changes in between.
        self.seen.set(folder.filter(Stamp::is_settled));
        match self.ids.apart(&self.path) {
            Some(apart) => {
                self.seen.set(None);
                Err(apart)
            }
            None => {
                if clients.mend().is_err() {
                    // Tried again with the next look.
                    self.seen.set(None);
                }
                Ok(())
            }
        }
    }
}

impl Stamp {
    /// Whether any later change would get a different time. File times follow the wall clock.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        [self.modified, self.changed].into_iter().all(|(seconds, nanos)| {
            let tick = if nanos.is_multiple_of(1_000_000) { COARSE_TICK } else { TICK };
            let at = Duration::new(
                u64::try_from(seconds).unwrap_or(0),
                u32::try_from(nanos).unwrap_or(0),
            );
            at + tick < now
        })
    }
}

fn stamp(folder: &Path) -> Option<Stamp> {
    let at = rustix::fs::stat(folder).ok()?;
    #[allow(clippy::unnecessary_cast, reason = "the types of a stat differ between systems")]
    Some(Stamp {
        id: id(&at),
        modified: (at.st_mtime as i64, at.st_mtime_nsec as u64),
        changed: (at.st_ctime as i64, at.st_ctime_nsec as u64),
    })
}

fn id_at(name: &Path) -> Option<(u64, u64)> {
    rustix::fs::lstat(name).ok().map(|at| id(&at))
}

#[allow(clippy::unnecessary_cast, reason = "the types of a stat differ between systems")]
fn id(at: &Stat) -> (u64, u64) {
    (at.st_dev as u64, at.st_ino as u64)
}
