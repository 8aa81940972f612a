//! The Java side of a shared fair lock, without a JVM.
//!
//! [`JavaClient`] follows the rules by which Redisson's fair lock changes the keys in Redis, flaws
//! included, in Lua of our own: who has which place in the queue, who counts as dead by whose
//! clock, who is notified. It follows version 4 unless a test asks for the rules of an older one
//! ([`Version`]).
//!
//! What a JVM does around the scripts is split into steps that a test takes one by one: a
//! [`Thread`] waits, is notified, asks again and gives up; a [`Watchdog`] renews. Their time is the
//! client's clock, which a test may stop and move ([`StoppedClock`]): minutes pass at once. WAIT
//! and the retries of the connection layer are not modelled; a test repeats a script itself.

mod clock;
mod keys;
mod latch;
mod plain;
mod read_write;
mod thread;
mod version;
mod watchdog;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::clock::Clock;
pub use self::clock::StoppedClock;
pub use self::keys::{channel, channel_of, queue_key, timeout_key, token_key};
pub use self::latch::latch_channel;
pub use self::read_write::{read_write_channel, reader_timeout_key};
pub use self::thread::{Call, State, Thread};
pub use self::version::Version;
pub use self::watchdog::Watchdog;
use crate::raw::Raw;
use crate::resp::Value;
use crate::server::Server;

/// Redisson's `lockWatchdogTimeout`: the lease of a lock taken without one.
pub const WATCHDOG_LEASE_MS: i64 = 30_000;
/// How often its watchdog renews: every third of the lease.
pub const WATCHDOG_PERIOD_MS: i64 = WATCHDOG_LEASE_MS / 3;
/// Redisson's `fairLockWaitTimeout`: the allowance of a waiter without a limit of its own.
pub const DEFAULT_WAIT_MS: i64 = 300_000;
/// How long an unlock is remembered, with Redisson's default timeout and retries (at most).
const LATCH_MS: i64 = 20_000;

const DROP_STALE_HEADS: &str = include_str!("drop_stale_heads.lua");
const ACQUIRE: &str = include_str!("acquire.lua");
const ACQUIRE_BEFORE_3_11: &str = include_str!("acquire_before_3_11.lua");
const UNLOCK: &str = include_str!("unlock.lua");
const LEAVE: &str = include_str!("leave.lua");
const LEAVE_BEFORE_3_11: &str = include_str!("leave_before_3_11.lua");
const FORCE_UNLOCK: &str = include_str!("force_unlock.lua");
const RENEW: &str = include_str!("renew.lua");

/// One Redisson client object: a JVM, as far as locks are concerned.
///
/// Every call panics if the server does not answer it properly.
#[derive(Debug)]
pub struct JavaClient {
    addr: SocketAddr,
    raw: Raw,
    id: String,
    version: Version,
    clock: Clock,
    /// Lock -> the lease last used, to which a partial unlock resets it.
    leases_ms: HashMap<String, i64>,
}

/// A Java thread's subscription to its own wake-up channel, on its own connection.
#[derive(Debug)]
pub struct Subscription {
    raw: Raw,
    /// Wake-ups that have arrived and were not used: one attempt each.
    permits: u32,
}

impl JavaClient {
    /// A new client whose wall clock is this far ahead of the machine's (or behind, below zero).
    pub fn new(server: &Server, clock_offset_ms: i64) -> Self {
        Self::connect(server.addr(), clock_offset_ms)
    }

    /// Like [`JavaClient::new`], for any address, such as a proxy's.
    pub fn connect(addr: SocketAddr, clock_offset_ms: i64) -> Self {
        Self {
            addr,
            raw: Raw::connect(addr),
            id: uuid(),
            version: Version::V4,
            clock: Clock::Machine { offset_ms: clock_offset_ms },
            leases_ms: HashMap::new(),
        }
    }

    /// The same client with the rules of another version.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Its id: a random UUID of version 4.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The owner id of one of its threads.
    pub fn owner(&self, thread_id: i64) -> String {
        format!("{}:{thread_id}", self.id)
    }

    /// Stops its clock at a time (to match a server whose clock is frozen), or lets it run again.
    pub fn set_now_ms(&mut self, now_ms: Option<i64>) {
        self.clock = match now_ms {
            Some(now_ms) => Clock::Stopped { at: StoppedClock::at_ms(now_ms), offset_ms: 0 },
            None => Clock::Machine { offset_ms: 0 },
        };
    }

    /// Makes it read a clock that the test moves, with this offset.
    pub fn set_clock(&mut self, clock: &StoppedClock, offset_ms: i64) {
        self.clock = Clock::Stopped { at: clock.clone(), offset_ms };
    }

    /// One attempt of `lock()` or a timed `tryLock()`: `None` if the thread now holds the lock.
    /// Otherwise it is queued, and this is how many milliseconds Java would sleep.
    ///
    /// `wait_ms` is the allowance, [`DEFAULT_WAIT_MS`] for `lock()`.
    #[track_caller]
    pub fn acquire(
        &mut self,
        lock: &str,
        thread_id: i64,
        wait_ms: i64,
        lease_ms: i64,
    ) -> Option<i64> {
        self.attempt(lock, thread_id, wait_ms, lease_ms, true)
    }

    /// `tryLock()` without a limit: whether the thread now holds the lock. It never queues.
    #[track_caller]
    pub fn try_acquire(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> bool {
        self.attempt(lock, thread_id, DEFAULT_WAIT_MS, lease_ms, false).is_none()
    }

    /// A complete blocking acquire, as Java does it: attempt, subscribe, attempt again, then sleep
    /// until woken or until the time in the reply is over, and so on. After `limit` it leaves the
    /// queue and returns false.
    #[track_caller]
    pub fn acquire_within(
        &mut self,
        lock: &str,
        thread_id: i64,
        wait_ms: i64,
        lease_ms: i64,
        limit: Duration,
    ) -> bool {
        let deadline = Instant::now() + limit;
        if self.acquire(lock, thread_id, wait_ms, lease_ms).is_none() {
            return true;
        }
        let mut subscription = self.subscribe(lock, thread_id);
        loop {
            let Some(sleep_ms) = self.acquire(lock, thread_id, wait_ms, lease_ms) else {
                return true;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.leave(lock, thread_id, wait_ms);
                return false;
            }
            // Below zero: until woken.
            let sleep = u64::try_from(sleep_ms).map_or(left, Duration::from_millis);
            subscription.woken_within(sleep.min(left));
        }
    }

    /// `unlock()`: 1 after a full release (and when the lock was free), 0 after a partial one,
    /// `None` if the thread does not hold the lock (an exception in Java).
    #[track_caller]
    pub fn unlock(&mut self, lock: &str, thread_id: i64) -> Option<i64> {
        let latch = keys::latch_key(lock, &request_id());
        let keys = [lock, &queue_key(lock), &timeout_key(lock), &channel(lock), &latch];
        let lease_ms = self.leases_ms.get(lock).copied().unwrap_or(WATCHDOG_LEASE_MS);
        let args = [self.owner(thread_id), text(lease_ms), text(self.now_ms()), text(LATCH_MS)];
        let reply = self.eval(&[DROP_STALE_HEADS, UNLOCK], &keys, &args);
        self.raw.call(&["DEL", &latch]);
        optional(&reply)
    }

    /// What a timed `tryLock` does when its time is over. Pass `wait_ms` as on entry.
    #[track_caller]
    pub fn leave(&mut self, lock: &str, thread_id: i64, wait_ms: i64) {
        let keys = [queue_key(lock), timeout_key(lock)];
        let keys = keys.each_ref().map(String::as_str);
        let owner = self.owner(thread_id);
        match self.version.subtracted_by_a_leaving_head_ms() {
            Some(ms) => self.eval(&[LEAVE_BEFORE_3_11], &keys, &[owner, text(ms)]),
            None => self.eval(&[LEAVE], &keys, &[owner, text(wait_ms)]),
        };
    }

    /// `forceUnlock()`: whether anybody held the lock.
    #[track_caller]
    pub fn force_unlock(&mut self, lock: &str) -> bool {
        let keys = [lock, &queue_key(lock), &timeout_key(lock), &channel(lock)];
        let args = [text(self.now_ms())];
        self.eval(&[DROP_STALE_HEADS, FORCE_UNLOCK], &keys, &args).int() == 1
    }

    /// One round of the watchdog for one lock: whether the thread still holds it.
    #[track_caller]
    pub fn renew(&mut self, lock: &str, thread_id: i64) -> bool {
        self.renew_for(lock, thread_id, WATCHDOG_LEASE_MS)
    }

    /// The same with a `lockWatchdogTimeout` other than the default.
    #[track_caller]
    pub fn renew_for(&mut self, lock: &str, thread_id: i64, lease_ms: i64) -> bool {
        let args = [self.owner(thread_id), text(lease_ms)];
        self.eval(&[RENEW], &[lock], &args).int() == 1
    }

    /// Sends a command that is not a script.
    #[track_caller]
    pub fn command(&mut self, command: &[&str]) -> Value {
        self.raw.call(command)
    }

    /// Subscribes a thread to its wake-up channel.
    #[track_caller]
    pub fn subscribe(&self, lock: &str, thread_id: i64) -> Subscription {
        let mut raw = Raw::connect(self.addr);
        raw.subscribe(&channel_of(lock, &self.owner(thread_id)));
        Subscription { raw, permits: 0 }
    }

    /// Ends the client as kill -9 ends a JVM: its connections close, its keys in Redis stay. Its
    /// subscriptions are values of their own: drop them too.
    pub fn kill(self) {}

    #[track_caller]
    fn attempt(
        &mut self,
        lock: &str,
        thread_id: i64,
        wait_ms: i64,
        lease_ms: i64,
        enters: bool,
    ) -> Option<i64> {
        let keys = [lock, &queue_key(lock), &timeout_key(lock)];
        let args = [
            self.owner(thread_id),
            text(lease_ms),
            text(wait_ms),
            text(self.now_ms()),
            text(i64::from(enters)),
            text(i64::from(self.version.replies_distances())),
        ];
        let script = if self.version.rewrites_scores() { ACQUIRE_BEFORE_3_11 } else { ACQUIRE };
        let reply = self.eval(&[DROP_STALE_HEADS, script], &keys, &args);
        let reply = optional(&reply);
        if reply.is_none() {
            self.leases_ms.insert(lock.to_owned(), lease_ms);
        }
        reply
    }

    #[track_caller]
    fn eval(&mut self, script: &[&str], keys: &[&str], args: &[String]) -> Value {
        let (script, key_count) = (script.concat(), keys.len().to_string());
        let mut command = vec!["EVAL", &script, &key_count];
        command.extend(keys);
        command.extend(args.iter().map(String::as_str));
        match self.raw.call(&command) {
            Value::Error(error) => panic!("Redisson's rules failed: {error}"),
            reply => reply,
        }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}

impl Subscription {
    /// Whether the thread is woken in time. Messages that do not wake a fair lock's waiter are
    /// skipped.
    ///
    /// # Panics
    ///
    /// If a message is not a decimal number: Redisson's decoder then throws.
    #[track_caller]
    pub fn woken_within(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while !self.take_permit() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some((channel, payload)) = self.raw.message_within(left) else { return false };
            self.hear(&channel, &payload);
        }
        true
    }

    /// Whether the thread was notified by now: everything that the server published before this
    /// call counts, since the reply to a ping follows it. Each message is counted once.
    ///
    /// # Panics
    ///
    /// As [`Subscription::woken_within`].
    #[track_caller]
    pub fn told(&mut self) -> bool {
        self.raw.send(&["PING"]);
        loop {
            let value = self.raw.read().expect("the subscription's connection");
            match value.array() {
                [kind, channel, Value::Bulk(payload)] if kind.text() == "message" => {
                    self.hear(channel.text(), payload);
                }
                [kind, ..] if kind.text() == "pong" => break,
                other => panic!("expected a message or the pong, got {other:?}"),
            }
        }
        self.take_permit()
    }

    #[track_caller]
    fn hear(&mut self, channel: &str, payload: &[u8]) {
        let payload = String::from_utf8_lossy(payload);
        match payload.parse::<i64>() {
            Ok(0) => self.permits += 1,
            // It wakes all who wait for a read-write lock.
            Ok(1) if channel.starts_with("redisson_rwlock:") => self.permits += 1,
            Ok(_) => {}
            Err(error) => panic!("{payload:?} on {channel}: {error}"),
        }
    }

    fn take_permit(&mut self) -> bool {
        let had = self.permits > 0;
        self.permits = self.permits.saturating_sub(1);
        had
    }
}

fn text(number: i64) -> String {
    number.to_string()
}

fn optional(reply: &Value) -> Option<i64> {
    if reply.is_nil() { None } else { Some(reply.int()) }
}

fn request_id() -> String {
    random().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn uuid() -> String {
    let mut bytes = random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.expect("the system's randomness");
    bytes
}

#[cfg(test)]
mod tests;
