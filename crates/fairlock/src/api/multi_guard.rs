//! The guard of several locks, and closures that run under them.

use crate::api::guard::{self, Guard};
use crate::api::scoped::{Done, Held};
use crate::base::concurrent::first;
use crate::base::error::Error;
use crate::base::lost_reason::LostReason;
use crate::state::outcome::Release;
use crate::state::standing::GuardState;
use fairlock_core::Token as FencingToken;
use std::fmt;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;

/// Holds several locks until they are released or dropped, or one of them is lost: see
/// [`MultiLock`](crate::MultiLock). It is valid while all of the locks are.
#[must_use = "bind it to a named variable, `let _guard = ...`; `let _ = ...` releases at once"]
pub struct MultiGuard {
    /// In the order in which they were taken.
    guards: Vec<Guard>,
    named: Vec<usize>,
}

impl MultiGuard {
    pub(crate) fn new(guards: Vec<Guard>, named: Vec<usize>) -> Self {
        Self { guards, named }
    }

    /// Returns the guards of the locks, in the order in which the locks were named.
    pub fn guards(&self) -> impl ExactSizeIterator<Item = &Guard> {
        self.named.iter().map(|place| &self.guards[*place])
    }

    /// Returns the fencing token of the lock of this name; `None` if it is not a member, which is a mistake of the
    /// program: `.expect("a member")`. Pass each resource the token of its own lock: see [`Guard::token`].
    pub fn token(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        let is_meant = |guard: &&Guard| guard.name().as_bytes() == name.as_ref();
        self.guards.iter().find(is_meant).map(Guard::token)
    }

    /// Returns the worst state among the locks.
    pub fn state(&self) -> GuardState {
        self.guards.iter().map(Guard::state).max().unwrap_or(GuardState::Lost)
    }

    /// Returns how long all of the locks are valid without another renewal: see
    /// [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or(Duration::ZERO)
    }

    /// Returns why one of the locks was lost, if one was.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.guards.iter().find_map(Guard::lost_reason)
    }

    /// Waits until the worst state differs from `from`, and returns it.
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn state_changed(&self, from: GuardState) -> GuardState {
        loop {
            let states: Vec<_> = self.guards.iter().map(Guard::state).collect();
            let worst = states.iter().copied().max().unwrap_or(GuardState::Lost);
            if worst != from {
                return worst;
            }
            let guards = self.guards.iter().zip(states);
            first(guards.map(|(guard, state)| guard.state_changed(state))).await;
        }
    }

    /// Resolves as soon as one of the locks is lost.
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn lost(&self) {
        any_lost(self.guards.iter().map(Guard::lost)).await;
    }

    /// Checks that none of the locks is lost: see [`Guard::ensure_valid`].
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost), about the first lock that is lost.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.guards.iter().try_for_each(Guard::ensure_valid)
    }

    /// Releases all of the locks at once, and returns the worst outcome: `Lost` if one was lost, else `Unknown` if the
    /// outcome of one is unknown.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// As for [`Guard::release`]: each release continues in the background.
    pub async fn release(self) -> Result<Release, Error> {
        let outcomes = guard::release_all(self.guards).await;
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let worst = |outcome: &Release| match outcome {
            Release::Released => 0,
            Release::StillHeld(_) => 1,
            Release::Unknown => 2,
            Release::Lost => 3,
        };
        Ok(outcomes.into_iter().max_by_key(worst).unwrap_or(Release::Released))
    }

    /// Returns the guards themselves, in the order in which the locks were named, to end them one by one.
    pub fn into_guards(self) -> Vec<Guard> {
        let mut guards: Vec<_> = self.guards.into_iter().map(Some).collect();
        self.named.iter().filter_map(|place| guards[*place].take()).collect()
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.guards()).finish()
    }
}

/// The locks under which a closure of [`MultiLock::with`](crate::MultiLock::with) runs.
#[derive(Clone)]
pub struct MultiHeld(Vec<Held>);

impl MultiHeld {
    /// Returns each of the locks, in the order in which they were named.
    pub fn held(&self) -> &[Held] {
        &self.0
    }

    /// Returns the fencing token of the lock of this name: see [`MultiGuard::token`].
    pub fn token(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        let is_meant = |held: &&Held| held.name().as_bytes() == name.as_ref();
        self.0.iter().find(is_meant).map(Held::token)
    }

    /// Returns the worst state among the locks; `Lost` after the end of the closure.
    pub fn state(&self) -> GuardState {
        self.0.iter().map(Held::state).max().unwrap_or(GuardState::Lost)
    }

    /// Checks that none of the locks is lost: see [`Held::ensure_valid`].
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost).
    pub fn ensure_valid(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(Held::ensure_valid)
    }

    /// Resolves as soon as one of the locks is lost, or the closure has ended.
    ///
    /// # Cancel safety
    /// Nothing is changed by this call.
    pub async fn lost(&self) {
        any_lost(self.0.iter().map(Held::lost)).await;
    }
}

impl fmt::Debug for MultiHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// Runs `work` until it has a value, or one of the locks is lost: as for one lock.
pub(crate) async fn run<T, F, Fut>(guard: MultiGuard, work: F) -> Result<Done<T>, Error>
where
    F: FnOnce(MultiHeld) -> Fut,
    Fut: Future<Output = T>,
{
    let (open, is_open) = watch::channel(());
    let value = {
        let held = guard.guards().map(|guard| Held::new(guard, is_open.clone())).collect();
        drop(is_open);
        let mut work = pin!(work(MultiHeld(held)));
        tokio::select! {
            // A value that is ready matters more than the news of a loss.
            biased;
            value = &mut work => Ok(value),
            () = guard.lost() => Err(guard.ensure_valid()),
        }
    };
    drop(open);
    match value {
        Ok(value) => {
            // An error means that the client was shut down, so the outcome cannot be known.
            let release = guard.release().await.unwrap_or(Release::Unknown);
            Ok(Done { value, release })
        }
        // A lost lock stays lost, so there is an error.
        Err(lost) => Err(lost.err().unwrap_or_else(Error::closed)),
    }
}

/// Resolves when one of them is lost.
pub(crate) async fn any_lost<'a>(lost: impl Iterator<Item = impl Future<Output = ()> + Send + 'a>) {
    first(lost).await;
}
