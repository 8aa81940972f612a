//! The client: a connection to a store, and the background work of everything that uses it.

use crate::api::election::Election;
use crate::api::latch::Latch;
use crate::api::listing::Locks;
use crate::api::lock::Lock;
use crate::api::member::Member;
use crate::api::multi_lock::MultiLock;
use crate::api::owner::Owner;
use crate::api::release_ticket::ReleaseTicket;
use crate::api::rw_lock::RwLock;
use crate::api::semaphore::Semaphore;
use crate::api::session::Session;
use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::release;
use crate::engine::start::{self, Started};
use crate::settings::config::{Address, Config};
use crate::settings::connection_state::ConnectionState;
use crate::settings::server_checks::Warning;
use crate::state::in_flight::{self, LAST_WORDS};
use fairlock_core::{ClientId, Kind};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A client of one store. Cheap to clone; all clones share its connections: two to a server, three if it waits for
/// [replicas](Config::replicas). On a Cluster, it has up to that many to each master.
///
/// Each client has a thread of its own for heartbeats, renewals and releases. They continue while
/// the application's runtime is blocked, and work where there is no runtime. The thread ends when
/// the last clone, lock and guard has been dropped; releases under way then get up to a second.
/// Dropping a handle does not block. Instead, the thread on which the last handle was dropped waits
/// up to a second for these releases when it ends. So does the main thread when it returns from
/// `main` or calls `std::process::exit`, because a client in a static is never dropped. On musl,
/// Windows and BSD, dropping the last handle itself blocks, outside of tasks and on the main
/// thread.
///
/// # After `fork()`
/// A client and everything made from it belong to the process that created the client. In a child
/// of `fork()` that continues without `exec`, every call is an error
/// ([`Misuse`](crate::ErrorKind::Misuse)), guards report that they are lost, and dropping any of
/// them does nothing: the parent keeps its locks. Futures that were started before the `fork()`
/// never complete in the child. Create a new client in the child: it draws its ids from the
/// operating system. (The same holds in a cloned virtual machine. A client that was running before
/// the cloning exists twice with the same ids, and must not continue in both machines.) A `memory:`
/// store is copied with the process.
#[derive(Clone)]
pub struct Client {
    session: Session,
}

/// How long a shutdown waits for a failover under way: a planned one takes a second or two.
const FOLLOW_MAX: Duration = Duration::from_secs(5);

impl Client {
    /// Connects to the store at `url`: see [`Config::from_url`].
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) for a bad URL; [`Denied`](crate::ErrorKind::Denied);
    /// [`Tls`](crate::ErrorKind::Tls) if no encrypted connection to a verified server can be made;
    /// [`Protocol`](crate::ErrorKind::Protocol) if the server is neither Redis nor Valkey, or if
    /// the host store's file is damaged or another program's; or
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the first attempt to connect fails
    /// ([`Config::connect_retry`] allows more).
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?; // or "redis://127.0.0.1/"
    /// client.ping().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::with_config(Config::from_url(url)?).await
    }

    /// Connects with these settings.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), and `Misuse` for settings out of bounds. With
    /// [`lazy_connect`](Config::lazy_connect) the store's errors come with the first call.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn with_config(config: Config) -> Result<Self, Error> {
        config.check()?;
        let lazy = config.lazy_connect;
        let (started, first_contact) = match config.address {
            // Opening a file may take a while, and waiting for it blocks a thread.
            Address::Sqlite { .. } => start::start_elsewhere(config).await?,
            _ => start::start(config)?,
        };
        let client = Self::new(started);
        in_flight::wait_at_end(&client.context().in_flight);
        if !lazy {
            first_contact.await.map_err(|_| Error::closed())??;
        }
        Ok(client)
    }

    pub(crate) fn new(started: Started) -> Self {
        Self { session: Session::new(started) }
    }

    /// Returns a handle to the first-in-first-out lock `name`.
    ///
    /// If the name cannot be used (empty, longer than 4 KiB, a derived key of another lock), each
    /// call of the handle fails.
    ///
    /// Do not use `n` and `{n}` together: Redisson keeps one queue and one token series for both,
    /// so each grant of one causes the loss of any hold of the other.
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), Kind::Fair)
    }

    /// Returns a handle to the lock `name` without an order among its waiters, on the keys of
    /// Redisson's `RLock`. A release wakes at most one waiter of each client, and the first to ask
    /// gets the lock.
    ///
    /// If the name cannot be used, each call of the handle fails, as for
    /// [`fair_lock`](Self::fair_lock).
    pub fn plain_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), Kind::Plain)
    }

    /// Returns a handle to the simple lock `name`, a single key with a string, which excludes every client that
    /// locks with `SET name value NX PX` and releases by compare-and-delete (redis-py's `Lock`,
    /// rslock, node redlock on one server, hand-written ones).
    ///
    /// Foreign holders notify nobody when they release the lock, so waiters poll every 25 to 270 ms
    /// while one of them holds it. All users of a lock must use the same kind: if the name is in
    /// use for a lock of another kind, calls fail with [`WrongType`](crate::ErrorKind::WrongType).
    pub fn simple_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), Kind::Simple)
    }

    /// Returns a handle to the read-write lock `name`: one writer, or any number of readers, in the
    /// order of the requests. See [`RwLock`].
    ///
    /// On a server, it and Redisson's `RReadWriteLock` of the same name exclude each other.
    /// Redisson's clients do not stand in fairlock's line.
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> RwLock {
        RwLock::new(Lock::new(self.session.clone(), name.as_ref(), Kind::ReadWrite))
    }

    /// Returns a handle to the semaphore `name`, with at most `limit` permits in use, granted in
    /// the order of the requests. See [`Semaphore`].
    pub fn semaphore(&self, name: impl AsRef<[u8]>, limit: u32) -> Semaphore {
        Semaphore::new(Lock::new(self.session.clone(), name.as_ref(), Kind::Semaphore), limit)
    }

    /// Returns a handle to the latch `name`: a count that only falls, and that others wait for. See
    /// [`Latch`].
    ///
    /// On a server it is Redisson's `RCountDownLatch` of the same name.
    pub fn latch(&self, name: impl AsRef<[u8]>) -> Latch {
        Latch::new(self.session.clone(), name.as_ref())
    }

    /// Returns a handle to the election `name`: at most one candidate leads at a time, and
    /// everybody can see which. See [`Election`].
    ///
    /// If the name cannot be used, each call of the handle fails, as for
    /// [`fair_lock`](Self::fair_lock).
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.session.clone(), name.as_ref())
    }

    /// Combines several locks that are taken together without a deadlock, whatever the order in which they are named:
    /// see [`MultiLock`]. A bare name stands for a fair lock; [`RwLock::to_read`], [`RwLock::to_write`] and
    /// [`Semaphore::many`] give members of the other kinds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let both = client.multi_lock(["account:1", "account:2"])?;
    /// let guard = both.lock().await?;
    /// assert!(guard.token("account:1").is_some());
    /// let _ = guard.release().await?;
    /// let mixed = client.multi_lock([
    ///     client.rw_lock("catalogue").to_read(),
    ///     client.semaphore("db", 10).many(2),
    ///     "invoice:42".into(),
    /// ])?;
    /// # let _ = mixed.lock().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse), before anything is sent, if there are no members or
    /// more than 32, if a name cannot be used or appears twice (`x` and `{x}` share a queue, so
    /// they count as one), or if a lock has no queue, has a lease or an owner of its own, or
    /// belongs to another client.
    pub fn multi_lock<M: Into<Member>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<MultiLock, Error> {
        MultiLock::new(&self.session, members.into_iter().map(Into::into))
    }

    /// Creates a new owner, for requests that count as one: see [`Owner`]. No I/O.
    ///
    /// # Panics
    /// After 10^15 owners of this client, guards included.
    pub fn owner(&self) -> Owner {
        let id = self.context().new_owner();
        Owner::new(id.expect("10^15 of them take 31 years at a million a second"))
    }

    /// Creates a new owner for work that must be done once in a period: when the work is done, its
    /// hold is [left to the store](crate::Guard::detach_for) for the rest of that period. An
    /// inspection then shows that the work [is done](crate::LockStatus::is_done). The owner's
    /// number encodes the lease that applies while the work is under way:
    /// [`Config::watchdog_lease`](crate::Config::watchdog_lease). A hold with a longer fixed lease
    /// would look done from the start.
    ///
    /// # Panics
    /// After 10^11 such owners of this client.
    pub fn once_owner(&self) -> Owner {
        let id = self.context().new_once_owner();
        Owner::new(id.expect("10^11 of them take a day at a million a second"))
    }

    /// Lists the locks of the store, page by page. Nothing is sent before [`Locks::next_page`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fairlock::Error> {
    /// let client = fairlock::Client::connect("memory:").await?;
    /// let guard = client.fair_lock("invoice:42").lock().await?;
    /// let mut locks = client.locks();
    /// while let Some(page) = locks.next_page().await? {
    ///     for lock in page.iter().filter(|lock| lock.held) {
    ///         println!("{}: {} waiting", lock.name, lock.waiting);
    /// #       assert_eq!(lock.name.as_bytes(), b"invoice:42");
    ///     }
    /// }
    /// # let _ = guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks(&self) -> Locks {
        Locks::new(self.session.clone())
    }

    /// Makes a round trip to the store.
    ///
    /// # Errors
    /// The store's errors: see [`ErrorKind`](crate::ErrorKind). A ping is not retried. It fails
    /// with [`Unavailable`](crate::ErrorKind::Unavailable), at once if there is no connection, or
    /// after [`Config::response_timeout`] if there is no answer.
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn ping(&self) -> Result<(), Error> {
        self.context().usable()?;
        let context = Arc::clone(self.context());
        let pong = self.session.on_background(async move { context.store.ping().await });
        pong.await?.map_err(|failure| failure.error)
    }

    /// Returns the state of the connection, to read or to watch for changes. A connection that
    /// closes, or does not answer a ping ([`Config::ping_interval`], [`Config::ping_timeout`]), is
    /// `Reconnecting` until it is re-established. `Closed` comes last, once, and is final.
    ///
    /// The receiver keeps only the latest state. If a connection is lost for only a few
    /// milliseconds, a receiver that is seldom read may see only that something has changed.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.context().connection.subscribe()
    }

    /// Returns the client's id, with which its owner ids begin.
    pub fn id(&self) -> ClientId {
        self.context().client_id
    }

    /// Returns the problems found with the server that did not prevent its use: see
    /// [`Check`](crate::Check). Each new connection is checked again, so a problem that was solved
    /// disappears. No I/O; empty before the first connection and in a forked child.
    pub fn warnings(&self) -> Vec<Warning> {
        if self.context().is_forked_child() {
            // A copy of the mutex may be locked for ever.
            return Vec::new();
        }
        lock(&self.context().warnings).clone()
    }

    /// Returns how many messages to this client were dropped since it was created because they were
    /// forged, late, or for requests that are over. No I/O.
    pub fn dropped_messages(&self) -> u64 {
        self.context().machine.dropped_messages()
    }

    /// The former name of [`dropped_messages`](Self::dropped_messages).
    #[deprecated = "it is called dropped_messages"]
    pub fn odd_messages(&self) -> u64 {
        self.dropped_messages()
    }

    /// Releases the hold of another process, which must be dead, with everything that relied on the hold.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if there is no such hold, or the store's errors.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    #[doc(hidden)]
    pub async fn release_by(&self, ticket: &ReleaseTicket) -> Result<(), Error> {
        self.context().usable()?;
        let (context, name, op) = (Arc::clone(self.context()), ticket.name().clone(), ticket.op());
        let released = async move { release::release_by(&context, &name, &op).await };
        self.session.on_background(released).await?
    }

    /// Returns how many tasks run on the background thread, for tests that look for leaks.
    #[doc(hidden)]
    pub fn background_tasks(&self) -> usize {
        self.context().runtime.metrics().num_alive_tasks()
    }

    /// Shuts the client down: waiters leave their queues, guards are no longer renewed and end with their leases, and
    /// later calls are errors; held locks can still be released. Waits until the store has answered the releases under
    /// way, each at most until its lease ends, and the waiters that leave; all of this takes at most the [store
    /// timeout](Config::store_timeout). Earlier releases that the store never confirmed, of holds that are over, are
    /// retried for a second. With Sentinels, asks them once whether the server that answered is being replaced; if so,
    /// waits up to 5 s until recent releases are repeated on the new server.
    ///
    /// To wait for less, use `tokio::time::timeout`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client shut down; work under way continues.
    pub async fn shutdown(self) {
        if self.context().origin.is_forked_child() {
            // The work belongs to the parent and continues there.
            return;
        }
        self.context().close();
        let context = Arc::clone(self.context());
        let flushed = self.session.on_background(async move {
            let until = context.store_deadline();
            release::pay_all_debts(&context);
            context.in_flight.settled(until).await;
            if context.has_recent_releases() {
                context.store.follow(until.min(Moment::now().plus(FOLLOW_MAX))).await;
                context.in_flight.settled(until).await;
            }
            let _ =
                tokio::time::timeout(until.left().min(LAST_WORDS), context.store.farewell()).await;
        });
        // An error means that the background thread is gone, and so is all work.
        let _ = flushed.await;
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.session.context()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.context().client_id).finish_non_exhaustive()
    }
}
