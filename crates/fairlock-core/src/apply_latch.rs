//! The operations on a latch.

use crate::latch::{Counted, LATCH_COUNT_MAX, LATCH_NOTE_MS, Latch, LatchNote, LatchOp, LatchSeen};
use crate::op::{Answer, Body, Channel, CoreError, Effect, Payload};
use crate::rules::Rules;
use crate::state::LockState;
use crate::value::SimpleValue;

impl LockState {
    /// Returns the record of a latch of this name.
    pub fn latch(&self) -> Option<&Latch> {
        self.latch.as_deref()
    }

    /// Returns whether the name has, or had, a latch, and nothing that belongs to a lock.
    pub fn is_only_a_latch(&self) -> bool {
        self.latch.is_some() && self.keys.token.is_none()
    }

    /// Takes the latch's record out, for a store that keeps it elsewhere.
    pub fn take_latch(&mut self) -> Option<Latch> {
        self.latch.take().map(|latch| *latch)
    }

    /// Puts back what [`take_latch`](Self::take_latch) took.
    pub fn put_latch(&mut self, latch: Option<Latch>) {
        self.latch = latch.map(Box::new);
    }

    /// Drops everything that has outlived its TTL.
    pub(crate) fn expire_latch(&mut self, now_ms: u64) {
        let Some(latch) = &mut self.latch else { return };
        latch.counted.retain(|_, counted| now_ms <= counted.until);
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
            // A count has no TTL. A number that has one may be another program's lock.
            Some(_) if self.keys.value_expires.is_some() => return Err(CoreError::NotALatch),
            Some(value) => Some(count_of(value).ok_or(CoreError::NotALatch)?),
        };
        let latch = self.take_latch().unwrap_or_default();
        let mut run = Run { now_us, now_ms, latch, count, told: None };
        let (done, left) = match (op.request(), op) {
            (Some(request), _) if let Some(first) = run.latch.counted.get(&request.id) => {
                (first.done, first.count)
            }
            (Some(request), _) if now_ms > request.not_after_ms => {
                self.put_back(run.latch);
                return Ok((answer(now_ms, Body::TooLate), Vec::new()));
            }
            (_, op) => {
                let done = run.carry_out(op);
                let count = run.count.unwrap_or(0);
                if let Some(request) = op.request() {
                    let until = request.not_after_ms.max(now_ms + rules.bury_ms);
                    run.latch.counted.insert(request.id, Counted { until, done, count });
                }
                (done, count)
            }
        };
        let Run { latch, count, told, .. } = run;
        self.keys.value = count.map(|n| SimpleValue::Foreign(n.to_string().into_bytes().into()));
        let note = latch.note.as_ref();
        let seen = LatchSeen {
            done,
            count: left,
            generation: note.map(|note| note.generation),
            opened: note.and_then(|note| note.opened),
        };
        self.put_back(latch);
        let told = told.map(|payload| Effect { channel: Channel::Latch, payload });
        Ok((answer(now_ms, Body::Latch(seen)), told.into_iter().collect()))
    }

    fn put_back(&mut self, latch: Latch) {
        self.put_latch(Some(latch).filter(|latch| *latch != Latch::default()));
    }
}

fn answer(now_ms: u64, body: Body) -> Answer {
    Answer { now_ms, more: false, removed: 0, other_limit: false, body }
}

/// Parses a latch's string as a number.
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
    /// Returns whether it changed the latch.
    fn carry_out(&mut self, op: &LatchOp) -> bool {
        match op {
            LatchOp::Set { count, .. } => self.set(*count),
            LatchOp::CountDown { .. } => self.count_down(),
            LatchOp::Delete { .. } => self.delete(),
            LatchOp::Look { waiting } => {
                self.look(*waiting);
                false
            }
        }
    }

    fn set(&mut self, count: u64) -> bool {
        if self.count.is_some() {
            return false;
        }
        self.count = Some(count);
        self.begin(None);
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

    /// Makes sure that a closed latch has its own note: Redisson may have set the latch, or the
    /// note may be lost, in which case a waiter of that generation restores it.
    fn note_closed(&mut self, known: Option<u64>) {
        let is_its_own = |note: &LatchNote| {
            note.opened != Some(note.generation)
                && known.is_none_or(|known| known <= note.generation)
        };
        if !self.latch.note.as_ref().is_some_and(is_its_own) {
            self.begin(known);
        }
    }

    /// Begins another latch: generation `known`, if that is later than the last one.
    fn begin(&mut self, known: Option<u64>) {
        let before = self.latch.note.as_ref();
        let least = before.map_or(0, |note| note.generation + 1);
        let next = self.now_us.max(least);
        let generation = known.filter(|known| *known >= least).unwrap_or(next);
        let opened = before.and_then(|note| note.opened);
        let expires = self.now_ms + LATCH_NOTE_MS;
        self.latch.note = Some(LatchNote { generation, opened, expires });
    }
}
