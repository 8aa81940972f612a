//! The simple lock beside foreign clients. What it has in common with the other kinds is in
//! `contract::simple`.
//!
//! - `foreign`: clients that write and delete the string, whatever they put there
//! - `redis_py`: redis-py's own `Lock` on the same key
//! - `faults`: lost replies, late copies, keys that are taken away or changed

mod faults;
mod foreign;
mod redis_py;
