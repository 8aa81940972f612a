//! The times that clients under test are set to, and the checker counts with.

use std::time::Duration;

/// The heartbeat, and with it after how long a silent client is dead.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
pub(crate) const DEAD_AFTER: Duration = Duration::from_millis(1_500);

/// How long after a recovery the order of places may still be disturbed: somebody who was not heard in it
/// counts as dead for so long, and returns to its place with the next heartbeat.
pub(crate) const UNTIL_ORDER: Duration = DEAD_AFTER.saturating_add(HEARTBEAT.saturating_mul(2));
