//! The watchdog's task, one per client, looks at each hold when its renewal or its end is due. The
//! look itself never waits for the store, so a store that hangs delays no guard's loss. Renewals
//! are tasks of their own, a bounded number at once.

use crate::base::clock::Moment;
use crate::engine::confirm;
use crate::engine::context::Context;
use crate::engine::release;
use crate::observe;
use crate::state::hold::Hold;
use fairlock_core::client::{Look, Renewed, Silence, Slot};
use std::sync::Arc;
use std::time::Duration;

/// The watchdog's task; runs until the client is gone.
pub(crate) async fn run(context: Arc<Context>) {
    loop {
        let (due, more) = context.watchdog.take_due();
        for hold in due {
            context.survive(|| look(&context, &hold));
        }
        // One task each: a slow or broken key does not hold up the others.
        while let Some((hold, slot)) = context.watchdog.next_renewal() {
            context.spawn(renew(Arc::clone(&context), hold, slot));
        }
        if more {
            tokio::task::yield_now().await;
        } else {
            context.watchdog.due().await;
        }
    }
}

/// Notes that a hold is over, or that its renewal is due. Must not wait for anything.
fn look(context: &Context, hold: &Hold) {
    let Some(Look { valid_until_ns, next_ns, renew, silence }) = hold.look() else {
        return context.watchdog.forget(hold);
    };
    if let Some(Silence { since_ns, longest_ns }) = silence {
        let longest = Duration::from_nanos(longest_ns);
        context.store.hurry(&hold.name, Moment::at_nanos(since_ns), longest);
    }
    // Without further renewals, only its end is to be seen.
    let next_ns = if context.is_closed() { valid_until_ns } else { next_ns };
    context.watchdog.plan(hold, Moment::at_nanos(next_ns));
    if renew && !context.is_closed() {
        let lane = context.store.lane(&hold.name);
        context.watchdog.want_renewal(hold, valid_until_ns, lane);
    }
}

/// Renews one hold, and plans what comes next.
async fn renew(context: Arc<Context>, hold: Arc<Hold>, slot: Slot) {
    let _slot = context.watchdog.using(slot);
    // Lasts until the end of this call, which `renewals_are_over` waits for.
    let Some(renewing) = hold.begin_renewal() else { return };
    let (ttl_ms, valid_until) = (renewing.ttl_ms, hold.valid_until());
    // A copy that arrives later must not bring a hold back whose record was lost.
    let late_ms = context.late_ms(&hold.name).min(context.ms_at(&hold.name, valid_until));
    let op = hold.renewal(ttl_ms, late_ms);
    let next = match confirm::renewal(&context, &hold.name, &op).await {
        Ok((Renewed::Whole, sent)) => {
            observe::renewed(&hold.told(), valid_until.left());
            hold.renewed(sent, ttl_ms)
        }
        Ok((Renewed::Gone { holder }, _)) => {
            release::leave_request(&context, &hold);
            hold.lose_to(holder);
            None
        }
        Err(error) => {
            observe::renewal_missed(&hold.told(), &error, valid_until.left());
            // Whether or not there is a connection, the next attempt must not take too long.
            context.store.hurry(&hold.name, Moment::at_nanos(0), hold.patience());
            Some(hold.unanswered(error))
        }
    };
    match next {
        Some(at) => context.watchdog.plan(&hold, at),
        None => context.watchdog.forget(&hold),
    }
}
