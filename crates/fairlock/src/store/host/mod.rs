//! The host store: `sqlite:PATH`.
//!
//! Each operation is one SQLite transaction: it reads the lock's row, runs the core's state machine
//! and writes the row. Messages to others are sent only after the commit. docs/host.md lists what
//! the file promises.
//!
//! - `place`: checks that the path can be trusted, and creates the file;
//! - `mounts`: checks that neither the file nor a part of it is a mount of its own;
//! - `boot`: host time, which all processes of the host share;
//! - `schema`: the tables, and files of other versions or other programs;
//! - `codec`: a lock's state as bytes; `parts`: its shares, which have rows of their own;
//!   `latches`: the records of latches;
//! - `opening`: from a path to a file of the right version in the right boot;
//! - `file`: the transactions; `rows`: a lock's rows in one of them; `turns`: whose turn it is to
//!   write, among the clients of a process; `line`: the same among processes; `patience`: tries again;
//! - `users`: who uses the file, and that all of them use the same one; `views`: whether they still
//!   do;
//! - `forks`: which processes may use SQLite at all;
//! - `clients`: what clients announce about themselves;
//! - `fault`: SQLite's errors as ours;
//! - `store`: the store of one client, on top of all these;
//! - `hand`: a client's thread that may block;
//! - `folder`: what clients keep beside the file; `liveness`: which of them are alive; `watch`: who
//!   learns of whose death; `wake_up`: messages between clients; `deadlines`: when heartbeats are
//!   due; `around`, `early` and `heads`: who must look at a lock after an operation; `cleanup`:
//!   removes the leftovers of dead clients; `graves`: which locks still name them.

mod around;
mod boot;
mod cleanup;
mod clients;
mod codec;
mod deadlines;
mod early;
mod fault;
mod file;
mod folder;
mod forks;
mod graves;
mod hand;
mod heads;
mod kinds;
mod latches;
mod leaders;
mod line;
mod liveness;
mod mounts;
mod opening;
mod parts;
mod patience;
mod place;
mod rows;
mod schema;
mod store;
mod together;
mod turns;
mod users;
mod views;
mod wake_up;
mod watch;

#[cfg(feature = "_testkit")]
#[cfg(test)]
#[path = "../../../tests/inside/store/host/tests/mod.rs"]
mod tests;

#[cfg(feature = "_testkit")]
#[cfg(test)]
pub(crate) use file::{HostFile, OpenOptions};
pub(crate) use store::HostStore;
