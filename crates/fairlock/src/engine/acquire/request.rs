//! A request for a lock, and the operation and the hold that are made from it.

use crate::base::clock::Moment;
use crate::engine::context::Context;
use crate::observe;
use crate::state::hold::Hold;
use crate::state::seat::Seat;
use crate::state::signals::TurnReporter;
use fairlock_core::client::Standing;
use fairlock_core::client::acquiring::{At, Held, Wanted};
use fairlock_core::{Kind, LockName, Mode, Share};
use std::sync::Arc;
use std::time::Duration;

/// A request for a lock.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) name: LockName,
    pub(crate) kind: Kind,
    /// The share, for a lock that several may hold.
    pub(crate) share: Share,
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
    /// How long it sleeps at most between two looks at a lock without a queue, if set.
    pub(crate) poll: Option<Duration>,
    /// It must not enter a hold that its owner has.
    pub(crate) non_reentrant: bool,
    /// Set for an explicit owner, which other requests may use as well.
    pub(crate) seat: Option<Arc<Seat>>,
}

impl Request {
    fn lease_ms(&self, context: &Context) -> u64 {
        let lease = self.lease.unwrap_or(context.config.watchdog_lease);
        self.max_hold.map_or(lease, |most| most.min(lease)).as_millis() as u64
    }

    /// Whether the hold lasts for longer than one lease.
    fn is_renewed(&self, context: &Context) -> bool {
        self.lease.is_none()
            && self.max_hold.is_none_or(|most| most > context.config.watchdog_lease)
    }

    /// The kind of the request, as metrics and events name it.
    pub(crate) fn what(&self) -> observe::What {
        observe::What(self.kind, self.share)
    }

    /// The request as metrics and events show it.
    pub(crate) fn told(&self) -> observe::Request<'_> {
        observe::Request {
            name: &self.name,
            kind: self.what(),
            try_once: self.try_once,
            asked: &self.asked,
        }
    }

    /// The parameters of the acquisition.
    pub(crate) fn wanted(&self, context: &Context) -> Wanted {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let period = context.beat_every(&self.name);
        Wanted {
            kind: self.kind,
            share: self.share,
            mode: if self.try_once { Mode::Try } else { Mode::Wait },
            lease_ms: self.lease_ms(context),
            renewed: self.is_renewed(context),
            max_hold: self.max_hold,
            may_be_cut: self.kind == Kind::ReadWrite && context.store.has_redisson(),
            java_fleet: context.config.java_fleet,
            until_ns: self.until.map(Moment::nanos),
            shared_owner: self.seat.is_some(),
            replicas_ms: context.store.is_replicated().then(|| ms(context.config.replicas_timeout)),
            store_timeout_ms: ms(context.config.store_timeout),
            period_ms: ms(self.poll.map_or(period, |poll| poll.min(period))),
        }
    }

    /// Now, as far as it matters to a request of an explicit owner.
    pub(super) fn at(&self, context: &Context) -> At {
        At { ns: Moment::now().nanos(), connected: context.is_connected(&self.name) }
    }

    /// A new hold.
    pub(crate) fn hold(&self, context: &Context, held: Held) -> Hold {
        let mut hold = Hold::new(self.name.clone(), held.acquisition, held.token, held.hold);
        hold.seat = self.seat.clone();
        // A fork copies a store that is inside the process.
        if !context.is_in_process {
            hold.stay_at(context.origin);
        }
        hold
    }

    /// As [`hold`](Self::hold), for the caller, and watched from `now` on.
    pub(super) fn held(&self, context: &Arc<Context>, held: Held, now: Moment) -> Arc<Hold> {
        context.note_lease(held.hold.lease());
        context.note_kind(&self.name, self.kind, now);
        let standing = held.hold.standing();
        let hold = Arc::new(self.hold(context, held));
        observe::held(&hold.told(), context.config.log_names, &self.asked);
        if standing == Standing::Suspect {
            hold.suspect();
        }
        context.watchdog.watch(&hold, now);
        hold
    }
}

#[cfg(test)]
impl Request {
    /// A request for a fair lock, which waits without a limit.
    pub(crate) fn of_fair(context: &Context, name: &LockName) -> Self {
        let what = observe::What(Kind::Fair, Share::Whole);
        Self {
            name: name.clone(),
            kind: Kind::Fair,
            share: Share::Whole,
            lease: None,
            max_hold: None,
            until: None,
            try_once: false,
            reporter: None,
            asked: observe::Asked::now(context.config.log_names, name, what),
            poll: None,
            non_reentrant: false,
            seat: None,
        }
    }
}
