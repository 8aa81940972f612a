//! The waiters of a client for locks without a queue: one of each lock asks the store at a time.

use super::machine::AttemptId;
use crate::id::LockName;
use std::collections::{BTreeMap, BTreeSet};

/// The lines of a client: one for each lock without a queue for which somebody waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lines(BTreeMap<LockName, Line>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    /// In the order in which they came. The first one has the turn.
    waiters: BTreeSet<AttemptId>,
    /// A message has come for which nobody rested.
    woken: bool,
    /// What was handed down: a subscription to the lock's topic, and the end of the lease of the last waiter that was
    /// granted the lock.
    held_until_ns: Option<u64>,
}

/// The effect of leaving a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftLine {
    /// A subscription is left that no waiter needs.
    pub(super) unsubscribe: bool,
    /// Whose turn it is now.
    pub(super) next: Option<AttemptId>,
}

impl Lines {
    /// Joins the line. Returns whether it is its turn already.
    pub(super) fn enter(&mut self, name: &LockName, waiter: AttemptId) -> bool {
        let line = self.0.entry(name.clone()).or_default();
        line.waiters.insert(waiter);
        line.waiters.len() == 1
    }

    /// What the last waiter that had the turn has handed down, with its subscription.
    pub(super) fn inherit(&mut self, name: &LockName) -> Option<u64> {
        self.0.get_mut(name)?.held_until_ns.take()
    }

    /// Leaves the line. If the waiter is `subscribed`, holds the lock until `held_until_ns`, and others wait, the next
    /// one gets the subscription and that time.
    pub(super) fn leave(
        &mut self,
        name: &LockName,
        waiter: AttemptId,
        subscribed: bool,
        held_until_ns: Option<u64>,
    ) -> LeftLine {
        let nothing = LeftLine { unsubscribe: subscribed, next: None };
        let Some(line) = self.0.get_mut(name) else { return nothing };
        let had_turn = line.waiters.first() == Some(&waiter);
        if !line.waiters.remove(&waiter) {
            return nothing;
        }
        let Some(first) = line.waiters.first().copied() else {
            // Those for whom something was handed down may have left without a turn.
            let handed_down = line.held_until_ns.is_some();
            self.0.remove(name);
            return LeftLine { unsubscribe: subscribed || handed_down, next: None };
        };
        let hands_down = subscribed && held_until_ns.is_some();
        if hands_down {
            line.held_until_ns = held_until_ns;
        }
        LeftLine { unsubscribe: subscribed && !hands_down, next: had_turn.then_some(first) }
    }

    /// A message has come, and nobody rests.
    pub(super) fn note_woken(&mut self, name: &LockName) {
        if let Some(line) = self.0.get_mut(name) {
            line.woken = true;
        }
    }

    /// Whether one has come since the last rest.
    pub(super) fn was_woken(&mut self, name: &LockName) -> bool {
        self.0.get_mut(name).is_some_and(|line| std::mem::take(&mut line.woken))
    }

    /// Whose turn it is.
    pub(super) fn first(&self, name: &LockName) -> Option<AttemptId> {
        self.0.get(name)?.waiters.first().copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &LockName> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> LockName {
        LockName::new(b"job").expect("a name")
    }

    /// A subscription that was handed down belongs to the line, until the next one's turn.
    #[test]
    fn what_is_handed_down_ends_with_its_line() {
        let (mut lines, name) = (Lines::default(), job());
        let mut number = 0;
        let mut enter = |lines: &mut Lines| {
            number += 1;
            (AttemptId(number), lines.enter(&name, AttemptId(number)))
        };
        let [(a, first), (b, second), (c, third)] = [(); 3].map(|()| enter(&mut lines));
        assert_eq!((first, second, third), (true, false, false));
        let left = |unsubscribe, next| LeftLine { unsubscribe, next };
        assert_eq!(lines.leave(&name, a, true, Some(7)), left(false, Some(b)), "two are behind it");
        assert_eq!(lines.inherit(&name), Some(7));
        assert_eq!(lines.inherit(&name), None, "once");
        assert_eq!(lines.leave(&name, b, true, None), left(true, Some(c)), "it was not granted");
        assert_eq!(lines.leave(&name, c, true, Some(8)), left(true, None), "nobody is behind it");

        let [(a, _), (b, _)] = [(); 2].map(|()| enter(&mut lines));
        assert_eq!(lines.leave(&name, a, true, Some(9)), left(false, Some(b)));
        assert_eq!(lines.leave(&name, b, false, None), left(true, None), "before its turn");
        let _ = enter(&mut lines);
        assert_eq!(lines.inherit(&name), None);
    }

    #[test]
    fn a_waiter_that_leaves_before_its_turn_passes_nothing_on() {
        let (mut lines, name) = (Lines::default(), job());
        for number in 1..=3 {
            lines.enter(&name, AttemptId(number));
        }
        assert_eq!(lines.leave(&name, AttemptId(2), false, None), LeftLine::default());
        assert_eq!(lines.leave(&name, AttemptId(1), false, None).next, Some(AttemptId(3)));
    }
}
