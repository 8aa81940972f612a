//! The client: a connection to a store, and the background work of everything that uses it.

use crate::api::listing::Locks;
use crate::api::lock::Lock;
use crate::api::owner::Owner;
use crate::api::session::Session;
use crate::base::clock::{Moment, lock};
use crate::base::error::Error;
use crate::engine::context::Context;
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

/// A client of one store. Cheap to clone; all clones share its connections.
///
/// Heartbeats, renewals and releases run on a thread of the client's own: they go on while the
/// application's runtime is blocked, and work where there is none. When the last clone, lock and
/// guard is gone, that thread ends; releases that are under way then get up to a second. Dropping does
/// not wait for them, in a task or elsewhere. What waits, for as long, is the end of the thread on which
/// the last of them was dropped, and the end of the main thread, by returning from `main` or by
/// `std::process::exit`: a client in a static is never dropped.
///
/// # After `fork()`
/// A client, and all that came from it, belongs to the process that made it. In a child of `fork()`
/// that goes on without `exec` every call is an error ([`Misuse`](crate::ErrorKind::Misuse)), guards
/// say that they are lost, and dropping any of them does nothing: the parent keeps its locks. Futures
/// that were begun before the `fork()` never end there. Make a new client in the child: it has ids of
/// its own, drawn from the operating system when it is made. (So has a virtual machine that was
/// cloned; clients that were running in it before are the same client twice, and must not go on in
/// both.) A `memory:` store is copied with the process.
#[derive(Clone)]
pub struct Client {
    session: Session,
}

/// How long the end of a client waits for a failover that goes on: an ordered one takes a second or two.
const FOLLOW_MAX: Duration = Duration::from_secs(5);

impl Client {
    /// Connects to the store at `url`: see [`Config::from_url`].
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) for a bad URL, [`Denied`](crate::ErrorKind::Denied),
    /// or [`Unavailable`](crate::ErrorKind::Unavailable) when the first attempt to connect fails
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
    /// As [`connect`](Self::connect), and `Misuse` for settings out of bounds. With
    /// [`lazy_connect`](Config::lazy_connect) the store's errors come with the first call.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn with_config(config: Config) -> Result<Self, Error> {
        config.check()?;
        let lazy = config.lazy_connect;
        let (started, first_contact) = match config.address {
            // Opening a file may take a while, and it can only be waited for by blocking a thread.
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

    /// The first-in-first-out lock `name`.
    ///
    /// A name that cannot be used (empty, above 4 KiB, a derived key of another lock) is an error
    /// of the handle's calls.
    ///
    /// Do not use `n` and `{n}` beside each other: Redisson keeps one queue and one token series for
    /// both, so each grant of the one makes a hold of the other lost.
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), Kind::Fair)
    }

    /// The lock `name` without an order among its waiters, on the keys of Redisson's `RLock`. A
    /// release wakes at most one waiter of each client, and whoever asks first then has it.
    ///
    /// As [`fair_lock`](Self::fair_lock): a name that cannot be used is an error of the handle's calls.
    pub fn plain_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), Kind::Plain)
    }

    /// The lock `name` as a single string: it excludes every client that locks with
    /// `SET name value NX PX` and lets go by compare-and-delete (redis-py's `Lock`, rslock, node
    /// redlock on one server, hand-written ones).
    ///
    /// Foreign holders tell nobody when they let go, so waiters ask every 25 to 270 ms while one
    /// holds the lock. All users of a lock must name the same kind: a name that is in use for a fair
    /// or plain lock is [`WrongType`](crate::ErrorKind::WrongType).
    pub fn simple_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), Kind::Simple)
    }

    /// A new owner, for requests that shall count as one: see [`Owner`]. Each call makes another. No
    /// I/O.
    ///
    /// # Panics
    /// After 10^15 owners of this client, guards included.
    pub fn owner(&self) -> Owner {
        let id = self.context().new_owner();
        Owner::new(id.expect("10^15 of them take 31 years at a million a second"))
    }

    /// As [`owner`](Self::owner), for work that is to be done once in a time: its hold is
    /// [left to the store](crate::Guard::detach_for) for the rest of that time when the work is done. Whoever
    /// looks at the lock then is told that it [is done](crate::LockStatus::is_done). The owner's number says
    /// how long the lease is while the work goes on: [`Config::watchdog_lease`](crate::Config::watchdog_lease). A
    /// fixed lease that is longer would look like done from its beginning.
    ///
    /// # Panics
    /// After 10^11 such owners of this client.
    pub fn once_owner(&self) -> Owner {
        let id = self.context().new_once_owner();
        Owner::new(id.expect("10^11 of them take a day at a million a second"))
    }

    /// The locks of the store, page by page; nothing is asked before [`Locks::next_page`].
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
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks(&self) -> Locks {
        Locks::new(self.session.clone())
    }

    /// A round trip to the store.
    ///
    /// # Errors
    /// The store's errors: see [`ErrorKind`](crate::ErrorKind). It is not tried again: without a
    /// connection it is [`Unavailable`](crate::ErrorKind::Unavailable) at once, without an answer
    /// after [`Config::response_timeout`].
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn ping(&self) -> Result<(), Error> {
        self.context().usable()?;
        let context = Arc::clone(self.context());
        let pong = self.session.on_background(async move { context.store.ping().await });
        pong.await?.map_err(|failure| failure.error)
    }

    /// The state of the connection, to look at or to wait for changes. A connection that closes,
    /// or does not answer a ping ([`Config::ping_interval`], [`Config::ping_timeout`]), is
    /// `Reconnecting` until it is made again; `Closed` comes last, once, and stays.
    ///
    /// The receiver keeps the latest state: who looks seldom may see only that something changed
    /// when a connection was lost for some milliseconds.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.context().connection.subscribe()
    }

    /// The client's id: what its owner ids begin with.
    pub fn id(&self) -> ClientId {
        self.context().client_id
    }

    /// What is wrong with the server, as far as it was found and gone on with: see [`Check`](crate::Check).
    /// It is looked for again with each connection, so what was put right is gone. No I/O; empty before
    /// the first connection.
    pub fn warnings(&self) -> Vec<Warning> {
        lock(&self.context().warnings).clone()
    }

    /// How many messages to this client were dropped since it was made: forged, late, or for
    /// requests that are over. No I/O.
    pub fn dropped_messages(&self) -> u64 {
        self.context().waiters.dropped_messages()
    }

    /// The former name of [`dropped_messages`](Self::dropped_messages).
    #[deprecated = "it is called dropped_messages"]
    pub fn odd_messages(&self) -> u64 {
        self.dropped_messages()
    }

    /// How many tasks run on the background thread: for tests that look for what is left behind.
    #[doc(hidden)]
    pub fn background_tasks(&self) -> usize {
        self.context().runtime.metrics().num_alive_tasks()
    }

    /// Ends the client's work: waiters leave their queues, guards are not renewed any more and
    /// end with their leases, later calls are errors; what is held can still be released. Waits until what is under way
    /// (releases, waiters leaving) is answered, at most for the store timeout. Behind Sentinels it asks them once whether
    /// the server that has answered is being replaced, and if so stays until the new one was told, up to 5 s.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client shut down; what is under way goes on.
    pub async fn shutdown(self) {
        if self.context().origin.is_forked_child() {
            // The work is the parent's, and goes on there.
            return;
        }
        self.context().close();
        let context = Arc::clone(self.context());
        let flushed = self.session.on_background(async move {
            let until = context.store_deadline();
            context.in_flight.settled(until).await;
            if context.recent_releases.is_any() {
                context.store.follow(until.min(Moment::now().plus(FOLLOW_MAX))).await;
                context.in_flight.settled(until).await;
            }
            let _ =
                tokio::time::timeout(until.left().min(LAST_WORDS), context.store.farewell()).await;
        });
        // An error means that the background thread is gone, and so is all work.
        let _ = flushed.await;
    }

    #[cfg(feature = "yardstick")]
    pub(crate) fn session(&self) -> &Session {
        &self.session
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
