//! Leaves a hold to the store: the last renewal, after which nobody renews it or gives it back.

use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::confirm;
use crate::engine::context::Context;
use crate::engine::release;
use crate::engine::send::{self, Copies};
use crate::state::hold::Hold;
use crate::store::Confirmed;
use fairlock_core::Op;
use fairlock_core::client::Renewed;
use std::sync::Arc;
use std::time::Duration;

/// Renews the hold until `end`. Without `end`, renews it for its whole lease, or until its own end
/// if that comes first.
pub(crate) async fn renew_once(
    context: &Arc<Context>,
    hold: &Arc<Hold>,
    end: Option<Moment>,
) -> Result<(), Error> {
    context.lease_differs();
    let mut until = hold.valid_until().min(context.store_deadline());
    if let Some(end) = end {
        prepare(context, hold, end, until).await?;
        // After that, the renewal can have no effect.
        until = until.min(hold.valid_until());
    }
    context.store.left_behind(&hold.name, hold.token, hold.request_of_share());
    renew_until(context, hold, end, until).await.map(drop)
}

/// Makes an explicit lease of the hold begin now.
pub(crate) async fn begin_lease(
    context: &Arc<Context>,
    hold: &Arc<Hold>,
    lease: Duration,
) -> Result<(), Error> {
    context.lease_differs();
    hold.lease_begins(lease);
    let until = hold.valid_until().min(context.store_deadline());
    let renewed = renew_until(context, hold, None, until).await;
    // The store may have to confirm the lease before it ends.
    let look_at = match renewed {
        Ok(Some(at)) => at,
        _ => hold.valid_until(),
    };
    context.watchdog.plan(hold, look_at);
    renewed.map(drop)
}

/// Asks the store to confirm that the lock is held: not every holder is notified when it loses its
/// lock.
pub(crate) async fn confirm(context: &Arc<Context>, hold: &Arc<Hold>) -> Result<(), Error> {
    let until = hold.valid_until().min(context.store_deadline());
    renew_until(context, hold, None, until).await.map(drop)
}

/// Returns when to look at the hold again, if it must be looked at.
async fn renew_until(
    context: &Arc<Context>,
    hold: &Arc<Hold>,
    end: Option<Moment>,
    until: Moment,
) -> Result<Option<Moment>, Error> {
    let mut asked_ms = 0;
    let freshen = |op: &mut Op| {
        if let Op::Renew { ttl_ms, .. } = op.bare_mut() {
            // A copy that is sent later must not extend beyond the end.
            asked_ms = end.map_or_else(|| hold.wanted_ms(), ms_until);
            *ttl_ms = asked_ms;
        }
    };
    let late_ms = context.ms_at(&hold.name, until);
    let (op, mut copies) = (hold.renewal(0, late_ms), Copies::default());
    let confirmed = if context.store.is_replicated() {
        // A hold that replicas lack is gone after the next failover, and nobody would renew it
        // there.
        confirm::confirmed_with(context, &hold.name, op, until, freshen).await?
    } else {
        send::until_answered_with(context, &hold.name, op, until, &mut copies, freshen)
            .await
            .map(Confirmed::by_the_store)?
    };
    match confirm::renewed(confirmed)? {
        (Renewed::Whole, sent) => Ok(match end {
            None => hold.renewed(sent, asked_ms),
            Some(_) => {
                hold.left_until(sent, asked_ms);
                None
            }
        }),
        (Renewed::Gone { holder }, _) => {
            hold.lose_to(holder);
            Err(hold.lost_error())
        }
    }
}

/// Makes sure that no renewal of the watchdog follows the renewal until `end`: a later one would
/// restore the lease. If this fails, nothing was sent.
async fn prepare(
    context: &Arc<Context>,
    hold: &Arc<Hold>,
    end: Moment,
    until: Moment,
) -> Result<(), Error> {
    if !hold.begin_leaving(end) {
        let message = "a lock that is held by several guards cannot be left to the store for a time of its own; \
            release the others first";
        return Err(Error::misuse(message));
    }
    context.watchdog.forget(hold);
    // A renewal that was sent already is answered or given up first.
    if tokio::time::timeout(until.left(), hold.renewals_are_over()).await.is_err() {
        hold.ensure_valid()?;
        let message =
            "a renewal of the lock was not answered in time; check the server and the network";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    hold.ensure_valid()
}

fn ms_until(end: Moment) -> u64 {
    u64::try_from(end.left().as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Leaves behind the hold of a guard that is gone. Returns until when it lasts at least.
pub(crate) fn leave_behind(context: &Arc<Context>, hold: &Arc<Hold>) -> Moment {
    let until = hold.detach();
    if hold.is_unattended() {
        context.watchdog.forget(hold);
    }
    release::bury_when_over(context, hold);
    until
}
