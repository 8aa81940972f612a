//! Values under a lock's name that clearly are not locks. Operations on such values are refused
//! before they change anything (on a counter, only a take by force is refused): a value that is not
//! ours never gets a TTL and is never removed. Clients wait for any other foreign hold and leave it
//! as it is, until somebody takes it by force.

use crate::not_a_lock::NotALock;
use crate::op::{CoreError, Op};
use crate::rules::MAX_HOLD_COUNT;
use crate::state::LockState;
use crate::value::SimpleValue;

/// The field that marks Redisson's read-write locks, which share keys with no lock of ours.
const MODE: &[u8] = b"mode";

/// Longest text of a 64-bit number, in bytes.
const NUMBER_BYTES_MAX: usize = 20;

impl LockState {
    /// Returns why `op` is refused because of the value under the name, if it is refused. Nothing
    /// else decides this.
    #[inline]
    pub(crate) fn refusal(&self, op: &Op) -> Option<CoreError> {
        if op.is_simple() {
            if !self.is_free() {
                return Some(CoreError::WrongType);
            }
            // Waiting for a counter harms nobody, and other clients may lock with the value `1`.
            let taken = matches!(op, Op::Force { .. }) && self.is_counter();
            return taken.then_some(CoreError::NotALock(NotALock::Counter));
        }
        if self.keys.value.is_some() {
            return Some(CoreError::WrongType);
        }
        self.not_a_hold().map(CoreError::NotALock)
    }

    /// Returns what the hash contains, if that is not a hold.
    #[inline]
    pub(crate) fn not_a_hold(&self) -> Option<NotALock> {
        let hold = &self.keys.hold;
        // The common cases, checked cheaply: nobody, or one of ours with a count of 1.
        match hold.first_key_value() {
            None => None,
            Some((owner, 1)) if hold.len() == 1 && owner.is_ours() => None,
            Some(_) => self.not_a_hold_of_ours(),
        }
    }

    #[cold]
    fn not_a_hold_of_ours(&self) -> Option<NotALock> {
        let hold = &self.keys.hold;
        if hold.keys().any(|owner| !owner.is_ours() && owner.to_bytes() == MODE) {
            return Some(NotALock::Mode);
        }
        if hold.len() > 1 {
            return Some(NotALock::Fields(hold.len()));
        }
        let is_count = |count: &i64| (1..=i64::from(MAX_HOLD_COUNT)).contains(count);
        (!hold.values().all(is_count)).then_some(NotALock::Count)
    }

    /// Whether the string is a number without a TTL: a latch, or another program's.
    pub(crate) fn is_counter(&self) -> bool {
        let Some(SimpleValue::Foreign(bytes)) = &self.keys.value else { return false };
        let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
        self.keys.value_expires.is_none()
            && bytes.len() <= NUMBER_BYTES_MAX
            && !digits.is_empty()
            && digits.iter().all(u8::is_ascii_digit)
    }
}
