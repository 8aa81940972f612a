//! Locks on more than one server: with replicas, Sentinel sets and Clusters.

mod cluster;
mod moving;
mod replicas;
mod resharding;
mod sentinel;
mod unix;
