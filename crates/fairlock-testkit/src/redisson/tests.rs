use std::thread;

use super::*;
use crate::server::Generation;

const LOCK: &str = "stock";
const T_MS: i64 = 2_000_000_000_000;
const LEASE_MS: i64 = 30_000;
/// Long enough for any machine; no test waits until it has passed.
const SOON: Duration = Duration::from_secs(5);
const NOT_NOW: Duration = Duration::from_millis(30);

/// A server whose clock the test has stopped.
struct Fixture {
    server: Server,
}

impl Fixture {
    /// Runs the test on each generation, with clients that share the server's stopped clock.
    fn each<const CLIENTS: usize>(test: impl Fn(&Self, [JavaClient; CLIENTS])) {
        for generation in Generation::tested() {
            let server = Server::builder(generation).clock_shim(true).start();
            let Some(server) = server else { continue };
            let mut clients = std::array::from_fn(|_| JavaClient::new(&server, 0));
            let fixture = Self { server };
            fixture.at(T_MS, &mut clients.each_mut());
            test(&fixture, clients);
        }
    }

    fn at(&self, now_ms: i64, clients: &mut [&mut JavaClient]) {
        self.server.clock().freeze_at(now_ms * 1000);
        clients.iter_mut().for_each(|client| client.set_now_ms(Some(now_ms)));
    }

    fn queue(&self) -> Vec<String> {
        let reply = self.server.client().call(&["LRANGE", &queue_key(LOCK), "0", "-1"]);
        reply.array().iter().map(|owner| owner.text().to_owned()).collect()
    }

    /// A waiter's score, as milliseconds after [`T_MS`].
    fn score_ms(&self, owner: &str) -> Option<i64> {
        match self.server.client().call(&["ZSCORE", &timeout_key(LOCK), owner]) {
            Value::Nil => None,
            score => Some(score.text().parse::<i64>().unwrap() - T_MS),
        }
    }
}

#[test]
fn ids_are_version_4_uuids() {
    let id = uuid();
    let lengths: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert_eq!(&id[14..15], "4");
    assert!("89ab".contains(&id[19..20]));
    assert_ne!(uuid(), id);
}

#[test]
fn waiters_are_served_in_order_and_scores_follow_the_rules() {
    Fixture::each(|fixture, [mut a, mut b, mut c]| {
        assert_eq!(a.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS), None);
        assert_eq!(b.acquire(LOCK, 1, 5_000, LEASE_MS), Some(30_000));
        assert_eq!(b.acquire(LOCK, 1, 5_000, LEASE_MS), Some(30_000), "now from the lock's TTL");
        // Its base is the distance to the tail's score.
        assert_eq!(c.acquire(LOCK, 7, 2_000, LEASE_MS), Some(35_000));
        assert_eq!(fixture.queue(), [b.owner(1), c.owner(7)]);
        assert_eq!(fixture.score_ms(&b.owner(1)), Some(35_000));
        assert_eq!(fixture.score_ms(&c.owner(7)), Some(37_000));
        assert!(!c.try_acquire(LOCK, 8, LEASE_MS));

        let (mut wakes_b, mut wakes_c) = (b.subscribe(LOCK, 1), c.subscribe(LOCK, 7));
        assert_eq!(a.unlock(LOCK, 1), Some(1));
        assert!(wakes_b.woken_within(SOON));
        assert!(!wakes_c.woken_within(NOT_NOW));
        assert_eq!(c.acquire(LOCK, 7, 2_000, LEASE_MS), Some(0), "free, but not its turn");
        assert_eq!(b.acquire(LOCK, 1, 5_000, LEASE_MS), None);
        assert_eq!(fixture.queue(), [c.owner(7)]);
        assert_eq!(fixture.score_ms(&c.owner(7)), Some(32_000), "moved up by b's allowance");
        assert_eq!(b.unlock(LOCK, 1), Some(1));
        assert!(wakes_c.woken_within(SOON));
        assert_eq!(c.acquire(LOCK, 7, 2_000, LEASE_MS), None);
        assert_eq!(c.unlock(LOCK, 7), Some(1));
        assert_eq!(fixture.server.client().call(&["DBSIZE"]).int(), 0, "nothing is left");
    });
}

#[test]
fn reentry_counts_and_only_the_owner_unlocks() {
    Fixture::each(|fixture, [mut a, mut b]| {
        assert_eq!(a.acquire(LOCK, 1, DEFAULT_WAIT_MS, 10_000), None);
        assert_eq!(a.acquire(LOCK, 1, DEFAULT_WAIT_MS, 20_000), None);
        let mut raw = fixture.server.client();
        assert_eq!(raw.call(&["HGET", LOCK, &a.owner(1)]).text(), "2");
        assert_eq!(raw.call(&["PTTL", LOCK]).int(), 20_000);
        assert_eq!(a.unlock(LOCK, 2), None, "another thread");
        assert_eq!(b.unlock(LOCK, 1), None, "another client");
        assert_eq!(a.unlock(LOCK, 1), Some(0));
        assert!(a.renew(LOCK, 1));
        assert_eq!(raw.call(&["PTTL", LOCK]).int(), WATCHDOG_LEASE_MS);
        assert_eq!(a.unlock(LOCK, 1), Some(1));
        assert!(!a.renew(LOCK, 1));
        assert_eq!(b.unlock(LOCK, 1), Some(1), "a free lock is unlocked by anybody");
    });
}

#[test]
fn who_leaves_moves_up_those_behind_it() {
    Fixture::each(|fixture, [mut a, mut b, mut c]| {
        a.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS);
        b.acquire(LOCK, 1, 5_000, LEASE_MS);
        c.acquire(LOCK, 1, 2_000, LEASE_MS);
        b.leave(LOCK, 1, 5_000);
        assert_eq!(fixture.queue(), [c.owner(1)]);
        assert_eq!(fixture.score_ms(&b.owner(1)), None);
        assert_eq!(fixture.score_ms(&c.owner(1)), Some(32_000));
        b.leave(LOCK, 1, 5_000);
        assert_eq!(fixture.score_ms(&c.owner(1)), Some(32_000), "leaving twice is leaving once");
    });
}

#[test]
fn a_dead_head_blocks_until_its_time_by_the_callers_clock() {
    Fixture::each(|fixture, [mut a, mut dies, mut c, mut ahead]| {
        a.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS);
        dies.acquire(LOCK, 1, 5_000, LEASE_MS);
        c.acquire(LOCK, 1, 2_000, LEASE_MS);
        dies.kill();
        fixture.at(T_MS + 34_999, &mut [&mut a, &mut c]);
        assert_eq!(c.acquire(LOCK, 1, 2_000, LEASE_MS), Some(0), "free, yet not to be had");
        // A client whose clock is ahead drops the dead head, and also a live one.
        ahead.set_now_ms(Some(T_MS + 37_000));
        assert!(ahead.try_acquire(LOCK, 1, LEASE_MS));
        assert_eq!(fixture.queue(), [""; 0]);
    });
}

#[test]
fn force_unlock_wakes_the_head() {
    Fixture::each(|_, [mut a, mut b]| {
        assert!(!a.force_unlock(LOCK));
        a.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS);
        b.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS);
        let mut wakes_b = b.subscribe(LOCK, 1);
        assert!(b.force_unlock(LOCK));
        assert!(wakes_b.woken_within(SOON));
        assert_eq!(b.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS), None);
    });
}

#[test]
fn a_blocking_acquire_is_woken_and_a_timed_one_leaves() {
    for generation in Generation::tested() {
        let Some(server) = Server::start(generation) else { continue };
        let mut a = JavaClient::new(&server, 0);
        let mut b = JavaClient::new(&server, 1_500);
        assert_eq!(a.acquire(LOCK, 1, DEFAULT_WAIT_MS, LEASE_MS), None);
        assert!(!b.acquire_within(LOCK, 1, 30, LEASE_MS, NOT_NOW));
        assert_eq!(server.client().call(&["EXISTS", &queue_key(LOCK)]).int(), 0);

        let waiter =
            thread::spawn(move || b.acquire_within(LOCK, 2, DEFAULT_WAIT_MS, LEASE_MS, SOON));
        let mut raw = server.client();
        while raw.call(&["LLEN", &queue_key(LOCK)]).int() == 0 {
            thread::yield_now();
        }
        assert_eq!(a.unlock(LOCK, 1), Some(1));
        assert!(waiter.join().unwrap());
    }
}

#[test]
fn a_plain_lock_has_no_queue_and_one_channel() {
    Fixture::each(|fixture, [mut a, mut b]| {
        assert_eq!(a.plain_acquire(LOCK, 1, LEASE_MS), None);
        assert_eq!(a.plain_acquire(LOCK, 1, 10_000), None, "re-entry, and a new lease");
        assert_eq!(b.plain_acquire(LOCK, 1, LEASE_MS), Some(10_000));
        assert_eq!(fixture.queue(), [""; 0]);
        let mut wakes = [a.plain_subscribe(LOCK), b.plain_subscribe(LOCK)];
        assert_eq!(b.plain_unlock(LOCK, 1), None);
        assert_eq!(a.plain_unlock(LOCK, 1), Some(0));
        assert!(!wakes[0].told() && !wakes[1].told());
        assert_eq!(a.plain_unlock(LOCK, 1), Some(1));
        assert!(wakes[0].told() && wakes[1].told());
        assert!(!wakes[1].told(), "once");
        assert_eq!(a.plain_unlock(LOCK, 1), None, "nobody unlocks a free plain lock");
        assert_eq!(fixture.server.client().call(&["DBSIZE"]).int(), 0, "nothing is left");
    });
}

#[test]
fn a_thread_is_told_asks_renews_and_gives_up() {
    Fixture::each(|fixture, [a, b, c]| {
        let clock = StoppedClock::at_ms(T_MS);
        let mut clients = [a, b, c];
        clients.iter_mut().for_each(|client| client.set_clock(&clock, 0));
        let at = |now_ms: i64| {
            fixture.server.clock().freeze_at(now_ms * 1000);
            clock.set_ms(now_ms);
        };
        let calls = [
            Call::Lock,
            Call::TryLock { wait_ms: 15_000, lease_ms: LEASE_MS },
            Call::LockFor { lease_ms: 1_000 },
        ];
        let [mut holder, mut timed, mut patient] = {
            let mut calls = calls.into_iter();
            clients.map(|client| Thread::start(client, LOCK, calls.next().unwrap()))
        };
        assert!(holder.holds() && holder.attempts() == 1 && timed.attempts() == 2);
        assert_eq!(fixture.score_ms(&timed.owner()), Some(45_000));
        assert_eq!(fixture.score_ms(&patient.owner()), Some(345_000));
        assert_eq!(timed.state(), State::Sleeps { until_ms: Some(T_MS + 15_000) });
        assert_eq!(patient.state(), State::Sleeps { until_ms: Some(T_MS + 30_000) });

        at(T_MS + 10_000);
        assert_eq!(holder.next_ms(), Some(T_MS + 10_000));
        holder.step();
        assert_eq!(fixture.server.client().call(&["PTTL", LOCK]).int(), WATCHDOG_LEASE_MS);
        timed.step();
        assert_eq!(timed.attempts(), 2, "it sleeps");
        at(T_MS + 15_000);
        assert_eq!(timed.step(), State::GaveUp);
        assert_eq!(fixture.queue(), [patient.owner()]);

        assert_eq!(holder.unlock(), Some(1));
        assert_eq!((holder.state(), holder.next_ms()), (State::Done, None));
        assert_eq!(patient.step(), State::Holds, "it was told");
        assert_eq!(patient.next_ms(), None, "nobody renews a lease");
    });
}

#[test]
fn versions_count_differently() {
    let scores = |version: Version| {
        let server = Server::builder(Generation::Redis70).clock_shim(true).start()?;
        let fixture = Fixture { server };
        let mut clients: [_; 4] =
            std::array::from_fn(|_| JavaClient::new(&fixture.server, 0).version(version));
        fixture.at(T_MS, &mut clients.each_mut());
        let wait_ms = version.default_wait_ms();
        let mut replies = [None; 3];
        for round in 0..2 {
            let [holder, waiters @ ..] = &mut clients;
            if round == 0 {
                holder.acquire(LOCK, 1, wait_ms, LEASE_MS);
            }
            for (waiter, reply) in waiters.iter_mut().zip(&mut replies) {
                *reply = waiter.acquire(LOCK, 1, wait_ms, LEASE_MS);
            }
        }
        let [_, first, waiters @ ..] = &mut clients;
        let before = waiters.each_ref().map(|waiter| fixture.score_ms(&waiter.owner(1)).unwrap());
        first.leave(LOCK, 1, wait_ms);
        let after = waiters.each_ref().map(|waiter| fixture.score_ms(&waiter.owner(1)).unwrap());
        Some((replies.map(Option::unwrap), before, before[0] - after[0]))
    };
    let expected = [
        // Each waiter behind the head has the head's score and one allowance.
        (Version::V3_5, [30_000, 35_000, 35_000], [40_000, 40_000], 0),
        (Version::V3_10, [30_000, 35_000, 35_000], [40_000, 40_000], 5_000),
        (Version::V3_12, [30_000, 35_000, 40_000], [40_000, 45_000], 5_000),
        (Version::V3_31, [30_000, 330_000, 630_000], [630_000, 930_000], 300_000),
        (Version::V4, [30_000, 30_000, 30_000], [630_000, 930_000], 300_000),
    ];
    for (version, replies, before, given_back) in expected {
        let Some(seen) = scores(version) else { return };
        assert_eq!(seen, (replies, before, given_back), "{version:?}");
    }
}

#[test]
fn a_watchdog_renews_until_nothing_is_held() {
    Fixture::each(|fixture, [mut a]| {
        let mut watchdog = Watchdog::default();
        a.plain_acquire(LOCK, 1, WATCHDOG_LEASE_MS);
        watchdog.schedule(LOCK, 1);
        fixture.at(T_MS + 10_000, &mut [&mut a]);
        watchdog.round(&mut a);
        assert_eq!(fixture.server.client().call(&["PTTL", LOCK]).int(), WATCHDOG_LEASE_MS);
        assert!(watchdog.renews(LOCK));
        a.plain_unlock(LOCK, 1);
        watchdog.round(&mut a);
        assert!(!watchdog.renews(LOCK), "forgotten when the reply says that nothing is held");
        watchdog.schedule(LOCK, 1);
        watchdog.cancel(LOCK, 2);
        assert!(watchdog.renews(LOCK));
        watchdog.cancel(LOCK, 1);
        assert!(!watchdog.renews(LOCK));
    });
}

/// A read-write lock: readers share, each hold has a key of its own, and an unlock cuts the lock's life to the longest.
#[test]
fn readers_share_and_writers_exclude() {
    Fixture::each(|fixture, [mut a, mut b]| {
        let mut raw = fixture.server.client();
        let mut left = |key: &str| raw.call(&["PTTL", key]).int();
        assert_eq!(a.read_acquire(LOCK, 1, LEASE_MS), None);
        assert_eq!(b.read_acquire(LOCK, 1, 10_000), None);
        assert_eq!(a.read_acquire(LOCK, 1, 5_000), None);
        assert_eq!(left(LOCK), LEASE_MS, "raised, never lowered");
        let timeouts = [1, 2].map(|hold| left(&reader_timeout_key(LOCK, &a.owner(1), hold)));
        assert_eq!(timeouts, [LEASE_MS, 5_000]);
        assert_eq!(b.write_acquire(LOCK, 2, LEASE_MS), Some(LEASE_MS));
        assert_eq!(a.read_unlock(LOCK, 1), Some(0));
        assert_eq!(a.read_unlock(LOCK, 1), Some(0));
        assert_eq!(left(LOCK), 10_000, "what is left of the other");
        assert_eq!(a.read_unlock(LOCK, 1), None);
        assert!(b.read_renew(LOCK, 1) && !a.read_renew(LOCK, 1));
        assert_eq!(left(LOCK), WATCHDOG_LEASE_MS);
        assert!(!b.write_force_unlock(LOCK));
        assert_eq!(b.read_unlock(LOCK, 1), Some(1));

        assert_eq!(a.write_acquire(LOCK, 1, LEASE_MS), None);
        assert_eq!(a.write_acquire(LOCK, 1, LEASE_MS), None);
        assert_eq!(left(LOCK), 2 * LEASE_MS, "added up");
        assert_eq!(b.read_acquire(LOCK, 1, LEASE_MS), Some(2 * LEASE_MS));
        assert_eq!(a.read_acquire(LOCK, 1, LEASE_MS), None, "its writer may read");
        assert_eq!((a.write_unlock(LOCK, 1), a.write_unlock(LOCK, 1)), (Some(0), Some(1)));
        assert_eq!(b.read_acquire(LOCK, 1, LEASE_MS), None, "it reads on");
        assert!(a.read_force_unlock(LOCK) && !a.read_force_unlock(LOCK));
        assert!(!a.write_renew(LOCK, 1));
    });
}
