//! The content of a lock's keys as plain data, for tests to compare and for embedded stores to
//! keep. One field for each key of docs/protocol.md.

use crate::id::{ClientId, OwnerId, RequestId};
use crate::value::SimpleValue;
use std::collections::{BTreeMap, VecDeque};

/// Everything that is stored about one lock. Times are server milliseconds since 1970; an
/// `*_expires` of `None` means a key without a TTL, or no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The lock hash: owner and hold count.
    pub hold: BTreeMap<OwnerId, i64>,
    /// TTL of the lock hash.
    pub hold_expires: Option<u64>,
    /// The string in place of the lock hash, while the lock is held as a simple lock.
    pub value: Option<SimpleValue>,
    /// TTL of that string.
    pub value_expires: Option<u64>,
    /// The last token.
    pub token: Option<u64>,
    /// TTL of the token.
    pub token_expires: Option<u64>,
    /// The queue, head first.
    pub queue: VecDeque<OwnerId>,
    /// TTL of the queue.
    pub queue_expires: Option<u64>,
    /// Redisson's timeout scores, in milliseconds since 1970.
    pub scores: BTreeMap<OwnerId, i64>,
    /// TTL of the scores.
    pub scores_expires: Option<u64>,
    /// Order numbers of our waiters.
    pub order: BTreeMap<OwnerId, u64>,
    /// TTL of the order numbers.
    pub order_expires: Option<u64>,
    /// Records of our waiters.
    pub waiters: BTreeMap<OwnerId, SnapshotWaiter>,
    /// The lock's own record; shares a key and a TTL with `waiters`.
    pub record: SnapshotRecord,
    /// TTL of waiters and record.
    pub state_expires: Option<u64>,
    /// The last beat of each waiting client.
    pub beats: BTreeMap<ClientId, u64>,
    /// TTL of the beats.
    pub beats_expires: Option<u64>,
    /// Requests that were given up while a copy was under way, and until when they are refused.
    pub buried: BTreeMap<RequestId, u64>,
}

impl Snapshot {
    /// Returns whether the key of `waiters` and `record` exists.
    pub fn has_state(&self) -> bool {
        !self.waiters.is_empty() || self.record != SnapshotRecord::default()
    }
}

/// The record of one waiter of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotWaiter {
    /// The request whose queue entry this is.
    pub request: RequestId,
    /// The lease of the hold that it will get, in milliseconds.
    pub lease_ms: u64,
    /// The waiter counts as reachable, whatever the state of its inbox.
    pub sure: bool,
}

/// The record of the lock, besides holder and waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotRecord {
    /// Token and request of the last grant that was recorded: a hand-over, or a grant to a shared
    /// owner.
    pub grant: Option<(u64, RequestId)>,
    /// Token of the hold, and number of its last change.
    pub change: Option<(u64, u64)>,
    /// Nobody is dead by age before this time.
    pub amnesty: Option<u64>,
    /// The last beat before the silence that the amnesty answered.
    pub silence: Option<u64>,
    /// The head that blocks the free lock.
    pub watch: Option<Watch>,
    /// No waiter of ours is granted the lock before this time: after a loss of state the others
    /// gather first.
    pub gather: Option<u64>,
    /// Until when the free lock is, or was last, left to foreign waiters, which do not stand in
    /// line.
    pub guest: Option<u64>,
    /// When a waiter of ours was last removed as dead.
    pub removed: Option<u64>,
    /// The largest order number ever given, if the clock may go back
    /// ([`Rules::ages`](crate::Rules::ages)).
    pub given: Option<u64>,
}

/// A head that was offered the free lock and did not take it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// The owner id.
    pub id: OwnerId,
    /// Its score, which distinguishes this entry from a later one of the same owner.
    pub score: i64,
    /// Since when the lock has been free for it.
    pub since: u64,
    /// When it was last notified.
    pub pinged: u64,
}
