//! The `fairlock` command from the outside: started as a process, judged by what scripts see.
//!
//! - `terminal`: sharing a terminal with the command;
//! - `top`: the live view, on a terminal that remembers what it shows;
//! - `jobs`: as a job of an interactive shell;
//! - `usage`: the command line itself and its exit codes, no store needed;
//! - `command`: the guarded command, on `memory:`, where one process is enough;
//! - `process`: the contract of the command's processes and signals, row by row;
//! - `queue`: several processes on one server;
//! - `cluster`: the same on a Cluster;
//! - `list`: which locks there are;
//! - `bench`: what a store gives, and that nothing is left of it;
//! - `many`: loops of processes on one counter, and `scripts/contenders`;
//! - `loss`: the lock is taken away, or its server;
//! - `host`: the store of one host: who keeps a lock when `fairlock` is killed or stopped;
//! - `hold`: `run` without a command;
//! - `configuration`: which store is meant, and which files are believed;
//! - `environments`: the default store is the same wherever a user is;
//! - `generated`: completions and manual pages;
//! - `topologies`: Sentinel sets and Clusters, by the URLs of the README;
//! - `simple`: the simple lock, beside a client that keeps the same string;
//! - `documents`: the commands of README and manual, run as written;
//! - `recipes`: crontab lines, units and containers of docs/recipes.md, run as written;
//! - `secrets`: passwords get in, and never out.

mod bench;
mod cluster;
mod command;
mod configuration;
mod documents;
mod environments;
mod fixture;
mod generated;
mod hold;
mod host;
mod jobs;
mod list;
mod loss;
mod many;
mod process;
mod queue;
mod recipes;
mod secrets;
mod simple;
mod terminal;
mod top;
mod topologies;
mod usage;
