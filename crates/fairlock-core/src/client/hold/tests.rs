//! Tests of what a hold knows.

use super::*;

const SECOND: u64 = 1_000_000_000;
pub(in crate::client) const LEASE: Lease = Lease {
    ms: 30_000,
    renewed: true,
    end_ns: None,
    ends_by_max_hold: false,
    may_be_cut: false,
    java_fleet: false,
};
/// For how long a TTL of 30 s counts, and a guard of [`LEASE`] is valid.
const VALID: u64 = 29_700_000_000;

/// A hold that was granted at 0.
fn hold(lease: Lease) -> Hold {
    Hold::new(lease, valid_until_ns(0, lease.ms))
}

/// A guard of which `count` others are left, at the change `number`.
fn left(count: u32, number: u64, unattended: bool) -> GuardEnd {
    GuardEnd { change: Change { count, number }, reads_on: false, unattended }
}

/// A second guard of a writer would go on writing.
#[test]
fn a_hold_with_one_guard_becomes_a_readers() {
    let mut writes = hold(LEASE);
    writes.enter(false).expect("a second guard");
    assert_eq!(writes.begin_reading(), None);
    assert_eq!(writes.leave(false), left(1, 2, false));
    assert_eq!(writes.begin_reading().map(|change| (change.count, change.number)), Some((1, 3)));
    assert_eq!((writes.reads(), writes.begin_reading()), (true, None), "once");
    assert_eq!(writes.enter(false).map(|change| change.count), Some(2));
}

/// D59: a writer that also read, and then ended only its write guard, excluded all others on.
#[test]
fn the_last_guard_that_writes_leaves_a_readers_hold() {
    let mut writes = hold(LEASE);
    writes.enter(true).expect("a guard that reads");
    writes.enter(false).expect("a second one that writes");
    assert_eq!(writes.begin_reading(), None, "the other one writes");
    assert_eq!(writes.leave(false), left(2, 3, false));
    let last = GuardEnd { reads_on: true, ..left(1, 4, false) };
    assert_eq!((writes.leave(false), writes.reads()), (last, true));
    writes.enter(true).expect("a reader");
    assert_eq!(writes.leave(true), left(1, 7, false), "once");
    assert_eq!(writes.leave(true), left(0, 8, true));
}

/// Only a guard that writes has something to give up.
#[test]
fn a_writer_reads_on_however_many_read_beside_it() {
    let mut writes = hold(LEASE);
    writes.enter(true).expect("a guard that reads");
    writes.enter(true).expect("another one");
    assert_eq!(writes.leave(true), left(2, 3, false), "a writer is left");
    assert_eq!(writes.begin_reading(), Some(Change { count: 2, number: 4 }));
    assert_eq!(writes.leave(false), left(1, 5, false));
    // A detached guard that writes is never given back.
    let mut writes = hold(LEASE);
    writes.enter(true).expect("a guard that reads");
    writes.detach();
    assert_eq!((writes.leave(true), writes.reads()), (left(1, 2, true), false));
}

fn look(renew: bool, next_ns: u64) -> Option<Look> {
    Some(Look { valid_until_ns: VALID, next_ns, renew, silence: None })
}

fn somebody() -> OwnerId {
    OwnerId::parse(b"somebody")
}

/// The watchdog begins to watch it.
fn watched(hold: &mut Hold, now_ns: u64, whole: bool) -> u64 {
    hold.granted_whole(whole);
    hold.watched(now_ns)
}

#[test]
fn a_hold_is_renewed_each_third_of_its_lease() {
    let mut hold = hold(LEASE);
    assert_eq!(watched(&mut hold, 0, true), 10 * SECOND);
    assert_eq!(hold.look(10 * SECOND), look(true, 14_925 * SECOND / 1_000));
    assert_eq!(hold.begin_renewal(10 * SECOND), Some(30_000));
    let again = hold.renewed(11 * SECOND, 10 * SECOND, 30_000);
    assert_eq!(again, Some(20 * SECOND), "counted from when it was sent");
    assert_eq!(hold.valid_until_ns(), 10 * SECOND + VALID);
    assert!(!hold.renewal_over(), "nobody waits for its end");
}

/// Its TTL is shorter than its lease until the first renewal.
#[test]
fn a_grant_by_message_is_renewed_soon() {
    let mut hold = Hold::new(LEASE, valid_until_ns(0, 1_000));
    assert_eq!(watched(&mut hold, 0, false), SECOND / 10);
    let mut short = Hold::new(LEASE, 5);
    assert_eq!(watched(&mut short, 0, false), 5);
}

#[test]
fn an_explicit_lease_is_only_confirmed() {
    let mut hold = hold(Lease { renewed: false, end_ns: Some(30 * SECOND), ..LEASE });
    assert_eq!(watched(&mut hold, 0, true), VALID);
    assert_eq!(hold.look(SECOND), look(false, VALID));
    hold.connection_lost(0);
    assert_eq!(hold.standing(), Standing::Suspect);
    assert_eq!(hold.look(SECOND), look(true, 8_175 * SECOND / 1_000));
    assert_eq!(hold.begin_renewal(20 * SECOND), Some(10_000), "what is left of it");
    assert!(hold.renewed(20 * SECOND, 20 * SECOND, 10_000).is_some());
    assert_eq!(hold.standing(), Standing::Held);
    assert!(hold.look(21 * SECOND).is_some_and(|look| !look.renew));
}

/// J7: where Redisson's readers cut the lock's life, a longer lease of ours would end with it,
/// unnoticed.
#[test]
fn a_long_lease_is_kept_up_until_nobody_can_cut_it() {
    let end_ns = Some(60 * SECOND);
    let mut hold = Hold::new(
        Lease { ms: 60_000, renewed: false, end_ns, may_be_cut: true, ..LEASE },
        valid_until_ns(0, 60_000),
    );
    assert_eq!(watched(&mut hold, 0, true), 10 * SECOND);
    assert!(hold.look(10 * SECOND).is_some_and(|look| look.renew));
    assert_eq!(hold.begin_renewal(10 * SECOND), Some(50_000), "no longer than it was");
    assert_eq!(hold.renewed(10 * SECOND, 10 * SECOND, 50_000), Some(20 * SECOND));
    assert_eq!(hold.renewed(31 * SECOND, 31 * SECOND, 29_000), Some(hold.valid_until_ns()));
    assert!(hold.look(31 * SECOND).is_some_and(|look| !look.renew));
}

/// R2 of the trial on shares: Redisson's watchdog had cut the lock to 30 s, and died; ours came
/// every 40 s.
#[test]
fn a_long_lease_that_is_renewed_is_kept_up_too() {
    let long = Lease { ms: 120_000, may_be_cut: true, ..LEASE };
    let mut hold = Hold::new(long, valid_until_ns(0, 120_000));
    assert_eq!(watched(&mut hold, 0, true), 10 * SECOND);
    assert_eq!(hold.renewed(10 * SECOND, 10 * SECOND, 120_000), Some(20 * SECOND));
    let mut short = Hold::new(Lease { ms: 6_000, ..long }, valid_until_ns(0, 6_000));
    assert_eq!(watched(&mut short, 0, true), 2 * SECOND);
}

/// A trial beside Redisson's jars: one of its readers cut the lock to 30 s, and ours, with a lease of 100 s, could not
/// reach the store just then. A writer of Java's came in 70 s before ours noticed.
#[test]
fn beside_java_no_answer_is_relied_on_for_longer_than_its_readers_leave_the_lock() {
    let long = Lease { ms: 100_000, may_be_cut: true, java_fleet: true, ..LEASE };
    for lease in [long, Lease { renewed: false, end_ns: Some(100 * SECOND), ..long }] {
        let mut hold = Hold::new(lease, valid_until_ns(0, lease.uncut_ms(100_000)));
        assert_eq!(hold.valid_until_ns(), valid_until_ns(0, 30_000));
        assert_eq!(watched(&mut hold, 0, true), 10 * SECOND);
        assert_eq!(hold.renewed(10 * SECOND, 10 * SECOND, 90_000), Some(20 * SECOND));
        assert_eq!(hold.valid_until_ns(), valid_until_ns(10 * SECOND, 30_000));
        hold.unanswered(20 * SECOND);
        assert_eq!(hold.time(40 * SECOND), Standing::Lost(Loss::Unreachable));
    }
    assert_eq!(Lease { java_fleet: false, ..long }.uncut_ms(100_000), 100_000);
    // What is left after that is relied on to its end.
    let lease = Lease { ms: 31_000, renewed: false, end_ns: Some(31 * SECOND), ..long };
    let mut hold = Hold::new(lease, valid_until_ns(0, lease.uncut_ms(31_000)));
    assert!(hold.look(10 * SECOND).is_some_and(|look| look.renew));
    hold.renewed(10 * SECOND, 10 * SECOND, 21_000);
    assert_eq!(hold.valid_until_ns(), valid_until_ns(10 * SECOND, 21_000));
    assert!(hold.look(20 * SECOND).is_some_and(|look| !look.renew));
}

/// The lease of several locks begins with the last of them. The server ended it when the guards did, or sooner if its
/// clock is faster: what they were renewed for before hid the margin.
#[test]
fn a_lease_that_begins_later_ends_before_the_store_ends_it() {
    let mut hold = hold(LEASE);
    hold.lease_begins(SECOND, 4_000);
    let valid = SECOND + 3_960 * SECOND / 1_000;
    assert_eq!(hold.valid_until_ns(), valid, "whether or not the store is told");
    // A renewal of the watchdog that was under way: the next one replaces what it gave.
    hold.renewed(2 * SECOND, SECOND - 1, 30_000);
    assert_eq!(hold.valid_until_ns(), valid);
    let ttl_ms = hold.lease().wanted_ms(2 * SECOND);
    assert_eq!(ttl_ms, 3_000);
    hold.renewed(2 * SECOND, 2 * SECOND, ttl_ms);
    assert_eq!(hold.valid_until_ns(), valid_until_ns(2 * SECOND, ttl_ms));
}

/// D50: on a store that keeps its connection and says nothing, the guard of a short lease went from Held
/// to Lost, and its holder had no time to end its work.
#[test]
fn a_renewal_that_is_not_answered_makes_a_hold_suspect_before_its_last_third() {
    for lease_ms in [1_000, 2_000, 3_000, 4_000, 5_000, 30_000] {
        let lease = Lease { ms: lease_ms, ..LEASE };
        let mut hold = hold(lease);
        let mut at = watched(&mut hold, 0, true);
        let (mut sent, mut doubted, mut silence) = (0, None, None);
        while let Some(look) = hold.look(at) {
            sent += u32::from(look.renew);
            if hold.standing() == Standing::Suspect {
                doubted.get_or_insert(at);
            }
            silence = silence.or_else(|| look.silence.map(|silence| (at, silence)));
            at = look.next_ns;
        }
        let (third, end) = (ns(lease_ms / 3), hold.valid_until_ns());
        assert_eq!((at, sent), (end, 1), "one renewal, not one for each look");
        let doubted = doubted.expect("it is doubted");
        assert!(doubted >= third + ns(300), "{lease_ms}: {doubted}");
        assert!(doubted <= end - third + ns(lease_ms / 30), "{lease_ms}: {doubted}");
        let (given_up, silence) = silence.expect("the connection is given up");
        assert_eq!((silence.since_ns, given_up), (third, third + silence.longest_ns));
        assert_eq!(silence.longest_ns, hold.patience_ns(third));
        // A lease of a second ends before another connection could be silent for as long.
        let next = if lease_ms > 1_000 { silence.longest_ns / 2 } else { 0 };
        assert!(given_up > doubted && given_up + next < end, "{lease_ms}");
        assert_eq!(hold.standing(), Standing::Lost(Loss::Unreachable));
    }
}

#[test]
fn a_lost_connection_and_an_answer_end_the_wait_for_a_renewal() {
    let mut hold = hold(LEASE);
    assert!(hold.look(10 * SECOND).is_some_and(|look| look.renew));
    assert!(hold.look(15 * SECOND).is_some_and(|look| !look.renew));
    assert_eq!(hold.standing(), Standing::Suspect);
    hold.connection_lost(0);
    assert!(hold.look(16 * SECOND).is_some_and(|look| look.renew), "over the next connection");
    hold.renewed(17 * SECOND, 16 * SECOND, 30_000);
    assert_eq!(hold.standing(), Standing::Held);
    // A process that stood still looks late, and its answer may be there: its connection stays.
    assert!(hold.look(26 * SECOND).is_some_and(|look| look.renew));
    let late = hold.look(40 * SECOND).expect("it is valid");
    assert_eq!((late.renew, late.silence), (false, None));
    let later = hold.look(late.next_ns).expect("it is valid");
    assert_eq!(later.silence.map(|silence| silence.since_ns), Some(26 * SECOND));
}

#[test]
fn an_unanswered_renewal_is_repeated_more_often_near_the_end() {
    let mut hold = hold(LEASE);
    assert_eq!(hold.unanswered(0), SECOND / 2);
    assert_eq!(hold.standing(), Standing::Suspect);
    assert_eq!(hold.unanswered(VALID - SECOND), VALID - 3 * SECOND / 4);
    assert_eq!(hold.unanswered(VALID - 1), VALID);
    assert_eq!(hold.look(VALID), None);
    assert_eq!(hold.standing(), Standing::Lost(Loss::Unreachable));
}

#[test]
fn why_time_was_up() {
    let end_ns = Some(30 * SECOND);
    let leases = [
        (LEASE, Loss::Expired),
        (Lease { renewed: false, end_ns, ..LEASE }, Loss::Expired),
        (Lease { end_ns, ends_by_max_hold: true, ..LEASE }, Loss::MaxHold),
    ];
    for (lease, loss) in leases {
        assert_eq!(hold(lease).time(VALID), Standing::Lost(loss), "{lease:?}");
    }
    let mut silent = hold(LEASE);
    silent.begin_renewal(0);
    assert_eq!(silent.time(VALID), Standing::Lost(Loss::Unreachable));
}

#[test]
fn why_the_store_says_that_it_is_gone() {
    for (forced, holder, loss) in [
        (true, None, Loss::Forced),
        (true, Some(somebody()), Loss::Forced),
        (false, Some(somebody()), Loss::Replaced),
        (false, None, Loss::DataLost),
    ] {
        let mut hold = hold(LEASE);
        if forced {
            hold.reported_taken(0);
        }
        hold.gone(SECOND, holder.clone());
        assert_eq!(hold.standing(), Standing::Lost(loss));
        assert_eq!(hold.taken_by(), holder.as_ref());
    }
    let mut over = hold(LEASE);
    over.gone(VALID, Some(somebody()));
    assert_eq!(over.standing(), Standing::Lost(Loss::Expired), "the clock comes first");
    assert_eq!(over.taken_by(), None);
}

#[test]
fn a_report_that_the_store_denies_is_forgotten() {
    let mut hold = hold(LEASE);
    watched(&mut hold, 0, true);
    hold.reported_taken(0);
    assert!(hold.renewed(SECOND, SECOND, 30_000).is_some());
    hold.gone(2 * SECOND, None);
    assert_eq!(hold.standing(), Standing::Lost(Loss::DataLost));
}

/// The store renewed the hold, then `unlock --force` ended it. The client read the message about the force first and the
/// answer to the renewal second, and believed the answer: it held an explicit lease to its end, beside the next holder.
#[test]
fn a_renewal_from_before_a_doubt_does_not_end_it() {
    let doubts: [fn(&mut Hold); 3] = [
        |hold| hold.reported_taken(2 * SECOND),
        |hold| hold.must_be_confirmed(2 * SECOND),
        |hold| hold.connection_lost(2 * SECOND),
    ];
    for doubt in doubts {
        let mut hold = hold(Lease { renewed: false, end_ns: Some(30 * SECOND), ..LEASE });
        watched(&mut hold, 0, true);
        doubt(&mut hold);
        let look_ns = hold.renewed(3 * SECOND, SECOND, 30_000).expect("valid");
        assert!(look_ns < 4 * SECOND, "{look_ns}");
        assert!(hold.look(look_ns).is_some_and(|look| look.renew));
        assert_eq!(hold.renewed(5 * SECOND, look_ns, 25_000), Some(hold.valid_until_ns()));
    }
    let mut hold = hold(LEASE);
    hold.reported_taken(2 * SECOND);
    let _ = hold.renewed(3 * SECOND, SECOND, 30_000);
    hold.gone(4 * SECOND, Some(somebody()));
    assert_eq!(hold.standing(), Standing::Lost(Loss::Forced));
}

/// Forged messages, sent all the time, kept a hold from becoming Suspect while the store did not answer.
#[test]
fn messages_do_not_make_a_silent_store_patient() {
    let mut hold = hold(LEASE);
    watched(&mut hold, 0, false);
    let mut now_ns = SECOND;
    while hold.standing() == Standing::Held && hold.look(now_ns).is_some() {
        hold.reported_taken(now_ns);
        now_ns += SECOND / 20;
    }
    assert_eq!(hold.standing(), Standing::Suspect, "at {now_ns}");
}

#[test]
fn a_late_reply_does_not_shorten_it() {
    let mut hold = hold(LEASE);
    assert!(hold.renewed(10 * SECOND, 10 * SECOND, 30_000).is_some());
    assert!(hold.renewed(10 * SECOND, SECOND, 30_000).is_some());
    assert_eq!(hold.valid_until_ns(), 10 * SECOND + VALID);
}

#[test]
fn nobody_enters_or_renews_what_is_being_left() {
    let mut hold = hold(LEASE);
    let second = hold.enter(false);
    assert_eq!(second, Some(Change { count: 2, number: 1 }));
    assert!(!hold.begin_leaving(5 * SECOND), "the other guard counts on renewals");
    assert_eq!(hold.leave(false), left(1, 2, false));
    assert!(hold.begin_renewal(SECOND).is_some());
    assert!(hold.begin_leaving(5 * SECOND));
    assert_eq!(hold.valid_until_ns(), 5 * SECOND, "before anything is sent");
    assert_eq!((hold.enter(false), hold.begin_renewal(SECOND)), (None, None));
    assert!(hold.renewed(SECOND, SECOND, 30_000).is_some(), "what was sent before");
    assert_eq!(hold.valid_until_ns(), 5 * SECOND);
    assert!(hold.renewal_over(), "the last renewal goes after that");
    hold.left(2 * SECOND, 2 * SECOND, 3_000);
    assert_eq!(hold.valid_until_ns(), valid_until_ns(2 * SECOND, 3_000));
}

/// "Done for this hour", after a longest hold of a minute.
#[test]
fn it_may_be_left_for_longer_than_it_could_be_held() {
    let mut hold = hold(Lease { end_ns: Some(60 * SECOND), ends_by_max_hold: true, ..LEASE });
    assert!(hold.begin_leaving(3_600 * SECOND));
    assert!(hold.lease.ends_by_max_hold);
    hold.left(SECOND, SECOND, 3_599_000);
    assert_eq!(hold.valid_until_ns(), valid_until_ns(SECOND, 3_599_000));
    // Left for less: that is why it ends, and not its longest hold.
    assert!(hold.begin_leaving(30 * SECOND));
    assert!(!hold.lease.ends_by_max_hold);
}

#[test]
fn what_is_detached_is_not_renewed() {
    let mut hold = hold(LEASE);
    watched(&mut hold, 0, true);
    hold.enter(false);
    assert_eq!(hold.detach(), VALID);
    assert!(!hold.is_unattended());
    assert_eq!(hold.look(SECOND), look(false, VALID));
    assert!(hold.renewed(SECOND, SECOND, 30_000).is_some());
    assert_eq!(hold.valid_until_ns(), VALID);
    assert_eq!(hold.leave(false), left(1, 2, true));
    assert!(!hold.has_ended());
}

/// The answer to a renewal that was sent after the end gave the hold a moment beyond it, though it was lost by then.
#[test]
fn a_renewal_sent_after_the_end_gives_nothing() {
    let mut hold = hold(Lease { end_ns: Some(5 * SECOND), ..LEASE });
    assert_eq!(hold.renewed(7 * SECOND, 6 * SECOND, 30_000), None);
    assert_eq!(hold.valid_until_ns(), 5 * SECOND);
    assert_eq!(hold.standing(), Standing::Lost(Loss::Expired));
}

#[test]
fn what_has_ended_stays_so() {
    let mut hold = hold(LEASE);
    assert_eq!(hold.leave(false), left(0, 1, true));
    assert!(hold.has_ended());
    assert_eq!(hold.enter(false), None);
}

#[test]
#[should_panic(expected = "K10")]
fn a_guard_that_never_was_cannot_leave() {
    let mut hold = hold(LEASE);
    let _ = hold.leave(false);
    let _ = hold.leave(false);
}
