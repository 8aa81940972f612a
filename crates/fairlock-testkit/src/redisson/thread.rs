//! A Java thread inside `lock()` or `tryLock()` of a fair lock, one step at a time.

use super::version::Version;
use super::{JavaClient, Subscription, WATCHDOG_LEASE_MS, WATCHDOG_PERIOD_MS};

/// The call of a thread. Times are in milliseconds.
#[allow(missing_docs, reason = "the fields are Redisson's parameters, named by each variant")]
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// `lock()`: without limit, renewed by the watchdog.
    Lock,
    /// `lock(lease)`: without limit, never renewed.
    LockFor { lease_ms: i64 },
    /// `tryLock(wait, lease, unit)`.
    TryLock { wait_ms: i64, lease_ms: i64 },
    /// `tryLock(wait, unit)`, renewed by the watchdog: the number and its unit in milliseconds. The
    /// allowance is the bare number, taken as milliseconds.
    TryLockRenewed { wait: i64, unit_ms: i64 },
    /// `tryLockAsync(wait, lease, unit)`. A thread that gives up subtracts five minutes from those
    /// behind.
    TryLockAsync { wait_ms: i64, lease_ms: i64 },
}

impl Call {
    fn limit_ms(self) -> Option<i64> {
        match self {
            Self::Lock | Self::LockFor { .. } => None,
            Self::TryLock { wait_ms, .. } | Self::TryLockAsync { wait_ms, .. } => Some(wait_ms),
            Self::TryLockRenewed { wait, unit_ms } => Some(wait * unit_ms),
        }
    }

    fn lease_ms(self) -> i64 {
        match self {
            Self::Lock | Self::TryLockRenewed { .. } => WATCHDOG_LEASE_MS,
            Self::LockFor { lease_ms }
            | Self::TryLock { lease_ms, .. }
            | Self::TryLockAsync { lease_ms, .. } => lease_ms,
        }
    }

    fn is_renewed(self) -> bool {
        matches!(self, Self::Lock | Self::TryLockRenewed { .. })
    }

    /// What it adds to its own score, and subtracts from the others' when it gets the lock.
    fn allowance_ms(self, version: Version) -> i64 {
        match self {
            _ if !version.timed_calls_have_their_own_wait() => version.default_wait_ms(),
            Self::Lock | Self::LockFor { .. } => version.default_wait_ms(),
            Self::TryLock { wait_ms, .. } | Self::TryLockAsync { wait_ms, .. } => wait_ms,
            Self::TryLockRenewed { wait, .. } => wait,
        }
    }

    /// What it subtracts from the scores of those behind it when it gives up.
    fn given_back_ms(self, version: Version) -> i64 {
        match self {
            _ if !version.timed_calls_have_their_own_wait() => version.default_wait_ms(),
            Self::TryLockRenewed { wait, unit_ms } => wait * unit_ms,
            Self::TryLockAsync { .. } => version.default_wait_ms(),
            _ => self.allowance_ms(version),
        }
    }
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It holds the lock; its call has returned.
    Holds,
    /// It sleeps until it is notified, or until a time of its client's clock, if there is one.
    Sleeps {
        /// In milliseconds since the epoch.
        until_ms: Option<i64>,
    },
    /// Its time was over; its call has returned `false`.
    GaveUp,
    /// It has unlocked.
    Done,
}

/// A thread in a JVM of its own. Dropping it kills it: its keys in Redis stay.
#[derive(Debug)]
pub struct Thread {
    java: JavaClient,
    lock: String,
    call: Call,
    subscription: Option<Subscription>,
    deadline_ms: Option<i64>,
    renews_at_ms: i64,
    state: State,
    attempts: u64,
}

/// The id of the only thread in its JVM.
const ID: i64 = 1;

impl Thread {
    /// Makes the call: the first attempt, the subscription, and the attempt after it.
    #[track_caller]
    pub fn start(java: JavaClient, lock: &str, call: Call) -> Self {
        let now_ms = java.now_ms();
        let deadline_ms = call.limit_ms().map(|limit_ms| now_ms + limit_ms);
        let mut thread = Self {
            java,
            lock: lock.to_owned(),
            call,
            subscription: None,
            deadline_ms,
            renews_at_ms: 0,
            state: State::Sleeps { until_ms: None },
            attempts: 0,
        };
        thread.attempt();
        if thread.state != State::Holds {
            thread.subscription = Some(thread.java.subscribe(lock, ID));
            thread.attempt();
        }
        thread
    }

    /// Its current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it holds the lock, as far as it knows.
    pub fn holds(&self) -> bool {
        self.state == State::Holds
    }

    /// Its owner id.
    pub fn owner(&self) -> String {
        self.java.owner(ID)
    }

    /// How often it has sent the acquire script.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// When it will act without being notified, in milliseconds of its clock.
    pub fn next_ms(&self) -> Option<i64> {
        match self.state {
            State::Sleeps { until_ms } => until_ms,
            State::Holds if self.call.is_renewed() => Some(self.renews_at_ms),
            State::Holds | State::GaveUp | State::Done => None,
        }
    }

    /// Does what is due by its clock, or what a notification asks for; otherwise sleeps on.
    #[track_caller]
    pub fn step(&mut self) -> State {
        let now_ms = self.java.now_ms();
        match self.state {
            State::Sleeps { until_ms } => {
                let is_told = self.is_told();
                if self.deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms) {
                    self.give_up();
                } else if is_told || until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
                    self.attempt();
                }
            }
            State::Holds if self.call.is_renewed() && now_ms >= self.renews_at_ms => {
                self.java.renew(&self.lock, ID);
                self.renews_at_ms = now_ms + WATCHDOG_PERIOD_MS;
            }
            State::Holds | State::GaveUp | State::Done => {}
        }
        self.state
    }

    /// Whether it has been notified, without acting on it. Each message is counted once.
    #[track_caller]
    pub fn is_told(&mut self) -> bool {
        self.subscription.as_mut().is_some_and(Subscription::told)
    }

    /// `unlock()`, see [`JavaClient::unlock`].
    #[track_caller]
    pub fn unlock(&mut self) -> Option<i64> {
        self.state = State::Done;
        self.java.unlock(&self.lock, ID)
    }

    /// Its client, for the next call.
    pub fn into_client(self) -> JavaClient {
        self.java
    }

    #[track_caller]
    fn attempt(&mut self) {
        self.attempts += 1;
        let now_ms = self.java.now_ms();
        let allowance_ms = self.call.allowance_ms(self.java.version);
        let reply = self.java.acquire(&self.lock, ID, allowance_ms, self.call.lease_ms());
        self.state = match reply {
            None => {
                self.renews_at_ms = now_ms + WATCHDOG_PERIOD_MS;
                State::Holds
            }
            // Below zero: until notified, or until its time is over.
            Some(sleep_ms) => {
                let until_ms = (sleep_ms >= 0).then_some(now_ms + sleep_ms);
                let ends = [until_ms, self.deadline_ms];
                State::Sleeps { until_ms: ends.into_iter().flatten().min() }
            }
        };
    }

    #[track_caller]
    fn give_up(&mut self) {
        self.java.leave(&self.lock, ID, self.call.given_back_ms(self.java.version));
        self.state = State::GaveUp;
    }
}
