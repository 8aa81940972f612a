//! A name that was last used as another kind works until somebody uses both at once. So the store remembers the kind of
//! the last grant, and a client that has had the lock as another kind warns.

use crate::base::clock::Moment;
use crate::base::error::ErrorKind;
use crate::engine::context::Context;
use crate::observe;
use crate::settings::server_checks::{Check, Reaction, Warning};
use crate::state::in_flight::InFlightCleanup;
use fairlock_core::{Kind, LockName, kind_label};
use std::sync::Arc;

impl Context {
    /// The lock was granted as this kind, at about this moment. The store learns of it in the background, once for each
    /// name.
    pub(crate) fn note_kind(self: &Arc<Self>, name: &LockName, kind: Kind, at: Moment) {
        if self.kinds.granted(name, kind, at.nanos())
            && self.config.on.to(Check::Kind) != Reaction::Ignore
            && !self.origin.is_forked_child()
        {
            // A shutdown waits for it: a short program warns, too.
            let in_flight = InFlightCleanup::new(&self.in_flight);
            let (context, name) = (Arc::clone(self), name.clone());
            self.spawn(async move {
                context.compare_kinds(&name, kind).await;
                drop(in_flight);
            });
        }
    }

    async fn compare_kinds(&self, name: &LockName, kind: Kind) {
        match self.store.note_kind(name, kind).await {
            Ok(Some(before)) if !are_one(before, kind) && self.kinds.warns(name) => {
                let [was, is] = [before, kind].map(kind_label);
                let message = format!(
                    "{name}: used as kind `{is}`, but last used as kind `{was}`; while a name is in use as one kind, \
                     users of the other are refused instead of waiting; use one kind for each name"
                );
                self.add_warning(Warning::new(Check::Kind, message));
                observe::kinds_differ(self.config.log_names, name, kind, before);
            }
            Err(failure) if failure.error.kind() == ErrorKind::Denied => self.kinds.deny(),
            // Nothing depends on it. The next client compares again.
            _ => {}
        }
    }
}

/// Whether users of the two wait for each other. Those of a fair and of a plain lock do, in no order.
fn are_one(one: Kind, other: Kind) -> bool {
    let is_hash = |kind| matches!(kind, Kind::Fair | Kind::Plain);
    one == other || is_hash(one) && is_hash(other)
}
