//! Locks on more than one server: with replicas, Sentinel sets and Clusters.

mod cluster;
mod dead_parts;
mod elections;
mod moving;
mod replicas;
mod resharding;
mod sentinel;
mod shares;
mod shares_moved;
mod split;
mod unix;

use crate::faults::fixture::{config, within};
use fairlock::{Client, Config};
use std::time::Duration;

/// The bound for an agreement of nodes or Sentinels, on a loaded machine: a Sentinel that did not run for two seconds
/// takes part in nothing for the next thirty.
const AGREED: Duration = Duration::from_secs(90);

/// The watchdog lease of most tests here: it outlasts a failover.
const LEASE: Duration = Duration::from_secs(180);

/// Timeouts as in the other fault tests, but leases that outlast a failover, and time enough for
/// all servers to reply.
pub(crate) fn patient(url: &str) -> Config {
    config(url)
        // After a loss of state, waiters are gathered for a heartbeat: long enough for all to
        // return.
        .heartbeat(Duration::from_secs(2))
        .watchdog_lease(LEASE)
        .store_timeout(AGREED)
        .connect_timeout(Duration::from_secs(5))
        // As by default. Many servers share a busy machine here: a live one has needed more than
        // the 200 ms of other tests to reply. Each such silence cost a connection, made holds
        // Suspect, and made `connect` fail.
        .ping_timeout(Duration::from_secs(2))
        .response_timeout(Duration::from_secs(3))
}

async fn connect(config: Config) -> Client {
    within("connecting", AGREED, Client::with_config(config)).await.unwrap()
}
