//! A request for a lock, and the operation and the hold that are made from it.

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::observe;
use crate::state::hold::{Hold, Lease, valid_until};
use crate::state::seat::Seat;
use crate::state::signals::TurnReporter;
use fairlock_core::client::Acquisition;
use fairlock_core::{Grant, Kind, LockName, Mode, OwnerId};
use std::sync::Arc;
use std::time::Duration;

/// A request for a lock.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) name: LockName,
    pub(crate) kind: Kind,
    /// The explicit lease, if any.
    pub(crate) lease: Option<Duration>,
    /// The longest hold, if any.
    pub(crate) max_hold: Option<Duration>,
    /// When to give up; `None` means never.
    pub(crate) until: Option<Moment>,
    /// Do not stand in the queue.
    pub(crate) try_once: bool,
    /// Notifies the turn that waits for it, if one does.
    pub(crate) reporter: Option<Arc<TurnReporter>>,
    pub(crate) asked: observe::Asked,
    /// Set for an explicit owner, which other requests may use as well.
    pub(crate) seat: Option<Arc<Seat>>,
}

impl Request {
    pub(crate) fn lease_ms(&self, context: &Context) -> u64 {
        let lease = self.lease.unwrap_or(context.config.watchdog_lease);
        self.max_hold.map_or(lease, |most| most.min(lease)).as_millis() as u64
    }

    /// Whether the hold lasts for longer than one lease.
    pub(super) fn is_renewed(&self, context: &Context) -> bool {
        self.lease.is_none()
            && self.max_hold.is_none_or(|most| most > context.config.watchdog_lease)
    }

    /// What metrics and events show of it.
    pub(crate) fn told(&self) -> observe::Request<'_> {
        observe::Request {
            name: &self.name,
            kind: self.kind,
            try_once: self.try_once,
            asked: &self.asked,
        }
    }

    /// Begins an acquisition in the name of `owner`.
    pub(super) fn begin(&self, context: &Context, owner: OwnerId) -> Result<Acquisition, Error> {
        let mode = if self.try_once { Mode::Try } else { Mode::Wait };
        let (lease_ms, is_shared) = (self.lease_ms(context), self.seat.is_some());
        let request = context.new_request()?;
        Ok(Acquisition::new(self.kind, owner, mode, lease_ms, is_shared, request))
    }

    /// The hold for a grant whose TTL counts from `base`.
    pub(crate) fn hold(
        &self,
        context: &Context,
        acquisition: Acquisition,
        grant: &Grant,
        base: Moment,
    ) -> Hold {
        let ms = self.lease_ms(context);
        let renewed = self.is_renewed(context);
        let end = if renewed { self.max_hold } else { Some(Duration::from_millis(ms)) };
        let lease = Lease {
            ms,
            renewed,
            end_ns: end.map(|end| base.plus(end).nanos()),
            ends_by_max_hold: end.is_some() && end == self.max_hold,
        };
        let until = valid_until(base, grant.ttl_ms);
        let mut hold = Hold::new(self.name.clone(), acquisition, grant.token, lease, until);
        hold.seat = self.seat.clone();
        // A fork copies a store that is inside the process.
        if !context.is_in_process {
            hold.stay_at(context.origin);
        }
        hold
    }
}
