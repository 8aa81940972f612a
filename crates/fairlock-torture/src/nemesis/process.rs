//! Faults of worker processes.

use super::{Kind, last};
use crate::fleet::Fleet;
use fairlock_testkit::rng::Rng;
use rustix::process::Signal;
use std::time::Duration;

/// The kinds that need only workers; every deployment plays them.
pub(crate) const KINDS: [Kind; 4] =
    [Kind::WorkerKilled, Kind::WorkerStopped, Kind::WorkerSpun, Kind::WorkerBlocked];

/// Those of a run whose processes take several locks at once.
pub(crate) const OF_SEVERAL: [Kind; 3] =
    [Kind::WorkerKilled, Kind::WorkerStopped, Kind::WorkerFrozen];

/// The longest stop of a worker: its waiters are judged dead, its leases continue.
pub(crate) const STOPPED: Duration = Duration::from_millis(STOPPED_MS);
const STOPPED_MS: u64 = 2_000;

/// How long a worker is frozen at most, and the lease that this outlasts.
const FROZEN_MS: u64 = 4_000;
pub(crate) const FROZEN_LEASE: Duration = Duration::from_millis(STOPPED_MS);

pub(crate) fn is_of_a_worker(kind: Kind) -> bool {
    KINDS.contains(&kind) || OF_SEVERAL.contains(&kind)
}

/// Plays the fault; `None` for a kind of another family.
pub(crate) fn play(kind: Kind, fleet: &mut Fleet, rng: &mut Rng) -> Option<bool> {
    let which = rng.below(1 << 20) as usize;
    Some(match kind {
        Kind::WorkerKilled => {
            fleet.kill(which);
            true
        }
        Kind::WorkerStopped | Kind::WorkerFrozen => {
            let (shortest, longest) = match kind {
                Kind::WorkerFrozen => (FROZEN_MS * 5 / 8, FROZEN_MS),
                _ => (STOPPED_MS / 8, STOPPED_MS),
            };
            fleet.signal(which, Signal::STOP);
            last(rng.between(shortest, longest));
            fleet.signal(which, Signal::CONT);
            true
        }
        Kind::WorkerSpun => fleet.order(which, "spin"),
        Kind::WorkerBlocked => fleet.order(which, "block"),
        _ => return None,
    })
}
