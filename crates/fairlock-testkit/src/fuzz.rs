//! Fuzzing on stable Rust: a corpus of real inputs, mutated at random, given to a target that must
//! survive them.
//!
//! A test run plays a bounded number of cases, always the same ones, so its result depends on the
//! code alone. With `FAIRLOCK_FUZZ_SECONDS` each target plays others for that long, and each
//! failure prints the `FAIRLOCK_FUZZ_SEED` that starts with the failed case.

use crate::rng::{Rng, first_seed};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// The longest input made from a corpus.
const BYTES_MAX: usize = 1 << 16;

/// Bytes that have a meaning in some format.
const TELLING: &[u8] = b"\r\n\0{}:@/%?=,-+*$>~|!_# \"'[]0129\xff\xc3\x7f";

/// Words that have a meaning in some format.
const WORDS: [&[u8]; 12] = [
    b"-1",
    b"0",
    b"9007199254740992",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"\r\n",
    b"*1\r\n",
    b"$-1\r\n",
    b"%00",
    b"://",
    b"{}",
    b"nan",
];

/// Plays `cases` cases of the target, or as many as fit into `FAIRLOCK_FUZZ_SECONDS`.
///
/// # Panics
///
/// With the first panic of the target, after its seed.
pub fn cases(name: &str, cases: u64, mut target: impl FnMut(&mut Rng)) {
    let number = |name: &str| {
        let text = env::var(name).ok();
        text.map(|text| text.parse::<u64>().expect("a whole number"))
    };
    let seconds = number("FAIRLOCK_FUZZ_SECONDS");
    let first = first_seed(number("FAIRLOCK_FUZZ_SEED"), seconds.is_some());
    let until = seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let goes_on = |played| until.map_or(played < cases, |until| Instant::now() < until);
    let mut played = 0;
    while goes_on(played) {
        let seed = first.wrapping_add(played);
        let case = AssertUnwindSafe(|| target(&mut Rng::new(seed)));
        if let Err(panic) = catch_unwind(case) {
            println!("FAIRLOCK_FUZZ_SEED={seed} in {name}, after {played} cases");
            resume_unwind(panic);
        }
        played += 1;
    }
    println!("measured: {name}: {played} cases from seed {first}");
}

/// The same for a target of text; inputs that are not UTF-8 are left out.
///
/// # Panics
///
/// As [`cases`].
pub fn texts(name: &str, count: u64, texts: &[&str], mut target: impl FnMut(&str)) {
    let corpus = corpus(texts);
    cases(name, count, |rng| {
        if let Ok(text) = std::str::from_utf8(&input(rng, &corpus)) {
            target(text);
        }
    });
}

/// A corpus of texts.
pub fn corpus(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// An input: one of the corpus, or a piece of it, changed in a few places; now and then just noise.
pub fn input(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() || rng.chance(5) {
        return noise(rng, 200);
    }
    let mut bytes = rng.pick(corpus);
    for _ in 0..rng.below(6) {
        change(rng, &mut bytes, corpus);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// At most this many bytes, of any value.
pub fn noise(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..rng.below(most + 1)).map(|_| byte(rng)).collect()
}

fn byte(rng: &mut Rng) -> u8 {
    if rng.chance(50) { rng.pick(TELLING) } else { u8::try_from(rng.below(256)).unwrap_or(0) }
}

/// A position in `bytes`, or their end.
fn position(rng: &mut Rng, bytes: &[u8]) -> usize {
    usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap_or(0)
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = position(rng, bytes);
    let end = at + usize::try_from(rng.below(8)).unwrap_or(0).min(bytes.len() - at);
    match rng.below(8) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.insert(at, byte(rng)),
        3 => {
            let word = rng.pick(&WORDS);
            drop(bytes.splice(at..end, word.iter().copied()));
        }
        4 => {
            // A part of another input.
            let other = rng.pick(corpus);
            let from = position(rng, &other);
            drop(bytes.splice(at.., other[from..].iter().copied()));
        }
        5 => {
            let again = bytes[at..].to_vec();
            bytes.extend(again);
        }
        6 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        _ => {
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte(rng);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_and_they_differ() {
        let corpus = [b"redis://h:1/0".to_vec(), b"$3\r\nabc\r\n".to_vec()];
        let of = |seed| input(&mut Rng::new(seed), &corpus);
        let all: std::collections::BTreeSet<_> = (0..200).map(of).collect();
        assert!(all.len() > 100, "{}", all.len());
        assert!((0..200).all(|seed| of(seed) == of(seed)));
    }

    #[test]
    fn a_target_of_text_is_played() {
        let mut played = 0;
        texts("a target of text", 200, &["redis://h:1/0", "unix:/s"], |_| played += 1);
        assert!(played > 100, "most are text, {played} were");
    }

    #[test]
    fn a_panic_ends_it() {
        let result = catch_unwind(|| cases("in vain", 10, |rng| assert!(rng.below(3) > 0)));
        assert!(result.is_err());
    }
}
