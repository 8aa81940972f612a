//! What the examples share: two resources that refuse holders of the past.
//!
//! The programs are in `src/bin`, what they print is in `tests/programs.rs`, and `docs/manual.md`
//! shows pieces of all of it; `tests/documents.rs` checks that they are the same.

pub mod fence_redis;
pub mod fence_sql;
