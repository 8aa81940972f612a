//! Tests of the state machine from outside: random sequences, an exhaustive exploration and the
//! collected attacks.

#![cfg(test)]

mod attacks;
mod canon;
mod client;
mod explore;
mod gone;
mod holds;
mod java;
mod lab;
mod latch;
mod leaders;
mod machine;
mod oracle;
mod places;
mod property;
mod quiet;
mod releases;
mod renewals;
mod search;
mod shares;
mod silences;
mod sim;
mod simple;
mod stale;
mod support;
mod together;
mod turns;
mod waiting;
