//! What the clients saw.
//!
//! - **Exclusion** (I2): two guards of a lock were valid for certain at the same time. A hold counts from
//!   when its guard was in the user's hands to the last time at which it was seen valid.
//! - **Order** (I5): a fair lock was given to somebody who asked for it after somebody else stood in the
//!   queue, and still does. Checked outside of disturbances.
//! - **Tokens** (I4): who asked when another had the lock already has a larger token. Always, but where
//!   the server's clock was set back.
//! - **Losses** (I14): a guard is lost only in a fault that loses state, or outlasts what it was granted for.
//! - **Nobody is left** (L1): every wait ends.
//! - **Nobody starves** (L8): who waits is passed over by nobody (order), so that it waits for those before it
//!   and for the lock to change hands: outside of disturbances that is not long, all in all.
//! - **Hand-overs** (L2): outside of disturbances a lock that is waited for is not free for long.

use super::window::Excuse;
use super::{Counts, Found, ns};
use crate::log::note::{End, Note};
use crate::pace::{DEAD_AFTER, HEARTBEAT};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// How long what is over is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A lost message is found by the next heartbeat (L2b); the rest is for a machine that others use too.
const HANDED_OVER: Duration = HEARTBEAT.saturating_add(Duration::from_millis(1_500));

/// How long a lock may be free, all in all, while somebody waits for it (L8): one deadline of the dead before it,
/// and a lost message; the rest is for a machine that others use too.
const FREE: Duration = DEAD_AFTER.saturating_add(HANDED_OVER);

/// A lost guard is noted with the last time at which it was seen valid; it was lost not long after that.
const NOTICED: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Clients {
    locks: HashMap<String, Lock>,
    /// When an owner got its lock, also for a while after it is over.
    granted: HashMap<(String, String), u64>,
    forget: VecDeque<(u64, (String, String))>,
    /// Holds that were counted as lost.
    lost: HashSet<(String, String)>,
    dead: HashMap<usize, u64>,
}

/// What is known of a lock.
#[derive(Debug, Default)]
struct Lock {
    holds: Vec<Hold>,
    /// Holds that are over: from, until, owner.
    over: VecDeque<(u64, u64, String)>,
    waits: Vec<Wait>,
    /// When grants came, with the largest token until then.
    tokens: VecDeque<(u64, u64)>,
    last: Last,
    /// For how long it was free although somebody was granted it later who had asked before.
    idle: u64,
}

/// How the last hold ended.
#[derive(Debug, Default)]
struct Last {
    at: u64,
    released: bool,
}

#[derive(Debug)]
struct Hold {
    owner: String,
    from: u64,
    worker: usize,
}

#[derive(Debug)]
struct Wait {
    owner: String,
    placed: u64,
    /// [`Lock::idle`] then.
    idle: u64,
    worker: usize,
}

impl Clients {
    /// When this owner got the lock, if not long ago.
    pub(super) fn granted(&self, lock: &str, owner: &str) -> Option<u64> {
        self.granted.get(&(lock.to_owned(), owner.to_owned())).copied()
    }

    pub(super) fn look(&mut self, worker: usize, note: &Note, found: &mut Found) {
        match note {
            Note::Placed { at, lock, owner, .. } if !self.dead.contains_key(&worker) => {
                let lock = self.locks.entry(lock.clone()).or_default();
                let (owner, idle) = (owner.clone(), lock.idle);
                lock.waits.push(Wait { owner, placed: *at, idle, worker });
            }
            Note::Granted { at, asked, lock, owner, token, .. } => {
                self.grant(worker, (*at, *asked, *token), lock, owner, found);
            }
            Note::Ended { at, lock, owner, end } => self.end(*at, lock, owner, *end, found),
            Note::Said { at, lock, owner, outcome } if outcome == "Lost" => {
                self.lose(*at, lock, owner, found);
            }
            Note::Missed { .. } => found.result.missed += 1,
            _ => {}
        }
    }

    fn grant(
        &mut self,
        worker: usize,
        (at, asked, token): (u64, u64, u64),
        name: &str,
        owner: &str,
        found: &mut Found,
    ) {
        let lock = self.locks.entry(name.to_owned()).or_default();
        lock.forget(at);
        found.result.acquisitions += 1;
        let contended = lock.last.at >= asked || !lock.holds.is_empty();
        found.result.contended += u64::from(contended);

        // Tokens: of all that were granted before this one asked, none is larger.
        let before = lock.tokens.partition_point(|(then, _)| *then < asked);
        let largest = before.checked_sub(1).map_or(0, |before| lock.tokens[before].1);
        if token <= largest {
            let what = format!("lock {name}: token {token} of {owner} came after {largest}");
            // The server's log, where there is one, says whether tokens were lost as well.
            found.suspect(Excuse::ClockMoved, asked, at, what);
        }
        let largest = lock.tokens.back().map_or(0, |(_, largest)| *largest);
        lock.tokens.push_back((at, largest.max(token)));

        // Order: nobody who is placed before this one asked still waits.
        let wait = lock.waits.iter().position(|wait| wait.owner == owner);
        let wait = wait.map(|wait| lock.waits.remove(wait));
        if name.starts_with("fair") || name.starts_with("kept") {
            if !found.windows.disturbed(at, at) {
                found.result.ordered += 1;
            }
            for early in lock.waits.iter().filter(|wait| wait.placed < asked) {
                let what = format!(
                    "lock {name}: {owner} asked at {asked} and got it at {at}, while {} stood in the \
                     queue since {}",
                    early.owner, early.placed
                );
                found.suspect(Excuse::Disturbed, at, at, what);
            }
        }
        lock.times(name, at, asked, contended, wait.as_ref(), found);

        self.granted.insert((name.to_owned(), owner.to_owned()), at);
        if let Some(killed) = self.dead.get(&worker).copied() {
            // It went on for a moment after we noted the time. Valid once, and nothing is known after.
            lock.overlaps(name, owner, at, at, found);
            lock.last = Last { at: killed.max(at), released: false };
        } else {
            lock.holds.push(Hold { owner: owner.to_owned(), from: at, worker });
        }
    }

    fn end(&mut self, at: u64, name: &str, owner: &str, end: End, found: &mut Found) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        if end == End::GaveUp {
            found.result.gave_up += 1;
            lock.waits.retain(|wait| wait.owner != owner);
            return;
        }
        if let Some(hold) = lock.holds.iter().position(|hold| hold.owner == owner) {
            let hold = lock.holds.remove(hold);
            lock.overlaps(name, owner, hold.from, at, found);
            lock.last = Last { at: lock.last.at.max(at), released: end == End::Released };
        }
        if end == End::Lost {
            self.lose(at, name, owner, found);
        }
        let key = (name.to_owned(), owner.to_owned());
        self.forget.push_back((at, key));
        while self.forget.front().is_some_and(|(then, _)| then + ns(REMEMBERED) < at) {
            let Some((_, key)) = self.forget.pop_front() else { break };
            self.granted.remove(&key);
            self.lost.remove(&key);
        }
    }

    /// A guard that said so, or whose release did: each hold once.
    fn lose(&mut self, at: u64, name: &str, owner: &str, found: &mut Found) {
        let key = (name.to_owned(), owner.to_owned());
        let granted = self.granted.get(&key).copied().unwrap_or(0);
        if self.lost.insert(key) {
            let what = format!(
                "lock {name}: {owner} had it from {granted} on and lost it by {at}, without a fault that \
                 explains it"
            );
            found.suspect_as(Counts::Lost, Excuse::MayLose, granted, at + ns(NOTICED), what);
        }
    }

    /// What was open when a worker was killed. A hold is known to have been valid when it was granted, and
    /// nothing is known of it after that.
    pub(super) fn killed(&mut self, worker: usize, at: u64) {
        self.dead.insert(worker, at);
        for lock in self.locks.values_mut() {
            lock.waits.retain(|wait| wait.worker != worker);
            for hold in lock.holds.extract_if(.., |hold| hold.worker == worker) {
                lock.over.push_back((hold.from, hold.from, hold.owner));
                lock.last = Last { at, released: false };
            }
        }
    }

    pub(super) fn finish(&mut self, found: &mut Found) {
        for (name, lock) in &self.locks {
            for wait in &lock.waits {
                let (owner, placed) = (&wait.owner, wait.placed);
                found.violation(format!(
                    "lock {name}: {owner} waits since {placed} and was never served"
                ));
            }
        }
    }
}

impl Lock {
    fn forget(&mut self, now: u64) {
        let old = now.saturating_sub(ns(REMEMBERED));
        while self.over.front().is_some_and(|(_, until, _)| *until < old) {
            self.over.pop_front();
        }
        // The last one of them still says which token was the largest.
        while self.tokens.get(1).is_some_and(|(then, _)| *then < old) {
            self.tokens.pop_front();
        }
    }

    /// A hold is over: whether another was valid at the same time.
    fn overlaps(&mut self, name: &str, owner: &str, from: u64, until: u64, found: &mut Found) {
        // Those that ended long before this one began cannot meet it, and they end in order but for
        // processes that were late.
        let earlier = self.over.iter().rev().take_while(|(_, end, _)| end + ns(super::LATE) > from);
        for (other_from, other_until, other) in earlier {
            if *other_from < until && from < *other_until {
                let (first, second) = (from.min(*other_from), from.max(*other_from));
                let what = format!(
                    "lock {name}: {owner} held it from {from} to {until}, and {other} from {other_from} \
                     to {other_until}"
                );
                found.suspect_as(Counts::Overlap, Excuse::StateLoss, first, second, what);
            }
        }
        self.over.push_back((from, until, owner.to_owned()));
    }

    fn times(
        &mut self,
        name: &str,
        at: u64,
        asked: u64,
        contended: bool,
        wait: Option<&Wait>,
        found: &mut Found,
    ) {
        let quiet = !found.windows.disturbed(asked, at);
        found.result.times.wait.add(at - asked);
        if !contended || !self.holds.is_empty() {
            return;
        }
        let free = at.saturating_sub(self.last.at);
        self.idle += free;
        let explained = wait.map_or(self.idle - free, |wait| wait.idle);
        if self.idle - explained > ns(FREE) && name.starts_with("fair") {
            let what = format!(
                "lock {name}: it was free for {} ms while one waited that asked at {asked} and got it at {at}",
                (self.idle - explained) / 1_000_000
            );
            found.suspect(Excuse::Disturbed, asked, at, what);
        }
        let times = &mut found.result.times;
        if quiet {
            if self.last.released {
                times.hand_over.add(free);
            }
            times.wait_unexplained.add(self.idle - explained);
        } else {
            times.hand_over_disturbed.add(free);
        }
        if self.last.released && free > ns(HANDED_OVER) && name.starts_with("fair") {
            let what = format!(
                "lock {name}: released at {}, and the next one got it {} ms later",
                self.last.at,
                free / 1_000_000
            );
            found.suspect(Excuse::Disturbed, asked, at, what);
        }
    }
}
