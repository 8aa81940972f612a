//! Rust and Java in one queue: fairlock beside Redisson's own jars.
//!
//! - [`java`]: a JVM with Redisson clients, scripted call by call;
//! - [`version`]: the supported Redisson versions, and where `scripts/interop-jars` installed them;
//! - [`watch`]: what a server has executed, in its order, and the history of a lock's queue in it;
//! - [`vectors`]: what Java does to the keys, recorded for `testing/vectors`;
//! - [`rounds`]: random scripts that Rust and Java play together, and their checkers;
//! - [`worker`]: a fairlock client in its own process, to be killed;
//! - [`report`]: the combined results of many runs.
//!
//! Unpublished, and separate from the other tests so that these need no JVM. Anything may panic: a
//! broken fixture is a failed test. Without Java or the jars a test is skipped, with a message.

pub mod java;
pub mod report;
pub mod rounds;
pub mod vectors;
pub mod version;
pub mod watch;
pub mod worker;
