//! What breaks read-write locks and semaphores elsewhere, one test each. The names are those of the list of attacks in
//! docs/testing.md.

use super::scene::{LEASE, Scene, T0, owner, permits};
use crate::support::{client, ours, request};
use Share::{Read, Whole};
use fairlock_core::{
    Acquire, Body, CoreError, Fate, Kind, LockState, Mode, Op, RequestId, Share, ShareAcquire,
    Token,
};

/// The owner of request `n` enters its hold once more.
fn again(n: u64, token: Token, count: u32, change: u64) -> Op {
    let op = Op::Reenter { owner: owner(n), token, count, change };
    op.of_hold(Kind::ReadWrite, request(n), u64::MAX)
}

#[test]
fn b1_readers_that_keep_coming_do_not_starve_a_writer() {
    let mut rw = Scene::rw();
    let first = rw.gets(1, Read);
    rw.waits(2, Whole);
    for reader in 3..50 {
        rw.waits(reader, Read);
        assert!(!rw.tries(reader + 100, Read), "B31: a try does not pass the line either");
    }
    assert_eq!(rw.release(1, first), Body::Released);
    assert_eq!(rw.told(), [2]);
}

#[test]
fn b2_readers_come_in_when_the_writer_before_them_gives_up() {
    let mut rw = Scene::rw();
    rw.gets(1, Read);
    rw.waits(2, Whole);
    rw.waits(3, Read);
    rw.waits(4, Read);
    assert_eq!(rw.leave(2), Body::Left);
    assert_eq!(rw.told(), [3, 4], "nothing was freed, and they come in all the same");
}

/// A lock is never handed on while it is held, so nobody would look at its head.
#[test]
fn b3_a_dead_writer_does_not_keep_readers_out() {
    let mut rw = Scene::rw();
    let reader = rw.gets(1, Read);
    rw.waits(2, Whole);
    rw.waits(3, Read);
    rw.ears.deaf.insert(client(2));
    assert_eq!(rw.beat(3), [Fate::Queued], "its inbox alone does not prove it dead");
    for _ in 0..4 {
        rw.now += 2_000;
        rw.renew(1, reader);
        rw.beat(3);
    }
    assert_eq!(rw.holders(), 2, "{:?}", rw.lock);
    assert_eq!(rw.told(), [3]);
}

#[test]
fn b3_a_dead_writer_does_not_keep_out_those_who_only_try() {
    let mut rw = Scene::rw();
    let reader = rw.gets(1, Read);
    rw.waits(2, Whole);
    rw.ears.deaf.insert(client(2));
    assert!(!rw.tries(3, Read));
    for _ in 0..4 {
        rw.now += 2_000;
        rw.renew(1, reader);
    }
    assert!(rw.tries(3, Read));
}

#[test]
fn b3_a_silent_writer_whose_inbox_is_there_keeps_its_place() {
    let mut rw = Scene::rw();
    let reader = rw.gets(1, Read);
    rw.waits(2, Whole);
    rw.waits(3, Read);
    for _ in 0..4 {
        rw.now += 2_000;
        rw.renew(1, reader);
        assert_eq!(rw.beat(3), [Fate::Queued], "age alone does not prove it dead");
    }
}

#[test]
fn b4_a_dead_one_that_wants_much_does_not_keep_out_one_that_wants_little() {
    let mut pool = Scene::semaphore();
    let first = pool.gets(1, permits(3, 5));
    pool.waits(2, permits(5, 5));
    pool.waits(3, permits(1, 5));
    pool.ears.deaf.insert(client(2));
    for _ in 0..4 {
        pool.now += 2_000;
        pool.renew(1, first);
        pool.beat(3);
    }
    assert_eq!(pool.told(), [3]);
    assert_eq!(pool.lock.shares().expect("held").used(), 4);
}

#[test]
fn b5_a_live_writer_that_was_taken_for_dead_returns_to_its_place() {
    let mut rw = Scene::rw();
    let reader = rw.gets(1, Read);
    let order = rw.waits(2, Whole);
    rw.waits(3, Read);
    rw.ears.deaf.insert(client(2));
    for _ in 0..4 {
        rw.now += 2_000;
        rw.renew(1, reader);
        rw.beat(3);
    }
    assert_eq!(rw.told(), [3]);
    rw.waits(4, Whole);
    rw.ears.deaf.clear();
    assert_eq!(rw.beat(2), [Fate::Unknown]);
    let returns =
        Acquire { order: Some(order), request: request(52), ..rw.asks(2, Whole, Mode::Wait) };
    assert!(matches!(rw.ask_with(returns, Whole), Body::Queued { order: o, .. } if o == order));
    for n in [1, 3] {
        let hold = rw.lock.shares().expect("held").holds()[&owner(n)];
        rw.release(n, hold.token);
    }
    let holder = rw.inspect().holder.expect("handed on").owner;
    assert_eq!(holder, owner(2), "before the one that came later");
}

/// The messages of a cohort are lost. One heartbeat tells a client of all its grants.
#[test]
fn b6_a_heartbeat_tells_of_every_grant_of_a_cohort() {
    let mut rw = Scene::rw();
    let writer = rw.gets(1, Whole);
    let mine: Vec<_> = (1..=4).map(|number| ours(2, number)).collect();
    for (place, owner) in mine.iter().enumerate() {
        let share = if place == 3 { Whole } else { Read };
        let number = RequestId::from_random(100 + place as u128);
        let asks =
            Acquire { owner: owner.clone(), request: number, ..rw.asks(2, share, Mode::Wait) };
        assert!(matches!(rw.ask_with(asks, share), Body::Queued { .. }));
    }
    rw.release(1, writer);
    rw.grants.clear();
    let beat = Op::Beat { client: client(2), waiters: [&mine[..], &[owner(9)]].concat() };
    let Body::Fates { fates, .. } = rw.send(&beat) else { panic!("a heartbeat") };
    let granted = |fate: &Fate| match fate {
        Fate::Granted(grant) => Some(grant.request),
        _ => None,
    };
    let requests: Vec<_> = fates.iter().filter_map(granted).collect();
    assert_eq!(requests, [100, 101, 102].map(RequestId::from_random));
    assert_eq!(fates[3..], [Fate::Queued, Fate::Unknown]);
}

/// Half of a cohort hears its grants, and then the store is another one, which knows nothing of it. Each grant is judged by
/// itself: the one that was heard ends with its renewal, and the other waiter returns to its place.
#[test]
fn b7_half_of_a_cohort_is_told_before_the_store_forgets_it() {
    let mut rw = Scene::rw();
    let writer = rw.gets(1, Whole);
    rw.waits(2, Read);
    let order = rw.waits(3, Read);
    rw.release(1, writer);
    let heard = rw.grants[0].token;
    assert_eq!(rw.told(), [2, 3]);
    rw.lock = LockState::default();
    assert_eq!(rw.renew(2, heard), Body::NotHeld { holder: None });
    assert_eq!(rw.beat(3), [Fate::Unknown]);
    let returns = Acquire { order: Some(order), ..rw.asks(3, Read, Mode::Wait) };
    assert!(matches!(rw.ask_with(returns, Read), Body::Queued { retry_ms: Some(_), .. }));
    // A writer that has seen none of this stands behind it.
    rw.waits(4, Whole);
    rw.now += rw.rules.beat_ms;
    assert_eq!(rw.beat(4), [Fate::Queued]);
    assert!(rw.grants[0].token > heard);
    assert_eq!(rw.told(), [3]);
}

#[test]
fn b8_a_dead_reader_blocks_a_writer_for_its_own_lease() {
    let mut rw = Scene::rw();
    let tokens: Vec<_> = (1..=10).map(|n| rw.gets(n, Read)).collect();
    rw.waits(11, Whole);
    for _ in 0..15 {
        rw.now += 2_100;
        rw.beat(11);
        for n in 2..=10 {
            rw.renew(n, tokens[0]);
        }
    }
    assert_eq!(rw.holders(), 9, "the first renewed nothing");
    for n in 2..=10 {
        rw.release(n, tokens[0]);
    }
    assert_eq!(rw.told(), [11]);
}

#[test]
fn b9_a_waiter_is_told_when_the_first_lease_ends() {
    let mut rw = Scene::rw();
    rw.gets(1, Read);
    rw.now += 10_000;
    rw.gets(2, Read);
    let body = rw.ask(3, Whole);
    let Body::Queued { retry_ms, .. } = body else { panic!("{body:?}") };
    assert_eq!(retry_ms, Some(LEASE - 10_000 + 1));
    assert_eq!(rw.lock.due_ms(rw.now, &rw.rules), Some(T0 + LEASE + 1));
}

/// Whoever looks at a lock must not end a lease: the waiter would not be reminded, and slept for a heartbeat.
#[test]
fn b9_a_look_does_not_hide_the_end_of_a_lease() {
    let mut rw = Scene::rw();
    let token = rw.gets(1, Read);
    rw.waits(2, Whole);
    rw.now += LEASE + 1;
    assert_eq!(rw.inspect().shares.expect("shares").holding, 0);
    let place = Op::Place { owner: owner(2) };
    assert_eq!(rw.send(&place), Body::Place { ahead: Some(0) });
    assert_eq!(rw.lock.due_ms(rw.now, &rw.rules), Some(rw.now), "it is due");
    assert_eq!(rw.renew(1, token), Body::NotHeld { holder: Some(owner(2)) }, "it is over");
    assert_eq!(rw.told(), [2]);
}

#[test]
fn b14_a_release_after_the_lease_gives_nothing_back() {
    let mut pool = Scene::semaphore();
    let late = pool.gets(1, permits(2, 2));
    pool.now += LEASE + 1;
    let other = pool.gets(2, permits(2, 2));
    assert_eq!(pool.release(1, late), Body::NotHeld { holder: None });
    assert_eq!(pool.lock.shares().expect("held").used(), 2);
    assert_eq!(pool.release(2, other), Body::Released);
    assert_eq!(pool.release(2, other), Body::NotHeld { holder: None }, "nor twice");
    assert_eq!(pool.lock.shares().expect("known").used(), 0);
}

/// D61: it was refused as an older change, and its client took that for done.
#[test]
fn a_downgrade_that_a_reentry_overtakes_is_carried_out() {
    let mut rw = Scene::rw();
    let token = rw.gets(1, Whole);
    rw.waits(2, Read);
    assert_eq!(rw.send(&again(1, token, 2, 2)), Body::StillHeld { count: 2 });
    assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 2 });
    assert_eq!(rw.told(), [2]);
    // Nor does it make an older change of the count the latest.
    assert_eq!(rw.send(&again(1, token, 1, 1)), Body::Stale);
}

#[test]
fn b19_late_copies_of_a_downgrade_change_nothing() {
    let mut rw = Scene::rw();
    let token = rw.gets(1, Whole);
    assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 1 });
    assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 1 });
    assert_eq!(rw.send(&again(1, token, 2, 3)), Body::StillHeld { count: 2 });
    assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 2 });
    rw.release(1, token);
    let other = rw.gets(2, Whole);
    assert_eq!(rw.downgrade(1, token), Body::NotHeld { holder: Some(owner(2)) });
    rw.release(2, other);
    let again = rw.gets(1, Whole);
    assert_eq!(rw.downgrade(1, token), Body::NotHeld { holder: Some(owner(1)) });
    assert!(rw.lock.shares().is_some_and(|s| s.holds()[&owner(1)].share == Whole));
    assert!(again > other && other > token);
}

#[test]
fn b21_those_who_read_at_the_same_time_have_one_token() {
    let mut rw = Scene::rw();
    let first = rw.gets(1, Read);
    assert_eq!(rw.gets(2, Read), first);
    rw.release(1, first);
    assert_eq!(rw.gets(3, Read), first, "B48: somebody has read without a gap");
    rw.release(2, first);
    rw.release(3, first);
    let second = rw.gets(4, Read);
    assert!(second > first, "nobody read meanwhile, and somebody may have written");
}

#[test]
fn a_downgrade_lets_those_in_who_wait_to_read_next() {
    let mut rw = Scene::rw();
    let writer = rw.gets(1, Whole);
    rw.waits(2, Read);
    rw.waits(3, Read);
    rw.waits(4, Whole);
    rw.waits(5, Read);
    rw.downgrade(1, writer);
    assert_eq!(rw.grants.iter().map(|grant| grant.token).collect::<Vec<_>>(), [writer; 2]);
    assert_eq!(rw.told(), [2, 3]);
    for n in 1..=3 {
        assert_eq!(rw.release(n, writer), Body::Released);
    }
    assert_eq!(rw.told(), [4]);
}

#[test]
fn b30_a_thousand_leases_that_end_at_once_are_ended_in_parts() {
    let mut pool = Scene::semaphore();
    for n in 1..=1_000 {
        pool.gets(n, permits(1, 1_000));
    }
    for n in 1_001..=1_500 {
        pool.waits(n, permits(1, 1_000));
    }
    pool.now += LEASE + 1;
    for n in 1_001..=1_500 {
        // They are alive.
        pool.beat(n);
    }
    let mut calls = 0;
    while pool.more {
        pool.send(&Op::Nudge);
        calls += 1;
        assert!(calls < 50, "it ends");
    }
    assert_eq!(pool.told(), (1_001..=1_500).collect::<Vec<_>>());
    assert_eq!(pool.holders(), 500);
}

#[test]
fn b30_a_cohort_is_served_in_parts_and_in_order() {
    let mut rw = Scene::rw();
    let writer = rw.gets(1, Whole);
    (2..=301).for_each(|n| _ = rw.waits(n, Read));
    rw.release(1, writer);
    let mut all = rw.told();
    assert_eq!((all.len(), rw.more), (128, true));
    while rw.more {
        rw.send(&Op::Nudge);
        all.extend(rw.told());
    }
    assert_eq!(all, (2..=301).collect::<Vec<_>>());
}

#[test]
fn who_wants_much_is_served_in_its_turn() {
    let mut pool = Scene::semaphore();
    let two = pool.gets(1, permits(2, 3));
    let one = pool.gets(2, permits(1, 3));
    pool.waits(3, permits(3, 3));
    pool.waits(4, permits(1, 3));
    pool.release(2, one);
    assert_eq!(pool.told(), [0; 0], "one is free, and the next wants three");
    assert!(!pool.tries(5, permits(1, 3)));
    pool.release(1, two);
    assert_eq!(pool.told(), [3]);
}

/// Limits belong to requests. Each is admitted by its own, and the difference can be seen.
#[test]
fn two_limits_are_both_kept_and_shown() {
    let mut pool = Scene::semaphore();
    pool.gets(1, permits(2, 3));
    pool.gets(2, permits(2, 5));
    assert!(!pool.tries(3, permits(1, 3)), "four are in use, and three are what it bears");
    assert!(pool.tries(4, permits(1, 5)));
    let seen = pool.inspect().shares.expect("shares");
    assert_eq!((seen.used, seen.holding, seen.limits), (5, 3, Some((3, 5))));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let (mut rw, mut pool) = (Scene::rw(), Scene::semaphore());
    let ask = |scene: &Scene, kind, share| {
        let acquire = Acquire { kind, ..scene.asks(1, any(scene.kind), Mode::Wait) };
        Op::AcquireShare(Box::new(ShareAcquire { acquire, share }))
    };
    for (kind, share) in [
        (Kind::Semaphore, permits(0, 5)),
        (Kind::Semaphore, permits(6, 5)),
        (Kind::Semaphore, Read),
        (Kind::ReadWrite, permits(1, 5)),
        (Kind::Fair, Read),
    ] {
        let op = ask(&pool, kind, share);
        let refusal = pool.refused(&op);
        let fits = if kind == Kind::Fair { CoreError::WrongType } else { CoreError::NoSuchShare };
        assert_eq!(refusal, fits, "{kind:?} {share:?}");
    }
    rw.gets(1, Read);
    let op = ask(&rw, Kind::Semaphore, permits(1, 1));
    let in_use = CoreError::InUse(Kind::ReadWrite);
    assert_eq!(rw.refused(&op), in_use);
    let fair = |kind| Op::Acquire(Acquire { kind, ..Scene::rw().asks(1, Read, Mode::Wait) });
    for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
        assert_eq!(rw.refused(&fair(kind)), in_use);
        assert_eq!(rw.refused(&Op::Force { kind }), in_use);
    }
    let mut held = Scene::rw();
    held.send(&fair(Kind::Fair));
    let op = ask(&held, Kind::ReadWrite, Read);
    assert_eq!(held.refused(&op), CoreError::InUse(Kind::Fair));
    let mut held = Scene::rw();
    held.send(&fair(Kind::Simple));
    assert_eq!(held.refused(&op), CoreError::InUse(Kind::Simple));
}

/// A share of the right kind.
fn any(kind: Kind) -> Share {
    if kind == Kind::Semaphore { permits(1, 1) } else { Read }
}

/// A name that nobody uses may be used for another kind; its tokens go on rising.
#[test]
fn a_free_name_may_change_its_kind() {
    let mut scene = Scene::rw();
    let mut last = scene.gets(1, Whole);
    scene.release(1, last);
    scene.kind = Kind::Semaphore;
    let permit = scene.gets(1, permits(1, 1));
    assert!(permit > last);
    scene.release(1, permit);
    let fair = Acquire { kind: Kind::Fair, ..Scene::rw().asks(2, Read, Mode::Wait) };
    let body = scene.send(&Op::Acquire(fair));
    let Body::Granted { token, .. } = body else { panic!("{body:?}") };
    assert!(token > permit);
    last = token;
    scene.send(&Op::Release { kind: Kind::Fair, owner: owner(2), token, keep: 0, change: 1 });
    scene.kind = Kind::ReadWrite;
    assert!(scene.gets(3, Read) > last);
}

/// A late copy of a try, after which the owner's other request is served by the very same call.
#[test]
fn a_try_beside_a_wait_of_its_own_takes_nothing_twice() {
    let mut rw = Scene::rw();
    rw.gets(1, Whole);
    let shared = |mode, number| Acquire {
        request: request(number),
        shared_owner: true,
        ..Scene::rw().asks(2, Read, mode)
    };
    assert!(matches!(rw.ask_with(shared(Mode::Wait, 20), Read), Body::Queued { .. }));
    rw.now += LEASE - 1_000;
    rw.beat(2);
    rw.now += 1_001;
    assert_eq!(rw.ask_with(shared(Mode::Try, 21), Read), Body::HeldBySelf { count: 1 });
    assert_eq!(rw.holders(), 1);
}

#[test]
fn force_takes_every_share_and_tells_everybody() {
    let mut rw = Scene::rw();
    let token = rw.gets(1, Read);
    rw.gets(2, Read);
    rw.waits(3, Whole);
    let (answer, effects) = {
        let op = Op::Force { kind: Kind::ReadWrite };
        rw.lock.apply(rw.now * 1_000 + 999, &op, &rw.rules, &rw.ears).expect("fine")
    };
    assert_eq!(answer.body, Body::Forced { holder: Some(owner(1)), others: 1 });
    let told = effects.iter().filter(|effect| {
        matches!(effect.payload, fairlock_core::Payload::Forced { token: of, .. } if of == token)
    });
    assert_eq!(told.count(), 2);
    assert_eq!(rw.renew(1, token), Body::NotHeld { holder: Some(owner(3)) });
}

/// One whose lease is over has lost its hold already: it is neither told nor counted.
#[test]
fn force_counts_those_whose_lease_runs() {
    let mut pool = Scene::semaphore();
    pool.gets(1, permits(1, 3));
    pool.now += LEASE / 2;
    pool.gets(2, permits(1, 3));
    pool.waits(3, permits(2, 3));
    pool.now += LEASE / 2 + 1;
    let body = pool.send(&Op::Force { kind: Kind::Semaphore });
    assert_eq!(body, Body::Forced { holder: Some(owner(2)), others: 0 });
}

/// The limit belongs to the request, so the reply says when another one is in use.
#[test]
fn a_request_hears_of_another_limit_as_long_as_somebody_holds_it() {
    let mut pool = Scene::semaphore();
    let differs = |pool: &mut Scene, n, limit| {
        let ask = ShareAcquire {
            acquire: pool.asks(n, permits(1, limit), Mode::Wait),
            share: permits(1, limit),
        };
        let op = Op::AcquireShare(Box::new(ask));
        let now_us = pool.now * 1_000 + n;
        pool.lock.apply(now_us, &op, &pool.rules, &pool.ears).expect("fine").0.other_limit
    };
    assert!(!differs(&mut pool, 1, 3));
    assert!(!differs(&mut pool, 2, 3));
    // A larger limit is let in beside them; a smaller one waits, and hears of it as well.
    assert!(differs(&mut pool, 3, 9));
    assert!(differs(&mut pool, 4, 2));
    assert_eq!(pool.inspect().shares.expect("held").limits, Some((2, 9)));
    assert!(matches!(pool.leave(4), Body::Left));
    assert!(matches!(pool.leave(3), Body::Freed));
    assert!(!differs(&mut pool, 5, 3));
}

/// On a store that knows which clients are gone, nobody waits for a lease of theirs.
#[test]
fn the_holds_of_a_client_that_is_gone_end_when_somebody_needs_them() {
    let mut pool = Scene::semaphore();
    pool.gets(1, permits(1, 2));
    pool.gets(2, permits(1, 2));
    pool.ears.gone.insert(client(1));
    pool.gets(3, permits(1, 2));
    assert_eq!(pool.lock.shares().expect("held").used(), 2);
}

/// The clock was set back, so the records of the line ended before its places. On a server nothing says then what a
/// waiter wants; here it was still known (seed 14995882251798 of the random histories).
#[test]
fn what_a_waiter_wants_ends_with_its_record() {
    let mut pool = Scene::semaphore();
    let token = pool.gets(1, permits(2, 3));
    pool.waits(2, permits(2, 3));
    let mut keys = pool.lock.snapshot().clone();
    keys.state_expires = Some(pool.now + 1_000);
    pool.lock = LockState::restored(keys, pool.lock.shares().cloned());
    pool.now += 1_001;
    assert_eq!(pool.renew(1, token), Body::Renewed);
    assert!(pool.lock.snapshot().order.contains_key(&owner(2)), "it has its place");
    assert!(pool.lock.snapshot().waiters.is_empty());
    assert!(pool.lock.shares().expect("held").wants().is_empty());
}
