//! Repeats recent releases after a reconnect: the new connection may lead to another server, which
//! does not know of them.
//!
//! Sentinels name a new primary before the old one stops, and replication lags. A release that the
//! old primary answered may be unknown to the new one, where the lock would stay held until its
//! lease ends. The operation names the hold by its token and the request of a share, or the request, so repeating it is
//! harmless.

use crate::base::clock::Moment;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::in_flight::InFlightCleanup;
use crate::state::standing::GuardState;
use crate::store::Scope;
use fairlock_core::{LockName, Op};
use std::sync::Arc;
use std::time::Duration;

/// How long an operation is repeated while a new server answers "not now". A client that ends waits
/// as long.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// Most calls under way at once.
const AT_ONCE: usize = 64;

/// Repeats the recent releases of these locks in the background. Those that are not answered are
/// repeated on the next connection.
pub(crate) fn again(context: &Arc<Context>, scope: &Scope) {
    let all = context.releases_to_repeat(scope);
    if all.is_empty() {
        return;
    }
    // A shutdown waits for it.
    let in_flight = InFlightCleanup::new(&context.in_flight);
    let context = Arc::clone(context);
    context.clone().spawn(async move {
        let _in_flight = in_flight;
        for some in all.chunks(AT_ONCE) {
            let calls = some.iter().map(|(name, op)| {
                let (context, name, op) = (Arc::clone(&context), name.clone(), op.clone());
                context.clone().spawn(async move {
                    if !newer_hold_is_known(&context, &name, &op).await {
                        return;
                    }
                    let until = Moment::now().plus(TOLD_WITHIN);
                    let mut copies = Copies::default();
                    // A new primary may refuse writes until its replicas are connected.
                    let _ = send::until_answered(&context, &name, &op, until, &mut copies).await;
                })
            });
            for call in calls.collect::<Vec<_>>() {
                // A call that panicked is not repeated.
                let _ = call.await;
            }
        }
    });
}

/// The owner may by now hold the lock through another request. Until the first renewal is answered,
/// the new server may take the former hold for the new one, so the former hold must not be ended
/// before that. Returns whether a renewal was answered in time; if not, the former hold ends with
/// its lease.
async fn newer_hold_is_known(context: &Context, name: &LockName, op: &Op) -> bool {
    let (Op::Release { owner, .. } | Op::Leave { owner, .. }) = op.bare() else { return true };
    let Some(hold) = context.owners.hold(name, owner) else { return true };
    tokio::time::timeout(TOLD_WITHIN, hold.state_changed(GuardState::Suspect)).await.is_ok()
}
