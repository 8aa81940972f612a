//! Sends the heartbeats of one lock's waiters, as the client's machine plans them.

use crate::base::backoff::chance;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::machine::Heartbeat;
use crate::engine::release;
use crate::engine::send::{self, Copies};
use crate::observe;
use crate::store::{StoreError, Topic};
use fairlock_core::client::{Due, Mismatch, Step};
use fairlock_core::{Body, Kind, LockName, Op, RequestId};
use std::sync::Arc;
use std::time::Duration;

/// Shortest time between two heartbeats that are planned for an expected change, in a store without
/// a server.
const EXACT_APART: Duration = Duration::from_millis(50);

/// Longest time that a heartbeat in such a store is put off because others came before it. A
/// heartbeat there takes microseconds, and after several deaths in a row a waiter depends on it.
const EXACT_DELAY: Duration = Duration::from_millis(5);

/// How long the client keeps listening to the channel of Redisson's read-write lock after the last
/// foreign client was seen there. Our subscription looks like a waiter of Redisson, for which the
/// lock is left free now and then.
const LISTENED: Duration = Duration::from_secs(10);

/// Where messages of Java clients are listened to.
#[derive(Default)]
struct Heard {
    topic: Option<Topic>,
    /// When a foreign client was seen last, since boot.
    foreign: Duration,
}

/// Starts the heartbeats for the first waiter of this client on a lock.
pub(crate) fn begin(context: &Arc<Context>, heartbeat: Arc<Heartbeat>) {
    context.spawn(run(Arc::clone(context), heartbeat));
}

/// Runs until the lock has no waiter of this client.
async fn run(context: Arc<Context>, heartbeat: Arc<Heartbeat>) {
    let name = &heartbeat.name;
    let mut period = context.beat_every(name);
    let mut wait = period;
    let inbox = context.store.has_per_lock_inbox().then(|| Topic::Inbox(name.clone()));
    if let Some(inbox) = &inbox {
        // Not awaited. Unless the inbox is subscribed already, the store reports the subscription,
        // and a heartbeat then catches up on earlier messages.
        drop(context.store.listen(inbox.clone()));
    }
    // The store has just given a waiter its place.
    release::pay_debts(&context, name, 1);
    let mut heard = Heard::default();
    loop {
        let woken = tokio::select! {
            biased;
            () = context.store.sleep(wait) => false,
            () = heartbeat.kick.notified() => true,
        };
        match context.due(name, woken) {
            // A sleep of zero takes a millisecond and wakes the thread twice.
            Due::After(ahead) if ahead.is_zero() => {}
            Due::After(ahead) => tokio::time::sleep(ahead.min(delay(&context))).await,
            Due::Over(_) => break,
        }
        let began = Moment::now();
        // Boxed: the task waits for most of its life, and would keep the memory for a call.
        let result = Box::pin(beat(&context, &heartbeat, &mut heard)).await;
        if result.is_ok() {
            period = context.beat_every(name);
            release::pay_debts(&context, name, 1);
        }
        wait = match &result {
            Ok(()) => {
                let (least, chance) = (least(&context), chance());
                context.give(|it, _| it.rest(name, period, least, chance))
            }
            Err(failure) => {
                let waits = failure.passing.then_some(context.config.store_timeout);
                let (error, began) = (reason(name, failure), (name, began.nanos()));
                loop {
                    let (wait, more) = context.give(|it, here| {
                        it.beat_failed(here, began, waits, period, |owner| error.clone().by(owner))
                    });
                    if !more {
                        break wait;
                    }
                }
            }
        };
        if result.is_err_and(|failure| failure.passing) {
            // A kick follows when the connection is back; asking earlier is pointless.
            let _ = tokio::time::timeout(period, context.store.ready(Some(name))).await;
        }
    }
    if let Some(topic) = heard.topic {
        context.store.unlisten(topic);
    }
    if let Some(inbox) = inbox {
        context.store.unlisten(inbox);
    }
}

/// Shortest time between two heartbeats that are planned for when the store expects a change.
fn least(context: &Context) -> Duration {
    // Without a server the end of a lease is exact: a look at that moment finds that the lease is
    // over, or that the holder has extended it by at least a third of a lease.
    if context.store.is_synchronous() { EXACT_APART } else { context.config.heartbeat / 4 }
}

/// Longest time that a heartbeat is put off.
fn delay(context: &Context) -> Duration {
    if context.store.is_synchronous() { EXACT_DELAY } else { Duration::MAX }
}

/// The error with which the waits end.
fn reason(name: &LockName, failure: &StoreError) -> Error {
    // A refused login is retried where the next password may be a different one; report the
    // refusal.
    if !failure.passing || failure.error.kind() == ErrorKind::Denied {
        return failure.error.clone().on(name);
    }
    let message = send::unreached("for the store timeout while waiting", &failure.error);
    Error::new(ErrorKind::Unavailable, message).on(name)
}

/// Sends one heartbeat and acts on the replies.
async fn beat(
    context: &Arc<Context>,
    heartbeat: &Heartbeat,
    heard: &mut Heard,
) -> Result<(), StoreError> {
    let name = &heartbeat.name;
    loop {
        match context.give(|it, _| it.beat(name)) {
            Step::Ask(waiters) => {
                let kind = context.machine.read(|it| it.kind(name)).unwrap_or(Kind::Fair);
                let op = Op::Beat { client: context.client_id, waiters }.on(kind);
                let reply = send::once(context, name, &op, &mut Copies::default()).await?;
                if let Body::Fates { foreign: true, .. } = &reply.answer.body {
                    heard.foreign = Moment::now().since_boot();
                }
                let (body, sent_ns) = (reply.answer.body, reply.sent.nanos());
                let beaten = context.give(|it, here| it.beaten(here, name, body, sent_ns));
                beaten.map_err(unexpected)?;
            }
            Step::Return(waiter) => return_to_place(context, name, waiter).await?,
            Step::Listen { owner, .. } => {
                let topic = match context.machine.read(|it| it.kind(name)) {
                    Some(Kind::ReadWrite) => Topic::ReadWrite(name.clone()),
                    _ => Topic::Waiter(name.clone(), owner),
                };
                if let Some(former) = heard.topic.replace(topic.clone()) {
                    context.store.unlisten(former);
                }
                match context.store.listen(topic.clone()).await {
                    // The permission is optional. Without it, the heartbeats beside Java must
                    // suffice.
                    Err(_) if matches!(topic, Topic::ReadWrite(_)) => {}
                    listened => listened?,
                }
                heartbeat.kick.notify_one();
            }
            Step::Rest => {
                let silent = Moment::now().since_boot().saturating_sub(heard.foreign) >= LISTENED;
                if silent && matches!(heard.topic, Some(Topic::ReadWrite(_))) {
                    context.give(|it, _| it.listens_no_more(name));
                    heard.topic.take().into_iter().for_each(|it| context.store.unlisten(it));
                }
                return Ok(());
            }
        }
    }
}

fn unexpected(_: Mismatch) -> StoreError {
    StoreError::refused(Error::mismatch())
}

async fn return_to_place(
    context: &Arc<Context>,
    name: &LockName,
    waiter: RequestId,
) -> Result<(), StoreError> {
    let op = context.give(|it, here| it.return_to_place(here, name, waiter));
    let Some(op) = op.map_err(StoreError::refused)? else { return Ok(()) };
    let mut copies = Copies::default();
    let result = send::once(context, name, &op, &mut copies).await;
    context.give(|it, _| it.set_in_doubt(waiter, copies.in_doubt()));
    let reply = result?;
    let (body, sent_ns) = (reply.answer.body, reply.sent.nanos());
    let returned = context.give(|it, here| it.returned(here, name, waiter, body, sent_ns));
    let owner = match &op {
        Op::Acquire(sent) => Some(&sent.owner),
        Op::AcquireShare(sent) => Some(&sent.acquire.owner),
        _ => None,
    };
    if let Some(owner) = owner.filter(|_| returned.is_ok_and(|it| it)) {
        observe::returned_to_place(name, owner);
    }
    returned.map(drop).map_err(unexpected)
}

#[cfg(all(feature = "_testkit", feature = "sqlite"))]
#[cfg(test)]
#[path = "../../tests/inside/engine/heartbeat/returning_tests.rs"]
mod returning_tests;
