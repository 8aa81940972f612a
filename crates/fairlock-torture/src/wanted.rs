//! What a turn asks for: a lock of any kind, or a share of one.

use fairlock::{
    Client, Error, Guard, Lock, Member, Permit, ReadGuard, RwLock, Semaphore, Share, Turn,
    WriteGuard,
};
use fairlock_testkit::rng::Rng;
use std::time::Duration;

/// The permits of a semaphore.
pub(crate) const LIMIT: u32 = 4;

#[derive(Debug)]
pub(crate) enum Wanted {
    Whole(Lock),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

impl Wanted {
    /// The kind is the first word of the name, but for `kept` and `many`.
    pub(crate) fn new(client: &Client, name: &str, rng: &mut Rng) -> Self {
        match kind(name).split('-').next() {
            Some("plain") => Self::Whole(client.plain_lock(name)),
            Some("simple") => Self::Whole(client.simple_lock(name)),
            Some("rw") if rng.chance(30) => Self::Write(client.rw_lock(name)),
            Some("rw") => Self::Read(client.rw_lock(name)),
            Some("sem") => {
                let n = if rng.chance(70) { 1 } else { rng.between(2, LIMIT.into()) as u32 };
                Self::Permits(client.semaphore(name, LIMIT), n)
            }
            _ => Self::Whole(client.fair_lock(name)),
        }
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        match self {
            Self::Whole(lock) => Self::Whole(lock.lease(lease)),
            Self::Read(lock) => Self::Read(lock.lease(lease)),
            Self::Write(lock) => Self::Write(lock.lease(lease)),
            Self::Permits(permits, n) => Self::Permits(permits.lease(lease), n),
        }
    }

    pub(crate) fn share(&self) -> Share {
        match self {
            Self::Whole(_) | Self::Write(_) => Share::Whole,
            Self::Read(_) => Share::Read,
            Self::Permits(_, n) => Share::Permits { n: *n, limit: LIMIT },
        }
    }

    /// The same as one of several locks that are taken together.
    pub(crate) fn member(&self) -> Member {
        match self {
            Self::Whole(lock) => lock.into(),
            Self::Read(lock) => lock.to_read(),
            Self::Write(lock) => lock.to_write(),
            Self::Permits(permits, n) => permits.many(*n),
        }
    }

    pub(crate) async fn lock(&self) -> Result<Guard, Error> {
        match self {
            Self::Whole(lock) => lock.lock().await,
            Self::Read(lock) => lock.read().await.map(ReadGuard::into_guard),
            Self::Write(lock) => lock.write().await.map(WriteGuard::into_guard),
            Self::Permits(permits, n) => permits.acquire_many(*n).await.map(Permit::into_guard),
        }
    }

    pub(crate) async fn try_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        Ok(match self {
            Self::Whole(lock) => lock.try_lock_for(wait).await?,
            Self::Read(lock) => lock.try_read_for(wait).await?.map(ReadGuard::into_guard),
            Self::Write(lock) => lock.try_write_for(wait).await?.map(WriteGuard::into_guard),
            Self::Permits(permits, n) => {
                permits.try_acquire_many_for(*n, wait).await?.map(Permit::into_guard)
            }
        })
    }

    /// A place in the line, where one can be asked for.
    pub(crate) async fn enqueue(&self, name: &str) -> Result<Option<Turn>, Error> {
        match self {
            Self::Whole(lock) if is_in_order(name) => lock.enqueue().await.map(Some),
            Self::Read(lock) => lock.enqueue_read().await.map(Some),
            Self::Write(lock) => lock.enqueue_write().await.map(Some),
            Self::Whole(_) | Self::Permits(..) => Ok(None),
        }
    }
}

fn kind(name: &str) -> &str {
    name.strip_prefix("kept-").or_else(|| name.strip_prefix(MANY)).unwrap_or(name)
}

/// What the names of locks begin with that are only taken together with others.
const MANY: &str = "many-";

/// Whether who gets such a lock may hold it for others that it waits for.
pub(crate) fn is_taken_with_others(name: &str) -> bool {
    name.starts_with(MANY)
}

/// Whether several may have a share of it.
pub(crate) fn has_shares(name: &str) -> bool {
    ["rw", "sem"].iter().any(|shares| kind(name).starts_with(shares))
}

/// Whether those who wait for a lock of this name have places.
pub(crate) fn is_in_order(name: &str) -> bool {
    let kind = kind(name);
    !["plain", "simple", "sem"].iter().any(|without| kind.starts_with(without))
}

/// Whether such a lock is handed from one to the next without a pause.
pub(crate) fn is_handed_over(name: &str) -> bool {
    name.starts_with("fair") || name.starts_with("rw")
}
