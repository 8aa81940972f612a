//! The file of the host store: `sqlite:PATH`.
//!
//! Each operation is one transaction of SQLite: the lock's row is read, the core's state machine
//! runs, the row is written. What the operation tells others is handed out only after the commit.
//! docs/host.md says what the file promises.
//!
//! - `place`: whether the path can be trusted, and what makes the file;
//! - `mounts`: that it and what belongs to it are no mounts of their own;
//! - `boot`: the time that all processes of the host share, and who still lives in an older one;
//! - `schema`: what is in the file, and files of other versions or other programs;
//! - `codec`: a lock's state as bytes;
//! - `opening`: from a path to a file of the right version in the right boot;
//! - `file`: the transactions; `turns`: whose turn it is, among the clients of a process;
//! - `users`: who uses the file, and that all of them have the same one; `views`: whether they still have;
//! - `forks`: who may use SQLite at all;
//! - `clients`: what clients say of themselves;
//! - `fault`: SQLite's errors as ours;
//! - `store`: the store of one client, on top of all that;
//! - `hand`: the thread of a client that may block;
//! - `folder`: what its clients have beside the file; `life`: who is alive; `watch`: who hears of whose
//!   death; `bell`: messages between clients; `alarm`: when heartbeats are due; `sweep`: what the dead left;
//!   `graves`: which locks still name them.

mod boot;
mod cleanup;
mod clients;
mod codec;
mod deadlines;
mod fault;
mod file;
mod folder;
mod forks;
mod graves;
mod hand;
mod liveness;
mod mounts;
mod opening;
mod place;
mod schema;
mod store;
mod turns;
mod users;
mod views;
mod wake_up;
mod watch;

#[cfg(all(test, feature = "_testkit"))]
#[path = "../../../tests/inside/store/host/tests/mod.rs"]
mod tests;

#[cfg(all(test, feature = "_testkit"))]
pub(crate) use file::{HostFile, OpenOptions};
pub(crate) use store::HostStore;
