//! The Lua against the core, on real servers: the same operations at the same stopped time must
//! give the same answer, the same keys to the last TTL, and the same messages.
//!
//! - `random`: long random histories with Java beside us, operators and a clock that jumps;
//! - `regression`: what they found.

mod dump;
mod others;
mod pressure;
mod random;
mod regression;
mod resolve;
mod rig;
mod rng;
mod run;
mod shrink;
mod small_states;
mod step;
mod wrong_type;
