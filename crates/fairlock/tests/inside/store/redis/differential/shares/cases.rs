//! What breaks read-write locks and semaphores elsewhere, one test each, on a server. The names are those of the list of
//! attacks in docs/testing.md. Java's part is played by Redisson's rules, rewritten (`fairlock_testkit::redisson`).

use super::super::run::{START_US, owner, request};
use super::beside_java::{LEASE, Scene, timeout_of};
use Share::{Read, Whole};
use fairlock_core::{
    Acquire, Body, Fate, Kind, Mode, Op, Payload, RequestId, Rules, Share, ShareAcquire, Token,
};
use fairlock_testkit::server::Generation;

/// The thread of a Java client.
const T: i64 = 51;
const LEASE_MS: i64 = LEASE as i64;

pub(super) fn permits(n: u32, limit: u32) -> Share {
    Share::Permits { n, limit }
}

/// Plays a case of read-write locks on each generation.
pub(super) fn each(case: fn(&mut Scene)) {
    of_each(Kind::ReadWrite, case);
}

pub(super) fn of_each(kind: Kind, case: fn(&mut Scene)) {
    for generation in Generation::few() {
        let Some(mut scene) = Scene::on(generation, kind) else { continue };
        println!("on {}", generation.name());
        case(&mut scene);
    }
}

impl Scene {
    /// Stands in the line; returns the place's number.
    pub(super) fn waits(&mut self, n: u64, share: Share) -> u64 {
        match self.ask(n, share, Mode::Wait) {
            Body::Queued { order, .. } => order,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn returns(&mut self, n: u64, share: Share, order: u64) -> Body {
        let acquire = Acquire { order: Some(order), ..self.asks(n, LEASE, Mode::Wait) };
        let ask = ShareAcquire { acquire, share };
        self.send(&Op::AcquireShare(Box::new(ask))).expect("fine").body
    }

    fn downgrade(&mut self, n: u64, token: Token) -> Body {
        let op = Op::Downgrade { owner: owner(n), token };
        self.send(&self.of_hold(n, op)).expect("fine").body
    }

    /// The requests that were told of a grant since the last call.
    pub(super) fn told(&mut self) -> Vec<RequestId> {
        let grants = self.effects.drain(..).filter_map(|effect| match effect.payload {
            Payload::Grant { grant, .. } => Some(grant.request),
            _ => None,
        });
        grants.collect()
    }

    pub(super) fn used(&mut self) -> (u64, u64) {
        let look = self.send(&Op::Inspect { kind: self.kind, limit: 10 }).expect("fine");
        let Body::Inspected(seen) = look.body else { panic!("{look:?}") };
        let shares = seen.shares.expect("shares");
        (shares.holding, shares.used)
    }

    pub(super) fn left(&mut self, key: &str) -> i64 {
        self.number(&["PTTL", key])
    }
}

pub(super) fn first_of(owners: impl IntoIterator<Item = u64>) -> Vec<RequestId> {
    owners.into_iter().map(|n| request(n, 1)).collect()
}

/// Half of a cohort hears its grants, and then the server is another one, which knows nothing of it. Each grant is judged
/// by itself: the one that was heard ends with its renewal, and the other waiter returns to its place.
#[test]
fn b7_half_of_a_cohort_is_told_before_the_server_forgets_it() {
    each(|rw| {
        let writer = rw.gets(0, Whole);
        rw.waits(1, Read);
        let order = rw.waits(2, Read);
        rw.release(0, writer);
        assert_eq!(rw.told(), first_of([1, 2]));
        let heard = rw.gets(1, Read);
        rw.fixture.raw.call(&["FLUSHALL"]);
        assert_eq!(rw.renew(1, heard), Body::NotHeld { holder: None });
        assert_eq!(rw.beat(2).0, [Fate::Unknown]);
        assert!(matches!(rw.returns(2, Read, order), Body::Queued { retry_ms: Some(_), .. }));
        // A writer that has seen none of this stands behind it.
        rw.waits(3, Whole);
        rw.pass(Rules::default().beat_ms);
        assert_eq!(rw.beat(0).0, [Fate::Unknown]);
        assert_eq!(rw.told(), first_of([2]));
        assert!(rw.gets(2, Read) > heard);
    });
}

/// Java cuts the lock's life to the longest timeout key of those that read. Ours end with the lease to the millisecond,
/// in every way in which a reader gets a lease, so the lock outlives every guard, whose margin comes off the lease.
#[test]
fn b10_java_never_ends_the_lock_before_a_lease_of_ours() {
    each(|rw| {
        // A guess of the clock in µs, of which ms cut off the rest.
        rw.fixture.set_now(START_US + 999);
        let token = rw.gets(0, Read);
        let check = |rw: &mut Scene, lease: i64, what: &str| {
            assert_eq!(rw.fixture.java[0].read_acquire("job", T, 10), None, "{what}");
            assert_eq!(rw.fixture.java[0].read_unlock("job", T), Some(0), "{what}");
            assert_eq!(rw.left("job"), lease, "{what}");
            rw.pass(lease as u64 - 1);
            assert_eq!(rw.fixture.java[0].read_acquire("job", T, 10), None, "{what}");
            assert_eq!(rw.fixture.java[0].read_unlock("job", T), Some(0), "{what}");
            assert_eq!((rw.left("job"), rw.left(&timeout_of(0))), (1, 1), "{what}: to the end");
        };
        check(rw, LEASE_MS, "taken");
        assert_eq!(rw.renew(0, token), Body::Renewed);
        check(rw, LEASE_MS, "renewed");
        let (owner, change) = (owner(0), 1);
        let again = rw.of_hold(0, Op::Reenter { owner, token, count: 2, change });
        assert_eq!(rw.send(&again).expect("fine").body, Body::StillHeld { count: 2 });
        assert_eq!(rw.renew(0, token), Body::Renewed);
        check(rw, LEASE_MS, "entered twice");
        rw.release(0, token);
        let token = rw.gets(0, Whole);
        rw.pass(1_000);
        rw.downgrade(0, token);
        check(rw, LEASE_MS - 1_000, "downgraded");
        rw.release(0, token);
        // By a message: for as long as its client's last heartbeat is good.
        let token = rw.gets(1, Whole);
        rw.waits(0, Read);
        rw.pass(1_000);
        rw.release(1, token);
        let lease = rw.left(&timeout_of(0));
        assert!(lease > 0 && lease < LEASE_MS, "{lease}");
        check(rw, lease, "told");
    });
}

/// A reader that Java cannot see loses the lock to Java's next unlock. Every way to read makes the key; where it was lost,
/// the next renewal makes it again.
#[test]
fn b11_a_reader_that_lost_its_timeout_key_gets_one() {
    each(|rw| {
        let token = rw.gets(0, Read);
        let unlocks = |rw: &mut Scene| {
            assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
            rw.fixture.java[0].read_unlock("job", T)
        };
        assert_eq!(unlocks(rw), Some(0));
        rw.number(&["DEL", &timeout_of(0)]);
        assert_eq!(rw.renew(0, token), Body::Renewed);
        assert_eq!(unlocks(rw), Some(0), "the renewal has made it again");
        // With its lease: a waiter's heartbeat makes both again.
        rw.waits(1, Whole);
        rw.number(&["DEL", &timeout_of(0)]);
        rw.number(&["DEL", "fairlock_rw_leases:{job}"]);
        assert_eq!(rw.beat(1).0, [Fate::Queued]);
        assert_eq!(unlocks(rw), Some(0), "the heartbeat has made it again");
        assert_eq!(rw.renew(0, token), Body::Renewed);
        // What it costs before that: the holder learns it, and nobody else is let in twice.
        rw.number(&["DEL", &timeout_of(0)]);
        assert_eq!(unlocks(rw), Some(1), "Java sees nobody");
        assert_eq!(rw.renew(0, token), Body::NotHeld { holder: Some(owner(1)) });
    });
}

/// Nothing of ours stays after Java took the lock away, and a new writer comes in.
#[test]
fn b12_b47_what_java_takes_by_force_is_gone_with_all_that_we_know_of_it() {
    each(|rw| {
        let first = rw.gets(0, Read);
        rw.gets(1, Read);
        rw.gets(2, Read);
        rw.waits(3, Whole);
        assert!(rw.fixture.java[0].read_force_unlock("job"));
        assert_eq!(rw.renew(0, first), Body::NotHeld { holder: Some(owner(3)) });
        assert_eq!(rw.told(), first_of([3]), "a renewal that finds it free hands it on");
        let (holders, _) = rw.used();
        assert_eq!(holders, 1);
        assert_eq!(rw.release(1, first), Body::NotHeld { holder: Some(owner(3)) });
        assert!(!rw.fixture.java[0].read_force_unlock("job"), "nobody reads");
        assert!(rw.fixture.java[0].write_force_unlock("job"));
        assert_eq!(rw.beat(0).0, [Fate::Unknown]);
        assert!(rw.gets(4, Whole) > first);
    });
}

/// A late release names a hold that is over. It returns nothing to anybody.
#[test]
fn b14_a_release_after_the_lease_gives_nothing_back() {
    of_each(Kind::Semaphore, |pool| {
        let late = pool.gets(1, permits(2, 2));
        pool.pass(LEASE + 1);
        let other = pool.gets(2, permits(2, 2));
        assert_eq!(pool.release(1, late), Body::NotHeld { holder: None });
        assert_eq!(pool.used(), (1, 2));
        assert_eq!(pool.release(2, other), Body::Released);
        assert_eq!(pool.release(2, other), Body::NotHeld { holder: None }, "nor twice");
        assert_eq!(pool.used(), (0, 0));
    });
}

/// The permits in use are what the lock says. What was lost, or half done, is counted anew.
#[test]
fn b15_permits_in_use_are_counted_anew() {
    of_each(Kind::Semaphore, |pool| {
        let (one, _) = (pool.gets(0, permits(1, 4)), pool.gets(1, permits(2, 4)));
        let holds = "fairlock_sem_holds:{job}";
        pool.number(&["HDEL", holds, "used"]);
        assert!(matches!(pool.ask(2, permits(2, 4), Mode::Try), Body::Busy { .. }));
        pool.gets(2, permits(1, 4));
        // A hold of which the field was taken away gives its permits back, though its record is there.
        pool.waits(3, permits(2, 4));
        pool.number(&["HDEL", "job", &owner(1).to_string()]);
        assert_eq!(pool.beat(3).0.len(), 1);
        assert_eq!(pool.told(), first_of([3]));
        assert_eq!(pool.used(), (3, 4));
        assert_eq!(pool.release(0, one), Body::Released);
        pool.gets(4, permits(1, 4));
        assert!(matches!(pool.ask(5, permits(1, 4), Mode::Try), Body::Busy { .. }));
        // With the records of all of them.
        pool.number(&["DEL", holds]);
        assert!(matches!(pool.ask(5, permits(1, 4), Mode::Try), Body::Busy { .. }));
        pool.pass(LEASE + 1);
        pool.gets(5, permits(4, 4));
        assert_eq!(pool.used(), (1, 4));
    });
}

/// A lock in which only the mode is left may be another program's: it is refused, and keeps nobody out once it has ended.
#[test]
fn b15_a_mode_without_anybody_keeps_nobody_out() {
    for (kind, mode) in
        [(Kind::ReadWrite, "write"), (Kind::ReadWrite, "read"), (Kind::Semaphore, "permits")]
    {
        let Some(mut scene) = Scene::on(Generation::Redis70, kind) else { return };
        let all = if kind == Kind::ReadWrite { Whole } else { permits(3, 3) };
        scene.number(&["HSET", "job", "mode", mode]);
        scene.number(&["PEXPIRE", "job", "60000"]);
        let acquire = scene.asks(0, LEASE, Mode::Wait);
        let ask = Op::AcquireShare(Box::new(ShareAcquire { acquire, share: all }));
        let refused = scene.send(&ask).expect_err("no lock");
        assert!(refused.contains("nothing but a field `mode`"), "{refused}");
        scene.pass(60_001);
        scene.gets(0, all);
        assert_eq!(scene.used().0, 1, "{kind:?} {mode}");
    }
}

/// Java's watchdog gives the lock 30 s whatever others hold, and then its client dies. A renewal of ours restores it.
#[test]
fn b18_a_long_lease_outlives_a_java_reader_that_dies() {
    const HOUR: u64 = 3_600_000;
    each(|rw| {
        let acquire = rw.asks(0, HOUR, Mode::Try);
        let body = rw
            .send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share: Read })))
            .expect("fine")
            .body;
        let Body::Granted { token, .. } = body else { panic!("{body:?}") };
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        assert_eq!(rw.left("job"), HOUR as i64, "an acquisition only raises it");
        rw.pass(10_000);
        assert!(rw.fixture.java[0].read_renew("job", T));
        assert_eq!(rw.left("job"), LEASE_MS, "cut");
        // The client keeps a long lease up every 10 s: `fairlock_core::client::Hold::keep_up`.
        rw.pass(10_000);
        let ttl_ms = HOUR - 20_000;
        let renew = Op::Renew { kind: Kind::ReadWrite, owner: owner(0), token, ttl_ms };
        let renew = rw.of_hold(0, renew);
        assert_eq!(rw.send(&renew).expect("fine").body, Body::Renewed);
        // Java's reader has died, and its timeout key with it.
        rw.pass(LEASE + 10_000);
        assert_eq!(rw.left("job"), (ttl_ms - LEASE - 10_000) as i64);
        let left = rw.fixture.java[1].write_acquire("job", T, LEASE_MS);
        assert!(left.is_some_and(|left| left > LEASE_MS), "{left:?}: it is read");
        assert_eq!(rw.release(0, token), Body::Released);
        rw.pass(HOUR);
        assert_eq!(rw.fixture.java[1].write_acquire("job", T, LEASE_MS), None);
    });
}

#[test]
fn b19_late_copies_of_a_downgrade_change_nothing() {
    each(|rw| {
        let token = rw.gets(1, Whole);
        assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 1 });
        assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 1 });
        let (of, change) = (owner(1), 3);
        let again = rw.of_hold(1, Op::Reenter { owner: of, token, count: 2, change });
        assert_eq!(rw.send(&again).expect("fine").body, Body::StillHeld { count: 2 });
        assert_eq!(rw.downgrade(1, token), Body::StillHeld { count: 2 });
        rw.release(1, token);
        let other = rw.gets(2, Whole);
        assert_eq!(rw.downgrade(1, token), Body::NotHeld { holder: Some(owner(2)) });
        rw.release(2, other);
        let next = rw.gets(1, Whole);
        assert_eq!(rw.downgrade(1, token), Body::NotHeld { holder: Some(owner(1)) });
        assert_eq!(rw.raw(&["HGET", "job", "mode"]), "write");
        assert!(next > other && other > token);
    });
}

/// Our reader joins Java's. A writer of Java's may have been there since our last one, and it minted nothing: whoever
/// writes late with our last token must be refused.
#[test]
fn b20_beside_javas_readers_alone_a_reader_gets_a_new_token() {
    each(|rw| {
        let paused = rw.gets(0, Whole);
        rw.pass(LEASE + 1);
        assert_eq!(rw.fixture.java[0].write_acquire("job", T, LEASE_MS), None);
        assert_eq!(rw.fixture.java[0].write_unlock("job", T), Some(1));
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        let first = rw.gets(1, Read);
        assert!(first > paused);
        assert_eq!(rw.fixture.java[1].read_acquire("job", T, LEASE_MS), None);
        assert_eq!(rw.gets(2, Read), first, "b21: who reads at the same time has one token");
        assert_eq!(rw.release(1, first), Body::Released);
        assert_eq!(rw.gets(1, Read), first, "B48: one of ours has read without a gap");
        rw.release(1, first);
        rw.release(2, first);
        assert_eq!(rw.raw(&["HGET", "job", "mode"]), "read", "Java's read on");
        assert!(rw.gets(1, Read) > first, "those of Java alone are no phase");
    });
}

/// A writer of ours waits. A Java reader that asks again must come in: it would wait for itself, and renew what it waits for.
#[test]
fn b25_a_java_reader_may_read_again_whoever_waits() {
    each(|rw| {
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        rw.waits(0, Whole);
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        assert_eq!(rw.fixture.java[0].read_unlock("job", T), Some(0));
        assert_eq!(rw.beat(0).0, [Fate::Queued]);
        assert_eq!(rw.fixture.java[0].read_unlock("job", T), Some(1));
        assert!(matches!(&rw.beat(0).0[..], [Fate::Granted(_)]));
        assert!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS).is_some(), "it is written");
    });
}

#[test]
fn b30_a_thousand_leases_that_end_at_once_are_ended_in_parts() {
    let Some(mut pool) = Scene::on(Generation::Redis70, Kind::Semaphore) else { return };
    for n in 0..1_000 {
        pool.gets(n, permits(1, 1_000));
    }
    for n in 1_000..1_500 {
        pool.waits(n, permits(1, 1_000));
    }
    pool.pass(LEASE + 1);
    for n in [1_000, 1_001, 1_002] {
        // They are alive: the owners are spread over three clients.
        pool.beat(n);
    }
    let mut calls = 0;
    while pool.more {
        let before = pool.used().0;
        pool.send(&Op::Nudge.on(Kind::Semaphore)).expect("fine");
        calls += 1;
        assert!(pool.used().0 + 64 >= before.min(1_000) && calls < 50, "in parts, and it ends");
    }
    let mut told = pool.told();
    told.sort_unstable();
    assert_eq!(told.len(), 500);
    assert_eq!(pool.used(), (500, 500));
}

#[test]
fn b30_a_cohort_is_served_in_parts_and_in_order() {
    each(|rw| {
        let writer = rw.gets(0, Whole);
        (1..=300).for_each(|n| _ = rw.waits(n, Read));
        rw.release(0, writer);
        let mut sizes = vec![rw.told().len()];
        while rw.more {
            rw.send(&Op::Nudge.on(Kind::ReadWrite)).expect("fine");
            sizes.push(rw.told().len());
        }
        assert_eq!(sizes, [128, 128, 44]);
        assert_eq!(rw.number(&["HLEN", "job"]), 301);
    });
}

/// The line's order is lost, and somebody comes before its waiters have noticed. They return to their places: nobody else
/// passes them.
#[test]
fn b31_a_line_that_was_lost_is_made_anew_by_its_waiters() {
    each(|rw| {
        let reader = rw.gets(0, Read);
        let order = rw.waits(1, Whole);
        assert!(matches!(rw.ask(2, Read, Mode::Try), Body::Busy { .. }), "nor does a try pass it");
        rw.number(&["DEL", "fairlock_rw_order:{job}"]);
        // Before the next heartbeat of the writer: this one comes in.
        let early = rw.gets(2, Read);
        assert_eq!(early, reader);
        assert_eq!(rw.beat(1).0, [Fate::Unknown]);
        assert!(
            matches!(rw.returns(1, Whole, order), Body::Queued { order: at, .. } if at == order)
        );
        assert!(matches!(rw.ask(3, Read, Mode::Try), Body::Busy { .. }), "and this one does not");
        rw.waits(3, Read);
        rw.release(0, reader);
        rw.release(2, early);
        rw.pass(Rules::default().beat_ms + 1);
        rw.beat(1);
        assert_eq!(rw.told().first(), Some(&request(1, 1)));
    });
}

/// Memory runs out. An acquisition is refused and leaves nothing; a release hands on to all of a cohort, as what was
/// released has made room; renewals and heartbeats go on.
#[test]
fn b32_a_cohort_is_granted_whole_without_memory() {
    each(|rw| {
        let writer = rw.gets(0, Whole);
        (1..=100).for_each(|n| _ = rw.waits(n, Read));
        rw.waits(101, Whole);
        let limit = |rw: &mut Scene, bytes: &str| {
            rw.fixture.raw.call(&["CONFIG", "SET", "maxmemory", bytes]);
        };
        limit(rw, "1");
        let keys = rw.number(&["DBSIZE"]);
        for share in [Read, Whole] {
            let acquire = rw.asks(200, LEASE, Mode::Wait);
            let refused = rw.send(&Op::AcquireShare(Box::new(ShareAcquire { acquire, share })));
            let refused = refused.expect_err(&format!("{share:?}: no memory"));
            assert!(refused.contains("OOM"), "{refused}");
        }
        assert_eq!(rw.number(&["DBSIZE"]), keys);
        assert_eq!(rw.renew(0, writer), Body::Renewed);
        assert_eq!(rw.beat(1).0, [Fate::Queued]);
        assert_eq!(rw.release(0, writer), Body::Released);
        assert_eq!(rw.told().len(), 100, "all of them");
        assert_eq!(rw.number(&["HLEN", "job"]), 101);
        assert_eq!(rw.number(&["ZCARD", "fairlock_rw_leases:{job}"]), 100);
        limit(rw, "0");
        for n in 1..=100 {
            let token = rw.gets(n, Read);
            limit(rw, "1");
            assert_eq!(rw.release(n, token), Body::Released);
            limit(rw, "0");
        }
        assert_eq!(rw.told(), first_of([101]));
    });
}

/// Each kind is refused by the others, Java's lock of one owner included. What Java does with a name that ours hold is its
/// own lock's rule: an `RLock` waits.
#[test]
fn b33_kinds_of_one_name_keep_out_of_each_other() {
    for kind in [Kind::ReadWrite, Kind::Semaphore] {
        for generation in Generation::few() {
            let Some(mut scene) = Scene::on(generation, kind) else { continue };
            let share = if kind == Kind::ReadWrite { Read } else { permits(1, 3) };
            assert_eq!(scene.fixture.java[0].plain_acquire("job", T, LEASE_MS), None);
            let acquire = scene.asks(0, LEASE, Mode::Try);
            let ask = Op::AcquireShare(Box::new(ShareAcquire { acquire, share }));
            let refused = scene.send(&ask).expect_err("an RLock holds it");
            assert!(
                refused.contains("FAIRLOCK_KIND") && refused.contains("in use: fair"),
                "{refused}"
            );
            assert_eq!(scene.fixture.java[0].plain_unlock("job", T), Some(1));
            scene.fixture.published();
            let token = scene.gets(0, share);
            let left = scene.fixture.java[0].plain_acquire("job", T, LEASE_MS);
            assert_eq!(left, Some(LEASE_MS), "an RLock waits");
            if kind == Kind::Semaphore {
                assert_eq!(scene.fixture.java[0].read_acquire("job", T, LEASE_MS), Some(LEASE_MS));
                assert_eq!(scene.fixture.java[0].write_acquire("job", T, LEASE_MS), Some(LEASE_MS));
            }
            assert_eq!(scene.release(0, token), Body::Released);
            // `RSemaphore` and `RPermitExpirableSemaphore` keep a string there.
            scene.fixture.raw.call(&["SET", "job", "3"]);
            assert!(scene.send(&ask).expect_err("a string").contains("WRONGTYPE"));
            assert_eq!(scene.raw(&["GET", "job"]), "3", "left alone");
        }
    }
}

/// The clock jumps: all leases are over at once, or numbers would fall.
#[test]
fn b45_a_clock_that_steps() {
    each(|rw| {
        let reader = rw.gets(0, Read);
        rw.gets(1, Read);
        let first = rw.waits(2, Whole);
        rw.pass(60_000);
        // Nobody was heard for a minute, and the server cannot know that nobody slept: the first is offered its share.
        assert_eq!(rw.renew(0, reader), Body::NotHeld { holder: Some(owner(2)) });
        assert_eq!(rw.told(), first_of([2]));
        assert_eq!(rw.renew(1, reader), Body::NotHeld { holder: Some(owner(2)) }, "both are over");
        let writer = rw.gets(2, Whole);
        let back = rw.fixture.now_us() - 120_000_000;
        rw.fixture.set_now(back);
        let second = rw.waits(3, Whole);
        let third = rw.waits(4, Whole);
        assert!(first < second && second < third, "{first} {second} {third}");
        assert_eq!(rw.release(2, writer), Body::Released);
        assert_eq!(rw.told(), first_of([3]));
        let next = rw.gets(3, Whole);
        assert!(next > writer && writer > reader);
    });
}

/// An operator takes the lock's end away, and whoever reads is dead. Leases of ours end all the same; a waiter gives the
/// lock an end where only Java's readers are left.
#[test]
fn b46_a_lock_without_an_end_ends() {
    each(|rw| {
        rw.gets(0, Read);
        rw.number(&["PERSIST", "job"]);
        rw.waits(1, Whole);
        for _ in 0..16 {
            rw.pass(2_000);
            rw.beat(1);
        }
        assert_eq!(rw.told(), first_of([1]), "the lease was over");
        let writer = rw.gets(1, Whole);
        rw.number(&["PERSIST", "job"]);
        rw.release(1, writer);
        assert_eq!(rw.number(&["EXISTS", "job"]), 0);

        // Java's reader has a longer lease than others would wait: its timeout key tells.
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, 90_000), None);
        rw.number(&["PERSIST", "job"]);
        rw.waits(2, Whole);
        for waited in (2_000..=90_000).step_by(2_000) {
            rw.pass(2_000);
            assert_eq!(rw.beat(2).0, [Fate::Queued], "after {waited} ms");
        }
        rw.pass(2_000);
        assert!(matches!(&rw.beat(2).0[..], [Fate::Granted(_)]), "it has ended");
    });
}
