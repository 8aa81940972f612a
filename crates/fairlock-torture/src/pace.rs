//! The times to which the clients under test are set, and with which the checker calculates.

use std::time::Duration;

/// The heartbeat, and the silence after which a client is judged dead.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
pub(crate) const DEAD_AFTER: Duration = Duration::from_millis(1_500);

/// How long after a recovery the order of places may still be disturbed: a client whose heartbeats
/// were missed is judged dead for this long, and returns to its place with its next heartbeat.
pub(crate) const UNTIL_ORDER: Duration = DEAD_AFTER.saturating_add(HEARTBEAT.saturating_mul(2));
