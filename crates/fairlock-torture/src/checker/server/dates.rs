//! Deadlines, by the server's own times in its log, however late the log is read.
//!
//! - **The end of a lease** (L3), **dead waiters** (L4): a lock that was released or whose lease
//!   has expired is not free for long while a waiter is queued. A killed process costs the waiters
//!   behind it nothing, or one deadline if it had no inbox; a hanging process costs one deadline.
//! - **Dead grantees** (L5): a hold handed over by message lasts, until it is renewed, as long as
//!   the last heartbeat counts. After that it is the end of a lease.
//! - **Renewals** (L9): a hold is renewed after a third of its lease.

use super::super::both::on_boot;
use super::super::window::Excuse;
use super::{Found, READ_WITHIN, ns};
use crate::nemesis::process::STOPPED;
use crate::pace::{DEAD_AFTER, HEARTBEAT};
use std::collections::HashMap;
use std::time::Duration;

/// What a shared machine may add to a time.
const SLACK: Duration = Duration::from_millis(1_000);

/// How long a lock may be free behind dead waiters: one deadline, from the next heartbeat on.
const FREE: Duration = DEAD_AFTER.saturating_add(HEARTBEAT).saturating_add(SLACK);

/// The same behind stopped processes. If all live waiters were stopped, the deadline starts when
/// they continue: no waiter counts as dead for a time in which none could report it.
const FREE_OF_HUNG: Duration = FREE.saturating_add(STOPPED).saturating_add(DEAD_AFTER);

/// The server's times have millisecond resolution.
pub(super) const ROUNDING_US: i64 = 2_000;

/// A hold as seen through its renewals.
#[derive(Debug)]
struct Hold {
    /// The server's time of the last renewal.
    renewed_us: i64,
    expire_us: i64,
    /// It has the watchdog's lease, so each expiry shows when it was renewed.
    is_watched: bool,
}

/// A grant in the log.
#[derive(Debug)]
pub(super) struct Grant<'a> {
    pub(super) owner: &'a str,
    pub(super) token: u64,
    pub(super) expire_ms: Option<i64>,
    /// When it had entered the queue, if it was queued.
    pub(super) entered_us: Option<u64>,
    /// The hold before it ended at the same moment, so another client's call made the grant.
    pub(super) handed_over: bool,
}

#[derive(Debug)]
pub(super) struct Dates {
    lease_us: i64,
    holds: HashMap<String, Hold>,
    /// Free locks, and since when each is free.
    free: HashMap<String, i64>,
}

impl Dates {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease_us: us(lease), holds: HashMap::new(), free: HashMap::new() }
    }

    /// Forgets all locks.
    pub(super) fn clear(&mut self) {
        self.holds.clear();
        self.free.clear();
    }

    /// A hold has ended: released or taken at the time the log was read, or else at its expiry.
    pub(super) fn over(&mut self, lock: &str, early: bool, read_us: i64, found: &mut Found) {
        let Some(expire_us) = self.ends(lock, early, read_us, found) else { return };
        let ended_us = if early { read_us } else { expire_us };
        self.free.insert(lock.to_owned(), ended_us);
    }

    /// The same for one of several holds of a lock, which has a name of its own here. Returns its expiry.
    pub(super) fn ends(
        &mut self,
        hold: &str,
        early: bool,
        read_us: i64,
        found: &mut Found,
    ) -> Option<i64> {
        let Hold { renewed_us, expire_us, is_watched } = self.holds.remove(hold)?;
        // A hold that expired may have had no live process to renew it.
        if early && is_watched {
            self.renewed_in_time(hold, renewed_us, read_us, found);
        }
        Some(expire_us)
    }

    pub(super) fn granted(
        &mut self,
        lock: &str,
        grant: &Grant<'_>,
        read_us: i64,
        found: &mut Found,
    ) {
        // Tokens are the server's time, or ahead of it.
        let token_us = i64::try_from(grant.token).unwrap_or(i64::MAX);
        let granted_us = token_us.min(read_us);
        if let (Some(free_us), Some(entered)) = (self.free.remove(lock), grant.entered_us) {
            let since_us = free_us.max(i64::try_from(entered).unwrap_or(i64::MAX));
            self.was_free(lock, grant.owner, (since_us, granted_us), found);
        }
        let Some(expire_us) = grant.expire_ms.map(|at| at * 1_000) else { return };
        let ttl_us = expire_us - token_us;
        if grant.handed_over && grant.entered_us.is_some() && ttl_us > us(DEAD_AFTER) + ROUNDING_US
        {
            let what = format!(
                "lock {lock}: {} has {} ms to say that it heard of its grant",
                grant.owner,
                ttl_us / 1_000
            );
            // Not from the token's time, which may be ahead. A client that forces a lock open uses
            // its own deadline.
            let lately = on_boot(granted_us).saturating_sub(ns(READ_WITHIN));
            found.suspect(Excuse::StateLoss, lately, on_boot(read_us), what);
        }
        self.begins(lock, grant.expire_ms, granted_us, token_us);
    }

    /// A hold that was granted at this time of the server, for a lease that counts from `from_us`.
    pub(super) fn begins(
        &mut self,
        hold: &str,
        expire_ms: Option<i64>,
        granted_us: i64,
        from_us: i64,
    ) {
        let Some(expire_us) = expire_ms.map(|at| at * 1_000) else { return };
        let is_watched = expire_us - from_us <= self.lease_us + ROUNDING_US;
        let held = Hold { renewed_us: granted_us, expire_us, is_watched };
        self.holds.insert(hold.to_owned(), held);
    }

    /// The current hold now expires at this time.
    pub(super) fn extended(
        &mut self,
        lock: &str,
        expire_ms: Option<i64>,
        read_us: i64,
        found: &mut Found,
    ) {
        let Some(hold) = self.holds.get_mut(lock) else { return };
        let Some(expire_us) = expire_ms.map(|at| at * 1_000) else {
            hold.is_watched = false;
            return;
        };
        if expire_us == hold.expire_us {
            return;
        }
        let (was_us, renewed_us) = (hold.renewed_us, expire_us - self.lease_us);
        hold.expire_us = expire_us;
        // An explicit lease, which is extended once; or an operator set the expiry.
        if renewed_us > read_us + ROUNDING_US || renewed_us + ROUNDING_US < was_us {
            hold.is_watched = false;
        }
        if hold.is_watched {
            hold.renewed_us = renewed_us;
            found.result.renewed += 1;
            self.renewed_in_time(lock, was_us, renewed_us, found);
        }
    }

    fn renewed_in_time(&self, lock: &str, from_us: i64, until_us: i64, found: &mut Found) {
        if until_us - from_us > self.lease_us / 3 + us(SLACK) {
            let what = format!(
                "lock {lock}: held until {} and not renewed for {} ms",
                on_boot(until_us),
                (until_us - from_us) / 1_000
            );
            found.suspect(Excuse::Disturbed, on_boot(from_us), on_boot(until_us), what);
        }
    }

    pub(super) fn was_free(
        &self,
        lock: &str,
        owner: &str,
        (from_us, until_us): (i64, i64),
        found: &mut Found,
    ) {
        let free_us = until_us - from_us;
        found.result.followed += 1;
        let (from, until) = (on_boot(from_us), on_boot(until_us));
        let what = |behind: &str| {
            format!(
                "lock {lock}: free for {} ms until {until}, while {owner} waited behind {behind}",
                free_us / 1_000
            )
        };
        if free_us > us(FREE_OF_HUNG) {
            found.suspect(Excuse::NotAWorker, from, until, what("processes that hang"));
        } else if free_us > us(FREE) {
            found.suspect(Excuse::NotAKill, from, until, what("the dead"));
        }
    }
}

fn us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a short time")
}
