//! Integration tests of the library, one binary.
//!
//! - `smoke`: the shortest path on every store

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod smoke;
