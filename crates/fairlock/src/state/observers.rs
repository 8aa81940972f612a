//! The observers of locks' holders, to be woken when something may have changed.

use crate::base::clock::lock;
use crate::store::Scope;
use fairlock_core::LockName;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The observers of a client.
#[derive(Default)]
pub(crate) struct Observers(Mutex<BTreeMap<LockName, Vec<Arc<Notify>>>>);

impl Observers {
    /// A new observer of this lock.
    pub(crate) fn join(&self, name: &LockName) -> Arc<Notify> {
        let news = Arc::new(Notify::new());
        lock(&self.0).entry(name.clone()).or_default().push(Arc::clone(&news));
        news
    }

    /// Ends what [`join`](Self::join) began.
    pub(crate) fn leave(&self, name: &LockName, news: &Arc<Notify>) {
        let mut observers = lock(&self.0);
        if let Some(those) = observers.get_mut(name) {
            those.retain(|other| !Arc::ptr_eq(other, news));
            if those.is_empty() {
                observers.remove(name);
            }
        }
    }

    /// A message about this lock.
    pub(crate) fn wake(&self, name: &LockName) {
        for news in lock(&self.0).get(name).into_iter().flatten() {
            news.notify_one();
        }
    }

    /// Messages about these locks may have been missed.
    pub(crate) fn check(&self, scope: &Scope) {
        let names: Vec<_> = lock(&self.0).keys().cloned().collect();
        // Outside the mutex: the scope asks the store.
        names.iter().filter(|name| scope.has(name)).for_each(|name| self.wake(name));
    }
}
