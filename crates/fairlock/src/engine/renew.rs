//! The watchdog's task, one per client, looks at each hold when its renewal or its end is due. The
//! look itself never waits for the store, so a store that hangs delays no guard's loss. Renewals
//! are tasks of their own, a bounded number at once.

use crate::base::clock::Moment;
use crate::engine::confirm;
use crate::engine::context::Context;
use crate::engine::release;
use crate::observe;
use crate::state::hold::Hold;
use crate::state::renewals::{LOOKS_MAX, Slot};
use crate::state::standing::GuardState;
use fairlock_core::client::Renewed;
use std::sync::Arc;

/// Pause before a failed renewal is tried again.
const RETRY_MS: u64 = 500;

/// The watchdog's task; runs until the client is gone.
pub(crate) async fn run(context: Arc<Context>) {
    loop {
        let due = context.watchdog.take_due();
        let all = due.len() < LOOKS_MAX;
        for hold in due {
            look(&context, &hold);
        }
        // One task each: a slow or broken key does not hold up the others.
        while let Some((hold, slot)) = context.watchdog.next_renewal() {
            tokio::spawn(renew(Arc::clone(&context), hold, slot));
        }
        if all {
            context.watchdog.due().await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Notes that a hold is over, or that its renewal is due. Must not wait for anything.
fn look(context: &Context, hold: &Hold) {
    if hold.state() == GuardState::Lost {
        return lost(context, hold);
    }
    // However and whenever a renewal ends, the hold is looked at again at its deadline.
    let valid_until = hold.valid_until();
    context.watchdog.plan(hold, valid_until);
    // For an explicit lease, only its end remains.
    let ends = !hold.lease().renewed && hold.has_whole_lease();
    if !ends && !context.is_closed() {
        let lane = context.store.lane(&hold.name);
        context.watchdog.want_renewal(hold, valid_until, lane);
    }
}

/// Renews one hold, and plans what comes next.
async fn renew(context: Arc<Context>, hold: Arc<Hold>, _slot: Slot) {
    // Lasts until the end of this call, which `renewals_are_over` waits for.
    let Some(_renewing) = hold.begin_renewal() else { return };
    let (lease, valid_until) = hold.times();
    let ttl_ms = lease.wanted_ms();
    let op = hold.renewal(ttl_ms);
    let now = Moment::now();
    match confirm::renewal(&context, &hold.name, &op).await {
        Ok((Renewed::Whole, sent)) => {
            observe::renewed(&hold.told(), valid_until.left());
            hold.renewed(sent, ttl_ms);
            hold.set_whole_lease(true);
            // The report that it was taken away by force was wrong.
            hold.set_forced(false);
            if hold.state() == GuardState::Lost {
                return lost(&context, &hold);
            }
            let until = hold.valid_until();
            let at = if hold.lease().renewed { now.plus_ms(hold.lease().ms / 3) } else { until };
            context.watchdog.plan(&hold, at.min(until));
        }
        Ok((Renewed::Gone { holder }, _)) => {
            release::leave_request(&context, &hold);
            hold.lose_to(holder);
            lost(&context, &hold);
        }
        Err(error) => {
            observe::renewal_missed(&hold.told(), &error, valid_until.left());
            hold.suspect();
            let left = valid_until.left().as_millis() as u64;
            // Near the end try more often: at least four more times.
            let pause = RETRY_MS.min(left / 4).max(10);
            context.watchdog.plan(&hold, Moment::now().plus_ms(pause).min(valid_until));
        }
    }
}

fn lost(context: &Context, hold: &Hold) {
    context.watchdog.forget(hold);
}
