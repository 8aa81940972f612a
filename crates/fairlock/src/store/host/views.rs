//! The file and what SQLite has beside it, and whether their names still lead to them.

use super::folder::Folder;
use super::place;
use crate::store::StoreError;
use rustix::fs::Stat;
use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A name was given to, or taken from, something in the folder without a change of the folder's times only
/// within one tick of the clock by which the kernel writes times down: some milliseconds.
const TICK: Duration = Duration::from_millis(100);

/// The same where only seconds are written down, or two of them.
const COARSE_TICK: Duration = Duration::from_millis(2_100);

/// What of the three is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apart {
    File,
    Log,
    Index,
    /// Nobody knows: `FILE-users` is just changing.
    Users,
}

impl Apart {
    /// What its name has at the end.
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

/// Device and number of file, log and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids([(u64, u64); 3]);

impl Ids {
    #[cfg(all(test, feature = "_testkit"))]
    pub(super) fn new(ids: [(u64, u64); 3]) -> Self {
        Self(ids)
    }

    /// The file's.
    pub(super) fn file(&self) -> (u64, u64) {
        self.0[0]
    }

    /// The first one whose name leads elsewhere, or nowhere.
    pub(super) fn apart(&self, path: &Path) -> Option<Apart> {
        let at = |what: &Apart| id_at(&place::named(path, what.ending()));
        ALL.into_iter().zip(self.0).find_map(|(what, id)| (at(&what) != Some(id)).then_some(what))
    }

    /// The first one that `other` has not the same of.
    pub(super) fn differs(&self, other: Self) -> Option<Apart> {
        let mut pairs = ALL.into_iter().zip(self.0.into_iter().zip(other.0));
        pairs.find_map(|(what, (one, other))| (one != other).then_some(what))
    }

    /// Which of log and index is not there although the file is.
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

/// What a user has open.
#[derive(Debug)]
pub(super) struct Views {
    path: PathBuf,
    folder: PathBuf,
    ids: Ids,
    /// The folder as it was when the names were last looked up; `None`: they have to be looked up again.
    seen: Cell<Option<Stamp>>,
}

/// A folder at a moment. While it stays the same no name in it was given or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    id: (u64, u64),
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Views {
    /// What the names lead to now. SQLite has just opened it.
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

    /// Looks whether the names still lead to what is open. Most often that is one look at the folder: a name
    /// that is given or taken changes its times. The clients' folder is mended where only that was removed or
    /// replaced: what is in it costs time alone.
    pub(super) fn look(&self, clients: &Folder) -> Result<(), Apart> {
        let now = stamp(&self.folder);
        if now.is_some() && now == self.seen.get() {
            return Ok(());
        }
        self.look_up(now, clients)
    }

    #[cold]
    fn look_up(&self, folder: Option<Stamp>, clients: &Folder) -> Result<(), Apart> {
        // The folder was looked at before the names: what happens meanwhile is found with the next look.
        self.seen.set(folder.filter(Stamp::is_settled));
        match self.ids.apart(&self.path) {
            Some(apart) => {
                self.seen.set(None);
                Err(apart)
            }
            None => {
                if clients.mend().is_err() {
                    // With the next look again.
                    self.seen.set(None);
                }
                Ok(())
            }
        }
    }
}

impl Stamp {
    /// Whether a change that comes now has other times. The wall clock is what they are written down by.
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
