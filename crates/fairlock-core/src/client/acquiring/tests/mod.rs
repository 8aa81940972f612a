//! One story for each rule of an acquisition.

mod confirming;
mod play;
mod polling;

use super::*;
use crate::client::lease::ns;
use crate::client::{AtOnce, AttemptId, Client, Effect, Mismatch, Refused, Renewed, Standing};
use crate::client::{Surroundings, Tried};
use crate::id::{ClientId, LockName};
use crate::op::{Acquire, Body, Kind, Op};
use crate::rules::Token;
use play::{Around, Play, job};

type Error = &'static str;

const LEASE_MS: u64 = 30_000;
/// Ends every pause that a story does not look at.
const NO_HURRY_MS: u64 = 100_000;

fn request(number: u128) -> RequestId {
    RequestId::from_random(number)
}

fn at(ms: u64) -> At {
    At { ns: ns(ms), connected: true }
}

fn token() -> Token {
    Token::new(5).expect("a token")
}

fn granted(ttl_ms: u64) -> Body {
    Body::Granted { token: token(), ttl_ms }
}

fn grant(number: u128, ttl_ms: u64) -> Grant {
    Grant { request: request(number), token: token(), ttl_ms }
}

fn queued(order: u64) -> Body {
    Body::Queued { order, retry_ms: None, foreign: false, length: 2 }
}

fn taken(ttl_ms: Option<u64>) -> Body {
    Body::Busy { ttl_ms }
}

fn foreign() -> Body {
    Body::Taken { ttl_ms: None, foreign: true }
}

fn silence(doubt: bool) -> Failure<Error> {
    Failure { error: "no answer", doubt, passing: true, kind: FailureKind::Unavailable }
}

fn wanted(kind: Kind) -> Wanted {
    Wanted {
        kind,
        share: crate::share::Share::Whole,
        mode: Mode::Wait,
        lease_ms: LEASE_MS,
        renewed: true,
        max_hold: None,
        until_ns: Some(ns(NO_HURRY_MS)),
        shared_owner: false,
        may_be_cut: false,
        java_fleet: false,
        replicas_ms: None,
        store_timeout_ms: 10_000,
        period_ms: 2_000,
    }
}

const LAST: (u128, bool) = (1, false);
const BURIED: (u128, bool) = (1, true);

fn only((number, bury): (u128, bool)) -> Vec<(RequestId, bool)> {
    vec![(request(number), bury)]
}

#[test]
fn a_free_lock_takes_one_call() {
    for kind in [Kind::Fair, Kind::Plain, Kind::Simple] {
        let mut play = Play::asks(wanted(kind));
        play.answer(1, granted(LEASE_MS));
        let held = play.held();
        assert!(held.hold.is_whole() && held.hold.standing() == Standing::Held);
        assert_eq!(held.hold.valid_until_ns(), ns(1 + LEASE_MS - LEASE_MS / 100));
        assert_eq!(play.deadline_ns, None);
    }
}

fn at_once(kind: Kind) -> AtOnce {
    let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
    AtOnce::new(wanted(kind), owner, request(1))
}

/// A pair of lock and release in this process takes neither a task nor a waiter.
#[test]
fn a_store_that_answers_at_once_is_asked_in_the_callers_thread() {
    let Op::Acquire(sent) = at_once(Kind::Fair).op(true) else { panic!("a fair lock") };
    assert_eq!((sent.mode, sent.request), (Mode::Try, request(1)));
    let answered = |body| at_once(Kind::Fair).answered::<Error>(body, 0);
    let Tried::Held(held) = answered(granted(LEASE_MS)) else { panic!("it was granted") };
    assert!(held.hold.is_whole());
    // A lock that is taken: a new request waits for it.
    assert_eq!(answered(taken(None)), Tried::Taken);
    // A try stands in no queue: what became of it is unknown.
    let Tried::Failed(reason, ops) = answered(queued(7)) else { panic!("not an answer") };
    assert_eq!(reason, Reason::Refused(Refused::Mismatch));
    assert!(matches!(ops[..], [Op::Leave { bury: true, .. }]), "{ops:?}");
}

#[test]
fn a_store_that_fails_at_once_is_not_asked_again() {
    let failed = |doubt| match at_once(Kind::Plain).failed(silence(doubt)) {
        Tried::Failed(Reason::Store("no answer"), ops) => ops,
        tried => panic!("{tried:?}"),
    };
    assert_eq!(failed(false), []);
    assert!(matches!(failed(true)[..], [Op::Leave { bury: true, .. }]));
}

#[test]
fn a_try_that_was_answered_leaves_nothing_behind() {
    for kind in [Kind::Fair, Kind::Plain] {
        let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(kind) });
        assert_eq!(play.deadline_ns, None, "a try does not wait");
        play.answer(1, taken(None)).ends(Outcome::None);
        assert!(play.client.is_idle());
    }
}

#[test]
fn a_wait_ends_with_a_grant_by_message() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.granted(500, grant(1, 2_000), 400);
    let held = play.held();
    assert!(!held.hold.is_whole(), "the TTL of a grant by message is short");
    assert_eq!(held.hold.valid_until_ns(), ns(400 + 2_000 - 20));
}

/// The next attempt, here or elsewhere, must not find a waiter whose caller was told "no".
#[test]
fn a_waiter_whose_time_is_up_waits_for_its_place_to_be_given_back() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    assert_eq!(play.deadline_ns, Some(ns(NO_HURRY_MS + 500)));
    assert_eq!(play.takes_back(), (only(LAST), true));
    play.ends(Outcome::None);
}

#[test]
fn a_waiter_in_doubt_is_buried() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(1, silence(true)).rest(2).rest(3).answer(4, queued(7));
    play.time(NO_HURRY_MS);
    assert_eq!(play.takes_back(), (only(BURIED), true));
    play.ends(Outcome::None);
}

/// The caller's time is up at the same moment: whichever comes first counts.
#[test]
fn a_grant_at_the_moment_of_giving_up_counts() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.granted(NO_HURRY_MS, grant(1, LEASE_MS), NO_HURRY_MS).held();

    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    play.give(at(NO_HURRY_MS), |it, here, _| {
        assert!(!it.granted(here, &grant(1, LEASE_MS), Some(ns(NO_HURRY_MS))), "it is given up");
    });
}

/// Nobody would use the lock. Nor does anybody wait for its place to be given back.
#[test]
fn a_grant_to_a_caller_that_has_gone_is_taken_back() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.gone(5);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.ends(Outcome::None);
}

#[test]
fn a_wait_that_the_store_cannot_serve_fails() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.wait_fails(5, "denied");
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.fails(Reason::Waiting("denied"));
}

#[test]
fn a_client_that_was_shut_down_says_so() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.closed(5).takes_back();
    play.fails(Reason::Closed);
}

/// A server behind a slow network said nothing for 300 ms: `lock_within(100 ms)` must not say that
/// the lock is taken.
#[test]
fn silence_is_an_error() {
    for kind in [Kind::Fair, Kind::Plain] {
        let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(kind) });
        play.time(100);
        assert_eq!(play.last, Step::Wait, "a slow store can still say whether the lock is taken");
        play.time(600);
        assert_eq!(play.takes_back(), (only(BURIED), false));
        play.fails(Reason::Silent { last: None, in_doubt: true });
    }
    // Nothing was sent, and nothing could be.
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(0, silence(false)).gone(1);
    let apart = At { ns: ns(51), connected: false };
    play.time_at(apart);
    play.fails(Reason::Silent { last: Some("no answer"), in_doubt: false });
}

/// A server without free memory refused each copy, and a timed wait ended as if the lock were taken: a
/// job that is skipped then was skipped without a word.
#[test]
fn a_store_that_refuses_all_the_time_has_not_said_that_the_lock_is_taken() {
    for kind in [Kind::Fair, Kind::Plain] {
        let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(kind) });
        play.fail(0, silence(false)).time(100).time(600);
        if kind == Kind::Plain {
            play.takes_back();
        }
        play.fails(Reason::Unreachable { last: "no answer", in_doubt: false });
    }
}

#[test]
fn an_answer_in_the_grace_after_the_end_counts() {
    let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(Kind::Fair) });
    play.time(100).answer(400, granted(LEASE_MS)).held();

    let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(Kind::Fair) });
    play.time(100).answer(400, queued(7));
    assert_eq!(play.takes_back(), (only(LAST), true), "it was answered, so it is not in doubt");
    play.ends(Outcome::None);
}

#[test]
fn a_caller_that_has_gone_grants_the_reply_a_moment() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.gone(10).time(60);
    assert_eq!(play.takes_back(), (only(BURIED), false));
}

/// The message of a grant overtook the reply. Without that reply, a copy may still be under way.
#[test]
fn a_grant_before_the_reply_waits_for_it_a_moment() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.granted(10, grant(1, LEASE_MS), 10).answer(20, queued(7));
    assert!(!play.held().acquisition.is_doubtful());

    let mut play = Play::asks(wanted(Kind::Fair));
    play.granted(10, grant(1, LEASE_MS), 10).time(60);
    assert!(play.held().acquisition.is_doubtful());
}

/// The server's clock was misjudged, and each copy came too late by it.
#[test]
fn a_request_that_is_too_late_is_sent_three_times() {
    let mut play = Play::asks(wanted(Kind::Fair));
    for ms in 1..=2 {
        play.answer(ms, Body::TooLate).sends();
    }
    // It never reached the queue, so there is nothing to take back.
    play.answer(3, Body::TooLate).fails(Reason::TooLate);
}

/// A lost hold of the owner, or one that was given up, is not taken over.
#[test]
fn an_explicit_owner_waits_for_the_end_of_its_former_hold() {
    let shared = Wanted { shared_owner: true, ..wanted(Kind::Fair) };
    let mut play = Play::asks(shared);
    for pause in [10, 20, 40, 80, 160, 250, 250] {
        play.answer(1, Body::HeldBySelf { count: 1 }).pauses(pause);
        play.rest(2).sends();
    }
    play.time_at(at(NO_HURRY_MS));
    assert_eq!(play.deadline_ns, Some(ns(NO_HURRY_MS + 500)), "an answer is on its way");
    let mut again = play.clone();
    again.answer(NO_HURRY_MS + 1, Body::HeldBySelf { count: 1 });
    again.takes_back();
    again.ends(Outcome::None);
    play.answer(NO_HURRY_MS + 1, granted(LEASE_MS)).held();

    let mut play = Play::asks(Wanted { mode: Mode::Try, ..shared });
    play.answer(1, Body::HeldBySelf { count: 1 }).ends(Outcome::None);
}

#[test]
fn an_owner_that_nobody_shares_cannot_hold_it_already() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.answer(1, Body::HeldBySelf { count: 1 }).takes_back();
    play.fails(Reason::Refused(Refused::HeldBySelf));
}

/// A proxy mixed replies up. What became of the request is unknown.
#[test]
fn a_request_whose_reply_belongs_to_another_is_buried() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut play = Play::asks(Wanted { mode, ..wanted(Kind::Fair) });
        play.answer(1, Body::Renewed);
        assert_eq!(play.takes_back(), (only(BURIED), false));
        play.fails(Reason::Refused(Refused::Mismatch));
    }
    let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(Kind::Fair) });
    play.answer(1, queued(7));
    assert_eq!(play.takes_back(), (only(BURIED), false), "a try stands in no queue");
}

/// The process slept through its turn twice.
#[test]
fn a_lease_that_is_over_twice_before_it_can_be_used_is_too_short() {
    let lease = Wanted { lease_ms: 100, renewed: false, ..wanted(Kind::Fair) };
    let mut play = Play::waits(lease);
    play.granted(500, grant(1, 100), 300);
    assert_eq!(play.sends().order, Some(7), "it keeps its place");
    play.answer(500, queued(7));
    let returns = |effect: &Effect| matches!(effect, Effect::Queued { returning: true, .. });
    assert!(play.effects.iter().any(returns), "{:?}", play.effects);
    play.granted(900, grant(2, 100), 700);
    let taken_back = [(1, true), (2, true)].map(|(number, bury)| (request(number), bury));
    assert_eq!(play.takes_back(), (taken_back.to_vec(), false));
    play.fails(Reason::LeaseTooShort(2));

    // A lock without a queue has no place to return to.
    let mut play = Play::asks(Wanted { kind: Kind::Plain, ..lease });
    play.answer_at(at(500), granted(100), ns(0));
    assert_eq!(play.takes_back(), (only(BURIED), false));
    play.fails(Reason::LeaseTooShort(1));
}

/// The watchdog would have renewed it: the lease is not too short.
#[test]
fn a_renewed_hold_that_is_over_is_asked_for_again_and_again() {
    let mut play = Play::waits(wanted(Kind::Fair));
    for round in 1..6 {
        play.granted(9_000, grant(round, 100), 300);
        play.answer(9_000, queued(7));
    }
    play.gone(9_000);
    assert_eq!(play.takes_back().0.len(), 6, "each of its requests");
}

#[test]
fn a_hold_of_an_explicit_owner_that_was_over_is_taken_back_first() {
    let mut play = Play::waits(Wanted { shared_owner: true, ..wanted(Kind::Fair) });
    play.granted(9_000, grant(1, 100), 300);
    assert_eq!(play.sends().request, request(2));
    assert_eq!(play.takes_back(), (only(BURIED), false));
}

/// A caller went away while its grant, which was over, was confirmed.
#[test]
fn a_round_that_begins_after_the_end_of_the_wait_is_short() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.granted(1_500, grant(1, 2_000), 0).confirms(LEASE_MS);
    play.gone(8_999).fail(9_000, silence(true)).sends();
    play.time(9_050);
    assert_eq!(play.takes_back().0.len(), 2);
    play.fails(Reason::Silent { last: None, in_doubt: true });
}

/// Nothing was listening. A fair request that never reached it need not be taken back.
#[test]
fn an_unreachable_store_is_tried_for_the_store_timeout() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(5, silence(false));
    let [least, most] = [10, 20].map(Duration::from_millis);
    assert_eq!(play.work(), Work::Pause { least, most });
    play.rest(20);
    assert_eq!(play.work(), Work::Connection { until_ns: ns(10_000) });
    play.rest(10_000).sends();
    play.fail(10_000, silence(false));
    play.fails(Reason::Unreachable { last: "no answer", in_doubt: false });

    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(10_000, silence(true));
    assert_eq!(play.takes_back(), (only(BURIED), false));
    play.fails(Reason::Unreachable { last: "no answer", in_doubt: true });
}

/// The password was changed: the reason, not "unreachable", is what helps.
#[test]
fn a_login_that_is_refused_is_what_the_caller_is_told() {
    let denied =
        Failure { error: "denied", doubt: false, passing: true, kind: FailureKind::Denied };
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(5, denied).rest(20).rest(30).sends();
    play.fail(10_000, denied).takes_back();
    play.fails(Reason::Store("denied"));
    let refused = Failure { passing: false, ..denied };
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(5, refused).takes_back();
    play.fails(Reason::Store("denied"));
}

#[test]
fn what_former_work_says_is_ignored() {
    let mut play = Play::asks(wanted(Kind::Fair));
    let first = (play.id, play.number);
    play.fail(1, silence(true)).rest(2).rest(3).sends();
    let before = play.client.clone();
    let answer = (granted(LEASE_MS), false);
    play.give(at(4), |it, here, _| it.answered(here, first, answer, ns(4)));
    assert_eq!(play.last, Step::Wait);
    play.give(at(4), |it, here, _| it.failed(here, first, silence(false)));
    play.give(at(4), |it, here, _| it.rested(here, first));
    assert_eq!(play.client, before);
}

#[test]
fn the_first_waiter_begins_the_heartbeats() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.answer(1, Body::Queued { order: 7, retry_ms: Some(30), foreign: true, length: 3 });
    let [Effect::Queued { order: 7, returning: false, length: 3, .. }, rest @ ..] =
        &play.effects[..]
    else {
        panic!("{:?}", play.effects)
    };
    assert_eq!(rest, [Effect::BeginHeartbeats, Effect::Beat], "something is expected soon");
}

#[test]
fn the_longest_hold_ends_a_renewed_one() {
    let most = Some(Duration::from_secs(60));
    let mut play = Play::asks(Wanted { max_hold: most, ..wanted(Kind::Plain) });
    play.answer(1, granted(LEASE_MS));
    let lease = play.held().hold.lease();
    assert_eq!((lease.end_ns, lease.ends_by_max_hold), (Some(ns(60_001)), true));
}

#[test]
fn an_id_that_cannot_be_drawn_ends_it() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.randomness = false;
    play.granted(9_000, grant(1, 100), 300);
    assert_eq!(play.takes_back(), (only(BURIED), false));
    play.fails(Reason::NotDrawn("no randomness"));
}

/// It is late, and the reply to a heartbeat has ended that round.
#[test]
fn a_message_to_a_former_round_is_ignored() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.granted(9_000, grant(1, 100), 300).sends();
    let before = play.client.clone();
    play.give(at(9_000), |it, here, _| {
        assert!(!it.granted(here, &grant(1, LEASE_MS), Some(ns(9_000))));
    });
    assert_eq!((&play.last, play.client), (&Step::Wait, before));
}

/// After a panic the driver is gone: the acquisition leaves its queue or line, and its requests are taken back.
#[test]
fn an_acquisition_that_nobody_drives_any_more_leaves_nothing() {
    for kind in [Kind::Fair, Kind::Plain] {
        for granted_before in [false, true] {
            let mut play = Play::asks(wanted(kind));
            let (id, number) = (play.id, play.number);
            play.give(at(1), |it, here, _| {
                if granted_before {
                    it.answered(here, (id, number), (granted(LEASE_MS), false), ns(1));
                }
                it.abandon(here, id);
            });
            assert_eq!(play.takes_back(), (only(BURIED), false), "{kind:?} {granted_before}");
            let _ =
                play.client.due(&Around { at: at(1), drawn: 0, randomness: true }, &job(), true);
            assert!(play.client.is_idle());
        }
    }
}

/// R8 of the trial on shares, of fair locks too: the first try after the death of more than 64 waiters
/// got nothing, because one call of the store removes no more.
#[test]
fn a_try_looks_behind_more_dead_waiters_than_one_call_removes() {
    let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(Kind::Fair) });
    play.answer_behind_dead(1).sends();
    play.answer(2, granted(LEASE_MS)).held();

    // However long the store goes on like that.
    let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(Kind::Fair) });
    for ms in 1..=16 {
        play.answer_behind_dead(ms).sends();
    }
    play.answer_behind_dead(17);
    assert_eq!(play.last, Step::Done(Outcome::None));
}
