//! Redisson's fair lock, written from the description of its wire protocol (section 6.3 to 6.6), as
//! changes of the facts. `clock` is the caller's own wall clock, by which it judges everybody;
//! `server` is the server's, by which TTLs run out.

use fairlock_core::{OwnerId, Snapshot};

/// `fairLockWaitTimeout`: the allowance of a waiter without a limit of its own.
pub(crate) const WAIT_MS: i64 = 300_000;

/// Both clocks of one call, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) server: u64,
    pub(crate) caller: i64,
}

impl Clocks {
    pub(crate) fn same(server: u64) -> Self {
        Self { server, caller: i64::try_from(server).unwrap() }
    }
}

/// Reply of the blocking acquire script: nil, or how long to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Acquired,
    Sleep(i64),
}

/// Reply of the unlock script: nil, 0 or 1; and who was notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unlocked {
    pub(crate) reply: Option<bool>,
    pub(crate) told: Option<OwnerId>,
}

/// Drops what the server expires by itself before any script runs.
pub(crate) fn expire(k: &mut Snapshot, server: u64) {
    let over = |at: Option<u64>| at.is_some_and(|at| server > at);
    if over(k.hold_expires) {
        k.hold.clear();
    }
    if over(k.token_expires) {
        k.token = None;
        k.token_expires = None;
    }
    if over(k.queue_expires) {
        k.queue.clear();
    }
    if over(k.scores_expires) {
        k.scores.clear();
    }
    if over(k.order_expires) {
        k.order.clear();
    }
    if over(k.state_expires) {
        k.waiters.clear();
        k.record = Default::default();
    }
    if over(k.beats_expires) {
        k.beats.clear();
    }
    k.buried.retain(|_, until| server <= *until);
    empty_keys_go(k);
}

/// A key without content does not exist, and so has no TTL.
pub(crate) fn empty_keys_go(k: &mut Snapshot) {
    for (empty, expires) in [
        (k.hold.is_empty(), &mut k.hold_expires),
        (k.queue.is_empty(), &mut k.queue_expires),
        (k.scores.is_empty(), &mut k.scores_expires),
        (k.order.is_empty(), &mut k.order_expires),
        (k.beats.is_empty(), &mut k.beats_expires),
    ] {
        if empty {
            *expires = None;
        }
    }
    if !k.has_state() {
        k.state_expires = None;
    }
}

fn pttl(k: &Snapshot, server: u64) -> i64 {
    if k.hold.is_empty() {
        return -2;
    }
    k.hold_expires.map_or(-1, |at| i64::try_from(at).unwrap() - i64::try_from(server).unwrap())
}

fn begin(k: &mut Snapshot, clocks: Clocks) {
    expire(k, clocks.server);
    while let Some(head) = k.queue.front().cloned() {
        match k.scores.get(&head) {
            Some(score) if *score <= clocks.caller => {
                k.scores.remove(&head);
                k.queue.pop_front();
            }
            _ => break,
        }
    }
    empty_keys_go(k);
}

fn take(k: &mut Snapshot, clocks: Clocks, me: &OwnerId, wait: i64, lease: u64) {
    k.queue.pop_front();
    k.scores.remove(me);
    for score in k.scores.values_mut() {
        *score -= wait;
    }
    k.hold.insert(me.clone(), 1);
    k.hold_expires = Some(clocks.server + lease);
    empty_keys_go(k);
}

fn may_take(k: &Snapshot, me: &OwnerId) -> bool {
    k.hold.is_empty() && k.queue.front().is_none_or(|head| head == me)
}

fn enter_again(k: &mut Snapshot, clocks: Clocks, me: &OwnerId, lease: u64) -> bool {
    let Some(count) = k.hold.get_mut(me) else { return false };
    *count += 1;
    k.hold_expires = Some(clocks.server + lease);
    true
}

/// `lock()`, and `tryLock` with a time to wait: takes the lock or enters the queue.
pub(crate) fn acquire(
    k: &mut Snapshot,
    clocks: Clocks,
    me: &OwnerId,
    wait: i64,
    lease: u64,
) -> Reply {
    begin(k, clocks);
    if may_take(k, me) {
        take(k, clocks, me, wait, lease);
        return Reply::Acquired;
    }
    if enter_again(k, clocks, me, lease) {
        return Reply::Acquired;
    }
    if k.scores.contains_key(me) {
        return Reply::Sleep(pttl(k, clocks.server).max(0));
    }
    let tail = k.queue.back().filter(|tail| *tail != me).and_then(|tail| k.scores.get(tail));
    let base = tail.map_or_else(|| pttl(k, clocks.server), |score| *score - clocks.caller);
    k.scores.insert(me.clone(), base + wait + clocks.caller);
    k.queue.push_back(me.clone());
    Reply::Sleep(base)
}

/// `tryLock()`: takes the lock or leaves nothing behind.
pub(crate) fn try_acquire(k: &mut Snapshot, clocks: Clocks, me: &OwnerId, lease: u64) -> bool {
    begin(k, clocks);
    if may_take(k, me) {
        take(k, clocks, me, WAIT_MS, lease);
        return true;
    }
    enter_again(k, clocks, me, lease)
}

/// A timed `tryLock` gave up.
pub(crate) fn leave(k: &mut Snapshot, clocks: Clocks, me: &OwnerId, wait: i64) {
    expire(k, clocks.server);
    if let Some(place) = k.queue.iter().position(|member| member == me) {
        for member in k.queue.iter().skip(place + 1) {
            *k.scores.entry(member.clone()).or_insert(0) -= wait;
        }
    }
    k.scores.remove(me);
    k.queue.retain(|member| member != me);
    empty_keys_go(k);
}

/// `unlock()` with the lease of the lock object.
pub(crate) fn unlock(k: &mut Snapshot, clocks: Clocks, me: &OwnerId, lease: u64) -> Unlocked {
    begin(k, clocks);
    let head = k.queue.front().cloned();
    if k.hold.is_empty() {
        return Unlocked { reply: Some(true), told: head };
    }
    let Some(count) = k.hold.get_mut(me) else { return Unlocked { reply: None, told: None } };
    *count -= 1;
    if *count > 0 {
        k.hold_expires = Some(clocks.server + lease);
        return Unlocked { reply: Some(false), told: None };
    }
    k.hold.clear();
    empty_keys_go(k);
    Unlocked { reply: Some(true), told: head }
}

/// `forceUnlock()`: whether there was a holder, and who was notified.
pub(crate) fn force_unlock(k: &mut Snapshot, clocks: Clocks) -> Unlocked {
    begin(k, clocks);
    if k.hold.is_empty() {
        return Unlocked { reply: Some(false), told: None };
    }
    k.hold.clear();
    empty_keys_go(k);
    Unlocked { reply: Some(true), told: k.queue.front().cloned() }
}

mod tests {
    //! The odd states of section 6.7, as seen on a real server.

    use super::*;
    use crate::support::java as owner;

    const NOW: u64 = 1_000_000;
    const LEASE: u64 = 30_000;

    fn at(ms: u64) -> Clocks {
        Clocks::same(NOW + ms)
    }

    fn queue_of(members: &[(u64, Option<i64>)]) -> Snapshot {
        let mut k = Snapshot::default();
        for (number, score) in members {
            k.queue.push_back(owner(*number));
            if let Some(score) = score {
                k.scores.insert(owner(*number), NOW as i64 + score);
            }
        }
        k
    }

    fn score(k: &Snapshot, number: u64) -> i64 {
        k.scores[&owner(number)] - NOW as i64
    }

    #[test]
    fn waiters_get_the_lock_in_order_and_everybody_is_moved_up() {
        let mut k = Snapshot::default();
        assert_eq!(acquire(&mut k, at(0), &owner(1), WAIT_MS, LEASE), Reply::Acquired);
        assert_eq!(acquire(&mut k, at(0), &owner(2), WAIT_MS, LEASE), Reply::Sleep(30_000));
        assert_eq!(acquire(&mut k, at(0), &owner(3), WAIT_MS, LEASE), Reply::Sleep(330_000));
        assert_eq!((score(&k, 2), score(&k, 3)), (330_000, 630_000));
        let unlocked = unlock(&mut k, at(1), &owner(1), LEASE);
        assert_eq!(unlocked, Unlocked { reply: Some(true), told: Some(owner(2)) });
        assert_eq!(acquire(&mut k, at(2), &owner(3), WAIT_MS, LEASE), Reply::Sleep(0));
        assert_eq!(acquire(&mut k, at(2), &owner(2), WAIT_MS, LEASE), Reply::Acquired);
        assert_eq!(score(&k, 3), 330_000);
        assert_eq!(k.queue, [owner(3)]);
    }

    #[test]
    fn a_dead_head_with_a_future_score_blocks_everybody_until_it_has_passed() {
        let mut k = queue_of(&[(1, Some(5_000)), (2, Some(10_000))]);
        assert_eq!(acquire(&mut k, at(4_999), &owner(2), 10, LEASE), Reply::Sleep(0));
        assert_eq!(acquire(&mut k, at(5_000), &owner(2), 10, LEASE), Reply::Acquired);
    }

    #[test]
    fn a_head_without_a_score_is_never_dropped_and_can_take_the_free_lock_itself() {
        let mut k = queue_of(&[(1, None), (2, Some(10))]);
        assert_eq!(acquire(&mut k, at(9_000_000), &owner(2), 10, LEASE), Reply::Sleep(0));
        assert_eq!(acquire(&mut k, at(9_000_000), &owner(1), 10, LEASE), Reply::Acquired);
    }

    #[test]
    fn a_head_without_a_score_that_polls_a_held_lock_is_listed_twice() {
        let mut k = queue_of(&[(1, None), (2, Some(10))]);
        k.hold.insert(owner(9), 1);
        k.hold_expires = Some(NOW + LEASE);
        acquire(&mut k, at(0), &owner(1), 10, LEASE);
        assert_eq!(k.queue, [owner(1), owner(2), owner(1)]);
        assert_eq!(score(&k, 1), 20);
    }

    #[test]
    fn whoever_leaves_gives_those_behind_without_a_score_a_negative_one() {
        let mut k = queue_of(&[(1, Some(5)), (2, None), (3, Some(50))]);
        leave(&mut k, at(0), &owner(1), 7);
        assert_eq!(k.scores[&owner(2)], -7);
        assert_eq!(score(&k, 3), 43);
        leave(&mut k, at(0), &owner(1), 7);
        assert_eq!(score(&k, 3), 43);
    }

    #[test]
    fn a_tail_without_a_score_makes_the_next_one_start_from_the_ttl() {
        let mut k = queue_of(&[(1, None)]);
        assert_eq!(acquire(&mut k, at(0), &owner(2), 10, LEASE), Reply::Sleep(-2));
        assert_eq!(score(&k, 2), 8);
    }

    #[test]
    fn a_waiter_with_a_score_alone_believes_it_is_queued_until_the_queue_is_empty() {
        let mut k = queue_of(&[(1, Some(50))]);
        k.scores.insert(owner(2), NOW as i64 + 50);
        assert_eq!(acquire(&mut k, at(0), &owner(2), 10, LEASE), Reply::Sleep(0));
        assert_eq!(k.queue, [owner(1)]);
        leave(&mut k, at(0), &owner(1), 10);
        assert_eq!(acquire(&mut k, at(0), &owner(2), 10, LEASE), Reply::Acquired);
    }

    #[test]
    fn an_acquirer_that_subtracts_more_than_it_added_pushes_the_others_into_the_past() {
        let mut k = queue_of(&[(1, Some(10_000)), (2, Some(32_000))]);
        assert!(try_acquire(&mut k, at(0), &owner(1), LEASE));
        assert_eq!(score(&k, 2), -268_000);
        let unlocked = unlock(&mut k, at(1), &owner(1), LEASE);
        assert_eq!(unlocked, Unlocked { reply: Some(true), told: None });
        assert!(k.queue.is_empty());
    }

    #[test]
    fn a_hold_set_to_zero_becomes_one_for_its_owner() {
        let mut k = Snapshot::default();
        k.hold.insert(owner(1), 0);
        k.hold_expires = Some(NOW + 10);
        assert_eq!(acquire(&mut k, at(0), &owner(2), 10, LEASE), Reply::Sleep(10));
        assert_eq!(acquire(&mut k, at(0), &owner(1), 10, LEASE), Reply::Acquired);
        assert_eq!(k.hold[&owner(1)], 1);
    }

    #[test]
    fn unlocking_a_free_lock_succeeds_for_anybody_and_tells_the_head() {
        let mut k = queue_of(&[(1, Some(50))]);
        let unlocked = unlock(&mut k, at(0), &owner(9), LEASE);
        assert_eq!(unlocked, Unlocked { reply: Some(true), told: Some(owner(1)) });
        let forced = force_unlock(&mut k, at(0));
        assert_eq!(forced, Unlocked { reply: Some(false), told: None });
    }

    #[test]
    fn a_clock_that_is_ahead_drops_living_heads() {
        let mut k = queue_of(&[(1, Some(5_000)), (2, Some(9_000))]);
        let fast = Clocks { server: NOW, caller: NOW as i64 + 6_000 };
        assert_eq!(acquire(&mut k, fast, &owner(2), 10, LEASE), Reply::Acquired);
    }

    #[test]
    fn entering_again_counts_and_a_partial_unlock_sets_the_ttl() {
        let mut k = Snapshot::default();
        acquire(&mut k, at(0), &owner(1), 10, LEASE);
        acquire(&mut k, at(5), &owner(1), 10, LEASE);
        assert_eq!((k.hold[&owner(1)], k.hold_expires), (2, Some(NOW + 5 + LEASE)));
        assert_eq!(unlock(&mut k, at(6), &owner(1), 100).reply, Some(false));
        assert_eq!(k.hold_expires, Some(NOW + 106));
        assert_eq!(unlock(&mut k, at(7), &owner(2), 100).reply, None);
        assert_eq!(unlock(&mut k, at(200), &owner(1), 100).reply, Some(true));
    }
}
