//! A guard's part of a hold, on its way to the caller.

use crate::base::clock::lock;
use crate::engine::context::Context;
use crate::engine::release;
use crate::state::hold::Part;
use crate::state::signals::TurnReporter;
use std::sync::{Arc, Mutex};

/// A part of a hold that its caller has not seen yet. If the caller has gone, nobody ever sees it,
/// and it is released here.
pub(crate) struct Delivery {
    part: Option<Part>,
    /// Where the part is instead, if other guards of the hold would count it.
    parcel: Option<Arc<Parcel>>,
    context: Arc<Context>,
    pub(super) reporter: Option<Arc<TurnReporter>>,
}

/// What a request of an explicit owner has got. Its caller gives it back from its own thread when it
/// goes: the owner's other guards must not count it until the client's thread notices.
pub(crate) struct Parcel {
    context: Arc<Context>,
    reporter: Option<Arc<TurnReporter>>,
    content: Mutex<Content>,
}

enum Content {
    Nothing,
    Part(Part),
    /// The caller has gone.
    Refused,
}

impl Delivery {
    pub(super) fn new(part: Part, context: &Arc<Context>) -> Self {
        Self { part: Some(part), parcel: None, context: Arc::clone(context), reporter: None }
    }

    /// Hands the part to the caller, who makes a guard of it.
    pub(crate) fn accept(mut self) -> Option<Part> {
        self.take()
    }

    fn take(&mut self) -> Option<Part> {
        match &self.parcel {
            Some(parcel) => parcel.take(Content::Nothing),
            None => self.part.take(),
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.context.is_forked_child() {
            // The hold belongs to the parent.
            std::mem::forget((self.part.take(), self.parcel.take(), Arc::clone(&self.context)));
            return;
        }
        if let Some(part) = self.take() {
            give_back(&self.context, part, self.reporter.take());
        }
    }
}

impl Parcel {
    pub(super) fn new(context: &Arc<Context>, reporter: Option<Arc<TurnReporter>>) -> Arc<Self> {
        let (context, content) = (Arc::clone(context), Mutex::new(Content::Nothing));
        Arc::new(Self { context, reporter, content })
    }

    /// Obtains a part for the caller; `None` if the caller has gone, and nothing is obtained.
    pub(super) fn fill<R>(
        self: &Arc<Self>,
        obtain: impl FnOnce() -> (Option<Part>, R),
    ) -> Option<(Option<Delivery>, R)> {
        let mut content = lock(&self.content);
        if matches!(*content, Content::Refused) {
            return None;
        }
        let (part, result) = obtain();
        let delivery = part.map(|part| {
            *content = Content::Part(part);
            let (parcel, context) = (Some(Arc::clone(self)), Arc::clone(&self.context));
            Delivery { part: None, parcel, context, reporter: self.reporter.clone() }
        });
        Some((delivery, result))
    }

    /// The caller has gone.
    pub(super) fn refuse(&self) {
        // In a forked child, the copy of the mutex may be locked for ever.
        if self.context.is_forked_child() {
            return;
        }
        if let Some(part) = self.take(Content::Refused) {
            give_back(&self.context, part, self.reporter.clone());
        }
    }

    fn take(&self, leaves: Content) -> Option<Part> {
        let mut content = lock(&self.content);
        let leaves = if matches!(*content, Content::Refused) { Content::Refused } else { leaves };
        match std::mem::replace(&mut *content, leaves) {
            Content::Part(part) => Some(part),
            Content::Nothing | Content::Refused => None,
        }
    }
}

fn give_back(context: &Arc<Context>, part: Part, reporter: Option<Arc<TurnReporter>>) {
    let _closes = context.closes_on_panic();
    let end = part.leave();
    if end.unattended {
        context.watchdog.forget(&part.hold);
    }
    release::release_later(context, part.hold, end, reporter);
}
