//! Several locks in one step. Each is an acquisition of its own that does not wait, with its own
//! owner and request, and the first copies of all are sent in one call that takes all locks or
//! none. Whatever the outcome of the call, each acquisition then continues on its own: it waits for
//! replicas to confirm the grant, sends further copies if the reply was lost, or gives back its
//! lock or request if its caller has gone.

use super::course::{Asking, Requested, ask};
use super::drive::Driver;
use super::request::Request;
use crate::base::clock::Moment;
use crate::base::concurrent::{Polled, all_of};
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::state::in_flight::InFlightCleanup;
use crate::store::{Reply, StoreError, Taken};
use fairlock_core::{Answer, Body, LockName, Op};
use std::sync::Arc;
use tokio::sync::oneshot;

type Answers = Vec<oneshot::Sender<Result<Reply, StoreError>>>;

/// Begins to ask for all of these locks, which have the same [step](crate::store::Store::step_of). If none is taken,
/// the receiver gets the index of one that is not free, if the store has named one.
pub(crate) fn begin_together(
    context: &Arc<Context>,
    wanted: Vec<Request>,
) -> Result<(Vec<Requested>, oneshot::Receiver<usize>), Error> {
    context.background()?;
    let mut drawn = Vec::with_capacity(wanted.len());
    for _ in &wanted {
        drawn.push((context.new_owner()?, context.new_request()?));
    }
    let (mut asks, mut answers, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let mut under_way: Vec<Polled<'static, ()>> = Vec::new();
    for (wanted, (owner, request)) in wanted.into_iter().zip(drawn) {
        let name = wanted.name.clone();
        let (answer, first) = oneshot::channel();
        let (caller, answered) = oneshot::channel();
        let in_flight = InFlightCleanup::new(&context.in_flight);
        let asking = Asking::new(context, wanted);
        requests.push(asking.requested(answered));
        let mut driver = Driver::begin(&asking, owner, request);
        if let Some(mut op) = driver.first_copy(first) {
            // It stands in no queue, so it does not matter whether messages reach it.
            match &mut op {
                Op::Acquire(acquire) => acquire.sure = false,
                Op::AcquireShare(ask) => ask.acquire.sure = false,
                _ => {}
            }
            asks.push((name, op));
            answers.push(answer);
        }
        under_way.push(Box::pin(ask(asking, Some(driver), caller, in_flight)));
    }
    let owned = Arc::clone(context);
    let (tell, busy) = oneshot::channel();
    under_way.push(Box::pin(async move { send(&owned, &asks, answers, tell).await }));
    // In one task, because each wakes the caller once.
    context.spawn(all_of(under_way));
    Ok((requests, busy))
}

async fn send(
    context: &Arc<Context>,
    asks: &[(LockName, Op)],
    answers: Answers,
    tell: oneshot::Sender<usize>,
) {
    let sent = Moment::now();
    let result = context.store.call_together(asks).await;
    match result {
        Ok(Taken::All(replies)) => {
            for (((name, op), reply), answer) in asks.iter().zip(replies).zip(answers) {
                context.note_reply(name, op, &reply);
                // An acquisition that has gone has taken its request back.
                let _ = answer.send(Ok(reply));
            }
        }
        Ok(Taken::None(busy)) => {
            // Before the answers: the caller looks for this when it has them.
            busy.map(|busy| tell.send(busy));
            let body = Body::Busy { ttl_ms: None };
            let none = Answer { now_ms: 0, more: false, removed: 0, other_limit: false, body };
            for answer in answers {
                let _ = answer.send(Ok(Reply { sent, answer: none.clone(), clock: None }));
            }
        }
        Err(failure) => {
            for answer in answers {
                let _ = answer.send(Err(failure.clone()));
            }
        }
    }
}
