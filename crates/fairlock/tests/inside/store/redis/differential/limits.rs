//! Extreme values (F70, F73): typed errors or plain results, and never a key without a TTL.

use super::fixture::Fixture;
use super::run::{Run, START_US, Seen, owner, request};
use fairlock_core::{
    Acquire, Body, Kind, MAX_HOLD_COUNT, MAX_LEASE_MS, Mode, Op, Rules, Snapshot, Token,
};
use fairlock_testkit::server::Generation;

fn acquire(kind: Kind, lease_ms: u64, shared_owner: bool) -> Op {
    Op::Acquire(Acquire {
        kind,
        owner: owner(0),
        request: request(0, u64::from(shared_owner)),
        lease_ms,
        mode: Mode::Wait,
        order: None,
        not_after_ms: START_US / 1_000,
        sure: true,
        shared_owner,
    })
}

/// Every operation that does not depend on the lock's history.
fn all_operations() -> Vec<Op> {
    let (owner, token) = (owner(0), Token::new(5).expect("5 is a token"));
    let release = |kind, keep| Op::Release { kind, owner: owner.clone(), token, keep, change: 1 };
    let leave = |kind| Op::Leave {
        kind,
        owner: owner.clone(),
        request: request(0, 0),
        bury: true,
        shared_owner: false,
    };
    let client = owner.client().expect("one of ours");
    vec![
        acquire(Kind::Fair, 1_000, false),
        acquire(Kind::Plain, 1_000, true),
        Op::Reenter { owner: owner.clone(), token, count: 2, change: 1 },
        release(Kind::Fair, 0),
        release(Kind::Fair, 1),
        release(Kind::Plain, 0),
        Op::Renew { kind: Kind::Fair, owner: owner.clone(), token, ttl_ms: 5 },
        leave(Kind::Fair),
        leave(Kind::Plain),
        Op::Beat { client, waiters: vec![owner.clone()] },
        Op::Nudge,
        Op::Force { kind: Kind::Fair },
        Op::Place { owner: owner.clone() },
        Op::Inspect { kind: Kind::Fair, limit: 5 },
    ]
}

/// With a token key that is not a number below 2^53, every operation is refused with an error that
/// names it, and nothing changes.
#[test]
fn f73_a_token_that_is_none_refuses_every_operation() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    let tokens = ["", "abc", "-1", "1.5", "1e3", "9007199254740992", "1234567890123456789"];
    for text in tokens {
        for op in all_operations() {
            fixture.reset(START_US);
            let [lock, queue, scores, token, ..] = fixture.keys.all();
            let id = owner(0).to_bytes();
            let at = (START_US / 1_000 + 9_000).to_string().into_bytes();
            fixture.raw.call(&[b"HSET".as_slice(), &lock, &id, b"1"]);
            fixture.raw.call(&[b"PEXPIREAT".as_slice(), &lock, &at]);
            fixture.raw.call(&[b"RPUSH".as_slice(), &queue, b"somebody"]);
            fixture.raw.call(&[b"ZADD".as_slice(), &scores, &at, b"somebody"]);
            fixture.raw.call(&[b"SET".as_slice(), &token, text.as_bytes()]);
            let before = fixture.dump(&[request(0, 0)].into());
            let found = fixture.call(&Rules::default(), &op);
            let named = found.as_ref().is_err_and(|error| error.contains("FAIRLOCK_TOKEN"));
            assert!(named, "{text:?}, {op:?}: {found:?}");
            assert_eq!(fixture.messages(), [], "{text:?}, {op:?}");
            assert_eq!(fixture.dump(&[request(0, 0)].into()), before, "{text:?}, {op:?}");
        }
    }
}

/// The last token but one is granted and the next acquisition is refused: no token is given twice.
#[test]
fn f73_the_series_ends_below_2_to_the_53() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    fixture.reset(START_US);
    let token = fixture.keys.all()[3].clone();
    fixture.raw.call(&[b"SET".as_slice(), &token, b"9007199254740989"]);
    let last = fixture.call(&Rules::default(), &acquire(Kind::Fair, 1_000, false)).unwrap().body;
    let Body::Granted { token, .. } = last else { panic!("{last:?}") };
    assert_eq!(token.get(), 9_007_199_254_740_990);
    let release = Op::Release { kind: Kind::Fair, owner: owner(0), token, keep: 0, change: 1 };
    assert_eq!(fixture.call(&Rules::default(), &release).unwrap().body, Body::Released);
    let next = fixture.call(&Rules::default(), &acquire(Kind::Fair, 1_000, false)).unwrap().body;
    let Body::Granted { token, .. } = next else { panic!("{next:?}") };
    assert_eq!(token.get(), 9_007_199_254_740_991);
    let end = fixture.call(&Rules::default(), &acquire(Kind::Plain, 1_000, false));
    assert!(end.is_err_and(|error| error.contains("FAIRLOCK_TOKEN")));
}

/// D14: the very last token was granted, and then every operation on its hold was refused: it could
/// be neither renewed nor released, and the hand-over gave the same token to a waiter. Now its
/// holder can renew and release; waiters are refused instead of being given a token that does not
/// exist.
#[test]
fn d14_the_last_token_of_all_is_renewed_and_released() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
        for long_way in [false, true] {
            fixture.reset(START_US);
            fixture.long_way = long_way;
            let key = fixture.keys.all()[3].clone();
            fixture.raw.call(&[b"SET".as_slice(), &key, b"9007199254740990"]);
            let mut seen = Seen::new();
            let mut run = Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
            run.adopt();
            let answer = run.both(&acquire(kind, 30_000, false)).unwrap().unwrap();
            let Body::Granted { token, .. } = answer.body else { panic!("{answer:?}") };
            assert_eq!(token.get(), 9_007_199_254_740_991);
            let holder = owner(0);
            let renewed = Op::Renew { kind, owner: holder.clone(), token, ttl_ms: 30_000 };
            assert_eq!(run.both(&renewed).unwrap().unwrap().body, Body::Renewed);
            // Everything that would need another token is refused.
            let Op::Acquire(other) = acquire(kind, 30_000, false) else { unreachable!() };
            let other = Acquire { owner: owner(1), request: request(1, 0), ..other };
            assert_eq!(run.both(&Op::Acquire(other)).unwrap(), None);
            if kind != Kind::Simple {
                let client = owner(1).client().unwrap();
                assert_eq!(run.both(&Op::Beat { client, waiters: vec![owner(1)] }).unwrap(), None);
            }
            let release = Op::Release { kind, owner: holder, token, keep: 0, change: 1 };
            assert_eq!(run.both(&release).unwrap().unwrap().body, Body::Released);
            assert_eq!(run.both(&acquire(kind, 30_000, false)).unwrap(), None);
        }
    }
    // The release does not grant to a waiter that entered earlier, on the short way or the long
    // one.
    for long_way in [false, true] {
        fixture.reset(START_US);
        fixture.long_way = long_way;
        fixture.inbox(owner(1).client().unwrap(), true);
        let mut seen = Seen::new();
        let mut run = Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
        run.both(&acquire(Kind::Fair, 30_000, false)).unwrap();
        let Op::Acquire(other) = acquire(Kind::Fair, 30_000, false) else { unreachable!() };
        let other = Acquire { owner: owner(1), request: request(1, 0), ..other };
        run.both(&Op::Acquire(other)).unwrap();
        let key = run.fixture.keys.all()[3].clone();
        run.fixture.raw.call(&[b"SET".as_slice(), &key, b"9007199254740991"]);
        run.adopt();
        let token = Token::new(9_007_199_254_740_991).unwrap();
        let release = Op::Release { kind: Kind::Fair, owner: owner(0), token, keep: 0, change: 1 };
        assert_eq!(run.both(&release).unwrap().unwrap().body, Body::Released);
        assert!(run.core().snapshot().hold.is_empty());
    }
}

/// The shortest and the longest lease, and the largest count, on every path that writes one: the
/// lock's key and our own keys always expire (the core's C8, compared key by key).
#[test]
fn f70_limits_leave_no_key_without_a_ttl() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for kind in [Kind::Fair, Kind::Plain] {
        for lease_ms in [1, MAX_LEASE_MS] {
            for shared_owner in [false, true] {
                fixture.reset(START_US);
                let mut seen = Seen::new();
                let mut run =
                    Run::new(&mut fixture, Rules::default(), Snapshot::default(), &mut seen);
                let answer = run.both(&acquire(kind, lease_ms, shared_owner)).unwrap();
                let Some(Body::Granted { token, ttl_ms }) = answer.map(|answer| answer.body) else {
                    panic!("{kind:?}, {lease_ms}: not granted");
                };
                assert_eq!(ttl_ms, lease_ms);
                let id = owner(0);
                let count = MAX_HOLD_COUNT;
                run.both(&Op::Reenter { owner: id.clone(), token, count, change: 1 }).unwrap();
                run.both(&Op::Renew {
                    kind: Kind::Fair,
                    owner: id.clone(),
                    token,
                    ttl_ms: lease_ms,
                })
                .unwrap();
                let keys = run.core().snapshot().clone();
                assert_eq!(keys.hold[&id], i64::from(count));
                assert_eq!(keys.hold_expires, Some(START_US / 1_000 + lease_ms));
                assert!(keys.state_expires >= keys.hold_expires);
            }
        }
    }
}

/// The fields of the lock's hash belong to other programs too: a count that is not a number is
/// refused by every operation with a typed error, never a raw Lua error.
#[test]
fn f70_any_text_as_a_count_is_borne() {
    let Some(mut fixture) = Fixture::start(Generation::Redis70) else { return };
    for text in ["abc", "", "nan", "inf", "-inf", "0x10", "9223372036854775807", "1e400", "-1"] {
        fixture.reset(START_US);
        let rules = Rules::default();
        let granted = fixture.call(&rules, &acquire(Kind::Fair, 30_000, true)).unwrap().body;
        let Body::Granted { token, .. } = granted else { panic!("{granted:?}") };
        let lock = fixture.keys.all()[0].clone();
        fixture.raw.call(&[b"HSET".as_slice(), &lock, &owner(0).to_bytes(), text.as_bytes()]);
        for op in [
            Op::Inspect { kind: Kind::Fair, limit: 1 },
            acquire(Kind::Fair, 30_000, false),
            Op::Renew { kind: Kind::Fair, owner: owner(0), token, ttl_ms: 5_000 },
            Op::Release { kind: Kind::Fair, owner: owner(0), token, keep: 0, change: 1 },
        ] {
            let found = fixture.call(&rules, &op);
            let named = found.as_ref().is_err_and(|error| error.contains("FAIRLOCK_KIND"));
            assert!(named, "{text:?}, {op:?}: {found:?}");
        }
    }
}
