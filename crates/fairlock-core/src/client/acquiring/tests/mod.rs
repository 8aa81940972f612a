//! One story for each rule of an acquisition.

mod confirming;
mod polling;

use super::*;
use crate::client::{Outlook, Refused, Standing};
use crate::id::ClientId;
use crate::op::{Body, Kind, Op};
use crate::rules::Token;

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
        at_once: false,
        store_timeout_ms: 10_000,
        period_ms: 2_000,
    }
}

/// An acquisition, and the shell around it as far as it answers at once.
struct Play {
    it: Acquiring<Error>,
    /// What the waiters know, while it is among them.
    known: Option<Acquisition>,
    last: Step<Error>,
}

impl Acquiring<Error> {
    fn granted_here(&mut self, at: At, grant: Grant, base_ns: u64) -> Step<Error> {
        let waiter = self.waiter.expect("it entered");
        self.granted(at, waiter, grant, base_ns)
    }

    fn wait_failed_here(&mut self, at: At, error: Error) -> Step<Error> {
        let waiter = self.waiter.expect("it entered");
        self.wait_failed(at, waiter, error)
    }
}

impl Play {
    fn new(wanted: Wanted) -> Self {
        let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
        let it = Acquiring::new(wanted, owner, request(1));
        Self { it, known: None, last: Step::Wait }
    }

    /// Has sent its first copy.
    fn asks(wanted: Wanted) -> Self {
        let mut play = Self::new(wanted);
        play.give(|it| it.start(at(0)));
        match play.last {
            Step::Enter => play.enter(at(0)),
            Step::Turn => play.give(|it| it.turn(at(0), None)),
            _ => &mut play,
        };
        play.sends();
        play
    }

    /// Stands in the queue.
    fn waits(wanted: Wanted) -> Self {
        let mut play = Self::asks(wanted);
        play.answer(0, queued(7));
        play.note();
        assert_eq!(play.last, Step::Wait);
        play
    }

    fn give(&mut self, input: impl FnOnce(&mut Acquiring<Error>) -> Step<Error>) -> &mut Self {
        self.last = input(&mut self.it);
        self
    }

    fn enter(&mut self, now: At) -> &mut Self {
        self.known = Some(self.it.acquisition().clone());
        self.give(|it| it.entered(now))
    }

    fn note(&mut self) -> &mut Self {
        let Step::Queued { order, in_doubt, .. } = self.last else { panic!("{:?}", self.last) };
        let known = self.known.as_mut().expect("it entered");
        known.set_in_doubt(in_doubt);
        known.queued(order);
        self.give(|it| it.noted(at(0)))
    }

    /// Leaves the waiters; `over` if they have handed out how its wait ends.
    fn leaves(&mut self, ms: u64, over: bool) -> &mut Self {
        assert!(matches!(self.last, Step::Leave { .. }), "{:?}", self.last);
        match self.known.take() {
            Some(known) => self.give(|it| it.left_queue(at(ms), known, over)),
            None => self.give(|it| it.left_line(at(ms))),
        }
    }

    /// A try is told that the lock is taken, and that dead waiters remain.
    fn answer_behind_dead(&mut self, ms: u64) -> &mut Self {
        let number = self.it.number;
        let busy = (Body::Busy { ttl_ms: None }, true);
        self.give(|it| it.answered(at(ms), number, busy, ns(ms)))
    }

    fn answer(&mut self, ms: u64, body: Body) -> &mut Self {
        let number = self.it.number;
        self.give(|it| it.answered(at(ms), number, (body, false), ns(ms)))
    }

    fn fail(&mut self, ms: u64, failure: Failure<Error>) -> &mut Self {
        let number = self.it.number;
        self.give(|it| it.failed(at(ms), number, failure))
    }

    fn rest(&mut self, ms: u64) -> &mut Self {
        let number = self.it.number;
        self.give(|it| it.rested(at(ms), number))
    }

    fn time(&mut self, ms: u64) -> &mut Self {
        assert_eq!(self.it.deadline_ns(), Some(ns(ms)), "after {:?}", self.last);
        self.give(|it| it.time(at(ms)))
    }

    fn work(&self) -> Work {
        let Step::Begin(_, work) = self.last else { panic!("{:?}", self.last) };
        work
    }

    #[track_caller]
    fn sends(&self) {
        assert_eq!(self.work(), Work::Send { at_once: false });
    }

    #[track_caller]
    fn pauses(&self, ms: u64) {
        let pause = Duration::from_millis(ms);
        assert_eq!(self.work(), Work::Pause { least: pause, most: pause });
    }

    #[track_caller]
    fn rests(&self, least: u64, most: u64) {
        let [least, most] = [least, most].map(Duration::from_millis);
        assert_eq!(self.work(), Work::Rest { least, most });
    }

    /// What is taken back, whether that is buried, and whether somebody waits for it.
    #[track_caller]
    fn takes_back(&mut self) -> (Vec<(RequestId, bool)>, bool) {
        let Step::TakeBack { ops, wait } = &self.last else { panic!("{:?}", self.last) };
        let one = |op: &Op| match op {
            Op::Leave { request, bury, .. } => (*request, *bury),
            op => panic!("{op:?} takes nothing back"),
        };
        let taken = (ops.iter().map(one).collect(), *wait);
        self.give(|it| it.taken_back(at(0), true));
        taken
    }

    #[track_caller]
    fn held(&self) -> Held {
        let Step::Done(Outcome::Held(held)) = &self.last else { panic!("{:?}", self.last) };
        held.clone()
    }

    #[track_caller]
    fn ends(&self, outcome: Outcome<Error>) {
        assert_eq!(self.last, Step::Done(outcome));
        assert_eq!(self.it.deadline_ns(), None);
    }

    #[track_caller]
    fn fails(&self, reason: Reason<Error>) {
        self.ends(Outcome::Failed(reason));
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
        play.answer(1, granted(LEASE_MS)).leaves(1, false);
        let held = play.held();
        assert!(held.hold.is_whole() && held.hold.standing() == Standing::Held);
        assert_eq!(held.hold.valid_until_ns(), ns(1 + LEASE_MS - LEASE_MS / 100));
        assert_eq!(play.it.deadline_ns(), None);
    }
}

/// A pair of lock and release in this process takes neither a task nor a waiter.
#[test]
fn a_store_that_answers_at_once_is_asked_in_the_callers_thread() {
    let at_once = Wanted { at_once: true, ..wanted(Kind::Fair) };
    let mut play = Play::new(at_once);
    play.give(|it| it.start(at(0)));
    assert_eq!(play.work(), Work::Send { at_once: true });
    assert_eq!(play.it.op(true, 9).mode, Mode::Try);
    play.answer(0, granted(LEASE_MS)).held();

    // A lock that is taken: a new request waits for it.
    let mut play = Play::new(at_once);
    play.give(|it| it.start(at(0))).answer(0, taken(None));
    assert_eq!(play.last, Step::Draw);
    play.give(|it| it.drawn(at(0), request(2)));
    assert_eq!(play.last, Step::Enter);
    assert_eq!(
        (play.it.acquisition().request(), play.it.op(true, 9).mode),
        (request(2), Mode::Wait)
    );

    // A store that cannot answer now has seen nothing.
    let mut play = Play::new(at_once);
    play.give(|it| it.start(at(0))).give(|it| it.not_at_once(at(0), 1));
    assert_eq!(play.last, Step::Enter);
    assert_eq!(play.it.acquisition().request(), request(1));
}

#[test]
fn a_store_that_fails_at_once_is_not_asked_again() {
    let at_once = Wanted { at_once: true, ..wanted(Kind::Plain) };
    let mut play = Play::new(at_once);
    play.give(|it| it.start(at(0))).fail(0, silence(false)).fails(Reason::Store("no answer"));
    let mut play = Play::new(at_once);
    play.give(|it| it.start(at(0))).fail(0, silence(true));
    assert_eq!(play.takes_back(), (only(BURIED), false));
    play.fails(Reason::Store("no answer"));
}

/// An explicit owner may hold it already, through a request that is not this one.
#[test]
fn an_explicit_owner_is_not_served_at_once() {
    let mut play = Play::new(Wanted { at_once: true, shared_owner: true, ..wanted(Kind::Fair) });
    play.give(|it| it.start(at(0)));
    assert_eq!(play.last, Step::Enter);
}

#[test]
fn a_try_that_was_answered_leaves_nothing_behind() {
    for kind in [Kind::Fair, Kind::Plain] {
        let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(kind) });
        assert_eq!(play.it.deadline_ns(), None, "a try does not wait");
        play.answer(1, taken(None));
        if kind == Kind::Fair {
            play.leaves(1, false);
        }
        play.ends(Outcome::None);
    }
}

#[test]
fn a_wait_ends_with_a_grant_by_message() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.granted_here(at(500), grant(1, 2_000), ns(400))).leaves(500, true);
    let held = play.held();
    assert!(!held.hold.is_whole(), "the TTL of a grant by message is short");
    assert_eq!(held.hold.valid_until_ns(), ns(400 + 2_000 - 20));
}

/// The next attempt, here or elsewhere, must not find a waiter whose caller was told "no".
#[test]
fn a_waiter_whose_time_is_up_waits_for_its_place_to_be_given_back() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS).leaves(NO_HURRY_MS, false);
    assert_eq!(play.it.deadline_ns(), Some(ns(NO_HURRY_MS + 500)));
    assert_eq!(play.takes_back(), (only(LAST), true));
    play.ends(Outcome::None);
}

#[test]
fn a_waiter_in_doubt_is_buried() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(1, silence(true)).rest(2).rest(3).answer(4, queued(7)).note();
    play.time(NO_HURRY_MS).leaves(NO_HURRY_MS, false);
    assert_eq!(play.takes_back(), (only(BURIED), true));
    play.ends(Outcome::None);
}

#[test]
fn a_grant_at_the_moment_of_giving_up_counts() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS).leaves(NO_HURRY_MS, true);
    assert_eq!(play.last, Step::Wait, "another thread has the grant");
    play.give(|it| it.granted_here(at(NO_HURRY_MS), grant(1, LEASE_MS), ns(NO_HURRY_MS)));
    play.held();

    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    let leave = play.last.clone();
    play.give(|it| it.granted_here(at(NO_HURRY_MS), grant(1, LEASE_MS), ns(NO_HURRY_MS)));
    assert_eq!(play.last, Step::Wait);
    play.last = leave;
    play.leaves(NO_HURRY_MS, true).held();
}

#[test]
fn a_wait_that_failed_at_the_moment_of_giving_up_is_told_no() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    let leave = play.last.clone();
    play.give(|it| it.wait_failed_here(at(NO_HURRY_MS), "silence"));
    play.last = leave;
    play.leaves(NO_HURRY_MS, true).takes_back();
    play.ends(Outcome::None);
}

/// Nobody would use the lock. Nor does anybody wait for its place to be given back.
#[test]
fn a_grant_to_a_caller_that_has_gone_is_taken_back() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.gone(at(5))).leaves(5, true);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.ends(Outcome::None);
}

#[test]
fn a_wait_that_the_store_cannot_serve_fails() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.wait_failed_here(at(5), "denied")).leaves(5, true);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.fails(Reason::Waiting("denied"));
}

#[test]
fn a_client_that_was_shut_down_says_so() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.closed(at(5))).leaves(5, false).takes_back();
    play.fails(Reason::Closed);

    // Before it began.
    let mut play = Play::new(wanted(Kind::Plain));
    play.give(|it| it.closed(at(0))).give(|it| it.start(at(0))).leaves(0, false).takes_back();
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
        play.time(600).leaves(600, false);
        assert_eq!(play.takes_back(), (only(BURIED), false));
        play.fails(Reason::Silent { last: None, in_doubt: true });
    }
    // Nothing was sent, and nothing could be.
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(0, silence(false)).give(|it| it.gone(at(1)));
    let apart = At { ns: ns(51), connected: false };
    play.give(|it| it.time(apart)).leaves(51, false);
    play.fails(Reason::Silent { last: Some("no answer"), in_doubt: false });
}

/// A server without free memory refused each copy, and a timed wait ended as if the lock were taken: a
/// job that is skipped then was skipped without a word.
#[test]
fn a_store_that_refuses_all_the_time_has_not_said_that_the_lock_is_taken() {
    for kind in [Kind::Fair, Kind::Plain] {
        let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(kind) });
        play.fail(0, silence(false)).time(100).time(600).leaves(600, false);
        if kind == Kind::Plain {
            play.takes_back();
        }
        play.fails(Reason::Unreachable { last: "no answer", in_doubt: false });
    }
}

#[test]
fn an_answer_in_the_grace_after_the_end_counts() {
    let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(Kind::Fair) });
    play.time(100).answer(400, granted(LEASE_MS)).leaves(400, false).held();

    let mut play = Play::asks(Wanted { until_ns: Some(ns(100)), ..wanted(Kind::Fair) });
    play.time(100).answer(400, queued(7)).note().leaves(400, false);
    assert_eq!(play.takes_back(), (only(LAST), true), "it was answered, so it is not in doubt");
    play.ends(Outcome::None);
}

#[test]
fn a_caller_that_has_gone_grants_the_reply_a_moment() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.give(|it| it.gone(at(10))).time(60).leaves(60, false);
    assert_eq!(play.takes_back(), (only(BURIED), false));
}

/// The message of a grant overtook the reply. Without that reply, a copy may still be under way.
#[test]
fn a_grant_before_the_reply_waits_for_it_a_moment() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.give(|it| it.granted_here(at(10), grant(1, LEASE_MS), ns(10))).answer(20, queued(7));
    play.leaves(20, true);
    assert!(!play.held().acquisition.is_doubtful());

    let mut play = Play::asks(wanted(Kind::Fair));
    play.give(|it| it.granted_here(at(10), grant(1, LEASE_MS), ns(10))).time(60).leaves(60, true);
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
    play.answer(3, Body::TooLate).leaves(3, false).fails(Reason::TooLate);
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
    play.give(|it| it.time(at(NO_HURRY_MS)));
    assert_eq!(play.it.deadline_ns(), Some(ns(NO_HURRY_MS + 500)), "an answer is on its way");
    let mut again = Play { it: play.it.clone(), known: play.known.clone(), last: Step::Wait };
    again.answer(NO_HURRY_MS + 1, Body::HeldBySelf { count: 1 });
    again.leaves(NO_HURRY_MS + 1, false).takes_back();
    again.ends(Outcome::None);
    play.answer(NO_HURRY_MS + 1, granted(LEASE_MS)).leaves(NO_HURRY_MS + 1, false).held();

    let mut play = Play::asks(Wanted { mode: Mode::Try, ..shared });
    play.answer(1, Body::HeldBySelf { count: 1 }).leaves(1, false).ends(Outcome::None);
}

#[test]
fn an_owner_that_nobody_shares_cannot_hold_it_already() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.answer(1, Body::HeldBySelf { count: 1 }).leaves(1, false).takes_back();
    play.fails(Reason::Refused(Refused::HeldBySelf));
}

/// A proxy mixed replies up. What became of the request is unknown.
#[test]
fn a_request_whose_reply_belongs_to_another_is_buried() {
    for mode in [Mode::Try, Mode::Wait] {
        let mut play = Play::asks(Wanted { mode, ..wanted(Kind::Fair) });
        play.answer(1, Body::Renewed).leaves(1, false);
        assert_eq!(play.takes_back(), (only(BURIED), false));
        play.fails(Reason::Refused(Refused::Mismatch));
    }
    let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(Kind::Fair) });
    play.answer(1, queued(7)).leaves(1, false);
    assert_eq!(play.takes_back(), (only(BURIED), false), "a try stands in no queue");
}

/// The process slept through its turn twice.
#[test]
fn a_lease_that_is_over_twice_before_it_can_be_used_is_too_short() {
    let lease = Wanted { lease_ms: 100, renewed: false, ..wanted(Kind::Fair) };
    let mut play = Play::waits(lease);
    play.give(|it| it.granted_here(at(500), grant(1, 100), ns(300))).leaves(500, true);
    assert_eq!(play.last, Step::Draw);
    play.give(|it| it.drawn(at(500), request(2))).enter(at(500)).sends();
    assert_eq!(play.it.op(true, 9).order, Some(7), "it keeps its place");
    play.answer(500, queued(7));
    assert!(matches!(play.last, Step::Queued { returning: true, .. }), "{:?}", play.last);
    play.note().give(|it| it.granted_here(at(900), grant(2, 100), ns(700))).leaves(900, true);
    let taken_back = [(1, true), (2, true)].map(|(number, bury)| (request(number), bury));
    assert_eq!(play.takes_back(), (taken_back.to_vec(), false));
    play.fails(Reason::LeaseTooShort(2));

    // A lock without a queue has no place to return to.
    let mut play = Play::asks(Wanted { kind: Kind::Plain, ..lease });
    let (number, late) = (play.it.number, at(500));
    play.give(|it| it.answered(late, number, (granted(100), false), ns(0))).leaves(500, false);
    assert_eq!(play.takes_back(), (only(BURIED), false));
    play.fails(Reason::LeaseTooShort(1));
}

/// The watchdog would have renewed it: the lease is not too short.
#[test]
fn a_renewed_hold_that_is_over_is_asked_for_again_and_again() {
    let mut play = Play::waits(wanted(Kind::Fair));
    for round in 1..6 {
        play.give(|it| it.granted_here(at(9_000), grant(round, 100), ns(300))).leaves(9_000, true);
        play.give(|it| it.drawn(at(9_000), request(round + 1))).enter(at(9_000));
        play.answer(9_000, queued(7)).note();
    }
    play.give(|it| it.gone(at(9_000))).leaves(9_000, false);
    assert_eq!(play.takes_back().0.len(), 6, "each of its requests");
}

#[test]
fn a_hold_of_an_explicit_owner_that_was_over_is_taken_back_first() {
    let mut play = Play::waits(Wanted { shared_owner: true, ..wanted(Kind::Fair) });
    play.give(|it| it.granted_here(at(9_000), grant(1, 100), ns(300))).leaves(9_000, true);
    assert_eq!(play.takes_back(), (only(BURIED), false));
    assert_eq!(play.last, Step::Draw);
}

/// A caller went away while its grant, which was over, was confirmed.
#[test]
fn a_round_that_begins_after_the_end_of_the_wait_is_short() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.granted_here(at(9_000), grant(1, 100), ns(300))).leaves(9_000, true);
    play.give(|it| it.gone(at(9_000))).give(|it| it.drawn(at(9_000), request(2)));
    play.enter(at(9_000)).sends();
    play.time(9_050).leaves(9_050, false);
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
    play.fail(10_000, silence(false)).leaves(10_000, false);
    play.fails(Reason::Unreachable { last: "no answer", in_doubt: false });

    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(10_000, silence(true)).leaves(10_000, false);
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
    play.fail(10_000, denied).leaves(10_000, false).takes_back();
    play.fails(Reason::Store("denied"));
    let refused = Failure { passing: false, ..denied };
    let mut play = Play::asks(wanted(Kind::Fair));
    play.fail(5, refused).leaves(5, false).takes_back();
    play.fails(Reason::Store("denied"));
}

#[test]
fn what_former_work_says_is_ignored() {
    let mut play = Play::asks(wanted(Kind::Fair));
    let first = play.it.number;
    play.fail(1, silence(true)).rest(2).rest(3).sends();
    let before = play.it.clone();
    play.give(|it| it.answered(at(4), first, (granted(LEASE_MS), false), ns(4)));
    assert_eq!(play.last, Step::Wait);
    play.give(|it| it.failed(at(4), first, silence(false)));
    play.give(|it| it.rested(at(4), first));
    assert_eq!(play.it, before);
}

#[test]
fn the_waiters_are_told_what_the_store_says() {
    let mut play = Play::asks(wanted(Kind::Fair));
    play.answer(1, Body::Queued { order: 7, retry_ms: Some(30), foreign: true, length: 3 });
    let outlook = Outlook { retry: Some(Duration::from_millis(30)), foreign: true };
    let (returning, in_doubt) = (false, false);
    let queued = Step::Queued { order: 7, outlook, length: 3, returning, in_doubt };
    assert_eq!(play.last, queued);
}

#[test]
fn the_longest_hold_ends_a_renewed_one() {
    let most = Some(Duration::from_secs(60));
    let mut play = Play::asks(Wanted { max_hold: most, ..wanted(Kind::Plain) });
    play.answer(1, granted(LEASE_MS)).leaves(1, false);
    let lease = play.held().hold.lease();
    assert_eq!((lease.end_ns, lease.ends_by_max_hold), (Some(ns(60_001)), true));
}

#[test]
fn an_id_that_cannot_be_drawn_ends_it() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.granted_here(at(9_000), grant(1, 100), ns(300))).leaves(9_000, true);
    play.give(|it| it.not_drawn(at(9_000), "no randomness"));
    assert_eq!(play.takes_back(), (only(BURIED), false));
    play.fails(Reason::NotDrawn("no randomness"));
}

/// Another thread was late with the grant of a round that a reply had ended.
#[test]
fn a_grant_of_a_former_round_is_ignored() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.granted_here(at(9_000), grant(1, 100), ns(300))).leaves(9_000, true);
    play.give(|it| it.drawn(at(9_000), request(2))).enter(at(9_000)).sends();
    let before = play.it.clone();
    play.give(|it| it.granted(at(9_000), request(1), grant(1, LEASE_MS), ns(9_000)));
    play.give(|it| it.wait_failed(at(9_000), request(1), "silence"));
    assert_eq!((&play.last, play.it), (&Step::Wait, before));
}

/// R8 of the trial on shares, of fair locks too: the first try after the death of more than 64 waiters
/// got nothing, because one call of the store removes no more.
#[test]
fn a_try_looks_behind_more_dead_waiters_than_one_call_removes() {
    let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(Kind::Fair) });
    play.answer_behind_dead(1).sends();
    play.answer(2, granted(LEASE_MS)).leaves(2, false).held();

    // However long the store goes on like that.
    let mut play = Play::asks(Wanted { mode: Mode::Try, ..wanted(Kind::Fair) });
    for ms in 1..=16 {
        play.answer_behind_dead(ms).sends();
    }
    play.answer_behind_dead(17).leaves(17, false);
    assert_eq!(play.last, Step::Done(Outcome::None));
}
