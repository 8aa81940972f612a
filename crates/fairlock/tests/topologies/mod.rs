//! Locks on more than one server: Sentinel sets and Clusters.

mod sentinel;
