//! The facts of a lock that are shown: plain data, ready to be drawn.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use fairlock::{Error, Kind, LockStatus, OwnerId, Share};

use crate::base::message;
use crate::locks::look::{Name, Seen, Target};
use crate::locks::text;

/// One look at a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) name: Name,
    pub(super) kind: Option<Kind>,
    /// The first of the holders.
    pub(super) holder: Option<Holder>,
    /// Whether they read. Then it is known since when somebody does, not since when each of them.
    pub(super) reads: bool,
    /// The holders, if there are several: the first of them.
    pub(super) holders: Vec<Holder>,
    pub(super) holding: usize,
    /// The holders in a cell, or that it is done.
    pub(super) cell: String,
    /// A run of its period has ended well: nobody works, and the lock stays held until the period is over.
    pub(super) is_done: bool,
    /// `held`, or what it is held for.
    pub(super) held: &'static str,
    /// Of a semaphore, what is in use.
    pub(super) usage: Vec<String>,
    /// Time until the lease ends unless it is renewed.
    pub(super) left: Option<Duration>,
    pub(super) token: Option<u64>,
    pub(super) waiting: usize,
    /// The first waiters, if they were requested.
    pub(super) queue: Vec<Waiter>,
    /// Why there are no facts.
    pub(super) trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) id: String,
    /// What its client publishes about itself.
    pub(super) who: Option<String>,
    pub(super) held_for: Option<Duration>,
    pub(super) count: u32,
    /// The permits of a semaphore that it has.
    pub(super) permits: Option<String>,
    /// When it runs out, and whether its renewal is overdue; begins with a comma.
    pub(super) lasts: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) place: usize,
    pub(super) id: String,
    pub(super) who: Option<String>,
    pub(super) waits_for: Option<Duration>,
    /// What it wants of a lock that several may hold.
    pub(super) wants: Option<String>,
    /// `None` if unknown.
    pub(super) alive: Option<bool>,
}

impl Facts {
    pub(super) fn new(seen: Seen) -> Self {
        let Seen { name, kind, status } = seen;
        let who = |owner: &OwnerId| status.client(owner).map(text::who);
        let holder = |holder: &fairlock::Holder| Holder {
            id: holder.owner.to_string(),
            who: who(&holder.owner),
            held_for: age(&status, holder.since),
            count: holder.count,
            permits: text::permits(holder.share),
            lasts: text::lasts(&status, holder),
        };
        let usage = text::usage(&status).into_iter().chain(text::limits(&status));
        let several = status.holding > 1;
        let queue = status.queue.iter().map(|waiter| Waiter {
            place: waiter.place,
            id: waiter.owner.to_string(),
            who: who(&waiter.owner),
            waits_for: age(&status, waiter.since),
            wants: text::want(kind, waiter.share),
            alive: waiter.alive,
        });
        Self {
            kind,
            reads: status.holder.as_ref().is_some_and(|holder| holder.share == Share::Read),
            holder: status.holder.as_ref().map(holder),
            holders: status.holders.iter().filter(|_| several).map(holder).collect(),
            holding: status.holding,
            cell: text::cell(kind, &status).unwrap_or_default(),
            is_done: status.is_done(),
            held: text::held(kind, &status),
            usage: usage.collect(),
            left: status.ttl,
            token: status.token.map(|token| token.get()),
            waiting: status.queue_len,
            queue: queue.collect(),
            trouble: None,
            name,
        }
    }

    /// The result of a failed look.
    pub(super) fn failed(target: &Target, error: &Error) -> Self {
        Self {
            name: target.name.clone(),
            kind: target.kind,
            holder: None,
            reads: false,
            holders: Vec::new(),
            holding: 0,
            cell: String::new(),
            is_done: false,
            held: "held",
            usage: Vec::new(),
            left: None,
            token: None,
            waiting: 0,
            queue: Vec::new(),
            trouble: Some(message::redact(&error.to_string())),
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.holder.is_some() || self.waiting > 0
    }

    /// Whether somebody else got the lock since this look: there is another holder, or another token if the
    /// holder is the same or there is none.
    fn is_handed_on(&self, later: &Self) -> bool {
        if self.trouble.is_some() || later.trouble.is_some() {
            return false;
        }
        let id = |facts: &Self| facts.holder.as_ref().map(|holder| holder.id.clone());
        let other_holder = id(later).is_some_and(|new| id(self) != Some(new));
        // Of several holders the first one changes when another comes or goes; each hold, or time of reading, has a token.
        (other_holder && !later.is_shared()) || later.token > self.token
    }

    /// Whether several may hold it.
    fn is_shared(&self) -> bool {
        matches!(self.kind, Some(Kind::ReadWrite | Kind::Semaphore))
    }
}

/// How long ago, by the store's clock.
fn age(status: &LockStatus, since: Option<SystemTime>) -> Option<Duration> {
    status.at.duration_since(since?).ok()
}

/// How often a lock was seen to change hands. A token is a time and not a counter, so all changes between two looks
/// count as one: the number is a lower bound, at most one for each look.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    looks: VecDeque<(Duration, bool)>,
}

/// Number of looks that are remembered.
const LOOKS_MAX: usize = 30;

impl Changes {
    /// Takes in a look at this time and the one before it.
    pub(super) fn note(&mut self, at: Duration, before: Option<&Facts>, now: &Facts) {
        if self.looks.len() == LOOKS_MAX {
            self.looks.pop_front();
        }
        self.looks.push_back((at, before.is_some_and(|before| before.is_handed_on(now))));
    }

    /// Changes per second; `None` before the second look.
    pub(super) fn per_second(&self) -> Option<f64> {
        let (first, last) = (self.looks.front()?.0, self.looks.back()?.0);
        let time = last.checked_sub(first).filter(|time| !time.is_zero())?;
        // A change seen by the first look happened before the measured time.
        let seen = self.looks.iter().skip(1).filter(|(_, changed)| *changed).count();
        Some(seen as f64 / time.as_secs_f64())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A lock that `holder` holds.
    pub(in crate::commands::top) fn facts(name: &str, holder: &str, token: u64) -> Facts {
        Facts {
            name: Name::new(name.as_bytes()),
            kind: None,
            holder: (!holder.is_empty()).then(|| Holder {
                id: format!("{holder}-id"),
                who: Some(holder.to_owned()),
                held_for: Some(Duration::from_millis(2_500)),
                count: 1,
                permits: None,
                lasts: ", runs out in 27s unless renewed".to_owned(),
            }),
            reads: false,
            holders: Vec::new(),
            holding: usize::from(!holder.is_empty()),
            cell: holder.to_owned(),
            is_done: false,
            held: "held",
            usage: Vec::new(),
            left: (!holder.is_empty()).then(|| Duration::from_secs(27)),
            token: Some(token),
            waiting: 0,
            queue: Vec::new(),
            trouble: None,
        }
    }

    #[test]
    fn changes_of_the_holder_are_counted() {
        let looks = [
            (facts("x", "a", 1), false),
            (facts("x", "a", 1), false),
            (facts("x", "b", 2), true),
            // Free now, and nobody had it in between.
            (facts("x", "", 2), false),
            // Free again, and somebody had it in between.
            (facts("x", "", 3), true),
            (facts("x", "b", 4), true),
            // Java issues no tokens.
            (facts("x", "c", 4), true),
            // The token is forgotten.
            (Facts { token: None, ..facts("x", "c", 4) }, false),
        ];
        let reads =
            |holder, token| Facts { kind: Some(Kind::ReadWrite), ..facts("x", holder, token) };
        assert!(!reads("a", 1).is_handed_on(&reads("b", 1)), "they read at the same time");
        assert!(reads("a", 1).is_handed_on(&reads("a", 2)));
        for pair in looks.windows(2) {
            assert_eq!(pair[0].0.is_handed_on(&pair[1].0), pair[1].1, "{pair:?}");
        }

        let mut changes = Changes::default();
        assert_eq!(changes.per_second(), None);
        let mut before = None;
        for second in 0..100_u64 {
            // Once in two seconds.
            let now = facts("x", "a", second / 2);
            changes.note(Duration::from_secs(second), before.as_ref(), &now);
            before = Some(now);
            assert_eq!(changes.per_second().is_some(), second > 0);
        }
        let rate = changes.per_second().unwrap();
        assert!((0.45..=0.55).contains(&rate), "{rate}");
        assert_eq!(changes.looks.len(), LOOKS_MAX);
    }
}
