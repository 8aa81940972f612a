//! Who is alive: the kernel's word, never a process id.
//!
//! A client opens its FIFO `alive` once and takes the kernel's lock on it. The lock belongs to what was
//! opened, not to the process: children that inherit it keep it, and it is gone when the last of them
//! is, whatever ended them, in whatever namespace. That the lock can be taken is the proof.
//!
//! The FIFO is there for the alarm. Whoever has opened it for reading is told by the kernel (`POLLHUP`)
//! when the last writer is gone, which is in the same moment, just after the lock.
//!
//! A client without a file is unknown: it ended in order, or somebody removed the file while it lives.
//! That is no proof, so its holds last as long as their leases.

use super::folder::{self, ALIVE, BELL, DEAD, Folder};
use fairlock_core::{ClientId, OwnerId, World};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// What the kernel says of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// It has its lock, or something that inherited it does.
    Alive,
    /// Nobody has, and nobody will again.
    Gone,
    /// There is nothing to ask.
    Unknown,
}

/// The life of this client: over when it is dropped, and every copy that a child has is closed.
#[derive(Debug)]
pub(super) struct Liveness {
    _fd: OwnedFd,
}

impl Liveness {
    /// Begins it. With `inherited`, processes that this one starts keep it up.
    pub(super) fn begin(folder: &Folder, client: ClientId, inherited: bool) -> io::Result<Self> {
        let fd =
            folder.make(client, ALIVE, |fd| flock(fd, FlockOperation::NonBlockingLockExclusive))?;
        if inherited {
            fcntl_setfd(&fd, FdFlags::empty())?;
        }
        Ok(Self { _fd: fd })
    }
}

/// From now on nothing can be proven of `client`, so that what it leaves behind lasts as long as its
/// lease.
pub(super) fn disown(folder: &Folder, client: ClientId) {
    let _ = folder.remove(&folder::name(client, ALIVE));
}

/// The client ends in order.
pub(super) fn farewell(folder: &Folder, client: ClientId) {
    disown(folder, client);
    let _ = folder.remove(&folder::name(client, BELL));
}

/// What is known of `client`. Some microseconds.
pub(super) fn look(folder: &Folder, client: ClientId) -> Sign {
    watch(folder, client).0
}

/// The same, and the end of the FIFO on which its death is told.
pub(super) fn watch(folder: &Folder, client: ClientId) -> (Sign, Option<OwnedFd>) {
    let fd = match folder.open_fifo(&folder::name(client, ALIVE), OFlags::RDONLY) {
        Ok(fd) => fd,
        Err(Errno::NOENT) if folder.has(&folder::name(client, DEAD)) => return (Sign::Gone, None),
        Err(_) => return (Sign::Unknown, None),
    };
    // Context, so that two who look at the same time do not take each other for the client. Closing it
    // gives the lock back.
    match flock(&fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => (Sign::Gone, None),
        // It was opened for writing when we opened it, as it still is: an end will be told.
        Err(Errno::WOULDBLOCK) => (Sign::Alive, Some(fd)),
        Err(_) => (Sign::Unknown, None),
    }
}

/// A client was found dead: keeps the proof, and removes the rest.
pub(super) fn bury(folder: &Folder, client: ClientId) {
    // Others may be faster.
    let _ = folder.rename(&folder::name(client, ALIVE), &folder::name(client, DEAD));
    let _ = folder.remove(&folder::name(client, BELL));
}

/// What the core may ask, in one operation of `own`.
pub(super) struct Kernel<'a> {
    folder: &'a Folder,
    own: ClientId,
    found: RefCell<HashMap<ClientId, bool>>,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(folder: &'a Folder, own: ClientId) -> Self {
        Self { folder, own, found: RefCell::default() }
    }

    /// Who was found dead.
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
}
