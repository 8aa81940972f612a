//! Makes and keeps up the announcement of an election's leader: a store may lose it, and a server
//! that takes over may lack it. None of this decides who leads.

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::context::Context;
use crate::engine::release;
use crate::engine::send::{self, Copies};
use crate::state::hold::Hold;
use crate::state::standing::GuardState;
use fairlock_core::client::Loss;
use fairlock_core::{Announce, Body, Leadership, LockName, Op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long an announcement outlives the leader's last call, or its lease if that is longer. It
/// counts only as long as the lease lasts, so this only bounds the leftovers of a dead leader.
const KEPT: Duration = Duration::from_secs(60);

/// How often it is repeated: it is back that soon after a store has lost it.
const KEPT_EVERY: Duration = Duration::from_secs(20);

/// How long a term lasts without a sign of life.
pub(crate) struct Patience {
    /// When the program last touched its term, as nanoseconds of a [`Moment`].
    touched: AtomicU64,
    /// How long the term lasts without that.
    patience: Option<Duration>,
}

impl Patience {
    pub(crate) fn new(patience: Option<Duration>) -> Self {
        Self { touched: AtomicU64::new(Moment::now().nanos()), patience }
    }

    pub(crate) fn touch(&self) {
        self.touched.fetch_max(Moment::now().nanos(), Ordering::Relaxed);
    }

    /// Resolves when the program has not touched its term for too long.
    async fn untouched(&self) {
        let Some(patience) = self.patience else { return std::future::pending().await };
        loop {
            let touched = Moment::at_nanos(self.touched.load(Ordering::Relaxed));
            let left = touched.plus(patience).left();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// Sends the present announcement of the hold to the store.
///
/// # Errors
/// [`Lost`](crate::ErrorKind::Lost), or the store's.
pub(crate) async fn announce(context: &Arc<Context>, hold: &Hold) -> Result<(), Error> {
    let Some((change, value)) = hold.announced() else { return Ok(()) };
    let kept = KEPT.max(hold.lease().whole());
    let op = Op::Announce(Box::new(Announce {
        owner: hold.owner().clone(),
        token: hold.token,
        change,
        ttl_ms: u64::try_from(kept.as_millis()).unwrap_or(u64::MAX),
        value,
    }));
    let until = hold.valid_until().min(context.store_deadline());
    let mut copies = Copies::default();
    let reply = send::until_answered(context, &hold.name, &op, until, &mut copies).await?;
    match reply.answer.body {
        // A later change of this hold is known there already.
        Body::Announced | Body::Stale => Ok(()),
        Body::NotHeld { holder } => {
            hold.lose_to(holder);
            Err(hold.lost_error())
        }
        _ => Err(Error::mismatch().on(&hold.name)),
    }
}

/// Keeps the announcement as long as its hold lasts, and ends the hold if the program hangs.
pub(crate) async fn keep(context: Arc<Context>, hold: Arc<Hold>, patience: Arc<Patience>) {
    tokio::select! {
        biased;
        () = patience.untouched() => give_up(&context, &hold),
        () = keep_announced(&context, &hold) => {}
        () = context.closed() => {}
    }
}

async fn keep_announced(context: &Arc<Context>, hold: &Hold) {
    let mut state = hold.state();
    while state != GuardState::Lost {
        let before = state;
        let is_due = tokio::select! {
            biased;
            now = hold.state_changed(before) => {
                state = now;
                // The connection was lost and is back, perhaps to a server that lacks the
                // announcement.
                before == GuardState::Suspect && now == GuardState::Held
            }
            () = tokio::time::sleep(KEPT_EVERY) => true,
        };
        if is_due {
            // A failed announcement is made up for by the next one.
            let _ = announce(context, hold).await;
        }
    }
    // The program may still be working, and is no longer asked for a sign of life.
}

/// The program hangs: its term is lost, and the next one may lead.
fn give_up(context: &Arc<Context>, hold: &Arc<Hold>) {
    if hold.state() != GuardState::Lost {
        hold.lose(Loss::Untouched);
        context.watchdog.forget(hold);
        // Not awaited: if the store cannot be reached, the hold ends with its lease.
        drop(release::take_back(context, &hold.name, hold.acquisition.leave(true), None, true));
    }
}

/// Who leads.
///
/// # Errors
/// The store's.
pub(crate) async fn look(context: &Arc<Context>, name: &LockName) -> Result<Leadership, Error> {
    let until = context.store_deadline();
    let mut copies = Copies::default();
    match send::until_answered(context, name, &Op::Leader, until, &mut copies).await?.answer.body {
        Body::Leader(seen) => Ok(*seen),
        _ => Err(Error::mismatch().on(name)),
    }
}
