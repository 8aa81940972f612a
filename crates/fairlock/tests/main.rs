//! Integration tests of the library, one binary.
//!
//! - `access`: users of the server's ACL: logins, rights
//! - `faults`: what faults of every kind may cost
//! - `background`: what goes on while the application blocks its threads, or ends its runtimes
//! - `simple`: the simple lock beside the foreign clients that it is for, and its faults
//! - `smoke`: the shortest path on every store
//! - `host`: who is told what on the host store, and when, by whose death
//! - `contract`: what every store must do, on each
//! - `blocking`: the blocking API; the contract once more, on threads
//! - `cancel`: futures dropped after every number of polls
//! - `bad_input`: what cannot work is told, or ignored and counted; nothing is changed by it
//! - `collisions`: names that look like keys of other locks
//! - `cooperation`: calls that are answered at once give way to other tasks
//! - `dependencies`: what all is built of may be used by everybody
//! - `hostile`: a server that answers anything, at every step
//! - `identity`: who is who, and cannot be forged
//! - `secrets`: a password is shown nowhere
//! - `send_sync`: what the types and futures can be used for
//! - `redisson`: what goes wrong in Redisson, beside what happens here; and its own tests
//! - `public_api`: the public API is the one in `docs/api.txt`
//! - `named`: the tests that the pages in `docs` name exist
//! - `reports`: what runs of hours have left in `docs` is complete and sound
//! - `protocol`: what can be counted in `docs/protocol.md` is as the code has it
//! - `tls`: encrypted connections, what each setting of them does, and what is refused
//! - `tidy`: rules about the source that no lint knows
//! - `lost`: why a lock was lost, and how soon its holder hears of force
//! - `silence`: every call on a store that says nothing, and what dropping waits for
//! - `many`: thousands of waiters of one client

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]
#![allow(clippy::duplicate_mod, reason = "the contract is compiled for each API")]

/// What the tests of the contract use. `blocking` has another one, and runs them too.
mod api {
    pub(crate) use fairlock::{Client, Guard, Lock};
}

macro_rules! contract_stores {
    ($on:ident) => {
        $on!(memory, At::Memory; with futures);
        #[cfg(feature = "sqlite")]
        $on!(host, At::Host; with futures);
        $on!(redis62, At::Server(Generation::Redis62); with futures);
        $on!(redis70, At::Server(Generation::Redis70); with futures);
        $on!(valkey91, At::Server(Generation::Valkey91); with futures);
        $on!(cluster62, At::Cluster(Generation::Redis62); with futures);
        $on!(cluster70, At::Cluster(Generation::Redis70); with futures);
        $on!(sentinel, At::Sentinel(Generation::Redis70); with futures);
        #[cfg(feature = "tls")]
        $on!(tls, At::Tls(Generation::Redis70); with futures);
    };
}

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
mod faults;
#[cfg(feature = "sqlite")]
mod host;
mod hostile;
mod identity;
#[cfg(feature = "test-util")]
mod lost;
mod many;
mod named;
mod protocol;
mod public_api;
mod redisson;
mod reports;
mod secrets;
mod send_sync;
mod silence;
mod simple;
mod smoke;
mod support;
mod tidy;
#[cfg(feature = "tls")]
mod tls;
mod topologies;
#[cfg(feature = "yardstick")]
mod yardstick;
