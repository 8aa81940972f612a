//! What the server's log shows, alone and together with what the clients saw.

use super::*;
use crate::log::effects::Command;
use crate::log::tail::wall_us;
use fairlock_testkit::history::now_ns;
use std::sync::LazyLock;

/// A fairlock client.
const A: &str = "aaaaaaaa-0000-8000-8000-000000000000:1";
const B: &str = "bbbbbbbb-0000-8000-8000-000000000000:1";

/// The start of these tests on the wall clock, at a whole millisecond.
pub(super) static BEGAN: LazyLock<i64> = LazyLock::new(|| wall_us() / 1_000 * 1_000);

/// Tokens are microseconds since the start.
fn token(number: u64) -> u64 {
    u64::try_from(*BEGAN).unwrap() + number
}

fn command(text: &str) -> Command {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Groups of commands, one per line, separated by semicolons. `A` and `B` are owners, `A.` and `B.`
/// their clients; `+5` is five seconds from now in milliseconds, `t5` a token, and `Q`, `S`, `T`,
/// `O`, `R`, `H` are the queue, scores, token, order, records and heartbeats of the lock `fair-0`.
fn log(text: &str) -> History {
    log_of(&[(wall_us(), text)], wall_us())
}

/// The same, each entry this many milliseconds after the start of the tests, from which `+5` also
/// counts.
pub(super) fn log_at(parts: &[(i64, &str)]) -> History {
    let parts: Vec<_> = parts.iter().map(|(ms, text)| (*BEGAN + ms * 1_000, *text)).collect();
    log_of(&parts, *BEGAN)
}

fn log_of(parts: &[(i64, &str)], now_us: i64) -> History {
    let word = |word: &str| match word {
        "A" => A.to_owned(),
        "B" => B.to_owned(),
        "A." | "B." => {
            let owner = if word == "A." { A } else { B };
            owner.split(':').next().unwrap().to_owned()
        }
        "L" => "fair-0".to_owned(),
        "Q" => "redisson_lock_queue:{fair-0}".to_owned(),
        "S" => "redisson_lock_timeout:{fair-0}".to_owned(),
        "T" => "redisson_lock_token:{fair-0}".to_owned(),
        "O" => "fairlock_order:{fair-0}".to_owned(),
        "R" => "fairlock_state:{fair-0}".to_owned(),
        "H" => "fairlock_beats:{fair-0}".to_owned(),
        _ if word.starts_with('t') && word[1..].parse::<u64>().is_ok() => {
            token(word[1..].parse().unwrap()).to_string()
        }
        _ => match word.strip_prefix('+').map(str::parse::<i64>) {
            Some(Ok(seconds)) => (now_us / 1_000 + seconds * 1_000).to_string(),
            _ => word.to_owned(),
        },
    };
    let mut history = History { has_log: true, ..History::default() };
    for (read_us, text) in parts {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let commands = line.split(';').map(|text| {
                let words: Vec<_> = text.split_whitespace().map(word).collect();
                command(&words.join(" "))
            });
            let commands = commands.collect();
            history.inputs.push(Input::Effects { read_us: *read_us, commands });
        }
    }
    history
}

pub(super) const TAKEN: &str = "SET T t5 PXAT +60; HSET L A 1; PEXPIREAT L +5\n";
pub(super) const QUEUED: &str = "ZADD H 0 B.; PEXPIREAT H +60; RPUSH Q B; ZADD O 7 B; PEXPIREAT O +60; ZADD S 9 B; \
                      HSET R B x; PEXPIREAT R +60\n";
pub(super) const HANDED: &str = "DEL L; SET T t6 KEEPTTL; HSET L B 1; PEXPIREAT L +1; LPOP Q; ZREM S B; \
                      HSET R grant y; ZREM O B; HDEL R B\n";

#[test]
fn a_turn_is_sound() {
    let found = log(&format!("{TAKEN}{QUEUED}{HANDED}DEL L; DEL O R H")).finds(&[]);
    assert_eq!(found.logged, 2);
}

#[test]
fn i1_a_lock_that_is_held_is_granted_to_nobody() {
    log(&format!("{TAKEN}SET T t6; HSET L B 1; PEXPIREAT L +5"))
        .finds(&["was granted it while aaaaaaaa"]);
}

#[test]
fn i4_i11_every_grant_has_a_larger_token() {
    log(&format!("{TAKEN}DEL L; SET T t5; HSET L B 1; PEXPIREAT L +5"))
        .finds(&["was granted it with token Some("]);
    log(&format!("{TAKEN}DEL L\nHSET L A 1; PEXPIREAT L +5")).finds(&["with token None after"]);
    // Tokens rise whatever is lost in between, unless the clock was set back as well.
    let lost = || log(&format!("{TAKEN}FLUSHALL\nSET T t4; HSET L B 1; PEXPIREAT L +5"));
    let now = now_ns() / MS;
    lost().fault(Kind::ClockBackward, now, now + 10).finds(&[]);
    let kept = format!("{TAKEN}DEL L\nSET T t4; HSET L B 1; PEXPIREAT L +5");
    log(&kept).fault(Kind::ClockBackward, now, now + 10).finds(&["was granted it with token"]);
    log(&format!("{TAKEN}FLUSHALL\nSET T t4; HSET L B 1; PEXPIREAT L +5"))
        .fault(Kind::Flushed, 0, 1)
        .finds(&["was granted it with token Some("]);
}

#[test]
fn i5_i6_nobody_overtakes() {
    let late = "SET T t6; HSET L cccccccc-0000-8000-8000-000000000000:1 1; PEXPIREAT L +5";
    log(&format!("{TAKEN}{QUEUED}DEL L; {late}")).finds(&["stood before it"]);
}

#[test]
fn i7_nobody_who_was_heard_is_taken_out_for_dead() {
    let out = "LPOP Q; ZREM S B; ZREM O B; HDEL R B; HSET R removed 1000; PEXPIREAT R +60\n";
    log(&format!("{TAKEN}{QUEUED}ZADD H 900 B.\n{out}"))
        .finds(&["was taken out, heard 100 ms before"]);
    log(&format!("{TAKEN}{QUEUED}ZADD H -900 B.\n{out}")).finds(&[]);
}

#[test]
fn i9_a_count_goes_up_and_down_by_one() {
    log(&format!("{TAKEN}HSET L A 2\nHSET L A 2\nHSET L A 1")).finds(&[]);
    log(&format!("{TAKEN}HSET L A 3")).finds(&["1 times, then 3 times"]);
    log("SET T t5; HSET L A 2; PEXPIREAT L +5").finds(&["2 times at once"]);
}

#[test]
fn i12_what_is_held_and_what_is_ours_has_a_ttl() {
    log("SET T t5; HSET L A 1").finds(&["holds it without a TTL"]);
    log("HSET R x y").finds(&["State has no TTL"]);
    log(&format!("{TAKEN}PERSIST L")).finds(&[]);
    log(&format!("{TAKEN}PERSIST L\nPEXPIREAT L +5\nDEL L; SET T t6; HSET L B 1"))
        .finds(&["holds it without a TTL"]);
}

#[test]
fn i15_queue_and_scores_agree() {
    log(&format!("{TAKEN}{QUEUED}RPUSH Q B")).finds(&["twice"]);
    log(&format!("{TAKEN}{QUEUED}ZREM S B")).finds(&["without a score"]);
    log(&format!("{TAKEN}{QUEUED}LPOP Q")).finds(&["no place in the queue"]);
    log(&format!("{TAKEN}{QUEUED}HSET L A 2; RPUSH Q A; ZADD S 9 A"))
        .finds(&["holds it and stands in the queue"]);
    log(&format!("{TAKEN}{QUEUED}ZREM O B; PEXPIREAT R +60")).finds(&["has no number"]);
    let first = "LPUSH Q cccccccc:1; ZADD S 9 cccccccc:1; ZADD O 8 cccccccc:1";
    log(&format!("{TAKEN}{QUEUED}{first}")).finds(&["stands behind number 8"]);
}

#[test]
fn what_an_operator_takes_away_is_not_judged_until_it_is_mended() {
    log(&format!("{TAKEN}{QUEUED}DEL S\nPEXPIREAT R +60\nZADD S 9 B; PEXPIREAT R +60")).finds(&[]);
    log(&format!("{TAKEN}{QUEUED}DEL S\nZADD S 9 B; PEXPIREAT R +60\nZREM S B"))
        .finds(&["without a score"]);
}

/// A waiter whose grant expired before it answered is in no queue. It returns, and the same script
/// may find the lock free.
#[test]
fn i5_who_returns_to_its_place_is_granted_from_there() {
    let returned = |push: &str, number: u64| {
        let c = "cccccccc-0000-8000-8000-000000000000:1";
        log(&format!(
            "{TAKEN}{QUEUED}DEL L; {push} {c}; ZADD O {number} {c}; ZADD S 9 {c}; SET T t6; HSET L {c} 1; \
             PEXPIREAT L +5; LREM Q 0 {c}; ZREM S {c}; ZREM O {c}; PEXPIREAT R +60"
        ))
    };
    returned("LPUSH Q", 1).finds(&[]);
    returned("LPUSH Q", 99).finds(&["stood before it"]);
    returned("RPUSH Q", 1).finds(&["stood before it"]);
}

/// Numbers that an operator deleted come back one by one, with their owners: the first to return
/// may be granted first.
#[test]
fn i5_is_not_judged_until_all_have_their_numbers_again() {
    let c = "cccccccc-0000-8000-8000-000000000000:1";
    let two = format!("{QUEUED}RPUSH Q {c}; ZADD O 8 {c}; ZADD S 9 {c}; HSET R {c} x\n");
    let back = format!("ZADD O 8 {c}; PEXPIREAT O +60\n");
    let late = format!(
        "DEL L; SET T t6; HSET L {c} 1; PEXPIREAT L +1; LREM Q 0 {c}; ZREM S {c}; ZREM O {c}"
    );
    log(&format!("{TAKEN}{two}{late}")).finds(&["stood before it"]);
    log(&format!("{TAKEN}{two}DEL O\n{back}{late}")).finds(&[]);
    // Its TTL expired, and a script noticed.
    log(&format!("{TAKEN}{two}DEL O; {back}{late}")).finds(&[]);
}

/// Adds notes from clients to the log above.
fn noted(mut history: History, notes: &[Note]) -> History {
    for note in notes {
        history.inputs.push(Input::Note { worker: 1, note: note.clone() });
    }
    history
}

fn guard(owner: &str, number: u64, seconds: u64) -> Note {
    let (at, token) = (now_ns(), token(number));
    let (lock, owner) = ("fair-0".to_owned(), owner.to_owned());
    let valid_until = at + seconds * 1_000 * MS;
    Note::Granted { at, asked: at - 1, lock, owner, token, valid_until, share: Share::Whole }
}

fn over(owner: &str, later_s: u64, end: End) -> Note {
    let at = now_ns() + later_s * 1_000 * MS;
    Note::Ended { at, lock: "fair-0".into(), owner: owner.into(), end }
}

#[test]
fn a3_a_guard_has_a_grant() {
    noted(log(TAKEN), &[guard(A, 5, 4), over(A, 1, End::Released)]).finds(&[]);
    noted(log(TAKEN), &[guard(A, 6, 4), over(A, 1, End::Released)])
        .finds(&["the server never gave"]);
    noted(log(TAKEN), &[guard(B, 5, 4), over(B, 1, End::Released)]).finds(&["of aaaaaaaa"]);
}

/// The clock jumps in the middle of a grant: it ends as it is made, and its guard may not know.
#[test]
fn a3_a_grant_may_be_over_at_once() {
    let at_once = "SET T t5 PXAT +60; HSET L A 1; DEL L";
    let notes = [guard(A, 5, 1), over(A, 0, End::Lost)];
    let now = now_ns() / MS;
    noted(log(at_once), &notes).fault(Kind::ClockForward, now - 9, now + 9).finds(&[]);
    noted(log(at_once), &[guard(A, 5, 1)]).finds(&["longer than the hold"]);
}

/// The token was lost, and the holder's own copy of its request finds none.
#[test]
fn a3_a_hold_may_get_another_token() {
    let again = format!("{TAKEN}DEL T\nSET T t6 PXAT +60\n");
    noted(log(&again), &[guard(A, 6, 4), over(A, 1, End::Released)]).finds(&[]);
}

#[test]
fn i13_a_guard_is_valid_no_longer_than_the_hold() {
    noted(log(TAKEN), &[guard(A, 5, 6), over(A, 1, End::Released)])
        .finds(&["longer than the hold"]);
    noted(log(TAKEN), &[guard(A, 5, 4), over(A, 6, End::Released)])
        .finds(&["after the hold was over"]);
    let renewed = format!("{TAKEN}PEXPIREAT R +60; PEXPIREAT L +9\n");
    noted(log(&renewed), &[guard(A, 5, 4), over(A, 6, End::Released)]).finds(&[]);
}

/// The process was stopped between the grant and its guard, which reports at once that it is lost.
#[test]
fn i13_a_guard_may_come_too_late() {
    let mut late = [guard(A, 5, 0), over(A, 0, End::Lost)];
    for note in &mut late {
        if let Note::Granted { at, valid_until, .. } = note {
            (*at, *valid_until) = (*at + 9_000 * MS, *at + 9_000 * MS);
        }
    }
    let [Note::Granted { at: granted, .. }, Note::Ended { at, .. }] = &mut late else { panic!() };
    *at = *granted;
    noted(log(TAKEN), &late).fault(Kind::WorkerStopped, 1, u64::MAX / MS).finds(&[]);
    // Seen valid a moment later.
    let Note::Ended { at, .. } = &mut late[1] else { panic!() };
    *at += 1;
    noted(log(TAKEN), &late)
        .fault(Kind::WorkerStopped, 1, u64::MAX / MS)
        .finds(&["after the hold was over"]);
}

#[test]
fn i8_i14_a_hold_that_is_taken_away_was_let_go_or_taken_by_a_fault() {
    let taken = format!("{TAKEN}DEL L");
    let notes = [guard(A, 5, 4), over(A, 1, End::Released)];
    noted(log(&taken), &notes).finds(&["and it let go at"]);
    let now = now_ns() / MS;
    noted(log(&taken), &notes).fault(Kind::LockDeleted, now, now + 10).finds(&[]);
}

#[test]
fn i16_who_has_left_is_gone() {
    let left = Note::Left { at: now_ns(), lock: "fair-0".into(), owner: B.into() };
    noted(log(&format!("{TAKEN}{QUEUED}")), std::slice::from_ref(&left)).finds(&["is still there"]);
    noted(log(TAKEN), &[left]).finds(&[]);
}
