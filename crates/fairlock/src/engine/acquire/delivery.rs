//! A hold on its way to the caller.

use crate::engine::context::Context;
use crate::engine::release;
use crate::state::hold::Hold;
use crate::state::signals::TurnReporter;
use std::sync::Arc;

/// A hold that its caller has not seen yet. If the caller has gone, nobody ever sees it, and it is
/// released here.
pub(crate) struct Delivery {
    hold: Option<Arc<Hold>>,
    context: Arc<Context>,
    pub(super) reporter: Option<Arc<TurnReporter>>,
}

impl Delivery {
    pub(crate) fn new(hold: Arc<Hold>, context: &Arc<Context>) -> Self {
        Self { hold: Some(hold), context: Arc::clone(context), reporter: None }
    }

    /// Hands the hold to the caller, who makes a guard of it.
    pub(crate) fn accept(mut self) -> Option<Arc<Hold>> {
        self.hold.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if self.context.is_forked_child() {
            // The hold belongs to the parent.
            std::mem::forget((hold, Arc::clone(&self.context)));
            return;
        }
        let _closes = self.context.closes_on_panic();
        let (change, unattended) = hold.leave();
        if unattended {
            self.context.watchdog.forget(&hold);
        }
        release::release_later(&self.context, hold, change, self.reporter.take());
    }
}
