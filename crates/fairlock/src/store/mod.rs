//! The seam between the library and the stores. Sealed: every store is part of this crate.
//!
//! A store carries out operations ([`fairlock_core::Op`]), each of them atomically, and delivers
//! [`Event`]s. It knows nothing about handles, guards or waiting.

pub(crate) mod entry;
#[cfg(all(feature = "sqlite", unix))]
pub(crate) mod host;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod shared_memory;

use crate::base::clock::{Moment, ServerClock};
use crate::base::error::{Error, ErrorKind};
use crate::settings::client_info::ClientInfo;
use crate::settings::server_checks::{Check, Warning};
use crate::store::entry::LockEntry;
#[cfg(feature = "redis")]
use crate::store::redis::Walk;
use fairlock_core::{Answer, ClientId, Grant, Kind, LockName, Op, OwnerId, RequestId, Token};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer, and when the answered copy of the operation was sent.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) sent: Moment,
    pub(crate) answer: Answer,
    /// The clock of the server that answered, if the store has several servers.
    pub(crate) clock: Option<Arc<ServerClock>>,
}

/// The beginning of the error for a server that answers but refuses writes.
pub(crate) const REFUSES_WRITES: &str = "the server refuses writes";

/// One copy of an operation got no usable answer.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) error: Error,
    /// Whether the copy may have been carried out, or may still be.
    pub(crate) doubt: bool,
    /// Whether the same operation may succeed a moment later.
    pub(crate) passing: bool,
}

impl StoreError {
    /// The store was not reached.
    pub(crate) fn unavailable(message: String, doubt: bool) -> Self {
        Self { error: Error::new(ErrorKind::Unavailable, message), doubt, passing: true }
    }

    /// The store refused the operation; nothing was done.
    pub(crate) fn refused(error: Error) -> Self {
        Self { error, doubt: false, passing: false }
    }
}

/// An answer, and whether enough replicas acknowledged it.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed {
    pub(crate) reply: Reply,
    /// Set if fewer replicas than requested acknowledged it in time.
    pub(crate) missing: Option<Error>,
}

impl Confirmed {
    /// The answer of a store without replicas.
    pub(crate) fn by_the_store(reply: Reply) -> Self {
        Self { reply, missing: None }
    }
}

/// Messages that are not addressed to a client's inbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// The lock's base channel: plain waiters.
    Base(LockName),
    /// One waiter's own channel, on which Java clients wake it.
    Waiter(LockName, OwnerId),
    /// The channel on which Java clients wake all that wait for a read-write lock.
    ReadWrite(LockName),
    /// The channel of a latch of this name.
    Latch(LockName),
    /// The lock's channel for those who observe its holder.
    Leader(LockName),
    /// This client's grants of the lock, in a store with [an inbox per
    /// lock](Store::has_per_lock_inbox).
    Inbox(LockName),
}

/// Which locks an event is about.
#[derive(Clone)]
pub(crate) enum Scope {
    All,
    /// The locks on one of several servers.
    #[cfg(feature = "redis")]
    These(Arc<dyn Fn(&LockName) -> bool + Send + Sync>),
}

impl Scope {
    pub(crate) fn has(&self, name: &LockName) -> bool {
        let _ = name;
        match self {
            Self::All => true,
            #[cfg(feature = "redis")]
            Self::These(has) => has(name),
        }
    }

    /// Whether these are all locks of the store.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_all() { "All" } else { "These" })
    }
}

/// What a store reports.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A hand-over to a waiter of this client. `clock` belongs to the server that reports it, if
    /// the store has several.
    Granted { grant: Grant, at_ms: u64, arrived: Moment, clock: Option<Arc<ServerClock>> },
    /// According to a message, this hold of this client was taken away by force.
    Forced { owner: OwnerId, token: Token },
    /// The lock for which this request waits is left to foreign waiters for
    /// [`GUEST_MS`](fairlock_core::GUEST_MS). Only a server reports this.
    #[cfg(feature = "redis")]
    LeftToGuests { request: RequestId },
    /// A message on a topic: look again.
    Wake(Topic),
    /// According to a message, a latch of this name was counted down to 0.
    CountedDown(LockName),
    /// A message of an unknown form, or on an unknown channel.
    Invalid,
    /// The command connection of these locks is lost.
    Down(Scope),
    /// The command connection of these locks is up (again), or they are on another server now.
    /// `whole`: the connections of all other locks are up, too.
    Up { scope: Scope, whole: bool },
    /// The inbox is subscribed (again): messages about these locks may have been missed before.
    InboxUp(Scope),
    /// The inbox connection is lost.
    InboxDown,
    /// Connected to a server. The warnings are failed checks, if any; the client continues anyway.
    Checked(Vec<Warning>),
    /// A later result of one check; `None` if it no longer finds anything.
    Found(Check, Option<Warning>),
}

/// The position of a listing of a store's locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    Start,
    /// After this name, in a store that keeps its names in order.
    After(LockName),
    /// The cursor that the server's `SCAN` returned.
    #[cfg(feature = "redis")]
    Scan(u64),
    /// The same for several servers.
    #[cfg(feature = "redis")]
    Walk(Box<Walk>),
}

/// A step of a listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// The locks found, possibly none; some may have been found before.
    pub(crate) entries: Vec<LockEntry>,
    /// The names found that the user may not look at.
    pub(crate) denied: Vec<LockName>,
    /// Where to continue; `None` at the end.
    pub(crate) next: Option<Cursor>,
    /// About how many keys were examined; the pace of a listing is counted in keys.
    pub(crate) looked_at: u32,
}

/// The outcome of acquisitions in one step.
pub(crate) enum Taken {
    /// The answer to each.
    All(Vec<Reply>),
    /// Nothing was done. Contains the first lock that is not plainly free, if the store has named
    /// one.
    None(Option<usize>),
}

/// Where a store delivers events. It is called from the store's tasks, so it must not block.
pub(crate) type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// Keeps the locks.
pub(crate) trait Store: Send + Sync + 'static {
    /// Sends one copy of `op`. Dropping the future leaves the outcome in doubt.
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>>;

    /// Carries out `op` at once, without any task, in an embedded store; `None` if that is not
    /// possible.
    fn call_now(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        let _ = (name, op);
        None
    }

    /// Carries out these acquisitions, which do not wait, in one step if each of them can plainly
    /// take its lock now; otherwise, or if one of them would fail, does nothing. All of them have
    /// the same [step](Self::step_of). The call is sent once; dropping the future leaves the
    /// outcome in doubt.
    fn call_together<'a>(
        &'a self,
        asks: &'a [(LockName, Op)],
    ) -> Boxed<'a, Result<Taken, StoreError>>;

    /// Locks for which this is the same can be taken in one step.
    fn step_of(&self, name: &LockName) -> u16 {
        let _ = name;
        0
    }

    /// Whether [`call_now`](Self::call_now) is worth trying.
    fn is_synchronous(&self) -> bool {
        false
    }

    /// Whether Redisson's clients may hold the same read-write locks.
    fn has_redisson(&self) -> bool {
        false
    }

    /// Whether the next connection may lead to another server, which may lack recent operations.
    fn may_fail_over(&self) -> bool {
        false
    }

    /// If the server that answered appears to be being replaced, waits, at most until `until`, for
    /// a connection to its successor, which can then be sent what it lacks.
    fn follow(&self, until: Moment) -> Boxed<'_, ()> {
        let _ = until;
        Box::pin(async {})
    }

    /// Whether operations must be [confirmed](Self::confirm) before they count, because replicas
    /// are waited for.
    fn is_replicated(&self) -> bool {
        false
    }

    /// Carries out `op`, a renewal or a release, like [`call`](Self::call), and waits until the
    /// requested replicas have it, and thus everything that was answered before it.
    fn confirm<'a>(
        &'a self,
        name: &'a LockName,
        op: &'a Op,
    ) -> Boxed<'a, Result<Confirmed, StoreError>> {
        Box::pin(async move { self.call(name, op).await.map(Confirmed::by_the_store) })
    }

    /// The heartbeat period of the lock's waiters; `heartbeat` is the configured one.
    fn beat_every(&self, name: &LockName, heartbeat: Duration) -> Duration {
        let _ = name;
        heartbeat
    }

    /// Sleeps until the next heartbeat of a waiter is due.
    fn sleep(&self, pause: Duration) -> Boxed<'_, ()> {
        Box::pin(tokio::time::sleep(pause))
    }

    /// Starts delivering [`Event::Wake`] for `topic`; resolves once that is certain. Fails only if
    /// it is denied.
    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>>;

    /// Stops delivering it.
    fn unlisten(&self, topic: Topic);

    /// Resolves when the store is reachable, at once if it already is, or when it refuses the
    /// connection, in which case the next call returns the reason. With several servers, this is
    /// about the lock's server, or about any of them without a name.
    fn ready<'a>(&'a self, name: Option<&'a LockName>) -> Boxed<'a, ()>;

    /// Whether the lock's server is connected; `None` if the client's connection state answers
    /// that.
    fn is_connected(&self, name: &LockName) -> Option<bool> {
        let _ = name;
        None
    }

    /// Something depends on an answer about this lock, and has had none since `since`. Gives up the
    /// lock's connection if it has been silent since then, and does not let the next one take longer
    /// than `longest`.
    fn hurry(&self, name: &LockName, since: Moment, longest: Duration) {
        let _ = (name, since, longest);
    }

    /// The connection that serves this lock. Calls on one connection may delay each other; calls on
    /// different ones must not.
    fn lane(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    /// The clock of the lock's server, if the store has several.
    fn clock(&self, name: &LockName) -> Option<Arc<ServerClock>> {
        let _ = name;
        None
    }

    /// Whether grants of a lock reach only clients that listen to its [`Topic::Inbox`].
    fn has_per_lock_inbox(&self) -> bool {
        false
    }

    /// Whether messages to this client's inbox currently arrive.
    fn inbox_up(&self) -> bool;

    /// A round trip.
    fn ping(&self) -> Boxed<'_, Result<(), StoreError>>;

    /// What these clients announced about themselves. Clients without a legible announcement are
    /// left out; if the store does not answer, all are.
    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>>;

    /// Whether a listing searches for locks among other keys, so that it needs a pace and may find
    /// locks twice.
    fn is_searched(&self) -> bool {
        false
    }

    /// The next step of a listing, which examines about `keys` keys.
    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        let _ = (at, keys);
        let message = "this store cannot list its locks; look at those whose names you know";
        Box::pin(async move { Err(StoreError::refused(Error::misuse(message))) })
    }

    /// The hold with this token, and, if it is of a share, of this request, is about to be left behind: from now on, the
    /// end of this client's process must not end it before its lease.
    fn left_behind(&self, name: &LockName, token: Token, request: Option<RequestId>) {
        let _ = (name, token, request);
    }

    /// Notes for a day that the lock was last granted as this kind; returns the kind that was noted before.
    fn note_kind<'a>(
        &'a self,
        name: &'a LockName,
        kind: Kind,
    ) -> Boxed<'a, Result<Option<Kind>, StoreError>>;

    /// This client has a hold that is not renewed for the lease of its settings, or leaves one to
    /// the store: its announcement says no lease any more.
    fn lease_differs(&self, client: ClientId);

    /// The client ends: removes its announcement, if possible.
    fn farewell(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }
}
