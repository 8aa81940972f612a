//! A lock of any kind, for commands that treat them alike: the share that is asked for is chosen once.

use std::time::Duration;

use fairlock::{
    Client, Error, Guard, Kind, Lock, LockStatus, Owner, Permit, ReadGuard, RwLock, Semaphore,
    Share, WriteGuard,
};

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

    /// The handle for looking at a lock, or for taking it away.
    pub(crate) fn of_kind(client: &Client, kind: Kind, name: &[u8]) -> Self {
        Self::new(client, kind, Share::Whole, name)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether several may hold it.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self.of, Of::Whole(_))
    }

    pub(crate) fn lease(self, lease: Duration) -> Self {
        let of = match self.of {
            Of::Whole(lock) => Of::Whole(lock.lease(lease)),
            Of::Read(lock) => Of::Read(lock.lease(lease)),
            Of::Write(lock) => Of::Write(lock.lease(lease)),
            Of::Permits(pool, n) => Of::Permits(pool.lease(lease), n),
        };
        Self { of, ..self }
    }

    pub(crate) fn owned_by(self, owner: &Owner) -> Self {
        let of = match self.of {
            Of::Whole(lock) => Of::Whole(lock.owned_by(owner)),
            Of::Read(lock) => Of::Read(lock.owned_by(owner)),
            Of::Write(lock) => Of::Write(lock.owned_by(owner)),
            Of::Permits(pool, n) => Of::Permits(pool.owned_by(owner), n),
        };
        Self { of, ..self }
    }

    pub(crate) async fn lock(&self) -> Result<Guard, Error> {
        match &self.of {
            Of::Whole(lock) => lock.lock().await,
            Of::Read(lock) => lock.read().await.map(ReadGuard::into_guard),
            Of::Write(lock) => lock.write().await.map(WriteGuard::into_guard),
            Of::Permits(pool, n) => pool.acquire_many(*n).await.map(Permit::into_guard),
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        match &self.of {
            Of::Whole(lock) => lock.try_lock().await,
            Of::Read(lock) => Ok(lock.try_read().await?.map(ReadGuard::into_guard)),
            Of::Write(lock) => Ok(lock.try_write().await?.map(WriteGuard::into_guard)),
            Of::Permits(pool, n) => Ok(pool.try_acquire_many(*n).await?.map(Permit::into_guard)),
        }
    }

    pub(crate) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        match &self.of {
            Of::Whole(lock) => lock.try_lock_for(wait).await,
            Of::Read(lock) => Ok(lock.try_read_for(wait).await?.map(ReadGuard::into_guard)),
            Of::Write(lock) => Ok(lock.try_write_for(wait).await?.map(WriteGuard::into_guard)),
            Of::Permits(pool, n) => {
                Ok(pool.try_acquire_many_for(*n, wait).await?.map(Permit::into_guard))
            }
        }
    }

    pub(crate) async fn inspect(&self) -> Result<LockStatus, Error> {
        match &self.of {
            Of::Whole(lock) => lock.inspect().await,
            Of::Read(lock) | Of::Write(lock) => lock.inspect().await,
            Of::Permits(pool, _) => pool.inspect().await,
        }
    }

    pub(crate) async fn inspect_first(&self, waiters: usize) -> Result<LockStatus, Error> {
        match &self.of {
            Of::Whole(lock) => lock.inspect_first(waiters).await,
            Of::Read(lock) | Of::Write(lock) => lock.inspect_first(waiters).await,
            Of::Permits(pool, _) => pool.inspect_first(waiters).await,
        }
    }

    /// Takes the lock away from all who hold it, and returns how many did.
    pub(crate) async fn force_unlock(&self) -> Result<usize, Error> {
        match &self.of {
            Of::Whole(lock) => lock.force_unlock().await.map(usize::from),
            Of::Read(lock) | Of::Write(lock) => lock.force_unlock().await,
            Of::Permits(pool, _) => pool.force_unlock().await,
        }
    }
}
