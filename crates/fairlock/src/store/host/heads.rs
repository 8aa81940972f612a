//! The head of a line for shares: whose death it watches for, and when it is told to look again.
//!
//! Several may be in its way. Invariant: the client of the first waiter watches the clients of all holds
//! (of [`WATCHED_MAX`] clients, if there are more), except its own and holds that last without their
//! client. While it is first, holds only end: nobody is served before it. So this can only break when
//! another waiter becomes the first, and whoever lets that happen tells its client.

use super::liveness::{self, Sign};
use super::store::Inner;
use crate::store::Topic;
use fairlock_core::{ClientId, LockName, LockState, OwnerId, Shares};

/// How many holders' deaths one waiter watches for, with a descriptor each. If more are in its way, its
/// heartbeats find out about the others.
pub(super) const WATCHED_MAX: usize = 64;

/// The line for shares before an operation.
#[derive(Debug, Default)]
pub(super) struct LineBefore {
    head: Option<OwnerId>,
    waiting: usize,
}

impl LineBefore {
    pub(super) fn of(lock: &LockState) -> Self {
        if lock.shares().is_none() {
            return Self::default();
        }
        Self { head: lock.line().next().cloned(), waiting: lock.snapshot().order.len() }
    }

    /// The client that has to look whom it must watch now, because its waiter has become the first.
    pub(super) fn to_tell(&self, after: &LockState) -> Option<ClientId> {
        let shares = after.shares()?;
        let head = after.line().next()?;
        if self.head.as_ref() == Some(head) {
            return None;
        }
        // It stood directly behind the only holder, so that is whom it watches.
        let was_before = |first: &OwnerId| {
            shares.holds().len() == 1
                && shares.holds().contains_key(first)
                && after.snapshot().order.len() + 1 == self.waiting
        };
        if self.head.as_ref().is_some_and(was_before) {
            return None;
        }
        head.client()
    }
}

impl Inner {
    /// Watches the clients of all holds, for this client's waiter at the head of the line. Returns
    /// whether one of them is dead and still holds; with `anyhow`, it is watched nevertheless, and its
    /// alarm goes off at once.
    pub(super) fn watch_holders(
        &self,
        name: &LockName,
        shares: &Shares,
        topic: &Topic,
        anyhow: bool,
    ) -> bool {
        let mut watched = Vec::new();
        for (owner, hold) in shares.holds() {
            if watched.len() == WATCHED_MAX {
                break;
            }
            let Some(client) = owner.client().filter(|client| *client != self.client) else {
                continue;
            };
            if watched.contains(&client)
                || liveness::is_left(&self.folder, client, name, hold.token)
            {
                continue;
            }
            let is_known = anyhow || self.watches.watches(topic, client);
            if !is_known && liveness::look(&self.folder, client) == Sign::Gone {
                return true;
            }
            watched.push(client);
        }
        self.watches.set(topic, &watched);
        false
    }
}
