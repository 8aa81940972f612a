//! The simple lock beside foreign clients. Tests of what all kinds have in common are in
//! `contract::simple`.
//!
//! - `foreign`: clients that write and delete the string, whatever it contains
//! - `redis_py`: redis-py's own `Lock` on the same key
//! - `faults`: lost replies, late copies, keys that are deleted or changed

mod faults;
mod foreign;
mod redis_py;
