//! The heartbeats of one lock's waiters: one call keeps all of them alive and names the oldest.

use crate::base::backoff::jitter;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::observe;
use crate::state::waiters::{Entry, Queue};
use crate::store::{StoreError, Topic};
use fairlock_core::client::{Acquired, Refused};
use fairlock_core::{Body, Op, OwnerId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most waiters that one call asks about.
const ASKED_AT_ONCE: usize = 64;

/// Shortest sustained interval between heartbeats: a flood of forged messages costs at most twenty
/// calls a second.
const CLOSEST: Duration = Duration::from_millis(50);

/// Heartbeats that may follow each other immediately after a pause. The turn of a waiter behind a
/// Java client takes three: one that discovers Java and subscribes to its channel, one that looks
/// again after the subscription, and one for Java's wake-up, which may arrive right then. One more
/// is for the end of the wait.
const AT_ONCE: u32 = 4;

/// Heartbeats per period while a foreign client holds the lock or waits. Nobody notifies our
/// waiters when a Java waiter gives up just after Java's unlock has notified it, or when a Java
/// hold expires. This costs two calls a second instead of one every two seconds, for each client
/// and lock.
const BESIDE_FOREIGN: u32 = 4;

/// Largest random delay added to the end of a lease, so that the clients of a lock do not all ask
/// in the same millisecond.
const SPREAD: Duration = Duration::from_millis(60);

/// Starts the heartbeats for the first waiter of this client on a lock.
pub(crate) fn begin(context: &Arc<Context>, queue: Arc<Queue>) {
    context.runtime.spawn(run(Arc::clone(context), queue));
}

/// Runs until the lock has no waiter of this client.
async fn run(context: Arc<Context>, queue: Arc<Queue>) {
    let mut period = context.beat_every(&queue.name);
    let least = context.config.heartbeat / 4;
    let mut wait = period;
    let mut pace = Pace { due: Moment::now() };
    let mut early = false;
    let mut silent_since: Option<Moment> = None;
    let mut listening: Option<OwnerId> = None;
    let inbox = context.store.has_per_lock_inbox().then(|| Topic::Inbox(queue.name.clone()));
    if let Some(inbox) = &inbox {
        // Not awaited. Unless the inbox is subscribed already, the store reports the subscription,
        // and a heartbeat then catches up on earlier messages.
        drop(context.store.listen(inbox.clone()));
    }
    loop {
        tokio::select! {
            biased;
            () = context.store.sleep(wait) => {}
            // A kick does not prove an expectation wrong.
            () = queue.kick.notified() => early = false,
        }
        if context.waiters.retire(&queue) {
            break;
        }
        // However often it is kicked, this loop sets the pace.
        let ahead = pace.wait(Moment::now());
        // A sleep of zero takes a millisecond and wakes the thread twice.
        if !ahead.is_zero() {
            tokio::time::sleep(ahead).await;
        }
        let began = Moment::now();
        match beat(&context, &queue, &mut listening).await {
            Ok(heard) => {
                silent_since = None;
                period = context.beat_every(&queue.name);
                wait = next_wait(period, least, &heard, &mut early);
            }
            Err(failure) if failure.passing => {
                let since = *silent_since.get_or_insert(began);
                if Moment::now().since(since) >= context.config.store_timeout {
                    context.waiters.fail(&queue, &unreachable(&queue, &failure));
                }
                wait = period / 4;
                // A kick follows when the connection is back; asking earlier is pointless.
                let _ = tokio::time::timeout(period, context.store.ready(Some(&queue.name))).await;
            }
            Err(failure) => {
                context.waiters.fail(&queue, &failure.error.on(&queue.name));
                wait = CLOSEST;
            }
        }
    }
    if let Some(owner) = listening {
        context.store.unlisten(Topic::Waiter(queue.name.clone(), owner));
    }
    if let Some(inbox) = inbox {
        context.store.unlisten(inbox);
    }
}

/// Limits how closely heartbeats follow each other.
struct Pace {
    /// When the next heartbeat would be sent if all earlier ones had kept their distance.
    due: Moment,
}

impl Pace {
    /// Returns how long a heartbeat that is wanted now must wait, and counts it as sent then.
    fn wait(&mut self, now: Moment) -> Duration {
        let ahead_ms = u64::from(AT_ONCE - 1) * CLOSEST.as_millis() as u64;
        let wait = self.due.minus_ms(ahead_ms).since(now);
        self.due = self.due.max(now).plus(CLOSEST);
        wait
    }
}

/// The wait until the next heartbeat: a period, or the time until the server expects a change. It
/// is never shorter than `least` twice in a row, because a wrong expectation must not turn into
/// polling.
fn next_wait(period: Duration, least: Duration, heard: &Heard, early: &mut bool) -> Duration {
    let regular = if heard.foreign { period / BESIDE_FOREIGN } else { period };
    let regular = regular.mul_f64(0.95) + jitter(regular / 20);
    let Some(retry) = heard.retry.filter(|retry| *retry < regular) else {
        *early = false;
        return regular;
    };
    let least = if *early { least } else { Duration::ZERO };
    *early = true;
    (retry + jitter(SPREAD)).max(least)
}

fn unreachable(queue: &Queue, failure: &StoreError) -> Error {
    // A refused login is retried where the next password may be a different one; report the
    // refusal.
    if failure.error.kind() == ErrorKind::Denied {
        return failure.error.clone().on(&queue.name);
    }
    let message = format!(
        "the store was not reachable for the store timeout while waiting ({}); check the server \
         and the network",
        failure.error
    );
    Error::new(ErrorKind::Unavailable, message).on(&queue.name)
}

/// What decides when the next heartbeat comes.
#[derive(Default)]
struct Heard {
    /// When the server expects a change.
    retry: Option<Duration>,
    /// Whether a foreign client holds the lock or waits.
    foreign: bool,
}

/// Sends one heartbeat and acts on the reply.
async fn beat(
    context: &Arc<Context>,
    queue: &Arc<Queue>,
    listening: &mut Option<OwnerId>,
) -> Result<Heard, StoreError> {
    let everyone = queue.all_in_doubt.swap(false, Ordering::Relaxed);
    let heard = look(context, queue, everyone).await;
    if everyone && heard.is_err() {
        queue.all_in_doubt.store(true, Ordering::Relaxed);
    }
    let Some((oldest, report)) = heard? else { return Ok(Heard::default()) };
    queue.oldest_listens.store(report.foreign, Ordering::Relaxed);
    if report.foreign && listening.as_ref() != Some(&oldest.owner) {
        // Java wakes the head of the queue on that waiter's own channel, so the oldest waiter here
        // subscribes to its channel. A heartbeat after the subscription catches up on earlier
        // messages.
        if let Some(former) = listening.replace(oldest.owner.clone()) {
            context.store.unlisten(Topic::Waiter(queue.name.clone(), former));
        }
        context.store.listen(Topic::Waiter(queue.name.clone(), oldest.owner.clone())).await?;
        queue.kick.notify_one();
    }
    Ok(Heard { retry: report.retry, foreign: report.foreign })
}

/// Asks about the oldest waiter. If it is missing, asks about the following ones until one is in
/// the queue, and returns those before it to their places, the oldest first. With `everyone`, asks
/// about all of them, each once: the server may be a different one that lacks only the tail of the
/// queue. `None` if nobody waits.
async fn look(
    context: &Arc<Context>,
    queue: &Arc<Queue>,
    everyone: bool,
) -> Result<Option<(Arc<Entry>, Report)>, StoreError> {
    if !everyone {
        let Some(oldest) = queue.oldest(1).pop() else { return Ok(None) };
        let report = ask(context, queue, std::slice::from_ref(&oldest)).await?;
        if report.queued.first() != Some(&false) {
            return Ok(Some((oldest, report)));
        }
    }
    // A snapshot instead of positions: grants remove waiters meanwhile, so the nth is soon a
    // different one.
    let all = queue.oldest(usize::MAX);
    let (mut missing, mut first) = (Vec::new(), None);
    for some in all.chunks(ASKED_AT_ONCE) {
        let report = ask(context, queue, some).await?;
        let found = report.queued.contains(&true);
        let looked_at = some.iter().zip(&report.queued);
        let looked_at = looked_at.take_while(|(_, queued)| everyone || !**queued);
        missing.extend(looked_at.filter(|(_, queued)| !**queued).map(|(entry, _)| entry));
        first.get_or_insert(report);
        if found && !everyone {
            break;
        }
    }
    for entry in missing {
        let retry = return_to_place(context, entry).await?;
        if let Some(first) = &mut first {
            first.retry = [first.retry, retry].into_iter().flatten().min();
        }
    }
    Ok(all.first().cloned().zip(first))
}

struct Report {
    queued: Vec<bool>,
    retry: Option<Duration>,
    foreign: bool,
}

async fn ask(
    context: &Arc<Context>,
    queue: &Arc<Queue>,
    entries: &[Arc<Entry>],
) -> Result<Report, StoreError> {
    let waiters: Vec<OwnerId> = entries.iter().map(|entry| entry.owner.clone()).collect();
    let op = Op::Beat { client: context.client_id, waiters };
    let reply = send::once(context, &queue.name, &op, &mut Copies::default()).await?;
    let Body::Beaten { held, queued, retry_ms, foreign } = reply.answer.body else {
        return Err(unexpected());
    };
    if let Some(grant) = held {
        context.waiters.granted_by_reply(&grant, reply.sent);
    }
    Ok(Report { queued, retry: retry_ms.map(Duration::from_millis), foreign })
}

fn unexpected() -> StoreError {
    StoreError::refused(Error::mismatch())
}

/// Returns when the server expects a change for the waiter that is back in its place.
async fn return_to_place(
    context: &Arc<Context>,
    entry: &Arc<Entry>,
) -> Result<Option<Duration>, StoreError> {
    let fresh = context.new_request().map_err(StoreError::refused)?;
    let Some(acquisition) = context.waiters.renew_request(entry, fresh) else { return Ok(None) };
    let not_after_ms =
        context.now_ms(&entry.name) + context.config.store_timeout.as_millis() as u64;
    let op = Op::Acquire(acquisition.acquire(true, not_after_ms));
    entry.set_in_doubt(true);
    let mut copies = Copies::default();
    let result = send::once(context, &entry.name, &op, &mut copies).await;
    entry.set_in_doubt(copies.in_doubt());
    let reply = result?;
    match acquisition.acquired(reply.answer.body) {
        Ok(Acquired::Granted(grant)) => {
            observe::returned_to_place(&entry.name, &entry.owner);
            context.waiters.granted_by_reply(&grant, reply.sent);
            Ok(None)
        }
        Ok(Acquired::Queued { retry_ms, .. }) => {
            observe::returned_to_place(&entry.name, &entry.owner);
            Ok(retry_ms.map(Duration::from_millis))
        }
        // The next heartbeat tries again.
        Ok(Acquired::FormerHold) | Err(Refused::TooLate | Refused::Buried) => Ok(None),
        Ok(Acquired::Taken { .. }) | Err(Refused::HeldBySelf | Refused::Mismatch) => {
            Err(unexpected())
        }
    }
}

#[cfg(all(feature = "_testkit", feature = "sqlite"))]
#[cfg(test)]
#[path = "../../tests/inside/engine/heartbeat/returning_tests.rs"]
mod returning_tests;

#[cfg(test)]
mod tests {
    use super::*;

    /// Wake-ups by Java were typically 27 ms late: the heartbeat that discovers Java, the one after
    /// the subscription and the one for the wake-up had to keep 50 ms between them.
    #[test]
    fn a_few_heartbeats_follow_each_other_at_once_and_many_do_not() {
        let start = Moment::now();
        let mut pace = Pace { due: start };
        let mut now = start;
        for _ in 0..AT_ONCE {
            assert_eq!(pace.wait(now), Duration::ZERO);
        }
        for _ in 0..100 {
            let wait = pace.wait(now);
            assert_eq!(wait, CLOSEST, "a flood keeps its distance");
            now = now.plus(wait);
        }
        now = now.plus(CLOSEST * 100);
        for _ in 0..AT_ONCE {
            assert_eq!(pace.wait(now), Duration::ZERO, "however long the pause was");
        }
        assert_eq!(pace.wait(now), CLOSEST);
    }
}
