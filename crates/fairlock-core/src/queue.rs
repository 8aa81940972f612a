//! The queue: entering, leaving, returning to a place, and repairing what others broke.

use crate::id::OwnerId;
use crate::op::Acquire;
use crate::snapshot::{SnapshotRecord, SnapshotWaiter};
use crate::state::{Cx, LockState};
use std::collections::BTreeSet;

impl LockState {
    /// Whether `owner` is in the queue, according to every key that records it.
    pub(crate) fn is_queued(&self, owner: &OwnerId) -> bool {
        self.keys.scores.contains_key(owner) && self.is_on_record(owner)
    }

    /// Whether the order number and the record of `owner` exist.
    pub(crate) fn is_on_record(&self, owner: &OwnerId) -> bool {
        self.keys.order.contains_key(owner) && self.keys.waiters.contains_key(owner)
    }

    /// Puts the caller into the queue, at the end or back in its place, or assigns its existing
    /// entry to this request.
    pub(crate) fn enter(&mut self, a: &Acquire, cx: &Cx<'_>) {
        let waiter = SnapshotWaiter { request: a.request, lease_ms: a.lease_ms, sure: a.sure };
        let known = self.keys.order.get(&a.owner).copied();
        if let Some(order) = known {
            if is_no_number(&order) {
                self.keys.order.remove(&a.owner);
                self.by_order.remove(&(order, a.owner.clone()));
            } else if self.is_queued(&a.owner) {
                self.keys.waiters.insert(a.owner.clone(), waiter);
                return;
            }
        }
        self.gather_after_loss(a, cx);
        let stood = self.place_without_number(&a.owner).filter(|_| a.order.is_some());
        if a.order.is_some() || a.shared_owner || self.keys.scores.contains_key(&a.owner) {
            self.unlist(&a.owner);
        }
        if known.is_some() {
            self.drop_order(&a.owner);
        } else {
            // All that may be left of it.
            self.keys.waiters.remove(&a.owner);
            self.settle();
        }
        let (order, least) = match a.order {
            Some(order) => {
                match stood {
                    Some(place) => self.insert_at(&a.owner, place),
                    None => self.insert_by_order(&a.owner, order),
                }
                (order, 0)
            }
            None => {
                let tail = self.keys.queue.back().and_then(|tail| self.keys.scores.get(tail));
                // Others may have written any score, an endless one included.
                let least = tail.copied().unwrap_or(0).min(to_score(crate::rules::LONGEST_MS));
                self.keys.queue.push_back(a.owner.clone());
                (self.next_order(cx), least)
            }
        };
        self.note_order(order, cx);
        self.keys.order.insert(a.owner.clone(), order);
        self.by_order.insert((order, a.owner.clone()));
        let ahead =
            if a.order.is_some() { self.foreign_ahead(&a.owner) } else { self.foreign_waiting() };
        let floor = to_score(cx.now_ms + cx.rules.fair_wait_ms * (1 + ahead));
        self.keys.scores.insert(a.owner.clone(), floor.max(least));
        self.keys.waiters.insert(a.owner.clone(), waiter);
    }

    /// Returns the number for a new waiter: larger than all numbers given so far.
    #[inline]
    pub(crate) fn next_order(&mut self, cx: &Cx<'_>) -> u64 {
        let last = loop {
            let last = self.by_order.last().map_or(0, |(order, _)| *order);
            if last < crate::rules::TOKEN_LIMIT {
                break last;
            }
            if let Some((_, owner)) = self.by_order.pop_last() {
                self.keys.order.remove(&owner);
            }
        };
        // A waiter that is out of the queue at this moment has no number in it, and the clock may
        // have gone back since that number was given.
        let given = self.keys.record.given.filter(|given| !is_no_number(given));
        let last = last.max(given.unwrap_or(0));
        cx.now_us.max(last + 1)
    }

    /// Notes that this number was given.
    #[inline]
    pub(crate) fn note_order(&mut self, order: u64, cx: &Cx<'_>) {
        if cx.rules.ages {
            let given = self.keys.record.given.filter(|given| !is_no_number(given));
            self.keys.record.given = given.max(Some(order));
        }
    }

    /// A waiter that returns when the registry no longer exists shows that state was lost. The
    /// other waiters, and the holder's own check, then get one heartbeat's time before any waiter
    /// of ours is served.
    #[inline]
    pub(crate) fn gather_after_loss(&mut self, a: &Acquire, cx: &Cx<'_>) {
        if a.order.is_some() && self.registry_is_gone() {
            self.keys.record.gather = Some(cx.now_ms + cx.rules.beat_ms);
        }
    }

    /// Whether nothing is known of any waiter of ours. A watch does not count, because an entry
    /// whose record is gone starts one. Nor does the last order number, which may belong to a
    /// waiter that came after the loss.
    fn registry_is_gone(&self) -> bool {
        let k = &self.keys;
        let others = SnapshotRecord { watch: None, given: None, ..k.record.clone() };
        k.order.is_empty() && k.waiters.is_empty() && others == SnapshotRecord::default()
    }

    /// The place in the queue of a waiter whose order number was lost. The list still shows who
    /// came first; the numbers of the waiters that have already returned do not.
    fn place_without_number(&self, owner: &OwnerId) -> Option<usize> {
        let k = &self.keys;
        let stands = k.scores.contains_key(owner) && !k.order.contains_key(owner);
        stands.then(|| k.queue.iter().position(|member| member == owner))?
    }

    /// Inserts before the member that is at `place` now.
    fn insert_at(&mut self, owner: &OwnerId, place: usize) {
        let queue = &mut self.keys.queue;
        let before = queue.get(place).cloned();
        // A member that is listed twice is found at its first position.
        let place = before.and_then(|before| queue.iter().position(|member| *member == before));
        queue.insert(place.unwrap_or(queue.len()), owner.clone());
    }

    /// Puts a waiter back in its place: right after the waiter of ours with the next smaller order
    /// number, otherwise at the front, but behind a Java head that was offered the lock.
    fn insert_by_order(&mut self, owner: &OwnerId, order: u64) {
        let before = self.by_order.iter().rev().find(|(other, _)| *other < order);
        let place = before
            .and_then(|(_, previous)| self.keys.queue.iter().position(|m| m == previous))
            .map(|position| position + 1);
        let place = place.unwrap_or_else(|| {
            let head = self.keys.queue.front().filter(|head| !head.is_ours());
            // The score is compared too: the same owner may have entered anew since it was offered
            // the lock.
            let watched = self.keys.record.watch.as_ref().is_some_and(|watch| {
                head == Some(&watch.id) && self.keys.scores.get(&watch.id) == Some(&watch.score)
            });
            usize::from(watched)
        });
        self.keys.queue.insert(place, owner.clone());
    }

    /// Removes `owner` from the shared queue keys: O(1) at the head, O(queue) elsewhere.
    pub(crate) fn unlist(&mut self, owner: &OwnerId) {
        if self.keys.queue.front() == Some(owner) {
            self.keys.queue.pop_front();
        } else {
            self.keys.queue.retain(|member| member != owner);
        }
        self.keys.scores.remove(owner);
        // A key that is empty now is gone, and has no TTL if it is created again in the same call.
        self.settle();
    }

    /// Keeps the score of a waiter that was asked about, so that no Java client takes it for dead:
    /// beyond what the foreign members before it can subtract, and as far ahead as Java waits for
    /// us. The head gets exactly that; others keep the score from their entry if it is higher.
    pub(crate) fn keep_score(&mut self, owner: &OwnerId, cx: &Cx<'_>) {
        let ahead = self.foreign_ahead(owner);
        let floor = cx.now_ms + cx.rules.slack_ms() + cx.rules.fair_wait_ms * ahead;
        if self.keys.queue.front() == Some(owner) {
            self.keys.scores.insert(owner.clone(), to_score(floor));
        } else if let Some(score) = self.keys.scores.get_mut(owner) {
            *score = (*score).max(to_score(floor));
        }
    }

    /// Java computes the scores of its new waiters from the tail's, and a client's heartbeats name
    /// only its oldest waiter: behind a stale tail, a Java waiter would count as dead from the
    /// start.
    pub(crate) fn keep_tail(&mut self, cx: &Cx<'_>) {
        let foreign = self.foreign_waiting();
        let k = &mut self.keys;
        let Some(tail) = k.queue.back().filter(|tail| tail.is_ours()) else { return };
        if k.queue.front() == Some(tail) {
            return;
        }
        let floor = to_score(cx.now_ms + cx.rules.fair_wait_ms * (1 + foreign));
        if let Some(score) = k.scores.get_mut(tail) {
            *score = (*score).max(floor);
        }
    }

    /// How many foreign members are before a waiter of ours: only these can still subtract from its
    /// score. Those behind it must not raise it, because Java must wait for the score to pass if
    /// the waiter dies.
    fn foreign_ahead(&self, owner: &OwnerId) -> u64 {
        let foreign = self.foreign_waiting();
        if foreign == 0 {
            return 0;
        }
        let place = self.keys.queue.iter().position(|member| member == owner);
        let (Some(place), Some(order)) = (place, self.keys.order.get(owner)) else {
            return foreign;
        };
        let ours = self.by_order.range(..(*order, owner.clone())).count();
        place.saturating_sub(ours) as u64
    }

    /// Makes list, scores and order agree again. Every script changes list and scores together,
    /// Java's included; only lost keys and operators make them differ: O(queue), once for each such
    /// event. Java does not know the order, and removes heads. So the first waiters in order are
    /// checked: if removed heads stayed in the order, they would count as waiting and hide foreign
    /// members (`foreign_waiting`).
    pub(crate) fn mend(&mut self, cx: &Cx<'_>) {
        let k = &self.keys;
        let (listed, scored, ordered) = (k.queue.len(), k.scores.len(), k.order.len());
        let apart = listed != scored || ordered > listed;
        if apart && listed.max(scored).max(ordered) <= crate::rules::MENDED_MAX {
            self.mend_all(cx);
        }
        for _ in 0..crate::rules::LOOKED_AT_MAX {
            let Some((_, first)) = self.by_order.first() else { return };
            if self.keys.scores.contains_key(first) {
                return;
            }
            let lost = first.clone();
            self.drop_lost(&lost, cx);
        }
    }

    fn mend_all(&mut self, cx: &Cx<'_>) {
        let k = &mut self.keys;
        let mut listed = BTreeSet::new();
        k.queue.retain(|member| listed.insert(member.clone()));
        k.scores.retain(|member, _| listed.contains(member));
        for member in &k.queue {
            let score = to_score(cx.now_ms + cx.rules.fair_wait_ms);
            k.scores.entry(member.clone()).or_insert(score);
        }
        let lost: Vec<OwnerId> =
            k.order.keys().filter(|owner| !listed.contains(*owner)).cloned().collect();
        for owner in lost {
            self.drop_lost(&owner, cx);
        }
    }

    /// Forgets a waiter that others removed from list and scores. It may be alive and return.
    pub(crate) fn drop_lost(&mut self, owner: &OwnerId, cx: &Cx<'_>) {
        self.drop_order(owner);
        self.note_removed(cx);
    }

    /// Records that a waiter of ours was removed although it may return, so that its return is not
    /// mistaken for one after a loss of state.
    pub(crate) fn note_removed(&mut self, cx: &Cx<'_>) {
        self.keys.record.removed = Some(cx.now_ms);
        self.keep_state(cx);
    }
}

/// Whether this order number cannot have been given: no reply could contain it, or the one after
/// it.
fn is_no_number(order: &u64) -> bool {
    *order == 0 || *order >= crate::rules::TOKEN_LIMIT
}

pub(crate) fn to_score(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
