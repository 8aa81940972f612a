//! The latch: a count that only falls, and opens at 0. It is no lock: nobody holds it, and it has no
//! queue, no token and no lease.
//!
//! The count is the string under the name, as Redisson's `RCountDownLatch` keeps it; absent means 0.
//! Beside it is a [`Latch`] of our own, which Redisson does not know: which latch of this name it is,
//! which one was last counted down to 0, and which requests were carried out.

use crate::id::RequestId;
use crate::op::{Answer, Body, Channel, CoreError, Effect, Payload};
use crate::rules::{Rules, TOKEN_LIMIT};
use crate::state::LockState;
use crate::value::SimpleValue;
use std::collections::BTreeMap;

/// The largest count: the largest number that is exact in a double, as in a script.
pub const LATCH_COUNT_MAX: u64 = TOKEN_LIMIT - 1;

/// How long a note is kept after its last change, in milliseconds. Waiters keep it alive while the
/// latch is closed.
pub const LATCH_NOTE_MS: u64 = 86_400_000;

/// One operation on a latch. Another copy of the same request does nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LatchOp {
    /// Sets the count, unless it is set.
    Set {
        /// From 1 to [`LATCH_COUNT_MAX`].
        count: u64,
        /// This attempt.
        request: RequestId,
    },
    /// Counts down by one.
    CountDown {
        /// This attempt.
        request: RequestId,
    },
    /// Removes the latch, whatever its count.
    Delete {
        /// This attempt.
        request: RequestId,
    },
    /// Looks at the latch.
    Look {
        /// For those who wait, the generation that they wait for, 0 before it is known: then the
        /// latch gets a note if it has none, and keeps it. `None` changes nothing.
        waiting: Option<u64>,
    },
}

impl LatchOp {
    /// The request, if it names one.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Set { request, .. } | Self::CountDown { request } | Self::Delete { request } => {
                Some(*request)
            }
            Self::Look { .. } => None,
        }
    }
}

/// The result of an operation on a latch, and the latch afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatchSeen {
    /// The request has set, counted down or removed the latch, in this copy or in another one.
    pub done: bool,
    /// The count; 0 if the latch is open.
    pub count: u64,
    /// Which latch of this name it is, or the last one was.
    pub generation: Option<u64>,
    /// The last one that was counted down to 0 by one of ours.
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
    /// It is not there, and nothing says that it was counted down: it was deleted, or lost with the
    /// store's data, or was never set.
    Gone,
}

/// What somebody who waits for a latch concludes from a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchFate {
    /// It waits for the latch of this generation.
    Closed(u64),
    /// The latch that it waits for is over.
    Over(Opened),
}

/// What a look means to somebody who waits for the latch `waits_for`, or for whichever there is when
/// this is the first look. `counted_down`: since the last look, a message said that a latch of this
/// name was counted down to 0.
pub fn latch_fate(waits_for: Option<u64>, seen: &LatchSeen, counted_down: bool) -> LatchFate {
    let present = seen.generation.unwrap_or(0);
    let mine = waits_for.unwrap_or(present);
    // A latch that was set after mine is not mine.
    if seen.count > 0 && mine == present {
        return LatchFate::Closed(present);
    }
    let is_noted = seen.opened.is_some_and(|opened| opened == mine);
    LatchFate::Over(if is_noted || counted_down { Opened::CountedDown } else { Opened::Gone })
}

/// What is kept of a latch besides its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Latch {
    /// Which latch it is.
    pub note: Option<LatchNote>,
    /// Requests that were carried out, and until when another copy of them does nothing.
    pub counted: BTreeMap<RequestId, u64>,
}

/// Which latch of a name it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LatchNote {
    /// Larger for a later latch of the same name: server microseconds unless the series ran ahead.
    pub generation: u64,
    /// The last generation that was counted down to 0.
    pub opened: Option<u64>,
    /// Who set it, if that was one of ours.
    pub set_by: Option<RequestId>,
    /// TTL, in server milliseconds since 1970.
    pub expires: u64,
}

impl LockState {
    /// What is kept of a latch of this name.
    pub fn latch(&self) -> Option<&Latch> {
        self.latch.as_deref()
    }

    /// Whether there is, or was, a latch of this name, and nothing of a lock.
    pub fn is_only_a_latch(&self) -> bool {
        self.latch.is_some() && self.keys.token.is_none()
    }

    /// Takes it out, for a store that keeps it elsewhere.
    pub fn take_latch(&mut self) -> Option<Latch> {
        self.latch.take().map(|latch| *latch)
    }

    /// Puts back what [`take_latch`](Self::take_latch) took.
    pub fn put_latch(&mut self, latch: Option<Latch>) {
        self.latch = latch.map(Box::new);
    }

    /// Drops what has outlived its TTL.
    pub(crate) fn expire_latch(&mut self, now_ms: u64) {
        let Some(latch) = &mut self.latch else { return };
        latch.counted.retain(|_, until| now_ms <= *until);
        latch.note.take_if(|note| now_ms > note.expires);
        if **latch == Latch::default() {
            self.latch = None;
        }
    }

    #[cold]
    pub(crate) fn apply_latch(
        &mut self,
        now_us: u64,
        op: &LatchOp,
        rules: &Rules,
    ) -> Result<(Answer, Vec<Effect>), CoreError> {
        let now_ms = now_us / 1_000;
        self.expire(now_ms);
        self.end_leases_unseen(now_ms);
        if !self.is_free() {
            return Err(CoreError::WrongType);
        }
        if let Some(shares) = self.shares.as_ref().filter(|shares| !shares.holds().is_empty()) {
            return Err(CoreError::InUse(shares.kind()));
        }
        let count = match &self.keys.value {
            None => None,
            Some(value) => Some(count_of(value).ok_or(CoreError::NotALatch)?),
        };
        let mut run =
            Run { now_us, now_ms, latch: self.take_latch().unwrap_or_default(), count, told: None };
        let repeated = op.request().is_some_and(|request| run.latch.counted.contains_key(&request));
        let done = match op {
            LatchOp::Set { request, .. } if repeated => run.was_set_by(*request),
            LatchOp::CountDown { .. } | LatchOp::Delete { .. } if repeated => true,
            LatchOp::Set { count, request } => run.set(*count, *request),
            LatchOp::CountDown { .. } => run.count_down(),
            LatchOp::Delete { .. } => run.delete(),
            LatchOp::Look { waiting } => {
                run.look(*waiting);
                false
            }
        };
        if let (Some(request), false) = (op.request(), repeated) {
            run.latch.counted.insert(request, now_ms + rules.bury_ms);
        }
        let Run { latch, count, told, .. } = run;
        if count.is_none() || matches!(op, LatchOp::Set { .. } if done && !repeated) {
            self.keys.value_expires = None;
        }
        self.keys.value = count.map(|n| SimpleValue::Foreign(n.to_string().into_bytes().into()));
        let note = latch.note.as_ref();
        let seen = LatchSeen {
            done,
            count: count.unwrap_or(0),
            generation: note.map(|note| note.generation),
            opened: note.and_then(|note| note.opened),
        };
        if latch != Latch::default() {
            self.put_latch(Some(latch));
        }
        let told = told.map(|payload| Effect { channel: Channel::Latch, payload });
        let body = Body::Latch(seen);
        let answer = Answer { now_ms, more: false, removed: 0, other_limit: false, body };
        Ok((answer, told.into_iter().collect()))
    }
}

/// The number that a latch's string is.
fn count_of(value: &SimpleValue) -> Option<u64> {
    let SimpleValue::Foreign(digits) = value else { return None };
    if digits.len() > 16 || digits.first() == Some(&b'0') || !digits.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    let count = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (1..=LATCH_COUNT_MAX).contains(&count).then_some(count)
}

/// One operation under way.
struct Run {
    now_us: u64,
    now_ms: u64,
    latch: Latch,
    count: Option<u64>,
    told: Option<Payload>,
}

impl Run {
    fn was_set_by(&self, request: RequestId) -> bool {
        self.latch.note.as_ref().is_some_and(|note| note.set_by == Some(request))
    }

    fn set(&mut self, count: u64, request: RequestId) -> bool {
        if self.count.is_some() {
            return false;
        }
        self.count = Some(count);
        self.begin(None, Some(request));
        self.told = Some(Payload::One);
        true
    }

    fn count_down(&mut self) -> bool {
        let Some(count) = self.count else { return false };
        if count > 1 {
            self.count = Some(count - 1);
            return true;
        }
        self.note_closed(None);
        let expires = self.now_ms + LATCH_NOTE_MS;
        if let Some(note) = &mut self.latch.note {
            note.opened = Some(note.generation);
            note.expires = expires;
        }
        self.count = None;
        self.told = Some(Payload::Zero);
        true
    }

    fn delete(&mut self) -> bool {
        let was_there = self.count.take().is_some();
        if was_there {
            self.told = Some(Payload::One);
        }
        was_there
    }

    fn look(&mut self, waiting: Option<u64>) {
        let (Some(known), Some(_)) = (waiting, self.count) else { return };
        self.note_closed(Some(known).filter(|known| *known > 0));
        let (now_ms, until) = (self.now_ms, self.now_ms + LATCH_NOTE_MS);
        if let Some(note) = &mut self.latch.note
            && note.expires < now_ms + LATCH_NOTE_MS / 2
        {
            note.expires = until;
        }
    }

    /// The closed latch gets a note that is about it: it may have been set by Redisson, or the note
    /// may be lost, which a waiter of that generation mends.
    fn note_closed(&mut self, known: Option<u64>) {
        let is_its_own = |note: &LatchNote| {
            note.opened != Some(note.generation)
                && known.is_none_or(|known| known <= note.generation)
        };
        if !self.latch.note.as_ref().is_some_and(is_its_own) {
            self.begin(known, None);
        }
    }

    /// Another latch begins: the one that is `known`, if that is later than the last one.
    fn begin(&mut self, known: Option<u64>, set_by: Option<RequestId>) {
        let before = self.latch.note.as_ref();
        let least = before.map_or(0, |note| note.generation + 1);
        let next = self.now_us.max(least);
        let generation = known.filter(|known| *known >= least).unwrap_or(next);
        let opened = before.and_then(|note| note.opened);
        let expires = self.now_ms + LATCH_NOTE_MS;
        self.latch.note = Some(LatchNote { generation, opened, set_by, expires });
    }
}
