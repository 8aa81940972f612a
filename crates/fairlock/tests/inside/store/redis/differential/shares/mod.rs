//! The scripts of read-write locks and semaphores against the core: the same operations at the same stopped time must
//! give the same answer, the same holds, line and registry to the last TTL, and the same messages. What the core does
//! not know of is checked after each operation, too: the lock and the timeout keys as Redisson reads them, and what
//! Redisson's waiters are told.
//!
//! - `random`: long random histories, with lost keys and a clock that jumps;
//! - `small_lines`: every small line, with living and dead waiters;
//! - `cases`: what breaks such locks elsewhere, one test each;
//! - `found`: what a trial by reading found;
//! - `guests`: Redisson's waiters beside a line of ours that never ends;
//! - `cohorts`: readers who are granted together;
//! - `pressure`: servers without free memory, and keys of wrong types;
//! - `beside_java`: what Redisson leaves in the lock, and what it does to it.
//!
//! The others are shared: `dump` (keys to a state and back), `run` (both sides), `step` (what can happen).

mod beside_java;
mod cases;
mod cohorts;
mod dump;
mod found;
mod guests;
mod pressure;
mod random;
mod run;
mod small_lines;
mod step;
