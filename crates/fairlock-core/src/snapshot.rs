//! The content of a lock's keys as plain data: what tests compare, and what an embedded store
//! keeps. One field for each key of docs/protocol.md.

use crate::id::{ClientId, OwnerId, RequestId};
use crate::value::SimpleValue;
use std::collections::{BTreeMap, VecDeque};

/// All that is stored about one lock. Times are server milliseconds since 1970; an `*_expires` of
/// `None` is a key without a TTL, or no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The lock hash: owner and hold count.
    pub hold: BTreeMap<OwnerId, i64>,
    /// TTL of the lock hash.
    pub hold_expires: Option<u64>,
    /// What stands in the lock's key in place of the hash while it is held as a simple lock.
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
    /// Whether the key of `waiters` and `record` exists.
    pub fn has_state(&self) -> bool {
        !self.waiters.is_empty() || self.record != SnapshotRecord::default()
    }
}

/// What is known of one waiter of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotWaiter {
    /// The request that stands in the queue.
    pub request: RequestId,
    /// The lease that the hold shall have, in milliseconds.
    pub lease_ms: u64,
    /// Counts as reachable whatever its inbox looks like.
    pub sure: bool,
}

/// What is known of the lock beside holder and waiters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotRecord {
    /// Token and request of the last grant by hand-over.
    pub grant: Option<(u64, RequestId)>,
    /// Token of the hold, and number of its last change.
    pub change: Option<(u64, u64)>,
    /// Nobody is dead by age before this time.
    pub amnesty: Option<u64>,
    /// The last beat before the silence that the amnesty answered.
    pub silence: Option<u64>,
    /// The head that blocks the free lock.
    pub watch: Option<Watch>,
    /// No grants to ours before this time: after a loss of state the others gather first.
    pub gather: Option<u64>,
    /// When a waiter of ours was last removed as dead.
    pub removed: Option<u64>,
    /// The largest order number that was ever given, while the clock may go back
    /// ([`Rules::ages`](crate::Rules::ages)).
    pub given: Option<u64>,
}

/// A head that was offered the free lock and did not take it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// Who.
    pub id: OwnerId,
    /// Its score, which tells this entry from a later one of the same owner.
    pub score: i64,
    /// Since when the lock is free for it.
    pub since: u64,
    /// When it was last told.
    pub pinged: u64,
}
