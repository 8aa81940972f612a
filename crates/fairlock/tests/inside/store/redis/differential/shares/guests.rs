//! Redisson's waiters beside a line of ours that never ends, by Redisson's rules as rewritten in `fairlock_testkit`. The
//! names are those of the list of attacks in docs/testing.md.

use super::super::run::request;
use super::beside_java::{LEASE, Scene};
use super::cases::each;
use Share::{Read, Whole};
use fairlock_core::{Body, Fate, GUEST_MS, Mode, Payload, RequestId, Share, Token};

/// The thread of a Java client.
const T: i64 = 51;
const LEASE_MS: i64 = LEASE as i64;

impl Scene {
    /// The head's requests whose clients were told that the lock is left to Redisson's waiters.
    fn invited(&mut self) -> Vec<RequestId> {
        let requests = self.effects.drain(..).filter_map(|effect| match effect.payload {
            Payload::Guests { request } => Some(request),
            _ => None,
        });
        requests.collect()
    }

    /// The token of a waiter that has got the lock.
    fn served(&mut self, n: u64) -> Token {
        match &self.beat(n).0[..] {
            [Fate::Granted(grant)] => grant.token,
            other => panic!("{other:?}"),
        }
    }
}

/// Java's writers leave no trace, and find the lock free only when ours leave it so: when our line is empty, and once a
/// second while a client of Redisson listens.
#[test]
fn b22_a_java_writer_gets_the_lock_beside_a_line_that_never_ends() {
    each(|rw| {
        let mut token = rw.gets(0, Whole);
        for turn in 1..=8 {
            rw.waits(turn, Whole);
            rw.pass(400);
            rw.release(turn - 1, token);
            assert_eq!(rw.java, [""; 0], "nobody listens");
            token = rw.served(turn);
        }
        let (mut theirs, mut served) = (rw.fixture.java[0].read_write_subscribe("job"), Vec::new());
        for turn in 9..=30 {
            rw.waits(turn, Whole);
            rw.pass(200);
            rw.effects.clear();
            rw.release(turn - 1, token);
            if theirs.told() {
                served.push(turn);
                assert_eq!(rw.invited(), [request(turn, 1)]);
                assert!(matches!(rw.ask(50, Whole, Mode::Try), Body::Busy { .. }));
                assert_eq!(rw.fixture.java[0].write_acquire("job", T, LEASE_MS), None);
                rw.pass(GUEST_MS);
                assert_eq!(rw.beat(turn), (vec![Fate::Queued], Some(LEASE - GUEST_MS + 1), true));
                assert_eq!(rw.fixture.java[0].write_unlock("job", T), Some(1));
                assert!(theirs.told());
            }
            token = rw.served(turn);
        }
        assert_eq!(served, [12, 17, 22, 27], "once in a second");
        rw.java.clear();
        rw.release(30, token);
        assert_eq!(rw.java, ["1"], "and when our line is empty");
    });
}

/// All of Redisson's waiters hear it, whoever of ours has left.
#[test]
fn b22_java_comes_in_between_readers_and_writers_of_ours() {
    each(|rw| {
        let mut theirs = rw.fixture.java[0].read_write_subscribe("job");
        let reading = rw.gets(0, Read);
        rw.waits(1, Whole);
        rw.pass(1_000);
        rw.release(0, reading);
        assert_eq!(rw.java, ["1"]);
        assert!(theirs.told());
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        rw.pass(GUEST_MS);
        assert_eq!(rw.beat(1).0, [Fate::Queued]);
        assert_eq!(rw.fixture.java[0].read_unlock("job", T), Some(1));
        let writing = rw.served(1);
        rw.waits(2, Read);
        rw.waits(3, Read);
        rw.pass(1_000);
        rw.java.clear();
        rw.release(1, writing);
        assert_eq!(rw.java, ["1"]);
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        rw.pass(GUEST_MS);
        rw.served(2);
        rw.served(3);
        assert_eq!(rw.number(&["HLEN", "job"]), 4, "they read beside Java's reader");
    });
}

/// A reader of Java's, which waits for our writer, may come in with those of ours.
#[test]
fn b22_java_hears_that_readers_follow_a_writer() {
    each(|rw| {
        let token = rw.gets(0, Whole);
        rw.waits(1, Read);
        rw.release(0, token);
        assert_eq!(rw.java, ["1"]);
        assert_eq!(rw.fixture.java[0].read_acquire("job", T, LEASE_MS), None);
        assert_eq!(rw.fixture.java[0].read_unlock("job", T), Some(0), "ours read on");
    });
}

/// Whoever was to look at the end of the pause dies, or its message is lost: any heartbeat does it.
#[test]
fn b23_any_heartbeat_serves_the_line_when_nobody_came() {
    each(|rw| {
        rw.fixture.guests(true);
        let token = rw.gets(0, Whole);
        rw.waits(1, Whole);
        rw.waits(2, Whole);
        rw.pass(1_000);
        rw.release(0, token);
        assert_eq!(rw.invited(), [request(1, 1)]);
        assert_eq!(rw.beat(2), (vec![Fate::Queued], Some(GUEST_MS), false));
        rw.pass(GUEST_MS);
        rw.beat(2);
        assert_eq!(rw.told(), [request(1, 1)]);
    });
}

/// The line was lost while the lock was left to Java's waiters, and a reader came, who found nobody before him. When he
/// released, the short way handed the lock to the next one, and the long way left it to Java's waiters still (seed
/// 104515679615858 of the random histories).
#[test]
fn a_grant_ends_the_time_of_javas_waiters() {
    each(|rw| {
        rw.fixture.guests(true);
        let token = rw.gets(0, Whole);
        rw.waits(1, Whole);
        rw.pass(1_000);
        rw.release(0, token);
        assert_eq!(rw.invited(), [request(1, 1)]);
        rw.number(&["DEL", "fairlock_rw_order:{job}"]);
        let token = rw.gets(2, Read);
        rw.waits(3, Whole);
        rw.release(2, token);
        assert_eq!(rw.told(), [request(3, 1)]);
    });
}

/// A subscription that nobody needs any more: the lock is free for 30 ms of each second.
#[test]
fn b24_a_leaked_subscription_costs_three_percent() {
    each(|rw| {
        rw.fixture.guests(true);
        let (mut token, mut idle, mut passed) = (rw.gets(0, Whole), 0, 0);
        for turn in 1..=200 {
            rw.waits(turn, Whole);
            rw.pass(25);
            passed += 25;
            rw.effects.clear();
            rw.release(turn - 1, token);
            if !rw.invited().is_empty() {
                rw.pass(GUEST_MS);
                idle += GUEST_MS;
                passed += GUEST_MS;
            }
            token = rw.served(turn);
        }
        assert!(
            idle * 100 <= passed * 3 + 100 * GUEST_MS && idle >= 4 * GUEST_MS,
            "{idle} of {passed}"
        );
    });
}

/// Without the right to look who listens, everything works as it did without Java.
#[test]
fn without_the_right_to_look_the_lock_is_handed_on() {
    each(|rw| {
        rw.fixture.guests(true);
        rw.fixture.raw.call(&["ACL", "SETUSER", "default", "-pubsub"]);
        let token = rw.gets(0, Whole);
        rw.waits(1, Whole);
        rw.pass(1_000);
        assert_eq!(rw.release(0, token), Body::Released);
        assert_eq!(rw.told(), [request(1, 1)]);
    });
}
