//! Faults of every kind, and what they may cost.
//!
//! Each test is named after the fault or interleaving it plays (its number in the catalogue),
//! describes it in a comment and prints what it measured. Times are short: a heartbeat of 200 ms,
//! so that a client counts as dead after 600 ms, and a watchdog lease of one second.
//!
//! - `processes`: clients are killed and frozen
//! - `hung`: many clients hang at once, and what that costs with the default times
//! - `restarts`: the server loses its data, or keeps it
//! - `operators`: keys are removed, changed and replaced from outside
//! - `addresses`: a server's name that leads to other addresses, locks of one name in two databases
//! - `several`: a name leads to several servers, or an address to a different one each time
//! - `elections`: what these faults cost elections, with `campaign`, which judges what all processes
//!   of one have said
//! - `shares`: what these faults cost read-write locks and semaphores
//! - `stalls`: the server stands still, is blocked by a script, or pauses
//! - `debts`: places whose clients could not take them back, because the server refused
//! - `refusals`: the server loads its data, has no connection left, cannot write to its disk
//! - `limits`: threads and descriptors of the client's process run out for seconds
//! - `crowd`: a thousand waiters lose their server at once
//! - `load`: scripts and connections are lost under load
//! - `flood`: thousands of messages a second
//! - `heartbeat`: connections that are open and silent, and who is told of it
//! - `outcomes`: every kind of error and every outcome of a release
//! - `partitions`: the network carries nothing, in one direction or both
//! - `slow`: the network carries a byte at a time
//! - `replies`: requests are cut, and replies lost after their request was carried out
//! - `leaving`: locks are detached, and places in the queue given up, while replies are lost
//! - `late`: requests arrive again, or long after they were given up
//! - `messages`: hand-over messages are lost, repeated, delayed and forged
//! - `clocks`: the clocks of server and client jump
//! - `jumps`: jumps of the server's clock are reported
//! - `java`: a Java client in the same queue dies, lives, or has a wrong clock

pub(crate) mod campaign;
mod candidate;
pub(crate) mod fixture;
pub(crate) mod worker;

mod addresses;
mod clocks;
mod crowd;
mod debts;
mod elections;
mod flood;
mod guests;
mod heartbeat;
mod hung;
mod java;
mod jumps;
mod late;
mod leaving;
mod limits;
mod load;
mod messages;
mod operators;
mod outcomes;
mod partitions;
mod processes;
mod refusals;
mod replies;
mod restarts;
mod several;
mod shares;
mod slow;
mod stalls;
