//! A lock of any kind, for commands that treat them alike: the share that is asked for is chosen once.

use std::time::Duration;

use fairlock::{
    Client, Error, Kind, Lock, LockStatus, Member, MultiLock, Owner, Permit, ReadGuard, RwLock,
    Semaphore, Share, WriteGuard,
};

use super::held::Held;

/// The limit of a handle that is only looked at: a limit belongs to a request for permits.
const NO_LIMIT: u32 = u32::MAX;

/// A lock, and which share of it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    kind: Kind,
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    Whole(Lock),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
    /// Several at once, and each of them to look at.
    Several(MultiLock, Vec<Handle>),
}

impl Handle {
    /// The handle for a share of a lock.
    pub(crate) fn new(client: &Client, kind: Kind, share: Share, name: &[u8]) -> Self {
        let of = match (kind, share) {
            (Kind::ReadWrite, Share::Read) => Of::Read(client.rw_lock(name)),
            (Kind::ReadWrite, _) => Of::Write(client.rw_lock(name)),
            (Kind::Semaphore, Share::Permits { n, limit }) => {
                Of::Permits(client.semaphore(name, limit), n)
            }
            (Kind::Semaphore, _) => Of::Permits(client.semaphore(name, NO_LIMIT), 1),
            (Kind::Plain, _) => Of::Whole(client.plain_lock(name)),
            (Kind::Simple, _) => Of::Whole(client.simple_lock(name)),
            _ => Of::Whole(client.fair_lock(name)),
        };
        Self { kind, of }
    }

    /// The handle for the same share of several locks.
    ///
    /// # Errors
    /// They cannot be taken together.
    pub(crate) fn several(
        client: &Client,
        kind: Kind,
        share: Share,
        names: &[&[u8]],
    ) -> Result<Self, Error> {
        let each: Vec<_> = names.iter().map(|name| Self::new(client, kind, share, name)).collect();
        let lock = client.multi_lock(each.iter().filter_map(Self::member))?;
        Ok(Self { kind, of: Of::Several(lock, each) })
    }

    fn member(&self) -> Option<Member> {
        match &self.of {
            Of::Whole(lock) => Some(lock.into()),
            Of::Read(lock) => Some(lock.to_read()),
            Of::Write(lock) => Some(lock.to_write()),
            Of::Permits(pool, n) => Some(pool.many(*n)),
            Of::Several(..) => None,
        }
    }

    /// The handle for looking at a lock, or for taking it away.
    pub(crate) fn of_kind(client: &Client, kind: Kind, name: &[u8]) -> Self {
        Self::new(client, kind, Share::Whole, name)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether its waiters stand in one queue that a look shows: not that of several locks.
    pub(crate) fn has_queue(&self) -> bool {
        !matches!(self.of, Of::Several(..)) && !matches!(self.kind, Kind::Plain | Kind::Simple)
    }

    /// Whether several may hold it.
    pub(crate) fn is_shared(&self) -> bool {
        match &self.of {
            Of::Whole(_) => false,
            Of::Read(_) | Of::Write(_) | Of::Permits(..) => true,
            Of::Several(_, each) => each.iter().any(Self::is_shared),
        }
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        let of = match self.of {
            Of::Whole(lock) => Of::Whole(lock.lease(lease)),
            Of::Read(lock) => Of::Read(lock.lease(lease)),
            Of::Write(lock) => Of::Write(lock.lease(lease)),
            Of::Permits(pool, n) => Of::Permits(pool.lease(lease), n),
            Of::Several(lock, each) => Of::Several(lock.lease(lease), each),
        };
        Self { of, ..self }
    }

    pub(crate) fn owned_by(self, owner: &Owner) -> Self {
        let of = match self.of {
            Of::Whole(lock) => Of::Whole(lock.owned_by(owner)),
            Of::Read(lock) => Of::Read(lock.owned_by(owner)),
            Of::Write(lock) => Of::Write(lock.owned_by(owner)),
            Of::Permits(pool, n) => Of::Permits(pool.owned_by(owner), n),
            // Its owners are its own.
            several @ Of::Several(..) => several,
        };
        Self { of, ..self }
    }

    pub(crate) async fn lock(&self) -> Result<Held, Error> {
        let guard = match &self.of {
            Of::Whole(lock) => lock.lock().await?,
            Of::Read(lock) => lock.read().await.map(ReadGuard::into_guard)?,
            Of::Write(lock) => lock.write().await.map(WriteGuard::into_guard)?,
            Of::Permits(pool, n) => pool.acquire_many(*n).await.map(Permit::into_guard)?,
            Of::Several(lock, _) => return lock.lock().await.map(Held::Several),
        };
        Ok(Held::One(guard))
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        let guard = match &self.of {
            Of::Whole(lock) => lock.try_lock().await?,
            Of::Read(lock) => lock.try_read().await?.map(ReadGuard::into_guard),
            Of::Write(lock) => lock.try_write().await?.map(WriteGuard::into_guard),
            Of::Permits(pool, n) => pool.try_acquire_many(*n).await?.map(Permit::into_guard),
            Of::Several(lock, _) => return Ok(lock.try_lock().await?.map(Held::Several)),
        };
        Ok(guard.map(Held::One))
    }

    pub(crate) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Held>, Error> {
        let guard = match &self.of {
            Of::Whole(lock) => lock.try_lock_for(wait).await?,
            Of::Read(lock) => lock.try_read_for(wait).await?.map(ReadGuard::into_guard),
            Of::Write(lock) => lock.try_write_for(wait).await?.map(WriteGuard::into_guard),
            Of::Permits(pool, n) => {
                pool.try_acquire_many_for(*n, wait).await?.map(Permit::into_guard)
            }
            Of::Several(lock, _) => return Ok(lock.try_lock_for(wait).await?.map(Held::Several)),
        };
        Ok(guard.map(Held::One))
    }

    pub(crate) async fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        self.inspect_busy(waiters).await.map(|(_, status)| status)
    }

    /// Of several locks the first with waiters, else the first that is held, with its place in the list.
    pub(crate) async fn inspect_busy(&self, waiters: usize) -> Result<(usize, LockStatus), Error> {
        let status = match &self.of {
            Of::Whole(lock) => lock.inspect_first(waiters).await,
            Of::Read(lock) | Of::Write(lock) => lock.inspect_first(waiters).await,
            Of::Permits(pool, _) => pool.inspect_first(waiters).await,
            Of::Several(_, each) => {
                let mut seen = Vec::new();
                for one in each {
                    seen.push(Box::pin(one.inspect_first(waiters)).await?);
                }
                let is_waited_for = |status: &LockStatus| status.queue_len > 0;
                let is_held = |status: &LockStatus| status.holder.is_some();
                let at = seen.iter().position(is_waited_for);
                let at = at.or_else(|| seen.iter().position(is_held)).unwrap_or(0);
                return Ok((at, seen.swap_remove(at)));
            }
        };
        Ok((0, status?))
    }

    /// Each of the locks.
    pub(crate) fn each(&self) -> &[Self] {
        match &self.of {
            Of::Several(_, each) => each,
            _ => std::slice::from_ref(self),
        }
    }

    /// Takes the lock away from all who hold it, and returns how many did.
    pub(crate) async fn force_unlock(&self) -> Result<usize, Error> {
        match &self.of {
            Of::Whole(lock) => lock.force_unlock().await.map(usize::from),
            Of::Read(lock) | Of::Write(lock) => lock.force_unlock().await,
            Of::Permits(pool, _) => pool.force_unlock().await,
            Of::Several(_, each) => {
                let mut ended = 0;
                for one in each {
                    ended += Box::pin(one.force_unlock()).await?;
                }
                Ok(ended)
            }
        }
    }
}
