//! Stories of locks without a queue.

use super::*;
use crate::client::valid_until_ns;

/// A release between the reply and the subscription would be missed otherwise.
#[test]
fn a_waiter_without_a_queue_asks_again_after_it_has_subscribed() {
    let mut play = Play::asks(wanted(Kind::Plain));
    play.answer(1, taken(Some(700)));
    assert_eq!(play.work(), Work::Subscribe);
    let number = play.it.number;
    play.give(|it| it.listened(at(2), number)).sends();
    play.answer(3, taken(Some(700))).rests(701, 721);
    play.rest(710).sends();
    play.answer(711, taken(None)).rests(2_000, 2_020);
    play.give(|it| it.woken(at(800))).sends();
    play.answer(801, granted(LEASE_MS));
    let held_until_ns = Some(valid_until_ns(ns(801), LEASE_MS));
    assert_eq!(play.last, Step::Leave { unsubscribe: true, held_until_ns });
    play.leaves(801, false).held();
}

/// Rests on a taken lock.
fn looking(kind: Kind, body: &Body) -> Play {
    let mut play = Play::asks(Wanted { shared_owner: true, ..wanted(kind) });
    play.answer(1, body.clone());
    let number = play.it.number;
    play.give(|it| it.listened(at(2), number)).answer(3, body.clone());
    play
}

#[test]
fn a_subscription_that_fails_ends_the_wait() {
    let mut play = Play::asks(wanted(Kind::Plain));
    play.answer(1, taken(None)).fail(2, silence(false));
    assert_eq!(play.last, Step::Leave { unsubscribe: true, held_until_ns: None });
    play.leaves(2, false).takes_back();
    play.fails(Reason::Store("no answer"));
}

#[test]
fn a_holder_that_notifies_nobody_is_polled() {
    let mut play = looking(Kind::Simple, &foreign());
    // Every second half of a step, and what others of this client add.
    for (least, most) in [(31_250, 62_500), (39_062, 78_125)] {
        let [least, most] = [least, most].map(Duration::from_micros);
        let Work::Rest { least: shortest, most: longest } = play.work() else { panic!() };
        assert_eq!(shortest.as_micros(), least.as_micros());
        assert_eq!(longest.as_micros(), (most + Duration::from_millis(20)).as_micros());
        play.rest(10).answer(11, foreign());
    }
    for _ in 0..20 {
        play.rest(10).answer(11, foreign());
    }
    play.rests(125, 270);
}

#[test]
fn a_former_hold_of_a_lock_without_a_queue_is_looked_at_soon() {
    looking(Kind::Plain, &Body::HeldBySelf { count: 1 }).rests(250, 270);
}

/// The next one in line asked as soon as the one before it was granted the lock: in vain, at each
/// hand-over.
#[test]
fn the_next_in_line_asks_when_the_lock_is_released() {
    let next = |until_ns| {
        let mut play = Play::new(Wanted { until_ns, ..wanted(Kind::Plain) });
        play.give(|it| it.start(at(0)));
        play.give(|it| it.turn(at(10), Some(ns(700)))).rests(690, 710);
        play
    };
    let mut play = next(None);
    play.give(|it| it.woken(at(20))).sends();
    play.answer(21, granted(LEASE_MS));
    assert!(matches!(play.last, Step::Leave { unsubscribe: true, held_until_ns: Some(_) }));
    play.leaves(21, false).held();

    // Its lease is over, or it is not known any more whether messages come.
    let mut play = next(None);
    play.rest(705).sends();
    play.answer(706, taken(None)).rests(2_000, 2_020);

    // Nobody has said no to it, so it asks once.
    let mut play = next(Some(ns(100)));
    play.time(100).sends();
    play.answer(101, taken(None)).leaves(101, false).takes_back();
    play.ends(Outcome::None);
}

/// Others are faster, or the messages are forged.
#[test]
fn a_waiter_that_is_woken_in_vain_asks_more_slowly() {
    let mut play = looking(Kind::Plain, &taken(None));
    for ms in 10..18 {
        play.give(|it| it.woken(at(ms))).sends();
        play.answer(ms, taken(None));
    }
    play.give(|it| it.woken(at(18))).pauses(49);
    play.rest(67).sends();
    play.answer(67, taken(None)).rest(3_000).answer(3_000, taken(None));
    play.give(|it| it.woken(at(3_001))).sends();
}

#[test]
fn a_message_that_comes_while_it_asks_is_not_missed() {
    let mut play = looking(Kind::Plain, &taken(None));
    play.rest(2_000).give(|it| it.woken(at(2_001)));
    assert_eq!(play.last, Step::Wait);
    play.answer(2_002, taken(None)).sends();
}

/// Another waiter of this client was asking, and may have had no reply.
#[test]
fn a_waiter_whose_time_is_up_before_its_turn_asks_once() {
    let in_line = || {
        let mut play = Play::new(Wanted { until_ns: Some(ns(100)), ..wanted(Kind::Plain) });
        play.give(|it| it.start(at(0)));
        assert_eq!(play.last, Step::Turn);
        play.time(100).sends();
        play
    };
    in_line().answer(300, granted(LEASE_MS)).leaves(300, false).held();
    let mut play = in_line();
    play.answer(300, taken(None)).leaves(300, false).takes_back();
    play.ends(Outcome::None);
    let mut play = in_line();
    play.time(600).leaves(600, false).takes_back();
    play.fails(Reason::Silent { last: None, in_doubt: true });
}

/// It was told that the lock is taken, long ago: its last look had no reply.
#[test]
fn d51_a_waiter_without_a_queue_does_not_take_silence_at_its_end_for_taken() {
    for kind in [Kind::Plain, Kind::Simple] {
        let mut play = looking(kind, &taken(None));
        play.rest(2_000).sends();
        play.time(NO_HURRY_MS);
        assert_eq!(play.last, Step::Wait, "an answer may be on its way");
        let mut answered = Play { it: play.it.clone(), known: None, last: Step::Wait };
        answered.answer(NO_HURRY_MS + 9, taken(None)).leaves(NO_HURRY_MS + 9, false).takes_back();
        answered.ends(Outcome::None);
        play.time(NO_HURRY_MS + 500).leaves(NO_HURRY_MS + 500, false).takes_back();
        play.fails(Reason::Silent { last: None, in_doubt: true });
        // The connection was lost since.
        let mut play = looking(kind, &taken(None));
        play.give(|it| it.time(At { connected: false, ..at(NO_HURRY_MS) }));
        assert!(matches!(play.last, Step::Leave { .. }), "{:?}", play.last);
        play.give(|it| it.left_line(At { connected: false, ..at(NO_HURRY_MS) })).takes_back();
        play.fails(Reason::Silent { last: None, in_doubt: false });
    }
}

#[test]
fn a_waiter_without_a_queue_that_had_a_reply_ends_at_once() {
    let mut play = looking(Kind::Plain, &taken(None));
    play.time(NO_HURRY_MS).leaves(NO_HURRY_MS, false);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.ends(Outcome::None);

    // While a later copy is under way.
    let mut play = looking(Kind::Plain, &taken(None));
    play.rest(2_000).give(|it| it.gone(at(2_001))).leaves(2_001, false);
    assert_eq!(play.takes_back(), (only(BURIED), false));
}

const SILENT: Reason<Error> = Reason::Silent { last: None, in_doubt: true };

/// A store that went silent while it was waited for: that was told as "somebody else has it".
#[test]
fn d51_a_waiter_whose_store_is_silent_when_its_time_is_up_is_not_told_no() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS).leaves(NO_HURRY_MS, false);
    play.time(NO_HURRY_MS + 500).fails(SILENT);
    play.give(|it| it.taken_back(at(NO_HURRY_MS + 600), true));
    assert_eq!(play.last, Step::Wait, "it has ended");

    // The call that takes it back has ended without an answer.
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS).leaves(NO_HURRY_MS, false);
    play.give(|it| it.taken_back(at(NO_HURRY_MS + 9), false)).fails(SILENT);

    // Without a connection there is nothing to wait for.
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    let known = play.known.take().expect("it is among the waiters");
    let cut_off = At { connected: false, ..at(NO_HURRY_MS) };
    play.give(|it| it.left_queue(cut_off, known, false));
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.fails(SILENT);

    // Who goes, or is shut down, needs no answer.
    let mut play = Play::waits(wanted(Kind::Fair));
    play.give(|it| it.gone(at(5))).leaves(5, false);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.ends(Outcome::None);
}
