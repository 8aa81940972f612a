//! The latch: a count that only falls, and opens at 0. It is not a lock: nobody holds it, and it
//! has no queue, no token and no lease.
//!
//! The count is the string under the name, as Redisson's `RCountDownLatch` keeps it. No string
//! means 0. Beside it is a [`Latch`] of our own, unknown to Redisson. It records which latch of
//! this name exists, which one was last counted down to 0, and which requests were carried out.

use crate::id::RequestId;
use crate::rules::TOKEN_LIMIT;
use std::collections::BTreeMap;

/// The largest count: the largest number that is exact in a double, as in a script.
pub const LATCH_COUNT_MAX: u64 = TOKEN_LIMIT - 1;

/// How long a note is kept after its last change, in milliseconds. While the latch is closed,
/// waiters keep the note alive.
pub const LATCH_NOTE_MS: u64 = 86_400_000;

/// One operation on a latch. A further copy of the same request changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LatchOp {
    /// Sets the count, unless it is set.
    Set {
        /// From 1 to [`LATCH_COUNT_MAX`].
        count: u64,
        /// This attempt.
        request: LatchRequest,
    },
    /// Counts down by one.
    CountDown {
        /// This attempt.
        request: LatchRequest,
    },
    /// Removes the latch, whatever its count.
    Delete {
        /// This attempt.
        request: LatchRequest,
    },
    /// Looks at the latch.
    Look {
        /// For a waiter, the generation that it waits for, or 0 before the generation is known: the
        /// latch then gets a note if it has none, and keeps it. `None` changes nothing.
        waiting: Option<u64>,
    },
}

impl LatchOp {
    /// Returns the request, if the operation names one.
    pub fn request(&self) -> Option<LatchRequest> {
        self.clone().request_mut().copied()
    }

    /// Returns the request, to change it.
    pub fn request_mut(&mut self) -> Option<&mut LatchRequest> {
        match self {
            Self::Set { request, .. } | Self::CountDown { request } | Self::Delete { request } => {
                Some(request)
            }
            Self::Look { .. } => None,
        }
    }
}

/// An attempt to change a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LatchRequest {
    /// The same in every copy that is sent.
    pub id: RequestId,
    /// Refused if executed for the first time later than this server time (milliseconds since 1970).
    pub not_after_ms: u64,
}

/// The result of an operation on a latch, and the latch afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatchSeen {
    /// The request has set, counted down or removed the latch, in this copy or in another one.
    pub done: bool,
    /// The count, 0 if the latch is open; for another copy of a request, the count after the first
    /// copy.
    pub count: u64,
    /// Which latch of this name exists, or existed last.
    pub generation: Option<u64>,
    /// The last latch of this name that a client of ours counted down to 0.
    pub opened: Option<u64>,
}

/// How a latch opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Opened {
    /// It was counted down to 0.
    CountedDown,
    /// It does not exist, and nothing shows that it was counted down: it was deleted, or lost with
    /// the store's data, or was never set.
    Gone,
}

/// A waiter's conclusion from a look at a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchFate {
    /// It waits for the latch of this generation.
    Closed(u64),
    /// The latch that it waits for is over.
    Over(Opened),
}

/// Returns what a look means to a waiter for the latch `waits_for`, or for the present latch if
/// this is its first look. `counted_down`: since the waiter's last look, a message has reported that
/// a latch of this name was counted down to 0; if a latch is there now, also that it was set after that. If
/// that was a later latch, the message has no effect.
pub fn latch_fate(waits_for: Option<u64>, seen: &LatchSeen, counted_down: bool) -> LatchFate {
    let present = seen.generation.unwrap_or(0);
    let mine = waits_for.unwrap_or(present);
    // Java's count-downs leave no note. If the note is about another latch, or lost, the message may be, too.
    let is_told = counted_down && waits_for.is_some() && seen.generation == waits_for;
    // A latch that was set after mine is not mine; Java sets one under the same generation.
    if seen.count > 0 && mine == present && !is_told {
        return LatchFate::Closed(present);
    }
    let is_noted = seen.opened.is_some_and(|opened| opened == mine);
    LatchFate::Over(if is_noted || is_told { Opened::CountedDown } else { Opened::Gone })
}

/// The record of a latch besides its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Latch {
    /// Which latch it is.
    pub note: Option<LatchNote>,
    /// Requests that were carried out.
    pub counted: BTreeMap<RequestId, Counted>,
}

/// The result of a request, which another copy of it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Until when the result is kept, in server milliseconds since 1970: at least until the last
    /// moment at which a copy may be carried out.
    pub until: u64,
    /// Whether it has changed the latch.
    pub done: bool,
    /// The count that it left.
    pub count: u64,
}

/// Identifies one of the latches of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LatchNote {
    /// Larger for a later latch of the same name: server microseconds unless the series ran ahead.
    pub generation: u64,
    /// The last generation that was counted down to 0.
    pub opened: Option<u64>,
    /// TTL, in server milliseconds since 1970.
    pub expires: u64,
}
