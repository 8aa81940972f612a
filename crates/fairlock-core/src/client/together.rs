//! Several locks at once: the order in which a client takes them, and the steps that follow when
//! one of them is not free, or is lost before the last is granted.
//!
//! Members are taken in one order that follows from their names alone, and the earlier ones are
//! held while the client waits for the next. So no client waits for a member while it holds a later
//! one, and no circle of clients can wait for each other, whatever the order in which their callers
//! name the members. This is true only while every held member stays held: if one is lost, the
//! client gives all back and begins again. Members that the store can take in one step are first
//! requested in one step, which takes all or none and never waits.

use crate::id::LockName;
use crate::slot::slot;
use std::ops::Range;

/// The most locks that are taken together: the script that takes them stays below a millisecond.
pub const TOGETHER_MAX: usize = 32;

/// Why locks cannot be taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTogether {
    /// There are no locks.
    None,
    /// There are this many, which is too many.
    TooMany(usize),
    /// These are one lock, or share a queue, as `x` and `{x}` do.
    OneQueue(LockName, LockName),
}

/// The order in which these locks are taken: indices into `names`, by the slot of a Redis Cluster
/// and then by name, on every store.
///
/// # Errors
/// They cannot be taken together.
pub fn order_of(names: &[LockName]) -> Result<Vec<usize>, NotTogether> {
    match names.len() {
        0 => return Err(NotTogether::None),
        1..=TOGETHER_MAX => {}
        many => return Err(NotTogether::TooMany(many)),
    }
    for (n, name) in names.iter().enumerate() {
        if let Some(other) = names[..n].iter().find(|other| queue_of(other) == queue_of(name)) {
            return Err(NotTogether::OneQueue(other.clone(), name.clone()));
        }
    }
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_cached_key(|n| (slot(names[*n].as_bytes()), names[*n].as_bytes()));
    Ok(order)
}

/// The name of a lock's queue: Redisson puts a lock's name in braces unless it has one.
fn queue_of(name: &LockName) -> &[u8] {
    let bytes = name.as_bytes();
    let inner = bytes.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    inner.filter(|inner| !inner.is_empty() && !inner.contains(&b'{')).unwrap_or(bytes)
}

/// What to do next. Members are numbered in the order in which they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// Take all of these in one step, or none: [`Together::group`].
    Group(Range<usize>),
    /// Take this one, waiting for it if the acquisition waits at all: [`Together::one`].
    One(usize),
    /// All are held.
    Held,
    /// Give back the held ones: one is not free.
    Nothing,
}

/// One acquisition of several locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Together {
    /// The ends of the groups that the store can take in one step.
    ends: Vec<usize>,
    waits: bool,
    /// The number of members held, from the first on.
    held: usize,
    /// The number of members that were requested in one step, from the first on.
    asked: usize,
    refused: bool,
}

impl Together {
    /// `groups` names, for each member in order, the step in which the store takes it. Without
    /// `waits`, the acquisition ends when one is not free.
    pub fn new(groups: &[u16], waits: bool) -> Self {
        let ends = groups.chunk_by(|a, b| a == b).scan(0, |end, group| {
            *end += group.len();
            Some(*end)
        });
        Self { ends: ends.collect(), waits, held: 0, asked: 0, refused: false }
    }

    /// The next thing to do.
    pub fn next(&self) -> Take {
        if self.refused {
            return Take::Nothing;
        }
        let Some(end) = self.ends.iter().copied().find(|end| self.held < *end) else {
            return Take::Held;
        };
        // One step for one lock is what it takes anyway.
        match self.held >= self.asked && end - self.held > 1 {
            true => Take::Group(self.held..end),
            false => Take::One(self.held),
        }
    }

    /// The group was requested in one step.
    pub fn group(&mut self, taken: bool) {
        if let Take::Group(group) = self.next() {
            self.asked = group.end;
            if taken {
                self.held = group.end;
            }
        }
    }

    /// The single member was requested.
    pub fn one(&mut self, taken: bool) {
        if let Take::One(_) = self.next() {
            self.held += usize::from(taken);
            self.refused = !taken;
        }
    }

    /// A member was lost, and all held members have been given back.
    pub fn again(&mut self) {
        (self.held, self.asked) = (0, 0);
    }

    /// Whether the acquisition waits for a member that is not free.
    pub fn waits(&self) -> bool {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<LockName> {
        of.iter().map(|name| LockName::new(name.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn the_order_follows_from_the_names_alone() {
        let first = names(&["b", "{t}z", "a", "{t}c"]);
        let second = names(&["{t}c", "a", "{t}z", "b"]);
        let in_order = |all: &[LockName]| {
            let order = order_of(all).unwrap();
            order.into_iter().map(|n| all[n].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(in_order(&first), in_order(&second));
        // b is in slot 3300, {t} in 15891, a in 15495.
        assert_eq!(in_order(&first), ["b", "a", "{t}c", "{t}z"]);
    }

    #[test]
    fn some_cannot_be_taken_together() {
        assert_eq!(order_of(&[]), Err(NotTogether::None));
        let many: Vec<_> = (0..33).map(|n| n.to_string()).collect();
        let many = names(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(order_of(&many), Err(NotTogether::TooMany(33)));
        assert_eq!(order_of(&many[..32]).map(|order| order.len()), Ok(32));
        for twice in [["x", "x"], ["x", "{x}"], ["{x}", "x"], ["a}b", "{a}b}"]] {
            let twice = names(&twice);
            let why = NotTogether::OneQueue(twice[0].clone(), twice[1].clone());
            assert_eq!(order_of(&twice), Err(why));
        }
        for apart in [["{x}", "{{x}}"], ["{x}a", "{x}b"], ["{}", "{"], ["x", "X"]] {
            assert!(order_of(&names(&apart)).is_ok(), "{apart:?}");
        }
    }

    #[test]
    fn groups_come_one_after_the_other() {
        let mut all = Together::new(&[1, 1, 7, 9, 9], true);
        assert_eq!(all.next(), Take::Group(0..2));
        all.group(false);
        for one in 0..2 {
            assert_eq!(all.next(), Take::One(one));
            all.one(true);
        }
        assert_eq!(all.next(), Take::One(2));
        all.one(true);
        assert_eq!(all.next(), Take::Group(3..5));
        all.again();
        assert_eq!(all.next(), Take::Group(0..2));
        all.group(true);
        all.one(true);
        all.group(true);
        assert_eq!(all.next(), Take::Held);
        let mut tried = Together::new(&[1, 1], false);
        tried.group(false);
        tried.one(true);
        tried.one(false);
        assert_eq!(tried.next(), Take::Nothing);
    }
}
