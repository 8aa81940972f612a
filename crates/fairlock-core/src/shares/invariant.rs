//! Checks the invariants that the module lists, after every operation in debug builds.
//!
//! A hold whose lease is over stays until somebody is served, so that the end of a lease is not forgotten.

use crate::holds::Shares;
use crate::op::is_share_of;
use crate::op::{Body, Op};
use crate::rules::TOKEN_LIMIT;
use crate::share::Share;
use crate::state::{Cx, LockState};
use std::collections::{BTreeMap, BTreeSet};

/// The most holds and waiters for which everything is checked. With more, the check would take longer than the
/// operation.
const CHECKED_MAX: usize = 256;

impl LockState {
    pub(super) fn check_shares(&self, token_before: Option<u64>, cx: &Cx<'_>, body: &Body) {
        let Some(shares) = &self.shares else { return };
        if shares.holds().len() + self.by_order.len() > CHECKED_MAX {
            return;
        }
        let (k, op) = (&self.keys, cx.op);
        let after = || format!("after {op:?}: {shares:#?}\n{k:#?}");
        shares.check_holds().unwrap_or_else(|what| panic!("{what} {}", after()));
        let ordered: BTreeSet<_> =
            k.order.iter().map(|(owner, order)| (*order, owner.clone())).collect();
        // Records may be lost; then the waiter returns.
        let agree = ordered == self.by_order
            && (!k.order.keys().eq(k.waiters.keys()) || k.order.keys().eq(shares.wants.keys()));
        assert!(agree, "G4: the line is torn {}", after());
        assert!(k.token >= token_before, "G5: the token falls {}", after());
        assert!(k.token.unwrap_or(0) < TOKEN_LIMIT, "G5: not exact {}", after());
        let holds_and_waits = shares.holds().keys().find(|owner| k.order.contains_key(*owner));
        assert!(holds_and_waits.is_none(), "G6: {holds_and_waits:?} {}", after());
        let endless = self.without_ttl();
        assert!(endless.is_none(), "G8: {endless:?} is there for ever {}", after());
        if cx.more || !ends_by_serving(op, body) || !self.can_mint(cx.now_us) {
            return;
        }
        let pauses = k.record.gather.is_some_and(|until| cx.now_ms < until)
            || self.left_to_guests(cx.now_ms).is_some();
        let head = self.by_order.first().and_then(|(_, head)| shares.wants.get(head));
        assert!(pauses || !head.is_some_and(|want| shares.fits(*want)), "G2 {}", after());
    }
}

fn ends_by_serving(op: &Op, body: &Body) -> bool {
    match op {
        Op::AcquireShare(_) => matches!(body, Body::Queued { .. }),
        Op::Renew { .. } => !matches!(body, Body::Renewed),
        Op::Inspect { .. } | Op::Place { .. } | Op::Reenter { .. } | Op::Acquire(_) => false,
        _ => true,
    }
}

impl Shares {
    /// Checks G1, G4 and G5 of the holds.
    fn check_holds(&self) -> Result<(), String> {
        let holds = self.holds();
        let whole = holds.values().any(|hold| hold.share == Share::Whole);
        if whole && holds.len() > 1 {
            return Err("G1: somebody has a part beside a Whole".to_owned());
        }
        let (mut used, mut limits) = (0, BTreeMap::new());
        for hold in holds.values() {
            if let Share::Permits { n, limit } = hold.share {
                used += u64::from(n);
                *limits.entry(limit).or_default() += 1;
            }
            if !is_share_of(self.kind(), hold.share) {
                return Err(format!("G1: {:?} is no share of it", hold.share));
            }
        }
        let most = limits.keys().next_back().copied().unwrap_or(0);
        if used > u64::from(most) {
            return Err(format!("G1: {used} of {most} permits are in use"));
        }
        let ends: BTreeSet<_> =
            holds.iter().map(|(owner, hold)| (hold.ends_ms, owner.clone())).collect();
        if ends != *self.ends() || used != self.used() || limits != *self.limits_counted() {
            return Err("G4: holds, leases, permits and limits differ".to_owned());
        }
        let tokens: BTreeSet<_> = holds.values().map(|hold| hold.token).collect();
        let reads = holds.values().any(|hold| hold.share == Share::Read);
        let phase = self.phase();
        match reads {
            true if tokens.len() > 1 || phase != tokens.first().copied() => {
                Err("G5: those who read have several tokens".to_owned())
            }
            false if tokens.len() < holds.len() || phase.is_some() => {
                Err("G5: two have one token".to_owned())
            }
            _ => Ok(()),
        }
    }
}
