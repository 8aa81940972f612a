//! Integration tests of the library, one binary.
//!
//! - `smoke`: the shortest path on every store

mod smoke;
