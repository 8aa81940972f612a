//! What the server's log shows of read-write locks and semaphores.

use super::server::BEGAN;
use super::*;
use crate::log::effects::Command;
use crate::log::tail::wall_us;
use fairlock_testkit::history::now_ns;

const A: &str = "aaaaaaaa-0000-8000-8000-000000000000:1";
const B: &str = "bbbbbbbb-0000-8000-8000-000000000000:1";
const C: &str = "cccccccc-0000-8000-8000-000000000000:1";
const REQUEST: &str = "00000000000000000000000000000001";

/// Groups of commands, one per line, separated by semicolons. `A`, `B` and `C` are owners, `A.` the
/// client of one; `+5` is five seconds from now in milliseconds; `L` is the lock, `T` its token, and
/// `I`, `H`, `O`, `R` and `S` are leases, holds, order, records and heartbeats; `j:A` is A's key for
/// Java; `t5` is a token, five microseconds after the start of the tests; `hold:t5:r` is the record of a
/// hold with it, `wants:w` that of a waiter.
fn log(kind: &str, text: &str) -> History {
    let (read_us, mut history) = (wall_us(), History { has_log: true, ..History::default() });
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let one = |text: &str| -> Command {
            text.split_whitespace().map(|it| word(kind, it, read_us).into_bytes()).collect()
        };
        let commands = line.split(';').map(one).collect();
        history.inputs.push(Input::Effects { read_us, commands });
    }
    history
}

fn token(number: u64) -> u64 {
    u64::try_from(*BEGAN).unwrap() + number
}

fn word(kind: &str, text: &str, now_us: i64) -> String {
    let key = |part: &str| format!("fairlock_{kind}_{part}:{{{kind}-0}}");
    let owner = |name: &str| match name {
        "A" => A,
        "B" => B,
        _ => C,
    };
    match text {
        "A" | "B" | "C" => owner(text).to_owned(),
        "A." | "B." | "C." => owner(&text[..1]).split(':').next().unwrap().to_owned(),
        "w:A" | "w:B" | "w:C" => format!("{}:write", owner(&text[2..])),
        "j:A" | "j:B" | "j:C" => {
            format!("{{{kind}-0}}:{}:rwlock_timeout:1", owner(&text[2..]))
        }
        "L" => format!("{kind}-0"),
        "T" => format!("redisson_lock_token:{{{kind}-0}}"),
        "I" => key("leases"),
        "H" => key("holds"),
        "O" => key("order"),
        "R" => key("state"),
        "S" => key("beats"),
        _ => {
            if let Some(seconds) = text.strip_prefix('+') {
                (now_us / 1_000 + seconds.parse::<i64>().unwrap() * 1_000).to_string()
            } else if let Some(Ok(seconds)) = text.strip_prefix('-').map(str::parse::<i64>) {
                (now_us / 1_000 - seconds * 1_000).to_string()
            } else if let Some(hold) = text.strip_prefix("hold:") {
                let (its, share) = hold.split_once(':').unwrap();
                format!("{REQUEST} {} 0 1 {share}", word(kind, its, now_us))
            } else if let Some(share) = text.strip_prefix("wants:") {
                format!("{REQUEST} 3000 0 {share}")
            } else if let Some(Ok(number)) = text.strip_prefix('t').map(str::parse) {
                token(number).to_string()
            } else {
                text.to_owned()
            }
        }
    }
}

const LIVES: &str = "PEXPIREAT L +5; PEXPIREAT I +9; PEXPIREAT H +9";

fn reads(owner: &str, token: u64) -> String {
    format!(
        "HSET L mode read {owner} 1; HSET H phase t{token}; SET j:{owner} 1 PXAT +5; \
         ZADD I +5 {owner}; HSET H {owner} hold:t{token}:r; {LIVES}"
    )
}

fn writes(owner: &str, token: u64) -> String {
    format!(
        "SET T t{token}; HSET L mode write w:{owner} 1; ZADD I +5 {owner}; \
         HSET H {owner} hold:t{token}:w; {LIVES}"
    )
}

fn uses(owner: &str, token: u64, n: u32, used: u32) -> String {
    format!(
        "SET T t{token}; HSET H used {used}; HSET L mode permits {owner} {n}; ZADD I +5 {owner}; \
         HSET H {owner} hold:t{token}:{n}/4; {LIVES}"
    )
}

fn waits(owner: &str, number: u64, share: &str) -> String {
    format!(
        "ZADD S 0 {owner}.; ZADD O {number} {owner}; HSET R {owner} wants:{share}; \
         PEXPIREAT O +60; PEXPIREAT S +60; PEXPIREAT R +60"
    )
}

fn leaves(owner: &str) -> String {
    format!("ZREM O {owner}; HDEL R {owner}")
}

/// The last to hold anything ends it.
fn last_ends(owner: &str) -> String {
    format!("ZREM I {owner}; HDEL H {owner}; DEL H; DEL j:{owner}; DEL L")
}

#[test]
fn turns_with_shares_are_sound() {
    let [read, joins] = [reads("A", 5), reads("B", 5)];
    let wait = waits("C", 7, "w");
    let ends = "ZREM I A; HDEL H A; HDEL L A; DEL j:A";
    let hand = format!("{}; {}; {}", last_ends("B"), leaves("C"), writes("C", 6));
    // By message, so for as long as its last beat vouches for it.
    let hand = hand.replace("+5", "+1");
    let found = log("rw", &format!("{read}\n{joins}\n{wait}\n{ends}\n{hand}")).finds(&[]);
    assert_eq!((found.logged, found.followed), (3, 1));
    let found = log("sem", &format!("{}\n{}", uses("A", 5, 3, 3), uses("B", 6, 1, 4))).finds(&[]);
    assert_eq!(found.logged, 2);
}

#[test]
fn i1_a_writer_is_alone() {
    let beside = |first: String, second: String| {
        log("rw", &format!("{first}\n{second}")).checked().violations.concat()
    };
    let found = beside(reads("A", 5), writes("B", 6));
    assert!(found.contains("was granted Whole beside aaaaaaaa"), "{found}");
    let found = beside(writes("A", 5), reads("B", 6));
    assert!(found.contains("was granted Read beside aaaaaaaa"), "{found}");
    let found = beside(writes("A", 5), writes("B", 6));
    assert!(found.contains("was granted Whole beside aaaaaaaa"), "{found}");
}

#[test]
fn i1_permits_in_use_are_at_most_the_limit() {
    log("sem", &format!("{}\n{}", uses("A", 5, 3, 3), uses("B", 6, 2, 5)))
        .finds(&["was granted Permits { n: 2, limit: 4 } beside aaaaaaaa"]);
}

#[test]
fn i4_tokens_rise_and_readers_of_one_time_have_one() {
    let over = last_ends("A");
    log("rw", &format!("{}\n{over}\n{}", writes("A", 5), writes("B", 5)))
        .finds(&["was granted Whole with token Some("]);
    log("rw", &format!("{}\n{over}\n{}", reads("A", 5), reads("B", 5)))
        .finds(&["was granted Read with token Some("]);
    log("rw", &format!("{}\n{}", reads("A", 5), reads("B", 4)))
        .finds(&["was granted Read with token Some("]);
    log("sem", &format!("{}\n{}", uses("A", 5, 1, 1), uses("B", 5, 1, 2)))
        .finds(&["with token Some("]);
    // Tokens rise whatever is lost in between, unless the clock was set back as well.
    let lost = format!("{}\nFLUSHALL\n{}", writes("A", 5), writes("B", 4));
    let now = now_ns() / MS;
    log("rw", &lost).fault(Kind::ClockBackward, now, now + 10).finds(&[]);
    log("rw", &lost).fault(Kind::Flushed, 0, 1).finds(&["with token Some("]);
}

#[test]
fn i5_i6_nobody_overtakes_in_the_line() {
    let first = format!("{}\n{}", reads("A", 5), waits("B", 7, "w"));
    log("rw", &format!("{first}\n{}", reads("C", 5))).finds(&["while bbbbbbbb"]);
    let later = format!("{}\n{}; {}", waits("C", 8, "r"), leaves("C"), reads("C", 5));
    log("rw", &format!("{first}\n{later}")).finds(&["while bbbbbbbb"]);
}

#[test]
fn l3_the_first_of_the_line_is_served_when_a_lease_is_over() {
    let ended = |ago: i64| {
        let held = writes("A", 5)
            .replace("+5", &format!("-{ago}"))
            .replace("PEXPIREAT L -", "PEXPIREAT L +");
        let hand = format!("{}; {}; {}", last_ends("A"), leaves("B"), writes("B", 6));
        log("rw", &format!("{held}\n{}\n{hand}", waits("B", 7, "w")))
    };
    ended(1).finds(&[]);
    ended(4).finds(&["waited behind the dead"]);
}

#[test]
fn l5_who_is_told_by_a_message_has_little_time_to_say_that_it_heard() {
    let hand = format!("{}; {}; {}", last_ends("A"), leaves("B"), writes("B", 6));
    log("rw", &format!("{}\n{}\n{hand}", writes("A", 5), waits("B", 7, "w")))
        .finds(&["to say that it heard of its grant"]);
}

#[test]
fn i11_a_turn_that_is_over_does_not_come_again() {
    let again = format!("{}\n{}\n{}", writes("A", 5), last_ends("A"), writes("A", 6));
    log("rw", &again).finds(&["was granted it again after its turn was over"]);
    let now = now_ns() / MS;
    log("rw", &again).fault(Kind::RequestsReplayed, now, now + 10).finds(&[]);
}

#[test]
fn i7_nobody_who_was_heard_is_taken_out_of_the_line() {
    let out = format!("{}; HSET R removed 100; PEXPIREAT R +60", leaves("B"));
    log("rw", &format!("{}\n{}\n{out}", writes("A", 5), waits("B", 7, "w")))
        .finds(&["was taken out, heard 100 ms before"]);
}

#[test]
fn i12_everything_has_a_ttl_and_the_lock_ends_with_its_last_lease() {
    let without = |part: &str| reads("A", 5).replace(part, "GET T");
    log("rw", &without("PEXPIREAT H +9")).finds(&["Holds has no TTL"]);
    log("rw", &without("PEXPIREAT I +9")).finds(&["Leases has no TTL"]);
    let found = log("rw", &without("PEXPIREAT L +5")).checked().violations.concat();
    assert!(found.contains("it is held without a TTL"), "{found}");
    log("rw", &reads("A", 5).replace("PEXPIREAT L +5", "PEXPIREAT L +4"))
        .finds(&["before the lease of aaaaaaaa"]);
}

#[test]
fn i15_all_keys_say_the_same() {
    log("rw", &reads("A", 5).replace("SET j:A 1 PXAT +5", "GET T")).finds(&["for Java until None"]);
    log("rw", &reads("A", 5).replace("SET j:A 1 PXAT +5", "SET j:A 1 PXAT +4"))
        .finds(&["for Java until Some("]);
    log("rw", &reads("A", 5).replace("ZADD I +5 A", "GET T")).finds(&["holds it without a lease"]);
    log("sem", &uses("A", 5, 3, 2)).finds(&["3 permits in use, and Some(2) are counted"]);
    let both = format!("{}\n{}; {}", reads("A", 5), "HDEL L A", "ZADD S 0 A.; PEXPIREAT S +60");
    log("rw", &both).finds(&["mode Some(\"read\") of 0 holders"]);
    log("rw", &format!("{}\n{}", reads("A", 5), waits("A", 7, "w")))
        .finds(&["holds it and stands in the line"]);
    // What an operator takes is mended by the next call.
    log("rw", &format!("{}\nDEL L\nDEL I H; DEL j:A", reads("A", 5))).finds(&[]);
    // The line has ended, and so have the records, which nobody has looked at since.
    log("rw", &format!("{}\nDEL O; {}", waits("C", 7, "w"), reads("A", 5))).finds(&[]);
    // The clock jumps while a script lets somebody in: all that it wrote ends as it is written.
    log("rw", &format!("SET T t5; {}; DEL L; DEL I; DEL H; DEL j:A", reads("A", 5))).finds(&[]);
    log("rw", &format!("{}\n{}\nDEL L; DEL j:A; DEL j:B", reads("A", 5), reads("B", 5))).finds(&[]);
    log("rw", &format!("{}\nZREM O C; {}", waits("C", 7, "w"), reads("A", 5)))
        .finds(&["a record has no place in the line"]);
}

#[test]
fn a3_a_reader_has_the_token_of_its_own_grant() {
    let note = |owner: &str, number: u64| {
        let token = token(number);
        let (at, lock, owner) = (now_ns(), "rw-0".to_owned(), owner.to_owned());
        let (asked, valid_until, share) = (at - MS, at, Share::Read);
        let granted = Note::Granted { at, asked, lock, owner, token, valid_until, share };
        Input::Note { worker: 1, note: granted }
    };
    let with = |input: Input, end: &str| {
        let mut history = log("rw", &format!("{}\n{}", reads("A", 5), reads("B", 5)));
        let ended = Note::Ended {
            at: now_ns(),
            lock: "rw-0".into(),
            owner: end.into(),
            end: End::Released,
        };
        history.inputs.extend([input, Input::Note { worker: 1, note: ended }]);
        history
    };
    with(note(A, 5), A).finds(&[]);
    with(note(B, 5), B).finds(&[]);
    with(note(A, 6), A).finds(&["the server never gave"]);
    with(note(C, 5), C).finds(&["the server never gave"]);
}
