//! What the oracle once took for a violation.

use super::*;
use fairlock_core::{Acquire, Kind, Mode, RequestId};

/// A guard from before a loss of state and a step back of the clock was still valid, and its
/// token was larger than all later ones: those were called stale for ever, not only while two
/// guards may be valid.
#[tokio::test(start_paused = true)]
async fn what_was_written_before_tokens_began_again_comes_before_all_that_follows() {
    let mut oracle = Oracle::default();
    oracle.begin(Instant::now(), false);
    let peer = oracle.add_client(ClientId::from_random(1));
    let name = LockName::new(b"job").expect("a name");
    let grant = |oracle: &mut Oracle, token| {
        let (owner, mut lock) = (OwnerId::parse(b"one"), oracle.locks.remove(&name));
        let lock = lock.get_or_insert_default();
        oracle.granted(&name, lock, &owner, token, Instant::now());
        oracle.locks.insert(name.clone(), std::mem::take(lock));
    };
    let write = |oracle: &mut Oracle, token| {
        oracle.write(peer, &name, Token::new(token).expect("a token"));
        std::mem::take(&mut oracle.violations).len()
    };
    grant(&mut oracle, 100);
    oracle.clock_stepped(-5_000);
    oracle.state_lost();
    assert_eq!(write(&mut oracle, 100), 0, "it is valid still");
    grant(&mut oracle, 50);
    tokio::time::advance(LEASE_MAX + TOLD_WITHIN + Duration::from_secs(1)).await;
    assert_eq!(write(&mut oracle, 50), 0, "the first after it");
    assert_eq!(write(&mut oracle, 100), 1, "and is over now");
    grant(&mut oracle, 60);
    assert_eq!((write(&mut oracle, 60), write(&mut oracle, 50)), (0, 1));
}

/// A waiter that had to return to its place and got the lock at once, because its old number
/// made it the first, was said to have overtaken those behind it: its place was recorded only
/// if it had to wait there.
#[tokio::test(start_paused = true)]
async fn who_returns_as_the_first_overtakes_nobody() {
    for (returning, violations) in [(Some(10), 0), (Some(30), 1), (None, 1)] {
        let mut oracle = Oracle::default();
        oracle.begin(Instant::now(), false);
        let ids = [1, 2].map(ClientId::from_random);
        let [first, second] = ids.map(|id| OwnerId::ours(id, 1).expect("a number"));
        for id in ids {
            oracle.add_client(id);
        }
        tokio::time::advance(GRACE + Duration::from_secs(1)).await;
        let name = LockName::new(b"job").expect("a name");
        let mut keys = Snapshot { token: Some(6), ..Snapshot::default() };
        let other = OwnerId::parse(b"other");
        keys.hold.insert(other.clone(), 1);
        let mut asks = |owner: &OwnerId, order, body, keys: &Snapshot| {
            let op = Op::Acquire(Acquire {
                kind: Kind::Fair,
                owner: owner.clone(),
                request: RequestId::from_random(1),
                lease_ms: 30_000,
                mode: Mode::Wait,
                order,
                not_after_ms: u64::MAX,
                sure: true,
                shared_owner: false,
            });
            oracle.after(
                &name,
                &op,
                &Answer { now_ms: 1, more: false, removed: 0, other_limit: false, body },
                keys,
            );
        };
        let granted = |token| {
            let token = Token::new(token).expect("a token");
            Body::Granted { token, ttl_ms: 30_000 }
        };
        asks(&other, None, granted(6), &keys);
        keys.queue.push_back(second.clone());
        let queued = Body::Queued { order: 20, retry_ms: None, foreign: false, length: 1 };
        asks(&second, None, queued, &keys);
        keys.hold = [(first.clone(), 1)].into();
        keys.token = Some(7);
        asks(&first, returning, granted(7), &keys);
        assert_eq!(oracle.violations.len(), violations, "{returning:?}: {:?}", oracle.violations);
    }
}
