//! Several locks in one transaction: all of them, or none.

use super::file::HostFile;
use super::liveness::Kernel;
use super::store::{Done, Inner};
use crate::base::clock::Moment;
use crate::store::{StoreError, Taken};
use fairlock_core::{Answer, Body, Effect, LockName, Op, Rules, World};

/// The outcome of one acquisition.
pub(super) type Granted = (Answer, Vec<Effect>);

impl HostFile {
    /// Carries out all of these acquisitions in one transaction, if nobody waits for any of the locks and each of
    /// them is granted at once; otherwise changes nothing, and returns the index of the first that is not.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(super) fn apply_together(
        &mut self,
        asks: &[(LockName, Op)],
        rules: &Rules,
        worlds: &[impl World],
    ) -> Result<Result<Vec<Granted>, usize>, StoreError> {
        let done = self.transaction(|file| {
            let now_us = file.now_us();
            let mut granted = Vec::with_capacity(asks.len());
            for (which, ((name, op), world)) in asks.iter().zip(worlds).enumerate() {
                let mut lock = file.load(name)?;
                if lock.state.line().next().is_some() {
                    // That waiter may have to be notified, which is left to single operations.
                    return Ok(Err(which));
                }
                // The single operation will return the error, for its lock alone.
                let Ok(done) = lock.state.apply(now_us, op, rules, world) else {
                    return Ok(Err(which));
                };
                if !matches!(done.0.body, Body::Granted { .. }) {
                    return Ok(Err(which));
                }
                granted.push((done, lock));
            }
            let stored = asks
                .iter()
                .zip(granted)
                .map(|((name, _), (done, lock))| Ok((done, file.store(name, now_us, lock)?)));
            stored.collect::<Result<Vec<_>, StoreError>>().map(Ok)
        })?;
        let done = match done {
            Ok(done) => done,
            Err(which) => return Ok(Err(which)),
        };
        let kept = asks.iter().zip(done).map(|((name, _), (done, cached))| {
            self.keep(name, cached);
            done
        });
        Ok(Ok(kept.collect()))
    }
}

impl Inner {
    /// Takes all of these locks, if nobody holds or waits for any of them.
    pub(super) fn take_together(&self, asks: &[(LockName, Op)]) -> Result<Taken, StoreError> {
        let sent = Moment::now();
        let names = asks.iter().map(|(name, _)| name);
        let worlds: Vec<_> =
            names.map(|name| Kernel::new(&self.folder, self.client, name)).collect();
        let done = self.file()?.apply_together(asks, &self.rules, &worlds);
        worlds.into_iter().for_each(|world| self.bury(world));
        let done = match done? {
            Ok(done) => done,
            Err(which) => return Ok(Taken::None(Some(which))),
        };
        let replies = asks.iter().zip(done).map(|((name, _), (answer, effects))| {
            self.deliver(name, sent, Done { answer, effects, moved: Vec::new() })
        });
        Ok(Taken::All(replies.collect()))
    }
}
