//! The head of a line for shares: which deaths it watches for, and when its client is woken to look
//! again.
//!
//! Several holders may be in its way. Invariant: the client of the first waiter watches the clients of all holds (of
//! [`WATCHED_MAX`] clients, if there are more), except its own and holds that last without their client. While it is
//! first, holds only end: nobody is served before it. So this can only break when another waiter becomes the first,
//! and the client that causes that wakes the client of the new head.
//!
//! That client may be killed before it notifies anybody. Of the waiters that it has served, it
//! notifies the first in line last, so if anybody is left without a notification, the first one is.
//! But the first one looks: it watches the killed process, or has just been woken as the first, or
//! watches the waiter before it, which is dead as well. Invariant: a client whose look finds that
//! it was served notifies all others that may have been left out ([`untold`]).

use super::liveness::{self, Sign};
use super::store::Inner;
use crate::store::Topic;
use fairlock_core::{Body, ClientId, Fate, LockName, LockState, OwnerId, Shares};
use std::collections::BTreeSet;

/// How many holders' deaths one waiter watches for, with a descriptor each. If more are in its way, its
/// heartbeats find out about the others.
pub(super) const WATCHED_MAX: usize = 64;

/// While more than [`WATCHED_MAX`] owners hold shares, the first waiter chooses anew whom to watch each time this
/// many of them have left, so it always watches at least [`WATCHED_MAX`] minus this many.
const CHOSEN_AFTER: usize = 16;

/// How many clients are notified in place of a client that was killed before it could notify them;
/// the others look at their heartbeats. One notification takes 5 us.
const UNTOLD_MAX: usize = 1_000;

/// The line for shares before an operation.
#[derive(Debug, Default)]
pub(super) struct LineBefore {
    head: Option<OwnerId>,
    waiting: usize,
    holding: usize,
}

impl LineBefore {
    pub(super) fn of(lock: &LockState) -> Self {
        let Some(shares) = lock.shares() else { return Self::default() };
        Self {
            head: lock.line().next().cloned(),
            waiting: lock.snapshot().order.len(),
            holding: shares.holds().len(),
        }
    }

    /// The client that must look again whom to watch: its waiter has become the first, or it could
    /// not watch all holders and some have left.
    pub(super) fn to_tell(&self, after: &LockState) -> Option<ClientId> {
        let shares = after.shares()?;
        let head = after.line().next()?;
        if self.head.as_ref() == Some(head) {
            let (before, now) = (self.holding, shares.holds().len());
            let is_time =
                before > WATCHED_MAX && now.div_ceil(CHOSEN_AFTER) < before.div_ceil(CHOSEN_AFTER);
            return head.client().filter(|_| is_time);
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

/// Whether the reply to a heartbeat shows that its client was served.
pub(super) fn finds_grant(body: &Body) -> bool {
    let Body::Fates { fates, .. } = body else { return false };
    fates.iter().any(|fate| matches!(fate, Fate::Granted(_)))
}

/// The clients that may have been served, or whose waiter may have become the first, without being notified.
pub(super) fn untold(lock: &LockState, own: ClientId) -> Vec<ClientId> {
    let holders = lock.shares().into_iter().flat_map(|shares| shares.holds().keys());
    let clients = holders.chain(lock.line().next()).filter_map(OwnerId::client);
    let others: BTreeSet<_> = clients.filter(|client| *client != own).take(UNTOLD_MAX).collect();
    others.into_iter().collect()
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
                || liveness::is_left(&self.folder, client, name, hold.token, Some(hold.request))
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
