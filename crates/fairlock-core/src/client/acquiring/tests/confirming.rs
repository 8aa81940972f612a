//! Stories of grants that are renewed before they become holds.

use super::*;

#[test]
fn a_grant_with_little_time_left_is_renewed_first() {
    let late = || {
        let mut play = Play::waits(wanted(Kind::Fair));
        play.granted(1_500, grant(1, 2_000), 0).confirms(LEASE_MS);
        play
    };
    let mut play = late();
    play.confirm(1_600, Ok(Renewed::Whole), None, 1_550);
    let held = play.held();
    assert!(held.hold.is_whole());
    assert_eq!(held.hold.valid_until_ns(), ns(1_550 + LEASE_MS - LEASE_MS / 100));

    // One copy: its silence, or a "no", means that the grant may be over.
    let mut play = late();
    play.fail(1_600, silence(true));
    assert_eq!(play.sends().request, request(2));
    let mut play = late();
    let gone = Ok(Renewed::Gone { holder: None });
    play.confirm(1_600, gone, None, 1_550);
    assert_eq!(play.sends().request, request(2));
}

/// The store renewed the grant, and its reply was lost: the next request is told of that hold. It was given back, and a
/// caller without a limit was told that its client is closed.
#[test]
fn a_grant_whose_confirmation_is_not_answered_is_still_its_own() {
    for kind in [Kind::Fair, Kind::ReadWrite] {
        let mut play = Play::waits(Wanted { until_ns: None, ..wanted(kind) });
        play.granted(1_500, grant(1, 2_000), 0);
        play.fail(1_600, silence(true));
        play.sends();
        play.answer(1_700, Body::GrantedBefore(grant(1, LEASE_MS)));
        let held = play.held();
        assert_eq!(held.acquisition.request(), request(1));
        assert!(
            held.acquisition
                .doubtful()
                .any(|op| matches!(op, Op::Leave { request: it, .. } if it == request(2)))
        );
    }
}

/// After a failover, a heartbeat said that the request held the lock, for the 40 ms that were left. A
/// third of that looked like enough, and the guard was lost before its first renewal.
#[test]
fn a_grant_that_is_told_late_is_renewed_first() {
    let told = |left_ms| {
        let mut play = Play::waits(wanted(Kind::Fair));
        play.granted(1_500, grant(1, left_ms), 1_499);
        play
    };
    told(40).confirms(LEASE_MS);
    assert!(!told(1_000).held().hold.is_whole(), "half a heartbeat is enough");
}

fn replicated(kind: Kind) -> Play {
    let mut play = Play::asks(Wanted { replicas_ms: Some(1_000), ..wanted(kind) });
    play.answer(1, granted(LEASE_MS));
    play.confirms(LEASE_MS);
    play
}

#[test]
fn a_hold_that_replicas_must_have_is_always_confirmed() {
    let mut play = replicated(Kind::Plain);
    play.confirm(5, Ok(Renewed::Whole), None, 4);
    assert!(play.held().hold.is_whole());

    // Too few have it: that is final, and the next request should find the lock free.
    let mut play = replicated(Kind::Fair);
    play.confirm(5, Ok(Renewed::Whole), Some("one of two"), 4);
    play.gives_back();
    play.time(1_005).fails(Reason::Store("one of two"));

    // Another server has become the primary.
    let gone = || Ok(Renewed::Gone { holder: None });
    let mut play = replicated(Kind::Plain);
    play.confirm(5, gone(), None, 4);
    play.given_back(6).fails(Reason::GoneBeforeReplicas);
    let mut play = replicated(Kind::Fair);
    play.confirm(5, gone(), None, 4);
    assert_eq!(play.sends().request, request(2), "the waiter returns to its place");
}

#[test]
fn replicas_are_asked_until_the_store_timeout() {
    let mut play = replicated(Kind::Fair);
    play.fail(5, silence(true));
    let [least, most] = [10, 20].map(Duration::from_millis);
    assert_eq!(play.work(), Work::Pause { least, most });
    play.rest(20);
    play.confirms(LEASE_MS);
    play.fail(10_001, silence(true)).given_back(10_002);
    play.fails(Reason::NotAsked(Some("no answer")));
}

/// The third connection alone was refused: a `try_lock_for(200ms)` took 32 s, and the lock of a
/// dropped future was held for nobody until its lease was over.
#[test]
fn replicas_are_asked_for_no_longer_than_the_caller_waits() {
    let given_back = |play: &Play| play.gives_back();
    let late = |kind| {
        let limit = Wanted { until_ns: Some(ns(200)), replicas_ms: Some(1_000), ..wanted(kind) };
        let mut play = Play::asks(limit);
        play.answer(1, granted(LEASE_MS));
        assert_eq!(play.deadline_ns, Some(ns(1_700)), "what a slow answer takes");
        play
    };
    for kind in [Kind::Fair, Kind::Plain] {
        // The call is under way, or the pause after it.
        given_back(late(kind).time(1_700));
        let mut play = late(kind);
        play.fail(600, silence(true)).time(1_700);
        given_back(&play);
        play.given_back(1_701).fails(Reason::NotAsked(Some("no answer")));

        let mut play = replicated(kind);
        play.gone(5);
        given_back(&play);
        let mut play = replicated(kind);
        play.closed(5);
        given_back(&play);
        play.given_back(6).fails(Reason::Closed);
    }
    // It has gone while the grant was on its way.
    let mut play = Play::asks(Wanted { replicas_ms: Some(1_000), ..wanted(Kind::Fair) });
    play.gone(1);
    play.answer(2, granted(LEASE_MS));
    given_back(&play);
}

/// One call, which takes no longer than that of a request that is not answered at all.
#[test]
fn a_renewal_that_is_silent_ends_soon_after_the_callers_time() {
    let limit = Wanted { until_ns: Some(ns(2_000)), ..wanted(Kind::Fair) };
    let mut play = Play::waits(limit);
    play.granted(1_500, grant(1, 2_000), 0);
    play.confirms(LEASE_MS);
    play.time(2_500);
    play.gives_back();
    play.given_back(2_501).fails(Reason::Silent { last: None, in_doubt: true });
}

#[test]
fn a_grant_over_a_connection_that_is_gone_is_suspect() {
    let mut play = Play::asks(wanted(Kind::Plain));
    play.answer_at(At { ns: ns(1), connected: false }, granted(LEASE_MS), ns(1));
    let held = play.held();
    assert_eq!((held.hold.is_whole(), held.hold.standing()), (false, Standing::Suspect));
}
