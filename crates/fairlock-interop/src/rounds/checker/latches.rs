//! What must hold of latches: each opens once, at its last count-down and not before, and all who
//! wait for it are told.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_testkit::raw::Raw;

use super::super::notes::{LatchSeen, LatchWait, Outcome, Played};
use super::{CLOCKS_APART_NS, EMPTY_WITHIN, HandOvers, LATE, WakeUps};
use crate::watch::Command;

/// A busy machine may be this late. A waiter of ours that begins to wait this shortly before Java's
/// last count-down may not listen yet: it finds no latch, and nobody knows why (seed 143779543).
const BUSY_NS: u64 = 500_000_000;

/// What the server did to the latches of one name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Story {
    ones: Vec<One>,
    wrong: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct One {
    count: u64,
    downs: u64,
    /// When it opened, and whether Java did it.
    opened: Option<(u64, bool)>,
}

fn channel(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

/// Reads it from the commands of scripts.
pub fn story(name: &str, commands: &[Command]) -> Story {
    let channel = channel(name);
    let mut story = Story::default();
    let mut value: Option<i64> = None;
    let (mut script, mut is_ours) = (usize::MAX, false);
    for Command { at_ns, script: of, words } in commands {
        if *of != script {
            (script, is_ours) = (*of, false);
        }
        is_ours |= words.iter().any(|word| word.starts_with("fairlock_"));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let before = value;
        match words[..] {
            ["set", key, number, ..] if key == name => {
                let number: i64 = number.parse().expect("a count");
                match value {
                    None => story.set(number),
                    Some(before) if number == before - 1 => story.down(),
                    Some(before) => story.wrong.push(format!("it was {before}, and {number} then")),
                }
                value = Some(number);
            }
            ["decr", key] if key == name => {
                // Java counts down below 0, and deletes what it gets.
                value = Some(value.unwrap_or(0) - 1);
                if before.is_some() {
                    story.down();
                }
            }
            ["del", ..] if words[1..].contains(&name) => {
                match value.take() {
                    // Ours do not write the 0.
                    Some(1) => story.down(),
                    Some(left @ 2..) => story.wrong.push(format!("it was deleted at {left}")),
                    _ => {}
                }
            }
            ["publish", to, "0"] if to == channel => story.opened(*at_ns, !is_ours),
            _ => {}
        }
    }
    story
}

impl Story {
    fn set(&mut self, count: i64) {
        let count = u64::try_from(count).unwrap_or_default();
        self.ones.push(One { count, ..One::default() });
    }

    fn down(&mut self) {
        match self.ones.last_mut() {
            Some(one) => one.downs += 1,
            None => self.wrong.push("a count-down without a latch".to_owned()),
        }
    }

    fn opened(&mut self, at_ns: u64, by_java: bool) {
        match self.ones.last_mut() {
            Some(one) if one.downs == one.count && one.opened.is_none() => {
                one.opened = Some((at_ns, by_java));
            }
            other => self.wrong.push(format!("it was said to be open: {other:?}")),
        }
    }
}

/// Returns the violations of a round, and how fast its waiters woke up.
pub fn check(story: &Story, played: &Played) -> (Vec<String>, HandOvers) {
    let mut violations = story.wrong.clone();
    violations.extend(played.problems.iter().map(|problem| problem.what.clone()));
    let mut all = HandOvers::default();
    if story.ones.len() != played.latches.len() {
        violations.push(format!("{} were set, not {}", story.ones.len(), played.latches.len()));
        return (violations, all);
    }
    for (one, seen) in story.ones.iter().zip(&played.latches) {
        check_one(one, seen, &mut violations, &mut all);
    }
    (violations, all)
}

fn check_one(one: &One, seen: &LatchSeen, violations: &mut Vec<String>, all: &mut HandOvers) {
    let mut wrong = |what: String| violations.push(what);
    if one.count != seen.count || seen.sets[0] == seen.sets[1] {
        wrong(format!("set to {} by {:?} (ours, Java), not {}", one.count, seen.sets, seen.count));
    }
    let mut left: Vec<_> = seen.left.iter().filter(|left| **left > 0).collect();
    left.sort_unstable();
    if left.windows(2).any(|pair| pair[0] == pair[1]) || left.last() >= Some(&&seen.count) {
        wrong(format!("count-downs of {} left {left:?}", seen.count));
    }
    let Some((opened_ns, by_java)) = one.opened else {
        return wrong(format!("a latch of {} was counted down {} times", one.count, one.downs));
    };
    for wait in &seen.waits {
        let LatchWait { is_java, began_ns, ended_ns, wait_ms, outcome } = *wait;
        let gives_up_ns = wait_ms.map(|ms| began_ns + ms * 1_000_000);
        match outcome {
            Outcome::GaveUp => {
                let gives_up_ns = gives_up_ns.expect("only a timed call gives up");
                if ended_ns + CLOCKS_APART_NS < gives_up_ns {
                    wrong(format!("{wait:?} gave up too soon"));
                }
                if opened_ns + BUSY_NS < gives_up_ns {
                    wrong(format!("{wait:?} was not told that it opened at {opened_ns}"));
                }
            }
            Outcome::Gone if !(by_java && began_ns + BUSY_NS > opened_ns) => {
                wrong(format!("{wait:?}, and it was counted down at {opened_ns}"));
            }
            _ if ended_ns + CLOCKS_APART_NS < opened_ns => {
                wrong(format!("{wait:?} ended before the latch opened at {opened_ns}"));
            }
            Outcome::Opened if began_ns + CLOCKS_APART_NS < opened_ns => {
                let took = Duration::from_nanos(ended_ns.saturating_sub(opened_ns));
                let way = match (by_java, is_java) {
                    (false, true) => &mut all.rust_to_java,
                    (true, false) => &mut all.java_to_rust,
                    (false, false) => &mut all.rust_to_rust,
                    (true, true) => &mut all.java_to_java,
                };
                way.add(&WakeUps { count: 1, late: u64::from(took > LATE), worst: took });
            }
            _ => {}
        }
    }
}

/// What remains when all calls have returned. Java may stay subscribed (3.16.8, seed 193432807): a
/// message that nobody sends tells whether one of ours does.
pub async fn what_is_left(server: SocketAddr, name: &str, ours: &[Client]) -> Option<String> {
    let mut raw = Raw::connect(server);
    let began = Instant::now();
    loop {
        let count = raw.call(&["GET", name]);
        let listeners = raw.listeners(&channel(name));
        if count.is_nil() && listeners == 0 {
            return None;
        }
        if began.elapsed() > EMPTY_WITHIN {
            let ignored = || ours.iter().map(Client::dropped_messages).sum::<u64>();
            let before = ignored();
            raw.call(&["PUBLISH", &channel(name), "7"]);
            tokio::time::sleep(Duration::from_nanos(BUSY_NS)).await;
            let is_ours = ignored() > before;
            let left = format!("left behind: count {count:?}, {listeners} listen, ours {is_ours}");
            return (!count.is_nil() || is_ours).then_some(left);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Java sets it to 2 and counts down, and ours opens it.
    fn commands() -> Vec<Command> {
        let channel = "redisson_countdownlatch__channel__{a}";
        let told: [(u64, usize, &[&str]); 8] = [
            (10, 0, &["set", "a", "2"]),
            (10, 0, &["publish", channel, "1"]),
            (20, 1, &["decr", "a"]),
            (1000, 2, &["exists", "fairlock_counted:{a}:1"]),
            (1000, 2, &["del", "a"]),
            (1000, 2, &["publish", channel, "0"]),
            (1010, 3, &["decr", "a"]),
            (1010, 3, &["del", "a"]),
        ];
        let command = |(ms, script, words): (u64, usize, &[&str])| Command {
            at_ns: ms * MS,
            script,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        told.into_iter().map(command).collect()
    }

    fn wait(is_java: bool, began: u64, ended: u64, outcome: Outcome) -> LatchWait {
        let (began_ns, ended_ns) = (began * MS, ended * MS);
        let wait_ms = (outcome == Outcome::GaveUp).then_some(ended - began);
        LatchWait { is_java, began_ns, ended_ns, wait_ms, outcome }
    }

    fn played(waits: Vec<LatchWait>) -> Played {
        let seen = LatchSeen { waits, left: vec![0, 0], ..LatchSeen::new(2, [false, true]) };
        Played { latches: vec![seen], ..Played::default() }
    }

    #[track_caller]
    fn finds(story: &Story, played: &Played, what: &[&str]) {
        let (violations, _) = check(story, played);
        assert_eq!(violations.len(), what.len(), "{violations:?}");
        for (violation, what) in violations.iter().zip(what) {
            assert!(violation.contains(what), "{violation:?} is not about {what:?}");
        }
    }

    #[test]
    fn a_sound_round_is_read_and_its_wake_ups_are_counted() {
        let story = story("a", &commands());
        let ours = wait(false, 15, 1003, Outcome::Opened);
        let played = played(vec![
            ours,
            wait(true, 15, 1004, Outcome::Opened),
            wait(true, 15, 80, Outcome::GaveUp),
            wait(false, 1100, 1101, Outcome::Opened),
        ]);
        finds(&story, &played, &[]);
        let (_, ways) = check(&story, &played);
        assert_eq!((ways.rust_to_rust.count, ways.rust_to_java.count), (1, 1));
        assert_eq!(ways.rust_to_rust.worst, Duration::from_millis(3));
    }

    #[test]
    fn what_is_told_wrongly_is_found() {
        let story = story("a", &commands());
        let found = |wait, what: &[&str]| finds(&story, &played(vec![wait]), what);
        found(wait(false, 15, 900, Outcome::Opened), &["before the latch opened"]);
        found(wait(true, 15, 900, Outcome::Opened), &["before the latch opened"]);
        found(wait(false, 15, 2000, Outcome::GaveUp), &["was not told"]);
        found(wait(false, 990, 1001, Outcome::Gone), &["and it was counted down"]);
        let mut twice = played(vec![]);
        twice.latches[0].sets = [true, true];
        finds(&story, &twice, &["set to 2 by"]);
        let mut twice = played(vec![]);
        twice.latches[0].left = vec![1, 1];
        finds(&story, &twice, &["left [1, 1]"]);
    }

    #[test]
    fn what_the_server_does_wrongly_is_found() {
        let mut early = commands();
        early.remove(2);
        let what = &["deleted at 2", "said to be open", "counted down 0 times"];
        finds(&story("a", &early), &played(vec![]), what);
        let mut never = commands();
        never.truncate(3);
        finds(&story("a", &never), &played(vec![]), &["counted down 1 times"]);
        let mut back = commands();
        back.truncate(3);
        back[2].words = ["set", "a", "7"].map(str::to_owned).to_vec();
        finds(&story("a", &back), &played(vec![]), &["it was 2, and 7 then", "counted down 0"]);
    }

    /// Java's last count-down may come between the first look of ours and its subscription.
    #[test]
    fn ours_may_miss_what_java_told_just_before_it_listened() {
        let mut by_java = commands();
        by_java[3].words = vec!["decr".to_owned(), "a".to_owned()];
        let story = story("a", &by_java);
        finds(&story, &played(vec![wait(false, 990, 1001, Outcome::Gone)]), &[]);
        finds(&story, &played(vec![wait(false, 400, 1001, Outcome::Gone)]), &["counted down at"]);
    }
}
