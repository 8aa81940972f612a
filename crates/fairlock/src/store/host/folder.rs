//! The folder beside the file, and what the clients of the file keep there:
//!
//! - `<client>.alive`, a FIFO: its client keeps it open and locked (`flock`) while it lives. See
//!   `liveness`.
//! - `<client>.dead`: the same FIFO after somebody found that client dead. Until it is removed, it
//!   proves the death to those who meet the client elsewhere.
//! - `<client>.left`: `alive`, after its client has left a hold to the store.
//! - `<client>.<hash of a lock's name>-<token>.kept`: that hold, which lasts as long as its lease.
//! - `<client>.bell`, a FIFO: messages to the client. See `wake_up`.
//! - `<hash of a lock's name>.base/<client>`: the client waits for the lock, which has no queue.
//! - `line`: the processes that wait for the file hold the kernel's lock on it, one after the other.
//!   See `line`.
//! - `*.new`: about to be renamed to one of these names.

use super::file::OpenOptions;
use super::line::{Line, Locked};
use super::{mounts, place};
use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use fairlock_core::{ClientId, LockName, Token};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags};
use rustix::io::Errno;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const ALIVE: &str = "alive";
pub(super) const DEAD: &str = "dead";
pub(super) const LEFT: &str = "left";
pub(super) const KEPT: &str = "kept";
pub(super) const BELL: &str = "bell";
pub(super) const BASE: &str = "base";
pub(super) const NEW: &str = "new";
const LINE: &str = "line";

/// How often creating a FIFO is tried. Its first name can be removed by a cleanup that mistakes a
/// slow start for a leftover.
const MAKE_TRIES: u32 = 3;

/// The open folder. It stays the same one even if its name is removed or replaced, until it is
/// [mended](Folder::mend).
#[derive(Debug)]
pub(super) struct Folder {
    at: PathBuf,
    options: OpenOptions,
    fd: Mutex<Arc<OwnedFd>>,
    mode: Mode,
    /// The group that shares it.
    group: Option<Gid>,
}

impl Folder {
    /// Opens the folder beside the file `path`; creates it if it is missing.
    pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let at = place::named(path, "-clients");
        let (fd, group) = open_checked(&at, options)?;
        let mode = Mode::from_raw_mode(options.file_mode());
        Ok(Self { at, options: options.clone(), fd: Mutex::new(Arc::new(fd)), mode, group })
    }

    fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&lock(&self.fd))
    }

    /// If somebody has removed or replaced the folder, opens the one that has the name now, or
    /// creates one: all clients must find each other's bells.
    ///
    /// # Errors
    /// The folder that has the name cannot be trusted, or none can be created; this one is kept
    /// then.
    pub(super) fn mend(&self) -> Result<(), Error> {
        if place::leads_to(&self.at, self.fd()) {
            return Ok(());
        }
        if let Some(around) = self.at.parent() {
            mounts::check(around, std::iter::once(&self.at))?;
        }
        let (fd, _) = open_checked(&self.at, &self.options)?;
        *lock(&self.fd) = Arc::new(fd);
        Ok(())
    }

    /// Takes the kernel's lock on the folder: users enter and leave the file one at a time.
    pub(super) fn gate(&self, patience: Duration) -> rustix::io::Result<Gate> {
        let until = Moment::now().plus(patience);
        loop {
            // Not the folder's own descriptor: two threads of this process have to exclude each
            // other.
            let gate = Line::default().wait(|| self.open_folder("."), until.left())?;
            // If the folder was removed, nobody else can come to this gate, and there is no other.
            if place::leads_to(&self.at, &gate) || !self.at.exists() {
                return Ok(Gate { _locked: gate });
            }
            self.mend().map_err(|_| Errno::NOENT)?;
        }
    }

    /// Opens the file in which the processes stand in line; creates it if it is missing.
    pub(super) fn open_line(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&*self.fd(), LINE, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        let make = flags | OFlags::CREATE | OFlags::EXCL;
        match fs::openat(&*self.fd(), LINE, make, self.mode) {
            Ok(fd) => {
                // Until group and mode are set, other members of the group may be refused; they try
                // without a line.
                if self.group.is_some() {
                    fs::fchown(&fd, None, self.group)?;
                }
                fs::fchmod(&fd, self.mode)?;
                Ok(fd)
            }
            Err(Errno::EXIST) => fs::openat(&*self.fd(), LINE, flags, Mode::empty()),
            Err(error) => Err(error),
        }
    }

    /// Creates a FIFO under a first name, opens it for both directions, and calls `ready` before
    /// others can find it under the name of `client`.
    pub(super) fn make(
        &self,
        client: ClientId,
        ending: &str,
        ready: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
    ) -> io::Result<OwnedFd> {
        let (first, last) = (format!("{client}.{ending}.{NEW}"), name(client, ending));
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_make(&first, &last, &ready) {
                Err(Errno::NOENT | Errno::WOULDBLOCK | Errno::EXIST) if tries < MAKE_TRIES => {
                    let _ = self.remove(&first);
                }
                made => return Ok(made?),
            }
        }
    }

    fn try_make(
        &self,
        first: &str,
        last: &str,
        ready: &impl Fn(&OwnedFd) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<OwnedFd> {
        fs::mknodat(&*self.fd(), first, FileType::Fifo, self.mode, 0)?;
        let fd = self.open_fifo(first, OFlags::RDWR)?;
        if self.group.is_some() {
            fs::fchown(&fd, None, self.group)?;
        }
        fs::fchmod(&fd, self.mode)?;
        ready(&fd)?;
        fs::renameat(&*self.fd(), first, &*self.fd(), last)?;
        Ok(fd)
    }

    /// Opens a FIFO; never waits.
    pub(super) fn open_fifo(&self, name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&*self.fd(), name, flags, Mode::empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        fs::statat(&*self.fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// When the file was last renamed or changed, by the wall clock, in seconds since 1970.
    pub(super) fn changed_s(&self, name: &str) -> rustix::io::Result<i64> {
        Ok(fs::statat(&*self.fd(), name, AtFlags::SYMLINK_NOFOLLOW)?.st_ctime)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        fs::renameat(&*self.fd(), from, &*self.fd(), to)
    }

    pub(super) fn remove(&self, name: &str) -> rustix::io::Result<()> {
        fs::unlinkat(&*self.fd(), name, AtFlags::empty())
    }

    /// Removes a folder in it, unless that contains something.
    pub(super) fn remove_folder(&self, name: &str) {
        // A folder that is not empty is in use.
        let _ = fs::unlinkat(&*self.fd(), name, AtFlags::REMOVEDIR);
    }

    /// Creates an empty file, unless it exists.
    pub(super) fn touch(&self, file: &str) -> rustix::io::Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&*self.fd(), file, flags, self.mode).map(drop)
    }

    /// Appends to a file, which is created if it is missing.
    pub(super) fn append(&self, file: &str, bytes: &[u8]) -> rustix::io::Result<()> {
        let flags =
            OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.fd(), file, flags, self.mode)?;
        match rustix::io::write(&fd, bytes)? {
            all if all == bytes.len() => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }

    /// The content of a file.
    pub(super) fn read(&self, file: &str) -> rustix::io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.fd(), file, flags, Mode::empty())?;
        let (mut all, mut some) = (Vec::new(), [0; 4_096]);
        loop {
            match rustix::io::read(&fd, &mut some)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&some[..count]),
            }
        }
    }

    /// Creates an empty file in a folder in it, which is created if it is missing.
    pub(super) fn touch_in(&self, folder: &str, file: &str) -> rustix::io::Result<()> {
        let mut tries = 0;
        loop {
            let group = self.group.is_some();
            let mode = Mode::from_raw_mode(if group { 0o2770 } else { 0o700 });
            match fs::mkdirat(&*self.fd(), folder, mode) {
                Ok(()) if group => {
                    let fd = self.open_folder(folder)?;
                    fs::fchmod(&fd, mode)?;
                }
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            tries += 1;
            match self.touch(&format!("{folder}/{file}")) {
                Ok(()) => return Ok(()),
                // The last client has just left and removed the folder.
                Err(Errno::NOENT) if tries < MAKE_TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// At most `limit` names in it, or in the given folder in it.
    pub(super) fn list(
        &self,
        folder: Option<&str>,
        limit: usize,
    ) -> rustix::io::Result<Vec<String>> {
        let fd = self.open_folder(folder.unwrap_or("."))?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(fd)? {
            if names.len() >= limit {
                break;
            }
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn open_folder(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        fs::openat(&*self.fd(), name, flags, Mode::empty())
    }
}

/// Opens the folder; creates it if it is missing.
fn open_checked(at: &Path, options: &OpenOptions) -> Result<(OwnedFd, Option<Gid>), Error> {
    let failed = |error: io::Error| place::io_error(at, &error);
    // Nobody has named this folder. Kernel file systems (`/proc`) take no new one.
    let unmade = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => place::misuse(
            at,
            "this folder, in which the store's clients find each other, cannot be made here: name a file \
             on a local disk",
        ),
        _ => failed(error),
    };
    let (fd, group) = open_at(at, options).map_err(unmade)?;
    // Checks what was opened, not what has the name now.
    let found = std::fs::File::from(fd.try_clone().map_err(failed)?);
    place::check_beside(at, &found.metadata().map_err(failed)?, options)?;
    Ok((fd, group))
}

fn open_at(at: &Path, options: &OpenOptions) -> io::Result<(OwnedFd, Option<Gid>)> {
    let mode = if options.shared_with_group { 0o2770 } else { 0o700 };
    let made = DirBuilder::new().mode(mode).create(at);
    let exists = matches!(&made, Err(e) if e.kind() == io::ErrorKind::AlreadyExists);
    if !exists {
        made?;
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = fs::open(at, flags, Mode::empty())?;
    let mut group = None;
    if options.shared_with_group {
        let above = at.parent().map(std::fs::metadata).transpose()?;
        group = above.map(|above| Gid::from_raw(above.gid()));
    }
    if !exists {
        // The process's umask must not decide.
        if group.is_some() {
            fs::fchown(&fd, None, group)?;
        }
        let permissions = std::fs::Permissions::from_mode(mode);
        fs::fchmod(&fd, Mode::from_raw_mode(permissions.mode()))?;
    }
    Ok((fd, group))
}

/// See [`Folder::gate`]. Dropping this opens the gate again.
#[derive(Debug)]
pub(super) struct Gate {
    _locked: Locked,
}

pub(super) fn name(client: ClientId, ending: &str) -> String {
    format!("{client}.{ending}")
}

/// The name of the file that keeps this hold.
pub(super) fn kept(client: ClientId, lock: &LockName, token: Token) -> String {
    format!("{client}.{:016x}-{token}.{KEPT}", hash(lock))
}

/// FNV-1a hash, for places where a lock's name would be too long. Two names with the same hash wake
/// each other's waiters, which then see that nothing has changed.
pub(super) fn hash(name: &LockName) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}
