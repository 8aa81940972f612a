//! Work under a lock: a closure that is cancelled when the lock is lost.

use crate::api::guard::Guard;
use crate::base::error::{Error, ErrorKind};
use crate::base::lost_reason::LostReason;
use crate::state::hold::Hold;
use crate::state::outcome::Release;
use crate::state::standing::GuardState;
use fairlock_core::{LockName, OwnerId, Token as FencingToken};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The lock under which a closure of [`Lock::with`](crate::Lock::with) runs. Reports what a
/// [`Guard`] reports, but cannot release the lock. Once the closure is over, copies of this value
/// are Lost.
#[derive(Clone)]
pub struct Held {
    hold: Arc<Hold>,
    /// The sender is dropped when the closure is over.
    open: watch::Receiver<()>,
}

/// The result of a closure that ran under a lock, and of the lock's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done<T> {
    /// What the closure returned.
    pub value: T,
    /// The outcome of the release. [`Lost`](Release::Lost) means that others may have held the lock
    /// before the closure was over.
    pub release: Release,
}

impl Held {
    pub(crate) fn new(guard: &Guard, open: watch::Receiver<()>) -> Self {
        Self { hold: guard.hold(), open }
    }

    /// Returns the fencing token: larger than every token granted before on this lock.
    pub fn token(&self) -> FencingToken {
        self.hold.token
    }

    /// Returns the owner id, as it is written in the lock's key.
    pub fn owner(&self) -> &OwnerId {
        self.hold.owner()
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.hold.name
    }

    /// Returns how long the lock is valid without another renewal: see [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        if self.is_over() { Duration::ZERO } else { self.hold.remaining() }
    }

    /// Returns whether the lock still protects the resource. No I/O.
    pub fn state(&self) -> GuardState {
        if self.is_over() { GuardState::Lost } else { self.hold.state() }
    }

    /// Returns why the lock was lost; `None` if it is not lost, or if the closure was over first.
    /// No I/O.
    pub fn lost_reason(&self) -> Option<LostReason> {
        if self.is_over() { None } else { self.hold.lost_reason() }
    }

    /// Checks that the lock protects the resource at this moment. No I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if it does not.
    pub fn ensure_valid(&self) -> Result<(), Error> {
        if self.is_over() {
            let message = "the closure that ran under the lock is over, and the lock released";
            return Err(Error::new(ErrorKind::Lost, message).on(self.name()).by(self.owner()));
        }
        self.hold.ensure_valid()
    }

    /// Resolves when the lock is lost, or the closure is over.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) {
        let mut open = self.open.clone();
        tokio::select! {
            biased;
            () = self.hold.lost() => {}
            // Nothing is ever sent: this is the end of the channel.
            _ = open.changed() => {}
        }
    }

    fn is_over(&self) -> bool {
        self.open.has_changed().is_err()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("name", self.name())
            .field("owner", self.owner())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Runs `work` under `guard`, then releases it. However this ends (with a value, a loss or a panic,
/// or because it is dropped half way), the order is the same: the closure's future is dropped, its
/// [`Held`] is over, and the lock is released.
pub(crate) async fn run<T, F, Fut>(guard: Guard, work: F) -> Result<Done<T>, Error>
where
    F: FnOnce(Held) -> Fut,
    Fut: Future<Output = T>,
{
    let (open, is_open) = watch::channel(());
    let value = {
        let mut work = pin!(work(Held::new(&guard, is_open)));
        tokio::select! {
            // A value that is ready matters more than the news of a loss.
            biased;
            value = &mut work => value,
            () = guard.lost() => return Err(guard.hold().lost_error()),
        }
    };
    drop(open);
    // An error means that the client was shut down, so the outcome cannot be known.
    let release = guard.release().await.unwrap_or(Release::Unknown);
    Ok(Done { value, release })
}
