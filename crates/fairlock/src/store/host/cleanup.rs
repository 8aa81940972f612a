//! What dead clients left in the folder and in the file, removed by those who come later, a bounded
//! amount each time.

use super::file::HostFile;
use super::folder::{ALIVE, BASE, BELL, DEAD, Folder, NEW, name};
use super::liveness::{self, Sign};
use super::wake_up::Message;
use super::{folder, wake_up};
use crate::base::clock::lock;
use fairlock_core::{ClientId, LockName};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names looked at by a client that begins: some 5 us each.
const NAMES_MAX: usize = 2_000;

/// Rows of clients looked at by a client that begins, at some 10 us each.
const ROWS_MAX: u32 = 500;

/// For so long the proof of a death is kept unseen, by the wall clock. Then the locks are looked at, and it goes
/// if none of them names that client any more.
const DEAD_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// Locks in use that are looked at then, so many at a time (1 us each) and so often at most. The proofs stay if
/// there are more.
const LOCKS_AT_ONCE: u32 = 500;
const LOCK_LOOKS_MAX: u32 = 200;

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
        if wake_up::ring(folder, client, &Message::Free(folder::hash(name))) {
            told += 1;
        } else if !is_there(folder, client) {
            let _ = folder.remove(&format!("{listeners}/{client}"));
        }
    }
}

fn listeners(name: &LockName) -> String {
    format!("{:016x}.{BASE}", folder::hash(name))
}

/// Removes what the dead have left: in the folder, then in the file. `end_gone` ends what the dead hold of a lock,
/// and tells whom it names still.
pub(super) fn sweep(
    folder: &Folder,
    file: &Mutex<HostFile>,
    end_gone: impl Fn(&LockName) -> Option<Vec<ClientId>>,
) {
    let mut long_dead = HashSet::new();
    for found in folder.list(None, NAMES_MAX).unwrap_or_default() {
        long_dead.extend(sweep_name(folder, &found));
    }
    forget(folder, file, long_dead, end_gone);
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

/// Removes the proofs of these deaths, but for those that a lock still needs.
fn forget(
    folder: &Folder,
    file: &Mutex<HostFile>,
    mut dead: HashSet<ClientId>,
    end_gone: impl Fn(&LockName) -> Option<Vec<ClientId>>,
) {
    let mut after = Vec::new();
    for _ in 0..LOCK_LOOKS_MAX {
        if dead.is_empty() {
            return;
        }
        let Ok((names, next)) = lock(file).naming(&dead, &after, LOCKS_AT_ONCE) else { return };
        for name in names {
            let Some(named) = end_gone(&name) else { return };
            for client in named {
                dead.remove(&client);
            }
        }
        let Some(next) = next else {
            for client in dead {
                let _ = folder.remove(&name(client, DEAD));
            }
            return;
        };
        after = next;
    }
}

/// The client, if the proof of its death was kept for long.
fn sweep_name(folder: &Folder, found: &str) -> Option<ClientId> {
    let (first, ending) = found.rsplit_once('.')?;
    let client = || ClientId::parse(first.as_bytes());
    match ending {
        ALIVE => {
            if let Some(client) =
                client().filter(|client| liveness::look(folder, *client) == Sign::Gone)
            {
                liveness::bury(folder, client);
            }
        }
        BELL if client().is_some_and(|client| !is_there(folder, client)) => {
            let _ = folder.remove(found);
        }
        DEAD if is_older(folder, found, DEAD_KEPT) => return client(),
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
    None
}

/// Whether the client runs. One of which nothing can be proven has a bell that is heard.
fn is_there(folder: &Folder, client: ClientId) -> bool {
    match liveness::look(folder, client) {
        Sign::Alive => true,
        Sign::Gone => false,
        // Opening it for writing fails where nobody reads. Any other failure, as for want of descriptors, is no proof.
        Sign::Unknown => !matches!(
            folder.open_fifo(&name(client, BELL), OFlags::WRONLY),
            Err(Errno::NXIO | Errno::NOENT)
        ),
    }
}

/// By the wall clock: it decides about nothing but leftovers, and when the locks are looked at for one.
fn is_older(folder: &Folder, name: &str, than: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let changed = folder.changed_s(name).ok().and_then(|at| u64::try_from(at).ok());
    changed.is_some_and(|at| now.saturating_sub(at) > than.as_secs())
}
