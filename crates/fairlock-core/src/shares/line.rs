//! The line of waiters for a share, in order of arrival. It is the order of the waiters' numbers:
//! no foreign client stands in it, so there is no list.

use crate::holds::Shares;
use crate::id::OwnerId;
use crate::op::Acquire;
use crate::share::Share;
use crate::snapshot::SnapshotWaiter;
use crate::state::{Cx, LockState};

impl LockState {
    /// The holds of a lock with shares. [`apply`](Self::apply) creates them before any rule reads
    /// them.
    pub(super) fn shared(&mut self) -> &mut Shares {
        self.shares.get_or_insert_with(|| Box::new(Shares::new(crate::op::Kind::ReadWrite)))
    }

    /// Puts the caller into the line, at the end or back in its place, or assigns its existing place to this request.
    pub(super) fn stand_in_line(&mut self, a: &Acquire, share: Share, cx: &Cx<'_>) {
        let waiter = SnapshotWaiter { request: a.request, lease_ms: a.lease_ms, sure: a.sure };
        if !self.is_on_record(&a.owner) {
            self.gather_after_loss(a, cx);
            self.leave_line(&a.owner);
            let order = a.order.unwrap_or_else(|| self.next_order(cx));
            self.note_order(order, cx);
            self.keys.order.insert(a.owner.clone(), order);
            self.by_order.insert((order, a.owner.clone()));
        }
        self.keys.waiters.insert(a.owner.clone(), waiter);
        self.shared().wants.insert(a.owner.clone(), share);
    }

    /// Takes a waiter out of the line.
    pub(super) fn leave_line(&mut self, owner: &OwnerId) {
        self.drop_order(owner);
        self.shared().wants.remove(owner);
    }

    /// How many waiters are before `owner`.
    pub(super) fn place_in_line(&self, owner: &OwnerId) -> Option<u64> {
        let order = *self.keys.order.get(owner)?;
        Some(self.by_order.range(..(order, owner.clone())).count() as u64)
    }

    /// When something may change without a call, while somebody waits: a lease ends, or a pause.
    pub(crate) fn shares_deadline_ms(&self, now_ms: u64, beat_ms: u64) -> Option<u64> {
        if self.by_order.is_empty() {
            return None;
        }
        let end = self.shares.as_ref().and_then(|shares| shares.first_end_ms()).map(|end| end + 1);
        // A pause that ends further ahead than it is ever set means that the clock was set back.
        let pause = self.keys.record.gather.filter(|at| *at > now_ms && *at <= now_ms + beat_ms);
        [end, pause, self.left_to_guests(now_ms)].into_iter().flatten().min()
    }
}
