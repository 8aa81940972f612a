//! Stories of locks without a queue.

use super::*;

impl Play {
    #[track_caller]
    fn unsubscribes(&self) {
        assert!(self.effects.contains(&Effect::Unsubscribe), "{:?}", self.effects);
    }
}

/// Stands in line behind another waiter of this client, which gets the lock after 10 ms, subscribed, until 700 ms.
fn in_line(until_ns: Option<u64>) -> (Play, Play) {
    let mut first = Play::asks(wanted(Kind::Plain));
    first.answer(0, taken(None)).listen(0).sends();
    let next = Play::behind(Wanted { until_ns, ..wanted(Kind::Plain) }, first.client.clone());
    assert_eq!(next.last, Step::Wait);
    (first, next)
}

/// A release between the reply and the subscription would be missed otherwise.
#[test]
fn a_waiter_without_a_queue_asks_again_after_it_has_subscribed() {
    let mut play = Play::asks(wanted(Kind::Plain));
    play.answer(1, taken(Some(700)));
    assert_eq!(play.work(), Work::Subscribe);
    play.listen(2).sends();
    play.answer(3, taken(Some(700))).rests(701, 721);
    play.rest(710).sends();
    play.answer(711, taken(None)).rests(2_000, 2_020);
    play.wake(800).sends();
    play.answer(801, granted(LEASE_MS)).unsubscribes();
    play.held();
}

/// Rests on a taken lock.
fn looking(kind: Kind, body: &Body) -> Play {
    let mut play = Play::asks(Wanted { shared_owner: true, ..wanted(kind) });
    play.answer(1, body.clone());
    play.listen(2).answer(3, body.clone());
    play
}

#[test]
fn a_subscription_that_fails_ends_the_wait() {
    let mut play = Play::asks(wanted(Kind::Plain));
    play.answer(1, taken(None)).fail(2, silence(false)).unsubscribes();
    play.takes_back();
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
        let (first, mut play) = in_line(until_ns);
        let first = (first.id, first.number);
        play.give(at(10), |it, here, _| it.answered(here, first, (granted(710), false), 0));
        assert!(!play.effects.contains(&Effect::Unsubscribe), "it is handed down");
        assert!(play.effects.contains(&Effect::Wake));
        play.rests(690, 710);
        play
    };
    let mut play = next(None);
    play.wake(20).sends();
    play.answer(21, granted(LEASE_MS)).unsubscribes();
    play.held();

    // Its lease is over, or it is not known any more whether messages come.
    let mut play = next(None);
    play.rest(705).sends();
    play.answer(706, taken(None)).rests(2_000, 2_020);

    // Nobody has said no to it, so it asks once.
    let mut play = next(Some(ns(100)));
    play.time(100).sends();
    play.answer(101, taken(None)).takes_back();
    play.ends(Outcome::None);
}

/// Others are faster, or the messages are forged.
#[test]
fn a_waiter_that_is_woken_in_vain_asks_more_slowly() {
    let mut play = looking(Kind::Plain, &taken(None));
    for ms in 10..18 {
        play.wake(ms).sends();
        play.answer(ms, taken(None));
    }
    play.wake(18).pauses(49);
    play.rest(67).sends();
    play.answer(67, taken(None)).rest(3_000).answer(3_000, taken(None));
    play.wake(3_001).sends();
}

#[test]
fn a_message_that_comes_while_it_asks_is_not_missed() {
    let mut play = looking(Kind::Plain, &taken(None));
    play.rest(2_000).wake(2_001);
    assert_eq!(play.last, Step::Wait);
    play.answer(2_002, taken(None)).sends();
}

/// Another waiter of this client was asking, and may have had no reply.
#[test]
fn a_waiter_whose_time_is_up_before_its_turn_asks_once() {
    let in_line = || {
        let (_, mut play) = in_line(Some(ns(100)));
        play.time(100).sends();
        play
    };
    in_line().answer(300, granted(LEASE_MS)).held();
    let mut play = in_line();
    play.answer(300, taken(None)).takes_back();
    play.ends(Outcome::None);
    let mut play = in_line();
    play.time(600).takes_back();
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
        let mut answered = play.clone();
        answered.answer(NO_HURRY_MS + 9, taken(None)).takes_back();
        answered.ends(Outcome::None);
        play.time(NO_HURRY_MS + 500).takes_back();
        play.fails(Reason::Silent { last: None, in_doubt: true });
        // The connection was lost since.
        let mut play = looking(kind, &taken(None));
        play.time_at(At { connected: false, ..at(NO_HURRY_MS) }).takes_back();
        play.fails(Reason::Silent { last: None, in_doubt: false });
    }
}

#[test]
fn a_waiter_without_a_queue_that_had_a_reply_ends_at_once() {
    let mut play = looking(Kind::Plain, &taken(None));
    play.time(NO_HURRY_MS);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.ends(Outcome::None);

    // While a later copy is under way.
    let mut play = looking(Kind::Plain, &taken(None));
    play.rest(2_000).gone(2_001);
    assert_eq!(play.takes_back(), (only(BURIED), false));
}

const SILENT: Reason<Error> = Reason::Silent { last: None, in_doubt: true };

/// A store that went silent while it was waited for: that was told as "somebody else has it".
#[test]
fn d51_a_waiter_whose_store_is_silent_when_its_time_is_up_is_not_told_no() {
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    play.time(NO_HURRY_MS + 500).fails(SILENT);
    play.taken_back(NO_HURRY_MS + 600, true);
    assert_eq!(play.last, Step::Wait, "it has ended");

    // The call that takes it back has ended without an answer.
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time(NO_HURRY_MS);
    play.taken_back(NO_HURRY_MS + 9, false).fails(SILENT);

    // Without a connection there is nothing to wait for.
    let mut play = Play::waits(wanted(Kind::Fair));
    play.time_at(At { connected: false, ..at(NO_HURRY_MS) });
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.fails(SILENT);

    // Who goes, or is shut down, needs no answer.
    let mut play = Play::waits(wanted(Kind::Fair));
    play.gone(5);
    assert_eq!(play.takes_back(), (only(LAST), false));
    play.ends(Outcome::None);
}
