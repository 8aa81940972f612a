//! The invariants of a lock, checked after every operation in debug builds. A state that was made
//! inconsistent from outside (lost keys, operators) is exempt until it is repaired.
//!
//! - C1 A hold has one owner, a count above zero, and a TTL unless it is foreign.
//! - C2 If the head of a free lock is a live waiter of ours, the lock was handed on, unless the
//!   reply says MORE, a pause runs (gathering, a lost record), or no token is left.
//! - C3 Every order number has a record, and every record an order number.
//! - C4 Our waiters are in the queue in the order of their numbers.
//! - C5 The token never falls, and is below 2^53.
//! - C6 The holder is not in the queue.
//! - C7 Queue and scores have the same members, each once; ours among them are on record.
//! - C8 Our own keys, and a hold of ours, have a TTL.

#![cfg(debug_assertions)]

use crate::op::Op;
use crate::rules::{Rules, TOKEN_LIMIT};
use crate::state::LockState;
use std::collections::BTreeSet;

impl LockState {
    /// Whether the structures agree with each other (C1, C3, C4, C6, C7) and expire by themselves
    /// (C8). Every script of ours preserves this; lost keys, operators and foreign clients may
    /// break it.
    pub(crate) fn is_consistent(&self, _now_ms: u64) -> bool {
        let k = &self.keys;
        let members: BTreeSet<_> = k.queue.iter().collect();
        let ours: Vec<_> = k.queue.iter().filter(|m| m.is_ours()).collect();
        let c1 = k.hold.is_empty()
            || (self.not_a_hold().is_none()
                && (k.hold_expires.is_some() || !self.is_held_by_ours()));
        let c3 = k.order.keys().eq(k.waiters.keys());
        let orders: Vec<_> = ours.iter().map(|m| k.order.get(*m)).collect();
        let c4 = orders.iter().all(Option::is_some) && orders.is_sorted() && !self.has_ties();
        let c6 = k.hold.keys().all(|holder| !members.contains(holder));
        let c7 = members.len() == k.queue.len()
            && members.into_iter().eq(k.scores.keys())
            && ours.len() == k.order.len();
        let c8 = self.without_ttl().is_none();
        let numbers =
            k.order.values().copied().chain(k.record.given).all(|n| n > 0 && n < TOKEN_LIMIT);
        c1 && c3 && c4 && c6 && c7 && c8 && numbers
    }

    /// Whether two waiters have the same order number: the registry was lost and the clock set
    /// back. Their relative order then means nothing.
    fn has_ties(&self) -> bool {
        self.keys.order.values().collect::<BTreeSet<_>>().len() < self.keys.order.len()
    }

    fn is_held_by_ours(&self) -> bool {
        self.holder().is_some_and(crate::id::OwnerId::is_ours)
    }

    /// The first key of the lock, or of ours, that has content but no TTL.
    pub(crate) fn without_ttl(&self) -> Option<&'static str> {
        let k = &self.keys;
        let keys = [
            ("hold", self.is_held_by_ours(), k.hold_expires),
            ("value", k.value.as_ref().is_some_and(|v| v.is_ours()), k.value_expires),
            ("order", !k.order.is_empty(), k.order_expires),
            ("state", k.has_state(), k.state_expires),
            ("beats", !k.beats.is_empty(), k.beats_expires),
        ];
        let found = keys.iter().find(|(_, exists, expires)| *exists && expires.is_none());
        found.map(|(name, ..)| *name)
    }

    pub(crate) fn check(
        &self,
        now_ms: u64,
        token_before: Option<u64>,
        rules: &Rules,
        more: bool,
        op: &Op,
    ) {
        let k = &self.keys;
        let endless = self.without_ttl();
        assert!(endless.is_none(), "C8: {endless:?} without a TTL after {op:?}: {k:#?}");
        // A plain acquisition ignores the queue. A client that mixes kinds under one name may hold
        // the lock while a fair request of the same owner still waits for it.
        let mixed = matches!(op, Op::Acquire(a) if a.kind == crate::op::Kind::Plain)
            && k.queue.iter().any(|member| k.hold.contains_key(member));
        let consistent = mixed || self.has_ties() || self.is_consistent(now_ms);
        assert!(consistent, "C1, C3, C4, C6 or C7 broken by {op:?}: {k:#?}");
        assert!(k.token >= token_before, "C5 broken by {op:?}: {k:#?}");
        assert!(k.token.unwrap_or(0) < TOKEN_LIMIT, "C5 broken by {op:?}: {k:#?}");
        let ends_with_next = !matches!(
            op,
            Op::Inspect { .. }
                | Op::AcquireShare(_)
                | Op::Downgrade { .. }
                | Op::Place { .. }
                | Op::Announce(_)
                | Op::Leader
                | Op::Renew { .. }
                | Op::Reenter { .. }
                | Op::Acquire(crate::op::Acquire { kind: crate::op::Kind::Plain, .. })
                | Op::Release { kind: crate::op::Kind::Plain, .. }
                | Op::Leave { kind: crate::op::Kind::Plain, .. }
        ) && !op.is_simple();
        let head_is_ours = k.queue.front().is_some_and(crate::id::OwnerId::is_ours);
        if ends_with_next && head_is_ours && self.is_free() && !more {
            let paused = self.next_deadline_ms(now_ms, rules).is_some()
                || !self.can_mint(now_ms.saturating_mul(1_000));
            let refused = matches!(op, Op::Acquire(a) if now_ms > a.not_after_ms
                || k.buried.contains_key(&a.request));
            assert!(paused || refused, "C2 broken by {op:?}: {k:#?}");
        }
    }
}
