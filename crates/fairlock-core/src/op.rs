//! The vocabulary that every store speaks: operations, replies and effects.

use crate::id::{ClientId, OwnerId, RequestId};
use crate::not_a_lock::NotALock;
use crate::rules::Token;
use std::fmt;

/// Which lock is meant. Fair and plain locks use the same hash, a simple lock has a string in its
/// place; all use the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// First in, first out; Redisson's `RFairLock`.
    Fair,
    /// No order; Redisson's `RLock`.
    Plain,
    /// No order, one string: what everybody keeps who locks with `SET key value NX PX`.
    Simple,
}

/// Whether an acquisition waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Take the lock now or leave nothing behind.
    Try,
    /// Stand in the queue (a plain lock has none: the reply says when to look again).
    Wait,
}

/// An attempt to get the lock, or to get back into its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The lock's kind.
    pub kind: Kind,
    /// Who wants it.
    pub owner: OwnerId,
    /// This attempt; the same in every copy of it that is sent.
    pub request: RequestId,
    /// The TTL of the hold, in milliseconds.
    pub lease_ms: u64,
    /// Whether it waits.
    pub mode: Mode,
    /// The order number of an entry that was removed and now returns; `None` for a new one.
    pub order: Option<u64>,
    /// Executed later than this server time (milliseconds since 1970) it is refused.
    pub not_after_ms: u64,
    /// Count this waiter as reachable without looking for a subscriber of its inbox.
    pub sure: bool,
    /// The owner is used by more than one request, so the grant must be written down even when
    /// nobody waits.
    pub shared_owner: bool,
}

/// One operation on one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Take the lock or stand in its queue.
    Acquire(Acquire),
    /// The holder enters once more: the hold count becomes `count`.
    Reenter {
        /// The holder.
        owner: OwnerId,
        /// Names the hold.
        token: Token,
        /// The absolute count afterwards.
        count: u32,
        /// Number of this change of the hold, rising; a late copy of an older one is refused.
        change: u64,
    },
    /// The holder lets go: of everything (`keep` = 0) or down to `keep` holds.
    Release {
        /// The lock's kind.
        kind: Kind,
        /// The holder.
        owner: OwnerId,
        /// Names the hold.
        token: Token,
        /// The absolute count afterwards.
        keep: u32,
        /// Number of this change of the hold.
        change: u64,
    },
    /// The hold gets `ttl_ms` from now on.
    Renew {
        /// The lock's kind.
        kind: Kind,
        /// The holder.
        owner: OwnerId,
        /// Names the hold.
        token: Token,
        /// Milliseconds from now.
        ttl_ms: u64,
    },
    /// The attempt was given up: its queue entry goes, or the hold that it got.
    Leave {
        /// The lock's kind.
        kind: Kind,
        /// Who wanted it.
        owner: OwnerId,
        /// The attempt.
        request: RequestId,
        /// A copy of the attempt may still be under way: refuse it when it arrives.
        bury: bool,
        /// As in [`Acquire::shared_owner`].
        shared_owner: bool,
    },
    /// A waiting client lives; `waiters` are asked about, the oldest first.
    Beat {
        /// The client.
        client: ClientId,
        /// Its waiters that are asked about; usually the oldest alone.
        waiters: Vec<OwnerId>,
    },
    /// Only the hand-over that ends every operation: sent after a reply that said MORE.
    Nudge,
    /// An operator takes the lock away from whoever holds it.
    Force {
        /// The lock's kind: simple or not.
        kind: Kind,
    },
    /// Where a waiter stands; changes nothing.
    Place {
        /// The waiter.
        owner: OwnerId,
    },
    /// Look, change nothing; at most `limit` waiters are listed.
    Inspect {
        /// The lock's kind: simple or not.
        kind: Kind,
        /// How many waiters to list.
        limit: u32,
    },
}

impl Op {
    /// Whether it is for a simple lock, whose key is a string.
    pub fn is_simple(&self) -> bool {
        match self {
            Self::Acquire(acquire) => acquire.kind == Kind::Simple,
            Self::Release { kind, .. }
            | Self::Renew { kind, .. }
            | Self::Leave { kind, .. }
            | Self::Force { kind }
            | Self::Inspect { kind, .. } => *kind == Kind::Simple,
            Self::Reenter { .. } | Self::Beat { .. } | Self::Nudge | Self::Place { .. } => false,
        }
    }
}

/// A reply: the server's clock and what came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Server time of the execution, in milliseconds since 1970.
    pub now_ms: u64,
    /// Dead waiters remain in front: send [`Op::Nudge`] at once.
    pub more: bool,
    /// Dead waiters of ours that the operation removed.
    pub removed: u32,
    /// What came out.
    pub body: Body,
}

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// The caller holds the lock.
    Granted {
        /// The hold's token.
        token: Token,
        /// The hold's TTL in milliseconds.
        ttl_ms: u64,
    },
    /// The caller stands in the queue.
    Queued {
        /// Its order number.
        order: u64,
        /// Something may change after so many milliseconds without anybody's call.
        retry_ms: Option<u64>,
        /// A foreign client holds the lock or waits.
        foreign: bool,
        /// How many waited right after it entered, itself included.
        length: u64,
    },
    /// Somebody else holds the lock; the caller was not queued.
    Busy {
        /// Remaining TTL of the holder in milliseconds, where there is a holder with a TTL.
        ttl_ms: Option<u64>,
    },
    /// Somebody else holds the simple lock.
    Taken {
        /// As in [`Body::Busy`].
        ttl_ms: Option<u64>,
        /// It is a foreign client, which tells nobody when it lets go.
        foreign: bool,
    },
    /// The owner already holds the lock through another request.
    HeldBySelf {
        /// The hold's count.
        count: u32,
    },
    /// Executed after its `not_after_ms`; nothing was done.
    TooLate,
    /// The request was given up before; nothing was done.
    Buried,
    /// The hold is gone now.
    Released,
    /// The hold goes on with this count.
    StillHeld {
        /// The absolute count.
        count: u32,
    },
    /// A late copy of an older change of the hold; nothing was done.
    Stale,
    /// The caller does not hold the lock under that token.
    NotHeld {
        /// Who does, if anybody.
        holder: Option<OwnerId>,
    },
    /// The hold was renewed.
    Renewed,
    /// The queue entry is gone.
    Left,
    /// The hold that the request had got is gone.
    Freed,
    /// There was nothing of that request.
    Nothing,
    /// Reply to a heartbeat.
    Beaten {
        /// The lock is held by an owner of this client, under a request that is on record.
        held: Option<Grant>,
        /// For each waiter asked about: whether it stands in the queue.
        queued: Vec<bool>,
        /// As in [`Body::Queued`].
        retry_ms: Option<u64>,
        /// As in [`Body::Queued`].
        foreign: bool,
    },
    /// Reply to [`Op::Nudge`].
    Nudged,
    /// Reply to [`Op::Force`]: who held the lock.
    Forced {
        /// The former holder.
        holder: Option<OwnerId>,
    },
    /// Reply to [`Op::Place`].
    Place {
        /// How many members, foreign ones too, stand before the waiter; `None`: it is not in the
        /// queue.
        ahead: Option<u64>,
    },
    /// Reply to [`Op::Inspect`].
    Inspected(Inspection),
}

/// A hand-over: who got the lock, under which request and token, and for how long at first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The attempt that got the lock.
    pub request: RequestId,
    /// The hold's token.
    pub token: Token,
    /// The hold's TTL in milliseconds, counted from the reply's or message's server time.
    pub ttl_ms: u64,
}

/// The holder, as inspection sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// Who.
    pub owner: OwnerId,
    /// How often.
    pub count: u64,
}

/// A waiter, as inspection sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// Who.
    pub owner: OwnerId,
    /// Milliseconds since its client's last beat; `None` for foreign waiters and lost records. Where the
    /// age of beats does not count ([`Rules::ages`](crate::Rules::ages)): 0 unless the client is gone.
    pub beat_age_ms: Option<u64>,
    /// Its order number, server microseconds of its first entry unless the series ran ahead of
    /// the clock; `None` for foreign waiters and lost records.
    pub order: Option<u64>,
}

/// What a look at the lock shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The holder.
    pub holder: Option<HeldBy>,
    /// Remaining TTL in milliseconds; `None` when free or without a TTL.
    pub ttl_ms: Option<u64>,
    /// The last token.
    pub token: Option<Token>,
    /// How many wait.
    pub queue_len: u64,
    /// The first of them, in order.
    pub queue: Vec<WaiterView>,
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// Where.
    pub channel: Channel,
    /// What.
    pub payload: Payload,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The inbox of a client of ours.
    Inbox(ClientId),
    /// The lock's base channel, on which plain waiters listen.
    Base,
    /// The own channel of one waiter, Redisson's way.
    Waiter(OwnerId),
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Payload {
    /// `0`: look again.
    Zero,
    /// You hold the lock.
    Grant {
        /// The grant.
        grant: Grant,
        /// Server time of the grant in milliseconds since 1970.
        at_ms: u64,
    },
    /// Somebody took this hold away by force. A reason to ask whether that is so, and no more. It goes to the
    /// inbox of the client that held.
    Forced {
        /// The number of the former holder, an owner of that client.
        number: u64,
        /// Names the hold.
        token: Token,
    },
}

/// An operation could not be carried out; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoreError {
    /// The next token would not be exact in a double any more.
    TokenExhausted,
    /// The lock is held as another kind: a string where a hash belongs, or the other way round.
    WrongType,
    /// What stands under the name surely is no lock.
    NotALock(NotALock),
}

impl fmt::Display for CoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenExhausted => write!(
                f,
                "the lock's tokens have reached 2^53, and there are none above; use another name, or \
                 remove the token key"
            ),
            Self::WrongType => write!(
                f,
                "the name is in use for a lock of another kind (simple beside fair or plain); all \
                 users of a lock must name the same kind"
            ),
            Self::NotALock(found) => write!(
                f,
                "the name stands for {found}; another program uses it: use another name, or remove \
                 what stands there if nobody needs it"
            ),
        }
    }
}

impl std::error::Error for CoreError {}
