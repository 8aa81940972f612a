//! Integration tests of the library, in one binary.
//!
//! - `access`: users of the server's ACL: logins and rights
//! - `election`: elections, where that needs futures, several clients or faults
//! - `faults`: the allowed cost of every kind of fault
//! - `background`: background work while the application blocks its threads, or ends its runtimes
//! - `simple`: the simple lock beside the foreign clients that it is made for, and its faults
//! - `smoke`: the shortest path on every store
//! - `host`: who is woken on the host store, when, and by whose death
//! - `contract`: what every store must do, run on each store
//! - `blocking`: the blocking API, and the contract once more, on threads
//! - `cancel`: futures dropped after every number of polls
//! - `bad_input`: invalid input is reported, or ignored and counted, and changes nothing
//! - `collisions`: names that look like keys of other locks
//! - `cooperation`: calls that finish at once still yield to other tasks
//! - `dependencies`: everybody may use the dependencies
//! - `hostile`: a server that sends anything, at every step
//! - `identity`: ids are unique and cannot be forged
//! - `latches`: what latches cost, and lost messages, replies and data
//! - `secrets`: no output shows a password
//! - `send_sync`: what the types and futures can be used for
//! - `redisson`: Redisson's failures beside our behaviour, and its own tests
//! - `public_api`: the public API is the one in `docs/api.txt`
//! - `named`: the tests that the pages in `docs` name exist
//! - `reports`: the reports of long runs in `docs` are complete and without violations
//! - `protocol`: numbers and names in `docs/protocol.md` agree with the code
//! - `tls`: encrypted connections, what each setting of them does, and what is refused
//! - `tidy`: rules about the source that no lint checks
//! - `topologies`: replicas, Sentinel sets and Clusters
//! - `lost`: why a lock was lost, and how soon its holder learns of a forced release
//! - `silence`: every call on a store that does not reply, and what dropping waits for
//! - `multi`: several locks at once: on every store, and with faults
//! - `many`: thousands of waiters of one client
//! - `shares`: read-write locks and semaphores, where that needs futures or several clients
//! - `tiers`: which cases `scripts/test` runs on each store

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]
#![allow(clippy::duplicate_mod, reason = "the contract is compiled for each API")]

/// What the contract's tests use. `blocking` has its own `api` and runs the tests, too.
mod api {
    pub(crate) use fairlock::{Client, Guard, Lock, RwLock, Semaphore, Term};
}

#[macro_use]
mod tiers;

mod access;
mod background;
mod bad_input;
#[cfg(feature = "blocking")]
mod blocking;
mod cancel;
mod collisions;
mod contract;
mod cooperation;
mod dependencies;
mod election;
mod faults;
#[cfg(feature = "sqlite")]
mod host;
mod hostile;
mod identity;
mod latches;
#[cfg(feature = "test-util")]
mod lost;
mod many;
mod multi;
mod named;
mod protocol;
mod public_api;
mod redisson;
mod reports;
mod secrets;
mod send_sync;
#[cfg(feature = "serde")]
mod serialized;
#[cfg(feature = "test-util")]
mod shares;
mod silence;
mod simple;
mod smoke;
mod support;
mod tidy;
#[cfg(feature = "tls")]
mod tls;
mod topologies;
