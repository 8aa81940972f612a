//! What names a hold: owner, token and request of a share's, owner and token of all others.

use super::scene::{LEASE, Scene, owner, permits};
use crate::support::{Ears, ours, request};
use fairlock_core::{Acquire, Body, Kind, LockState, Mode, Op, Rules, Share, Snapshot, Token};
use std::collections::BTreeSet;

/// Owner 2 reads as `request(n)`, for a second.
fn reads(rw: &mut Scene, n: u64) -> Token {
    let acquire = Acquire {
        request: request(n),
        lease_ms: 1_000,
        shared_owner: true,
        ..rw.asks(2, Share::Read, Mode::Wait)
    };
    match rw.ask_with(acquire, Share::Read) {
        Body::Granted { token, .. } => token,
        body => panic!("it reads: {body:?}"),
    }
}

/// Every operation of owner 2 on the hold that request 20 got.
fn late(token: Token) -> [Op; 5] {
    let (kind, owner) = (Kind::ReadWrite, owner(2));
    let ops = [
        Op::Release { kind, owner: owner.clone(), token, keep: 0, change: 9 },
        Op::Release { kind, owner: owner.clone(), token, keep: 1, change: 9 },
        Op::Renew { kind, owner: owner.clone(), token, ttl_ms: 1 },
        Op::Reenter { owner: owner.clone(), token, count: 7, change: 9 },
        Op::Downgrade { owner, token },
    ];
    ops.map(|op| op.of_hold(kind, request(20), u64::MAX))
}

/// D45: while another reader keeps the phase open, an owner that reads again has its former token. What it had sent for
/// its former hold ended the new one, and a writer came in beside its guard.
#[test]
fn a_late_operation_on_a_former_read_hold_changes_nothing() {
    for at in 0..5 {
        let mut rw = Scene::rw();
        let reader = rw.gets(1, Share::Read);
        let former = reads(&mut rw, 20);
        rw.now += 1_001;
        let token = reads(&mut rw, 21);
        assert_eq!((former, token), (reader, reader), "one token for all who read");
        let before = rw.lock.shares().cloned();
        let op = &late(former)[at];
        assert_eq!(rw.send(op), Body::NotHeld { holder: None }, "{op:?}");
        assert_eq!(rw.lock.shares().cloned(), before, "{op:?}");
        assert_eq!(rw.release(1, reader), Body::Released);
        assert!(!rw.tries(3, Share::Whole), "beside a reader, after {op:?}");
        // Under its own name the hold ends.
        let release = Op::Release { kind: rw.kind, owner: owner(2), token, keep: 0, change: 0 };
        assert_eq!(rw.send(&release.clone()), Body::NotHeld { holder: None }, "without a request");
        assert_eq!(rw.send(&release.of_hold(rw.kind, request(21), 0)), Body::Released);
        assert!(rw.tries(3, Share::Whole));
    }
}

/// The waiter of an owner that no other request uses had returned to its place under a new request, when the store
/// turned out to have the grant of the former one.
#[test]
fn an_acquisition_learns_by_which_of_its_requests_it_has_a_share() {
    let mut rw = Scene::rw();
    let token = rw.gets(1, Share::Read);
    let again =
        Acquire { request: request(11), order: Some(5), ..rw.asks(1, Share::Read, Mode::Wait) };
    let Body::GrantedBefore(grant) = rw.ask_with(again, Share::Read) else { panic!("it reads") };
    assert_eq!((grant.request, grant.token, grant.ttl_ms), (request(1), token, LEASE));
    assert_eq!(rw.release(1, token), Body::Released);
}

/// The kinds whose holds are named by owner and token.
const BY_TOKEN: [Kind; 4] = [Kind::Fair, Kind::Plain, Kind::Simple, Kind::Semaphore];

/// The lock after its token key was lost. Nobody holds or waits.
fn without_token(lock: &LockState) -> LockState {
    let facts = lock.snapshot().clone();
    LockState::restored(
        Snapshot { token: None, token_expires: None, ..facts },
        lock.shares().cloned(),
    )
}

/// Two holds of one owner have different tokens, however they ended, and also after the token key was lost and the clock
/// was set back: a token is at least the microsecond of its grant, and larger than the last one. Only an owner that gets
/// the lock in the very microsecond of a former grant, after both faults, could meet its token again.
#[test]
fn no_two_holds_of_an_owner_have_one_token() {
    for kind in BY_TOKEN {
        let (rules, ears, owner) = (Rules::default(), Ears::default(), ours(1, 1));
        let (mut lock, mut now_us) = (LockState::default(), 1_760_000_000_000_000_u64);
        let mut tokens: BTreeSet<Token> = BTreeSet::new();
        for n in 0..400_u64 {
            let share = if kind == Kind::Semaphore { permits(1, 2) } else { Share::Whole };
            let acquire = Acquire {
                kind,
                owner: owner.clone(),
                request: request(n),
                lease_ms: 1_000,
                mode: Mode::Try,
                order: None,
                not_after_ms: u64::MAX,
                sure: true,
                shared_owner: true,
            };
            let op = Op::asks(acquire, share);
            let (answer, _) = lock.apply(now_us, &op, &rules, &ears).expect("not refused");
            let Body::Granted { token, .. } = answer.body else { panic!("{kind:?}: {answer:?}") };
            tokens.insert(token);
            assert_eq!(tokens.len() as u64, n + 1, "{kind:?}: {token} is the token of two holds");
            // No two calls are in one microsecond.
            now_us += 37;
            // A release, or the end of the lease.
            match n % 3 {
                0 => now_us += 1_002_000,
                _ => {
                    let op = Op::Release { kind, owner: owner.clone(), token, keep: 0, change: 0 };
                    let op = op.of_hold(kind, request(n), u64::MAX);
                    let (answer, _) = lock.apply(now_us, &op, &rules, &ears).expect("fine");
                    assert_eq!(answer.body, Body::Released, "{kind:?}");
                }
            }
            if n % 7 == 0 {
                lock = without_token(&lock);
            }
            if n % 5 == 0 {
                // The end of a lease is noticed before the clock goes back.
                let look = match kind {
                    Kind::Semaphore => Op::Nudge.on(kind),
                    _ => Op::Inspect { kind, limit: 0 },
                };
                lock.apply(now_us, &look, &rules, &ears).expect("fine");
                now_us -= 700_013 + n;
            }
        }
    }
}
