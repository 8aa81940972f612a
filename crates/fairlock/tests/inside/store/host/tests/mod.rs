//! The file of the host store, without a store on top of it.
//!
//! - `codec`: states as bytes, and bytes that are none;
//! - `fuzz`: rows, messages and whole files of any bytes;
//! - `transactions`: several connections to one file, the cache, names and clients;
//! - `places`: paths, permissions and file systems that are refused, and what the files get;
//! - `versions`: other versions, other programs, damage;
//! - `time`: reboots, wall clocks that move, namespaces with a clock of their own;
//! - `trouble`: a full disk, a user that is stopped, a file that is replaced;
//! - `views`: mounts, removed and replaced parts, changed modes: what one process sees and another does not;
//! - `kills`: processes that are killed at random moments.
//!
//! `fixture` opens files; `worker` is a process of its own: this test binary once more.

mod codec;
mod fixture;
mod fuzz;
mod kills;
mod places;
mod time;
mod transactions;
mod trouble;
mod versions;
mod views;
mod worker;
