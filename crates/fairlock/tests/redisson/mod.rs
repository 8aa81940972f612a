//! What goes wrong in Redisson, beside what happens here; and Redisson's own tests in our words.
//!
//! Each failure from Redisson's issue tracker, or found by reading its rules, is a module with two
//! halves. `redisson_fails` plays the story with Redisson's rules, as the test kit has them, on a
//! server whose clock stands still: so the scenario is real, and minutes pass at once.
//! `ours_does_not` plays it through the library, in real time and with short times.
//!
//! - `dead`: waiters that died, and how long the others wait for them
//! - `dropped`: waiters that live and are judged dead
//! - `unheard`: a free lock, and nobody is told
//! - `leftovers`: what calls leave behind that failed, were cut short or sent twice
//! - `ports`: Redisson's tests of plain and fair locks that have no counterpart elsewhere
//! - `table`: which of our tests stands for which of Redisson's

mod fixture;

mod dead;
mod dropped;
mod leftovers;
mod ports;
mod table;
mod unheard;
