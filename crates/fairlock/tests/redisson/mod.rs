//! What goes wrong in Redisson, beside what happens here.
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

mod stage;

mod dead;
mod dropped;
mod leftovers;
mod unheard;
