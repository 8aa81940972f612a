//! Who uses the file, and which files they have open: `FILE-users`.
//!
//! SQLite finds its log (`-wal`) and the log's index (`-shm`) by name. A process that opens the
//! store after one of them was removed gets a new one, and neither it nor the earlier users see the
//! others' writes, so there could be two holders. So every user holds the kernel's shared lock on
//! `FILE-users` while it has the file open, and `FILE-users` records which file, log and index they
//! have. Invariant: all who hold the lock have the same three files.
//!
//! - The first user, which gets the lock exclusively, records the files that the names lead to.
//! - For a later user, the names must lead to the recorded files, before it opens anything and
//!   afterwards. Otherwise it is refused.
//! - Before each operation a user checks that the names still lead there (`views`), and fails if
//!   they do not.
//! - The last user, if it leaves properly, records that nothing is left. If log and index still
//!   exist, processes of an older version, which record nothing, have them open. The last of these
//!   processes removes them, and the next user gets new ones, so a record would be wrong.
//!
//! Users enter and leave one at a time, through the gate: the kernel's lock on the clients' folder.

use super::file::OpenOptions;
use super::folder::{Folder, Gate};
use super::opening::{connect, connect_log, is_lived_in};
use super::patience::{OTHERS_PAUSE, for_others};
use super::schema::Schema;
use super::views::{Apart, Ids, Views};
use super::{fault, place};
use crate::base::clock::{Moment, rounded};
use crate::base::error::{Error, ErrorKind};
use crate::store::StoreError;
use rusqlite::Connection;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

/// Longest wait of a user that leaves. If it gives up, only its record is missing.
const LEAVING: Duration = Duration::from_millis(100);

/// The record always has this many bytes, so that it is overwritten in place, even on a full disk.
const RECORD_BYTES: usize = 160;

/// Recorded by the last user that left properly: the log was written back to the file and removed.
const NOTHING_LEFT: &str = "fairlock 1 nothing left";

/// Recorded by the last user whose version knows this file, if log and index still existed then.
const UNKNOWN: &str = "fairlock 1 unknown";

/// The contents of `FILE-users`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// Empty, not written by this version, or given up to older ones.
    Unknown,
    /// The last user left properly.
    NothingLeft,
    /// These files are in use, or their last users were killed.
    Used(Ids),
}

/// A user. The kernel's lock ends with it.
#[derive(Debug)]
pub(super) struct User(File);

/// The open file, whose log and index are those of all other users.
pub(super) struct Entered {
    pub(super) db: Connection,
    pub(super) views: Views,
    pub(super) user: User,
}

/// Opens the file as one of its users.
pub(super) fn enter(
    path: &Path,
    options: &OpenOptions,
    folder: &Folder,
    schema: &Schema,
) -> Result<Entered, StoreError> {
    let until = Moment::now().plus(for_others(options.busy));
    loop {
        let apart = {
            let _gate = gate(path, folder, options.busy)?;
            let users = place::beside(path, "-users", options).map_err(StoreError::refused)?;
            if !is_at(&users, path) {
                Apart::Users
            } else if flock(&users, FlockOperation::NonBlockingLockExclusive).is_ok() {
                match enter_alone(path, options, users, schema)? {
                    Ok(entered) => return Ok(entered),
                    Err(apart) => apart,
                }
            } else {
                match enter_beside(path, options, users, schema)? {
                    Ok(entered) => return Ok(entered),
                    Err(apart) => apart,
                }
            }
        };
        if Moment::now() >= until {
            return Err(refused(path, apart));
        }
        std::thread::sleep(OTHERS_PAUSE);
    }
}

/// No other user of this version has the file open.
fn enter_alone(
    path: &Path,
    options: &OpenOptions,
    users: File,
    schema: &Schema,
) -> Result<Result<Entered, Apart>, StoreError> {
    let before = read(&users);
    // Somebody may still be alive: a command whose `fairlock run` was killed, or a process of an
    // older version. What it holds is in the log.
    let missing = match before {
        Record::NothingLeft => None,
        Record::Used(ids) => ids.apart(path),
        Record::Unknown => Ids::missing(path),
    };
    if let Some(apart) = missing
        && (is_lived_in(path) || has_boot_in_use(path) || has_file_open(path))
    {
        return Ok(Err(apart));
    }
    let opened = place::make_file(path, options)
        .map_err(StoreError::refused)
        .and_then(|()| connect_log(path, options.busy, schema))
        .and_then(|db| Ok((db, Views::of(path)?)));
    let (db, views) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            if before == Record::Unknown && error.error.kind() == ErrorKind::Protocol {
                // The file belongs to another program: nothing of ours stays beside it.
                let _ = std::fs::remove_file(place::named(path, "-users"));
                let _ = std::fs::remove_dir(place::named(path, "-clients"));
            } else if Ids::gone(path) {
                // SQLite has written the log of the killed users back to the file before closing
                // it.
                let _ = write(path, &users, Record::NothingLeft);
            }
            return Err(error);
        }
    };
    write(path, &users, Record::Used(views.ids()))?;
    // Not atomic, but new users wait at the gate.
    if flock(&users, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(Err(Apart::Users));
    }
    Ok(Ok(Entered { db, views, user: User(users) }))
}

/// Others have the file open.
fn enter_beside(
    path: &Path,
    options: &OpenOptions,
    users: File,
    schema: &Schema,
) -> Result<Result<Entered, Apart>, StoreError> {
    if flock(&users, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(Err(Apart::Users));
    }
    let Record::Used(ids) = read(&users) else { return Ok(Err(Apart::Users)) };
    // Before anything is opened, which would create what is missing.
    if let Some(apart) = ids.apart(path) {
        return Ok(Err(apart));
    }
    let db = connect_log(path, options.busy, schema)?;
    let views = Views::of(path)?;
    Ok(match ids.differs(views.ids()) {
        Some(apart) => Err(apart),
        None => Ok(Entered { db, views, user: User(users) }),
    })
}

impl User {
    /// Leaves: `close` closes the file.
    pub(super) fn leave(&self, path: &Path, folder: &Folder, close: impl FnOnce()) {
        // Without the gate nothing is recorded, and the next user must check who is alive.
        let gate = folder.gate(LEAVING).ok();
        close();
        let _ = flock(&self.0, FlockOperation::Unlock);
        if gate.is_some()
            && is_at(&self.0, path)
            && flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let gone = Ids::gone(path);
            let left = if gone { Record::NothingLeft } else { Record::Unknown };
            let _ = write(path, &self.0, left);
            let _ = flock(&self.0, FlockOperation::Unlock);
        }
    }
}

fn gate(path: &Path, folder: &Folder, busy: Duration) -> Result<Gate, StoreError> {
    folder.gate(busy).map_err(|error| {
        if error == Errno::WOULDBLOCK {
            let busy = rounded(busy);
            let message = format!(
                "{}: another process has been opening the file for {busy:?}; is it stopped?",
                path.display()
            );
            return StoreError::unavailable(message, false);
        }
        StoreError::refused(place::io_error(&place::named(path, "-clients"), &error.into()))
    })
}

/// Whether `FILE-users` is still this file, neither removed nor replaced.
fn is_at(users: &File, path: &Path) -> bool {
    place::leads_to(&place::named(path, "-users"), users)
}

/// Whether a process of any version has the file open.
pub(super) fn has_boot_in_use(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let boot = rustix::fs::open(place::named(path, "-boot"), flags, Mode::empty());
    match boot {
        Ok(boot) => {
            flock(&boot, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        }
        // Any other failure, such as a lack of descriptors, proves nothing.
        Err(error) => error != Errno::NOENT,
    }
}

/// Whether a process has the file open, whatever lies beside it. SQLite keeps a shared lock on the
/// file itself while it uses a log, so if an exclusive lock fails, there is another user. Creates
/// nothing in that case.
fn has_file_open(path: &Path) -> bool {
    let alone = || {
        let db = connect(path)?;
        // Works without an index, which would be created and has locks of its own.
        db.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
        db.query_row("PRAGMA schema_version", [], |_| Ok(()))
    };
    alone().is_err_and(|error| fault::is_busy(&error))
}

fn read(users: &File) -> Record {
    let mut bytes = [0; RECORD_BYTES];
    if users.read_exact_at(&mut bytes, 0).is_err() {
        return Record::Unknown;
    }
    let Ok(text) = std::str::from_utf8(&bytes) else { return Record::Unknown };
    let text = text.trim_end();
    if text == NOTHING_LEFT {
        return Record::NothingLeft;
    }
    Ids::parse(text).map_or(Record::Unknown, Record::Used)
}

fn write(path: &Path, users: &File, record: Record) -> Result<(), StoreError> {
    let text = match record {
        Record::Used(ids) => ids.to_string(),
        Record::NothingLeft => NOTHING_LEFT.to_owned(),
        Record::Unknown => UNKNOWN.to_owned(),
    };
    let text = format!("{text:<width$}\n", width = RECORD_BYTES - 1);
    users.write_all_at(text.as_bytes(), 0).map_err(|error| fault::of_io(path, "-users", &error))
}

#[cold]
fn refused(path: &Path, apart: Apart) -> StoreError {
    let at = path.display();
    let message = match apart {
        Apart::Users => format!("{at}-users: others keep coming and going; try again"),
        Apart::File => format!(
            "{at}: the file was removed or replaced while programs use it, and they go on with the old one; \
             locks cannot be shared with them. End them, then try again"
        ),
        Apart::Log | Apart::Index => format!(
            "{at}{}: this part of the file was removed or replaced while programs use it, and they go on with \
             the old one; locks cannot be shared with them. End them (the commands too that `fairlock run` \
             runs), then try again",
            apart.ending()
        ),
    };
    StoreError::refused(Error::new(ErrorKind::Unavailable, message))
}

#[cfg(feature = "_testkit")]
#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_testkit::tempdir::TempDir;

    #[test]
    fn what_was_written_down_is_read_and_nothing_else() {
        let dir = TempDir::new();
        let path = dir.path().join("locks");
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(place::named(&path, "-users")).unwrap()
        };
        assert_eq!(read(&open()), Record::Unknown);
        let longest = Ids::new([(u64::MAX, u64::MAX); 3]);
        for record in [
            Record::Used(longest),
            Record::NothingLeft,
            Record::Unknown,
            Record::Used(Ids::new([(1, 2); 3])),
        ] {
            write(&path, &open(), record).unwrap();
            assert_eq!(read(&open()), record);
        }
        for other in ["fairlock 2 nothing left", "fairlock 1 1:2 1:2", "fairlock 1 1:2 1:2 1:x"] {
            let text = format!("{other:<159}\n");
            std::fs::write(place::named(&path, "-users"), text).unwrap();
            assert_eq!(read(&open()), Record::Unknown, "{other}");
        }
    }
}
