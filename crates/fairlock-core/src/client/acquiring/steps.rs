//! The inputs and outputs of an acquisition.

use crate::client::{Acquisition, Hold, Lease, Refused, valid_until_ns};
use crate::id::{OwnerId, RequestId};
use crate::op::{Grant, Kind, Mode, Op};
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
    /// How long an unreachable store is tried, in milliseconds.
    pub store_timeout_ms: u64,
    /// How often a waiter looks even without a message, in milliseconds.
    pub period_ms: u64,
}

impl Wanted {
    /// The requests of an acquisition that `request` begins.
    pub(in crate::client) fn acquisition(&self, owner: OwnerId, request: RequestId) -> Acquisition {
        let (kind, mode, lease_ms) = (self.kind, self.mode, self.lease_ms);
        Acquisition::new(kind, owner, mode, lease_ms, self.shared_owner, request)
            .sharing(self.share)
    }

    /// A hold by this grant, whose TTL counts from `base_ns`.
    pub(in crate::client) fn hold(&self, grant: &Grant, base_ns: u64) -> Hold {
        let Self { lease_ms: ms, renewed, max_hold, may_be_cut, java_fleet, .. } = *self;
        let end = if renewed { max_hold } else { Some(Duration::from_millis(ms)) };
        let lease = Lease {
            ms,
            renewed,
            end_ns: end.map(|end| after(base_ns, end)),
            ends_by_max_hold: end.is_some() && end == max_hold,
            may_be_cut,
            java_fleet,
        };
        Hold::new(lease, valid_until_ns(base_ns, lease.uncut_ms(grant.ttl_ms)))
    }
}

/// The moment that follows `ns` by `wait`.
pub(in crate::client) fn after(ns: u64, wait: Duration) -> u64 {
    ns.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
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
pub enum Step<E> {
    /// Nothing new: the work under way continues.
    Wait,
    /// Begin this work, which has this number. Earlier work no longer matters: its future may be dropped, and its later
    /// results are ignored.
    Begin(u32, Work),
    /// It has ended.
    Done(Outcome<E>),
}

/// Work that takes time. A pause is a range of times, from which the shell chooses one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Send this copy of the request: `answered` or `failed`.
    Send(Op),
    /// Wait for a time in this range: `rested`.
    Pause {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// As `Pause`, in a way that the store chooses.
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
    /// Send one copy of this renewal, and have replicas confirm it if they must: `confirmed` or `failed`.
    Confirm(Op),
    /// Another input follows.
    Nothing,
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
