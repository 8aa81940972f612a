//! Fair distributed locks on Redis or Valkey, wire-compatible with Java's Redisson, with fencing
//! tokens and a signal when a lock is lost. The same locks also work without a server: between the
//! processes of one user or group on one host, or inside one process.
//!
//! ```
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fairlock::Error> {
//! let client = fairlock::Client::connect("memory:").await?; // or "redis://127.0.0.1/"
//! let lock = client.fair_lock("invoice:42");
//!
//! let guard = lock.lock().await?; // waits its turn; renewed in the background
//! assert!(guard.token().get() > 0); // the fencing token: pass it to what you write to
//! guard.ensure_valid()?; // still held? Costs no I/O
//! if guard.release().await? == fairlock::Release::Lost {
//!     eprintln!("another client may have worked at the same time"); // dropping the guard releases it, too
//! }
//!
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(5)).await? {
//!     drop(guard);
//! }
//!
//! let done = lock.with(async |held| held.token()).await?; // cancelled when the lock is lost
//! # assert_eq!(done.release, fairlock::Release::Released);
//! # Ok(())
//! # }
//! ```
//!
//! # Which type for what
//! | you want | look at |
//! |---|---|
//! | to reach a store | [`Client`], one per process and store; [`Config`] for settings, [`Credentials`] for passwords that change; [`Client::connection`] and [`ConnectionState`] to watch the connection |
//! | turns in the order of the requests | a [`Lock`] by [`Client::fair_lock`], also shared with Redisson's `RFairLock` |
//! | a lock without an order | [`Client::plain_lock`], shared with Redisson's `RLock` and `RFencedLock` |
//! | a lock shared with `SET NX PX` of other libraries | [`Client::simple_lock`] |
//! | one writer or many readers, in order | an [`RwLock`] by [`Client::rw_lock`]: [`ReadGuard`], [`WriteGuard`] |
//! | one leader that everybody sees | an [`Election`] by [`Client::election`]: [`Term`], [`Observer`], [`Leader`] |
//! | at most n at once, in order | a [`Semaphore`] by [`Client::semaphore`]: [`Permit`], [`Usage`] |
//! | to wait until n parts are done | a [`Latch`] by [`Client::latch`]: [`Opened`] |
//! | to hold a lock for as long as a value lives | [`Lock::lock`], [`Lock::try_lock`], [`Lock::try_lock_for`]: a [`Guard`] |
//! | to run one future under a lock, cancelled on loss | [`Lock::with`]: a [`Held`] inside, [`Done`] and [`Release`] afterwards |
//! | to keep a place in the queue in a `select!` loop | [`Lock::enqueue`]: a [`Turn`] |
//! | to enter a lock that you hold | [`Guard::reenter`]; [`Owner`] if no guard is at hand |
//! | to bound a hold | [`Lock::lease`] (never renewed), [`Lock::max_hold`] (renewed until then) |
//! | locks that outlive a failover of the server | [`Config::replicas`]: [`Replicas`] |
//! | to leave a lock held without a guard | [`Guard::detach`]: a [`Detached`] |
//! | to protect the resource behind the lock | [`FencingToken`], from [`Guard::token`]; in a SQL database, the module [`fence`] with its [`fence::Refusal`] |
//! | to know whether you still hold it | [`Guard::ensure_valid`], [`Guard::state`] and [`GuardState`] (no I/O); [`Guard::lost`]; [`LostReason`] for why it was lost |
//! | to see who holds and who waits | [`Lock::inspect`]: [`LockStatus`], [`Holder`] with its [`Share`], [`QueuedWaiter`], [`ClientInfo`] |
//! | to find out which locks exist | [`Client::locks`]: [`Locks`], [`LockEntry`] |
//! | names and ids, for logs and tables | [`LockName`], [`OwnerId`], [`ClientId`], [`Kind`]; [`IdError`] for invalid ones |
//! | to know what is wrong with a server | [`Client::warnings`]: [`Warning`]; [`Check`] and [`Reaction`] in [`Config::on_check`] |
//! | to react to an error | [`Error`], with an [`ErrorKind`] to match on |
//! | locks on a Cluster shared with old clients of Redisson | [`Config::sharded_pubsub`], [`ShardedPubSub`] |
//! | locks without `async` | the module `blocking`, feature `blocking` |
//! | locks in your own tests | the module `test_util`, feature `test-util` |
//!
//! The repository has a manual with worked examples of fencing (`docs/manual.md`), a list of every
//! setting (`docs/configuration.md`), and an account of what each fault costs
//! (`docs/guarantees.md`).
//!
//! # Kinds of lock
//! All users of a name must use the same kind.
//!
//! | kind | order | on Redis | shared with | re-entry |
//! |---|---|---|---|---|
//! | [fair](Client::fair_lock) | first in, first out | hash, queue | Redisson's `RFairLock` | counted on the server |
//! | [plain](Client::plain_lock) | none | hash | Redisson's `RLock` and `RFencedLock` | counted on the server |
//! | [simple](Client::simple_lock) | none | string | every client that locks with `SET name value NX PX`: redis-py, rslock, node redlock on one server | counted in the client |
//! | [read-write](Client::rw_lock) | first in, first out; adjacent readers read together | hash, line | Redisson's `RReadWriteLock`, which does not stand in line | counted in the store |
//! | [semaphore](Client::semaphore) | first in, first out | hash, line | | counted in the store |
//!
//! Guards, tokens and loss signals are the same for all of them. While a foreign client holds a
//! simple lock, waiters ask every 25 to 270 ms, because that client notifies nobody when it
//! releases the lock.
//!
//! # How the pieces behave
//! - **Leases.** The default lease is 30 s and is renewed every 10 s. [`Lock::lease`] sets a fixed
//!   lease that is never renewed. [`Lock::max_hold`] bounds a hold, renewed or not.
//! - **Loss.** [`Guard::lost`] is a future that resolves when the lock is lost;
//!   [`Guard::state_changed`] also reports doubt.
//! - **Owners.** Each [`Lock::lock`] is an owner of its own, so a second one in the same task waits
//!   for ever for the first guard. [`Lock::owned_by`] with a [`Client::owner`] lets several
//!   requests share an owner: while that owner holds the lock, they enter it once more.
//! - **Release.** [`Guard::release`] returns `Released`, `StillHeld(n)`, `Lost` or `Unknown`.
//!   [`Guard::detach`] leaves the lock held until its lease ends.
//! - **Closures.** [`Lock::with`] cancels the closure as soon as the lock is lost; otherwise it
//!   returns its value, whether or not the release succeeded. [`Lock::try_with`] and
//!   [`Lock::try_with_for`] give up as [`Lock::try_lock`] and [`Lock::try_lock_for`] do.
//! - **Several at once.** [`Client::multi_lock`] makes a [`MultiLock`] of fair locks, readers,
//!   writers and permits (each a [`Member`]). It takes all or none, without deadlock, whatever the
//!   order in which they are named. Its [`MultiGuard`], and the [`MultiHeld`] of
//!   [`MultiLock::with`], have a token for each name.
//! - **Turns.** A [`Turn`] keeps its place while [`Turn::wait`] is polled and dropped in a
//!   `select!` loop. [`Turn::position`] is the number of waiters in front; [`Turn::leave`] waits
//!   until the place is given up.
//! - **Inspection.** [`Lock::inspect`] shows the holder and the queue: places, since when each
//!   client holds or waits, and, for clients of fairlock, the host, process, user and label.
//!   [`Config::label`] sets the label; [`Config::announce`] with `false` publishes nothing.
//!   [`Lock::is_locked`], [`Lock::holder`] and [`Lock::remaining_ttl`] return parts of it.
//!   [`Lock::force_unlock`] is for operators.
//! - **Connection.** [`Client::connection`] returns a `watch::Receiver` with the connection state:
//!   Connected, Reconnecting or Closed. [`Client::ping`] makes a round trip. [`Client::shutdown`]
//!   ends a client and waits for the work under way.
//! - **Errors** have a [`kind`](Error::kind) to match on, and name the lock, the owner, and who
//!   holds the lock instead. A lock that is not granted in time is `None`, not an error; a store
//!   that does not answer in that time is an error.
//! - **Background work.** Each client has a thread of its own for heartbeats, renewals and
//!   releases. They continue while your tasks block the runtime, and even if a guard is dropped
//!   outside of a runtime.
//! - **Threads.** In the module `blocking` the thread is the owner and may enter a lock that it
//!   already holds, as with Java's `ReentrantLock`. An `Interrupt` ends the wait of another thread.
//!   Inside an async task, a call that would block is an error.
//!
//! # What is promised
//! 1. Two guards of one lock are never valid at the same time, as long as the server keeps its data
//!    and its clock does not jump forward. Validity counts from when a request was sent.
//! 2. Live waiters of a fair lock are served first in, first out, and keep their places through
//!    lost messages and reconnects. Dead waiters cost the others nothing, or at most 8 s if they
//!    hang; on a Cluster at most 8 s in both cases.
//! 3. Every grant has a larger [token](FencingToken) than all before it on that name, even after a
//!    loss of all data, unless the server's clock was set back as well.
//! 4. A holder is notified when its lock is in doubt, and when it is lost: at the latest when its
//!    validity ends by the local clock.
//! 5. A request has one effect, however often it is sent. A dropped future leaves nothing behind;
//!    the section "Cancel safety" of each async function has the details.
//! 6. A call to a store that does not answer ends after 30 s ([`Config::store_timeout`]).
//!
//! # What is not promised
//! 1. That a holder stops. A process that is paused for longer than its lease continues when it
//!    wakes up. Pass the token to the resource, and let it refuse smaller ones.
//! 2. Exclusion when the server loses data (a restart without persistence, a replica that is
//!    promoted without the last writes, eviction), when its clock jumps forward, while a split
//!    behind Sentinels lasts (both primaries grant locks, unless [`Config::replicas`] is set), and
//!    between a [`Lock::force_unlock`] and the moment when the holder learns of it. Tokens still
//!    rise, unless the server's clock was set back.
//! 3. Order between locks of different kinds, behind a dead Java waiter, or beside a Java client
//!    whose clock is fast.
//! 4. That a task which hangs releases its lock: its guard is renewed until [`Lock::max_hold`]
//!    ends.
//! 5. That the pause of a whole virtual machine is noticed. After it resumes, its guards stay valid
//!    until the first answered renewal, at most for a lease, although the lock may have been
//!    granted to others. Tokens protect in this case too.
//!
//! Locks on a majority of independent servers (RedLock) are not part of this crate.
//!
//! # Features
//! With its default features the library needs tokio, and no C compiler.
//! - `redis` (default): stores on Redis and Valkey servers. Without it there are only `memory:`
//!   and, with `sqlite`, the host store.
//! - `sqlite`: the host store, a file for the processes of one user, or of a group, on one host
//!   ([`Config::host`]); Linux only. Includes SQLite, which needs a C compiler. `docs/host.md`
//!   describes its file.
//! - `tls`: encrypted connections, `rediss://` and [`Config::tls`]. Includes rustls with ring,
//!   which needs a C compiler; other cryptography providers in the program do not matter.
//! - `blocking`: the module `blocking`, for code without `async`: threads own their locks, as in
//!   Java. No further dependency.
//! - `metrics`: counters, gauges and histograms through the facade `metrics`.
//! - `tracing`: spans and events, target `fairlock`; names of locks appear only at `debug` unless
//!   [`Config::log_names`] is set. `docs/observability.md` describes both.
//! - `serde`: `Serialize` for tokens, ids, names and the results of inspections and listings;
//!   `Deserialize` for tokens, ids and names, which are checked. A token is a number; ids and names
//!   are text, or a list of bytes if they are not UTF-8. Times of `std` have serde's form.
//! - `test-util`: the module `test_util`, for the tests of programs that use fairlock: a store in
//!   tokio's paused time that can take locks away and be cut off. For dev-dependencies.

#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "connections, their errors and their events come from servers only")
)]

mod api;
mod base;
#[cfg(feature = "blocking")]
pub mod blocking;
mod engine;
pub mod fence;
mod observe;
mod settings;
mod state;
mod store;
#[cfg(feature = "test-util")]
pub mod test_util;

pub use api::client::Client;
pub use api::detached::Detached;
pub use api::election::{Election, Term};
pub use api::guard::Guard;
pub use api::latch::Latch;
pub use api::listing::Locks;
pub use api::lock::Lock;
pub use api::member::Member;
pub use api::multi_guard::{MultiGuard, MultiHeld};
pub use api::multi_lock::MultiLock;
pub use api::observer::{Leader, Observer};
pub use api::owner::Owner;
#[doc(hidden)]
pub use api::release_ticket::{NotATicket, ReleaseTicket};
pub use api::rw_lock::{ReadGuard, RwLock, WriteGuard};
pub use api::scoped::{Done, Held};
pub use api::semaphore::{Permit, Semaphore, Usage};
pub use api::status::{Holder, LockStatus, QueuedWaiter};
pub use api::turn::Turn;
pub use base::error::{Error, ErrorKind};
pub use base::lost_reason::LostReason;
#[doc(inline)]
pub use fairlock_core::{
    ClientId, IdError, Kind, LockName, Opened, OwnerId, Share, Token as FencingToken,
};
pub use settings::client_info::ClientInfo;
pub use settings::config::{Config, ShardedPubSub};
pub use settings::connection_state::ConnectionState;
pub use settings::credentials::Credentials;
pub use settings::replicas::Replicas;
pub use settings::server_checks::{Check, Reaction, Warning};
pub use state::outcome::Release;
pub use state::standing::GuardState;
pub use store::entry::LockEntry;
