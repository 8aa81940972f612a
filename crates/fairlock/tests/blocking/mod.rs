//! The blocking API: who owns a lock, how waits end, where it refuses to wait. The whole contract
//! runs once more on it, with threads.

mod api;
mod drops;
mod interrupts;
mod latches;
mod runtimes;
mod threads;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "not every test of the library runs on threads too")]
mod support;

macro_rules! contract_stores {
    ($on:ident) => {
        $on!(memory, At::Memory, threads;);
        #[cfg(feature = "sqlite")]
        $on!(host, At::Host, full;);
        $on!(redis70, At::Server(Generation::Redis70), threads;);
    };
}

#[path = "../contract/mod.rs"]
#[allow(dead_code, reason = "cases about futures do not run here")]
mod contract;
