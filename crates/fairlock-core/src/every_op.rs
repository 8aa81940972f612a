//! Every operation once, for tests that try all of them.

use crate::latch::{LatchOp, LatchRequest};
use crate::op::{Announce, Op, ShareAcquire, has_queue, is_share_of, is_shared, is_string};
use crate::rules::Token;
use crate::share::Share;

/// Returns every operation on a lock of the kind of `ask`, by its owner, whose hold has this token.
#[doc(hidden)]
pub fn every_op(ask: &ShareAcquire, token: Token) -> Vec<Op> {
    let (mut all, mut next) = (Vec::new(), after(None, ask, token));
    while let Some(op) = next {
        next = after(Some(&op), ask, token);
        all.push(op);
    }
    let kind = ask.acquire.kind;
    let is_for = |op: &Op| match op {
        Op::Acquire(_) => !is_shared(kind),
        Op::AcquireShare(_) => is_shared(kind),
        Op::Downgrade { .. } => is_share_of(kind, Share::Read),
        Op::Announce(_) | Op::Leader => has_queue(kind) && !is_shared(kind),
        Op::Reenter { .. } | Op::Beat { .. } | Op::Nudge | Op::Place { .. } => !is_string(kind),
        Op::Latch(_) => false,
        _ => true,
    };
    all.retain(is_for);
    let named = |op: Op| match op {
        Op::Downgrade { .. } | Op::Reenter { .. } | Op::Release { .. } | Op::Renew { .. } => {
            op.of_hold(kind, ask.acquire.request, ask.acquire.not_after_ms)
        }
        op => op.on(kind),
    };
    all.into_iter().map(named).collect()
}

/// The operation that follows this one in the list. A new operation does not compile until it is here.
fn after(op: Option<&Op>, ask: &ShareAcquire, token: Token) -> Option<Op> {
    let (kind, owner) = (ask.acquire.kind, ask.acquire.owner.clone());
    let id = ask.acquire.request;
    let request = LatchRequest { id, not_after_ms: ask.acquire.not_after_ms };
    let change = 1;
    Some(match op {
        None => Op::Acquire(ask.acquire.clone()),
        Some(Op::Acquire(_)) => Op::AcquireShare(Box::new(ask.clone())),
        Some(Op::AcquireShare(_)) => Op::Downgrade { owner, token },
        Some(Op::Downgrade { .. }) => Op::Reenter { owner, token, count: 2, change },
        Some(Op::Reenter { .. }) => Op::Release { kind, owner, token, keep: 0, change },
        Some(Op::Release { keep: 0, .. }) => Op::Release { kind, owner, token, keep: 1, change },
        Some(Op::Release { .. }) => Op::Renew { kind, owner, token, ttl_ms: ask.acquire.lease_ms },
        Some(Op::Renew { .. }) => {
            Op::Leave { kind, owner, request: id, bury: true, shared_owner: false }
        }
        Some(Op::Leave { .. }) => Op::Beat { client: owner.client()?, waiters: vec![owner] },
        Some(Op::Beat { .. }) => Op::Nudge,
        Some(Op::Nudge) => Op::Force { kind },
        Some(Op::Force { .. }) => Op::Place { owner },
        Some(Op::Place { .. }) => Op::Inspect { kind, limit: 9 },
        Some(Op::Inspect { .. }) => {
            let (ttl_ms, value) = (ask.acquire.lease_ms, b"x".to_vec());
            Op::Announce(Box::new(Announce { owner, token, change, ttl_ms, value }))
        }
        Some(Op::Announce(_)) => Op::Leader,
        Some(Op::Leader) => Op::Latch(LatchOp::Set { count: 1, request }),
        Some(Op::Latch(LatchOp::Set { .. })) => Op::Latch(LatchOp::CountDown { request }),
        Some(Op::Latch(LatchOp::CountDown { .. })) => Op::Latch(LatchOp::Delete { request }),
        Some(Op::Latch(LatchOp::Delete { .. })) => Op::Latch(LatchOp::Look { waiting: Some(0) }),
        Some(Op::Latch(LatchOp::Look { .. })) => return None,
        // Not operations of their own.
        Some(op @ (Op::OfShares(_) | Op::OfHold(_))) => return after(Some(op.bare()), ask, token),
    })
}
