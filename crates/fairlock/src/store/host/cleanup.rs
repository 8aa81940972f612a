//! Removes what dead clients left in the folder and in the file. Later clients do this, a bounded
//! amount each.

use super::file::HostFile;
use super::folder::{ALIVE, BASE, BELL, DEAD, Folder, KEPT, LEFT, NEW, name};
use super::liveness::{self, Sign};
use super::wake_up::Message;
use super::{folder, wake_up};
use crate::base::clock::lock;
use fairlock_core::{ClientId, LockName};
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many names a new client examines, at some 5 us each.
const NAMES_MAX: usize = 2_000;

/// How many clients' rows a new client examines, at some 10 us each.
const ROWS_MAX: u32 = 500;

/// How long the proof of a death is kept unconditionally, by the wall clock. After that the locks
/// are searched, and the proof is removed if none of them names the client any more.
const DEAD_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// The search reads this many locks in use at a time (1 us each), and this many times at most. If
/// there are more locks, the proofs stay.
const LOCKS_AT_ONCE: u32 = 500;
const LOCK_LOOKS_MAX: u32 = 200;

/// Age at which a FIFO without its final name is removed. It gets the name within microseconds,
/// unless the process that creates it is stopped.
const NEW_KEPT: Duration = Duration::from_secs(60);

/// How many clients that wait for a lock without a queue are notified of a release; the others find
/// it at their heartbeats.
const TOLD_MAX: usize = 64;

/// How many listeners of one lock a release examines: some may be dead.
const LISTENERS_MAX: usize = 1_000;

/// From now on, `client` is woken when the lock `name`, which has no queue, is free.
pub(super) fn listen(folder: &Folder, name: &LockName, client: ClientId) {
    // If this fails, the client still looks at its heartbeats.
    let _ = folder.touch_in(&listeners(name), &client.to_string());
}

/// Undoes [`listen`].
pub(super) fn unlisten(folder: &Folder, name: &LockName, client: ClientId) {
    let listeners = listeners(name);
    let _ = folder.remove(&format!("{listeners}/{client}"));
    folder.remove_folder(&listeners);
}

/// Tells the clients that wait for the lock `name`, which has no queue, that it is free; all but
/// `own`.
pub(super) fn tell(folder: &Folder, name: &LockName, own: ClientId) {
    let listeners = listeners(name);
    // Usually nobody waits, and there is no such folder.
    let Ok(names) = folder.list(Some(&listeners), LISTENERS_MAX) else { return };
    let mut told = 0;
    for client in names.iter().filter_map(|name| ClientId::parse(name.as_bytes())) {
        if told == TOLD_MAX {
            break;
        }
        if client == own {
            continue;
        }
        // The bell of a killed client accepts messages until it is removed.
        if wake_up::is_heard(folder, client) {
            if wake_up::ring(folder, client, &Message::Free(folder::hash(name))) {
                told += 1;
            }
        } else if !is_there(folder, client) {
            let _ = folder.remove(&format!("{listeners}/{client}"));
        }
    }
}

fn listeners(name: &LockName) -> String {
    format!("{:016x}.{BASE}", folder::hash(name))
}

/// Removes what dead clients left, in the folder and then in the file. `end_gone` ends what dead
/// clients hold of a lock, and returns the clients that the lock still names.
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
            // The next client tries again. Other calls wait for this thread.
            if lock(file).farewell(client).is_err() {
                return;
            }
        }
    }
}

/// Removes the proofs of these deaths, except those that a lock still needs.
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
                for proof in [DEAD, LEFT] {
                    let _ = folder.remove(&name(client, proof));
                }
            }
            return;
        };
        after = next;
    }
}

/// Cleans up one name. Returns the client if this is the proof of its death and is older than
/// [`DEAD_KEPT`].
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
        LEFT if is_older(folder, found, DEAD_KEPT) => {
            return client().filter(|client| liveness::look(folder, *client) == Sign::Gone);
        }
        // Without a proof of its client's death it keeps nothing.
        KEPT if first
            .split_once('.')
            .and_then(|(client, _)| ClientId::parse(client.as_bytes()))
            .is_none_or(|client| liveness::look(folder, client) == Sign::Unknown) =>
        {
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
    None
}

/// Whether the client is running. If nothing can be proven, what counts is whether somebody reads
/// its FIFO `bell`.
fn is_there(folder: &Folder, client: ClientId) -> bool {
    match liveness::look(folder, client) {
        Sign::Alive => true,
        Sign::Gone => false,
        Sign::Unknown => wake_up::is_heard(folder, client),
    }
}

/// By the wall clock, which only decides when leftovers are removed and when the locks are
/// searched.
fn is_older(folder: &Folder, name: &str, than: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let changed = folder.changed_s(name).ok().and_then(|at| u64::try_from(at).ok());
    changed.is_some_and(|at| now.saturating_sub(at) > than.as_secs())
}
