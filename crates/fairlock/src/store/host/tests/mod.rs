//! The file of the host store, without a store on top of it.
#![cfg(test)]

mod bed;
mod cost;
