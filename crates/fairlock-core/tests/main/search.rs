//! Breadth-first search through every reachable situation, each once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A position in an exploration.
pub(crate) trait Situation: Clone {
    type Move: Copy + Debug;

    /// What may happen next.
    fn moves(&self, out: &mut Vec<Self::Move>);
    fn step(&mut self, choice: Self::Move);
    /// What must hold, whatever happened.
    fn check(&self) -> Result<(), String>;
    /// Equal for situations that do not differ in anything that matters.
    fn key(&self) -> u64;
    /// From here on nothing fails: every live waiter must get the lock in time.
    fn served(self, end: End) -> Result<(), String>;
}

/// How the faults end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// What was in transit is lost.
    pub(crate) lose: bool,
    /// The last client goes first in each round.
    pub(crate) last_first: bool,
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Found<M> {
    pub(crate) situations: usize,
    moves: usize,
    tried: usize,
    /// What was wrong, and after which moves.
    pub(crate) wrong: Option<(String, Vec<M>)>,
}

/// Where each situation came from.
type From<M> = HashMap<u64, (u64, Option<M>)>;

/// `sample`: one in this many situations is tried for liveness, with each [`End`] in turn.
pub(crate) fn explore<S: Situation>(
    name: &str,
    start: S,
    depth: usize,
    sample: usize,
) -> Found<S::Move> {
    let root = start.key();
    let mut from: From<S::Move> = HashMap::from([(root, (root, None))]);
    let mut layer = vec![(root, start)];
    let mut found = Found { situations: 1, moves: 0, tried: 0, wrong: None };
    let mut moves = Vec::new();
    let began = Instant::now();
    let mut complete = "";
    for level in 1..=depth {
        let mut next = Vec::new();
        for (id, before) in &layer {
            before.moves(&mut moves);
            for choice in &moves {
                found.moves += 1;
                let mut after = before.clone();
                let mut verdict = guarded(|| {
                    after.step(*choice);
                    after.check()
                });
                let mut key = 0;
                if verdict.is_ok() {
                    key = after.key();
                    let Entry::Vacant(entry) = from.entry(key) else { continue };
                    entry.insert((*id, Some(*choice)));
                    found.situations += 1;
                    if found.situations.is_multiple_of(sample) {
                        found.tried += 1;
                        let end = End {
                            lose: found.tried.is_multiple_of(2),
                            last_first: found.tried % 4 >= 2,
                        };
                        verdict = guarded(|| after.clone().served(end))
                            .map_err(|what| format!("{what} (faults off, {end:?})"));
                    }
                }
                if let Err(what) = verdict {
                    found.wrong = Some((what, path(&from, *id, *choice)));
                    return found;
                }
                if level < depth {
                    next.push((key, after));
                }
            }
        }
        layer = next;
        if layer.is_empty() && level < depth {
            complete = ", complete";
            break;
        }
    }
    println!(
        "{name}: depth {depth}{complete}, {} situations, {} moves, {} tried for liveness, {:.1?}",
        found.situations,
        found.moves,
        found.tried,
        began.elapsed()
    );
    found
}

fn guarded(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panicked".to_owned()))
}

fn path<M: Copy>(from: &From<M>, last: u64, choice: M) -> Vec<M> {
    let mut path = vec![choice];
    let mut at = last;
    while let (before, Some(step)) = from[&at] {
        path.push(step);
        at = before;
    }
    path.reverse();
    path
}
