//! The heartbeats of one lock's waiters: one call for all of them, in the name of the oldest.

use crate::base::backoff::jitter;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::observe;
use crate::state::waiters::{Entry, Queue};
use crate::store::{StoreError, Topic};
use fairlock_core::{Acquire, Body, Grant, Kind, Mode, Op, OwnerId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Waiters asked about in one call, when the oldest is not in the queue any more.
const ASKED_AT_ONCE: usize = 64;

/// Heartbeats are never closer than this for long, whatever messages say: a flood of forged ones
/// costs at most twenty calls a second.
const CLOSEST: Duration = Duration::from_millis(50);

/// So many may follow each other at once when none came for a while. The turn of a waiter behind a Java
/// client takes three: one that learns of Java and subscribes its channel, one that looks again after
/// that, and one for Java's wake-up, which may come right then; and one more for the end of the wait.
const AT_ONCE: u32 = 4;

/// So many heartbeats come in a period while a foreign client holds the lock or waits: nobody tells ours when a
/// Java waiter gives up that Java's unlock has just told, or a Java hold ends by its time. It costs two calls a
/// second instead of one in two, for each client and lock.
const BESIDE_FOREIGN: u32 = 4;

/// Added at random to the end of a lease, so that the clients of a lock do not all ask in the
/// same millisecond.
const SPREAD: Duration = Duration::from_millis(60);

/// The lock has a waiter of this client from now on.
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
        // Not waited for. Unless it is subscribed already, the store says when it is, and then a
        // heartbeat looks for what was said before.
        drop(context.store.listen(inbox.clone()));
    }
    loop {
        tokio::select! {
            biased;
            () = context.store.sleep(wait) => {}
            // What comes for another reason has proved no expectation wrong.
            () = queue.kick.notified() => early = false,
        }
        if context.waiters.retire(&queue) {
            break;
        }
        // Whatever kicks, and how often: the pace is ours.
        let ahead = pace.wait(Moment::now());
        // Sleeping for no time takes a millisecond, and wakes the thread twice.
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
                // When the connection is back a kick comes; no need to ask before.
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

/// How closely heartbeats follow each other.
struct Pace {
    /// When the next would go out if all those before it had kept their distance.
    due: Moment,
}

impl Pace {
    /// How long a heartbeat that is wanted now has to wait. It counts as sent then.
    fn wait(&mut self, now: Moment) -> Duration {
        let ahead_ms = u64::from(AT_ONCE - 1) * CLOSEST.as_millis() as u64;
        let wait = self.due.minus_ms(ahead_ms).since(now);
        self.due = self.due.max(now).plus(CLOSEST);
        wait
    }
}

/// The next heartbeat: after a period, or when the server expects a change; not twice in a row closer
/// than `least`, a wrong expectation must not make us poll.
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
    // Refused logins are tried again where the next password may be another one.
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

/// One heartbeat and all that follows from it.
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
        // Java wakes the head on its own channel; whoever is the oldest here listens there.
        // After the subscription a heartbeat looks again, for what was said before it.
        if let Some(former) = listening.replace(oldest.owner.clone()) {
            context.store.unlisten(Topic::Waiter(queue.name.clone(), former));
        }
        context.store.listen(Topic::Waiter(queue.name.clone(), oldest.owner.clone())).await?;
        queue.kick.notify_one();
    }
    Ok(Heard { retry: report.retry, foreign: report.foreign })
}

/// Asks for the oldest waiter. If it is missing, asks for the following ones until one is in the queue, and
/// brings those before it back into their places, the oldest first. `everyone`: asks for all, and for none
/// twice, because the server may be another one, to which only the tail of the queue had not come. `None`:
/// nobody waits.
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
    // Asked for by name: grants take waiters away meanwhile, so the nth is soon another one.
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
        return_to_place(context, entry).await?;
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

async fn return_to_place(context: &Arc<Context>, entry: &Arc<Entry>) -> Result<(), StoreError> {
    let fresh = context.new_request().map_err(StoreError::refused)?;
    let Some((request, order)) = context.waiters.renew_request(entry, fresh) else { return Ok(()) };
    let op = Op::Acquire(Acquire {
        kind: Kind::Fair,
        owner: entry.owner.clone(),
        request,
        lease_ms: entry.lease_ms,
        mode: Mode::Wait,
        order: Some(order),
        not_after_ms: context.now_ms(&entry.name) + context.config.store_timeout.as_millis() as u64,
        sure: true,
        shared_owner: entry.shared_owner,
    });
    entry.set_doubt(true);
    let mut copies = Copies::default();
    let result = send::once(context, &entry.name, &op, &mut copies).await;
    entry.set_doubt(copies.in_doubt());
    let reply = result?;
    match reply.answer.body {
        Body::Granted { token, ttl_ms } => {
            observe::returned_to_place(&entry.name, &entry.owner);
            context.waiters.granted_by_reply(&Grant { request, token, ttl_ms }, reply.sent);
            Ok(())
        }
        Body::Queued { .. } => {
            observe::returned_to_place(&entry.name, &entry.owner);
            Ok(())
        }
        Body::TooLate | Body::Buried => Ok(()),
        // A hold of the owner that is being given up: the next heartbeat tries again.
        Body::HeldBySelf { .. } if entry.shared_owner => Ok(()),
        _ => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wake-ups by Java came 27 ms late as a rule: the heartbeat that finds Java near, the one after
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
