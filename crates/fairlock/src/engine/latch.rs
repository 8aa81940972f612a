//! Latches: carries out operations on them, and looks at those for which somebody waits.

use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::confirm;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::in_flight::InFlightCleanup;
use crate::state::latches::{Look, Next, ON_ITS_WAY, Waiting, Watched};
use crate::store::{Confirmed, Topic};
use fairlock_core::client::Pace;
use fairlock_core::{Body, LatchOp, LatchSeen, LockName, Op};
use std::sync::Arc;
use std::time::Duration;

/// How many copies the store may refuse as late, although there is time left. Each refusal shows
/// the store's clock.
const LATE_MAX: u32 = 3;

/// Carries out an operation: sends it until it is answered, at most for the store timeout. No copy of
/// it is carried out later than that.
///
/// # Errors
/// Those of [`send::until_answered`]. With replicas, `NotReplicated` if it has changed the latch
/// and too few of them have the change.
pub(crate) async fn carry_out(
    context: &Arc<Context>,
    name: &LockName,
    mut op: LatchOp,
) -> Result<LatchSeen, Error> {
    let writes = op.request().is_some();
    let _under_way = writes.then(|| InFlightCleanup::new(&context.in_flight));
    let until = context.store_deadline();
    let mut copies = Copies::default();
    for _ in 0..LATE_MAX {
        if let Some(request) = op.request_mut() {
            // The same for all copies, unless the store shows that its clock differs: a marker
            // lasts as long as copies can be carried out.
            let left_ms = until.left().as_millis() as u64;
            request.not_after_ms = context.ms_at(name, Moment::now()) + left_ms;
        }
        let confirmed =
            send_copies(context, name, Op::Latch(op.clone()), until, &mut copies).await?;
        match (confirmed.reply.answer.body, confirmed.missing) {
            (Body::Latch(seen), Some(missing)) if seen.done => return Err(missing.on(name)),
            (Body::Latch(seen), _) => return Ok(seen),
            (Body::TooLate, _) if until.left().is_zero() => break,
            (Body::TooLate, _) => {}
            _ => return Err(Error::mismatch().on(name)),
        }
    }
    let kind = if copies.in_doubt() { ErrorKind::Unknown } else { ErrorKind::Unavailable };
    let message = "no copy of the request was carried out in time: the server refused all before (is it out of memory, \
                   or without enough replicas?), its clock jumps, or calls arrive later than the store timeout";
    Err(Error::new(kind, message).on(name))
}

/// Sends copies until one is answered, and has replicas confirm a change of the latch.
async fn send_copies(
    context: &Arc<Context>,
    name: &LockName,
    op: Op,
    until: Moment,
    copies: &mut Copies,
) -> Result<Confirmed, Error> {
    let writes = matches!(&op, Op::Latch(op) if op.request().is_some());
    if !(writes && context.store.is_replicated()) {
        let reply = send::until_answered(context, name, &op, until, copies).await?;
        return Ok(Confirmed::by_the_store(reply));
    }
    let done = confirm::until_confirmed(context, name, op, until, copies, |_| {}).await;
    done.map_err(|failure| match failure.passing {
        true => send::unreachable_in_time(copies.in_doubt(), &failure.error).on(name),
        false => failure.error.on(name),
    })
}

/// Begins to wait for the latch of this generation, or for the present one.
pub(crate) fn wait(context: &Arc<Context>, name: &LockName, waits_for: Option<u64>) -> Waiting {
    context.latches.wait(name, waits_for, |watched| {
        let owned = Arc::clone(context);
        context.spawn(async move { watch(&owned, &watched).await });
    })
}

/// Looks at the latch while somebody waits for it: at once, then with each heartbeat, and with each
/// message.
async fn watch(context: &Arc<Context>, watched: &Watched) {
    let (mut listens, mut pace) = (false, Pace::default());
    while !context.latches.ends(watched) {
        let next = tokio::select! {
            biased;
            () = context.closed() => {
                watched.failed(&Error::closed().on(&watched.name));
                Next::Nobody
            }
            next = look(context, watched, watched.look()) => next,
        };
        if next == Next::Nobody {
            continue;
        }
        if !listens {
            // After the first look, so that a latch that is open costs no subscription.
            listens = true;
            let topic = Topic::Latch(watched.name.clone());
            if let Err(denied) = context.store.listen(topic).await {
                watched.failed(&denied.error.on(&watched.name));
            }
            // Messages that were sent before the subscription were missed.
            continue;
        }
        let pause = match next {
            Next::Soon => ON_ITS_WAY,
            _ => context.beat_every(&watched.name),
        };
        tokio::select! {
            biased;
            () = context.closed() => {}
            () = async {
                watched.kick.notified().await;
                // However many messages come.
                let now = Duration::from_nanos(Moment::now().nanos());
                context.store.sleep(pace.wait(now)).await;
            } => {}
            () = context.store.sleep(pause) => {}
        }
    }
    if listens {
        context.store.unlisten(Topic::Latch(watched.name.clone()));
    }
}

async fn look(context: &Arc<Context>, watched: &Watched, look: Look) -> Next {
    let op = LatchOp::Look { waiting: Some(look.waiting) };
    match carry_out(context, &watched.name, op).await {
        Ok(seen) => watched.seen(look, &seen),
        Err(error) => {
            watched.look_failed(look, &error);
            // A waiter that has come meanwhile needs a look at once.
            Next::Nobody
        }
    }
}
