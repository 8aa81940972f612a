//! Which clients are alive: proven by the kernel, never by a process id.
//!
//! A client opens its FIFO `alive` once and takes the kernel's lock on it (`flock`). The lock
//! belongs to the open file description, not to the process: children that inherit the description
//! keep the lock. It is released when the last of them has ended, however they ended and in
//! whatever namespace. If others can take the lock, the client is dead.
//!
//! It is a FIFO so that its readers are notified: they get `POLLHUP` when the last writer is gone,
//! immediately after the lock is released.
//!
//! A client without the FIFO is unknown: it ended properly, or somebody removed the FIFO while it
//! is alive. That proves nothing, so its holds last as long as their leases.
//!
//! A client that leaves a hold to the store renames its FIFO to `left`, after it has named the hold
//! in a file of its own (`kept`). Its death can be proven as before, and ends all its holds but
//! those. Older programs do not look for `left`: to them the client is unknown.

use super::folder::{self, ALIVE, BELL, DEAD, Folder, LEFT};
use fairlock_core::{ClientId, LockName, OwnerId, RequestId, Token, World};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// What the kernel knows about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The client, or something that inherited its lock, has the lock.
    Alive,
    /// Nobody has the lock, and nobody will again.
    Gone,
    /// Nothing can be proven.
    Unknown,
}

/// Keeps this client alive, until it is dropped and every copy that a child inherited is closed.
#[derive(Debug)]
pub(super) struct Liveness {
    _fd: OwnedFd,
}

impl Liveness {
    /// The client is alive from now on. With `inherited`, processes that this one starts keep it
    /// alive, too.
    pub(super) fn begin(folder: &Folder, client: ClientId, inherited: bool) -> io::Result<Self> {
        let fd =
            folder.make(client, ALIVE, |fd| flock(fd, FlockOperation::NonBlockingLockExclusive))?;
        if inherited {
            fcntl_setfd(&fd, FdFlags::empty())?;
        }
        Ok(Self { _fd: fd })
    }
}

/// From now on nothing can be proven about `client`, so its holds last as long as their leases.
fn disown(folder: &Folder, client: ClientId) {
    for ending in [ALIVE, LEFT] {
        let _ = folder.remove(&folder::name(client, ending));
    }
}

/// From now on the death of `client` does not end this hold, which lasts as long as its lease.
///
/// The file of a share's hold lists the requests whose holds are left, because holds with one token have one file. An
/// empty file keeps all of them: programs that do not know of requests write, and take, each file as such.
pub(super) fn leave(
    folder: &Folder,
    client: ClientId,
    name: &LockName,
    token: Token,
    request: Option<RequestId>,
) {
    let file = folder::kept(client, name, token);
    // In this order: a client that finds this one dead meanwhile must know of the hold.
    let kept = match request {
        Some(request) => folder.append(&file, &request.to_text()),
        None => folder.touch(&file),
    };
    if kept.is_err() {
        return disown(folder, client);
    }
    // It fails for the second hold. If others have removed the FIFO, nothing can be proven.
    let _ = folder.rename(&folder::name(client, ALIVE), &folder::name(client, LEFT));
}

/// Undoes [`leave`] for a hold that is over.
pub(super) fn forget_left(folder: &Folder, client: ClientId, name: &LockName, token: Token) {
    let _ = folder.remove(&folder::kept(client, name, token));
}

/// Whether this hold lasts as long as its lease, even if `client` is dead.
pub(super) fn is_left(
    folder: &Folder,
    client: ClientId,
    name: &LockName,
    token: Token,
    request: Option<RequestId>,
) -> bool {
    let file = folder::kept(client, name, token);
    let Some(request) = request.map(RequestId::to_text) else { return folder.has(&file) };
    match folder.read(&file) {
        Ok(left) => left.is_empty() || left.chunks(request.len()).any(|one| one == request),
        // A file that cannot be read keeps every hold.
        Err(error) => error != Errno::NOENT,
    }
}

/// The client ends properly. With `is_provable`, its death can be proven as if it was killed, once
/// its [`Liveness`] is dropped.
pub(super) fn farewell(folder: &Folder, client: ClientId, is_provable: bool) {
    if !is_provable {
        disown(folder, client);
    }
    let _ = folder.remove(&folder::name(client, BELL));
}

/// What is known about `client`. Takes some microseconds.
pub(super) fn look(folder: &Folder, client: ClientId) -> Sign {
    watch(folder, client).0
}

/// Like [`look`]; also returns the end of the FIFO on which the client's death is reported.
pub(super) fn watch(folder: &Folder, client: ClientId) -> (Sign, Option<OwnedFd>) {
    let open = |ending| folder.open_fifo(&folder::name(client, ending), OFlags::RDONLY);
    let alive = match open(ALIVE) {
        // It may be renamed between the two looks, in this direction only.
        Err(Errno::NOENT) => open(LEFT),
        alive => alive,
    };
    let fd = match alive {
        Ok(fd) => fd,
        Err(Errno::NOENT) if folder.has(&folder::name(client, DEAD)) => return (Sign::Gone, None),
        Err(_) => return (Sign::Unknown, None),
    };
    // Shared, so that two clients that look at the same time do not mistake each other for this
    // one. Closing the FIFO releases the lock.
    match flock(&fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => (Sign::Gone, None),
        // It was open for writing when we opened it, and still is, so an end will be reported.
        Err(Errno::WOULDBLOCK) => (Sign::Alive, Some(fd)),
        Err(_) => (Sign::Unknown, None),
    }
}

/// After a client was found dead: keeps the proof and removes the rest. `left` stays as it is: a
/// proof that older programs know would end what the client has left.
pub(super) fn bury(folder: &Folder, client: ClientId) {
    // Others may be faster.
    let _ = folder.rename(&folder::name(client, ALIVE), &folder::name(client, DEAD));
    let _ = folder.remove(&folder::name(client, BELL));
}

/// Answers the core's questions during one operation of `own` on the lock `name`.
pub(super) struct Kernel<'a> {
    folder: &'a Folder,
    own: ClientId,
    name: &'a LockName,
    found: RefCell<HashMap<ClientId, bool>>,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(folder: &'a Folder, own: ClientId, name: &'a LockName) -> Self {
        Self { folder, own, name, found: RefCell::default() }
    }

    /// The clients that were found dead.
    pub(super) fn dead(self) -> impl Iterator<Item = ClientId> {
        self.found.into_inner().into_iter().filter_map(|(client, gone)| gone.then_some(client))
    }
}

impl World for Kernel<'_> {
    fn inbox(&self, client: ClientId) -> bool {
        !self.gone(client)
    }

    fn listening(&self, _: &OwnerId) -> bool {
        false
    }

    fn gone(&self, client: ClientId) -> bool {
        let ask = || look(self.folder, client) == Sign::Gone;
        client != self.own && *self.found.borrow_mut().entry(client).or_insert_with(ask)
    }

    fn proves_death(&self) -> bool {
        true
    }

    fn is_left(&self, client: ClientId, token: Token, request: Option<RequestId>) -> bool {
        is_left(self.folder, client, self.name, token, request)
    }
}
