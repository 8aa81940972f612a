//! Operations on the hold of a share, which is named by the request that got it.

use crate::id::RequestId;
use crate::op::{Kind, Op, is_shared};

/// An operation on the hold of a share. Readers at the same time have one token, and an owner may be used again, so
/// owner and token do not identify the hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OfHold {
    /// The lock's kind.
    pub kind: Kind,
    /// The request that got the hold.
    pub request: RequestId,
    /// A store that has lost the hold's record takes the request of a renewal or a re-entry that it executes up to this
    /// server time, in milliseconds since 1970.
    pub not_after_ms: u64,
    /// A release, renewal, re-entry or downgrade.
    pub op: Op,
}

impl Op {
    /// Returns this operation on the hold that `request` got of a lock of this kind, as [`OfHold`] describes it. A hold
    /// that does not have a [`Share`] is identified by its owner and its token.
    #[must_use]
    pub fn of_hold(self, kind: Kind, request: RequestId, not_after_ms: u64) -> Self {
        match is_shared(kind) {
            true => Self::OfHold(Box::new(OfHold { kind, request, not_after_ms, op: self })),
            false => self,
        }
    }

    /// Returns the operation without what [`on`](Self::on) or [`of_hold`](Self::of_hold) added.
    pub fn bare(&self) -> &Self {
        match self {
            Self::OfShares(of) => &of.1,
            Self::OfHold(of) => &of.op,
            op => op,
        }
    }

    /// As [`bare`](Self::bare), for a change of the operation.
    pub fn bare_mut(&mut self) -> &mut Self {
        match self {
            Self::OfShares(of) => &mut of.1,
            Self::OfHold(of) => &mut of.op,
            op => op,
        }
    }

    /// Returns the operation without the kind that [`on`](Self::on) added, for a store that keeps all kinds under one
    /// name.
    pub fn without_kind(&self) -> &Self {
        match self {
            Self::OfShares(of) => &of.1,
            op => op,
        }
    }

    /// Returns the name of the share's hold that the operation is about, if it is about one.
    pub fn hold(&self) -> Option<&OfHold> {
        match self {
            Self::OfHold(of) => Some(of),
            _ => None,
        }
    }
}
