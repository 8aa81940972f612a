//! All locks of one process, by name.

use crate::id::LockName;
use crate::op::{Answer, CoreError, Effect, Op};
use crate::rules::{Rules, World};
use crate::state::LockState;
use std::collections::HashMap;

/// The table is swept when it has grown beyond this many locks, and beyond twice what the last
/// sweep left: amortised O(1) for each operation, memory within twice the live locks.
const SWEEP_AT: usize = 1_024;

/// Every lock of an embedded store, each with a note that the store keeps.
#[derive(Clone, Debug, Default)]
pub struct Model<N = ()> {
    locks: HashMap<LockName, (LockState, N)>,
    sweep_at: usize,
}

impl<N: Default> Model<N> {
    /// Executes `op` on the lock `name` at `now_us` (microseconds since 1970).
    ///
    /// # Errors
    /// Those of [`LockState::apply`].
    pub fn apply(
        &mut self,
        now_us: u64,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
    ) -> Result<(Answer, Vec<Effect>), CoreError> {
        self.apply_then(now_us, name, op, rules, world, |_, _| ())
            .map(|(answer, effects, ())| (answer, effects))
    }

    /// Like [`apply`](Self::apply), and also returns the result of `then` on the lock and its note
    /// afterwards.
    ///
    /// # Errors
    /// Those of [`LockState::apply`].
    #[inline]
    pub fn apply_then<T>(
        &mut self,
        now_us: u64,
        name: &LockName,
        op: &Op,
        rules: &Rules,
        world: &dyn World,
        then: impl FnOnce(&LockState, &mut N) -> T,
    ) -> Result<(Answer, Vec<Effect>, T), CoreError> {
        if let Some((lock, note)) = self.locks.get_mut(name) {
            let (answer, effects) = lock.apply(now_us, op, rules, world)?;
            return Ok((answer, effects, then(lock, note)));
        }
        self.sweep(now_us / 1_000);
        let (lock, note) = self.locks.entry(name.clone()).or_default();
        let (answer, effects) = lock.apply(now_us, op, rules, world)?;
        Ok((answer, effects, then(lock, note)))
    }

    /// Returns the lock `name`, if it was used and has not been forgotten since.
    pub fn get(&self, name: &LockName) -> Option<&LockState> {
        self.locks.get(name).map(|(lock, _)| lock)
    }

    /// Returns the note on the lock `name`.
    pub fn note_mut(&mut self, name: &LockName) -> Option<&mut N> {
        self.locks.get_mut(name).map(|(_, note)| note)
    }

    /// Returns the first `limit` names after `after`, in byte order: locks that are held or waited
    /// for, and free ones that are not forgotten yet. Looks at all locks, whatever the limit.
    pub fn names(&self, after: Option<&LockName>, limit: usize) -> Vec<LockName> {
        let behind = self.locks.keys().filter(|name| after.is_none_or(|after| *name > after));
        let mut names: Vec<_> = behind.collect();
        if names.len() > limit {
            names.select_nth_unstable(limit);
            names.truncate(limit);
        }
        names.sort_unstable();
        names.into_iter().cloned().collect()
    }

    /// Forgets locks that nobody uses. Their token goes with them: the next one is taken from the
    /// time, so the series still rises.
    fn sweep(&mut self, now_ms: u64) {
        if self.locks.len() < self.sweep_at.max(SWEEP_AT) {
            return;
        }
        self.locks.retain(|_, (lock, _)| {
            lock.expire(now_ms);
            lock.end_leases_unseen(now_ms);
            // A series that ran ahead of the clock would fall.
            let ahead = lock.snapshot().token.is_some_and(|last| last / 1_000 > now_ms);
            ahead || !lock.is_idle()
        });
        self.sweep_at = self.locks.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Kind;

    struct Nobody;

    impl World for Nobody {
        fn inbox(&self, _: crate::id::ClientId) -> bool {
            false
        }

        fn listening(&self, _: &crate::id::OwnerId) -> bool {
            false
        }
    }

    #[test]
    fn names_come_in_pages() {
        let mut model: Model = Model::default();
        let name = |text: &str| LockName::new(text.as_bytes()).unwrap();
        for text in ["d", "a", "c", "e", "b"] {
            let look = Op::Inspect { kind: Kind::Fair, limit: 0 };
            model.apply(1, &name(text), &look, &Rules::default(), &Nobody).unwrap();
        }
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let page = model.names(after.as_ref(), 2);
            pages.push(page.iter().map(ToString::to_string).collect::<Vec<_>>().concat());
            let Some(last) = page.into_iter().next_back() else { break };
            after = Some(last);
        }
        assert_eq!(pages, ["ab", "cd", "e", ""]);
        assert_eq!(model.names(None, 5).len(), 5);
        assert_eq!(model.names(Some(&name("b")), 9).len(), 3);
    }
}
