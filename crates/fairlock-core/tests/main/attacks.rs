//! Interleavings that broke earlier drafts, each under its own name, and those found later (a25 and
//! up). w, x and y are waiters of ours, J is a Java thread. Where a rule of the client prevents the
//! failure, the same scene runs again with that rule broken and must fail.
//!
//! Not here, because they need a server or the async client: a03 (OOM, NUMSUB), a13 (resent
//! release), a14 (WAIT), a18 (100 000 waiters), a19 (renewal batches), a20 (OOM heartbeats), a23
//! (torn connection). The client's half of a04, a10 and a21 is tested with the client.

use crate::client::Flaw;
use crate::java::{self, Clocks};
use crate::lab::{LEASE, T0, lab, wanted};
use crate::sim::Sim;
use crate::support::{client, java as java_owner, ours, request};
use fairlock_core::{Acquire, Body, Grant, Kind, Op, TOKEN_TTL_MS};

type Scene = fn(Flaw) -> Result<(), String>;

/// The scene is safe, and fails with the rule broken.
fn answered_by(scene: Scene, rule: Flaw) {
    assert_eq!(scene(Flaw::None), Ok(()));
    scene(rule).expect_err("the scene must fail without the rule");
}

/// x (client 1) holds the lock; w (2) and y (3) wait and have just sent a heartbeat.
fn held_and_waited_for(flaw: Flaw) -> Sim {
    let mut sim = lab(3, flaw);
    assert!(matches!(sim.start(0), Body::Granted { .. }));
    for i in [1, 2] {
        assert!(matches!(sim.start(i), Body::Queued { .. }));
    }
    sim
}

/// The grant of w is delayed; meanwhile a later call on the same node is confirmed. A guard counted
/// from the sending of that call would outlast the server's TTL.
#[test]
fn a01_a_delayed_grant_counts_from_the_grant() {
    answered_by(
        |flaw| {
            let mut sim = held_and_waited_for(flaw);
            sim.release(0);
            sim.pass(2_900);
            // A call of w about another lock was sent, executed and answered.
            let now = sim.now;
            sim.clients[1].heard = Some((now, now));
            sim.pass(100);
            sim.read_all();
            sim.check()?;
            sim.pass(3_001);
            sim.beat(2);
            sim.read_all();
            assert_eq!(sim.holding_client(), Some(client(3)));
            sim.check()
        },
        Flaw::MessageFromLastCall,
    );
}

/// w sleeps through its grant, returns to the queue by its heartbeat, and only then reads the old
/// message, which must not create a guard.
#[test]
fn a02_an_old_message_after_the_return_means_nothing() {
    answered_by(
        |flaw| {
            let mut sim = held_and_waited_for(flaw);
            sim.release(0);
            sim.pass(6_100);
            sim.beat(2);
            assert_eq!(sim.holding_client(), Some(client(3)));
            let Body::Beaten { queued, held, .. } = sim.beat(1) else { panic!("beaten") };
            assert_eq!((queued, held), (vec![false], None));
            sim.hear_all();
            sim.read(0);
            sim.check()?;
            sim.read_all();
            sim.check()
        },
        Flaw::OldMessagesCount,
    );
}

/// One owner, two requests, one entry: the request that gives up must not release the hold that the
/// other one got, however late its Leave arrives.
#[test]
fn a04_leaving_frees_only_what_the_same_request_got() {
    let mut sim = held_and_waited_for(Flaw::None);
    let owner = ours(9, 1);
    let shared = |number| Acquire { shared_owner: true, ..wanted(&owner, number, T0) };
    sim.op(Op::Acquire(shared(1)));
    sim.op(Op::Acquire(shared(2)));
    sim.give_up(1);
    sim.give_up(2);
    sim.release(0);
    assert_eq!(sim.holder(), Some(&owner));
    let leave = |number, bury| Op::Leave {
        kind: Kind::Fair,
        owner: owner.clone(),
        request: request(number),
        bury,
        shared_owner: true,
    };
    assert_eq!(sim.op(leave(1, true)).body, Body::Nothing);
    assert_eq!(sim.op(leave(1, false)).body, Body::Nothing);
    assert_eq!(sim.holder(), Some(&owner));
    assert_eq!(sim.op(leave(2, false)).body, Body::Freed);
}

/// A copy of an acquisition is stuck; the request is given up on another connection, and then the
/// copy arrives. It must not take the lock for a request that no longer exists.
#[test]
fn a05_a_late_copy_of_a_request_that_was_given_up_takes_nothing() {
    answered_by(
        |flaw| {
            let mut sim = lab(1, flaw);
            let stuck = sim.clients[0].start(T0);
            sim.give_up(0);
            sim.pass(1_000);
            let answer = sim.call(stuck);
            assert!(flaw != Flaw::None || answer.body == Body::Buried);
            sim.check()
        },
        Flaw::NoBury,
    );
}

/// A heartbeat is stuck while its waiter leaves. It must not restore the entry.
#[test]
fn a05_a_late_heartbeat_creates_no_entry() {
    let mut sim = held_and_waited_for(Flaw::None);
    let now = sim.now;
    let stuck = sim.clients[1].beat(now).remove(0);
    sim.give_up(1);
    let Body::Beaten { queued, .. } = sim.call(stuck).body else { panic!("beaten") };
    assert_eq!(queued, [false]);
    assert_eq!(sim.keys().queue, [ours(3, 1)]);
}

/// Re-entry 1 -> 2 is sent twice; the second copy arrives after the inner release 2 -> 1. It must
/// not raise the count to 2 again.
#[test]
fn a05_a_late_copy_of_a_re_entry_is_stale() {
    let mut sim = lab(1, Flaw::None);
    sim.start(0);
    let (owner, token) = (ours(1, 1), sim.token());
    let enter = Op::Reenter { owner: owner.clone(), token, count: 2, change: 1 };
    let inner = Op::Release { kind: Kind::Fair, owner: owner.clone(), token, keep: 1, change: 2 };
    assert_eq!(sim.op(enter.clone()).body, Body::StillHeld { count: 2 });
    assert_eq!(sim.op(enter.clone()).body, Body::StillHeld { count: 2 });
    assert_eq!(sim.op(inner).body, Body::StillHeld { count: 1 });
    assert_eq!(sim.op(enter).body, Body::Stale);
    assert_eq!(sim.keys().hold[&owner], 1);
}

/// The last waiter leaves, then J enters behind it. If the entry were marked by score 0 instead of
/// being removed, J's own score would be one of 1970, and J would be dropped unheard.
#[test]
fn a06_leaving_spoils_no_score_of_java() {
    let score_of_java = |tombstone: bool| {
        let mut sim = held_and_waited_for(Flaw::None);
        if tombstone {
            sim.tamper(|k| k.scores.extend([(ours(3, 1), 0)]));
        } else {
            sim.give_up(2);
        }
        sim.java_acquires();
        sim.keys().scores[&java_owner(1)] - sim.now as i64
    };
    assert!(score_of_java(false) >= java::WAIT_MS);
    assert!(score_of_java(true) < 0);
}

/// An owner leaves and enters again at once. It is in the queue once, at the end.
#[test]
fn a07_an_owner_that_returns_after_leaving_is_last_and_listed_once() {
    let mut sim = held_and_waited_for(Flaw::None);
    let owner = ours(2, 1);
    sim.give_up(1);
    let again = Acquire { shared_owner: true, ..wanted(&owner, 7, sim.now) };
    assert!(matches!(sim.op(Op::Acquire(again)).body, Body::Queued { .. }));
    assert_eq!(sim.keys().queue, [ours(3, 1), owner]);
    assert_eq!(sim.keys().scores.len(), 2);
}

/// For an hour, a queue of J and our waiters never becomes empty. Scores must not run ahead of time
/// without bound, and our entries must survive the amount that each Java acquire subtracts.
#[test]
fn a08_scores_neither_drift_nor_fall_behind() {
    let mut sim = lab(2, Flaw::None);
    sim.start(0);
    for _ in 0..600 {
        sim.subscribe_java(true);
        sim.java_acquires();
        sim.start(1);
        sim.pass_beating(2_000, &[1]);
        sim.release(0);
        assert_eq!(sim.java_acquires(), java::Reply::Acquired);
        sim.start(0);
        sim.pass_beating(2_000, &[1, 0]);
        sim.java_unlocks();
        sim.beat(1);
        sim.read_all();
        assert!(sim.clients[1].guard(sim.now).is_some());
        sim.pass_beating(2_000, &[0]);
        sim.release(1);
        sim.read_all();
        assert!(sim.clients[0].guard(sim.now).is_some());
        let ahead = sim.keys().scores.values().map(|score| score - sim.now as i64);
        assert!(ahead.clone().all(|ms| ms > 0 && ms <= 4 * java::WAIT_MS), "{ahead:?}");
    }
    assert!(sim.now - T0 >= 3_600_000);
}

/// A thousand dead waiters stand before a live one. Each call looks at 64 and answers MORE, and the
/// nudges follow at once: no time passes before the live one has the lock.
#[test]
fn a09_a_thousand_dead_waiters_cost_no_time() {
    let mut sim = lab(1, Flaw::None);
    let holder = ours(5_000, 1);
    sim.op(Op::Acquire(wanted(&holder, 5_000, T0)));
    for number in 2..1_002 {
        sim.op(Op::Acquire(wanted(&ours(number, 1), number, T0)));
    }
    sim.start(0);
    sim.pass_beating(10_000, &[0]);
    let token = sim.token();
    let release = Op::Release { kind: Kind::Fair, owner: holder, token, keep: 0, change: 0 };
    let mut answer = sim.op(release);
    let mut removed = answer.removed;
    let mut nudges = 0;
    while answer.more {
        answer = sim.op(Op::Nudge);
        removed += answer.removed;
        nudges += 1;
    }
    assert_eq!(removed, 1_000);
    assert_eq!(sim.holding_client(), Some(client(1)));
    assert_eq!(nudges, 1_000 / 64);
}

/// Sixty-five dead Java heads stand before one of our waiters. Passing over the first one leads to
/// ours, not past each of the others: the first call after the patience grants it the lock.
#[test]
fn a09_passed_over_java_heads_are_not_walked_over() {
    let mut sim = lab(2, Flaw::None);
    sim.start(0);
    for number in 10..75 {
        let clocks = Clocks::same(sim.now);
        let id = java_owner(number);
        sim.tamper(|k| {
            java::acquire(k, clocks, &id, java::WAIT_MS, LEASE);
        });
    }
    sim.start(1);
    sim.release(0);
    sim.pass_beating(8_000, &[1]);
    assert_eq!(sim.holding_client(), Some(client(2)));
}

/// J was notified and is about to subscribe (up to 7.5 s) while one of our clients sends thousands
/// of heartbeats. J is not overtaken within the patience, however many calls there are.
#[test]
fn a10_a_java_head_keeps_its_patience_whatever_the_traffic() {
    let mut sim = lab(2, Flaw::None);
    sim.start(0);
    sim.java_acquires();
    sim.start(1);
    sim.release(0);
    for _ in 0..7_500 {
        sim.pass(1);
        sim.beat(1);
        assert_eq!(sim.holder(), None);
    }
    assert_eq!(sim.java_acquires(), java::Reply::Acquired);
}

/// The server sleeps for ten seconds, then reads a release before any heartbeat. No waiter is
/// judged dead because of it.
#[test]
fn a11_a_sleep_of_the_server_removes_nobody() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.pass(10_000);
    sim.release(0);
    assert_eq!(sim.keys().record.removed, None);
    assert_eq!(sim.holding_client(), Some(client(2)));
}

/// The clock is set back by an hour under dead waiters. They do not live an hour longer.
#[test]
fn a11_a_clock_set_back_keeps_no_dead_waiter_alive() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.now -= 3_600_000;
    // The holder's next renewal brings its TTL into the present.
    let (owner, token) = (ours(1, 1), sim.token());
    sim.op(Op::Renew { kind: Kind::Fair, owner, token, ttl_ms: LEASE });
    sim.beat(2);
    sim.release(0);
    // w gets one claim, because its last heartbeat was moved to the present.
    assert_eq!(sim.holding_client(), Some(client(2)));
    sim.pass_beating(8_100, &[2]);
    assert_eq!(sim.holding_client(), Some(client(3)));
}

/// Copy 1 of an acquisition takes the lock at 0.0 and its reply is lost; copy 2, sent at 3.0, finds
/// that its owner holds the lock. The guard must count with the TTL that is left.
#[test]
fn a12_a_second_copy_gets_what_is_left_of_the_ttl() {
    answered_by(
        |flaw| {
            let mut sim = lab(2, flaw);
            let first = sim.clients[0].start(T0);
            sim.call_unheard(first);
            sim.pass(3_000);
            let now = sim.now;
            let second = sim.clients[0].ask_again(now);
            sim.call(second);
            sim.start(1);
            sim.pass(LEASE - 3_000 + 1);
            sim.beat(1);
            sim.read_all();
            assert_eq!(sim.holding_client(), Some(client(2)));
            sim.check()
        },
        Flaw::ReplyWholeLease,
    );
}

/// w sends its last heartbeat and hangs; it is granted the lock 5.9 s later. Its claim lasts one
/// heartbeat, not another D, and y is served right after it.
#[test]
fn a15_a_claim_lasts_as_long_as_the_last_beat_is_good_for() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.pass_beating(5_900, &[2]);
    sim.release(0);
    assert_eq!(sim.keys().hold_expires, Some(sim.now + 2_000));
    sim.pass(2_001);
    sim.beat(2);
    assert_eq!(sim.holding_client(), Some(client(3)));
}

/// All inboxes are gone at once. The first waiter to return gets one grant, not everybody's; the
/// others return to their places before those who came later.
#[test]
fn a16_lost_inboxes_cost_no_places() {
    let mut sim = lab(5, Flaw::None);
    for i in 0..5 {
        sim.start(i);
        sim.pass(1);
    }
    for number in 1..=5 {
        sim.deafen(client(number), true);
    }
    sim.release(0);
    assert_eq!((sim.holder(), sim.keys().queue.len()), (None, 0));
    // The fourth returns first.
    for i in [3, 1, 2, 4] {
        sim.deafen(client(i as u64 + 1), false);
        sim.pass(100);
        sim.beat(i);
        sim.hear_all();
    }
    let mut order = Vec::new();
    while let Some(place) = (0..5).find(|i| sim.clients[*i].guard(sim.now).is_some()) {
        order.push(place);
        sim.release(place);
        sim.read_all();
    }
    assert_eq!(order, [3, 1, 2, 4]);
}

/// The holder's lease ends. Replies say when, and a heartbeat right after it hands the lock on.
#[test]
fn a17_the_end_of_a_lease_is_announced() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.pass_beating(29_000, &[1, 2]);
    let Body::Beaten { retry_ms, .. } = sim.beat(1) else { panic!("beaten") };
    assert_eq!(retry_ms, Some(1_001));
    sim.pass(1_001);
    let Body::Beaten { held, .. } = sim.beat(1) else { panic!("beaten") };
    assert!(held.is_some_and(|grant| grant.ttl_ms == 6_000));
}

/// The queue keys have a TTL of ours when J enters. Our next call removes it from both, and J's
/// place outlives every TTL.
#[test]
fn a21_a_java_place_does_not_inherit_our_ttl() {
    let mut sim = held_and_waited_for(Flaw::None);
    assert!(sim.keys().queue_expires.is_some());
    sim.java_acquires();
    sim.beat(1);
    assert_eq!((sim.keys().queue_expires, sim.keys().scores_expires), (None, None));
    sim.give_up(1);
    sim.give_up(2);
    assert_eq!((sim.keys().queue_expires, sim.keys().scores_expires), (None, None));
    assert_eq!(sim.keys().queue, [java_owner(1)]);
}

/// A Java token series begins, or continues, on a token key of ours. While a foreign waiter is
/// queued the key gets no TTL; and after a loss of the key the next token is still larger.
#[test]
fn a22_tokens_do_not_fall() {
    let mut sim = held_and_waited_for(Flaw::None);
    assert_eq!(sim.keys().token_expires, Some(T0 + TOKEN_TTL_MS));
    sim.java_acquires();
    sim.release(0);
    sim.read_all();
    assert_eq!(sim.keys().token_expires, None);
    let last = sim.token();
    sim.tamper(|k| k.token = None);
    sim.pass(1);
    sim.release(1);
    assert!(sim.token() >= last, "a release brings the series back");
    sim.read_all();
    sim.tamper(|k| k.token = None);
    sim.pass(1);
    sim.release(2);
    sim.subscribe_java(true);
    sim.java_leaves();
    sim.start(0);
    assert!(sim.token() > last, "time carries the series");
}

/// The server restarts empty. The second waiter notices first and returns; the lock stays free for
/// a heartbeat, in which the first one returns too and is served first.
#[test]
fn a24_after_a_loss_of_state_waiters_gather_in_order() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.tamper(|k| *k = Default::default());
    sim.pass(500);
    sim.beat(2);
    sim.hear_all();
    assert_eq!((sim.holder(), sim.keys().queue.len()), (None, 1));
    sim.pass(1_000);
    sim.beat(1);
    sim.hear_all();
    assert_eq!(sim.keys().queue, [ours(2, 1), ours(3, 1)]);
    sim.pass(1_000);
    sim.beat(2);
    assert_eq!(sim.holding_client(), Some(client(2)));
}

/// w has no inbox, and its heartbeat runs exactly at its turn. Its own call used to remove it and
/// to answer that it is queued.
#[test]
fn a25_a_heartbeat_needs_no_inbox() {
    let mut sim = lab(2, Flaw::None);
    sim.start(0);
    sim.deafen(client(2), true);
    sim.start(1);
    sim.pass(LEASE + 1);
    let Body::Beaten { held, queued, .. } = sim.beat(1) else { panic!("beaten") };
    assert!(held.is_some() && queued == [true]);
    assert!(sim.clients[1].guard(sim.now).is_some());
}

/// y has no inbox and acquires when only a dead waiter stands before the free lock. Its own call
/// used to remove it and to answer that it is queued, with order 0, which overtakes everybody.
#[test]
fn a25_an_acquisition_needs_no_inbox() {
    let mut sim = lab(3, Flaw::None);
    sim.start(0);
    sim.start(1);
    // Some client is heard shortly before the lease is over: that is no silence, so w is dead then.
    sim.pass(LEASE - 1_000);
    sim.op(Op::Beat { client: client(7), waiters: Vec::new() });
    sim.pass(1_001);
    sim.tamper(|k| k.record.amnesty = None);
    sim.deafen(client(3), true);
    let body = sim.start(2);
    assert!(matches!(body, Body::Granted { ttl_ms: LEASE, .. }), "{body:?}");
}

/// J's clock is ahead: it drops w, x and y. w returns first, then y, whose predecessor x is still
/// missing: y used to be put before w.
#[test]
fn a26_a_place_is_found_behind_whoever_is_still_there() {
    let mut sim = lab(4, Flaw::None);
    for i in 0..4 {
        sim.start(i);
        sim.pass(1);
    }
    sim.java.ahead = 10_000_000;
    sim.java_acquires();
    // Enough Java waiters that the number of members does not reveal what is missing.
    for number in 2..5 {
        let (clocks, id) = (Clocks::same(sim.now), java_owner(number));
        sim.tamper(|k| {
            java::acquire(k, clocks, &id, java::WAIT_MS, LEASE);
        });
    }
    assert!(sim.keys().queue.iter().all(|member| !member.is_ours()));
    for i in [1, 3, 2] {
        sim.beat(i);
        sim.hear_all();
    }
    let ours_in_line: Vec<_> = sim.keys().queue.iter().filter(|m| m.is_ours()).cloned().collect();
    assert_eq!(ours_in_line, [ours(2, 1), ours(3, 1), ours(4, 1)]);
}

/// J's clock is ahead: it drops w from list and scores, but not w's record. Another copy of w's
/// request then takes the lock, past the empty queue, and w gives up. Leave used to find the record
/// first and answer "left", and the hold stayed behind.
#[test]
fn a27_leaving_frees_a_hold_beside_a_record_without_entry() {
    let mut sim = lab(2, Flaw::None);
    sim.start(0);
    let (owner, number) = (ours(9, 1), 9);
    sim.op(Op::Acquire(wanted(&owner, number, T0)));
    sim.java.ahead = 10_000_000;
    sim.pass(LEASE + 1);
    sim.java_unlocks();
    assert!(matches!(
        sim.op(Op::Acquire(wanted(&owner, number, sim.now))).body,
        Body::Granted { .. }
    ));
    let request = request(number);
    let leave = Op::Leave { kind: Kind::Fair, owner, request, bury: false, shared_owner: false };
    assert_eq!(sim.op(leave).body, Body::Freed);
    assert_eq!(sim.holder(), None);
}

/// The clock is set back by an hour while waiters gather after a loss of state, while an orphan is
/// given time to return, or during an amnesty. The pause used to last an hour, with the lock free.
#[test]
fn a28_a_pause_does_not_grow_when_the_clock_is_set_back() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.tamper(|k| *k = Default::default());
    sim.beat(1);
    sim.hear_all();
    sim.now -= 3_600_000;
    sim.beat(1);
    assert_eq!(sim.holding_client(), Some(client(2)), "gathering");

    let mut sim = held_and_waited_for(Flaw::None);
    sim.tamper(|k| k.order.clear());
    sim.release(0);
    sim.now -= 3_600_000;
    sim.op(Op::Nudge);
    sim.pass(6_000);
    sim.op(Op::Nudge);
    assert!(!sim.keys().queue.contains(&ours(2, 1)), "an orphan");

    let mut sim = held_and_waited_for(Flaw::None);
    sim.pass(10_000);
    sim.op(Op::Beat { client: client(7), waiters: Vec::new() });
    assert!(sim.keys().record.amnesty.is_some());
    sim.now -= 3_600_000;
    sim.release(0);
    sim.tamper(|k| k.hold.clear());
    sim.op(Op::Nudge);
    sim.tamper(|k| k.hold.clear());
    sim.pass_beating(6_001, &[]);
    sim.pass(6_001);
    sim.op(Op::Beat { client: client(7), waiters: Vec::new() });
    assert_eq!(sim.holder(), None, "the dead are dead");
}

/// w got the lock, noticed too late and returned under a new request of the same owner. The Leave
/// of the former request must wait until the guard has ended: the two share an owner, and the new
/// request may have been answered with the former one's hold. (Found by the exploration, which
/// detects the broken rule too.)
#[test]
fn a29_a_former_request_is_left_when_the_guard_has_ended() {
    answered_by(
        |flaw| {
            let mut sim = held_and_waited_for(flaw);
            let now = sim.now;
            let slow = sim.clients[1].beat(now).remove(0);
            sim.pass(7_000);
            sim.release(0);
            sim.pass(1_000);
            // Executed when w already holds the lock; the TTL in the answer counts from T0.
            sim.calls.push(slow);
            sim.execute(0);
            sim.hear(0);
            sim.hear_all();
            assert!(sim.clients[1].guard(sim.now).is_some());
            sim.check()
        },
        Flaw::LeaveFormerAtOnce,
    );
}

/// A copy of w's acquisition is executed after the hold that another copy got is over: w has a
/// second hold that nobody knows of. A client that ends a guard while a copy of its request is
/// unanswered buries the request. (Found by the exploration.)
#[test]
fn a30_a_second_hold_of_a_request_is_left_with_the_first() {
    answered_by(
        |flaw| {
            let mut sim = lab(1, flaw);
            let now = sim.now;
            let mut first = sim.clients[0].start(now);
            let second = sim.clients[0].ask_again(now);
            let late = sim.clients[0].current().expect("it waits").owner.clone();
            sim.call(second);
            sim.pass(LEASE + 1);
            if let Op::Acquire(a) = &mut first.op {
                a.not_after_ms = sim.now;
            }
            sim.call(first);
            assert_eq!(sim.holder(), Some(&late));
            sim.release(0);
            sim.check()
        },
        Flaw::NoBury,
    );
}

/// Twenty dead waiters lose their records; a live one comes behind them. The orphans used to take
/// D one after the other: two minutes. They all lost their records together, so D passes once.
#[test]
fn a31_many_orphans_cost_no_more_than_one() {
    let mut sim = lab(1, Flaw::None);
    for number in 2..22 {
        sim.op(Op::Acquire(wanted(&ours(number, 1), number, T0)));
    }
    sim.pass(100);
    sim.tamper(|k| {
        k.hold.clear();
        k.order.clear();
        k.waiters.clear();
        k.record = Default::default();
        k.beats.clear();
    });
    sim.start(0);
    sim.pass_beating(8_000, &[0]);
    assert_eq!(sim.holding_client(), Some(client(1)));
}

/// All clients are silent for longer than the registry lives, and the queue outlives it. y's
/// heartbeat meets w's orphaned entry, and y returns first. The note about the orphan used to hide
/// that the registry was gone, so nobody gathered, and y was served before w.
#[test]
fn a32_an_orphan_does_not_hide_that_the_registry_is_gone() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.pass(61_000);
    sim.beat(2);
    sim.hear_all();
    assert_eq!(sim.holder(), None);
    sim.pass(1_000);
    sim.beat(1);
    sim.hear_all();
    sim.pass(1_100);
    sim.beat(2);
    sim.hear_all();
    assert_eq!(sim.holding_client(), Some(client(2)));
}

/// A Leave is sent twice, and between the copies the same owner waits and is served under a new
/// request. The second copy must not affect it.
#[test]
fn a33_a_second_leave_does_not_touch_the_next_request() {
    let mut sim = held_and_waited_for(Flaw::None);
    let leave = sim.clients[1].give_up(T0).pop().unwrap();
    sim.call(leave.clone());
    let again = Acquire { shared_owner: true, ..wanted(&ours(2, 1), 77, sim.now) };
    sim.op(Op::Acquire(again));
    sim.give_up(2);
    sim.release(0);
    assert_eq!(sim.holding_client(), Some(client(2)));
    assert_eq!(sim.op(leave.op).body, Body::Nothing);
    assert_eq!(sim.holding_client(), Some(client(2)));
}

/// The reply to a heartbeat contains a grant whose message was lost.
#[test]
fn a34_a_lost_grant_is_found_by_the_next_heartbeat() {
    let mut sim = held_and_waited_for(Flaw::None);
    sim.release(0);
    sim.messages.clear();
    sim.pass(2_000);
    let Body::Beaten { held: Some(Grant { ttl_ms, .. }), .. } = sim.beat(1) else {
        panic!("the grant is not told")
    };
    assert_eq!(ttl_ms, 4_000);
    assert!(sim.clients[1].guard(sim.now).is_some());
    assert_eq!(sim.check(), Ok(()));
}

/// A hold of ten minutes is re-entered; a waiter comes, sends a heartbeat and leaves, and the
/// heartbeat sets the record's TTL to a minute. A later copy of the re-entry used to find no change
/// number to compare with, and counted once more.
#[test]
fn a35_the_number_of_a_change_lives_as_long_as_the_hold() {
    let mut sim = lab(1, Flaw::None);
    let owner = ours(9, 1);
    sim.op(Op::Acquire(Acquire { lease_ms: 600_000, ..wanted(&owner, 9, T0) }));
    let token = sim.token();
    let enter = Op::Reenter { owner: owner.clone(), token, count: 2, change: 1 };
    let inner = Op::Release { kind: Kind::Fair, owner: owner.clone(), token, keep: 1, change: 2 };
    sim.op(enter.clone());
    sim.op(inner);
    sim.start(0);
    sim.beat(0);
    sim.give_up(0);
    sim.pass(500_000);
    assert_eq!(sim.op(enter).body, Body::Stale);
}
