//! fairlock beside Redisson's own jars, on one private server, and in `topologies` on several.
//!
//! `FAIRLOCK_INTEROP_REDISSON` (a version, `4.7.0` by default) and `FAIRLOCK_INTEROP_SERVER`
//! (`redis62`, `redis70` by default, `valkey91`) choose a cell of the matrix; `scripts/interop`
//! runs all of it.

#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

mod alone;
mod clocks;
mod deaths;
mod exclusion;
mod fixture;
mod giving_up;
mod guest;
mod holds;
mod kinds;
mod latches;
mod leases;
mod methods;
mod order;
mod rounds;
mod shares;
mod tokens;
mod topologies;
mod vectors;
mod wake_ups;
