//! The meaning of a reply to the sender of the operation.

use super::Acquisition;
use crate::id::OwnerId;
use crate::op::{Body, Grant, has_queue};

/// A reply that does not belong to the operation that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mismatch;

/// The reply to [`Op::Acquire`](crate::Op::Acquire).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Acquired {
    /// The present request holds the lock.
    Granted(Grant),
    /// The request waits in the queue.
    Queued {
        /// Its order number.
        order: u64,
        /// Something may change after this many milliseconds without a call.
        retry_ms: Option<u64>,
        /// A foreign client holds the lock or waits.
        foreign: bool,
        /// How many waited right after it entered, itself included.
        length: u64,
    },
    /// Somebody else holds the lock.
    Taken {
        /// Remaining TTL of the holder in milliseconds, if there is a holder with a TTL.
        ttl_ms: Option<u64>,
        /// The holder notifies nobody when it releases the lock.
        foreign: bool,
    },
    /// The owner, which other requests use as well, has a former hold of it: one that was given up,
    /// or lost.
    FormerHold,
}

/// Why the store did nothing for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// It arrived too late by the store's clock.
    TooLate,
    /// It was given up before.
    Buried,
    /// Its owner, which no other request uses, has the lock.
    HeldBySelf,
    /// The reply belongs to another operation.
    Mismatch,
}

impl Acquisition {
    /// Reads a reply to the present request.
    ///
    /// # Errors
    /// If nothing was done.
    pub fn acquired(&self, body: Body) -> Result<Acquired, Refused> {
        let has_queue = has_queue(self.kind());
        Ok(match body {
            Body::Granted { token, ttl_ms } => {
                Acquired::Granted(Grant { request: self.request(), token, ttl_ms })
            }
            // Also by a request whose grant was over before it could be used: see [`Self::again`].
            Body::GrantedBefore(grant) if self.may_have(grant.request) => Acquired::Granted(grant),
            Body::Queued { order, retry_ms, foreign, length } if has_queue => {
                Acquired::Queued { order, retry_ms, foreign, length }
            }
            Body::Busy { ttl_ms } => Acquired::Taken { ttl_ms, foreign: false },
            Body::Taken { ttl_ms, foreign } if !has_queue => Acquired::Taken { ttl_ms, foreign },
            Body::HeldBySelf { .. } if self.has_shared_owner() => Acquired::FormerHold,
            Body::HeldBySelf { .. } => return Err(Refused::HeldBySelf),
            Body::TooLate => return Err(Refused::TooLate),
            Body::Buried => return Err(Refused::Buried),
            _ => return Err(Refused::Mismatch),
        })
    }
}

/// The reply to [`Op::Renew`](crate::Op::Renew).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// The hold has the requested TTL.
    Whole,
    /// The hold is gone.
    Gone {
        /// Who holds the lock instead, if anybody does.
        holder: Option<OwnerId>,
    },
}

impl Renewed {
    /// Reads a reply to a renewal.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn of(body: Body) -> Result<Self, Mismatch> {
        match body {
            Body::Renewed => Ok(Self::Whole),
            Body::NotHeld { holder } => Ok(Self::Gone { holder }),
            _ => Err(Mismatch),
        }
    }
}

/// The reply to a change of the hold count: [`Op::Release`](crate::Op::Release) and
/// [`Op::Reenter`](crate::Op::Reenter).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// The last guard was released.
    Released,
    /// The hold continues with this count.
    StillHeld(u32),
    /// The store already has a later change.
    Stale,
    /// The hold is gone.
    Gone {
        /// Who holds the lock instead, if anybody does.
        holder: Option<OwnerId>,
    },
}

impl Counted {
    /// Reads a reply to a change.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn of(body: Body) -> Result<Self, Mismatch> {
        Ok(match body {
            Body::Released => Self::Released,
            Body::StillHeld { count } => Self::StillHeld(count),
            Body::Stale => Self::Stale,
            Body::NotHeld { holder } => Self::Gone { holder },
            _ => return Err(Mismatch),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, Kind, Mode, RequestId, Token};

    fn acquisition(kind: Kind, shared_owner: bool) -> Acquisition {
        let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
        let request = RequestId::from_random(1);
        Acquisition::new(kind, owner, Mode::Wait, 30_000, shared_owner, request)
    }

    fn bodies() -> Vec<Body> {
        let token = Token::new(5).expect("a token");
        let queued = Body::Queued { order: 1, retry_ms: Some(2), foreign: true, length: 3 };
        let beaten = Body::Beaten { held: None, queued: vec![], retry_ms: None, foreign: false };
        vec![
            Body::Granted { token, ttl_ms: 30_000 },
            queued,
            Body::Busy { ttl_ms: None },
            Body::Taken { ttl_ms: Some(1), foreign: true },
            Body::HeldBySelf { count: 1 },
            Body::TooLate,
            Body::Buried,
            Body::Released,
            Body::StillHeld { count: 2 },
            Body::Stale,
            Body::NotHeld { holder: None },
            Body::Renewed,
            Body::Left,
            Body::Freed,
            Body::Nothing,
            beaten,
            Body::Nudged,
        ]
    }

    /// The places in [`bodies`] of those that `understood` takes for an answer.
    fn understood(understood: impl Fn(Body) -> bool) -> Vec<usize> {
        let all = bodies().into_iter().enumerate();
        all.filter(|(_, body)| understood(body.clone())).map(|(place, _)| place).collect()
    }

    /// A server, or whatever stands before it, that mixes replies up is noticed, whatever was asked.
    #[test]
    fn a_reply_to_another_operation_is_a_mismatch() {
        let fair = acquisition(Kind::Fair, false);
        let is_answer = |body| fair.acquired(body) != Err(Refused::Mismatch);
        assert_eq!(understood(is_answer), [0, 1, 2, 4, 5, 6]);
        let simple = acquisition(Kind::Simple, false);
        let is_answer = |body| simple.acquired(body) != Err(Refused::Mismatch);
        assert_eq!(understood(is_answer), [0, 2, 3, 4, 5, 6]);
        assert_eq!(understood(|body| Renewed::of(body).is_ok()), [10, 11]);
        assert_eq!(understood(|body| Counted::of(body).is_ok()), [7, 8, 9, 10]);
    }

    /// Only requests that share their owner may find a hold of it that they did not ask for.
    #[test]
    fn a_hold_of_the_owner_is_a_former_one_only_if_the_owner_is_shared() {
        let own = |shared| acquisition(Kind::Fair, shared).acquired(Body::HeldBySelf { count: 1 });
        assert_eq!(own(true), Ok(Acquired::FormerHold));
        assert_eq!(own(false), Err(Refused::HeldBySelf));
    }

    #[test]
    fn a_grant_is_for_the_present_request() {
        let mut acquisition = acquisition(Kind::Fair, false);
        acquisition.queued(5);
        acquisition.return_to_place(RequestId::from_random(2));
        let answer = acquisition.acquired(bodies().swap_remove(0));
        let Ok(Acquired::Granted(grant)) = answer else { panic!("{answer:?}") };
        assert_eq!(grant.request, RequestId::from_random(2));
    }
}
