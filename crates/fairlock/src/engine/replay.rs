//! What was given back lately is given back once more when the connection is made anew: it may lead to
//! another server, which has not heard of it.
//!
//! Sentinels name a new primary before the old one stops, and replication is behind: a release that
//! was answered by the old one may be unknown to the new one, where the lock would stay held until its
//! lease ends. The operation names the hold by its token, or the request, so repeating it harms nobody.

use crate::base::clock::Moment;
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::state::in_flight::Ticket;
use crate::state::standing::GuardState;
use crate::store::Scope;
use fairlock_core::{LockName, Op};
use std::sync::Arc;
use std::time::Duration;

/// How long a new server is told again that says "not now": a client that ends stays for as long.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// How many are under way at once.
const AT_ONCE: usize = 64;

/// Gives back once more what is of these locks, in the background. What is not answered is told to the next connection.
pub(crate) fn again(context: &Arc<Context>, scope: &Scope) {
    let all = context.recent_releases.found(scope);
    if all.is_empty() {
        return;
    }
    // The end of the client waits for it.
    let ticket = Ticket::new(&context.in_flight);
    let context = Arc::clone(context);
    context.runtime.clone().spawn(async move {
        let _ticket = ticket;
        for some in all.chunks(AT_ONCE) {
            let calls = some.iter().map(|(name, op)| {
                let (context, name, op) = (Arc::clone(&context), name.clone(), op.clone());
                tokio::spawn(async move {
                    if !newer_hold_is_known(&context, &name, &op).await {
                        return;
                    }
                    let until = Moment::now().plus(TOLD_WITHIN);
                    let mut copies = Copies::default();
                    // A fresh master refuses writes until its replicas are there.
                    let _ = send::until_answered(&context, &name, &op, until, &mut copies).await;
                })
            });
            for call in calls.collect::<Vec<_>>() {
                // A task that panicked has told nobody.
                let _ = call.await;
            }
        }
    });
}

/// The owner may hold the lock by now through another request, and the new server take its former hold for that one
/// until the first renewal is answered: what ends the former must not come before. Says whether it was answered in time;
/// if it was not, what is left of the former hold ends with the lease.
async fn newer_hold_is_known(context: &Context, name: &LockName, op: &Op) -> bool {
    let (Op::Release { owner, .. } | Op::Leave { owner, .. }) = op else { return true };
    let Some(hold) = context.owners.hold(name, owner) else { return true };
    tokio::time::timeout(TOLD_WITHIN, hold.state_changed(GuardState::Suspect)).await.is_ok()
}
