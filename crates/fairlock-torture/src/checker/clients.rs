//! Invariants on what the clients saw.
//!
//! - **Exclusion** (I2): no two guards of a lock are certainly valid at the same time. A hold
//!   counts from when the user received its guard to the last time at which the guard was seen
//!   valid.
//! - **Order** (I5): a fair lock is not granted to a request made after another request was in the
//!   queue that still waits. Checked outside of disturbances.
//! - **Tokens** (I4): a request made while another owner already had the lock gets a larger token.
//!   Always checked, except where the server's clock was set back.
//! - **Losses** (I14): a guard is lost only in a fault that loses state or outlasts the grant.
//! - **Nobody is left** (L1): every wait ends.
//! - **Nobody starves** (L8): no waiter is passed over (order), so it waits for those before it and
//!   for the lock to change hands. Outside of disturbances the latter is short in total.
//! - **Hand-overs** (L2): outside of disturbances a lock with waiters is not free for long.

use super::beside::{Past, conflicts};
use super::window::Excuse;
use super::{Counts, Found, ns};
use crate::log::note::{End, Note};
use crate::pace::{DEAD_AFTER, HEARTBEAT};
use crate::wanted::{is_handed_over, is_in_order, is_taken_with_others};
use fairlock::Share;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// How long finished holds and grants are remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A lost message is found by the next heartbeat (L2b); the rest is slack for a shared machine.
const HANDED_OVER: Duration = HEARTBEAT.saturating_add(Duration::from_millis(1_500));

/// How long a lock may be free in total while a request waits for it (L8): one deadline for dead
/// waiters before it, and a lost message; the rest is slack for a shared machine.
const FREE: Duration = DEAD_AFTER.saturating_add(HANDED_OVER);

/// A lost guard is noted with the last time at which it was seen valid; it was lost shortly after.
const NOTICED: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Clients {
    locks: HashMap<String, Lock>,
    /// When an owner was granted its lock; kept for a while after the hold has ended.
    granted: HashMap<(String, String), u64>,
    forget: VecDeque<(u64, (String, String))>,
    /// Holds already counted as lost.
    lost: HashSet<(String, String)>,
    dead: HashMap<usize, u64>,
}

/// The state of one lock.
#[derive(Debug, Default)]
struct Lock {
    holds: Vec<Hold>,
    /// Finished holds.
    over: VecDeque<Past>,
    waits: Vec<Wait>,
    /// Grant times, each with the largest token so far.
    tokens: VecDeque<(u64, u64)>,
    last: Last,
    /// Total time for which the lock was free although a request made before was granted it only
    /// later.
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
    share: Share,
    worker: usize,
}

#[derive(Debug)]
struct Wait {
    owner: String,
    share: Share,
    placed: u64,
    /// [`Lock::idle`] at that time.
    idle: u64,
    worker: usize,
}

impl Clients {
    /// When this owner was granted the lock, if that was recent.
    pub(super) fn granted(&self, lock: &str, owner: &str) -> Option<u64> {
        self.granted.get(&(lock.to_owned(), owner.to_owned())).copied()
    }

    pub(super) fn look(&mut self, worker: usize, note: &Note, found: &mut Found) {
        match note {
            Note::Placed { at, lock, owner, share, .. } if !self.dead.contains_key(&worker) => {
                let lock = self.locks.entry(lock.clone()).or_default();
                let (owner, idle) = (owner.clone(), lock.idle);
                lock.waits.push(Wait { owner, share: *share, placed: *at, idle, worker });
            }
            Note::Granted { at, asked, lock, owner, token, share, .. } => {
                self.grant(worker, (*at, *asked, *token, *share), lock, owner, found);
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
        (at, asked, token, share): (u64, u64, u64, Share),
        name: &str,
        owner: &str,
        found: &mut Found,
    ) {
        let lock = self.locks.entry(name.to_owned()).or_default();
        lock.forget(at);
        found.result.acquisitions += 1;
        let contended = lock.last.at >= asked || !lock.holds.is_empty();
        found.result.contended += u64::from(contended);

        // Tokens: no grant made before this request was sent has a larger one.
        let before = lock.tokens.partition_point(|(then, _)| *then < asked);
        let largest = before.checked_sub(1).map_or(0, |before| lock.tokens[before].1);
        // Those who read at the same time have one token.
        if token < largest || (token == largest && share != Share::Read) {
            let what = format!("lock {name}: token {token} of {owner} came after {largest}");
            // A failover may bring back a time of reading that was over, and its token for all who join.
            let minted = lock.tokens.partition_point(|(_, known)| *known < largest);
            let since = lock.tokens.get(minted).map_or(asked, |(then, _)| *then);
            let (excuse, from) = match share {
                Share::Read => (Excuse::TokenReturned, since),
                // The server's log, where there is one, tells whether tokens were lost as well.
                _ => (Excuse::ClockMoved, asked),
            };
            found.suspect(excuse, from, at, what);
        }
        let largest = lock.tokens.back().map_or(0, |(_, largest)| *largest);
        lock.tokens.push_back((at, largest.max(token)));

        // Order: no request placed before this one was sent still waits.
        let wait = lock.waits.iter().position(|wait| wait.owner == owner);
        let wait = wait.map(|wait| lock.waits.remove(wait));
        if is_in_order(name) {
            if !found.windows.disturbed(at, at) {
                found.result.ordered += 1;
            }
            // Neighbours that read are let in together, and hear of it in any order.
            let together = |wait: &&Wait| share == Share::Read && wait.share == Share::Read;
            let early = lock.waits.iter().filter(|wait| wait.placed < asked);
            for early in early.filter(|wait| !together(wait)) {
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
            // The process ran on for a moment after we noted the time of its death. The hold was
            // valid once; nothing is known afterwards.
            lock.overlaps(
                name,
                Past { from: at, until: at, owner: owner.to_owned(), share },
                found,
            );
            lock.last = Last { at: killed.max(at), released: false };
        } else {
            lock.holds.push(Hold { owner: owner.to_owned(), from: at, share, worker });
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
            let Hold { owner, from, share, .. } = hold;
            lock.overlaps(name, Past { from, until: at, owner, share }, found);
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

    /// Records a loss, reported by the guard or by its release; each hold counts once.
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

    /// Ends what was open when a worker was killed. A hold is known to have been valid when it was
    /// granted; nothing is known afterwards.
    pub(super) fn killed(&mut self, worker: usize, at: u64) {
        self.dead.insert(worker, at);
        for lock in self.locks.values_mut() {
            lock.waits.retain(|wait| wait.worker != worker);
            for hold in lock.holds.extract_if(.., |hold| hold.worker == worker) {
                let Hold { owner, from, share, .. } = hold;
                lock.over.push_back(Past { from, until: from, owner, share });
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
        while self.over.front().is_some_and(|hold| hold.until < old) {
            self.over.pop_front();
        }
        // The last of the old entries still holds the largest token.
        while self.tokens.get(1).is_some_and(|(then, _)| *then < old) {
            self.tokens.pop_front();
        }
    }

    /// Checks a finished hold for overlaps with other valid holds.
    fn overlaps(&mut self, name: &str, hold: Past, found: &mut Found) {
        // Holds that ended long before this one began cannot overlap it, and holds end in order
        // except for those of delayed processes.
        let late = ns(super::LATE);
        let lately = self.over.iter().rev().take_while(|other| other.until + late > hold.from);
        let overlap = |other: &&Past| other.from < hold.until && hold.from < other.until;
        let others: Vec<_> = lately.filter(overlap).collect();
        let conflicts = conflicts(&hold, &others);
        // Too many permits are too many together: whichever of them was lost explains all of them.
        let together = matches!(hold.share, Share::Permits { .. }) && !conflicts.is_empty();
        let sets = if together { vec![&conflicts[..]] } else { conflicts.chunks(1).collect() };
        for others in sets {
            let froms = || others.iter().map(|other| other.from).chain([hold.from]);
            let (first, last) = (froms().min().unwrap_or(0), froms().max().unwrap_or(0));
            let told = others
                .iter()
                .map(|other| format!("{} from {} to {}", other.owner, other.from, other.until));
            let what = format!(
                "lock {name}: {} held it from {} to {}, and {}",
                hold.owner,
                hold.from,
                hold.until,
                told.collect::<Vec<_>>().join(", ")
            );
            found.suspect_as(Counts::Overlap, Excuse::StateLoss, first, last, what);
        }
        self.over.push_back(hold);
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
        // It may have been held, and nobody told, for the others that it was taken with.
        if !contended || !self.holds.is_empty() || is_taken_with_others(name) {
            return;
        }
        let free = at.saturating_sub(self.last.at);
        self.idle += free;
        let explained = wait.map_or(self.idle - free, |wait| wait.idle);
        if self.idle - explained > ns(FREE) && is_handed_over(name) {
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
        if self.last.released && free > ns(HANDED_OVER) && is_handed_over(name) {
            let what = format!(
                "lock {name}: released at {}, and the next one got it {} ms later",
                self.last.at,
                free / 1_000_000
            );
            found.suspect(Excuse::Disturbed, asked, at, what);
        }
    }
}
