//! Locks on more than one server: with replicas, Sentinel sets and Clusters.

mod replicas;
mod sentinel;
