//! Background work goes on whatever the application does with its own threads and runtimes. How
//! programs end is tested in the crate `fairlock-exits`.
//!
//! - `watchdog`: many holds of one client, and a server that hangs
//! - `blocked`: the application blocks its runtimes, or takes all processors
//! - `elsewhere`: guards that end in another runtime, requests in another task
//! - `deadlines`: a wait ends in the moment in which its turn comes

mod blocked;
mod deadlines;
mod elsewhere;
mod watchdog;
