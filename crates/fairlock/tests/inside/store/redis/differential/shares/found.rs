//! What a trial by reading found in the scripts of shares, one test each, on a server. Each failed before the repair.

use super::super::run::{START_US, owner, request};
use super::beside_java::{LEASE, Scene};
use super::cases::{each, first_of, of_each, permits};
use Share::{Read, Whole};
use fairlock_core::{Body, Fate, Kind, Mode, Op, Rules, Share, ShareAcquire, Token};

const HOUR: u64 = 3_600_000;
/// Threads of Java clients.
const T: i64 = 51;
const U: i64 = 52;

impl Scene {
    /// Takes a share at once, with an explicit lease.
    fn gets_for(&mut self, n: u64, share: Share, lease_ms: u64) -> Token {
        let acquire = self.asks(n, lease_ms, Mode::Try);
        let ask = Op::AcquireShare(Box::new(ShareAcquire { acquire, share }));
        match self.send(&ask).expect("fine").body {
            Body::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    fn force(&mut self) -> Body {
        self.send(&Op::Force { kind: self.kind }).expect("fine").body
    }
}

/// Ours read for an hour, beside a reader of Java's that died. The lock kept that hour after ours had released it, though
/// Java's unlock would have cut it to what its own readers have left.
#[test]
fn what_ours_gave_the_lock_does_not_outlive_them_beside_java() {
    each(|rw| {
        let token = rw.gets_for(0, Read, HOUR);
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, 10_000), None);
        rw.pass(5_000);
        assert_eq!(rw.release(0, token), Body::Released);
        assert_eq!(rw.left("job"), 5_000, "what Java's reader has");
        rw.waits(1, Whole);
        rw.pass(5_001);
        assert!(matches!(&rw.beat(1).0[..], [Fate::Granted(_)]));

        // The same where the lease of ours ends by itself, and where nothing says how long Java's reader lives.
        let writer = rw.gets(1, Whole);
        rw.release(1, writer);
        rw.gets_for(0, Read, 4_000);
        rw.fixture.java[0].read_acquire("job", T, 10_000);
        rw.number(&["PEXPIRE", "job", "3600000"]);
        rw.pass(5_000);
        rw.waits(1, Whole);
        assert_eq!(rw.left("job"), 5_000);
        rw.number(&["DEL", "job"]);
        rw.beat(1);
        let writer = rw.gets(1, Whole);
        rw.release(1, writer);
        let token = rw.gets_for(0, Read, HOUR);
        rw.fixture.raw.call(&["HSET", "job", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:7", "1"]);
        rw.release(0, token);
        assert_eq!(rw.left("job"), LEASE as i64);
    });
}

/// A reader of Java's cuts the lock's life, whatever ours hold. Who joined by the short way left it so, and a writer came
/// beside it.
#[test]
fn a_reader_that_joins_restores_what_java_cut_off() {
    each(|rw| {
        rw.gets_for(0, Read, HOUR);
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE as i64), None);
        assert!(rw.fixture.java[0].read_renew("job", T));
        assert_eq!(rw.left("job"), LEASE as i64, "cut");
        rw.pass(25_000);
        rw.gets(1, Read);
        assert_eq!(rw.left("job"), (HOUR - 25_000) as i64);
        rw.pass(6_000);
        assert!(matches!(rw.ask(2, Whole, Mode::Try), Body::Busy { .. }));
    });
}

/// The leases of permits were lost, and somebody came and went: the lock had that one's life then, and ended under those
/// who held.
#[test]
fn permits_whose_leases_were_lost_outlive_those_that_come_and_go() {
    of_each(Kind::Semaphore, |pool| {
        let first = pool.gets_for(0, permits(5, 10), HOUR);
        pool.number(&["DEL", "fairlock_sem_leases:{job}"]);
        let other = pool.gets(1, permits(1, 10));
        assert_eq!(pool.release(1, other), Body::Released);
        pool.pass(LEASE + 1);
        assert!(matches!(pool.ask(2, permits(10, 10), Mode::Try), Body::Busy { .. }));
        assert_eq!(pool.used(), (1, 5));
        // Lost once more: whoever renews or releases then has no lease, and the lock lives on for the others.
        let other = pool.gets(1, permits(1, 10));
        pool.number(&["DEL", "fairlock_sem_leases:{job}"]);
        assert_eq!(pool.release(1, other), Body::NotHeld { holder: None });
        assert!(pool.left("job") > LEASE as i64, "{}", pool.left("job"));
        pool.gets(2, permits(1, 10));
        assert_eq!(pool.release(0, first), Body::Released, "it has one again");
        // One lease alone: another one's renewal does not cut the lock's life.
        pool.fixture.raw.call(&["FLUSHALL"]);
        pool.gets_for(0, permits(5, 10), HOUR);
        let other = pool.gets(3, permits(1, 10));
        pool.number(&["ZREM", "fairlock_sem_leases:{job}", &owner(0).to_string()]);
        assert_eq!(pool.renew(3, other), Body::Renewed);
        assert!(pool.left("job") > LEASE as i64, "{}", pool.left("job"));
    });
}

/// The records of waiters were lost. All of them were put out of the line, and a newcomer was served before they had
/// noticed.
#[test]
fn waiters_whose_records_were_lost_keep_their_places() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        of_each(kind, |lock| {
            let all = if lock.kind == Kind::ReadWrite { Whole } else { permits(3, 3) };
            let state = match lock.kind {
                Kind::ReadWrite => "fairlock_rw_state:{job}",
                _ => "fairlock_sem_state:{job}",
            };
            let first = lock.gets(0, all);
            let orders = [lock.waits(1, all), lock.waits(2, all)];
            lock.number(&["DEL", state]);
            assert_eq!(lock.release(0, first), Body::Released);
            assert!(matches!(lock.ask(3, all, Mode::Try), Body::Busy { .. }), "a newcomer");
            lock.waits(4, all);
            // The second notices first.
            for n in [2, 1] {
                assert_eq!(lock.beat(n).0, [Fate::Unknown]);
                lock.returns(n, all, orders[n as usize - 1]);
            }
            lock.pass(Rules::default().beat_ms);
            for n in [0, 1, 2] {
                lock.beat(n);
            }
            assert_eq!(lock.told(), first_of([1]));
            for n in [1, 2, 4] {
                let token = lock.gets(n, all);
                assert_eq!(lock.release(n, token), Body::Released, "{n} in its turn");
            }
        });
    }
}

/// One that never returns costs the others one heartbeat, and not one with each look.
#[test]
fn a_waiter_whose_record_stays_lost_is_passed_over() {
    each(|rw| {
        let first = rw.gets(0, Whole);
        rw.waits(1, Whole);
        rw.waits(2, Whole);
        rw.number(&["HDEL", "fairlock_rw_state:{job}", &owner(1).to_string()]);
        rw.release(0, first);
        assert_eq!(rw.told(), first_of([]));
        let (fates, retry_ms, _) = rw.beat(2);
        assert_eq!((fates, retry_ms), (vec![Fate::Queued], Some(Rules::default().beat_ms)));
        rw.pass(Rules::default().beat_ms);
        rw.beat(2);
        assert_eq!(rw.told(), first_of([2]));
    });
}

/// The token's key was lost and the clock had been set back: the next one got a smaller token than the hold that ended in
/// the same call.
#[test]
fn the_next_token_is_larger_than_that_of_the_hold_that_ends() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        of_each(kind, |lock| {
            let all = if lock.kind == Kind::ReadWrite { Whole } else { permits(3, 3) };
            let first = lock.gets(0, all);
            let back = lock.fixture.now_us() - 10_000_000;
            lock.fixture.set_now(back);
            lock.waits(1, all);
            lock.number(&["DEL", "redisson_lock_token:{job}"]);
            lock.release(0, first);
            assert_eq!(lock.told(), first_of([1]));
            assert!(lock.gets(1, all) > first);
            let last = lock.raw(&["GET", "redisson_lock_token:{job}"]);
            assert!(last.parse::<u64>().expect("a number") > first.get(), "{last}");
        });
    }
}

/// The records of holders were lost: force ended nobody.
#[test]
fn force_ends_holds_without_a_record() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        of_each(kind, |lock| {
            let share = if lock.kind == Kind::ReadWrite { Read } else { permits(2, 3) };
            let holds = match lock.kind {
                Kind::ReadWrite => "fairlock_rw_holds:{job}",
                _ => "fairlock_sem_holds:{job}",
            };
            lock.gets_for(0, share, HOUR);
            lock.gets_for(1, permits_or(share), HOUR);
            lock.number(&["DEL", holds]);
            assert!(matches!(lock.force(), Body::Forced { holder: Some(_), others: 1 }));
            assert_eq!(lock.number(&["EXISTS", "job"]), 0);
            let all = if lock.kind == Kind::ReadWrite { Whole } else { permits(3, 3) };
            lock.gets(2, all);
            assert_eq!(lock.used(), (1, if lock.kind == Kind::ReadWrite { 0 } else { 3 }));
        });
    }
}

/// Another share that fits beside `share`.
fn permits_or(share: Share) -> Share {
    if share == Read { Read } else { permits(1, 3) }
}

/// Force counted the permits that it had ended as in use, for good, and whoever waited held beside them.
#[test]
fn force_gives_all_permits_back() {
    of_each(Kind::Semaphore, |pool| {
        pool.gets_for(0, permits(5, 5), HOUR);
        pool.waits(1, permits(5, 5));
        pool.number(&["DEL", "fairlock_sem_leases:{job}"]);
        pool.force();
        assert_eq!(pool.told(), first_of([1]));
        assert_eq!(pool.used(), (1, 5));
    });
}

/// An operator takes the lock's end away, its holder dies, and nobody waits: those who only try were told "taken" for ever.
#[test]
fn a_lock_without_an_end_is_free_for_those_who_only_try() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        of_each(kind, |lock| {
            let all = if lock.kind == Kind::ReadWrite { Whole } else { permits(3, 3) };
            lock.gets(0, all);
            lock.number(&["PERSIST", "job"]);
            lock.pass(LEASE + 60_000);
            assert_eq!(lock.ask(1, all, Mode::Try), Body::Busy { ttl_ms: Some(LEASE) });
            lock.pass(LEASE + 1);
            lock.gets(1, all);
        });
    }
}

/// Whoever held last was taken out of the lock, and the records were deleted: what was written then had no TTL.
#[test]
fn nothing_is_written_of_a_lock_that_is_gone() {
    of_each(Kind::Semaphore, |pool| {
        let first = pool.gets(0, permits(1, 3));
        pool.gets(1, permits(1, 3));
        pool.number(&["HDEL", "job", &owner(1).to_string()]);
        pool.number(&["DEL", "fairlock_sem_holds:{job}"]);
        assert_eq!(pool.release(0, first), Body::NotHeld { holder: None }, "its record is lost");
        assert_eq!(pool.number(&["EXISTS", "fairlock_sem_holds:{job}"]), 0);
        let renew = |not_after_ms| {
            let kind = Kind::Semaphore;
            let renew = Op::Renew { kind, owner: owner(0), token: first, ttl_ms: 1 };
            renew.of_hold(kind, request(0, 1), not_after_ms)
        };
        let late = pool.send(&renew(1)).expect("fine").body;
        assert_eq!(late, Body::NotHeld { holder: None }, "late");
        assert_eq!(pool.send(&renew(u64::MAX >> 12)).expect("fine").body, Body::Renewed);
        pool.pass(LEASE - 1);
        assert_eq!(pool.renew(0, first), Body::Renewed, "the lease was not cut");
        assert_eq!(pool.release(0, first), Body::Released);
        assert_eq!(pool.number(&["EXISTS", "job", "fairlock_sem_holds:{job}"]), 0);
    });
}

/// A try served somebody with the last token of all, and then took one beyond it.
#[test]
fn a_try_gets_no_token_beyond_the_last() {
    of_each(Kind::Semaphore, |pool| {
        let first = pool.gets(0, permits(3, 3));
        pool.waits(1, permits(1, 3));
        pool.fixture.raw.call(&["SET", "redisson_lock_token:{job}", "9007199254740990"]);
        pool.pass(LEASE + 1);
        pool.beat(0);
        assert_eq!(pool.told(), first_of([1]));
        assert_eq!(pool.raw(&["GET", "redisson_lock_token:{job}"]), "9007199254740991");
        let acquire = pool.asks(2, LEASE, Mode::Try);
        let ask = ShareAcquire { acquire, share: permits(1, 3) };
        let refused = pool.send(&Op::AcquireShare(Box::new(ask)));
        assert!(refused.expect_err("there is none").contains("FAIRLOCK_TOKEN"));
        let last = Token::new(9_007_199_254_740_991).expect("the last");
        assert_eq!(pool.release(1, last), Body::Released);
        assert!(last > first);
    });
}

/// The same in one call: the try itself serves the line.
#[test]
fn a_try_that_serves_the_last_token_gets_none() {
    of_each(Kind::Semaphore, |pool| {
        pool.gets(0, permits(3, 3));
        pool.waits(1, permits(1, 3));
        pool.pass(LEASE + 1);
        // So that the waiter's client lives.
        pool.number(&[
            "ZADD",
            "fairlock_sem_beats:{job}",
            &(pool.fixture.now_us() / 1_000).to_string(),
            &owner(1).client().expect("ours").to_string(),
        ]);
        pool.fixture.raw.call(&["SET", "redisson_lock_token:{job}", "9007199254740990"]);
        assert!(matches!(pool.ask(2, permits(1, 3), Mode::Try), Body::Busy { .. }));
        assert_eq!(pool.told(), first_of([1]));
    });
}

/// Another kind's line was found after a lease had been ended: refused, and yet something was changed.
#[test]
fn who_is_refused_because_of_another_line_changes_nothing() {
    each(|rw| {
        rw.gets(0, Read);
        rw.pass(10_000);
        rw.gets(1, Read);
        rw.pass(LEASE - 5_000);
        rw.fixture.raw.call(&["ZADD", "fairlock_sem_order:{job}", "1", &owner(9).to_string()]);
        let acquire = rw.asks(2, LEASE, Mode::Wait);
        let refused = rw.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share: Whole })));
        assert!(refused.expect_err("another line").contains("FAIRLOCK_KIND"));
        assert_eq!(rw.number(&["HLEN", "job"]), 3);
        assert_eq!(rw.number(&["ZCARD", "fairlock_rw_leases:{job}"]), 2);
    });
}

/// Data of an application under the lock's name, with a field `mode`: readers joined it, and it ended with their leases.
#[test]
fn data_with_a_mode_are_left_alone() {
    each(|rw| {
        for value in ["red", "7"] {
            let before = ["HSET", "job", "mode", "read", "colour", value];
            rw.fixture.raw.call(&before);
            for share in [Read, Whole] {
                for mode in [Mode::Try, Mode::Wait] {
                    let acquire = rw.asks(0, LEASE, mode);
                    let acquire = ShareAcquire { acquire, share };
                    let refused = rw.send(&Op::AcquireShare(Box::new(acquire)));
                    let refused = refused.expect_err("no lock");
                    assert!(refused.contains("not a lock"), "{refused}");
                }
            }
            let refused = rw.send(&Op::Force { kind: Kind::ReadWrite });
            assert!(refused.expect_err("no lock").contains("not a lock"));
            assert_eq!((rw.number(&["HLEN", "job"]), rw.left("job")), (2, -1));
            rw.number(&["DEL", "job"]);
        }
        // What Java leaves is one, also in a transaction, and for threads that it numbers below 0.
        let uuid = "7f3c1c8e-93a5-4d5e-8d3b-0d6c8c1f2a10";
        let in_transaction = format!("{uuid}:12:0a1b2c3d4e5f60718293a4b5c6d7e8f9");
        rw.fixture.raw.call(&["HSET", "job", "mode", "read", &in_transaction, "1"]);
        rw.gets(0, Read);
        rw.number(&["DEL", "job"]);
        assert_eq!(rw.fixture.java[0].read_acquire("job", -1, LEASE as i64), None);
        assert_eq!(rw.fixture.java[1].read_acquire("job", U, LEASE as i64), None);
        rw.gets(0, Read);
    });
}

/// A field was taken out of the lock, and one of another program put in its place. The short way of a release deleted the
/// key, which the long one refuses.
#[test]
fn short_ways_refuse_what_the_long_ones_refuse() {
    for (kind, share) in
        [(Kind::ReadWrite, Whole), (Kind::ReadWrite, Read), (Kind::Semaphore, permits(1, 4))]
    {
        let Some(mut lock) = Scene::new(kind) else { return };
        for held in 1..=if share == Whole { 1 } else { 3 } {
            // Whose field is taken out; the last is `mode`.
            for out in 0..=held {
                let mut refused = 0;
                for at in 0..held + 3 {
                    let both = [false, true].map(|long_way| {
                        lock.fixture.reset(START_US);
                        lock.fixture.long_way = long_way;
                        let tokens: Vec<_> =
                            (0..held).map(|n| lock.gets_for(n, share, LEASE + n)).collect();
                        let field = match share {
                            _ if out == held => "mode".to_owned(),
                            Whole => format!("{}:write", owner(out)),
                            _ => owner(out).to_string(),
                        };
                        assert_eq!(lock.number(&["HDEL", "job", &field]), 1);
                        lock.number(&["HSET", "job", "volume", "5"]);
                        let op = match at.checked_sub(held) {
                            None => {
                                let (owner, token) = (owner(at), tokens[at as usize]);
                                let op = Op::Release { kind, owner, token, keep: 0, change: 1 };
                                lock.of_hold(at, op)
                            }
                            Some(0) => Op::Inspect { kind, limit: 5 },
                            Some(asked) => {
                                let mode = if asked == 1 { Mode::Try } else { Mode::Wait };
                                Op::asks(lock.asks(5, LEASE, mode), share)
                            }
                        };
                        (lock.send(&op), lock.number(&["HEXISTS", "job", "volume"]))
                    });
                    let story =
                        format!("{kind:?} {share:?}, {held} hold, {out} out, {at}: {both:?}");
                    // The error names the line of the script.
                    let said = |at: usize| both[at].0.as_ref().map_err(|_| ());
                    assert_eq!(said(0), said(1), "{story}");
                    assert_eq!(both.iter().map(|it| it.1).sum::<i64>(), 2, "deleted: {story}");
                    refused += u32::from(both[0].0.is_err());
                }
                // What the first and the last lease do not tell would cost a look at each field.
                let is_told = out == held || out == 0 || out == held - 1;
                assert_eq!(refused > 0, is_told, "{kind:?} {share:?}, {held} hold, {out} out");
            }
        }
    }
}

/// A lock that Java holds for as long as it can. A lease that was lost got that end, and was refused from then on as one
/// that never ends; the lock's end could not be set any more.
#[test]
fn no_lease_of_ours_is_endless() {
    each(|rw| {
        for ms in [7_730_941_129_200_000_u64, 9_223_370_000_000_000_000] {
            rw.fixture.reset(START_US);
            let token = rw.gets(0, Read);
            rw.number(&["ZREM", "fairlock_rw_leases:{job}", &owner(0).to_string()]);
            rw.fixture.raw.call(&["HSET", "job", "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:7", "1"]);
            rw.fixture.raw.call(&["PEXPIRE", "job", &ms.to_string()]);
            rw.waits(1, Whole);
            rw.beat(1);
            rw.beat(1);
            rw.release(0, token);
            assert!(rw.send(&Op::Inspect { kind: Kind::ReadWrite, limit: 1 }).is_ok());
        }
    });
}
