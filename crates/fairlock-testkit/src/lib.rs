//! The foundations of fairlock's tests: real, private servers, faults on demand, and checkers.
//!
//! - [`server`]: a private Redis or Valkey per test, of each supported generation;
//! - [`clock`]: the wall clock of such a server, under the test's control;
//! - [`disk`]: a small disk to fill;
//! - [`network`]: a network whose ports can be cut off;
//! - [`proxy`]: a fault proxy between client and server that acts on whole frames;
//! - [`raw`]: a tiny synchronous client, to look at the server without fairlock;
//! - [`redisson`]: the Java side of the shared queue without a JVM;
//! - [`postgres`]: a private PostgreSQL;
//! - [`processes`]: what the kernel reports about processes, and how they end;
//! - [`program`]: this very program, for children that run as somebody else;
//! - [`python`]: redis-py in a process of its own, as a foreign client of simple locks;
//! - [`history`]: what happened to a lock, and checkers that find what must not happen;
//! - [`topology`]: several such servers as a Sentinel set or a Cluster, and their failovers;
//! - [`tap`]: a peer that records every byte it receives;
//! - [`tls`]: CAs and certificates, made while a test runs;
//! - [`terminal`]: a pseudo-terminal with a program on it, and what a person would see there;
//! - [`threads`]: how long each thread of a process ran, and waited for a processor;
//! - [`tier`]: which of the two tiers of tests runs;
//! - [`wait`]: waiting for a condition;
//! - [`schema`]: JSON against a JSON Schema;
//! - [`vectors`]: what an operation does to the keys, as data files;
//! - [`fuzz`]: inputs made from real ones by random changes;
//! - [`rng`]: random choices that a seed reproduces;
//! - [`tempdir`]: folders that are removed with their owner.
//!
//! Everything here may panic: a broken fixture is a failed test. A test whose server is not
//! installed is skipped with a notice, and fails where `CI` is set.

pub mod clock;
pub mod disk;
pub mod fuzz;
pub mod history;
pub mod network;
pub mod postgres;
pub mod processes;
pub mod program;
pub mod proxy;
pub mod python;
pub mod raw;
pub mod redisson;
pub mod resp;
pub mod rng;
pub mod schema;
pub mod server;
pub mod tap;
pub mod tempdir;
pub mod terminal;
pub mod threads;
pub mod tier;
pub mod tls;
pub mod topology;
pub mod vectors;
pub mod wait;

use std::io::Write;
use std::time::Duration;

/// Prints on stderr that the running test is skipped for lack of `needs`; panics where `CI` is set.
///
/// # Panics
///
/// Where `CI` is set.
pub fn skip(needs: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {} needs {needs}\n", thread.name().unwrap_or("a test"));
    assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "CI is set, but {line}");
    tell(&line);
}

/// Prints on stderr that the running test failed, and is repeated because it did not get a processor for `waited`.
pub fn repeat(failure: &str, waited: Duration) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let failure = failure.lines().next().unwrap_or_default();
    tell(&format!("REPEATED: {name}, which waited {waited:.1?} for a processor: {failure}\n"));
}

/// Does not use the print macros, whose output the test harness hides when a test passes.
fn tell(line: &str) {
    // Nothing can be done about a stderr that is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
