//! Invariants on what the server carried out, of locks with shares.
//!
//! - **I1**: a writer is alone, and permits in use are at most the limit.
//! - **I4, I11**: every grant has a token larger than all before it; those who read at the same time
//!   have one.
//! - **I5, I6**: nobody is granted a share while another is before it in the line.
//! - **I7**: no waiter is removed as dead whose client was heard from.
//! - **I12**: whatever only fairlock uses has a TTL, and the lock ends with its last lease.
//! - **I15**: fields, leases and records have the same holders, and Java believes in each reader for as
//!   long as its lease; who holds does not wait; permits in use are counted.
//! - **L3 to L5, L9**: as of locks, for each hold, and for the first of the line that could be served.

use super::dates::{Dates, ROUNDING_US};
use super::line::{Ended, Granted, Line};
use super::{Command, Excuse, Found, Hold, Over, READ_WITHIN, REMEMBERED, ns, on_boot};
use crate::pace::DEAD_AFTER;
use fairlock::Share;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A lock and an owner.
type Key = (String, String);

#[derive(Debug)]
pub(super) struct Shares {
    lines: HashMap<String, Line>,
    dates: Dates,
    /// The largest token, and whether it was lost since. No fault resets it.
    last: HashMap<String, (u64, bool)>,
    /// Since when the first of the line could be served.
    open: HashMap<String, i64>,
    /// The holds of each owner with their tokens, the last one last. Here an owner gets a lock once; a
    /// request that arrives once more makes another hold of it.
    holds: HashMap<Key, Vec<(u64, Hold)>>,
    forget: VecDeque<(i64, Key)>,
}

impl Shares {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lines: HashMap::new(),
            dates: Dates::new(lease),
            last: HashMap::new(),
            open: HashMap::new(),
            holds: HashMap::new(),
            forget: VecDeque::new(),
        }
    }

    /// The last hold of an owner, or the one with this token.
    pub(super) fn hold(&self, lock: &str, owner: &str, token: Option<u64>) -> Option<&Hold> {
        let holds = self.holds.get(&(lock.to_owned(), owner.to_owned()))?;
        let mut holds = holds.iter().rev();
        let hold = holds.find(|(its, _)| token.is_none_or(|token| *its == token));
        hold.map(|(_, hold)| hold)
    }

    fn last_hold(&mut self, key: &Key) -> Option<&mut Hold> {
        self.holds.get_mut(key)?.last_mut().map(|(_, hold)| hold)
    }

    pub(super) fn has(&self, lock: &str, owner: &str) -> bool {
        self.lines.get(lock).is_some_and(|line| line.has(owner))
    }

    /// All keys were deleted.
    pub(super) fn emptied(&mut self, now_us: i64) {
        let of_line = |(name, line): (&String, &Line)| {
            line.holders().map(|owner| (name.clone(), owner.clone())).collect::<Vec<_>>()
        };
        let held: Vec<_> = self.lines.iter().flat_map(of_line).collect();
        for key in held {
            self.over(key, now_us, true);
        }
        self.lines.clear();
        self.dates.clear();
        self.open.clear();
        for (_, is_lost) in self.last.values_mut() {
            *is_lost = true;
        }
    }

    pub(super) fn check(&mut self, name: &str, group: &[Command], read_us: i64, found: &mut Found) {
        let mut line = self.lines.remove(name).unwrap_or_default();
        let beats = line.beats_of_waiters();
        let changes = line.apply(name, group);
        let now = on_boot(read_us);
        let say = |what: String| format!("lock {name}, by the server's log at {now}: {what}");
        let lately = now.saturating_sub(ns(READ_WITHIN));
        for what in &changes.wrong {
            found.violation(say(what.clone()));
        }
        if changes.lost_token
            && let Some((_, is_lost)) = self.last.get_mut(name)
        {
            *is_lost = true;
        }
        let freed = self.ended(name, &changes.ended, read_us, found);
        for granted in &changes.granted {
            let key = (name.to_owned(), granted.owner.clone());
            if let Some(over) = self.last_hold(&key).and_then(|hold| hold.over)
                && over.early
            {
                let what =
                    format!("{} was granted it again after its turn was over", granted.owner);
                let from = on_boot(over.read_us).saturating_sub(ns(READ_WITHIN));
                found.suspect(Excuse::Repeated, from, now, say(what));
            }
            for (excuse, what) in self.granted(name, &line, granted) {
                found.suspect(excuse, lately, now, say(what));
            }
            found.result.logged += 1;
            let early = changes.ended.iter().any(|ended| is_early(ended, read_us));
            // A token that was minted now is the server's time, or ahead of it.
            let minted = changes.minted.filter(|token| Some(*token) == granted.token);
            if let (Some(ends_ms), Some(minted), Some(_), true) =
                (granted.ends_ms, minted, granted.number, early)
            {
                let ttl_us = ends_ms * 1_000 - i64::try_from(minted).unwrap_or(0);
                if ttl_us > i64::try_from(DEAD_AFTER.as_micros()).unwrap_or(0) + ROUNDING_US {
                    let what = format!(
                        "{} has {} ms to say that it heard of its grant",
                        granted.owner,
                        ttl_us / 1_000
                    );
                    // A client that forces a lock open uses its own deadline.
                    found.suspect(Excuse::StateLoss, lately, now, say(what));
                }
            }
            let hold = dated(name, &granted.owner);
            self.dates.begins(&hold, granted.ends_ms, read_us, read_us);
        }
        for (owner, ends_ms) in &changes.renewed {
            if let Some(hold) = self.last_hold(&(name.to_owned(), owner.clone())) {
                hold.longest_us = hold.longest_us.max(ends_ms * 1_000);
            }
            self.dates.extended(&dated(name, owner), Some(*ends_ms), read_us, found);
        }
        self.was_open(name, &line, &changes.granted, freed, read_us, found);
        if let Some(server_ms) = changes.removed_at {
            for (owner, beat) in &beats {
                let age = server_ms - beat;
                if Duration::from_millis(age.unsigned_abs()) < DEAD_AFTER && !line.has(owner) {
                    let what = format!("{owner} was taken out, heard {age} ms before");
                    found.suspect(Excuse::Disturbed, lately, now, say(what));
                }
            }
        }
        for what in line.inconsistent(changes.taken, read_us / 1_000) {
            found.violation(say(what));
        }
        if !line.is_empty() {
            self.lines.insert(name.to_owned(), line);
        }
    }

    /// Returns when the last of these holds ended, by its lease or by this group.
    fn ended(
        &mut self,
        name: &str,
        ended: &[Ended],
        read_us: i64,
        found: &mut Found,
    ) -> Option<i64> {
        let mut freed = None;
        for ended in ended {
            let early = is_early(ended, read_us);
            freed =
                freed.max(if early { Some(read_us) } else { ended.ends_ms.map(|at| at * 1_000) });
            self.dates.ends(&dated(name, &ended.owner), early, read_us, found);
            self.over((name.to_owned(), ended.owner.clone()), read_us, early);
        }
        freed
    }

    /// Returns what is wrong with a grant.
    fn granted(&mut self, name: &str, line: &Line, granted: &Granted) -> Vec<(Excuse, String)> {
        let Granted { owner, share, token, number, joins, .. } = granted;
        let mut wrong = Vec::new();
        let (last, is_lost) = self.last.entry(name.to_owned()).or_default();
        let rises = token.is_some_and(|token| {
            token > *last || (token == *last && *share == Share::Read && *joins)
        });
        if !rises {
            let what = format!("{owner} was granted {share:?} with token {token:?} after {last}");
            let both = *is_lost && token.is_some();
            wrong.push((if both { Excuse::ClockMoved } else { Excuse::Never }, what));
        }
        (*last, *is_lost) = (token.unwrap_or(*last), false);
        let longest_us = granted.ends_ms.unwrap_or(0) * 1_000;
        let hold = Hold { owner: owner.clone(), longest_us, over: None };
        let key = (name.to_owned(), owner.clone());
        self.holds.entry(key).or_default().push((token.unwrap_or(0), hold));
        if !line.mending {
            for early in line.before(*number) {
                let what = format!("{owner} was granted it while {early} stood before it");
                wrong.push((Excuse::Never, what));
            }
        }
        wrong
    }

    /// For how long the first of the line could have been served, and was not. `freed`: when that ended
    /// which stood in the way.
    fn was_open(
        &mut self,
        name: &str,
        line: &Line,
        granted: &[Granted],
        freed: Option<i64>,
        read_us: i64,
        found: &mut Found,
    ) {
        let since = self.open.get(name).copied().or(freed);
        if let (Some(since_us), Some(first)) =
            (since, granted.iter().find(|granted| granted.number.is_some()))
        {
            let entered = first.number.and_then(|number| i64::try_from(number).ok());
            let since_us = since_us.max(entered.unwrap_or(i64::MAX)).min(read_us);
            self.dates.was_free(name, &first.owner, (since_us, read_us), found);
        }
        if !line.could_serve() {
            self.open.remove(name);
        } else if !granted.is_empty() || !self.open.contains_key(name) {
            self.open.insert(name.to_owned(), read_us);
        }
    }

    fn over(&mut self, key: Key, read_us: i64, early: bool) {
        if let Some(hold) = self.last_hold(&key) {
            hold.over = Some(Over { read_us, early });
        }
        self.forget.push_back((read_us, key));
        let old = read_us - i64::try_from(REMEMBERED.as_micros()).unwrap_or(0);
        while self.forget.front().is_some_and(|(then, _)| *then < old) {
            let Some((_, key)) = self.forget.pop_front() else { break };
            if let Some(holds) = self.holds.get_mut(&key) {
                holds.remove(0);
                if holds.is_empty() {
                    self.holds.remove(&key);
                }
            }
        }
    }
}

/// Whether it was released or taken before its lease was over.
fn is_early(ended: &Ended, read_us: i64) -> bool {
    ended.ends_ms.is_none_or(|at| at * 1_000 > read_us)
}

/// The name under which the dates of a hold are kept.
fn dated(lock: &str, owner: &str) -> String {
    format!("{lock} of {owner}")
}
