//! Latches: carries out operations on them, and looks at those that are waited for.

use crate::base::error::Error;
use crate::engine::confirm;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::in_flight::InFlightCleanup;
use crate::state::latches::{Look, Next, ON_ITS_WAY, Waiting, Watched};
use crate::store::Topic;
use fairlock_core::{Body, LatchOp, LatchSeen, LockName, Op};
use std::sync::Arc;

/// Carries out an operation: sends it until it is answered, at most for the store timeout.
///
/// # Errors
/// Those of [`send::until_answered`]. With replicas, `NotReplicated` if too few of them have it.
pub(crate) async fn carry_out(
    context: &Arc<Context>,
    name: &LockName,
    op: LatchOp,
) -> Result<LatchSeen, Error> {
    let writes = op.request().is_some();
    let _under_way = writes.then(|| InFlightCleanup::new(&context.in_flight));
    let op = Op::Latch(op);
    let until = context.store_deadline();
    let reply = if writes && context.store.is_replicated() {
        let confirmed = confirm::confirmed(context, name, &op, until).await?;
        if let Some(missing) = confirmed.missing {
            return Err(missing.on(name));
        }
        confirmed.reply
    } else {
        send::until_answered(context, name, &op, until, &mut Copies::default()).await?
    };
    match reply.answer.body {
        Body::Latch(seen) => Ok(seen),
        _ => Err(Error::mismatch().on(name)),
    }
}

/// Begins to wait for the latch.
pub(crate) fn wait(context: &Arc<Context>, name: &LockName) -> Waiting {
    context.latches.wait(name, |watched| {
        let owned = Arc::clone(context);
        context.spawn(async move { watch(&owned, &watched).await });
    })
}

/// Looks at the latch while somebody waits for it: at once, then with each heartbeat, and with each
/// message.
async fn watch(context: &Arc<Context>, watched: &Watched) {
    let mut listens = false;
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
            // What was sent before that was not heard.
            continue;
        }
        let pause = match next {
            Next::Soon => ON_ITS_WAY,
            _ => context.beat_every(&watched.name),
        };
        tokio::select! {
            biased;
            () = context.closed() => {}
            () = watched.kick.notified() => {}
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
            // Who has come meanwhile wants a look at once.
            Next::Nobody
        }
    }
}
