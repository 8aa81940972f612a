//! Rust and Java in one queue: fairlock beside Redisson's own jars.
//!
//! - [`java`]: a JVM with Redisson's clients, scripted call by call;
//! - [`version`]: which of Redisson's versions, and where `scripts/interop-jars` has put it;
//! - [`watch`]: what a server has executed, in its order, and the story of a lock's queue in it;
//! - [`vectors`]: what Java does to the keys, recorded for `testing/vectors`;
//! - [`rounds`]: random scripts that Rust and Java play together, and their checkers;
//! - [`worker`]: a client of ours in a process of its own, to be killed;
//! - [`report`]: the results of many runs, added up.
//!
//! Unpublished, and apart from the other tests, so that these need no JVM. Everything may panic: a
//! broken fixture is a failed test. Without Java or the jars a test is skipped, loudly.

pub mod java;
pub mod report;
pub mod rounds;
pub mod vectors;
pub mod version;
pub mod watch;
pub mod worker;
