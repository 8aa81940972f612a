//! Invariants on what the server carried out, from its own log.
//!
//! - **I1**: no owner gets a lock that another holds.
//! - **I4, I11**: every grant has its own token, larger than all before it; no ended hold comes
//!   back.
//! - **I5, I6**: no owner is granted a lock while another is before it in the queue.
//! - **I7**: no waiter is removed as dead whose client was heard from.
//! - **I11**: an owner that released the lock does not get it again through a copy of its request.
//! - **I9**: a count changes by one; a copy of a request changes nothing.
//! - **I10** follows from I1: between two grants there is an end.
//! - **I12**: holds, and keys that only fairlock uses, have a TTL.
//! - **I15**: queue and scores have the same members, each once; the holder is not among them;
//!   fairlock's waiters are in the order of their numbers.
//!
//! [`shares`]: the same of read-write locks and semaphores.
//!
//! After an operator or a clock jump took away a part of a queue, its order is not checked until it
//! is restored.

mod dates;
mod line;
mod observer;
mod shares;

use super::both::on_boot;
use super::window::Excuse;
use super::{Found, ns};
use crate::log::effects::Command;
use crate::pace::DEAD_AFTER;
use crate::wanted::has_shares;
use dates::{Dates, Grant};
use observer::{Key, Observer};
use shares::Shares;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// How long a finished hold is remembered: longer than any process is stopped.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How long before we read it a command may have been carried out.
const READ_WITHIN: Duration = Duration::from_secs(3);

/// No lease here is longer, and neither is what a waiter gives a hold without a TTL.
const LONGEST_MS: i64 = 30_000;

#[derive(Debug)]
pub(super) struct Server {
    observers: HashMap<String, Observer>,
    dates: Dates,
    shares: Shares,
    /// The token of the last grant, and whether it was lost since. No fault resets it.
    last: HashMap<String, (u64, bool)>,
    holds: HashMap<(String, u64), Hold>,
    /// The last hold of each owner: here, an owner gets a lock once.
    owners: HashMap<(String, String), u64>,
    forget: VecDeque<(i64, String, u64)>,
}

/// A hold as the server recorded it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) owner: String,
    /// The latest expiry it ever had, on the wall clock.
    pub(super) longest_us: i64,
    pub(super) over: Option<Over>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) read_us: i64,
    /// Whether it ended before its expiry.
    pub(super) early: bool,
}

impl Server {
    /// `lease`: the lease to which holds are renewed.
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            observers: HashMap::new(),
            dates: Dates::new(lease),
            shares: Shares::new(lease),
            last: HashMap::new(),
            holds: HashMap::new(),
            owners: HashMap::new(),
            forget: VecDeque::new(),
        }
    }

    /// The hold of whoever has this token. Of a lock with shares several may have it.
    pub(super) fn hold(&self, lock: &str, owner: &str, token: u64) -> Option<&Hold> {
        if has_shares(lock) {
            return self.shares.hold(lock, owner, Some(token));
        }
        self.holds.get(&(lock.to_owned(), token))
    }

    pub(super) fn hold_of(&self, lock: &str, owner: &str) -> Option<&Hold> {
        if has_shares(lock) {
            return self.shares.hold(lock, owner, None);
        }
        let token = self.owners.get(&(lock.to_owned(), owner.to_owned()))?;
        self.hold(lock, owner, *token)
    }

    /// Whether the owner holds this lock or waits for it.
    pub(super) fn has(&self, lock: &str, owner: &str) -> bool {
        self.observers.get(lock).is_some_and(|observer| observer.has(owner))
            || self.shares.has(lock, owner)
    }

    /// All keys were deleted.
    pub(super) fn emptied(&mut self) {
        let now = crate::log::tail::wall_us();
        let held: Vec<_> = self
            .observers
            .iter()
            .filter_map(|(name, observer)| Some((name.clone(), observer.holder.as_ref()?.token)))
            .collect();
        for (name, token) in held {
            self.over(&name, token, now, true);
        }
        self.observers.clear();
        self.dates.clear();
        self.shares.emptied(now);
        for (_, is_lost) in self.last.values_mut() {
            *is_lost = true;
        }
    }

    /// Checks a group of commands that the server carried out atomically.
    pub(super) fn carried_out(&mut self, group: &[Command], read_us: i64, found: &mut Found) {
        if group.iter().any(|command| command[0].eq_ignore_ascii_case(b"FLUSHALL")) {
            return self.emptied();
        }
        let mut names: Vec<String> = Vec::new();
        for command in group {
            for key in observer::keys(command) {
                let name = match &key {
                    Key::Lock(name)
                    | Key::Part(_, name)
                    | Key::OfShares(_, name)
                    | Key::Timeout(name, _) => name,
                    Key::Other => continue,
                };
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        for name in names {
            if has_shares(&name) {
                self.shares.check(&name, group, read_us, found);
            } else {
                self.check(&name, group, read_us, found);
            }
        }
    }

    fn check(&mut self, name: &str, group: &[Command], read_us: i64, found: &mut Found) {
        let mut observer = self.observers.remove(name).unwrap_or_default();
        let (before, held_before) = (observer.before(), observer.holder.clone());
        let changes = observer.apply(name, group);
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
        let mut handed_over = false;
        if changes.ended
            && let Some(hold) = held_before
        {
            let early = hold.expire_ms.is_none_or(|expire| expire * 1_000 > read_us);
            self.over(name, hold.token, read_us, early);
            self.dates.over(name, early, read_us, found);
            handed_over = early;
        }
        if let Some(owner) = &changes.granted {
            // Here, an owner has one turn. An unanswered grant ends when it expires, not earlier.
            let over = self.hold_of(name, owner).and_then(|hold| hold.over);
            if let (Some(over), true) = (over.filter(|over| over.early), changes.minted.is_some()) {
                let what = format!("{owner} was granted it again after its turn was over");
                let from = on_boot(over.read_us).saturating_sub(ns(READ_WITHIN));
                found.suspect(Excuse::Repeated, from, now, say(what));
            }
            for (excuse, what) in
                self.granted(name, &mut observer, owner, changes.minted, &changes.early)
            {
                found.suspect(excuse, lately, now, say(what));
            }
            found.result.logged += 1;
            let (entered_us, expire_ms) = (changes.number, expires(&observer));
            let token = changes.minted.unwrap_or(0);
            let grant = Grant { owner, token, expire_ms, entered_us, handed_over };
            self.dates.granted(name, &grant, read_us, found);
            if observer.holder.is_none() {
                self.over(name, changes.minted.unwrap_or(0), read_us, true);
                self.dates.over(name, true, read_us, found);
            }
        } else if let Some(hold) = &mut observer.holder {
            self.dates.extended(name, hold.expire_ms, read_us, found);
            if let Some(token) = changes.minted {
                // The token was lost and the holder repeated its request: from now on the hold has
                // a new one.
                if let Some(known) = self.holds.get(&(name.to_owned(), hold.token)).cloned() {
                    self.owners.insert((name.to_owned(), known.owner.clone()), token);
                    self.holds.insert((name.to_owned(), token), known);
                }
                hold.token = token;
                self.last.insert(name.to_owned(), (token, false));
            }
            let longest_us = hold.expire_ms.unwrap_or(0) * 1_000;
            if let Some(known) = self.holds.get_mut(&(name.to_owned(), hold.token)) {
                known.longest_us = known.longest_us.max(longest_us);
            }
        }
        if let Some(server_ms) = changes.removed_at {
            for (owner, beat) in &before.beats_of_waiters {
                let age = server_ms - beat;
                let is_young = Duration::from_millis(age.unsigned_abs()) < DEAD_AFTER;
                if is_young && !observer.has(owner) {
                    // A waiter without an inbox may be removed: only a disturbance takes the inbox
                    // away.
                    let what = format!("{owner} was taken out, heard {age} ms before");
                    found.suspect(Excuse::Disturbed, lately, now, say(what));
                }
            }
        }
        for what in observer.inconsistent(changes.taken) {
            found.violation(say(what));
        }
        if !observer.is_empty() {
            self.observers.insert(name.to_owned(), observer);
        }
    }

    /// Returns what is wrong with a grant.
    fn granted(
        &mut self,
        name: &str,
        observer: &mut Observer,
        owner: &str,
        minted: Option<u64>,
        early: &[String],
    ) -> Vec<(Excuse, String)> {
        let mut wrong = Vec::new();
        let (last, is_lost) = self.last.entry(name.to_owned()).or_default();
        if minted.is_none_or(|token| token <= *last) {
            let what = format!("{owner} was granted it with token {minted:?} after {last}");
            let both = *is_lost && minted.is_some();
            wrong.push((if both { Excuse::ClockMoved } else { Excuse::Never }, what));
        }
        (*last, *is_lost) = (minted.unwrap_or(*last), false);
        let token = minted.unwrap_or(0);
        let hold = Hold { owner: owner.to_owned(), longest_us: 0, over: None };
        self.holds.insert((name.to_owned(), token), hold);
        self.owners.insert((name.to_owned(), owner.to_owned()), token);
        if let Some(hold) = &mut observer.holder {
            hold.token = token;
            let longest_us = hold.expire_ms.unwrap_or(0) * 1_000;
            if let Some(known) = self.holds.get_mut(&(name.to_owned(), token)) {
                known.longest_us = longest_us;
            }
            // A token is the server's time, or ahead of it.
            let minted_us = minted.and_then(|token| i64::try_from(token).ok());
            if minted_us.is_some_and(|at| longest_us - at > (LONGEST_MS + 2) * 1_000) {
                let what = format!("{owner} has it until {longest_us}, with token {token}");
                wrong.push((Excuse::StateLoss, what));
            }
        }
        if !observer.mending {
            for early in early.iter().filter(|earlier| observer.has(earlier)) {
                let what = format!("{owner} was granted it while {early} stood before it");
                wrong.push((Excuse::Never, what));
            }
        }
        wrong
    }

    fn over(&mut self, name: &str, token: u64, read_us: i64, early: bool) {
        if let Some(hold) = self.holds.get_mut(&(name.to_owned(), token)) {
            hold.over = Some(Over { read_us, early });
        }
        self.forget.push_back((read_us, name.to_owned(), token));
        let old = read_us - i64::try_from(REMEMBERED.as_micros()).unwrap_or(0);
        while self.forget.front().is_some_and(|(then, ..)| *then < old) {
            let Some((_, name, token)) = self.forget.pop_front() else { break };
            if let Some(hold) = self.holds.remove(&(name.clone(), token)) {
                self.owners.remove(&(name, hold.owner));
            }
        }
    }
}

/// The expiry of the current hold.
fn expires(observer: &Observer) -> Option<i64> {
    observer.holder.as_ref()?.expire_ms
}

/// A member that is in the list twice.
fn twice(list: &VecDeque<String>) -> Option<&String> {
    let mut seen = HashSet::new();
    list.iter().find(|member| !seen.insert(*member))
}
