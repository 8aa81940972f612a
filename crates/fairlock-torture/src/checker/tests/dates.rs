//! Deadlines that are met, and that are missed.

use super::server::{BEGAN, HANDED, QUEUED, TAKEN, log_at};
use super::*;

/// The start of the tests in the milliseconds of [`History::fault`].
fn began() -> u64 {
    both::on_boot(*BEGAN) / MS
}

/// `A` has the lock and `B` is in the queue; then `then` follows, each entry this many milliseconds
/// after the start of the tests.
fn behind(then: &[(i64, &str)]) -> History {
    log_at(&[&[(0, TAKEN), (0, QUEUED)], then].concat())
}

const HANDED_LATE: &str = "SET T t6000000 KEEPTTL; HSET L B 1; PEXPIREAT L +7; LPOP Q; ZREM S B; HSET R grant y; \
                           ZREM O B; HDEL R B";

#[test]
fn l3_l4_a_lock_is_not_free_for_long_while_somebody_waits() {
    // Released, and granted to the next waiter at once, or 6 s later.
    let late = |pause: i64| behind(&[(6_000 - pause, "DEL L"), (6_000, HANDED_LATE)]);
    assert_eq!(late(2_900).finds(&[]).followed, 1);
    late(3_100).finds(&["waited behind the dead"]);
    // Its lease of 5 s had expired, and a script noticed.
    let found = |at: i64| {
        let token = format!("SET T t{at}000 KEEPTTL");
        behind(&[(
            at,
            &format!("DEL L; {}", HANDED_LATE.replace("SET T t6000000 KEEPTTL", &token)),
        )])
    };
    found(7_900).finds(&[]);
    found(8_100).finds(&["free for 3"]);
    // A killed process is no excuse; a hanging one is, for one deadline; other faults excuse any
    // length.
    let fault = |kind, at: i64| found(at).fault(kind, began(), began() + 9_000);
    fault(Kind::WorkerKilled, 8_100).finds(&["waited behind the dead"]);
    fault(Kind::WorkerStopped, 8_100).finds(&[]);
    fault(Kind::WorkerStopped, 11_600).finds(&["waited behind processes that hang"]);
    fault(Kind::ConnectionsKilled, 11_600).finds(&[]);
}

/// Nobody was queued while it was free.
#[test]
fn l3_who_comes_later_waits_from_then_on() {
    let came = QUEUED.replace("ZADD O 7 B", "ZADD O t5900000 B");
    log_at(&[(0, TAKEN), (100, "DEL L"), (5_900, &came), (6_000, HANDED_LATE)]).finds(&[]);
    log_at(&[(0, TAKEN), (100, "DEL L"), (100, QUEUED), (6_000, HANDED_LATE)])
        .finds(&["waited behind the dead"]);
}

#[test]
fn l5_a_grant_that_nobody_takes_is_over_soon() {
    let handed =
        |seconds: &str| HANDED.replace("t6", "t1000000").replace("+1;", &format!("{seconds};"));
    behind(&[(1_000, &handed("+2"))]).finds(&[]);
    behind(&[(1_000, &handed("+4"))]).finds(&["3000 ms to say that it heard of its grant"]);
    // The client that forced it open grants for as long as its own settings say. Tokens are ahead
    // after a clock was.
    let ahead = handed("+4").replace("t1000000", "t2300000");
    let at = began();
    behind(&[(1_000, &ahead)]).finds(&["1700 ms to say that it heard of its grant"]);
    behind(&[(1_000, &ahead)]).fault(Kind::ForceUnlocked, at + 900, at + 1_100).finds(&[]);
    // A grant in the reply to its own call gets the whole lease.
    let own = handed("+4").replace("DEL L;", "");
    behind(&[(900, "DEL L"), (1_000, &own)]).finds(&[]);
    let at = began();
    behind(&[(1_000, &handed("+4"))]).fault(Kind::ClockForward, at, at + 2_000).finds(&[]);
}

#[test]
fn l9_a_hold_is_renewed_after_a_third_of_its_lease() {
    let taken = TAKEN.replace("+5", "+3");
    let renewed = |first: i64, second: i64| {
        let one = |at: i64| format!("PEXPIREAT R +60; PEXPIREAT L +{}", (at + 3_000) / 1_000);
        log_at(&[
            (0, &taken),
            (first, &one(first)),
            (second, &one(second)),
            (second + 500, "DEL L; DEL O R H"),
        ])
    };
    assert_eq!(renewed(1_000, 2_000).finds(&[]).renewed, 2);
    renewed(2_000, 5_000).finds(&["not renewed for 3000 ms"]);
    let at = began();
    renewed(2_000, 5_000).fault(Kind::WorkerStopped, at, at + 5_000).finds(&[]);
    // Released by its holder, long after the renewal was due.
    let never = |at| log_at(&[(0, taken.as_str()), (at, "DEL L; DEL O R H")]);
    never(1_900).finds(&[]);
    never(2_100).finds(&["not renewed for 2"]);
    // An explicit lease: extended once, never renewed.
    log_at(&[(0, &taken), (100, "PEXPIREAT L +5"), (4_500, "DEL L; DEL O R H")]).finds(&[]);
}

#[test]
fn i11_a_turn_that_is_over_does_not_come_back() {
    let again =
        |end| behind(&[(10, HANDED), (20, end), (30, "SET T t30000; HSET L B 1; PEXPIREAT L +5")]);
    again("DEL L; DEL O R H").finds(&["was granted it again after its turn was over"]);
    let at = began();
    again("DEL L; DEL O R H").fault(Kind::RequestsReplayed, at, at + 100).finds(&[]);
    again("DEL L; DEL O R H").fault(Kind::InboxesKilled, at, at + 100).finds(&["granted it again"]);
    // It did not answer in time and returns to its place.
    let over = HANDED.replace("t6", "t10000");
    let back = QUEUED.replace("ZADD O 7 B", "ZADD O t1100000 B");
    let granted = HANDED.replace("t6", "t1200000").replace("DEL L;", "").replace("L +1;", "L +2;");
    behind(&[(10, &over), (1_050, "DEL L"), (1_100, &back), (1_200, &granted)]).finds(&[]);
}

#[test]
fn l6_every_client_has_a_turn_again() {
    let recovered = |ms: u64| {
        let mut history = History::default();
        let healed = 5_000 * MS;
        let at = healed + ms * MS;
        history.inputs.push(Input::Recovered { kind: Kind::Restarted, healed, at });
        history
    };
    recovered(12_900).fault(Kind::Restarted, 4_000, 18_000).finds(&[]);
    recovered(13_100)
        .fault(Kind::Restarted, 4_000, 18_100)
        .finds(&["server killed and restarted with its log: over at 5000000000, and somebody"]);
    let mut starved = recovered(13_100);
    starved.inputs.push(Input::Starved { from: 6_000 * MS, until: 8_000 * MS });
    starved.finds(&[]);
    let mut stopped = recovered(13_100);
    stopped.inputs.push(Input::Stalled { from: 5_000 * MS, until: 6_900 * MS });
    stopped.finds(&["server killed"]);
}

#[test]
fn l8_nobody_waits_for_a_free_lock() {
    let turns = |gap: u64| {
        let mut notes = vec![granted(10, "a:1", 1), placed(12, "z:1")];
        let mut at = 20;
        // Other requests made before it, each granted a while after the last.
        for turn in 0..3 {
            notes.push(ended(at, if turn == 0 { "a:1" } else { "b:1" }, End::Released));
            at += gap;
            notes.push(asked_and_granted(11, at, "b:1", 2 + turn));
            at += 1;
        }
        notes.push(ended(at, "b:1", End::Released));
        notes.push(asked_and_granted(11, at + 1, "z:1", 9));
        notes.push(ended(at + 2, "z:1", End::Released));
        History::of(&notes)
    };
    turns(1_100).finds(&[]);
    turns(1_200).finds(&["it was free for 36"]);
    turns(1_200).fault(Kind::InboxesKilled, 100, 200).finds(&[]);
}

#[test]
fn l10_nobody_asks_in_a_circle() {
    let asked = |turns: u64, scripts: u64| {
        let notes: Vec<_> = (0..turns)
            .flat_map(|turn| {
                let (at, owner) = (5_000 + turn, format!("a:{turn}"));
                [granted(at, &owner, turn + 1), ended(at, &owner, End::Released)]
            })
            .collect();
        let mut history = History::of(&notes);
        let (from, until) = (5_000 * MS, 6_000 * MS);
        history.inputs.push(Input::Asked { from, until, scripts });
        history
    };
    assert_eq!(asked(100, 1_400).finds(&[]).calls_checked, 1);
    asked(100, calls::WAITING + 100 * calls::A_TURN).finds(&[]);
    asked(100, calls::WAITING + 101 * calls::A_TURN).finds(&["for 100 turns"]);
    asked(0, calls::WAITING + 1).finds(&["for 0 turns"]);
    let disturbed = asked(0, 11_000).fault(Kind::ConnectionsKilled, 4_000, 5_100);
    assert_eq!(disturbed.finds(&[]).calls_checked, 0);
}

#[test]
fn h1_what_is_left_is_over_by_itself() {
    use super::rest::Left;
    let left = |key: &str, seconds: Option<u64>| {
        let (key, ttl) = (key.to_owned(), seconds.map(Duration::from_secs));
        rest::check(&[Left { key, ttl }], false)
    };
    assert!(left("redisson_lock_token:{fair-0}", Some(600_000)).is_empty());
    assert!(left("redisson_lock_queue:{fair-0}", Some(86_000)).is_empty());
    assert!(left("fairlock_state:{fair-0}", Some(60)).is_empty());
    assert_eq!(left("fair-0", Some(2)), ["fair-0 is still held, for 2000 ms"]);
    assert_eq!(left("redisson_lock_token:{x}", None), ["redisson_lock_token:{x} is left for ever"]);
    let token = Left { key: "redisson_lock_token:{x}".into(), ttl: None };
    assert!(rest::check(&[token], true).is_empty());
    assert_eq!(left("fairlock_state:{x}", Some(600)), ["fairlock_state:{x} is left for 600 s"]);
}
