//! A hold that was left to the store: nobody renews or releases it.

use crate::base::clock::Moment;
use crate::state::hold::Hold;
use fairlock_core::{LockName, OwnerId, Token as FencingToken};
use std::time::Duration;

/// A lock that stays held until its lease ends: the result of
/// [`Guard::detach`](crate::Guard::detach). Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Detached {
    name: LockName,
    owner: OwnerId,
    token: FencingToken,
    until: Moment,
}

impl Detached {
    /// For `hold`, which lasts at least until `until`.
    pub(crate) fn new(hold: &Hold, until: Moment) -> Self {
        let (name, owner) = (hold.name.clone(), hold.owner().clone());
        Self { name, owner, token: hold.token, until }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the owner id, as it is written in the lock's key.
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// Returns the fencing token.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns how much longer the lock stays held at least, by this machine's clock; zero once
    /// that time is over. Does not reflect what an operator does to the lock.
    pub fn remaining(&self) -> Duration {
        self.until.left()
    }
}
