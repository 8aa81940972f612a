//! Foreign waiters, who stand in no line and find a lock only when it is free. The names are those of the list of attacks
//! in docs/testing.md.

use super::scene::{Scene, permits};
use Share::{Read, Whole};
use fairlock_core::{Body, Fate, GUEST_MS, LockState, Share, Token};

/// A writer holds, `waiting` others wait, and somebody foreign listens. It is another second than that of the last token.
fn hot(waiting: &[(u64, Share)]) -> (Scene, Token) {
    let mut rw = Scene::rw();
    let token = rw.gets(1, Whole);
    for (n, share) in waiting {
        rw.waits(*n, *share);
    }
    rw.ears.guests = true;
    rw.now += 1_000;
    (rw, token)
}

fn is_free(lock: &LockState) -> bool {
    lock.shares().is_none_or(|shares| shares.holds().is_empty())
}

#[test]
fn b22_a_lock_that_is_handed_on_for_ever_is_left_to_guests_once_in_a_second() {
    let (mut rw, mut token) = hot(&[(2, Whole)]);
    let (mut holder, mut windows, began) = (1, Vec::new(), rw.now);
    for _ in 0..1_000 {
        rw.now += 5;
        assert_eq!(rw.release(holder, token), Body::Released);
        let next = 3 - holder;
        if is_free(&rw.lock) {
            windows.push(rw.now - began);
            assert_eq!(rw.invited(), [next], "the head's client looks when it is over");
            assert!(!rw.tries(9, Whole), "a try passes nobody");
            rw.waits(holder, Whole);
            assert_eq!(rw.beat(next), [Fate::Queued]);
            rw.now += GUEST_MS - 1;
            assert_eq!(rw.beat(next), [Fate::Queued], "not a millisecond less");
            rw.now += 1;
            assert!(matches!(rw.beat(next)[..], [Fate::Granted(_)]));
        } else {
            rw.waits(holder, Whole);
        }
        assert_eq!(rw.told(), [next]);
        token = rw.lock.shares().expect("held").holds().values().next().expect("held").token;
        holder = next;
    }
    let apart: Vec<_> = windows.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(windows.len() >= 5 && windows[0] == 5, "{windows:?}");
    assert!(apart.iter().all(|apart| (960..=1_040).contains(apart)), "{apart:?}");
}

#[test]
fn b22_without_guests_and_beside_semaphores_nothing_is_left_free() {
    let (mut rw, token) = hot(&[(2, Whole), (3, Whole)]);
    rw.ears.guests = false;
    rw.release(1, token);
    assert_eq!((rw.told(), rw.invited()), (vec![2], vec![]));
    assert_eq!(rw.lock.snapshot().record.guest, None, "nor noted");
    let mut pool = Scene::semaphore();
    let token = pool.gets(1, permits(2, 2));
    pool.waits(2, permits(2, 2));
    pool.ears.guests = true;
    pool.now += 1_000;
    pool.release(1, token);
    assert_eq!(pool.told(), [2]);
}

#[test]
fn b22_those_who_read_next_come_in_together_after_it() {
    let (mut rw, token) = hot(&[(2, Read), (3, Read), (4, Whole)]);
    rw.release(1, token);
    assert_eq!((rw.told(), rw.invited()), (vec![], vec![2]));
    rw.now += GUEST_MS;
    rw.beat(2);
    assert_eq!(rw.told(), [2, 3]);
}

#[test]
fn b22_whoever_asks_meanwhile_is_told_when_it_is_over() {
    let (mut rw, token) = hot(&[(2, Whole)]);
    rw.release(1, token);
    rw.now += 10;
    match rw.ask(3, Whole) {
        Body::Queued { retry_ms, .. } => assert_eq!(retry_ms, Some(GUEST_MS - 10)),
        body => panic!("{body:?}"),
    }
}

/// The token is ahead of the clock, so that it cannot tell whose turn it is.
#[test]
fn b22_guests_have_no_turn_while_tokens_are_ahead_of_the_clock() {
    let (mut rw, token) = hot(&[(2, Whole), (3, Whole)]);
    rw.now -= 100_000;
    rw.beat(2);
    rw.release(1, token);
    assert_eq!((rw.told(), rw.invited()), (vec![2], vec![]));
}

/// The message is lost, or the client of the head dies. Any heartbeat after the pause serves the line.
#[test]
fn b23_any_heartbeat_serves_the_line_after_the_pause() {
    let (mut rw, token) = hot(&[(2, Whole), (3, Whole)]);
    rw.release(1, token);
    rw.now += GUEST_MS;
    assert_eq!(rw.beat(3), [Fate::Queued]);
    assert_eq!(rw.told(), [2]);
}

/// The first look came so late that guests seemed to have their turn again, and then the next.
#[test]
fn b23_a_late_look_serves_the_line_too() {
    let (mut rw, token) = hot(&[(2, Whole)]);
    rw.release(1, token);
    rw.now += 2_000;
    assert!(matches!(rw.beat(2)[..], [Fate::Granted(_)]));
}

#[test]
fn b23_a_head_that_leaves_meanwhile_ends_it() {
    let (mut rw, token) = hot(&[(2, Whole), (3, Whole)]);
    rw.release(1, token);
    assert_eq!(rw.leave(2), Body::Left);
    assert_eq!((rw.told(), rw.invited()), (vec![3], vec![2]), "only the one that left was told");
}

#[test]
fn b23_a_clock_that_goes_back_does_not_prolong_it() {
    let (mut rw, token) = hot(&[(2, Whole)]);
    rw.release(1, token);
    rw.now -= 5_000;
    rw.ears.guests = false;
    assert!(matches!(rw.beat(2)[..], [Fate::Granted(_)]));
}

/// A subscription that nobody needs any more.
#[test]
fn b24_a_leaked_subscription_costs_three_percent() {
    let (mut rw, mut token) = hot(&[(2, Whole)]);
    let (mut holder, mut idle, began) = (1, 0, rw.now);
    while rw.now < began + 100_000 {
        rw.now += 1;
        rw.release(holder, token);
        rw.waits(holder, Whole);
        holder = 3 - holder;
        if is_free(&rw.lock) {
            rw.now += GUEST_MS;
            idle += GUEST_MS;
            rw.beat(holder);
        }
        token = rw.grants.pop().expect("granted").token;
    }
    assert!((2_900..=3_100).contains(&idle), "{idle} ms of 100 s");
}
