//! The numbers of the protocol, each with its unit and reason, and what a script may look up
//! outside the lock's own keys.

use crate::id::{ClientId, OwnerId, RequestId};
use std::fmt;

/// The first number that is not a token: above it a double (Lua, JavaScript) is not exact.
pub const TOKEN_LIMIT: u64 = 1 << 53;

/// Largest hold count, Java's `int`.
pub const MAX_HOLD_COUNT: u32 = i32::MAX as u32;

/// Longest lease in milliseconds: ten years. Far below what `PEXPIREAT` refuses, so that no lock
/// can be counted and then left without a TTL.
pub const MAX_LEASE_MS: u64 = 10 * 365 * 24 * 3_600_000;

/// How many members of the queue one call looks at before it replies MORE, so that a call is short,
/// however many waiters have died.
pub const LOOKED_AT_MAX: u32 = 64;

/// Largest number of members of list, scores or registry with which a queue is repaired as a whole:
/// a tenth of a second of the server's time. A longer queue stays as it is, and each waiter of ours
/// that lost its place returns to it by itself.
pub const MENDED_MAX: usize = 10_000;

/// TTL in milliseconds of our own keys while somebody waits, or twice D if that is more. Every
/// heartbeat renews it. After a longer silence the waiters enter again, each in its old place.
pub const REGISTRY_TTL_MS: u64 = 60_000;

/// The same if the age of beats does not count ([`Rules::ages`]), because silence then means
/// nothing and the store can tell which clients are dead. Long, so that heartbeats rarely have to
/// be written.
pub const SILENT_REGISTRY_TTL_MS: u64 = 600_000;

/// Beats older than this many milliseconds, or than twice D if that is more, are forgotten; their
/// clients count as dead, as before.
pub const BEATS_KEPT_MS: u64 = 60_000;

/// TTL in milliseconds of the shared queue keys while no foreign client has been seen on the lock.
pub const QUEUE_TTL_MS: u64 = 24 * 3_600_000;

/// TTL in milliseconds of the shared token key while no foreign client has been seen on the lock,
/// counted from when the clock has passed the token. Without the key, the series continues from the
/// time, so a token can fall only if the clock goes back by more than this after the key has
/// expired. A clock that is wrong by a time zone is wrong by at most 14 hours. Each name that was
/// ever locked costs about 190 bytes for this long.
pub const TOKEN_TTL_MS: u64 = 24 * 3_600_000;

/// The longest time in milliseconds that an answer has, or that an operation gives to a key because another key lasts
/// that long. Others may have set any TTL. A sum with the clock is still below 2^53.
pub(crate) const LONGEST_MS: u64 = 9_000_000_000_000_000;

/// What an answer says of the time until `at_ms`.
pub(crate) fn left_ms(at_ms: u64, now_ms: u64) -> u64 {
    at_ms.saturating_sub(now_ms).min(LONGEST_MS)
}

/// The minimum TTL in milliseconds that a waiter gives to a hold without one: an operator removed
/// it, and the holder may be dead. This is Redisson's watchdog lease: a live holder renews long
/// before that.
pub const MENDED_HOLD_MS: u64 = 30_000;

/// The cost of a dead head of ours for Java-only clients, in milliseconds: its score is kept this
/// far ahead. Less if the fair wait is shorter, because a dead Java head then costs less as well;
/// never less than D.
pub const HEAD_SCORE_MS: u64 = 30_000;

/// Longest queue that is searched to distinguish foreign entries from ours that lost their records,
/// because TTLs depend on the difference. In a longer queue, entries without a record count as
/// foreign.
pub const WALKED_MAX: usize = 1_024;

/// How long the lock stays free for a Java head that has no subscriber, in milliseconds. Java
/// subscribes within 7.5 s of entering the queue.
pub const JAVA_HEAD_PATIENCE_MS: u64 = 8_000;

/// How long a passed-over Java head stays passed over, in milliseconds, before it gets another
/// chance (it may listen on a replica, where the master does not see its subscription).
pub const JAVA_PASSED_MS: u64 = 60_000;

/// How often a Java head that listens but does not take the free lock is notified again, in
/// milliseconds.
pub const JAVA_PING_MS: u64 = 1_000;

/// For how long a free lock with shares is left to foreign waiters, which do not stand in line, in
/// milliseconds: a notified client of Redisson comes within a few milliseconds, or on a busy
/// machine within this time.
pub const GUEST_MS: u64 = 30;

/// The longest value that the holder of a lock can announce, in bytes: enough for an address, or a
/// small record of where to find more. Every observer of the lock reads it every few seconds, and a
/// server keeps it in memory.
pub const ANNOUNCED_BYTES_MAX: usize = 1_024;

/// The settings on which clients agree: passed with every call, because the server has no
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Heartbeat period HB in milliseconds.
    pub beat_ms: u64,
    /// D: a client without a beat for this many milliseconds is dead.
    pub dead_ms: u64,
    /// Redisson's `fairLockWaitTimeout` in milliseconds.
    pub fair_wait_ms: u64,
    /// How long a buried request stays refused, in milliseconds.
    pub bury_ms: u64,
    /// Shared keys never get a TTL from us, because Java clients use them.
    pub java_fleet: bool,
    /// Whether the subscriber counts of [`World`] are meaningful (they are not on a Cluster).
    pub presence: bool,
    /// Whether a client without a beat for `dead_ms` is dead. False if [`World::gone`] provides
    /// proof instead: then the age of a beat only determines how long a grant by message lasts. All
    /// processes are then on one machine, whose time never goes back, so order numbers need not be
    /// remembered either.
    pub ages: bool,
}

impl Rules {
    /// How far ahead of now a waiter's score must be kept, in milliseconds. Not below D, so that a
    /// live client may be late with a heartbeat.
    pub(crate) fn slack_ms(&self) -> u64 {
        self.lead_ms().max(self.dead_ms)
    }

    /// The minimum lead of a score of ours over the last sign of life, in milliseconds: what a
    /// heartbeat gives the head, or an entry if that is less.
    pub(crate) fn lead_ms(&self) -> u64 {
        HEAD_SCORE_MS.min(self.fair_wait_ms)
    }

    /// A waiter whose record is lost is dead if nothing was heard from it for this many
    /// milliseconds. If not all beats are written ([`Self::ages`]): if nothing was written for so
    /// long.
    pub(crate) fn silence_ms(&self) -> u64 {
        if self.ages { self.dead_ms } else { self.registry_ms() }
    }

    /// TTL in milliseconds of our own keys while somebody waits: long enough that a client with
    /// infrequent heartbeats does not outlive its record.
    pub(crate) fn registry_ms(&self) -> u64 {
        let least = if self.ages { REGISTRY_TTL_MS } else { SILENT_REGISTRY_TTL_MS };
        least.max(2 * self.dead_ms)
    }

    /// Beats older than this many milliseconds are forgotten.
    pub(crate) fn beats_kept_ms(&self) -> u64 {
        BEATS_KEPT_MS.max(2 * self.dead_ms)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            beat_ms: 2_000,
            dead_ms: 6_000,
            fair_wait_ms: 300_000,
            bury_ms: 36_000,
            java_fleet: false,
            presence: true,
            ages: true,
        }
    }
}

/// The facts that a script can see besides the lock's keys.
pub trait World {
    /// Returns whether the inbox of a client of ours has a subscriber.
    fn inbox(&self, client: ClientId) -> bool;
    /// Returns whether a foreign waiter's own channel has a subscriber.
    fn listening(&self, owner: &OwnerId) -> bool;
    /// Returns whether foreign clients wait for a lock with shares: they do not stand in line, and
    /// listen to one channel. Only a server has such clients.
    fn guests(&self) -> bool {
        false
    }
    /// Returns whether a client of ours is gone for good, with everything that it ran: its hold
    /// then ends at once, and its waiters are removed when their turn comes. Only a proof counts. A
    /// server has no proof, nor has a process about itself, so the default is false.
    fn gone(&self, client: ClientId) -> bool {
        let _ = client;
        false
    }
    /// Returns whether [`gone`](Self::gone) can be true at all, so that it is worth asking about
    /// many clients.
    fn proves_death(&self) -> bool {
        false
    }
    /// Returns whether a hold of this client lasts until its lease ends even if the client is
    /// [gone](Self::gone), because it was left to the store under this token and, if it is of a share, this request.
    fn is_left(&self, client: ClientId, token: Token, request: Option<RequestId>) -> bool {
        let _ = (client, token, request);
        false
    }
}

/// A fencing token: strictly larger than every token granted before on the same lock.
///
/// It is a number from 1 to 2^53 - 1. So it fits into an `i64`, a signed 64-bit column and Java's
/// `long`, and is exact in a double, the number type of JavaScript and many readers of JSON. No
/// larger number is a token: a lock whose tokens have reached 2^53 grants nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Creates the token `value`; `None` if it is 0 or not below 2^53.
    pub fn new(value: u64) -> Option<Self> {
        (value > 0 && value < TOKEN_LIMIT).then_some(Self(value))
    }

    /// Returns the number to pass to the resource.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the same number for a signed column of a database, which it always fits.
    pub fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert_eq, proptest};

    fn fits(number: u64) {
        let token = Token::new(number).expect("a token").get();
        assert_eq!(i64::try_from(token), Ok(Token::new(number).expect("a token").as_i64()));
        assert_eq!(token as f64 as u64, number);
    }

    proptest! {
        /// Numbers of every length.
        #[test]
        fn a_token_fits_an_i64_and_a_double(bits: u64, shift in 0..64_u32) {
            let number = bits >> shift;
            prop_assert_eq!(Token::new(number).is_some(), (1..1 << 53).contains(&number));
            if Token::new(number).is_some() {
                fits(number);
            }
        }
    }

    #[test]
    fn the_first_and_the_last_token() {
        fits(1);
        fits((1 << 53) - 1);
        for number in [0, 1 << 53, i64::MAX as u64, 1 << 63, u64::MAX] {
            assert_eq!(Token::new(number), None, "{number}");
        }
    }
}
