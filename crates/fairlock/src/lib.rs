//! Fair distributed locks on Redis or Valkey, wire-compatible with Java's Redisson, with fencing
//! tokens and a signal when a lock is lost. Also without any server, inside one process.
//!
//! ```
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fairlock::Error> {
//! let client = fairlock::Client::connect("memory:").await?; // or "redis://127.0.0.1/"
//! let lock = client.fair_lock("invoice:42");
//!
//! let guard = lock.lock().await?; // waits its turn; renewed while it lives
//! assert!(guard.token().get() > 0); // hand it to what you write to
//! guard.ensure_valid()?; // no I/O
//! guard.release().await?; // dropping the guard releases it too
//!
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(5)).await? {
//!     drop(guard);
//! }
//!
//! let done = lock.with(async |held| held.token()).await?; // cancelled at once when the lock is lost
//! # assert_eq!(done.release, fairlock::Release::Released);
//! # Ok(())
//! # }
//! ```
//!
//! # Which type for what
//! | you want | look at |
//! |---|---|
//! | to reach a store | [`Client`], one for a process and store; [`Config`] for settings, [`Credentials`] for passwords that change; [`Client::connection`] and [`ConnectionState`] to watch it |
//! | turns in the order of asking | a [`Lock`] by [`Client::fair_lock`], also beside Redisson's `RFairLock` |
//! | a lock without an order | [`Client::plain_lock`], beside Redisson's `RLock` |
//! | a lock beside `SET NX PX` of other libraries | [`Client::simple_lock`] |
//! | to hold a lock for as long as a value lives | [`Lock::lock`], [`Lock::try_lock`], [`Lock::try_lock_for`]: a [`Guard`] |
//! | to run one future under a lock, cancelled on loss | [`Lock::with`]: a [`Held`] inside, [`Done`] and [`Release`] afterwards |
//! | to keep a place in the queue in a `select!` loop | [`Lock::enqueue`]: a [`Turn`] |
//! | to enter a lock that you hold | [`Guard::reenter`]; [`Owner`] where no guard is at hand |
//! | to bound a hold | [`Lock::lease`] (never renewed), [`Lock::max_hold`] (renewed until then) |
//! | locks that outlive a fail-over of the server | [`Config::replicas`]: [`Replicas`] |
//! | to leave a lock held without a guard | [`Guard::detach`]: a [`Detached`] |
//! | to protect what the lock is for | [`FencingToken`], from [`Guard::token`] |
//! | to know whether you still hold it | [`Guard::ensure_valid`], [`Guard::state`] and [`GuardState`] (no I/O); [`Guard::lost`]; [`LostReason`] for why not |
//! | to see who holds and who waits | [`Lock::inspect`]: [`LockStatus`], [`Holder`], [`QueuedWaiter`], [`ClientInfo`] |
//! | to find out which locks there are | [`Client::locks`]: [`Locks`], [`LockEntry`] |
//! | names and ids, for logs and tables | [`LockName`], [`OwnerId`], [`ClientId`], [`Kind`]; [`IdError`] for those that cannot be |
//! | to know what is wrong with a server | [`Client::warnings`]: [`Warning`]; [`Check`] and [`Reaction`] in [`Config::on_check`] |
//! | to react to an error | [`Error`], with an [`ErrorKind`] to match on |
//! | locks on a Cluster beside old clients of Redisson | [`Config::sharded_pubsub`], [`ShardedPubSub`] |
//! | locks without `async` | the module `blocking`, feature `blocking` |
//! | locks in your own tests | the module `test_util`, feature `test-util` |
//!
//! A manual, with worked examples of fencing, is in `docs/manual.md` of the repository; what every
//! fault costs is in `docs/guarantees.md`.
//!
//! # What is promised
//! 1. Two guards of one lock are never valid at the same time, while the server keeps what it was told
//!    and its clock does not jump forward. Validity counts from when a request was sent.
//! 2. Live waiters of a fair lock are served first in, first out, and keep their places through lost
//!    messages and reconnects. Dead ones cost the others nothing, or at most 8 s
//!    if they hang.
//! 3. Every grant has a larger [token](FencingToken) than all before it on that name.
//! 4. A holder is told when its lock is in doubt, and when it is lost: at the latest when its validity
//!    runs out by the local clock.
//! 5. A request has one effect, however often it had to be sent. A future that is dropped leaves nothing
//!    behind; each async function says what that means for it ("Cancel safety").
//! 6. A store that does not answer ends a call after 30 s ([`Config::store_timeout`]).
//!
//! # What is not
//! 1. That a holder stops. A process that is paused for longer than its lease goes on when it wakes up.
//!    Pass the token to the resource, and let it refuse smaller ones.
//! 2. Exclusion when the server loses data (a restart without persistence, a replica that is promoted
//!    without the last writes, eviction), or when its clock jumps forward. Tokens still rise.
//! 3. Order between locks of different kinds, or behind a dead Java waiter.
//! 4. That a task which hangs lets go: its guard is renewed until [`Lock::max_hold`] ends.
//!
//! # Features
//! - `redis` (default): stores on Redis and Valkey servers. Without it only `memory:`.
//! - `sqlite`: the host store, a file for all processes of one host ([`Config::host`]). Brings SQLite along,
//!   which needs a C compiler. Its file is described in `docs/host.md`.
//! - `tls`: encrypted connections, `rediss://` and [`Config::tls`]. Brings rustls along, whose ring needs a C
//!   compiler; which providers of cryptography a program has besides does not matter.
//! - `blocking`: the module `blocking`, for code without `async`: threads own their locks, as in Java. No
//!   further dependency.
//! - `metrics`: counters, gauges and histograms through the facade `metrics`.
//! - `tracing`: spans and events, target `fairlock`. Both are described in `docs/observability.md`.
//! - `test-util`: the module `test_util`, for the tests of programs that use fairlock: a store in
//!   tokio's paused time that can take locks away and be cut off. For dev-dependencies.
//! - `yardstick`: the module `yardstick`, for benches: what a server gives without this
//!   library in between. It may change in any version.

#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "connections, their errors and their events come from servers only")
)]

mod api;
mod base;
#[cfg(feature = "blocking")]
pub mod blocking;
mod engine;
mod observe;
mod settings;
mod state;
mod store;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(feature = "yardstick")]
pub mod yardstick;

pub use api::client::Client;
pub use api::detached::Detached;
pub use api::guard::Guard;
pub use api::listing::Locks;
pub use api::lock::Lock;
pub use api::owner::Owner;
pub use api::scoped::{Done, Held};
pub use api::status::{Holder, LockStatus, QueuedWaiter};
pub use api::turn::Turn;
pub use base::error::{Error, ErrorKind};
pub use base::lost_reason::LostReason;
#[doc(inline)]
pub use fairlock_core::{ClientId, IdError, Kind, LockName, OwnerId, Token as FencingToken};
pub use settings::client_info::ClientInfo;
pub use settings::config::{Config, ShardedPubSub};
pub use settings::connection_state::ConnectionState;
pub use settings::credentials::Credentials;
pub use settings::replicas::Replicas;
pub use settings::server_checks::{Check, Reaction, Warning};
pub use state::outcome::Release;
pub use state::standing::GuardState;
pub use store::entry::LockEntry;
