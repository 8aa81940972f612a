//! A plain or simple lock: ask, and ask again when it may be free.

use super::answers::{GIVEN_UP_PAUSE, answered, confirm, give_up, unanswered};
use super::stop::{SILENCE_GRACE, Stop, stop};
use super::{DeliverySender, Request};
use crate::base::backoff::{Poll, jitter};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::send::Copies;
use crate::observe::{self, Way};
use crate::state::hold::Hold;
use crate::store::Topic;
use fairlock_core::client::{Acquired, Acquisition};
use fairlock_core::{Grant, OwnerId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// A plain waiter that was woken this often in a row and found the lock taken asks more slowly:
/// either others are faster, or the messages are forged.
const RACES: u32 = 8;

/// Shortest time between two attempts of such a waiter.
const PACE: Duration = Duration::from_millis(50);

/// A plain or simple lock has no queue. The first waiter of this client asks, and asks again on a
/// message, at the end of the holder's TTL, and once every heartbeat. It asks more often while a
/// foreign client holds a simple lock, because that client notifies nobody of its release.
pub(super) async fn plain(
    context: &Arc<Context>,
    wanted: &Request,
    owner: OwnerId,
    caller: &mut DeliverySender,
) -> Result<Option<Arc<Hold>>, Error> {
    let mut acquisition = wanted.begin(context, owner)?;
    let mut copies = Copies::default();
    let queue = context.waiters.enter_plain(&wanted.name);
    let until = wanted.until.filter(|_| !wanted.try_once);
    let first = FirstReply::default();
    let ended = {
        let attempts = plain_attempts(context, wanted, &acquisition, &queue, &mut copies, &first);
        tokio::pin!(attempts);
        tokio::select! {
            biased;
            result = &mut attempts => Ok(result),
            why = stop(context, caller, until) => tokio::select! {
                biased;
                result = &mut attempts => Ok(result),
                () = first.or_not_asked() => Err(why),
                () = tokio::time::sleep(why.grace(wanted)) => Err(why),
            },
        }
    };
    let result = match ended {
        Ok(result) => result,
        Err(Stop::Late) if !first.was_asked() => {
            Box::pin(ask_once(context, wanted, &acquisition, &mut copies)).await
        }
        Err(_) => unanswered(context, wanted, copies),
    };
    context.waiters.leave_plain(&wanted.name);
    acquisition.set_in_doubt(copies.in_doubt());
    match result {
        Ok(Some((grant, base))) => {
            acquisition.granted(grant.request);
            let hold = confirm(context, wanted, &acquisition, &grant, base).await;
            let hold = hold.map_err(|error| error.by(acquisition.owner()))?;
            if hold.is_none() {
                // An unanswered confirmation may still have given the hold its whole lease.
                acquisition.set_in_doubt(true);
                give_up(context, wanted, &mut acquisition);
                let message = "the lease was over before the lock could be used; choose a \
                               longer lease";
                let error = Error::new(ErrorKind::LeaseTooShort, message).on(&wanted.name);
                return Err(error.by(acquisition.owner()));
            }
            Ok(hold)
        }
        Ok(None) => {
            give_up(context, wanted, &mut acquisition);
            Ok(None)
        }
        Err(error) => {
            give_up(context, wanted, &mut acquisition);
            Err(error.by(acquisition.owner()))
        }
    }
}

/// The first reply to a plain waiter.
#[derive(Default)]
struct FirstReply {
    asked: AtomicBool,
    replied: Notify,
}

impl FirstReply {
    fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Resolves when the reply has arrived, or at once if this waiter has not asked yet because
    /// another waiter of this client does.
    async fn or_not_asked(&self) {
        if self.was_asked() {
            self.replied.notified().await;
        }
    }
}

/// Asks once for a waiter whose time is up before it could ask, because another waiter of this
/// client did. That one may have had no reply, and silence does not mean that the lock is taken.
async fn ask_once(
    context: &Arc<Context>,
    wanted: &Request,
    acquisition: &Acquisition,
    copies: &mut Copies,
) -> Result<Option<(Grant, Moment)>, Error> {
    let asking =
        tokio::time::timeout(SILENCE_GRACE, answered(context, wanted, acquisition, copies));
    let Ok(reply) = asking.await else { return unanswered(context, wanted, *copies) };
    match reply? {
        (Acquired::Granted(grant), base) => {
            observe::granted(wanted.kind, Way::Request);
            Ok(Some((grant, base)))
        }
        _ => Ok(None),
    }
}

async fn plain_attempts(
    context: &Arc<Context>,
    wanted: &Request,
    acquisition: &Acquisition,
    queue: &crate::state::waiters::PlainQueue,
    copies: &mut Copies,
    first: &FirstReply,
) -> Result<Option<(Grant, Moment)>, Error> {
    let topic = Topic::Base(wanted.name.clone());
    let period = context.beat_every(&wanted.name);
    // One waiter of this client asks at a time. When its wait ends, the next one asks.
    let _turn = if wanted.try_once { None } else { Some(queue.turn.lock().await) };
    let mut listening: Option<Listening<'_>> = None;
    let mut in_vain: u32 = 0;
    let mut poll = Poll::default();
    loop {
        let asked = Moment::now();
        first.asked.store(true, Ordering::Relaxed);
        let (answer, base) = answered(context, wanted, acquisition, copies).await?;
        first.replied.notify_one();
        let (ttl_ms, longest) = match answer {
            Acquired::Granted(grant) => {
                observe::granted(wanted.kind, Way::Request);
                return Ok(Some((grant, base)));
            }
            _ if wanted.try_once => return Ok(None),
            Acquired::Taken { ttl_ms, foreign: false } => (ttl_ms, period),
            Acquired::Taken { ttl_ms, foreign: true } => (ttl_ms, poll.next()),
            // It is not taken over.
            Acquired::FormerHold => (None, GIVEN_UP_PAUSE.1),
            Acquired::Queued { .. } => return Err(Error::mismatch().on(&wanted.name)),
        };
        if listening.is_none() {
            // Subscribe before asking again, so that no release falls in between.
            let subscribed = context.store.listen(topic.clone());
            listening = Some(Listening { context, topic: topic.clone() });
            subscribed.await.map_err(|failure| failure.error.on(&wanted.name))?;
            continue;
        }
        let ttl = ttl_ms.map_or(longest, |ms| Duration::from_millis(ms + 1));
        let wait = ttl.min(longest) + jitter(Duration::from_millis(20));
        let woken = tokio::select! {
            biased;
            () = queue.wake.notified() => true,
            () = context.store.sleep(wait) => false,
        };
        in_vain = if woken { in_vain + 1 } else { 0 };
        if in_vain > RACES {
            tokio::time::sleep(asked.plus(PACE).left()).await;
        }
    }
}

struct Listening<'a> {
    context: &'a Arc<Context>,
    topic: Topic,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.context.store.unlisten(self.topic.clone());
    }
}
