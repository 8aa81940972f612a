//! The inputs and outputs of an acquisition.

use crate::client::{Acquisition, Hold, Outlook, Refused};
use crate::op::{Kind, Mode, Op};
use crate::rules::Token;
use crate::share::Share;
use std::time::Duration;

/// The parameters of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The lock's kind.
    pub kind: Kind,
    /// The share, for a lock that several may hold.
    pub share: Share,
    /// Whether it waits.
    pub mode: Mode,
    /// The TTL of the hold, in milliseconds.
    pub lease_ms: u64,
    /// Whether the watchdog keeps renewing the hold.
    pub renewed: bool,
    /// The longest hold, if any.
    pub max_hold: Option<Duration>,
    /// Whether others may shorten the hold's life in the store.
    pub may_be_cut: bool,
    /// Whether clients of Redisson are known to be among them.
    pub java_fleet: bool,
    /// When to give up. A try does not wait, so it has no such time.
    pub until_ns: Option<u64>,
    /// An explicit owner, which other requests may use as well.
    pub shared_owner: bool,
    /// If replicas must confirm the hold: the time that they get.
    pub replicas_ms: Option<u64>,
    /// The store is tried at once, in the caller's thread.
    pub at_once: bool,
    /// How long an unreachable store is tried, in milliseconds.
    pub store_timeout_ms: u64,
    /// How often a waiter looks even without a message, in milliseconds.
    pub period_ms: u64,
}

/// When an input comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// The time.
    pub ns: u64,
    /// Whether the lock's server is connected.
    pub connected: bool,
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure<E> {
    /// The store's error, which is passed on.
    pub error: E,
    /// Whether the copy may have been carried out, or may still be.
    pub doubt: bool,
    /// Whether the same operation may succeed a moment later.
    pub passing: bool,
    /// The meaning of the error.
    pub kind: FailureKind,
}

/// The meaning of a call's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The store was not reached.
    Unavailable,
    /// A login, or a TLS handshake, was refused. It is tried again if the next password or
    /// certificate may be a different one, but in the end this is the error for the caller.
    Denied,
    /// Anything else.
    Other,
}

/// The next action after an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each hold")]
pub enum Step<E> {
    /// Nothing new: the work under way continues.
    Wait,
    /// Begin this work, which has this number.
    Begin(u32, Work),
    /// Enter the waiters of a fair lock with a copy of the acquisition, then call
    /// [`entered`](super::Acquiring::entered).
    Enter,
    /// Stand in line behind other waiters of this client on a lock without a queue, then call
    /// [`turn`](super::Acquiring::turn). The line is left with [`Step::Leave`], whether or not it
    /// was this one's turn.
    Turn,
    /// Record among the waiters that it is in the queue according to the store, then call
    /// [`noted`](super::Acquiring::noted).
    Queued {
        /// Its order number.
        order: u64,
        /// What decides when the next heartbeat comes.
        outlook: Outlook,
        /// How many wait, itself included.
        length: u64,
        /// It was in the queue before.
        returning: bool,
        /// A copy of its request is unanswered.
        in_doubt: bool,
    },
    /// Leave the waiters, then call [`left_queue`](super::Acquiring::left_queue); of a lock without
    /// a queue, pass the turn on, then call [`left_line`](super::Acquiring::left_line).
    Leave {
        /// Unsubscribe from the lock's topic, unless the next in line gets the subscription.
        unsubscribe: bool,
        /// Until when the lease lasts of a request that was granted while it was subscribed. The
        /// next in line need not ask before, and gets this with the subscription.
        held_until_ns: Option<u64>,
    },
    /// Have these operations sent until they are answered, in the background, beginning at once,
    /// and call [`taken_back`](super::Acquiring::taken_back): at once, or with `wait` when the last
    /// one is over. It may end before that.
    TakeBack {
        /// The operations to send.
        ops: Vec<Op>,
        /// Somebody waits for it.
        wait: bool,
    },
    /// Draw a request id, then call [`drawn`](super::Acquiring::drawn).
    Draw,
    /// Give this hold back in the background, with all requests that led to it, beginning at once,
    /// and call [`given_back`](super::Acquiring::given_back) when that is over. It may end before
    /// that.
    GiveBack(Box<Held>),
    /// It has ended.
    Done(Outcome<E>),
}

/// Work that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Send a copy of [`op`](super::Acquiring::op): `answered` or `failed`.
    Send {
        /// In the caller's thread: also `not_at_once`, if that is not possible now.
        at_once: bool,
    },
    /// Wait for a time in this range: `rested`.
    Pause {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// As `Pause`, in a way that the store chooses; a wake-up (`woken`) ends it as well.
    Rest {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// Wait until the store is connected or this moment has come: `rested`.
    Connection {
        /// The moment.
        until_ns: u64,
    },
    /// Subscribe to the lock's topic: `listened` or `failed`.
    Subscribe,
    /// Send one copy of the renewal of the hold with this TTL, and have replicas confirm it if they
    /// must: `confirmed` or `failed`.
    Confirm {
        /// The token of the hold.
        token: Token,
        /// The TTL, in milliseconds.
        ttl_ms: u64,
    },
}

/// How an acquisition ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each hold")]
pub enum Outcome<E> {
    /// It has the lock.
    Held(Held),
    /// The lock cannot be had in time.
    None,
    /// An error.
    Failed(Reason<E>),
}

/// A new hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The requests that led to it.
    pub acquisition: Acquisition,
    /// Its token.
    pub token: Token,
    /// Until when it is valid.
    pub hold: Hold,
}

/// Why an acquisition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason<E> {
    /// The error of the store.
    Store(E),
    /// The store was not reached in time.
    Unreachable {
        /// The error of the last call.
        last: E,
        /// A copy may have been carried out.
        in_doubt: bool,
    },
    /// The store never answered, so it is not certain that the lock is taken.
    Silent {
        /// The error of the last call, if one has ended.
        last: Option<E>,
        /// A copy may have been carried out.
        in_doubt: bool,
    },
    /// The server refused every copy as too late.
    TooLate,
    /// The store did nothing for the request.
    Refused(Refused),
    /// A heartbeat of its wait failed.
    Waiting(E),
    /// The lease was over before the lock could be used, this often.
    LeaseTooShort(u32),
    /// It could not be confirmed in time that replicas have the hold. The error of the last call.
    NotAsked(Option<E>),
    /// The hold was gone before replicas had it.
    GoneBeforeReplicas,
    /// No request id could be drawn.
    NotDrawn(E),
    /// The client was shut down.
    Closed,
}
