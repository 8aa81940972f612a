//! Tests of the examples.
//!
//! - `programs`: each program, its output and exit code
//! - `fences`: the resources that refuse former holders
//! - `fence_postgres`: the fence in PostgreSQL
//! - `fence_install`: installing it, rights, and the search path
//! - `fence_clients`: the same through poolers and other drivers
//! - `sandbox`: an adopter's own test
//! - `redisson`: the counterparts of Redisson's calls
//! - `methods`: docs/redisson.md has every method of Redisson's lock family
//! - `bank`: what a fence keeps, and what is lost without one
//! - `documents`: the documents show code from here, name existing settings, and keep to their
//!   length
//! - `pages`: the book has all documents, and their links lead somewhere

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod bank;
mod documents;
mod fence_clients;
mod fence_install;
mod fence_postgres;
mod fences;
mod methods;
mod pages;
mod programs;
mod redisson;
mod sandbox;
