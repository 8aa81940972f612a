//! Operations on the hold of a share, which is named by the request that got it.

use crate::id::RequestId;
use crate::op::{Kind, OfHold, Op, is_shared};

impl Op {
    /// Returns this operation on the hold that `request` got of a lock of this kind, as [`OfHold`] describes it. A hold
    /// of any other kind is identified by its owner and its token.
    #[must_use]
    #[inline]
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
