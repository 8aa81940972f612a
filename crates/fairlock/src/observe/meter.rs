//! Every metric of the library, with its name, unit and meaning. `docs/observability.md` has the
//! same table, with the labels; a test compares the two.

use metrics::Unit;

pub(super) struct Metric {
    pub(super) name: &'static str,
    unit: Unit,
    help: &'static str,
    shape: Shape,
}

#[derive(Clone, Copy)]
enum Shape {
    Counter,
    Gauge,
    Histogram,
}

impl Metric {
    const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: Unit::Count, help, shape: Shape::Counter }
    }

    const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: Unit::Count, help, shape: Shape::Gauge }
    }

    const fn histogram(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self { name, unit, help, shape: Shape::Histogram }
    }
}

pub(super) const WAIT: Metric = Metric::histogram(
    "fairlock_wait_seconds",
    Unit::Seconds,
    "time from asking for a lock to the outcome",
);
pub(super) const ACQUISITIONS: Metric =
    Metric::counter("fairlock_acquisitions_total", "requests for a lock that have ended");
pub(super) const WAITERS: Metric =
    Metric::gauge("fairlock_waiters", "requests for a lock that are under way");
pub(super) const QUEUE_LENGTH: Metric = Metric::histogram(
    "fairlock_queue_length_at_join",
    Unit::Count,
    "waiters of a fair lock right after one joined, itself included",
);
pub(super) const GRANTS: Metric = Metric::counter(
    "fairlock_grants_total",
    "grants that reached this process, by how they arrived",
);
pub(super) const HOLDS: Metric = Metric::gauge("fairlock_holds", "locks held at present");
pub(super) const HOLD: Metric = Metric::histogram(
    "fairlock_hold_seconds",
    Unit::Seconds,
    "time from a grant to the release or the loss",
);
pub(super) const RENEWALS: Metric =
    Metric::counter("fairlock_renewals_total", "renewals that the store confirmed");
pub(super) const RENEWALS_MISSED: Metric =
    Metric::counter("fairlock_renewals_missed_total", "renewals without a confirmation");
pub(super) const MARGIN: Metric = Metric::histogram(
    "fairlock_renewal_margin_seconds",
    Unit::Seconds,
    "validity that was left when a renewal was confirmed",
);
pub(super) const SUSPECT: Metric =
    Metric::counter("fairlock_suspect_total", "holds that became doubtful");
pub(super) const LOST: Metric = Metric::counter("fairlock_lost_total", "holds that were lost");
pub(super) const RELEASES: Metric =
    Metric::counter("fairlock_releases_total", "releases by their outcome");
pub(super) const CONNECTIONS: Metric =
    Metric::gauge("fairlock_connections", "clients by the state of their connection");
pub(super) const RECONNECTS: Metric =
    Metric::counter("fairlock_reconnects_total", "connections made again after a loss");
pub(super) const REMOVED: Metric = Metric::counter(
    "fairlock_dead_waiters_removed_total",
    "dead waiters that calls of this process removed",
);
pub(super) const RETURNED: Metric = Metric::counter(
    "fairlock_returned_to_place_total",
    "live waiters that were dropped from a queue and brought back to their place",
);
pub(super) const WARNINGS: Metric = Metric::counter(
    "fairlock_warnings_total",
    "problems found with servers that did not prevent their use",
);
pub(super) const ODD: Metric = Metric::counter(
    "fairlock_odd_messages_total",
    "messages dropped: forged, late, or for requests that are over",
);
pub(super) const OTHER_LIMITS: Metric = Metric::counter(
    "fairlock_other_limits_total",
    "requests that got permits, or a place, while others held permits under another limit",
);

pub(super) const FENCE_REFUSALS: Metric = Metric::counter(
    "fairlock_fence_refusals_total",
    "takes and fences that a database refused, as the application reported them",
);

const ALL: [&Metric; 21] = [
    &WAIT,
    &ACQUISITIONS,
    &WAITERS,
    &QUEUE_LENGTH,
    &GRANTS,
    &HOLDS,
    &HOLD,
    &RENEWALS,
    &RENEWALS_MISSED,
    &MARGIN,
    &SUSPECT,
    &LOST,
    &RELEASES,
    &CONNECTIONS,
    &RECONNECTS,
    &REMOVED,
    &RETURNED,
    &WARNINGS,
    &ODD,
    &OTHER_LIMITS,
    &FENCE_REFUSALS,
];

/// Describes the metrics to the recorder, again for each client, because the application may
/// install its recorder after the first one.
pub(super) fn describe() {
    for Metric { name, unit, help, shape } in ALL {
        match shape {
            Shape::Counter => metrics::describe_counter!(*name, *unit, *help),
            Shape::Gauge => metrics::describe_gauge!(*name, *unit, *help),
            Shape::Histogram => metrics::describe_histogram!(*name, *unit, *help),
        }
    }
}
