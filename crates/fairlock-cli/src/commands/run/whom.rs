//! The waiters of a lock, as parts of one line.

use fairlock::{ClientId, LockStatus, QueuedWaiter};

use crate::locks::text::{age, owner};

/// `2 of 5 in the queue`; `None` for a client that is not in it.
pub(super) fn place(status: &LockStatus, client: ClientId) -> Option<String> {
    let place = waiter(status, client)?.place;
    Some(format!("{place} of {} in the queue", status.queue_len))
}

/// `place 2 of 5`: the same for a narrow line.
pub(super) fn short_place(status: &LockStatus, client: ClientId) -> Option<String> {
    let place = waiter(status, client)?.place;
    Some(format!("place {place} of {}", status.queue_len))
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
