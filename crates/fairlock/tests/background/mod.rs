//! Background work goes on whatever the application does with its own threads and runtimes.
//!
//! - `watchdog`: many holds of one client, and a server that hangs

mod watchdog;
