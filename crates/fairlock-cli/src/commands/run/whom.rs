//! The holders of a lock and its waiters, as parts of one line.

use fairlock::{ClientId, Kind, LockStatus, OwnerId, QueuedWaiter};

use crate::locks::text::{age, done, held, others, usage, who};

/// `held by ann@web-1, pid 42, backup.sh, for 3m10s`, `held to read by ..., and 2 others`, or that the run is done; `None`
/// if the lock is free.
pub(super) fn holder(kind: Kind, status: &LockStatus) -> Option<String> {
    let holder = status.holder.as_ref()?;
    if let Some(done) = done(status) {
        return Some(done);
    }
    let mut text = format!("{} by {}", held(Some(kind), status), owner(status, &holder.owner));
    if let Some(age) = age(status, holder.since) {
        text.push_str(&format!(", for {age}"));
    }
    text.push_str(&others(status));
    if let Some(usage) = usage(status) {
        text.push_str(&format!(", {usage}"));
    }
    Some(text)
}

/// `2 of 5 in the queue`; `None` for a client that is not in it.
pub(super) fn place(status: &LockStatus, client: ClientId) -> Option<String> {
    let place = waiter(status, client)?.place;
    Some(format!("{place} of {} in the queue", status.queue_len))
}

/// `after bob@web-2, pid 7, sync, waiting for 12s`: the waiter right before the client.
pub(super) fn predecessor(status: &LockStatus, client: ClientId) -> Option<String> {
    let place = waiter(status, client)?.place;
    let before = status.queue.iter().rfind(|waiter| waiter.place < place)?;
    let mut text = format!("after {}", owner(status, &before.owner));
    if let Some(age) = age(status, before.since) {
        text.push_str(&format!(", waiting for {age}"));
    }
    if before.alive == Some(false) {
        text.push_str(" (silent)");
    }
    Some(text)
}

fn waiter(status: &LockStatus, client: ClientId) -> Option<&QueuedWaiter> {
    status.queue.iter().find(|waiter| waiter.owner.client() == Some(client))
}

/// What the owner's client publishes about itself, else its id.
fn owner(status: &LockStatus, owner: &OwnerId) -> String {
    match status.client(owner) {
        Some(client) => who(client),
        None if owner.is_ours() => owner.to_string(),
        None => format!("another program ({owner})"),
    }
}
