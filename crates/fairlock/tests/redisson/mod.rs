//! Failures of Redisson, each beside the same scenario with fairlock; and Redisson's own tests in
//! our words.
//!
//! Each failure from Redisson's issue tracker, or found by reading its rules, is a module with two
//! halves. `redisson_fails` plays the scenario with Redisson's rules, as the test kit implements
//! them, on a server whose clock stands still: so it is realistic, and minutes pass at once.
//! `ours_does_not` plays it through the library, in real time and with short times.
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
