//! Listing the locks of a store, in bounded, paced steps.

use crate::api::session::Session;
use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::store::entry::LockEntry;
use crate::store::{Cursor, Page};
use fairlock_core::LockName;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// Most keys in one step: it occupies a server for less than a millisecond.
const STEP_MAX: u32 = 1_000;

/// Steps per second, if the pace allows it, so that a slow pace is smooth instead of one burst a
/// second.
const STEPS_PER_SECOND: u32 = 10;

/// Names remembered so that each is listed once: 35 MB at most.
const SEEN_MAX: usize = 1_000_000;

/// Iterates over the locks of a store; returned by [`Client::locks`](crate::Client::locks).
///
/// It is not a snapshot. A lock that exists the whole time is listed once (on a server with more
/// than a million locks, some may come twice); one that is created or removed meanwhile may or may
/// not be listed. Free locks are listed as long as the store keeps their token: a day on a server.
/// Nothing runs between two calls, and dropping the value ends the listing.
///
/// # On a server
/// Locks share the server with other keys, so all keys are searched (`SCAN`, never `KEYS`), at a
/// bounded [pace](Self::keys_per_second). A lock is recognised by its token, which every grant of
/// fairlock leaves behind, or by its queue. These are not found:
/// - locks that only Redisson's `RLock`, or only foreign clients of simple locks, have used, and
///   those of Redisson's `RFairLock` while nobody waits: they have neither a token nor a queue;
/// - a lock that has been held for more than a day under one explicit lease, while nobody waits for
///   it;
/// - locks whose keys the connection's user is not allowed to read: [`denied`](Self::denied) names them;
/// - locks that the server has lost, and possibly others if the server was replaced meanwhile.
///
/// [`Lock::inspect`](crate::Lock::inspect) sees all of these. The names `x` and `{x}` share their
/// token; while neither is held they are listed as `x`.
#[must_use = "nothing is asked before `next_page`"]
pub struct Locks {
    session: Session,
    /// `None` at the end.
    at: Option<Cursor>,
    keys_per_second: u32,
    /// When the next step may start.
    ready: Moment,
    seen: Seen,
    denied: Vec<LockName>,
}

impl Locks {
    /// The default pace, in keys a second.
    pub const KEYS_PER_SECOND: u32 = 100_000;

    /// The fastest pace, in keys a second.
    pub const KEYS_PER_SECOND_MAX: u32 = 1_000_000;

    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            at: Some(Cursor::Start),
            keys_per_second: Self::KEYS_PER_SECOND,
            ready: Moment::now(),
            seen: Seen::default(),
            denied: Vec::new(),
        }
    }

    /// Sets the maximum pace in keys a second, from 1 to [1 000 000](Self::KEYS_PER_SECOND_MAX);
    /// with any other value, [`next_page`](Self::next_page) fails. The default is [100
    /// 000](Self::KEYS_PER_SECOND). Stores that contain only locks need no pace.
    pub fn keys_per_second(mut self, keys: u32) -> Self {
        self.keys_per_second = keys;
        self
    }

    /// Returns the pace in keys a second; `None` if the store need not be searched for locks.
    pub fn pace(&self) -> Option<u32> {
        self.session.context().store.is_searched().then_some(self.keys_per_second)
    }

    /// Returns the names that the last page lacks because the connection's user is not allowed to read
    /// their keys. Whether they are held is not known.
    pub fn denied(&self) -> &[LockName] {
        &self.denied
    }

    /// Returns the next locks: an empty page if this step found none, `None` at the end. Waits as
    /// the pace requires. Reads at most 1 000 keys, and then the locks to which they belong, in
    /// pipelines of a hundred.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) for a pace out of bounds, and for stores that cannot
    /// list their locks; [`Denied`](crate::ErrorKind::Denied) if the server does not allow `SCAN`,
    /// `TYPE` and `LLEN`; otherwise the store's errors, as for
    /// [`Lock::inspect`](crate::Lock::inspect). After an error the next call repeats the same step.
    /// On a Cluster, nodes that cannot be reached come last: once all others have been searched,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) names the slots whose locks are unknown,
    /// after [`Config::connect_timeout`](crate::Config::connect_timeout).
    ///
    /// # Cancel safety
    /// The listing stays where it is: the next call repeats the same step.
    pub async fn next_page(&mut self) -> Result<Option<Vec<LockEntry>>, Error> {
        if self.keys_per_second == 0 || self.keys_per_second > Self::KEYS_PER_SECOND_MAX {
            return Err(Error::misuse(format!(
                "a pace of {} keys a second cannot be used; it must be between 1 and {}",
                self.keys_per_second,
                Self::KEYS_PER_SECOND_MAX
            )));
        }
        let context = Arc::clone(self.session.context());
        context.usable()?;
        let Some(at) = self.at.clone() else { return Ok(None) };
        let is_searched = context.store.is_searched();
        let wait = self.ready.left();
        if is_searched && !wait.is_zero() {
            self.session.sleep(wait).await;
        }
        let keys = match is_searched {
            true => (self.keys_per_second / STEPS_PER_SECOND).clamp(1, STEP_MAX),
            false => STEP_MAX,
        };
        let step = self.session.on_background(step(context, at, keys));
        let Page { mut entries, mut denied, next, looked_at } = step.await??;
        let cost = Duration::from_secs(1) * looked_at / self.keys_per_second;
        self.ready = Moment::now().plus(cost);
        self.at = next;
        if is_searched {
            entries.retain(|entry| self.seen.is_new(&entry.name));
            denied.retain(|name| self.seen.is_new(name));
        }
        self.denied = denied;
        Ok(Some(entries))
    }
}

/// Retries until the store answers or the store timeout is over.
async fn step(context: Arc<Context>, at: Cursor, keys: u32) -> Result<Page, Error> {
    let until = context.store_deadline();
    let mut backoff = Backoff::default();
    loop {
        let failure = match context.store.page(at.clone(), keys).await {
            Ok(page) => return Ok(page),
            Err(failure) => failure,
        };
        let left = until.left();
        if !failure.passing {
            return Err(failure.error);
        }
        if left.is_zero() {
            // This only reads, so an unknown outcome does not matter.
            let message = format!("the store was not reachable in time ({})", failure.error);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        tokio::time::sleep(backoff.next().min(left)).await;
        let _ = tokio::time::timeout(until.left(), context.store.ready(None)).await;
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The names listed so far, as two 64-bit hashes each: names may be long, and there may be many.
/// The probability that two of a million names collide is below 10^-26.
#[derive(Default)]
struct Seen {
    hashers: [RandomState; 2],
    hashes: HashSet<[u64; 2]>,
}

impl Seen {
    fn is_new(&mut self, name: &LockName) -> bool {
        let hash = [self.hashers[0].hash_one(name), self.hashers[1].hash_one(name)];
        if self.hashes.len() >= SEEN_MAX {
            return !self.hashes.contains(&hash);
        }
        self.hashes.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_new_once() {
        let mut seen = Seen::default();
        for round in 0..2 {
            for number in 0..1_000_u32 {
                let name = LockName::new(&number.to_le_bytes()).unwrap();
                assert_eq!(seen.is_new(&name), round == 0, "{number}");
            }
        }
    }
}
