//! The seam between the library and what keeps the locks. Sealed: a store is part of this crate.
//!
//! A store carries out one operation of [`fairlock_core::Op`] at a time, atomically, and delivers
//! what it hears ([`Event`]) to whoever waits. It knows nothing of handles, guards or waiting.

pub(crate) mod entry;
#[cfg(all(feature = "sqlite", unix))]
pub(crate) mod host;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use crate::base::clock::{Moment, ServerClock};
use crate::base::error::{Error, ErrorKind};
use crate::settings::client_info::ClientInfo;
use crate::settings::server_checks::{Check, Warning};
use crate::store::entry::LockEntry;
#[cfg(feature = "yardstick")]
pub(crate) use crate::store::redis::Raw;
#[cfg(feature = "redis")]
use crate::store::redis::Walk;
use fairlock_core::{Answer, ClientId, Grant, LockName, Op, OwnerId, Token};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer, and when the copy of the operation that it answers was sent.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) sent: Moment,
    pub(crate) answer: Answer,
    /// The clock of the server that has answered, where there are several.
    pub(crate) clock: Option<Arc<ServerClock>>,
}

/// One copy of an operation got no answer that counts.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) error: Error,
    /// Whether the copy may have been carried out, or may yet be.
    pub(crate) doubt: bool,
    /// Whether the same operation may succeed a moment later.
    pub(crate) passing: bool,
}

impl StoreError {
    /// The store was not reached.
    pub(crate) fn unavailable(message: String, doubt: bool) -> Self {
        Self { error: Error::new(ErrorKind::Unavailable, message), doubt, passing: true }
    }

    /// The store has answered with a refusal; nothing was done.
    pub(crate) fn refused(error: Error) -> Self {
        Self { error, doubt: false, passing: false }
    }
}

/// An answer, and whether replicas have what it says.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed {
    pub(crate) reply: Reply,
    /// Fewer than wanted had it in time.
    pub(crate) missing: Option<Error>,
}

impl Confirmed {
    /// By a store without replicas.
    pub(crate) fn by_the_store(reply: Reply) -> Self {
        Self { reply, missing: None }
    }
}

/// Messages that are not addressed to a client's inbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// The lock's base channel: plain waiters.
    Base(LockName),
    /// The own channel of one waiter, on which Java clients wake it.
    Waiter(LockName, OwnerId),
    /// This client's grants of the lock, in a store that [hears them apart](Store::has_per_lock_inbox).
    Inbox(LockName),
}

/// Which locks an event is about.
#[derive(Clone)]
pub(crate) enum Scope {
    All,
    /// Those that one of several servers keeps.
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

    /// Whether they are all locks of the store.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_all() { "All" } else { "These" })
    }
}

/// What a store hears.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A hand-over to a waiter of this client; `clock` is that of the server which says so, where there
    /// are several.
    Granted { grant: Grant, at_ms: u64, arrived: Moment, clock: Option<Arc<ServerClock>> },
    /// Somebody says that this hold of this client was taken away by force.
    Forced { owner: OwnerId, token: Token },
    /// `0` on a topic: look again.
    Wake(Topic),
    /// A message that fits no form, or an unknown channel.
    Invalid,
    /// The command connection of these locks is lost.
    Down(Scope),
    /// The command connection of these locks is there (again), or they are on another server now. Whole:
    /// that of all others is there, too.
    Up { scope: Scope, whole: bool },
    /// The inbox is subscribed (again): messages about these locks may have been missed before.
    InboxUp(Scope),
    /// The inbox connection is lost.
    InboxDown,
    /// A connection was made to a server that is gone on with, whatever is wrong with it.
    Checked(Vec<Warning>),
    /// What one check has found since, or that it finds nothing any more.
    Found(Check, Option<Warning>),
}

/// How far a listing of a store's locks has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    Start,
    /// Behind this name, in a store that keeps its names in order.
    After(LockName),
    /// What the server's `SCAN` said.
    #[cfg(feature = "redis")]
    Scan(u64),
    /// The same with several servers.
    #[cfg(feature = "redis")]
    Walk(Box<Walk>),
}

/// A step of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// What was found, maybe nothing; some of it may have been found before.
    pub(crate) entries: Vec<LockEntry>,
    /// Where to go on; `None` at the end.
    pub(crate) next: Option<Cursor>,
    /// How many keys were looked at for it, about: what the pace is counted in.
    pub(crate) looked_at: u32,
}

/// Where a store delivers events; called from its own tasks, must not block.
pub(crate) type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// What keeps the locks.
pub(crate) trait Store: Send + Sync + 'static {
    /// Sends one copy of `op`. Dropping the future leaves the outcome in doubt.
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>>;

    /// An embedded store answers at once, without any task; others say `None`.
    fn call_now(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        let _ = (name, op);
        None
    }

    /// Whether [`call_now`](Self::call_now) is worth a try.
    fn is_synchronous(&self) -> bool {
        false
    }

    /// Whether the next connection may lead to another server, which has not heard of everything.
    fn may_fail_over(&self) -> bool {
        false
    }

    /// Where the server that has answered is being replaced by another one, as far as anybody can tell: waits, at
    /// most until then, until the other one is connected, and can be told what it has not heard of.
    fn follow(&self, until: Moment) -> Boxed<'_, ()> {
        let _ = until;
        Box::pin(async {})
    }

    /// Whether what counts has to be confirmed, because replicas are waited for.
    fn is_replicated(&self) -> bool {
        false
    }

    /// Carries out `op`, a renewal or a release, as [`call`](Self::call), and waits until the replicas that
    /// were asked for have it, and with it everything that was answered before.
    fn confirm<'a>(
        &'a self,
        name: &'a LockName,
        op: &'a Op,
    ) -> Boxed<'a, Result<Confirmed, StoreError>> {
        Box::pin(async move { self.call(name, op).await.map(Confirmed::by_the_store) })
    }

    /// How far apart the heartbeats of the lock's waiters come, where `heartbeat` is the setting.
    fn beat_every(&self, name: &LockName, heartbeat: Duration) -> Duration {
        let _ = name;
        heartbeat
    }

    /// Sleeps until the next heartbeat of a waiter is due.
    fn sleep(&self, pause: Duration) -> Boxed<'_, ()> {
        Box::pin(tokio::time::sleep(pause))
    }

    /// Begins to deliver [`Event::Wake`] for `topic`; ready when that is certain. Fails only where it is
    /// denied.
    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>>;

    /// Ends it.
    fn unlisten(&self, topic: Topic);

    /// Resolves when the store is reachable, or refuses the connection, so that the next call says
    /// why; at once when it is so already. Where there are several servers: that of the lock, or any.
    fn ready<'a>(&'a self, name: Option<&'a LockName>) -> Boxed<'a, ()>;

    /// Whether the server of the lock is connected; `None` where the state of the client says it.
    fn is_connected(&self, name: &LockName) -> Option<bool> {
        let _ = name;
        None
    }

    /// By which way calls for the lock go: those of one way may hold each other up, others must not.
    fn lane(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    /// The clock of the server of the lock, where there are several.
    fn clock(&self, name: &LockName) -> Option<Arc<ServerClock>> {
        let _ = name;
        None
    }

    /// Whether grants of a lock reach only who listens to [`Topic::Inbox`] of it.
    fn has_per_lock_inbox(&self) -> bool {
        false
    }

    /// Whether messages to this client's inbox arrive at present.
    fn inbox_up(&self) -> bool;

    /// A round trip.
    fn ping(&self) -> Boxed<'_, Result<(), StoreError>>;

    /// What these clients say of themselves. Those that say nothing, or nothing legible, are left
    /// out; so are all when the store does not answer.
    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>>;

    /// Whether locks are searched for among other keys, so that it needs a pace and finds things twice.
    fn is_searched(&self) -> bool {
        false
    }

    /// The next step of a listing, which looks at about `keys` keys.
    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        let _ = (at, keys);
        let message = "this store cannot list its locks; look at those whose names you know";
        Box::pin(async move { Err(StoreError::refused(Error::misuse(message))) })
    }

    /// A hold is about to be left behind: from now on the end of this client's process is no reason to
    /// end a hold before its lease does.
    fn left_behind(&self) {}

    /// New connections to the servers of these locks, on the caller's runtime; `None` where there is no server.
    #[cfg(feature = "yardstick")]
    fn raw<'a>(&'a self, names: &'a [LockName]) -> Boxed<'a, Result<Option<Raw>, StoreError>> {
        let _ = names;
        Box::pin(async { Ok(None) })
    }

    /// Removes all that is kept of these locks. A store that ends with its client may leave that to its end.
    #[cfg(feature = "yardstick")]
    fn erase<'a>(&'a self, names: &'a [LockName]) -> Boxed<'a, Result<(), StoreError>> {
        let _ = names;
        Box::pin(async { Ok(()) })
    }

    /// The client ends: what it said of itself goes, as far as that can be done.
    fn farewell(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }
}
