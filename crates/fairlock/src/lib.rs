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
//! assert_eq!(done.release, fairlock::Release::Released); // the value is there in any case
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//! Two guards of one lock are never valid at the same time, judged locally from when a request
//! was sent; waiters are served first in, first out; every grant has a larger
//! [token](Guard::token) than all before it; a holder is told when its lock is in doubt or
//! [lost](Guard::lost); a future that is dropped leaves nothing behind.
//!
//! # What is not
//! No lock with leases can stop a holder that is paused for longer than its lease from going on
//! when it wakes up: pass the token to the resource and let it refuse smaller ones. A server that
//! loses its memory, or whose clock jumps forward, frees locks early; tokens still rise.
//!
//! # Features
//! - `redis` (default): stores on Redis and Valkey servers. Without it only `memory:`.
//! - `blocking`: the module `blocking`, for code without `async`.
//! - `metrics`: counters, gauges and histograms through the `metrics` facade.
//! - `tracing`: spans and events, target `fairlock`. Both are described in `docs/observability.md`.
//! - `test-util`: the module `test_util`, for the tests of programs that use fairlock: a store in
//!   tokio's paused time that can take locks away and be cut off.

#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "connections, their errors and their events come from servers only")
)]

mod acquire;
mod background;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
mod caller;
mod client;
mod client_info;
mod clock;
mod config;
mod detached;
mod error;
mod guard;
mod hold;
mod hub;
mod lock;
mod observe;
mod owner;
mod process;
mod reaper;
mod shared;
mod shepherd;
mod status;
mod store;
#[cfg(feature = "test-util")]
pub mod test_util;
mod turn;
mod url;
mod watchdog;
mod with;

pub use client::Client;
pub use client_info::ClientInfo;
pub use config::Config;
pub use detached::Detached;
pub use error::{Error, ErrorKind};
#[doc(inline)]
pub use fairlock_core::{ClientId, IdError, Kind, LockName, OwnerId, Token as FencingToken};
pub use guard::Guard;
pub use hold::GuardState;
pub use lock::Lock;
pub use owner::Owner;
pub use reaper::Release;
pub use shared::ConnectionState;
pub use status::{Holder, LockStatus, QueuedWaiter};
pub use turn::Turn;
pub use with::{Done, Held};
