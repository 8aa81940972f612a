//! Background work continues, whatever the application does with its own threads and runtimes. How
//! programs end is tested in the crate `fairlock-exits`.
//!
//! - `watchdog`: many holds of one client, and a server that hangs
//! - `blocked`: the application blocks its runtimes, or keeps every processor busy
//! - `elsewhere`: guards that are dropped in another runtime, requests from another task
//! - `deadlines`: a wait times out at the moment of its grant

mod blocked;
mod deadlines;
mod elsewhere;
mod watchdog;
