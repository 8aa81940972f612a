//! Rounds about latches of one name, one after the other: both sides set them, count them down and
//! wait for them. [`super::checker::latches`] judges them.

use std::fmt;
use std::time::Duration;

use fairlock::{Latch, Opened};
use fairlock_testkit::history::now_ns;
use tokio::task::JoinSet;

use super::notes::{LatchSeen, LatchWait, Notes, Outcome, Played};
use super::play::{Clients, pause};
use super::script::Dice;
use crate::java::{JavaLock, Kind};

/// How many threads of each Java client wait at most: each waits in one call.
const WAITERS: u64 = 6;
/// The thread of each Java client that counts down, and the one that sets.
const COUNTS: usize = 7;
const SETS: usize = 8;

/// A round.
#[derive(Clone, Debug)]
pub struct Latches {
    /// Each is counted down before the next is set.
    pub ones: Vec<One>,
}

/// A latch.
#[derive(Clone, Debug)]
pub struct One {
    /// What it is set to.
    pub count: u64,
    /// Who counts it down, and who waits for it.
    pub parts: Vec<Part>,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Whether it is Java's.
    pub is_java: bool,
    /// Which client makes it.
    pub client: usize,
    /// What it does.
    pub does: Does,
    /// When it begins, in milliseconds.
    pub begins_ms: u64,
}

/// See [`Part`]. A time is in milliseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Does {
    Counts,
    Waits,
    WaitsFor(u64),
}

impl Latches {
    /// The round of a seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut ones = Vec::new();
        for _ in 0..=dice.below(3) {
            let count = 1 + dice.below(6);
            let mut parts = Vec::new();
            let mut part = |dice: &mut Dice, is_java, does, within_ms| {
                let client = usize::try_from(dice.below(2)).expect("0 or 1");
                let begins_ms = dice.below(within_ms);
                parts.push(Part { is_java, client, does, begins_ms });
            };
            // Some count down a latch that is open.
            for _ in 0..count + dice.below(3) {
                let is_java = dice.below(2) == 0;
                part(&mut dice, is_java, Does::Counts, 80);
            }
            for n in 0..2 + dice.below(WAITERS - 1) {
                // The first two are one of each side.
                let is_java = if n < 2 { n == 0 } else { dice.below(2) == 0 };
                let does = match dice.below(3) {
                    0 => Does::WaitsFor(1 + dice.below(120)),
                    _ => Does::Waits,
                };
                part(&mut dice, is_java, does, 100);
            }
            ones.push(One { count, parts });
        }
        Self { ones }
    }

    /// The number of calls in it: both sides set each latch.
    pub fn operations(&self) -> usize {
        self.ones.iter().map(|one| 2 + one.parts.len()).sum()
    }
}

/// One line for each call.
impl fmt::Display for Latches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for One { count, parts } in &self.ones {
            write!(f, "\n    set to {count}")?;
            parts.iter().try_for_each(|part| write!(f, "\n      {part:?}"))?;
        }
        Ok(())
    }
}

/// Plays a round, until every call has been answered or is known to get no answer.
///
/// # Panics
///
/// If a part panics.
pub async fn play(clients: &Clients, latches: &Latches, name: &str) -> Played {
    let notes = Notes::new(name, clients.patience);
    for one in &latches.ones {
        let count = i64::try_from(one.count).expect("a few");
        let theirs = clients.java[0][SETS].lock(Kind::Latch, name);
        let ours = clients.rust[0].latch(name);
        let (theirs, ours) = tokio::join!(theirs.call("trySetCount", &[count]).is_true(), async {
            ours.try_set(one.count).await.expect("the server runs")
        });
        notes.latch(LatchSeen::new(one.count, [ours, theirs]));
        let mut parts = JoinSet::new();
        let mut waiting = 0;
        for part in one.parts.iter().copied() {
            let notes = notes.clone();
            if part.is_java {
                let mut thread = COUNTS;
                if part.does != Does::Counts {
                    (thread, waiting) = (waiting, waiting + 1);
                }
                let latch = clients.java[part.client][thread].lock(Kind::Latch, name);
                parts.spawn(async move {
                    pause(part.begins_ms).await;
                    java_does(&latch, part.does, &notes).await;
                });
            } else {
                let latch = clients.rust[part.client].latch(name);
                parts.spawn(async move {
                    pause(part.begins_ms).await;
                    ours_does(&latch, part.does, &notes).await;
                });
            }
        }
        parts.join_all().await;
    }
    notes.take()
}

/// A call of ours.
pub(super) async fn ours_does(latch: &Latch, does: Does, notes: &Notes) {
    let began_ns = now_ns();
    let (wait_ms, asked) = match does {
        Does::Counts => match latch.count_down().await {
            Ok(left) => return notes.counted(left),
            Err(error) => return notes.problem(format!("ours does not count down: {error}")),
        },
        Does::Waits => {
            let asked = tokio::time::timeout(notes.patience, latch.wait()).await;
            (None, asked.map(|opened| opened.map(Some)))
        }
        Does::WaitsFor(ms) => {
            let wait = latch.wait_for(Duration::from_millis(ms));
            (Some(ms), tokio::time::timeout(notes.patience, wait).await)
        }
    };
    let outcome = match asked {
        Ok(Ok(Some(Opened::CountedDown))) => Outcome::Opened,
        Ok(Ok(Some(Opened::Gone))) => Outcome::Gone,
        Ok(Ok(None)) => Outcome::GaveUp,
        Ok(Err(error)) => return notes.problem(format!("ours waits for a latch: {error}")),
        Err(_) => return notes.problem(format!("ours has no answer: {does:?}")),
        // More outcomes may come.
        Ok(Ok(Some(other))) => return notes.problem(format!("ours waits for a latch: {other:?}")),
    };
    let (is_java, ended_ns) = (false, now_ns());
    notes.latch_wait(LatchWait { is_java, began_ns, ended_ns, wait_ms, outcome });
}

/// A call of Java's.
pub(super) async fn java_does(latch: &JavaLock, does: Does, notes: &Notes) {
    let (wait_ms, mut call) = match does {
        Does::Counts => (None, latch.call("countDown", &[])),
        Does::Waits => (None, latch.call("await", &[])),
        Does::WaitsFor(ms) => {
            (Some(ms), latch.call("await", &[i64::try_from(ms).expect("milliseconds")]))
        }
    };
    let Some(answer) = call.answer_within(notes.patience).await else {
        return notes.problem(format!("Java has no answer: {does:?}"));
    };
    let outcome = match answer.result.as_deref() {
        Ok(_) if does == Does::Counts => return,
        Ok("-" | "true") => Outcome::Opened,
        Ok(_) => Outcome::GaveUp,
        Err(error) => return notes.problem(format!("Java, {does:?}: {error}")),
    };
    let (is_java, began_ns, ended_ns) = (true, answer.began_ns, answer.ended_ns);
    notes.latch_wait(LatchWait { is_java, began_ns, ended_ns, wait_ms, outcome });
}

/// Counts down until the latch is open.
pub(super) async fn finish(ours: &Latch, theirs: &JavaLock, notes: &Notes) {
    loop {
        match ours.count().await {
            Ok(0) => return,
            // Either side in turn.
            Ok(left) if left % 2 == 0 => ours_does(ours, Does::Counts, notes).await,
            Ok(_) => java_does(theirs, Does::Counts, notes).await,
            Err(error) => return notes.problem(format!("ours does not look: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_both_sides_and_enough_count_downs() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..200 {
            let round = Latches::new(seed);
            assert_eq!(format!("{round:?}"), format!("{:?}", Latches::new(seed)));
            assert!((1..=3).contains(&round.ones.len()));
            for One { count, parts } in &round.ones {
                let of = |does| parts.iter().filter(move |part| part.does == does);
                assert!(of(Does::Counts).count() as u64 >= *count);
                let waiting = || parts.iter().filter(|part| part.does != Does::Counts);
                assert!(waiting().any(|part| part.is_java) && waiting().any(|part| !part.is_java));
                assert!(waiting().count() as u64 <= WAITERS);
                let kinds = parts.iter().map(|part| match part.does {
                    Does::Counts => (part.is_java, 0),
                    Does::Waits => (part.is_java, 1),
                    Does::WaitsFor(_) => (part.is_java, 2),
                });
                seen.extend(kinds);
            }
        }
        assert_eq!(seen.len(), 6);
    }
}
