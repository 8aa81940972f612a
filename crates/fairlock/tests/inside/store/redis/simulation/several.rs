//! Applications that take several locks at once, and what the oracle has to know of that: some of them are held for
//! long, while the others are waited for, before any application has a guard.

use super::actors::{Actor, LOCKS, given};
use super::oracle::Oracle;
use crate::{Error, ErrorKind, Kind, MultiGuard, MultiLock, Release, Share};
use fairlock_core::LockName;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A task that takes several locks at once.
pub(super) struct Together {
    pub(super) peer: usize,
    names: Vec<LockName>,
}

impl Oracle {
    /// A task takes these locks, or some of them, from now on until [`Self::together_ended`].
    pub(super) fn together(&mut self, peer: usize, names: Vec<LockName>) -> u64 {
        self.next_want += 1;
        self.together.insert(self.next_want, Together { peer, names });
        self.next_want
    }

    /// It has all of them, or gives back what it has. That takes no longer than to learn of a grant.
    pub(super) fn together_ended(&mut self, number: u64) {
        let Some(Together { peer, names }) = self.together.remove(&number) else { return };
        let now = Instant::now();
        for name in names {
            let Some(lock) = self.locks.get_mut(&name) else { continue };
            let shares = lock.shares.granted.values_mut();
            for (_, _, at) in lock.granted.iter_mut().chain(shares).filter(|it| it.1 == peer) {
                *at = now;
            }
        }
    }

    /// Whether the client may hold this one for others that it waits for.
    pub(super) fn is_among_several(&self, peer: usize, name: &LockName) -> bool {
        self.together.values().any(|it| it.peer == peer && it.names.contains(name))
    }
}

impl Actor {
    /// Takes some of the locks with a line, named in any order.
    pub(super) async fn take_several(&mut self) {
        let has_line = |kind| matches!(kind, Kind::Fair | Kind::ReadWrite | Kind::Semaphore);
        let mut locks: Vec<_> = LOCKS.iter().filter(|(_, kind, _)| has_line(*kind)).collect();
        self.rng.shuffle(&mut locks);
        locks.truncate(self.rng.between(2, locks.len() as u64) as usize);
        let members: Vec<_> = locks.iter().map(|(name, kind, _)| self.of(name, *kind)).collect();
        let multi = self.client.multi_lock(members).expect("different locks");
        let multi = match self.rng.below(5) {
            0 => multi.lease(Duration::from_secs(self.rng.between(3, 9))),
            _ => multi,
        };
        let (began, peer, names) = (Instant::now(), self.peer, multi.names().cloned().collect());
        let number = self.world.with(|state| state.oracle.together(peer, names));
        let taken = self.take_all(&multi, number).await;
        self.world.with(|state| {
            for of in taken.iter().flatten().flat_map(MultiGuard::guards) {
                state.took(peer, &of.hold());
            }
            state.oracle.together_ended(number);
        });
        match taken {
            Ok(Some(guard)) => self.hold_all(guard).await,
            Ok(None) => {}
            Err(error) => self.failed(began, &error),
        }
    }

    async fn take_all(
        &mut self,
        multi: &MultiLock,
        number: u64,
    ) -> Result<Option<MultiGuard>, Error> {
        match self.rng.below(8) {
            0..3 => multi.lock().await.map(Some),
            3 => multi.try_lock().await,
            4 => multi.try_lock_for(self.some(20_000)).await,
            5 => given(self.rng.below(6), multi.lock()).await.transpose(),
            6 => tokio::time::timeout(self.some(6_000), multi.lock()).await.ok().transpose(),
            _ => {
                let (time, world) = (self.some(2_000), Arc::clone(&self.world));
                let done = multi.with(|held| async move {
                    world.with(|state| {
                        for of in held.held() {
                            state.oracle.seen(of.name(), of.owner(), of.token().get());
                        }
                        state.oracle.together_ended(number);
                    });
                    sleep(time).await;
                });
                match done.await {
                    Err(error) if error.kind() == ErrorKind::Lost => Ok(None),
                    done => done.map(|_| None),
                }
            }
        }
    }

    async fn hold_all(&mut self, guard: MultiGuard) {
        let ms = if self.rng.chance(10) { 40_000 } else { 1_200 };
        let until = Instant::now() + self.some(ms);
        while Instant::now() < until {
            sleep(Duration::from_millis(250)).await;
            if guard.ensure_valid().is_err() {
                break;
            }
            self.world.with(|state| {
                for of in guard.guards() {
                    // Permits do not fence.
                    if !matches!(of.hold().acquisition.share(), Share::Permits { .. }) {
                        state.oracle.write(self.peer, of.name(), of.token());
                    }
                }
            });
        }
        // Each of them is given back, whatever is known of the others.
        let calm = self.world.with(|state| {
            let given: Vec<_> =
                guard.guards().map(|of| state.oracle.gave_back(&of.hold())).collect();
            given.into_iter().all(|calm| calm)
        });
        match self.rng.below(4) {
            0 => drop(guard),
            1 => drop(given(self.rng.below(2), guard.release()).await),
            _ => {
                let names: Vec<_> = guard.guards().map(|of| of.name().to_string()).collect();
                let released = guard.release().await;
                if calm && !matches!(released, Ok(Release::Released)) {
                    self.world.with(|state| {
                        let names = names.join(", ");
                        let what = format!("{names}: {released:?} at the end of a calm hold");
                        state.oracle.violation(what);
                    });
                }
            }
        }
    }
}
