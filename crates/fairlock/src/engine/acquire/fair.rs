//! A fair lock: wait in the queue until the lock is granted.

use super::answers::{answered_to_owner, confirm, give_up, unanswered};
use super::stop::{ANSWER_GRACE, stop};
use super::{DeliverySender, Request};
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::heartbeat;
use crate::engine::release;
use crate::engine::send::Copies;
use crate::observe::{self, Way};
use crate::state::hold::Hold;
use crate::state::waiters::Outcome;
use fairlock_core::OwnerId;
use fairlock_core::client::{Acquired, Acquisition, Outlook};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An explicit lease is too short after this many grants that were over before they could be used.
const OVER_MAX: u32 = 2;

pub(super) async fn fair(
    context: &Arc<Context>,
    wanted: &Request,
    owner: OwnerId,
    caller: &mut DeliverySender,
) -> Result<Option<Arc<Hold>>, Error> {
    let mut acquisition = wanted.begin(context, owner)?;
    let mut over = 0;
    loop {
        let (waiter, mut outcome) = context.waiters.enter(wanted.name.clone(), acquisition.clone());
        let got = wait_fair(context, wanted, &acquisition, &mut outcome, caller).await;
        let ended;
        (acquisition, ended) = context.waiters.leave(waiter);
        let in_doubt = acquisition.is_in_doubt();
        let outcome = match got {
            Ok(Some(outcome)) => outcome,
            // A grant that arrives at the moment of giving up counts, unless the caller has
            // cancelled.
            Ok(None) if caller.is_closed() => {
                give_up(context, wanted, &mut acquisition);
                return Ok(None);
            }
            Ok(None) => {
                match if ended && !outcome.is_terminated() { outcome.await.ok() } else { None } {
                    Some(late @ Outcome::Granted { .. }) => late,
                    _ => {
                        let taken_back = give_up(context, wanted, &mut acquisition);
                        // The next attempt, here or elsewhere, must not find a waiter in the queue
                        // whose caller was told "no". A server that does not answer is not waited for.
                        if let Some(taken_back) = taken_back.filter(|_| !in_doubt) {
                            let _ = tokio::time::timeout(ANSWER_GRACE, taken_back).await;
                        }
                        return Ok(None);
                    }
                }
            }
            Err(error) => {
                // A request that never reached the store need not be taken back, and a shutdown
                // need not wait for that.
                let nothing = error.kind() == ErrorKind::Unavailable && !in_doubt;
                if !nothing || acquisition.has_other_requests() {
                    give_up(context, wanted, &mut acquisition);
                }
                return Err(error.by(acquisition.owner()));
            }
        };
        let (grant, base) = match outcome {
            Outcome::Granted { grant, base } => (grant, base),
            Outcome::Failed(error) => {
                give_up(context, wanted, &mut acquisition);
                return Err(error);
            }
        };
        acquisition.granted(grant.request);
        match confirm(context, wanted, &acquisition, &grant, base).await {
            Ok(Some(hold)) => return Ok(Some(hold)),
            Ok(None) => {}
            Err(error) => return Err(error.by(acquisition.owner())),
        }
        over += 1;
        // An unanswered confirmation may still have given the hold its whole lease.
        acquisition.set_in_doubt(true);
        if !wanted.is_renewed(context) && over >= OVER_MAX {
            give_up(context, wanted, &mut acquisition);
            let message = "the lease was over before the lock could be used, twice; choose a \
                           longer lease";
            let error = Error::new(ErrorKind::LeaseTooShort, message).on(&wanted.name);
            return Err(error.by(acquisition.owner()));
        }
        if wanted.seat.is_some() {
            // The next request of an explicit owner does not take this hold over, but waits for its
            // end.
            release::take_back(context, &wanted.name, acquisition.leave(true), None);
        }
        acquisition.again(context.new_request()?);
    }
}

/// Sends the request and waits for its turn. `None` if time is up or nobody waits any more.
async fn wait_fair(
    context: &Arc<Context>,
    wanted: &Request,
    acquisition: &Acquisition,
    outcome: &mut oneshot::Receiver<Outcome>,
    caller: &mut DeliverySender,
) -> Result<Option<Outcome>, Error> {
    let (request, returning) = (acquisition.request(), acquisition.order().is_some());
    let until = wanted.until.filter(|_| !wanted.try_once);
    let stop = stop(context, caller, until);
    tokio::pin!(stop);
    let mut copies = Copies::default();
    let mut stopped = false;
    let mut overtaken = None;
    let reply = {
        let call = answered_to_owner(context, wanted, acquisition, &mut copies);
        tokio::pin!(call);
        tokio::select! {
            biased;
            reply = &mut call => Some(reply),
            why = &mut stop => {
                stopped = true;
                tokio::time::timeout(why.grace(wanted), &mut call).await.ok()
            }
            granted = &mut *outcome => {
                // The grant arrived before the reply, which adds nothing to it.
                overtaken = granted.ok();
                tokio::time::timeout(ANSWER_GRACE, &mut call).await.ok()
            }
        }
    };
    context.waiters.fair(|fair| fair.set_in_doubt(request, copies.in_doubt()));
    if overtaken.is_some() {
        return Ok(overtaken);
    }
    let Some(reply) = reply else { return unanswered(context, wanted, copies) };
    match reply? {
        (Acquired::Granted(grant), base) => {
            observe::granted(wanted.kind, Way::Request);
            return Ok(Some(Outcome::Granted { grant, base }));
        }
        (Acquired::Taken { .. } | Acquired::FormerHold, _) => return Ok(None),
        (Acquired::Queued { order, retry_ms, foreign, length }, _) => {
            let owner = acquisition.owner();
            observe::queued(&wanted.name, owner, returning, length);
            let outlook = Outlook { retry: retry_ms.map(Duration::from_millis), foreign };
            let period = context.beat_every(&wanted.name);
            let begins = context.waiters.queued(&wanted.name, request, order, outlook, period);
            if let Some(heartbeat) = begins {
                heartbeat::begin(context, heartbeat);
            }
            if let Some(reporter) = &wanted.reporter {
                reporter.queued(owner);
            }
        }
    }
    if stopped {
        return Ok(None);
    }
    tokio::select! {
        biased;
        granted = outcome => Ok(granted.ok()),
        _ = &mut stop => Ok(None),
    }
}
