//! Tests of the examples.
//!
//! - `programs`: each program, its output and exit code
//! - `fences`: the resources that refuse holders of the past
//! - `sandbox`: what an adopter's own test looks like
//! - `redisson`: what stands beside Redisson's calls
//! - `documents`: the documents show code that is here, name settings that exist, and keep their length

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod documents;
mod fences;
mod programs;
mod redisson;
mod sandbox;
