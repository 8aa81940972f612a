//! Read-write locks and semaphores: what needs futures, paused time, or several clients. What both APIs promise is in
//! the contract.

mod cancelled;
mod clients;
mod futures;
