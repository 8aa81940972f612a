//! What the examples share: two resources that refuse former holders.
//!
//! The programs are in `src/bin`, their output is in `tests/programs.rs`, and `docs/manual.md`
//! shows parts of both; `tests/documents.rs` checks that they match.

pub mod fence_redis;
pub mod fence_sql;
