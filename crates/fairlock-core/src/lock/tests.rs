//! Copies of operations that arrive after their client has given them up: every operation that changes
//! something carries the moment after which it does nothing, or is harmless.

use super::*;
use crate::latch::{LatchOp, LatchRequest};
use crate::op::{Announce, ShareAcquire};
use crate::share::Share;

const START_US: u64 = 1_760_000_000_000_000;

/// What a copy that arrives late does.
#[derive(PartialEq)]
enum Late {
    /// Nothing: it says until when it may be carried out.
    Refused,
    /// Nothing: it names a hold that is over, or a request that is known no more.
    OfThePast,
    /// Nothing: it only looks.
    Looks,
    /// What anybody may do at any time: it takes nothing from who holds or waits.
    Harmless,
    /// It is carried out, on whatever is there. So it is sent once, by an operator who looks at the answer.
    CarriedOut,
}

/// Of each operation. A new one does not compile before it is here, and in [`all`].
fn late(op: &Op) -> Late {
    match op {
        Op::Acquire(_) | Op::AcquireShare(_) => Late::Refused,
        Op::Latch(LatchOp::Set { .. } | LatchOp::CountDown { .. } | LatchOp::Delete { .. }) => {
            Late::Refused
        }
        Op::Downgrade { .. }
        | Op::Reenter { .. }
        | Op::Release { .. }
        | Op::Renew { .. }
        | Op::Leave { .. }
        | Op::Announce(_) => Late::OfThePast,
        Op::Latch(LatchOp::Look { waiting: None })
        | Op::Place { .. }
        | Op::Inspect { .. }
        | Op::Leader => Late::Looks,
        // A sign of life of a client, a hand-over that is due, a note about a latch that is there.
        Op::Beat { .. } | Op::Nudge | Op::Latch(LatchOp::Look { .. }) => Late::Harmless,
        Op::Force { .. } => Late::CarriedOut,
        Op::OfShares(_) | Op::OfHold(_) => late(op.bare()),
    }
}

struct Everybody;

impl World for Everybody {
    fn inbox(&self, _: ClientId) -> bool {
        true
    }

    fn listening(&self, _: &OwnerId) -> bool {
        true
    }
}

fn owner(number: u64) -> OwnerId {
    OwnerId::ours(ClientId::from_random(number.into()), 1).unwrap()
}

fn asks(kind: Kind, number: u64, not_after_ms: u64) -> Op {
    let acquire = Acquire {
        kind,
        owner: owner(number),
        request: RequestId::from_random(number.into()),
        lease_ms: 30_000,
        mode: Mode::Wait,
        order: None,
        not_after_ms,
        sure: true,
        shared_owner: false,
    };
    Op::asks(acquire, Share::Whole)
}

/// Every operation of owner 1 that a client sends, on a lock of this kind that owner 1 held under `token`.
fn all(kind: Kind, token: Token, not_after_ms: u64) -> Vec<Op> {
    let (owner, request) = (owner(1), RequestId::from_random(1));
    let of_hold = |op: Op| op.of_hold(kind, request, not_after_ms);
    let mut ops = vec![
        asks(kind, 1, not_after_ms),
        of_hold(Op::Reenter { owner: owner.clone(), token, count: 2, change: 1 }),
        of_hold(Op::Release { kind, owner: owner.clone(), token, keep: 0, change: 0 }),
        of_hold(Op::Release { kind, owner: owner.clone(), token, keep: 1, change: 2 }),
        of_hold(Op::Renew { kind, owner: owner.clone(), token, ttl_ms: 60_000 }),
        Op::Leave { kind, owner: owner.clone(), request, bury: false, shared_owner: false },
        Op::Beat { client: owner.client().unwrap(), waiters: vec![owner.clone()] }.on(kind),
        Op::Nudge.on(kind),
        Op::Place { owner: owner.clone() }.on(kind),
        Op::Inspect { kind, limit: 8 },
    ];
    if kind == Kind::Fair {
        let value = b"a".to_vec();
        ops.extend([
            Op::Announce(Box::new(Announce { owner, token, change: 1, ttl_ms: 60_000, value })),
            Op::Leader,
        ]);
    } else {
        ops.push(of_hold(Op::Downgrade { owner, token }));
    }
    ops
}

fn apply(state: &mut LockState, now_us: u64, op: &Op) -> Body {
    state.apply(now_us, op, &Rules::default(), &Everybody).unwrap().0.body
}

/// Owner 1 held the lock and let it go; 2 holds it now, and 3 waits.
fn scene(kind: Kind) -> (LockState, Token) {
    let mut state = LockState::default();
    let Body::Granted { token, .. } = apply(&mut state, START_US, &asks(kind, 1, u64::MAX)) else {
        panic!("it is free");
    };
    let release = Op::Release { kind, owner: owner(1), token, keep: 0, change: 0 };
    let release = release.of_hold(kind, RequestId::from_random(1), u64::MAX);
    assert_eq!(apply(&mut state, START_US, &release), Body::Released);
    for number in [2, 3] {
        apply(&mut state, START_US, &asks(kind, number, u64::MAX));
    }
    (state, token)
}

#[test]
fn a_late_copy_of_any_operation_on_a_lock_takes_nothing_from_others() {
    let now_us = START_US + 1_000_000;
    for kind in [Kind::Fair, Kind::ReadWrite] {
        let (state, token) = scene(kind);
        for op in all(kind, token, now_us / 1_000 - 1) {
            let mut after = state.clone();
            let body = apply(&mut after, now_us, &op);
            match late(&op) {
                Late::Refused => assert_eq!((body, &after), (Body::TooLate, &state), "{op:?}"),
                Late::OfThePast | Late::Looks => assert_eq!(after, state, "{op:?}"),
                Late::Harmless => {
                    let holds = |state: &LockState| {
                        let keys = state.snapshot();
                        let shares = state.shares().map(|it| it.holds().clone());
                        (keys.hold.clone(), keys.token, keys.queue.clone(), shares)
                    };
                    assert_eq!(holds(&after), holds(&state), "{op:?}");
                }
                Late::CarriedOut => panic!("{op:?} is not sent for a client"),
            }
        }
    }
    assert!(late(&Op::Force { kind: Kind::Fair }) == Late::CarriedOut);
    let share = ShareAcquire {
        acquire: match asks(Kind::Fair, 1, 0) {
            Op::Acquire(acquire) => acquire,
            other => panic!("{other:?}"),
        },
        share: Share::Read,
    };
    assert!(late(&Op::AcquireShare(Box::new(share))) == Late::Refused);
}

#[test]
fn a_late_copy_of_any_operation_on_a_latch_changes_no_count() {
    let now_ms = START_US / 1_000;
    let request = |number: u64, not_after_ms| LatchRequest {
        id: RequestId::from_random(number.into()),
        not_after_ms,
    };
    for closed in [true, false] {
        let mut state = LockState::default();
        if closed {
            let set = LatchOp::Set { count: 3, request: request(9, now_ms) };
            apply(&mut state, START_US, &Op::Latch(set));
        }
        let old = request(1, now_ms - 1);
        for latch in [
            LatchOp::Set { count: 2, request: old },
            LatchOp::CountDown { request: old },
            LatchOp::Delete { request: old },
            LatchOp::Look { waiting: None },
            LatchOp::Look { waiting: Some(0) },
            LatchOp::Look { waiting: Some(1) },
        ] {
            let (op, mut after) = (Op::Latch(latch), state.clone());
            let body = apply(&mut after, START_US, &op);
            assert_eq!(body == Body::TooLate, late(&op) == Late::Refused, "{op:?}");
            assert_eq!(after, state, "{op:?}");
        }
    }
}
