//! The file of the host store, without a store on top of it.
//!
//! - `codec`: states as bytes, and bytes that are not a state; `parts`: the same for shares;
//! - `lines`: lines for shares, in the file and in the core;
//! - `fuzz`: arbitrary bytes as rows, messages and whole files;
//! - `transactions`: several connections to one file, the cache, names and clients;
//! - `places`: paths, permissions and file systems that are refused, and the files' permissions;
//! - `versions`: other versions, other programs, damage;
//! - `time`: reboots, wall clocks that move, time namespaces;
//! - `trouble`: a full disk, a stopped user, a replaced file;
//! - `views`: mounts, removed and replaced parts, changed modes: processes that see different files;
//! - `dead`: many clients that die at once; `untold`: those whom the dead served and did not tell;
//! - `kills`: processes that are killed at random moments.
//!
//! `fixture` opens files; `worker` runs this test binary once more as a process of its own.

mod codec;
mod dead;
mod fixture;
mod fuzz;
mod kills;
mod lines;
mod parts;
mod places;
mod time;
mod transactions;
mod trouble;
mod untold;
mod versions;
mod views;
mod worker;
