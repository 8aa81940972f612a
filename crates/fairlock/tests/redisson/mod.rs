//! Failures of Redisson that fairlock does not have, and Redisson's own tests in our words.
//!
//! Each failure from Redisson's issue tracker, or found by reading its rules, is a module.
//! `ours_does_not` plays the scenario through the library, in real time and with short times.
//!
//! Twelve modules also have `redisson_fails`, which plays the scenario with Redisson's rules, as the
//! test kit implements them, on a server whose clock stands still, so that minutes pass at once. They
//! stay because no test with Redisson's jars plays these scenarios: #1104, #2099, #2883, #3004 and
//! #5503 are in versions whose jars are not fetched, and most others depend on the moment at which a
//! request arrives, which a test cannot choose in a JVM. The other six failures are shown with the
//! jars, in `fairlock-interop/tests/alone`.
//!
//! - `dead`: waiters that died, and how long the others wait for them
//! - `dropped`: live waiters that are judged dead
//! - `unheard`: a free lock that no waiter is told of
//! - `leftovers`: what is left by calls that failed, were cut short, or were sent twice
//! - `ports`: Redisson's tests of plain and fair locks that have no counterpart elsewhere
//! - `woken`: messages that our waiters for read-write locks hear
//! - `table`: which of our tests stands for which of Redisson's

mod fixture;

mod dead;
mod dropped;
mod leftovers;
mod ports;
mod table;
mod unheard;
mod woken;
