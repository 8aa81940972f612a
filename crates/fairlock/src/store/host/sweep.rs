//! What dead clients left in the folder and in the file, removed by those who come later, a bounded
//! amount each time.

use super::bell::Message;
use super::file::HostFile;
use super::folder::{ALIVE, BASE, BELL, DEAD, Folder, NEW, name};
use super::life::{self, Sign};
use super::{bell, folder};
use crate::clock::lock;
use fairlock_core::{ClientId, LockName};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names looked at by a client that begins: some 5 us each.
const NAMES_MAX: usize = 2_000;

/// Rows of clients looked at by a client that begins, at some 10 us each.
const ROWS_MAX: u32 = 500;

/// How long the proof of a death is kept. A hold that nobody met for so long ends with its lease.
const DEAD_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// A FIFO on its way to its name is there for microseconds, longer only if its maker was stopped.
const NEW_KEPT: Duration = Duration::from_secs(60);

/// Waiters of one lock without a queue that a release tells; the others look with their heartbeats.
const TOLD_MAX: usize = 64;

/// Listeners of one lock that a release looks at: some may be dead.
const LISTENERS_MAX: usize = 1_000;

/// Begins to tell `client` when the lock `name`, which has no queue, is free.
pub(super) fn listen(folder: &Folder, name: &LockName, client: ClientId) {
    // Without it the client looks with its heartbeats.
    let _ = folder.touch(&listeners(name), &client.to_string());
}

/// Ends it.
pub(super) fn unlisten(folder: &Folder, name: &LockName, client: ClientId) {
    let listeners = listeners(name);
    let _ = folder.remove(&format!("{listeners}/{client}"));
    folder.remove_folder(&listeners);
}

/// Tells those who wait for the lock `name`, which has no queue, that it is free; all but `own`.
pub(super) fn tell(folder: &Folder, name: &LockName, own: ClientId) {
    let listeners = listeners(name);
    // Most often there is no such folder: nobody waits.
    let Ok(names) = folder.list(Some(&listeners), LISTENERS_MAX) else { return };
    let mut told = 0;
    for client in names.iter().filter_map(|name| ClientId::parse(name.as_bytes())) {
        if told == TOLD_MAX {
            break;
        }
        if client == own {
            continue;
        }
        if bell::ring(folder, client, &Message::Free(folder::hash(name))) {
            told += 1;
        } else if !is_there(folder, client) {
            let _ = folder.remove(&format!("{listeners}/{client}"));
        }
    }
}

fn listeners(name: &LockName) -> String {
    format!("{:016x}.{BASE}", folder::hash(name))
}

/// Removes what the dead have left: in the folder, then in the file.
pub(super) fn sweep(folder: &Folder, file: &Mutex<HostFile>) {
    for found in folder.list(None, NAMES_MAX).unwrap_or_default() {
        sweep_name(folder, &found);
    }
    let rows = lock(file).announced(None, ROWS_MAX).unwrap_or_default();
    for client in rows {
        if !is_there(folder, client) {
            // Whoever comes next tries again. Others wait for this thread.
            if lock(file).farewell(client).is_err() {
                return;
            }
        }
    }
}

fn sweep_name(folder: &Folder, found: &str) {
    let Some((first, ending)) = found.rsplit_once('.') else { return };
    let client = || ClientId::parse(first.as_bytes());
    match ending {
        ALIVE => {
            if let Some(client) =
                client().filter(|client| life::look(folder, *client) == Sign::Gone)
            {
                life::bury(folder, client);
            }
        }
        BELL if client().is_some_and(|client| !is_there(folder, client)) => {
            let _ = folder.remove(found);
        }
        DEAD if is_older(folder, found, DEAD_KEPT) => {
            let _ = folder.remove(found);
        }
        NEW if is_older(folder, found, NEW_KEPT) => {
            let _ = folder.remove(found);
        }
        BASE => {
            for listener in folder.list(Some(found), TOLD_MAX).unwrap_or_default() {
                let client = ClientId::parse(listener.as_bytes());
                if !client.is_some_and(|client| is_there(folder, client)) {
                    let _ = folder.remove(&format!("{found}/{listener}"));
                }
            }
            folder.remove_folder(found);
        }
        _ => {}
    }
}

/// Whether the client runs. One of which nothing can be proven has a bell that is heard.
fn is_there(folder: &Folder, client: ClientId) -> bool {
    match life::look(folder, client) {
        Sign::Alive => true,
        Sign::Gone => false,
        // Opening it for writing fails where nobody reads. Any other failure, as for want of descriptors, is no proof.
        Sign::Unknown => !matches!(
            folder.open_fifo(&name(client, BELL), OFlags::WRONLY),
            Err(Errno::NXIO | Errno::NOENT)
        ),
    }
}

/// By the wall clock: it decides about nothing but leftovers.
fn is_older(folder: &Folder, name: &str, than: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let changed = folder.changed_s(name).ok().and_then(|at| u64::try_from(at).ok());
    changed.is_some_and(|at| now.saturating_sub(at) > than.as_secs())
}
